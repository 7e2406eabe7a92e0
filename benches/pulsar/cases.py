"""Cases of Pulsar: Forebay's ways to send and receive, those of pulsar-client, and the floor below both.

Each takes the URL, the topic, the number of messages and their size.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import threading
import time
from collections import deque
from typing import Any

from benches.clock import Clock
from benches.floor import bare_asyncio, bare_sqlite
from benches.pulsar.avro import forebay_avro_read, forebay_avro_send, peer_avro_read, peer_avro_send
from benches.pulsar.memory import memory_receive, memory_receive_singly, memory_send
from benches.pulsar.pattern import pattern_topics

__all__ = [
    "bare_asyncio",
    "bare_sqlite",
    "memory_receive",
    "memory_receive_singly",
    "memory_send",
    "pattern_topics",
    "peer_avro_read",
    "peer_avro_send",
    "forebay_avro_read",
    "forebay_avro_send",
]

WINDOW = 1000


# -------------------------------------------------------------------------------------------
# Forebay


async def forebay_window(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    body = bytes(size)
    async with forebay.connect(url) as client, client.producer(topic) as producer:
        await producer.send(body)
        clock = Clock(count)
        window: deque[Any] = deque()
        for _ in range(count):
            if len(window) == WINDOW:
                await window.popleft()
            window.append(producer.send(body))
        while window:
            await window.popleft()
        return clock.stop()


async def forebay_many(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    bodies = [bytes(size)] * 10_000
    async with forebay.connect(url) as client, client.producer(topic) as producer:
        await producer.send(bodies[0])
        clock = Clock(count)
        for _ in range(count // len(bodies)):
            await producer.send_many(bodies)
        return clock.stop()


async def forebay_one(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    body = bytes(size)
    async with forebay.connect(url) as client, client.producer(topic) as producer:
        await producer.send(body)
        taken: list[float] = []
        clock = Clock(count)
        for _ in range(count):
            began = time.perf_counter()
            await producer.send(body)
            taken.append(time.perf_counter() - began)
        return clock.stop() | {"p50": statistics.median(taken) * 1e6}


async def forebay_for(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    async with (
        forebay.connect(url) as client,
        client.consumer(topic, "forebay-for", position="earliest") as consumer,
    ):
        await consumer.receive(timeout=30)
        clock = Clock(count)
        left = count
        async for message in consumer:
            await consumer.ack(message)
            left -= 1
            if not left:
                break
        return clock.stop()


async def forebay_receive_many(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    async with (
        forebay.connect(url) as client,
        client.consumer(topic, "forebay-many", position="earliest") as consumer,
    ):
        await consumer.receive(timeout=30)
        clock = Clock(count)
        left = count
        while left > 0:
            messages = await consumer.receive_many(1000, timeout=30)
            await consumer.ack_many(messages)
            left -= len(messages)
        return clock.stop()


async def forebay_shared(url: str, topic: str, count: int, size: int, **options: Any) -> dict[str, float]:
    """A Shared subscription, which can have a dead letter policy."""
    import forebay

    async with (
        forebay.connect(url) as client,
        client.consumer(
            topic, f"shared-{len(options)}", type="shared", position="earliest", **options
        ) as consumer,
    ):
        await consumer.receive(timeout=30)
        clock = Clock(count)
        left = count
        while left > 0:
            messages = await consumer.receive_many(1000, timeout=30)
            await consumer.ack_many(messages)
            left -= len(messages)
        return clock.stop()


async def forebay_dead_letter(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    policy = forebay.pulsar.DeadLetterPolicy(max_redeliveries=3)
    return await forebay_shared(url, topic, count, size, dead_letter=policy)


async def forebay_listen(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """A listener with one empty callback at a time."""
    import forebay

    left, done = count, asyncio.Event()

    async def handle(message: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with (
        forebay.connect(url) as client,
        client.consumer(topic, "forebay-listen", position="earliest") as consumer,
    ):
        await consumer.receive(timeout=30)
        clock = Clock(count)
        async with consumer.listen(handle):
            await done.wait()
            return clock.stop()


def forebay_blocking(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    from forebay import blocking

    with (
        blocking.connect(url) as client,
        client.consumer(topic, "forebay-b", position="earliest") as consumer,
    ):
        consumer.receive(timeout=30)
        clock = Clock(count)
        for _ in range(count):
            consumer.ack(consumer.receive(timeout=30))
        return clock.stop()


# ------------------------------------------------------------------------------------------- the
# peer


def _module(name: str) -> Any:
    """Imports by name: the peer carries partial types, which help less than no types."""
    return importlib.import_module(name)


PEER, DROP_IN = "pulsar", "forebay.compat.pulsar"


def _peer(url: str, name: str) -> Any:
    pulsar = _module(name)
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def _peer_asyncio(url: str, name: str) -> Any:
    pulsar = _module(name)
    return _module(f"{name}.asyncio").Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def peer_callback(url: str, topic: str, count: int, size: int, name: str = PEER) -> dict[str, float]:
    body = bytes(size)
    client = _peer(url, name)
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    producer.send(body)
    left, done = [count], threading.Event()

    def sent(result: Any, message_id: Any) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    clock = Clock(count)
    for _ in range(count):
        producer.send_async(body, sent)
    done.wait()
    report = clock.stop()
    client.close()
    return report


def peer_one(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """Without batches, in which a single message would wait for others."""
    body = bytes(size)
    client = _peer(url, PEER)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(body)
    taken: list[float] = []
    clock = Clock(count)
    for _ in range(count):
        began = time.perf_counter()
        producer.send(body)
        taken.append(time.perf_counter() - began)
    report = clock.stop() | {"p50": statistics.median(taken) * 1e6}
    client.close()
    return report


async def peer_asyncio(url: str, topic: str, count: int, size: int, name: str = PEER) -> dict[str, float]:
    body = bytes(size)
    client = _peer_asyncio(url, name)
    producer = await client.create_producer(topic)
    await producer.send(body)
    clock = Clock(count)
    window: deque[Any] = deque()
    for _ in range(count):
        if len(window) == WINDOW:
            await window.popleft()
        window.append(asyncio.ensure_future(producer.send(body)))
    while window:
        await window.popleft()
    report = clock.stop()
    await client.close()
    return report


def peer_receive(url: str, topic: str, count: int, size: int, name: str = PEER) -> dict[str, float]:
    client = _peer(url, name)
    consumer = client.subscribe(
        topic, f"{name}-receive", initial_position=_module(name).InitialPosition.Earliest
    )
    consumer.receive(30_000)
    clock = Clock(count)
    for _ in range(count):
        consumer.acknowledge(consumer.receive(30_000))
    report = clock.stop()
    client.close()
    return report


def peer_batch_receive(url: str, topic: str, count: int, size: int, name: str = PEER) -> dict[str, float]:
    client = _peer(url, name)
    consumer = client.subscribe(
        topic,
        f"{name}-batch",
        initial_position=_module(name).InitialPosition.Earliest,
        batch_receive_policy=_module(name).ConsumerBatchReceivePolicy(1000, 10 << 20, 100),
    )
    consumer.receive(30_000)
    clock = Clock(count)
    left = count
    while left > 0:
        messages = consumer.batch_receive()
        for message in messages:
            consumer.acknowledge(message)
        left -= len(messages)
    report = clock.stop()
    client.close()
    return report


async def peer_asyncio_receive(
    url: str, topic: str, count: int, size: int, name: str = PEER
) -> dict[str, float]:
    client = _peer_asyncio(url, name)
    consumer = await client.subscribe(
        topic, f"{name}-asyncio", initial_position=_module(name).InitialPosition.Earliest
    )
    await consumer.receive()
    clock = Clock(count)
    for _ in range(count):
        await consumer.acknowledge(await consumer.receive())
    report = clock.stop()
    await client.close()
    return report


# ------------------------------------------------------------------------------------------- the
# drop-in


def compat_callback(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    return peer_callback(url, topic, count, size, DROP_IN)


async def compat_asyncio(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    return await peer_asyncio(url, topic, count, size, DROP_IN)


def compat_receive(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    return peer_receive(url, topic, count, size, DROP_IN)


def compat_batch_receive(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    return peer_batch_receive(url, topic, count, size, DROP_IN)


async def compat_asyncio_receive(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    return await peer_asyncio_receive(url, topic, count, size, DROP_IN)
