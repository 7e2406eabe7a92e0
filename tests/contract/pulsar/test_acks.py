"""Acknowledgement, negative acknowledgement, redelivery."""

from __future__ import annotations

import time
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import gather, nothing, numbered, payloads, receive
from support.waiting import PATIENCE

TYPES = ["exclusive", "failover", "shared", "key_shared"]


async def again(client: Any, topic: str, **options: Any) -> list[bytes]:
    """The messages that a new consumer of the subscription receives before a marker that is sent now."""
    async with client.consumer(topic, "s", **options) as consumer, client.producer(topic) as producer:
        await producer.send(b"mark", key="mark")
        got: list[bytes] = []
        deadline = time.monotonic() + PATIENCE
        while b"mark" not in got:
            assert time.monotonic() < deadline, got
            got += payloads(await consumer.receive_many(100, timeout=1))
        return sorted(payload for payload in got if payload != b"mark")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_what_is_acknowledged_does_not_come_again(
    client: Any, topic: str, kind: str, batching: bool
) -> None:
    async with client.consumer(topic, "s", type=kind) as consumer:
        async with client.producer(topic, batching=batching) as producer:
            await gather(*[producer.send(payload, key="k") for payload in numbered(20)])
        for message in await receive(consumer, 20):
            await consumer.ack(message)
    assert await again(client, topic, type=kind) == []


async def batches(producer: Any) -> list[bytes]:
    """Sends messages, some of which share an entry, and returns their payloads."""
    sent = numbered(200)
    ids = await producer.send_many(sent, ["k"] * len(sent))
    assert len({(message_id.ledger, message_id.entry) for message_id in ids}) < len(ids)
    return sent


@pytest.mark.parametrize("kind", TYPES)
async def test_half_of_a_batch_can_be_acknowledged(client: Any, topic: str, kind: str) -> None:
    async with client.consumer(topic, "s", type=kind, ack_receipt=True) as consumer:
        async with client.producer(topic) as producer:
            sent = await batches(producer)
        messages = await receive(consumer, len(sent))
        await consumer.ack_many(messages[::2])
    assert await again(client, topic, type=kind) == sent[1::2]


async def test_without_batch_index_acknowledgement_the_whole_batch_comes_again(
    client: Any, topic: str
) -> None:
    options: dict[str, Any] = {"type": "shared", "batch_index_ack": False}
    async with client.consumer(topic, "s", **options) as consumer:
        async with client.producer(topic) as producer:
            sent = await batches(producer)
        messages = await receive(consumer, len(sent))
        # All but the last message of the largest batch.
        largest = max(messages, key=lambda message: message.id.batch_size).id
        entry = [message for message in messages if message.id.entry == largest.entry]
        assert len(entry) > 1
        await consumer.ack_many([message for message in messages if message is not entry[-1]])
    async with client.consumer(topic, "s", **options) as consumer:
        messages = await receive(consumer, len(entry))
        assert payloads(messages) == payloads(entry)
        await consumer.ack_many(messages)
    assert await again(client, topic, **options) == []


@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_cumulative_acknowledgement_covers_all_before(client: Any, topic: str, batching: bool) -> None:
    async with client.consumer(topic, "s", ack_receipt=True) as consumer:
        async with client.producer(topic, batching=batching) as producer:
            await gather(*[producer.send(payload) for payload in numbered(20)])
        messages = await receive(consumer, 20)
        await consumer.ack_cumulative(messages[11])
    assert await again(client, topic) == numbered(20)[12:]


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_cumulative_acknowledgement_is_refused_where_it_makes_no_sense(
    client: Any, topic: str, kind: str
) -> None:
    async with client.consumer(topic, "s", type=kind) as consumer, client.producer(topic) as producer:
        await producer.send(b"x", key="k")
        message = await consumer.receive(timeout=PATIENCE)
        with pytest.raises(errors.NotAllowed):
            await consumer.ack_cumulative(message)


