"""A message that the application does not have yet comes once, whatever revokes its delivery and however it
is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from forebay import errors
from forebay.pulsar import DeadLetterPolicy

from support.messages import nothing, numbered, payloads
from support.pulsar.harness import PulsarService
from support.taking import TAKES, Take, cancelled, gathered
from support.waiting import PATIENCE, until

SENT = numbered(7)
Revoke = Callable[[Any, Any], Awaitable[list[bytes]]]
"""Revokes deliveries, given the consumer and a message that was taken. Returns the messages to come."""

takes = pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())


async def send(client: Any, topic: str) -> None:
    """The first message is an entry of its own, the others are one batch."""
    async with client.producer(topic, batching_delay=1) as producer:
        await producer.send(SENT[0])
        await producer.send_many(SENT[1:])


async def by_seek_back(consumer: Any, _message: Any) -> list[bytes]:
    await consumer.seek("earliest")
    return SENT


async def by_seek_to_end(consumer: Any, _message: Any) -> list[bytes]:
    await consumer.seek("latest")
    return []


async def by_seek_to_message(consumer: Any, message: Any) -> list[bytes]:
    await consumer.seek(message.id)
    return SENT[2:]


async def by_nack(consumer: Any, message: Any) -> list[bytes]:
    await consumer.nack(message, delay=0)
    await until(lambda: consumer.stats()["messages_prefetched"] == 0)
    return SENT[1:]


async def by_ack_timeout(consumer: Any, _message: Any) -> list[bytes]:
    await until(lambda: consumer.stats()["ack_timeouts"] == 1)
    return SENT[1:]


async def by_request(consumer: Any, _message: Any) -> list[bytes]:
    await consumer.redeliver_unacknowledged()
    return SENT[1:]


REVOKES: dict[str, tuple[Revoke, dict[str, Any]]] = {
    "seek back": (by_seek_back, {}),
    "seek back, shared": (by_seek_back, {"type": "shared"}),
    "seek to the end": (by_seek_to_end, {}),
    "seek to a message": (by_seek_to_message, {}),
    "nack": (by_nack, {"type": "shared"}),
    "nack, exclusive": (by_nack, {}),
    "ack timeout": (by_ack_timeout, {"type": "shared", "ack_timeout": 5}),
    "redelivery": (by_request, {}),
    "redelivery, shared": (by_request, {"type": "shared"}),
}


@takes
@pytest.mark.parametrize(("revoke", "options"), REVOKES.values(), ids=REVOKES.keys())
async def test_what_is_revoked_comes_once(
    client: Any, topic: str, revoke: Revoke, options: dict[str, Any], take: Take
) -> None:
    async with client.consumer(topic, "s", **options) as consumer:
        await send(client, topic)
        async with gathered(consumer, len(SENT)):
            pass
        first, second = [await consumer.receive(timeout=PATIENCE) for _ in range(2)]
        assert payloads([first, second]) == SENT[:2]
        await consumer.ack(first)
        expected = await revoke(consumer, second)
        assert await take(consumer, len(expected)) == expected
        await nothing(consumer)
        # What comes later comes once, too.
        async with client.producer(topic) as producer:
            await producer.send(b"later")
        assert await take(consumer, 1) == [b"later"]
        await nothing(consumer, 0.1)


@pytest.mark.parametrize(
    "revoke", [by_seek_back, by_seek_to_end, by_request], ids=["back", "end", "redelivery"]
)
@pytest.mark.parametrize("name", ["receive_batch", "read_frame"])
async def test_a_batch_that_waits_keeps_nothing_that_is_revoked(
    client: Any, topic: str, revoke: Revoke, name: str
) -> None:
    async with client.consumer(topic, "s") as consumer:
        await send(client, topic)
        (first,) = await consumer.receive_many(1, timeout=PATIENCE)
        await consumer.ack(first)
        more = 1 + (revoke is by_seek_back)
        waiting = asyncio.ensure_future(TAKES[name](consumer, len(SENT) - 1 + more))
        await until(lambda: consumer.stats()["messages_prefetched"] == len(SENT) - 1)
        expected = await revoke(consumer, first)
        async with client.producer(topic) as producer:
            later = [b"later%d" % number for number in range(len(SENT) - 1 + more - len(expected))]
            await producer.send_many(later)
        assert await asyncio.wait_for(waiting, PATIENCE) == expected + later
        await nothing(consumer)


@takes
async def test_a_batch_may_be_larger_than_the_queue(client: Any, topic: str, take: Take) -> None:
    async with client.consumer(topic, "s", receiver_queue=2) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await producer.send_many(numbered(50))
        assert await take(consumer, 50) == numbered(50)
        await nothing(consumer, 0.1)


@takes
async def test_what_is_dead_comes_as_a_dead_letter_only(client: Any, topic: str, take: Take) -> None:
    options: dict[str, Any] = {"type": "shared", "nack_delay": 0, "dead_letter": DeadLetterPolicy(1)}
    async with client.consumer(topic, "s", **options) as consumer:
        await send(client, topic)
        async with gathered(consumer, len(SENT)):
            pass
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
        await consumer.nack(await consumer.receive(timeout=PATIENCE))
        await until(lambda: consumer.stats()["messages_prefetched"] == 0)
        async with gathered(consumer, len(SENT) - 1):
            pass
        again = await consumer.receive(timeout=PATIENCE)
        assert (again.redelivery_count, bytes(again.data)) == (1, SENT[1])
        await consumer.nack(again)
        await until(lambda: consumer.stats()["dead_letters"] == len(SENT) - 1)
        await nothing(consumer)
        async with client.consumer(f"{topic}-s-DLQ", "d", position="earliest") as dead:
            assert sorted(await take(dead, len(SENT) - 1)) == SENT[1:]
            await nothing(dead, 0.1)


@takes
async def test_a_topic_that_grows_loses_and_repeats_nothing(
    client: Any, service: PulsarService, take: Take
) -> None:
    topic = service.topic(partitions=1)
    async with client.consumer(topic, "s", partitions_update_interval=0.1) as consumer:
        await send(client, f"{topic}-partition-0")
        async with gathered(consumer, len(SENT)):
            service.grow_topic(topic, 2)
            async with asyncio.timeout(PATIENCE):
                while len(await consumer.last_message_ids()) < 2:
                    await asyncio.sleep(0.05)
        async with client.producer(f"{topic}-partition-1") as producer:
            await producer.send(b"grown")
        assert sorted(await take(consumer, len(SENT) + 1)) == [b"grown", *SENT]
        await nothing(consumer, 0.1)


@takes
async def test_what_a_consumer_that_is_closed_has_not_handed_out_comes_to_the_next(
    client: Any, topic: str, take: Take
) -> None:
    consumer = await client.consumer(topic, "s")
    await send(client, topic)
    async with gathered(consumer, len(SENT)):
        pass
    await consumer.ack(await consumer.receive(timeout=PATIENCE))
    await consumer.close()
    if take is not TAKES["listener"]:
        with pytest.raises((errors.Closed, StopAsyncIteration)):
            await take(consumer, 1)
    async with client.consumer(topic, "s") as consumer:
        assert await take(consumer, len(SENT) - 1) == SENT[1:]
        await nothing(consumer, 0.1)


@takes
@pytest.mark.parametrize("wait", TAKES.values(), ids=TAKES.keys())
async def test_a_wait_that_is_cancelled_takes_nothing(
    client: Any, topic: str, wait: Take, take: Take
) -> None:
    async with client.consumer(topic, "s") as consumer:
        await cancelled(consumer, wait)
        await send(client, topic)
        assert await take(consumer, len(SENT)) == SENT
        await nothing(consumer, 0.1)


@takes
@pytest.mark.parametrize(
    ("revoke", "options"),
    [(None, {}), (by_seek_back, {}), (by_seek_to_end, {}), (by_nack, {"type": "shared"}), (by_request, {})],
    ids=["nothing", "seek back", "seek to the end", "nack", "redelivery"],
)
async def test_a_message_of_an_iteration_that_nobody_awaited_comes_once(
    client: Any, topic: str, revoke: Revoke | None, options: dict[str, Any], take: Take
) -> None:
    async with client.consumer(topic, "s", **options) as consumer:
        await send(client, topic)
        async with gathered(consumer, len(SENT)):
            pass
        first, second = [await consumer.receive(timeout=PATIENCE) for _ in range(2)]
        await consumer.ack(first)
        third = aiter(consumer).__anext__()
        expected = await revoke(consumer, second) if revoke else SENT[2:]
        del third
        assert await take(consumer, len(expected)) == expected
        await nothing(consumer)


async def test_a_message_that_nobody_awaited_goes_to_the_next_wait(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send(b"x")
        async with gathered(consumer, 1):
            pass
        awaitable = aiter(consumer).__anext__()
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0.05)
        del awaitable
        assert payloads([await asyncio.wait_for(waiting, PATIENCE)]) == [b"x"]
