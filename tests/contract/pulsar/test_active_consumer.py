"""Who is served on a Failover subscription: consumers are told, and the priority decides."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from forebay import blocking, errors

from support.messages import payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


async def change(consumer: Any) -> tuple[str, bool]:
    return await asyncio.wait_for(consumer.active_change(), PATIENCE)


async def until_active(consumer: Any, wanted: bool = True) -> None:
    while consumer.is_active != wanted:
        await change(consumer)


async def test_the_one_that_stands_by_takes_over(client: Any, topic: str) -> None:
    async with client.producer(topic, batching=False) as producer:
        one = await client.consumer(topic, "s", type="failover", name="a", ack_receipt=True)
        assert await change(one) == (topic, True)
        assert one.is_active
        async with client.consumer(topic, "s", type="failover", name="b", priority=1) as two:
            await producer.send(b"first")
            assert payloads(await receive(one, 1)) == [b"first"]
            assert not two.is_active
            await one.close()
            await until_active(two)
            assert payloads(await receive(two, 1)) == [b"first"]


async def test_a_change_that_a_cancelled_wait_has_taken_is_told_to_the_next(
    client: Any, service: PulsarService, topic: str
) -> None:
    with blocking.connect(service.url) as other:
        one = other.consumer(topic, "s", type="failover", name="a")
        async with client.consumer(topic, "s", type="failover", name="b", priority=1) as two:
            # Some brokers say that it is not the active one.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(two.active_change(), 0.5)
            waiting = asyncio.ensure_future(two.active_change())
            await asyncio.sleep(0)
            # From here on the loop does not run: the engine has the change, and the loop has not.
            one.close()
            deadline = time.monotonic() + PATIENCE
            while not two.is_active and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert await change(two) == (topic, True)


async def test_the_priority_decides(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="failover", name="a", priority=5) as late:
        await until_active(late)
        async with client.consumer(topic, "s", type="failover", name="b", priority=1) as early:
            await until_active(early)
            await until_active(late, False)
        await until_active(late)


async def test_each_partition_has_its_active_consumer(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    async with (
        client.consumer(topic, "s", type="failover", name="a") as one,
        client.consumer(topic, "s", type="failover", name="b") as two,
    ):
        state: dict[str, dict[str, bool]] = {"a": {}, "b": {}}

        async def follow(name: str, consumer: Any) -> None:
            while True:
                partition, active = await consumer.active_change()
                state[name][partition] = active

        following = [asyncio.create_task(follow(name, each)) for name, each in (("a", one), ("b", two))]
        parts = [f"{topic}-partition-{number}" for number in range(2)]
        async with asyncio.timeout(PATIENCE):
            # As brokers sort them: by name.
            while not (state["a"].get(parts[0]) and state["b"].get(parts[1])) or state["a"].get(parts[1]):
                await asyncio.sleep(0.02)
        assert not one.is_active
        assert not two.is_active
        for task in following:
            task.cancel()


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
async def test_other_types_serve_all_consumers(client: Any, topic: str, kind: str) -> None:
    async with client.consumer(topic, "s", type=kind) as consumer:
        assert consumer.is_active


async def test_closing_ends_the_wait_for_a_change(client: Any, topic: str) -> None:
    consumer = await client.consumer(topic, "s")
    waiting = asyncio.create_task(consumer.active_change())
    await asyncio.sleep(0.05)
    await consumer.close()
    with pytest.raises(errors.Closed):
        await asyncio.wait_for(waiting, PATIENCE)