async def test_acknowledging_by_id(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", ack_receipt=True) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await gather(*[producer.send(payload) for payload in numbered(5)])
        for message in await receive(consumer, 5):
            await consumer.ack(message.id)
    assert await again(client, topic) == []


async def test_acknowledging_out_of_order(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared", ack_receipt=True) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await gather(*[producer.send(payload) for payload in numbered(10)])
        messages = await receive(consumer, 10)
        await consumer.ack_many([messages[i] for i in (9, 3, 5, 1)])
    expected = [payload for i, payload in enumerate(numbered(10)) if i not in (9, 3, 5, 1)]
    assert await again(client, topic, type="shared") == expected


async def test_acknowledging_twice_does_no_harm(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", ack_receipt=True) as consumer, client.producer(topic) as producer:
        await producer.send(b"x")
        message = await consumer.receive(timeout=PATIENCE)
        await consumer.ack(message)
        await consumer.ack(message)
        await producer.send(b"y")
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"y"


async def test_acknowledgements_are_handed_over_when_the_consumer_closes(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", ack_group_time="30s") as consumer,
        client.producer(topic) as producer,
    ):
        await producer.send_many(numbered(10))
        await consumer.ack_many(await receive(consumer, 10))
    assert await again(client, topic) == []


async def test_the_receipt_of_an_acknowledgement_comes_at_once(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", ack_receipt=True, ack_group_time="30s") as consumer,
        client.producer(topic) as producer,
    ):
        await producer.send(b"x")
        started = time.monotonic()
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
        assert time.monotonic() - started < 25


@pytest.mark.parametrize("kind", TYPES)
async def test_a_refused_message_comes_again_after_the_delay(client: Any, topic: str, kind: str) -> None:
    async with (
        client.consumer(topic, "s", type=kind, nack_delay=0.3) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x", key="k")
        message = await consumer.receive(timeout=PATIENCE)
        started = time.monotonic()
        await consumer.nack(message)
        second = await consumer.receive(timeout=PATIENCE)
        assert time.monotonic() - started > 0.2
        assert (bytes(second.data), second.id) == (b"x", message.id)
        await consumer.ack(second)


async def test_the_delay_can_be_given_with_the_refusal(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared") as consumer, client.producer(topic) as producer:
        await producer.send(b"x")
        started = time.monotonic()
        # Otherwise the delay is 60 seconds.
        await consumer.nack(await consumer.receive(timeout=45), delay="200ms")
        await consumer.receive(timeout=45)
        assert 0.1 < time.monotonic() - started < 50


async def test_the_count_of_redeliveries_grows(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", nack_delay=0.05) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        counts = []
        for _ in range(4):
            message = await consumer.receive(timeout=PATIENCE)
            counts.append(message.redelivery_count)
            await consumer.nack(message)
        assert counts == [0, 1, 2, 3]


async def test_an_acknowledged_message_cannot_be_refused_any_more(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", nack_delay=0.1, ack_receipt=True) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        message = await consumer.receive(timeout=PATIENCE)
        await consumer.ack(message)
        await consumer.nack(message)
        await nothing(consumer, 0.8)


async def test_many_can_be_refused_at_once(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared") as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await gather(*[producer.send(payload) for payload in numbered(20)])
        messages = await receive(consumer, 20)
        await consumer.nack_many(messages[:10], delay=0.1)
        await consumer.ack_many(messages[10:])
        assert sorted(payloads(await receive(consumer, 10))) == numbered(20)[:10]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_all_that_is_not_acknowledged_can_be_wanted_again(client: Any, topic: str, kind: str) -> None:
    async with (
        client.consumer(topic, "s", type=kind, ack_receipt=True) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await gather(*[producer.send(payload) for payload in numbered(10)])
        messages = await receive(consumer, 10)
        await consumer.ack_many(messages[:4])
        await consumer.redeliver_unacknowledged()
        assert sorted(payloads(await receive(consumer, 6))) == numbered(10)[4:]


async def test_a_refused_message_does_not_hold_up_the_others(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", nack_delay="300s") as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"refused")
        await consumer.nack(await consumer.receive(timeout=PATIENCE))
        await producer.send(b"next")
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"next"


async def test_acknowledging_after_close_is_an_error(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        consumer = await client.consumer(topic, "s")
        await producer.send(b"x")
        message = await consumer.receive(timeout=PATIENCE)
        await consumer.close()
        with pytest.raises(errors.Closed):
            await consumer.ack(message)


async def test_the_last_id_is_that_of_the_last_message(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        ids = await gather(*[producer.send(payload) for payload in numbered(5)])
        (last,) = await consumer.last_message_ids()
        assert (last.ledger, last.entry) == (ids[-1].ledger, ids[-1].entry)


async def test_the_last_id_of_an_empty_topic_is_before_everything(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer:
        (last,) = await consumer.last_message_ids()
        assert last <= forebay.pulsar.MessageId.earliest or last.entry in (-1, 2**64 - 1)
