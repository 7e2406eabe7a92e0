"""Listeners on TubeMQ: a message that was not processed comes again."""

from __future__ import annotations

from typing import Any

import pytest

from support.messages import numbered
from support.tubemq.harness import TubeMqService, group
from support.tubemq.load import connect
from support.waiting import until

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_each_message_is_handled_and_one_that_failed_comes_again(
    tube: TubeMqService, concurrency: int
) -> None:
    topic, name = tube.topic(), group()
    got: list[bytes] = []
    raised = False

    async def callback(message: Any) -> None:
        nonlocal raised
        if message.data == b"m000005" and not raised:
            raised = True
            raise RuntimeError("no stock")
        got.append(bytes(message.data))

    async with connect(tube) as client, client.producer(topic) as producer:
        async with client.consumer(topic, name, position="first", nack_delay=0.1) as consumer:
            async with consumer.listen(callback, concurrency=concurrency) as listener:
                await producer.send_many(numbered(50))
                await until(lambda: set(got) == set(numbered(50)))
                assert listener.stats()["failed"] == 1
