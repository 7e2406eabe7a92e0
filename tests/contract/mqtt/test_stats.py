"""Counters of clients, producers and consumers: what their docstrings promise."""

from __future__ import annotations

import asyncio

import pytest

import forebay

from support.mqtt.harness import MqttService, take
from support.observing import behind, check_latency, check_sums
from support.waiting import until


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_sent_and_received_is_counted(broker: MqttService, topic: str, qos: int) -> None:
    async with forebay.connect(broker.url) as client:
        async with client.producer(topic, qos=qos) as producer, client.consumer(topic, qos=qos) as consumer:
            await producer.send_many([b"12345"] * 100)
            sent = producer.stats()
            size = 5 + len(topic)
            assert (sent["messages_sent"], sent["bytes_sent"]) == (100, 100 * size)
            assert (sent["messages_failed"], sent["messages_pending"]) == (0, 0)
            check_latency(sent)
            # Acknowledges them.
            await take(consumer, 100)
            got = consumer.stats()
            assert (got["messages_received"], got["bytes_received"]) == (100, 500)
            assert got["messages_acknowledged"] == 100
            check_sums(client, [producer], [consumer])
        assert client.stats()["messages_sent"] == client.stats()["messages_received"] == 100


async def test_counters_go_on_over_reconnects(broker: MqttService, topic: str) -> None:
    async with (
        behind(broker.url, told=False) as (proxy, url),
        forebay.connect(url, max_backoff=0.2) as client,
        client.consumer(topic, qos=1) as consumer,
    ):
        for turn in range(3):
            await client.publish(topic, b"x", qos=1)
            await take(consumer, 1)
            assert client.stats()["messages_sent"] == turn + 1
            proxy.cut()
            await until(lambda turn=turn: client.stats()["reconnects"] > turn)


async def test_a_birth_message_is_published_after_each_connect(broker: MqttService, topic: str) -> None:
    """Before what waited for the connection."""
    birth = {"topic": f"{topic}/state", "payload": b"on", "qos": 1, "retain": True}
    async with (
        behind(broker.url, told=False) as (proxy, url),
        forebay.connect(broker.url) as watcher,
        watcher.consumer(f"{topic}/#", qos=1) as consumer,
        forebay.connect(url, birth=birth, max_backoff=0.2) as client,
    ):
        assert [bytes(one.data) for one in await take(consumer, 1)] == [b"on"]
        await until(lambda: client.stats()["births"] == 1)
        await proxy.deafen()
        proxy.cut()
        await until(lambda: not client.stats()["connected"])
        waiting = [client.publish(f"{topic}/sale", b"a book", qos=qos) for qos in (1, 2)]
        await proxy.listen()
        await asyncio.gather(*waiting)
        got = await take(consumer, 3)
        assert [bytes(one.data) for one in got] == [b"on", b"a book", b"a book"]
        await until(lambda: client.stats()["births"] == 2)
        assert client.stats()["births_refused"] == 0
        # It is not of the application: not in its counters.
        assert client.stats()["messages_sent"] == 2
        async with watcher.consumer(f"{topic}/state", qos=1) as late:
            (kept,) = await take(late, 1)
            assert kept.retain and bytes(kept.data) == b"on"
        await watcher.publish(f"{topic}/state", b"", retain=True, qos=1)


async def test_a_birth_message_that_is_refused_is_counted(
    embedded_mqtt: MqttService, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One of MQTT 5 on a connection of MQTT 3: the client goes on."""
    birth = {"topic": topic, "payload": b"on", "properties": {"a": "b"}}
    with caplog.at_level("WARNING", "forebay"):
        async with forebay.connect(embedded_mqtt.url, birth=birth, version="3.1.1") as client:
            assert client.stats()["births_refused"] == 1 and client.stats()["births"] == 0
            await client.publish(topic, b"x", qos=1)
            await until(lambda: "birth message was not published" in caplog.text)
