"""Counters of clients, producers and consumers: what their docstrings promise."""

from __future__ import annotations

from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

from support.messages import receive
from support.observing import behind, check_latency, check_sums
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, until


async def test_what_is_sent_and_received_is_counted(service: PulsarService, topic: str) -> None:
    async with forebay.connect(service.url) as client:
        async with client.producer(topic) as producer, client.consumer(topic, "s", type="shared") as consumer:
            await producer.send_many([b"12345"] * 100)
            sent = producer.stats()
            assert (sent["messages_sent"], sent["bytes_sent"], sent["messages_failed"]) == (100, 500, 0)
            assert sent["messages_pending"] == 0
            check_latency(sent)
            messages = await receive(consumer, 100)
            await consumer.ack_many(messages[:60])
            await consumer.nack_many(messages[60:], delay=0)
            again = await receive(consumer, 40)
            await consumer.ack_many(again)
            got = consumer.stats()
            assert (got["messages_received"], got["bytes_received"]) == (140, 700)
            assert (got["messages_acknowledged"], got["messages_refused"]) == (100, 40)
            assert got["redelivered"] == 40
            with pytest.raises(errors.MessageTooLarge):
                await producer.send(b"x" * (64 << 20))
            await producer.send_many([b"12345"] * 10)
            assert len(await consumer.receive_batch(10, timeout=PATIENCE)) == 10
            got = consumer.stats()
            assert (got["messages_received"], got["bytes_received"]) == (150, 750)
            check_sums(client, [producer], [consumer])
        # Of handles that are closed, too.
        assert client.stats()["messages_sent"] == 110
        assert client.stats()["messages_received"] == 150


async def test_acknowledgements_with_a_receipt_are_counted(service: PulsarService, topic: str) -> None:
    async with forebay.connect(service.url) as client:
        consumer = await client.consumer(topic, "s", ack_receipt=True)
        async with client.producer(topic) as producer:
            await producer.send_many([b"x"] * 5)
        messages = await receive(consumer, 5)
        await consumer.ack(messages[0])
        assert consumer.stats()["messages_acknowledged"] == 1
        await consumer.ack_many(messages[1:3])
        assert consumer.stats()["messages_acknowledged"] == 3
        await consumer.ack_cumulative(messages[4])
        assert consumer.stats()["messages_acknowledged"] == 4, "one call, as without a receipt"
        with pytest.raises(errors.InvalidArgument):
            await consumer.ack(forebay.pulsar.MessageId.latest)
        assert client.stats()["messages_acknowledged"] == 4
        await consumer.close()


async def test_lookups_are_counted(service: PulsarService, topic: str) -> None:
    async with forebay.connect(service.url) as client:
        before = client.stats()
        assert (before["lookups"], before["lookups_failed"], before["lookup_latency_p99"]) == (0, 0, None)
        async with client.producer(topic):
            after = client.stats()
            # Partitions and the broker.
            assert after["lookups"] == after["lookup_latency_count"] == 2
            assert 0 < after["lookup_latency_p50"] <= after["lookup_latency_p99"] < PATIENCE
            assert after["lookup_latency_sum"] > 0
        with pytest.raises(errors.Error, match="schema"):
            await client.schema(topic)
        failed = client.stats()
        assert failed["lookups_failed"] == 1 and failed["lookups"] == 3
        assert failed["lookup_latency_count"] == 2
        assert f"pulsar_client_lookup_count {failed['lookups']}\n" in client.metrics()
        assert "pulsar_client_lookup_duration_seconds_count 2\n" in client.metrics()


async def test_counters_go_on_over_reconnects(service: PulsarService, topic: str) -> None:
    async with (
        behind(service.url, told=True) as (proxy, url),
        forebay.connect(url, max_backoff=0.2) as client,
        client.producer(topic) as producer,
        client.consumer(topic, "s") as consumer,
    ):
        seen: list[dict[str, Any]] = []
        for turn in range(3):
            await producer.send_many([b"x"] * 10)
            await consumer.ack_many(await receive(consumer, 10))
            seen.append(client.stats())
            proxy.cut()
            await until(lambda turn=turn: client.stats()["reconnects"] > turn)
        assert [one["messages_sent"] for one in seen] == [10, 20, 30]
        assert seen[-1]["messages_received"] >= 30 and seen[-1]["messages_acknowledged"] == 30


async def test_messages_that_fail_are_counted(service: PulsarService, topic: str) -> None:
    async with behind(service.url, told=True) as (proxy, url), forebay.connect(url) as client:
        producer = await client.producer(topic, send_timeout=0.2)
        await proxy.deafen()
        proxy.cut()
        with pytest.raises(errors.Timeout):
            await producer.send(b"lost")
        assert (producer.stats()["messages_failed"], producer.stats()["messages_sent"]) == (1, 0)
        await producer.close()


def test_the_blocking_face(service: PulsarService, topic: str) -> None:
    with connect_blocking(service.url) as client:
        with client.producer(topic) as producer, client.consumer(topic, "s") as consumer:
            producer.send(b"abc")
            consumer.ack(consumer.receive(timeout=PATIENCE))
            assert producer.stats()["bytes_sent"] == 3
            assert consumer.stats()["messages_acknowledged"] == 1
            check_sums(client, [producer], [consumer])
