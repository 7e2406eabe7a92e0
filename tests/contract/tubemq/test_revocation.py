"""A message that the application does not have yet comes once, whatever revokes its delivery and however it
is taken."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from forebay import errors

from support.messages import nothing, numbered, payloads
from support.taking import TAKES, Take, cancelled, gathered
from support.tubemq.harness import TubeMqService, group
from support.tubemq.load import connect
from support.waiting import PATIENCE

pytestmark = pytest.mark.timeout(120)

SENT = numbered(7)
Revoke = Callable[[Any, list[Any], list[Any]], Awaitable[list[bytes]]]
"""Revokes deliveries, given the consumer, the messages that were taken and the positions of all. Returns the
messages that come then."""

takes = pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())


async def by_seek_back(consumer: Any, _taken: list[Any], _places: list[Any]) -> list[bytes]:
    await consumer.seek("first")
    return SENT


async def by_seek_to_end(consumer: Any, _taken: list[Any], _places: list[Any]) -> list[bytes]:
    await consumer.seek("latest")
    return []


async def by_seek_to_message(consumer: Any, _taken: list[Any], places: list[Any]) -> list[bytes]:
    await consumer.seek(places[4])
    return SENT[4:]


async def by_nack(consumer: Any, taken: list[Any], _places: list[Any]) -> list[bytes]:
    await consumer.nack(taken[1], delay=0)
    return SENT[1:]


async def by_request(consumer: Any, _taken: list[Any], _places: list[Any]) -> list[bytes]:
    await consumer.redeliver_unacknowledged()
    return SENT[1:]


REVOKES: dict[str, Revoke] = {
    "seek back": by_seek_back,
    "seek to the end": by_seek_to_end,
    "seek to a message": by_seek_to_message,
    "nack": by_nack,
    "redelivery": by_request,
}


@asynccontextmanager
async def sent(tube: TubeMqService) -> AsyncGenerator[tuple[Any, str, list[Any]]]:
    """A client, a topic with one partition, and the positions of its messages, which come in one pack."""
    topic = tube.topic()
    async with connect(tube) as client:
        async with client.producer(topic) as producer:
            places = await producer.send_many(SENT)
        yield client, topic, list(places)


@takes
@pytest.mark.parametrize("revoke", REVOKES.values(), ids=REVOKES.keys())
async def test_what_is_revoked_comes_once(tube: TubeMqService, revoke: Revoke, take: Take) -> None:
    async with (
        sent(tube) as (client, topic, places),
        client.consumer(topic, group(), position="first") as consumer,
    ):
        async with gathered(consumer, len(SENT)):
            pass
        taken = [await consumer.receive(timeout=PATIENCE) for _ in range(2)]
        assert payloads(taken) == SENT[:2]
        await consumer.ack(taken[0])
        expected = await revoke(consumer, taken, places)
        assert await take(consumer, len(expected)) == expected
        await nothing(consumer)


@takes
@pytest.mark.parametrize("revoke", [None, *REVOKES.values()], ids=["nothing", *REVOKES.keys()])
async def test_a_message_of_an_iteration_that_nobody_awaited_comes_once(
    tube: TubeMqService, revoke: Revoke | None, take: Take
) -> None:
    async with (
        sent(tube) as (client, topic, places),
        client.consumer(topic, group(), position="first") as consumer,
    ):
        async with gathered(consumer, len(SENT)):
            pass
        taken = [await consumer.receive(timeout=PATIENCE) for _ in range(2)]
        await consumer.ack(taken[0])
        third = aiter(consumer).__anext__()
        expected = await revoke(consumer, taken, places) if revoke else SENT[2:]
        del third
        assert await take(consumer, len(expected)) == expected
        await nothing(consumer)


@takes
async def test_what_a_consumer_that_is_closed_has_not_handed_out_comes_to_the_next(
    tube: TubeMqService, take: Take
) -> None:
    async with sent(tube) as (client, topic, _):
        name = group()
        consumer = await client.consumer(topic, name, position="first")
        async with gathered(consumer, len(SENT)):
            pass
        assert payloads([await consumer.receive(timeout=PATIENCE)]) == SENT[:1]
        await consumer.close()
        if take is not TAKES["listener"]:
            with pytest.raises((errors.Closed, StopAsyncIteration)):
                await take(consumer, 1)
        async with client.consumer(topic, name) as consumer:
            assert await take(consumer, len(SENT)) == SENT
            await nothing(consumer, 0.1)


@takes
@pytest.mark.parametrize("wait", TAKES.values(), ids=TAKES.keys())
async def test_a_wait_that_is_cancelled_takes_nothing(tube: TubeMqService, wait: Take, take: Take) -> None:
    topic = tube.topic()
    async with connect(tube) as client, client.consumer(topic, group(), position="first") as consumer:
        await cancelled(consumer, wait)
        async with client.producer(topic) as producer:
            await producer.send(b"x")
        assert await take(consumer, 1) == [b"x"]
        await nothing(consumer, 0.1)
