"""The client's memory while its peer is slow: the growth of the resident set, and the configured limit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from typing import Any

import forebay
from forebay.errors import MemoryLimit, QueueFull

from benches import ROOT, case
from benches.clock import MIB, PeakMemory
from support.pulsar.harness import EmbeddedPulsar

LIMIT = 16 * MIB
# Messages of a batch at most.
BATCH = 1000
RUNS, STANDS = 0.02, 0.18


class _Slow:
    """Stops and continues a process in turns."""

    def __init__(self, pid: int) -> None:
        self.pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._turns, daemon=True)
        self._thread.start()

    def _turns(self) -> None:
        while True:
            os.kill(self.pid, signal.SIGSTOP)
            over = self._over.wait(STANDS)
            os.kill(self.pid, signal.SIGCONT)
            if over or self._over.wait(RUNS):
                return

    def end(self) -> None:
        self._over.set()
        self._thread.join()


async def memory_send(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """A producer that sends whenever it may, to a broker of its own that is stopped nine tenths of the time.

    The bound is ``memory_limit``, not the number of messages. No future is kept per message: that would be
    the application's memory.
    """
    broker = EmbeddedPulsar(durability="memory")
    body = bytes(size)
    try:
        async with (
            forebay.connect(broker.url, memory_limit=LIMIT) as client,
            client.producer(topic, max_pending=1 << 20) as producer,
        ):
            await producer.send_many([body] * 1000)
            slow = _Slow(broker.process.pid)
            refused = 0
            try:
                with PeakMemory() as memory:
                    started = time.perf_counter()
                    for _ in range(count):
                        while True:
                            try:
                                producer.send_nowait(body)
                                break
                            except (MemoryLimit, QueueFull):
                                refused += 1
                                await asyncio.sleep(0.001)
                    await producer.flush()
                    seconds = time.perf_counter() - started
            finally:
                slow.end()
        assert refused, "nothing was pushed back: the broker was not slow"
        return {"rate": count / seconds, "growth": memory.growth / MIB, "limit": LIMIT / MIB}
    finally:
        broker.stop()


async def memory_receive(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """A consumer of a full topic that is not read any more, beside the payloads that it holds."""
    queue = LIMIT // size
    async with (
        forebay.connect(url) as client,
        client.consumer(topic, "unread", position="earliest", receiver_queue=queue) as consumer,
    ):
        with PeakMemory() as memory:
            await _open_the_queue(consumer, queue)
            await asyncio.sleep(3)
            grown = memory.growth
        return {"growth": grown / MIB, "limit": await _held(consumer, queue, size) / MIB}


async def _open_the_queue(consumer: Any, queue: int) -> None:
    """Reads as many messages as the queue has room for: the prefetch grows only as messages arrive."""
    left = queue
    while left > 0:
        left -= len(await consumer.receive_many(left, timeout=30))


async def _held(consumer: Any, queue: int, size: int) -> int:
    """Bytes of the payloads that have arrived.

    More are asked for when half of them are taken, and brokers send whole batches: the last may be missing.
    """
    held = len(await consumer.receive_many(queue, timeout=30))
    assert held >= queue // 2 - BATCH, f"{held} of {queue} messages were fetched ahead"
    return held * size


async def memory_receive_singly(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """The same for messages that arrive singly, each in an entry and a read of its own."""
    queue, topic = LIMIT // size, f"{topic}-singly"
    async with (
        forebay.connect(url) as client,
        client.consumer(topic, "unread", receiver_queue=queue) as consumer,
    ):
        await _feed(url, topic, queue, size)
        await _open_the_queue(consumer, queue)
        with PeakMemory() as memory:
            await _feed(url, topic, queue, size)
        return {"growth": memory.growth / MIB, "limit": await _held(consumer, queue, size) / MIB}


async def _feed(url: str, topic: str, count: int, size: int) -> None:
    words = case.command("pulsar", "forebay_one", url, topic, count, size)
    feeder = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert await feeder.wait() == 0
