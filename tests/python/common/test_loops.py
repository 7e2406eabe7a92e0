"""Handles on event loops of asyncio and of others: a handle is used on the loop that it was opened on, and
says so otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

import forebay
from forebay import errors

PATIENCE = 30
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_come_and_go_on_every_loop(broker: Any, loop: str) -> None:
    async def main() -> list[bytes]:
        async with forebay.connect(broker.url) as client:
            topic = broker.topic()
            options = {} if broker.url.startswith("mqtt") else {"subscription": "s", "position": "earliest"}
            if broker.url.startswith("tubemq"):
                options["position"] = "first"
            async with client.consumer(topic, **options) as consumer, client.producer(topic) as producer:
                await asyncio.gather(*[producer.send(b"%d" % i) for i in range(100)])
                payloads: list[bytes] = []
                async with asyncio.timeout(PATIENCE):
                    async for message in consumer:
                        payloads.append(message.data)
                        await consumer.ack(message)
                        if len(payloads) == 100:
                            break
                return payloads

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert sorted(runner.run(main())) == sorted(b"%d" % i for i in range(100))


@pytest.mark.parametrize(("loop", "other"), [("asyncio", "uvloop"), ("uvloop", "asyncio")])
def test_a_send_on_another_loop_is_refused(broker: Any, loop: str, other: str) -> None:
    """Also in the thread of the handle's own loop, while that does not run."""

    async def opened() -> tuple[Any, Any]:
        client: Any = await forebay.connect(broker.url)
        return client, await client.producer(broker.topic())

    async def send(producer: Any) -> None:
        await producer.send(b"x")

    async def close(client: Any) -> None:
        await client.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        client, producer = runner.run(opened())
        with pytest.raises(errors.InvalidArgument, match="belongs to another event loop"):
            producer.send(b"x")
        with (
            asyncio.Runner(loop_factory=LOOPS[other]) as second,
            pytest.raises(errors.InvalidArgument, match="belongs to another event loop"),
        ):
            second.run(send(producer))
        runner.run(send(producer))
        runner.run(close(client))
