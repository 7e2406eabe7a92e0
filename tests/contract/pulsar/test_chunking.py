"""Chunked messages that stay incomplete: their limits by number and by age."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
import forebay.pulsar

from support.messages import nothing, payloads, receive
from support.observing import behind
from support.pulsar.chunks import Chunks
from support.pulsar.harness import PulsarService
from support.waiting import until


@pytest.fixture
def chunks(service: PulsarService, topic: str) -> Iterator[Chunks]:
    sender = Chunks(service, topic)
    yield sender
    sender.peer.close()


def given_up(consumer: Any) -> tuple[int, int, int]:
    """Messages dropped and expired, and chunks acknowledged for want of the others."""
    stats = consumer.stats()
    dropped, expired = stats["dropped_chunked_messages"], stats["expired_chunked_messages"]
    return dropped, expired, stats["orphaned_chunks"]


async def test_the_oldest_of_too_many_incomplete_messages_makes_room(
    client: Any, topic: str, chunks: Chunks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "forebay")
    async with client.consumer(topic, "s", max_pending_chunked_messages=2) as consumer:
        for uuid in "abc":
            chunks.send(uuid, 0, 2)
        await until(lambda: given_up(consumer) == (1, 0, 0))
        for uuid in "abc":
            chunks.send(uuid, 1, 2)
        for message in await receive(consumer, 2):
            await consumer.ack(message)
        await nothing(consumer)
    await until(lambda: any("others needed its room" in record.message for record in caplog.records))
    # It was not acknowledged.
    async with client.consumer(topic, "s") as consumer:
        assert payloads(await receive(consumer, 1)) == [b"01"]


async def test_what_makes_room_is_acknowledged_if_asked_for(client: Any, topic: str, chunks: Chunks) -> None:
    limits = {"max_pending_chunked_messages": 1, "ack_incomplete_chunks": True}
    async with client.consumer(topic, "s", **limits) as consumer:
        chunks.send("a", 0, 2)
        chunks.send("b", 0, 2)
        await until(lambda: given_up(consumer) == (1, 0, 0))
        chunks.send("a", 1, 2)
        chunks.send("b", 1, 2)
        (message,) = await receive(consumer, 1)
        await consumer.ack(message)
        await until(lambda: given_up(consumer) == (1, 0, 1))
    async with client.consumer(topic, "s") as consumer:
        await nothing(consumer, 1)
        assert given_up(consumer) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_an_incomplete_message_that_waits_too_long_is_acknowledged_if_asked_for(
    client: Any, topic: str, chunks: Chunks, kind: str
) -> None:
    limits = {"chunked_message_timeout": 5, "ack_incomplete_chunks": True}
    async with client.consumer(topic, "s", type=kind, **limits) as consumer:
        chunks.send("a", 0, 3)
        chunks.send("a", 1, 3)
        await until(lambda: given_up(consumer) == (0, 1, 0))
        chunks.send("a", 2, 3)
        await until(lambda: given_up(consumer) == (0, 1, 1))
    async with client.consumer(topic, "s", type=kind, chunked_message_timeout=0) as consumer:
        await nothing(consumer, 1)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_a_message_whose_producer_goes_on_late_is_delivered(
    client: Any, topic: str, chunks: Chunks, kind: str
) -> None:
    async with client.consumer(topic, "s", type=kind, chunked_message_timeout=0.3) as consumer:
        chunks.send("a", 0, 2)
        await until(lambda: given_up(consumer) == (0, 1, 0))
        chunks.send("a", 1, 2)
        (message,) = await receive(consumer, 1)
        assert message.data == b"01"
        await consumer.ack(message)
    async with client.consumer(topic, "s", type=kind) as consumer:
        await nothing(consumer, 1)


async def test_what_the_application_has_not_room_for_does_not_expire(
    client: Any, topic: str, chunks: Chunks
) -> None:
    limits = {"chunked_message_timeout": 5, "ack_incomplete_chunks": True, "receiver_queue": 1}
    async with (
        client.consumer(topic, "s", **limits) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        chunks.send("a", 0, 2)
        await producer.send(b"between")
        chunks.send("a", 1, 2)
        await asyncio.sleep(7)
        assert payloads(await receive(consumer, 2)) == [b"between", b"01"]
        assert given_up(consumer) == (0, 0, 0)


async def test_a_reader_gets_a_message_that_began_before_the_one_that_it_took_last(
    service: PulsarService, topic: str, chunks: Chunks
) -> None:
    async with (
        behind(service.url, told=True) as (proxy, url),
        forebay.connect(url, max_backoff=0.2) as client,
        client.reader(topic, position="earliest") as reader,
    ):
        chunks.send("a", 0, 2)
        chunks.send("b", 0, 2)
        chunks.send("b", 1, 2)
        (first,) = await receive(reader, 1)
        assert first.producer_name == "chunks"
        proxy.cut()
        await until(lambda: client.stats()["resubscribed"] > 0)
        chunks.send("a", 1, 2)
        (second,) = await receive(reader, 1)
        assert second.id > first.id
        await nothing(reader)


async def test_a_position_at_a_chunked_message_is_at_its_first_chunk(client: Any, topic: str) -> None:
    big = bytes(range(256)) * 1200
    async with (
        client.producer(topic, batching=False, chunking=True, chunk_max_size=100_000) as producer,
        client.consumer(topic, "s", position="earliest") as consumer,
    ):
        await producer.send(b"before")
        sent = await producer.send(big)
        await producer.send(b"behind")
        _, received, _ = await receive(consumer, 3)
        assert received.data == big
        assert received.id.first_chunk is not None
        assert received.id.first_chunk.entry == received.id.entry - 3
        stored = forebay.pulsar.MessageId.from_bytes(received.id.to_bytes(), received.id.topic)
        for id in (received.id, sent, stored, pickle.loads(pickle.dumps(sent))):
            assert id == received.id and id.first_chunk == received.id.first_chunk
            await consumer.seek(id, inclusive=True)
            assert payloads(await receive(consumer, 2)) == [big, b"behind"]
            await consumer.seek(id)
            assert payloads(await receive(consumer, 1)) == [b"behind"]
            async with client.reader(topic, position=id, start_inclusive=True) as reader:
                assert payloads(await receive(reader, 2)) == [big, b"behind"]
        # Of those that are sent together as well.
        ids = await producer.send_many([b"small", big])
        assert ids[0].first_chunk is None and ids[-1].first_chunk.entry == ids[1].entry - 3
        assert [each.first_chunk for each in ids[:]] == [None, ids[1].first_chunk]
