"""Connection events: what a program learns of its connections, and when."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from forebay.blocking import connect as connect_blocking

from support.observing import behind, follow_a_loss, raise_in_callbacks, seek
from support.tubemq.harness import EmbeddedTubeMq, TubeMqService, group
from support.tubemq.load import connect, take
from support.waiting import eventually

pytestmark = pytest.mark.timeout(120)


async def test_a_lost_connection_is_told_and_the_way_back(tube: TubeMqService) -> None:
    topic = tube.topic()
    async with behind(tube.url, told=not tube.is_real) as (proxy, url):
        client = await connect(url)
        consumer = await client.consumer(topic, group(), position="first")
        producer = await client.producer(topic)

        async def works() -> None:
            await producer.send(b"x")
            await take(consumer, 1)

        await follow_a_loss(client, proxy, works)


async def test_a_partition_that_is_taken_again_names_its_topic() -> None:
    """A broker keeps the partition for a client whose connection is lost, but not when it starts again."""
    broker = EmbeddedTubeMq(data=True)
    try:
        topic = broker.topic()
        async with connect(broker) as client, client.consumer(topic, group()):
            events = client.events()
            await asyncio.to_thread(broker.restart)
            assert (await seek(events, "resubscribed")).topic == topic
    finally:
        broker.stop()


async def test_callbacks_that_raise_or_hang(tube: TubeMqService, caplog: Any) -> None:
    await raise_in_callbacks(await connect(tube), caplog)


def test_the_blocking_face(tube: TubeMqService) -> None:
    client = connect_blocking(tube.url)
    seen: list[Any] = []
    client.on_event(seen.append)
    rest: list[Any] = []
    reader = threading.Thread(target=lambda: rest.extend(client.events()))
    reader.start()
    eventually(lambda: bool(seen))
    client.close()
    reader.join(30)
    assert rest[0].kind == "connected" and rest[-1].kind == "disconnected" and seen == rest
