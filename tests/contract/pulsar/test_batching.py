"""Batches and compression: their effect on ids, and none on anything else."""

from __future__ import annotations

import os
from typing import Any

import pytest

from forebay import errors

from support.messages import gather, numbered, payloads, receive
from support.waiting import PATIENCE

CODECS = ["lz4", "zlib", "zstd", "snappy"]


async def test_without_batching_each_message_has_an_entry(client: Any, topic: str) -> None:
    async with client.producer(topic, batching=False) as producer:
        ids = await gather(*[producer.send(payload) for payload in numbered(20)])
    assert {message_id.batch_index for message_id in ids} == {-1}
    assert len({(message_id.ledger, message_id.entry) for message_id in ids}) == 20


async def test_with_batching_messages_share_entries(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        ids = list(await producer.send_many(numbered(1000)))
    assert len({(message_id.ledger, message_id.entry) for message_id in ids}) < 1000
    assert all(0 <= message_id.batch_index < message_id.batch_size for message_id in ids)


async def test_a_batch_holds_no_more_messages_than_it_may(client: Any, topic: str) -> None:
    async with client.producer(topic, batch_max_messages=10) as producer:
        ids = list(await producer.send_many(numbered(200)))
    assert max(message_id.batch_size for message_id in ids) <= 10


async def test_a_batch_holds_no_more_bytes_than_it_may(client: Any, topic: str) -> None:
    async with client.producer(topic, batch_max_bytes="4KiB") as producer:
        ids = list(await producer.send_many(numbered(100, 1000)))
    assert max(message_id.batch_size for message_id in ids) <= 5


async def test_a_message_larger_than_a_batch_goes_alone(client: Any, topic: str) -> None:
    sent = [b"small", bytes(50_000), b"small again"]
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, batch_max_bytes=1000) as producer,
    ):
        await gather(*[producer.send(payload) for payload in sent])
        assert payloads(await receive(consumer, 3)) == sent


async def test_flush_closes_the_open_batch(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, batching_delay="20s") as producer,
    ):
        sent = [producer.send(payload) for payload in numbered(10)]
        await producer.flush()
        assert all(future.done() for future in sent)
        assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_batches_per_key_hold_one_key_each(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, key_based_batching=True) as producer,
    ):
        keys = ["a", "b", "c"] * 40
        await producer.send_many(numbered(120), keys)
        entries: dict[tuple[int, int], set[str]] = {}
        for message in await receive(consumer, 120):
            entries.setdefault((message.id.ledger, message.id.entry), set()).add(message.key)
        assert all(len(keys) == 1 for keys in entries.values())


async def test_interleaved_keys_share_batches_and_keep_their_order(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, name="keyed", key_based_batching=True, batching_delay=0.05) as producer,
    ):
        keys = [str(i % 20) for i in range(1000)]
        ids = list(await producer.send_many(numbered(1000), keys))
        received = await receive(consumer, 1000)
        assert len({(at.ledger, at.entry) for at in ids}) <= 60
        by_key: dict[str, list[bytes]] = {}
        for message in received:
            by_key.setdefault(message.key, []).append(bytes(message.data))
        assert all(payloads == sorted(payloads) for payloads in by_key.values())
        # The id of each send is that of its message.
        assert {str(message.id): bytes(message.data) for message in received} == {
            str(at): payload for at, payload in zip(ids, numbered(1000), strict=True)
        }


