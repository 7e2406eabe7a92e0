"""A consumer whose filters overlap gets each message once, with brokers that send one packet for all of them
and with those that send one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import forebay

from support.messages import nothing, numbered, payloads
from support.mqtt.harness import MqttService, take
from support.mqtt.proxy import Proxy
from support.waiting import until

Connect = Callable[..., Any]


@pytest.fixture
def connect(broker: MqttService, patience: float) -> Connect:
    def make(url: str = broker.url, **options: Any) -> Any:
        return forebay.connect(url, version="5", connect_timeout=patience, **options)

    return make


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_message_comes_once(connect: Connect, topic: str, qos: int, patience: float) -> None:
    """Also more than the window holds."""
    async with connect(receive_maximum=50) as client, connect() as other:
        async with client.subscribe([f"{topic}/x", f"{topic}/#", f"{topic}/+"], qos=qos) as consumer:
            async with other.producer(f"{topic}/x", qos=1) as producer:
                await producer.send_many(numbered(200))
            await other.publish(f"{topic}/y", b"end", qos=1)
            expected = [*numbered(200), b"end"]
            assert payloads(await take(consumer, 201, patience)) == expected
            await other.publish(f"{topic}/y/z", b"behind", qos=1)
            assert payloads(await take(consumer, 1, patience)) == [b"behind"]
            await nothing(consumer, 0.05)
            assert client.stats()["unclaimed_dropped"] == 0
            # Of the 201 messages that two or three filters match.
            assert client.stats()["copies_dropped"] in (0, 401)


async def test_retained_messages_come_once(connect: Connect, topic: str) -> None:
    async with connect() as client:
        await client.publish(f"{topic}/x", b"kept", qos=1, retain=True)
        async with client.subscribe([f"{topic}/x", f"{topic}/#"], qos=1) as consumer:
            assert payloads(await take(consumer, 1)) == [b"kept"]
            await client.publish(f"{topic}/x", b"live", qos=1)
            assert payloads(await take(consumer, 1)) == [b"live"]
            await nothing(consumer, 0.05)


async def test_neighbours_get_each_message_once(connect: Connect, topic: str) -> None:
    async with connect() as client, connect() as other:
        wide = await client.subscribe(f"{topic}/#", qos=1)
        both = await client.subscribe([f"{topic}/x", f"{topic}/#"], qos=1)
        narrow = await client.subscribe(f"{topic}/x", qos=1)
        for consumers in ([wide, both, narrow], [both, narrow], [narrow]):
            async with other.producer(f"{topic}/x", qos=1) as producer:
                await producer.send_many(numbered(20))
            # Side by side: a message is acknowledged when all have, and a broker may wait for that.
            for messages in await asyncio.gather(*[take(consumer, 20) for consumer in consumers]):
                assert payloads(messages) == numbered(20)
            for consumer in consumers:
                await nothing(consumer, 0.05)
            await consumers[0].close()


@pytest.mark.parametrize("kept", [False, True], ids=["clean", "kept"])
async def test_each_message_comes_once_after_a_reconnect(
    broker: MqttService, connect: Connect, topic: str, kept: bool
) -> None:
    session: dict[str, Any] = {"session_expiry": 0}
    if kept:
        session = {"client_id": topic.replace("/", "-"), "clean_start": False, "session_expiry": 60}
    with Proxy(broker.port) as proxy:
        async with connect(proxy.url, max_backoff=0.1, **session) as client, connect() as other:
            consumer = await client.subscribe([f"{topic}/x", f"{topic}/#"], qos=1)
            proxy.cut()
            again = "reconnects" if kept else "resubscribed"
            await until(lambda: client.stats()[again] == 1)
            async with other.producer(f"{topic}/x", qos=1) as producer:
                await producer.send_many(numbered(20))
            assert payloads(await take(consumer, 20)) == numbered(20)
            await nothing(consumer, 0.05)
            await consumer.unsubscribe()


async def test_a_filter_that_is_refused_is_named(connect: Connect, broker: MqttService, topic: str) -> None:
    """Whichever SUBSCRIBE has it, and nothing is left of the others."""
    async with connect() as client:
        too_long = f"{topic}/{'x' * 70_000}"
        with pytest.raises(forebay.errors.Error):
            await client.subscribe([f"{topic}/#", too_long], qos=1)
        async with client.subscribe(f"{topic}/#", qos=1) as consumer:
            await client.publish(f"{topic}/x", b"x", qos=1)
            assert payloads(await take(consumer, 1)) == [b"x"]
            await nothing(consumer, 0.05)
