"""Acknowledgement timeout, and delays that grow with the redeliveries."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from forebay import errors
from forebay.pulsar import Backoff

from support.messages import gather, nothing, numbered, payloads, receive
from support.waiting import PATIENCE

TYPES = ["exclusive", "failover", "shared", "key_shared"]


@pytest.mark.parametrize("kind", TYPES)
async def test_a_message_that_is_not_acknowledged_in_time_comes_again(
    client: Any, topic: str, kind: str
) -> None:
    async with (
        client.consumer(topic, "s", type=kind, ack_timeout=1) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x", key="k")
        started = time.monotonic()
        first = await consumer.receive(timeout=PATIENCE)
        second = await consumer.receive(timeout=PATIENCE)
        assert time.monotonic() - started >= 0.9
        assert (second.id, bytes(second.data)) == (first.id, b"x")
        await consumer.ack(second)
        counted = kind in ("shared", "key_shared")
        assert second.redelivery_count == int(counted)
        assert consumer.stats()["redelivered"] == int(counted)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_what_is_acknowledged_in_time_does_not_come_again(
    client: Any, topic: str, kind: str, batching: bool
) -> None:
    async with client.consumer(topic, "s", type=kind, ack_timeout=4) as consumer:
        async with client.producer(topic, batching=batching) as producer:
            await gather(*[producer.send(payload, key="k") for payload in numbered(20)])
        started = time.monotonic()
        messages = await receive(consumer, 20)
        if kind in ("exclusive", "failover"):
            await consumer.ack_cumulative(messages[9])
        else:
            await consumer.ack_many(messages[:10])
        await consumer.ack_many(messages[10:])
        # A machine that stood still was too late.
        if time.monotonic() - started < 3.5:
            await nothing(consumer, 5)
            assert consumer.stats() == {**consumer.stats(), "ack_timeouts": 0, "redelivered": 0}


async def test_only_the_messages_of_a_batch_that_are_late_come_again(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared", ack_timeout=3) as consumer:
        async with client.producer(topic, batching_delay=1) as producer:
            # The first is under way while the others gather in a batch.
            sent = numbered(21)
            futures = [producer.send(payload) for payload in sent]
            await gather(*futures)
        messages = await receive(consumer, 21)
        late = [message for message in messages if message.data in (sent[5], sent[11])]
        await consumer.ack_many([message for message in messages if message not in late])
        again = await receive(consumer, 2)
        assert sorted(payloads(again)) == sorted(payloads(late))
        await consumer.ack_many(again)


@pytest.mark.parametrize("by_iteration", [False, True], ids=["receive", "iteration"])
async def test_the_time_of_a_message_begins_when_it_is_received(
    client: Any, topic: str, by_iteration: bool
) -> None:
    async with client.consumer(topic, "s", type="shared", ack_timeout=4) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await gather(*[producer.send(payload) for payload in numbered(3)])
        # All are fetched, and an iteration takes them ahead; one is asked for.
        first = await anext(aiter(consumer)) if by_iteration else await consumer.receive(timeout=PATIENCE)
        await consumer.ack(first)
        await asyncio.sleep(5)
        assert consumer.stats()["ack_timeouts"] == 0
        await consumer.ack_many(await receive(consumer, 2))


async def test_the_time_of_collected_rows_begins_when_they_are_handed_over(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", ack_timeout=1) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        # It is with the wait for two rows, which is cancelled.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(consumer.read_frame(2, timeout=60), 2)
        assert consumer.stats()["ack_timeouts"] == 0
        await consumer.ack(await consumer.receive(timeout=PATIENCE))


async def test_what_is_taken_ahead_does_not_come_beside_its_new_copy(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared", nack_delay=0) as consumer:
        async with client.producer(topic, batching_delay=1) as producer:
            await producer.send_many(numbered(200))
        while (message := await anext(aiter(consumer))).id.batch_size < 2:
            await consumer.ack(message)
        # The others of its batch have been taken ahead, and the broker delivers the whole batch
        # again.
        batch = message.id.batch_size
        await consumer.nack(message)
        deadline = time.monotonic() + PATIENCE
        while consumer.stats()["redelivered"] < batch:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        got = []
        while len(got) < batch:
            again = await consumer.receive(timeout=PATIENCE)
            if again.id.entry == message.id.entry:
                assert again.redelivery_count == 1
                got.append(again)
            await consumer.ack(again)
        assert len({again.id for again in got}) == batch


async def test_a_refused_message_waits_for_its_own_delay(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", ack_timeout=1, nack_delay=60) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        await consumer.nack(await consumer.receive(timeout=PATIENCE))
        await nothing(consumer, 2.5)
        assert consumer.stats()["ack_timeouts"] == 0


async def test_a_seek_ends_the_times_of_what_was_received(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", ack_timeout=4) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        started = time.monotonic()
        await consumer.receive(timeout=PATIENCE)
        await consumer.seek("earliest")
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
        # A machine that stood still was too late.
        if time.monotonic() - started < 3.5:
            await nothing(consumer, 5)
            assert consumer.stats()["ack_timeouts"] == 0


async def test_the_partitions_have_their_own_times(service: Any, client: Any) -> None:
    topic = service.topic(partitions=3)
    async with client.consumer(topic, "s", type="shared", ack_timeout=3) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await gather(*[producer.send(payload, key=str(i)) for i, payload in enumerate(numbered(30))])
        messages = await receive(consumer, 30)
        late = messages[::10]
        await consumer.ack_many([message for message in messages if message not in late])
        again = await receive(consumer, 3)
        assert sorted(payloads(again)) == sorted(payloads(late))
        await consumer.ack_many(again)


async def test_the_delay_of_a_refused_message_grows_with_its_redeliveries(client: Any, topic: str) -> None:
    backoff = Backoff(min=0.1, max="1600ms", multiplier=4)
    async with (
        client.consumer(topic, "s", type="shared", nack_delay=backoff) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        message = await consumer.receive(timeout=PATIENCE)
        waits: list[float] = []
        for _ in range(4):
            started = time.monotonic()
            await consumer.nack(message)
            message = await consumer.receive(timeout=PATIENCE)
            waits.append(time.monotonic() - started)
        assert message.redelivery_count == 4
        for waited, least in zip(waits, [0.1, 0.4, 1.6, 1.6], strict=True):
            assert waited >= least * 0.9, waits
        # The explicit delay wins.
        started = time.monotonic()
        await consumer.nack(message, delay=0)
        await consumer.receive(timeout=PATIENCE)


async def test_the_time_to_acknowledge_grows_with_the_redeliveries(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", ack_timeout=Backoff(1, 60, multiplier=2.5)) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        arrived: list[float] = []
        messages: list[Any] = []
        started = time.monotonic()
        while len(messages) < 3:
            messages.append(await consumer.receive(timeout=PATIENCE))
            arrived.append(time.monotonic())
        await consumer.ack(messages[-1])
        assert [message.redelivery_count for message in messages] == [0, 1, 2]
        # Since the beginning: the test may see each of them late.
        assert arrived[1] - started >= 0.9
        assert arrived[2] - started >= 3.3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ack_timeout": 0.5}, "at least 1 second"),
        ({"ack_timeout": Backoff(0.5, 2)}, "at least 1 second"),
        ({"ack_timeout": "soon"}, "duration"),
        ({"nack_delay": -1}, "between 0"),
    ],
    ids=str,
)
async def test_times_that_cannot_be_are_refused(
    client: Any, topic: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        client.consumer(topic, "s", **options)
