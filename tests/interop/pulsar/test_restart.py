"""A real Pulsar that stops and starts, and topics that move, under load."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import forebay

from support.messages import numbered, payloads
from support.pulsar.harness import RealPulsar
from support.pulsar.load import (
    Load,
    check,
    numbers,
    repeats_in,
    seen_by,
    stored,
    unload_what_stands_still,
)

pytestmark = [pytest.mark.real_pulsar, pytest.mark.slow, pytest.mark.timeout(600)]


def connect(broker: RealPulsar) -> Any:
    return forebay.connect(broker.url, max_backoff=0.5, operation_timeout=60, connect_timeout=60)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_a_restart_in_mid_flight_loses_nothing_acknowledged(own_pulsar: RealPulsar, kill: bool) -> None:
    topic = own_pulsar.topic()
    async with connect(own_pulsar) as client:
        async with Load(client, topic) as load:
            await load.progress(2000)
            await asyncio.to_thread(own_pulsar.halt, kill=kill)
            await asyncio.to_thread(own_pulsar.start)
            await load.progress(2000, timeout=90)
        check(load.acknowledged, await stored(own_pulsar, client, load, topic), repeats=True)
        assert load.failed == 0


async def receive_new(consumer: Any, sent: list[bytes]) -> None:
    """Receives and acknowledges until each of ``sent`` has arrived.

    Earlier ones may come again. While Apache Pulsar makes the file of a cursor, it confirms acknowledgements
    that it forgets if the topic closes at that moment: it logs that it closes the cursor at the acknowledged
    position, and recovers the one before.
    """
    got: list[bytes] = []
    while len(got) < len(sent):
        messages = await consumer.receive_many(100, timeout=280)
        assert messages, f"{len(got)} of {len(sent)} messages arrived"
        await consumer.ack_many(messages)
        got += [payload for payload in payloads(messages) if payload in sent]
    assert sorted(got) == sorted(sent)


async def test_a_consumer_goes_on_after_a_restart(own_pulsar: RealPulsar) -> None:
    topic = own_pulsar.topic()
    async with connect(own_pulsar) as client, client.producer(topic) as producer:
        async with client.consumer(topic, "s", ack_receipt=True) as consumer:
            await producer.send_many(numbered(100))
            await receive_new(consumer, numbered(100))
            await asyncio.to_thread(own_pulsar.halt)
            waiting = asyncio.ensure_future(receive_new(consumer, [b"after"]))
            await asyncio.to_thread(own_pulsar.start)
            await producer.send(b"after")
            await waiting


async def test_unloading_a_topic_in_mid_flight_loses_nothing(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic(partitions=2)
    async with connect(real_pulsar) as client:
        async with Load(client, topic) as load:
            for _ in range(5):
                await load.progress(500)
                await asyncio.to_thread(real_pulsar.unload, f"{topic}-partition-0")
                await asyncio.to_thread(real_pulsar.unload, f"{topic}-partition-1")
            await load.progress(500)
        check(load.acknowledged, await stored(real_pulsar, client, load, topic), repeats=True)
        assert load.failed == 0


async def test_a_consumer_goes_on_after_an_unload(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic()
    async with connect(real_pulsar) as client, client.producer(topic) as producer:
        async with client.consumer(topic, "s", type="shared", ack_receipt=True) as consumer:
            for round_ in range(5):
                sent = [b"%d-%d" % (round_, i) for i in range(50)]
                await producer.send_many(sent)
                await receive_new(consumer, sent)
                await asyncio.to_thread(real_pulsar.unload, topic)


MEMBERS = {"exclusive": 1, "failover": 2, "shared": 2, "key_shared": 2}
"""Subscriptions of a topic, of each type, with the number of their consumers."""


@contextlib.asynccontextmanager
async def subscriptions(client: Any, topic: str) -> AsyncGenerator[dict[str, dict[str, list[int]]]]:
    """Runs consumers of each type that acknowledge everything; yields the received numbers."""
    received: dict[str, dict[str, list[int]]] = {kind: defaultdict(list) for kind in MEMBERS}
    over = asyncio.Event()

    async def consume(consumer: Any, kind: str) -> None:
        while not over.is_set():
            messages = await consumer.receive_many(500, timeout=0.2)
            for name, number in numbers(messages):
                received[kind][name].append(number)
            await consumer.ack_many(messages)

    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for kind, members in MEMBERS.items():
            for _ in range(members):
                consumer = client.consumer(topic, kind, type=kind, position="earliest")
                group.create_task(consume(await stack.enter_async_context(consumer), kind))
        try:
            yield received
        finally:
            over.set()


async def all_received(
    broker: RealPulsar, received: dict[str, dict[str, list[int]]], load: Load, parts: int
) -> None:
    """Waits until each subscription has got all that was acknowledged."""
    sent = {name: set(acknowledged) for name, acknowledged in load.acknowledged.items()}

    def missing() -> dict[str, int]:
        return {
            kind: sum(len(sent[name] - set(got[name])) for name in sent) for kind, got in received.items()
        }

    for turn in range(1, 240):
        if not any(missing().values()):
            break
        await asyncio.sleep(0.5)
        if turn % 40 == 0:
            for part in range(parts):
                await asyncio.to_thread(unload_what_stands_still, broker, f"{load.topic}-partition-{part}")
    if any(missing().values()):
        pytest.fail(
            f"{missing()} are missing. The broker: {await asyncio.to_thread(seen_by, broker, load.topic)}"
        )
    # One consumer sees the order of a partition, and a key is in one partition.
    check(load.acknowledged, received["exclusive"], repeats=True)


async def test_each_type_of_subscription_gets_all_over_a_restart(own_pulsar: RealPulsar) -> None:
    topic = own_pulsar.topic(partitions=2)
    async with connect(own_pulsar) as client, subscriptions(client, topic) as received:
        async with Load(client, topic) as load:
            await load.progress(1000)
            await asyncio.to_thread(own_pulsar.halt, kill=True)
            await asyncio.to_thread(own_pulsar.start)
            await load.progress(1000, timeout=90)
        await all_received(own_pulsar, received, load, parts=2)


async def test_each_type_of_subscription_gets_all_over_an_unload(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic(partitions=2)
    async with connect(real_pulsar) as client, subscriptions(client, topic) as received:
        async with Load(client, topic) as load:
            for part in (0, 1, 0, 1):
                await load.progress(500)
                await asyncio.to_thread(real_pulsar.unload, f"{topic}-partition-{part}")
            await load.progress(500)
        await all_received(real_pulsar, received, load, parts=2)


async def test_with_deduplication_nothing_is_repeated_either(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic()
    async with connect(real_pulsar) as client:
        async with client.producer(topic) as producer:
            await producer.send(b"first:0:")
            await asyncio.to_thread(real_pulsar.drop_repetitions, topic)
        async with Load(client, topic) as load:
            for _ in range(4):
                await load.progress(500)
                await asyncio.to_thread(real_pulsar.unload, topic)
            await load.progress(500)
        found = await stored(real_pulsar, client, load, topic)
        try:
            check(load.acknowledged, found, repeats=False)
        except AssertionError as error:
            raise AssertionError(f"{error}; stored twice: {await repeats_in(client, topic)}") from None
