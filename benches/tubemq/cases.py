"""Cases of TubeMQ: Forebay's ways to send and receive. Receiving reads messages that were sent before.

Each takes the URL, the topic, the number of messages and their size.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import forebay

from benches.clock import Clock

Report = dict[str, float]
WARM = 2_000


def _group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


async def _windowed(producer: Any, body: bytes, count: int) -> None:
    """At most the window unacknowledged; the first acknowledgement makes room."""
    for _ in range(count):
        try:
            producer.send_nowait(body)
        except forebay.QueueFull:
            await producer.send(body)
    await producer.flush()


async def _sending(url: str, topic: str, count: int, size: int, window: int) -> Report:
    body = bytes(size)
    async with forebay.connect(url) as client, client.producer(topic, max_pending=window) as producer:
        if window == 1:
            for _ in range(min(WARM, count)):
                await producer.send(body)
            clock = Clock(count)
            for _ in range(count):
                await producer.send(body)
        else:
            await _windowed(producer, body, WARM)
            clock = Clock(count)
            await _windowed(producer, body, count)
        return clock.stop()


async def send_10000(url: str, topic: str, count: int, size: int) -> Report:
    return await _sending(url, topic, count, size, 10_000)


async def send_256(url: str, topic: str, count: int, size: int) -> Report:
    return await _sending(url, topic, count, size, 256)


async def send_1(url: str, topic: str, count: int, size: int) -> Report:
    return await _sending(url, topic, count, size, 1)


async def send_many(url: str, topic: str, count: int, size: int) -> Report:
    bodies = [bytes(size)] * 10_000
    async with forebay.connect(url) as client, client.producer(topic, max_pending=10_000) as producer:
        await producer.send_many(bodies[:WARM])
        clock = Clock(count)
        for start in range(0, count, len(bodies)):
            await producer.send_many(bodies[: count - start])
        return clock.stop()


async def _receiving(
    url: str, topic: str, count: int, read: Callable[[Any, int], Awaitable[None]], **options: Any
) -> Report:
    async with forebay.connect(url) as client:
        async with client.consumer(topic, _group(), position="first", **options) as consumer:
            await read(consumer, min(WARM, count // 10))
            clock = Clock(count - min(WARM, count // 10))
            await read(consumer, clock.count)
            return clock.stop()


async def receive(url: str, topic: str, count: int, size: int) -> Report:
    async def read(consumer: Any, left: int) -> None:
        async for message in consumer:
            await consumer.ack(message)
            left -= 1
            if not left:
                return

    return await _receiving(url, topic, count, read)


async def receive_many(url: str, topic: str, count: int, size: int) -> Report:
    async def read(consumer: Any, left: int) -> None:
        while left > 0:
            messages = await consumer.receive_many(min(1000, left), timeout=10)
            assert messages, f"{left} messages did not come"
            consumer.ack_many(messages)
            left -= len(messages)

    return await _receiving(url, topic, count, read)


async def receive_auto(url: str, topic: str, count: int, size: int) -> Report:
    async def read(consumer: Any, left: int) -> None:
        while left > 0:
            messages = await consumer.receive_many(min(1000, left), timeout=10)
            assert messages, f"{left} messages did not come"
            left -= len(messages)

    return await _receiving(url, topic, count, read, auto_ack=True)


async def first(url: str, topic: str, count: int, size: int) -> Report:
    """From ``connect`` to the first message, in milliseconds; the median of a few."""
    taken: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        async with forebay.connect(url) as client:
            async with client.consumer(topic, _group(), position="first") as consumer:
                await consumer.receive(timeout=30)
                taken.append((time.perf_counter() - began) * 1e3)
    return {"milliseconds": sorted(taken)[len(taken) // 2]}
