"""Whether clients, producers and consumers are connected, and ends that wait for a broker that is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

from support.observing import behind
from support.waiting import until

PATIENCE = 30
OPTIONS: dict[str, dict[str, Any]] = {
    "pulsar": {"subscription": "s"},
    "mqtt": {},
    "tubemq": {"subscription": "s", "position": "first"},
}


async def away(proxy: Any, *handles: Any) -> None:
    """Ends the connections, and lets no other through."""
    await proxy.deafen()
    proxy.cut()
    await until(lambda: not any(handle.connected for handle in handles), PATIENCE)


async def test_connected_tells_the_truth(broker: Any, protocol: str) -> None:
    topic = broker.topic()
    async with behind(broker.url, told=protocol != "mqtt") as (proxy, url):
        client: Any = await forebay.connect(url, max_backoff=0.2)
        assert client.connected
        producer = await client.producer(topic)
        consumer = await client.consumer(topic, **OPTIONS[protocol])
        await producer.send(b"x")
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
        handles = [client, producer, consumer]
        assert [handle.connected for handle in handles] == [True] * 3
        assert client.stats()["connected"] and f"{protocol}_client_connected 1\n" in client.metrics()
        await away(proxy, *handles)
        assert not client.stats()["connected"] and f"{protocol}_client_connected 0\n" in client.metrics()
        sending = producer.send(b"y")
        await proxy.listen()
        await asyncio.wait_for(sending, PATIENCE)
        assert producer.connected
        await until(lambda: all(handle.connected for handle in handles), PATIENCE)
        await producer.close()
        assert not producer.connected and consumer.connected
        await consumer.close()
        assert not consumer.connected and client.connected
        await client.close()
        assert not client.connected


async def test_a_flush_says_how_many_messages_have_no_answer(broker: Any, protocol: str) -> None:
    async with behind(broker.url, told=protocol != "mqtt") as (proxy, url):
        client: Any = await forebay.connect(url, max_backoff=0.2)
        producer = await client.producer(broker.topic())
        await producer.send(b"x")
        await away(proxy, producer)
        for _ in range(3):
            producer.send_nowait(b"x")
        with pytest.raises(errors.Timeout, match="3 messages had no answer within 200ms"):
            await producer.flush(timeout=0.2)
        assert producer.pending == 3, "they are still pending"
        await proxy.listen()
        await producer.flush(timeout=PATIENCE)
        assert producer.pending == 0
        await client.close()


async def test_failures_that_follow_a_flush_are_of_the_next(embedded: Any) -> None:
    async with behind(embedded.url, told=True) as (proxy, url):
        client = await forebay.connect(url, max_backoff=0.2)
        producer = await client.producer(embedded.topic(), send_timeout=5)
        await away(proxy, producer)
        producer.send_nowait(b"x")
        with pytest.raises(errors.Timeout, match="1 messages had no answer"):
            await producer.flush(timeout=0.1)
        await until(lambda: producer.pending == 0, PATIENCE)
        with pytest.raises(errors.Timeout, match="1 messages failed, the first with"):
            await producer.flush(timeout=PATIENCE)
        await producer.flush(timeout=PATIENCE)
        await proxy.listen()
        await client.close()


async def test_a_client_of_mqtt_says_how_many_messages_had_no_answer_when_it_was_closed(
    embedded_mqtt: Any,
) -> None:
    async with behind(embedded_mqtt.url, told=False) as (proxy, url):
        client: Any = await forebay.connect(url, max_backoff=0.2, operation_timeout=0.5)
        await away(proxy, client)
        sends = [client.publish("a/b", b"x", qos=1) for _ in range(2)]
        with pytest.raises(errors.Timeout, match="2 messages had no answer"):
            await asyncio.wait_for(client.close(), PATIENCE)
        for send in sends:
            with pytest.raises(errors.Error):
                await send


def test_the_blocking_face(broker: Any, protocol: str) -> None:
    topic = broker.topic()
    with connect_blocking(broker.url) as client:
        assert client.connected
        with client.producer(topic) as producer, client.consumer(topic, **OPTIONS[protocol]) as consumer:
            producer.send(b"x")
            consumer.receive(timeout=PATIENCE)
            assert producer.connected and consumer.connected
            producer.flush(timeout=PATIENCE)
        assert not producer.connected and not consumer.connected and client.connected
    assert not client.connected