async def test_everything_of_a_message_survives_a_batch(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await gather(
            *[
                producer.send(
                    b"%d" % i,
                    f"key-{i}",
                    ordering_key=b"o%d" % i,
                    properties={"n": str(i)},
                    event_time=1_700_000_000_000 + i,
                )
                for i in range(50)
            ]
        )
        for i, message in enumerate(await receive(consumer, 50)):
            assert bytes(message.data) == b"%d" % i
            assert (message.key, message.ordering_key) == (f"key-{i}", b"o%d" % i)
            assert (message.properties, message.event_time) == ({"n": str(i)}, 1_700_000_000_000 + i)
            assert message.sequence_id == i


@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
@pytest.mark.parametrize("codec", CODECS)
async def test_compressed_messages_come_as_they_were_sent(
    client: Any, topic: str, codec: str, batching: bool
) -> None:
    sent = numbered(100, 500)
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, compression=codec, batching=batching) as producer,
    ):
        await gather(*[producer.send(payload, properties={"a": "b"}) for payload in sent])
        messages = await receive(consumer, 100)
        assert payloads(messages) == sent
        assert {message.properties["a"] for message in messages} == {"b"}


@pytest.mark.parametrize("codec", CODECS)
async def test_empty_and_incompressible_payloads_survive_compression(
    client: Any, topic: str, codec: str
) -> None:
    sent = [b"", os.urandom(10_000), b"x", bytes(300_000)]
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, compression=codec, batching=False) as producer,
    ):
        for payload in sent:
            await producer.send(payload)
        assert payloads(await receive(consumer, 4)) == sent


async def test_compression_lets_more_through_than_the_limit(client: Any, topic: str) -> None:
    payload = bytes(4_000_000)
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, compression="zstd", batching=False) as producer,
    ):
        await producer.send(payload)
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == payload


async def test_a_batch_keeps_tombstones_apart_from_empty_messages(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, batching_delay="20s") as producer,
    ):
        producer.send_nowait(b"", "a", null_value=True)
        producer.send_nowait(b"", "b", properties={"p": "1"})
        producer.send_nowait(b"x", event_time=5)
        await producer.flush()
        messages = await receive(consumer, 3)
        assert [message.is_null for message in messages] == [True, False, False]
        assert [message.key for message in messages] == ["a", "b", None]
        assert [message.properties for message in messages] == [{}, {"p": "1"}, {}]
        assert [message.event_time for message in messages] == [None, None, 5]
        assert all(message.id.batch_size > 0 for message in messages)


async def test_messages_for_some_clusters_keep_their_place(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await gather(
            *[
                producer.send(
                    payload,
                    replicate_to=["standalone"] if i % 3 == 1 else None,
                    disable_replication=i % 3 == 2,
                )
                for i, payload in enumerate(numbered(30))
            ]
        )
        assert payloads(await receive(consumer, 30)) == numbered(30)


@pytest.mark.parametrize(
    "fields",
    [
        {"replicate_to": []},
        {"replicate_to": "east"},
        {"replicate_to": [""]},
        {"replicate_to": [1]},
        {"replicate_to": ["east"], "disable_replication": True},
    ],
)
async def test_clusters_that_cannot_be_are_refused(client: Any, topic: str, fields: dict[str, Any]) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match="replicate_to"):
            producer.send(b"x", **fields)
        with pytest.raises(errors.InvalidArgument, match="replicate_to"):
            producer.send_nowait(b"x", **fields)
        await producer.send(b"good")


async def test_small_batches_can_be_left_uncompressed(client: Any, topic: str) -> None:
    sent = [b"small", bytes(5000), bytes(999), bytes(1000)]
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, compression="zstd", compression_min_size="1000", batching=False) as producer,
    ):
        for payload in sent:
            await producer.send(payload)
        assert payloads(await receive(consumer, 4)) == sent


async def test_chunks_may_be_smaller_than_the_broker_allows(client: Any, topic: str) -> None:
    sent = [os.urandom(100_000), b"small", os.urandom(20_000)]
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(
            topic, batching=False, chunking=True, chunk_max_size="16KiB", max_pending=1000
        ) as producer,
    ):
        ids = await gather(*[producer.send(payload) for payload in sent])
        messages = await receive(consumer, 3)
        assert payloads(messages) == sent
        assert [at.entry for at in ids] == [6, 7, 9], "the id of a chunked message is that of its last chunk"
