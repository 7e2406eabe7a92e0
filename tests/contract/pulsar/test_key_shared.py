"""Policies of Key_Shared subscriptions: ranges that consumers choose, and delivery out of order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from forebay import errors
from forebay.pulsar import KeySharedPolicy

from support.messages import gather, nothing, payloads, receive
from support.waiting import PATIENCE

KEYS = [f"key-{number}" for number in range(40)]
HALF = 32_768


async def send(client: Any, topic: str, keys: list[str] = KEYS) -> None:
    async with client.producer(topic, batching=False) as producer:
        await gather(*[producer.send(key.encode(), key=key) for key in keys])


def sticky(*ranges: tuple[int, int]) -> dict[str, Any]:
    return {"type": "key_shared", "key_shared": KeySharedPolicy(ranges=ranges)}


async def collect(consumers: list[Any], count: int) -> list[set[bytes]]:
    """The payloads that each of the consumers gets, until they have so many."""
    got: list[set[bytes]] = [set() for _ in consumers]
    async with asyncio.timeout(PATIENCE):
        while sum(map(len, got)) < count:
            for found, consumer in zip(got, consumers, strict=True):
                messages = await consumer.receive_many(100, timeout=0.05)
                await consumer.ack_many(messages)
                found.update(payloads(messages))
    return got


async def test_consumers_get_the_ranges_that_they_choose(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", **sticky((0, HALF - 1))) as low,
        client.consumer(topic, "s", **sticky((HALF, 65_535))) as high,
    ):
        await send(client, topic)
        first = await collect([low, high], len(KEYS))
        assert all(first)
    # The same ranges get the same keys, whoever comes first.
    async with (
        client.consumer(topic, "s", **sticky((HALF, 50_000), (50_001, 65_535))) as high,
        client.consumer(topic, "s", **sticky((0, HALF - 1))) as low,
    ):
        await send(client, topic)
        assert await collect([low, high], len(KEYS)) == first


async def test_what_is_in_no_range_waits(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", **sticky((0, HALF - 1))) as low:
        await send(client, topic)
        mine = set(payloads(await low.receive_many(100, timeout=PATIENCE)))
        while more := await low.receive_many(100, timeout=3):
            mine |= set(payloads(more))
        assert 0 < len(mine) < len(KEYS)
        async with client.consumer(topic, "s", **sticky((HALF, 65_535))) as high:
            rest = await receive(high, len(KEYS) - len(mine))
            assert mine | set(payloads(rest)) == {key.encode() for key in KEYS}


@pytest.mark.parametrize("ranges", [((100, 200),), ((0, 10), (150, 160)), ((200, 65_535),)])
async def test_ranges_that_overlap_are_refused(
    client: Any, topic: str, ranges: tuple[tuple[int, int], ...]
) -> None:
    async with client.consumer(topic, "s", **sticky((100, 200))):
        with pytest.raises(errors.ConsumerAssign):
            await client.consumer(topic, "s", **sticky(*ranges))
        async with client.consumer(topic, "s", **sticky((0, 99), (201, 65_535))):
            pass


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (KeySharedPolicy(), KeySharedPolicy(ranges=[(0, 10)])),
        (KeySharedPolicy(ranges=[(0, 10)]), KeySharedPolicy()),
        (KeySharedPolicy(ranges=[(0, 10)]), None),
    ],
)
async def test_consumers_must_agree(
    client: Any, topic: str, first: KeySharedPolicy | None, second: KeySharedPolicy | None
) -> None:
    def options(policy: KeySharedPolicy | None) -> dict[str, Any]:
        return {"type": "key_shared"} | ({"key_shared": policy} if policy else {})

    async with client.consumer(topic, "s", **options(first)):
        with pytest.raises((errors.ConsumerBusy, errors.ConsumerAssign)):
            await client.consumer(topic, "s", **options(second))
    # Alone, each of them is right.
    async with client.consumer(topic, "s", **options(second)):
        pass


async def test_out_of_order_a_new_consumer_need_not_wait(client: Any, topic: str) -> None:
    policy = {"type": "key_shared", "key_shared": KeySharedPolicy(out_of_order=True)}
    async with client.consumer(topic, "s", **policy) as one:
        await send(client, topic)
        # They stay unacknowledged.
        assert len(await receive(one, len(KEYS))) == len(KEYS)
        async with client.consumer(topic, "s", **policy) as two:
            await send(client, topic)
            by_consumer: dict[Any, set[bytes]] = defaultdict(set)
            async with asyncio.timeout(PATIENCE):
                while sum(map(len, by_consumer.values())) < len(KEYS):
                    for consumer in (one, two):
                        by_consumer[consumer].update(payloads(await consumer.receive_many(100, timeout=0.05)))
            assert by_consumer[one]
            assert by_consumer[two]


async def test_in_order_a_new_consumer_waits_for_what_is_not_acknowledged(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="key_shared", ack_receipt=True) as one:
        await send(client, topic)
        messages = await receive(one, len(KEYS))
        async with client.consumer(topic, "s", type="key_shared") as two:
            await send(client, topic)
            await nothing(two)
            await one.ack_many(messages)
            assert await receive(two, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"ranges": []}, "at least one"),
        ({"ranges": [(5, 1)]}, "before it begins"),
        ({"ranges": [(0, 65_536)]}, "0 to 65535"),
        ({"ranges": [(-1, 5)]}, "0 to 65535"),
        ({"ranges": [(0, 5), (5, 9)]}, "overlaps"),
        ({"ranges": [3]}, "pairs"),
        ({"ranges": [("a", "b")]}, "pairs"),
        ({"out_of_order": "maybe"}, "out_of_order"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        KeySharedPolicy(**arguments)


async def test_a_policy_is_for_key_shared_subscriptions(client: Any, topic: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="key_shared"):
        await client.consumer(topic, "s", type="shared", key_shared=KeySharedPolicy())
    with pytest.raises(errors.InvalidArgument, match="KeySharedPolicy"):
        client.consumer(topic, "s", type="key_shared", key_shared="sticky")
