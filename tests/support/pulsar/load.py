"""A load that records what was acknowledged, and the check that all of it is stored."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pytest

import forebay

from .harness import RealPulsar

CHECK = "check"
"""The subscription that retains the messages of a load until :func:`stored` reads them."""


PATIENCE = 60
"""Seconds within which a broker that has much else to do sends the next message."""


class Load:
    """Producers of one topic that send numbered messages until the block ends.

    A message counts as acknowledged only once its future has a message id.
    """

    def __init__(
        self, client: Any, topic: str, producers: int = 2, *, window: int = 50, size: int = 100
    ) -> None:
        self.client, self.topic, self.window, self.padding = client, topic, window, b"." * size
        self.names = [f"load-{number}" for number in range(producers)]
        self.acknowledged: dict[str, list[int]] = {name: [] for name in self.names}
        self.failed = 0
        self._stopping = False

    async def _run(self, name: str) -> None:
        # A Pulsar may take longer to restart than the default send_timeout.
        async with self.client.producer(
            self.topic, name=name, max_pending=self.window, send_timeout=120
        ) as producer:
            number, waiting = 0, set[asyncio.Task[None]]()

            async def one(number: int) -> None:
                try:
                    await producer.send(b"%s:%d:%s" % (name.encode(), number, self.padding), key=name)
                except forebay.Error:
                    self.failed += 1
                else:
                    self.acknowledged[name].append(number)

            while not self._stopping:
                while len(waiting) >= self.window:
                    _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                waiting.add(asyncio.ensure_future(one(number)))
                number += 1
                await asyncio.sleep(0)
            if waiting:
                await asyncio.wait(waiting)

    async def __aenter__(self) -> Self:
        # Without a subscription nothing is retained: a real broker drops closed ledgers every two
        # minutes.
        async with self.client.consumer(self.topic, CHECK, position="earliest"):
            pass
        self._tasks = [asyncio.ensure_future(self._run(name)) for name in self.names]
        return self

    async def progress(self, more: int, timeout: float = 60) -> None:
        """Waits until ``more`` messages have been acknowledged from now on."""
        target = self.count + more
        async with asyncio.timeout(timeout):
            while self.count < target:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.005)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        if kind is not None:
            for task in self._tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*self._tasks, return_exceptions=True)
            return
        await asyncio.wait_for(asyncio.gather(*self._tasks), 120)


def numbers(messages: list[Any]) -> Iterator[tuple[str, int]]:
    """The producer and the number of each message of a load."""
    for message in messages:
        name, number, _ = bytes(message.data).split(b":", 2)
        yield name.decode(), int(number)


def seen_by(broker: RealPulsar, topic: str) -> Any:
    """The broker's statistics of a topic, with or without partitions."""
    try:
        return broker.rest("GET", f"{broker.path(topic)}/partitioned-stats?perPartition=true")
    except urllib.error.HTTPError:
        return broker.rest("GET", f"{broker.path(topic)}/stats")


def unload_what_stands_still(broker: RealPulsar, part: str) -> bool:
    """Unloads a topic that the broker has stopped delivering by itself; returns whether it has.

    Apache Pulsar 4.0.8 now and then leaves entries of a Key_Shared subscription in its replay queue after a
    restart: each consumer has permits, none of them holds a message, and no hash is drained. An operator
    unloads such a topic. A consumer of ours that kept a message, or gave no permits, is not taken for that.
    """
    for found in broker.rest("GET", f"{broker.path(part)}/stats")["subscriptions"].values():
        consumers = found["consumers"]
        idle = all(one["availablePermits"] > 0 and one["unackedMessages"] == 0 for one in consumers)
        if found["type"] == "Key_Shared" and found["msgInReplay"] > 0 and consumers and idle:
            print(f"the broker delivers nothing more of {part}: it is unloaded")
            broker.unload(part)
            return True
    return False


async def stored(broker: RealPulsar, client: Any, load: Load, topic: str) -> dict[str, list[int]]:
    """The numbers in the topic by producer, in order of arrival."""
    missing = {(name, number) for name, sent in load.acknowledged.items() for number in sent}
    found: dict[str, list[int]] = {}
    async with client.consumer(topic, CHECK, position="earliest") as consumer:
        # Repeated messages may still follow.
        while messages := await consumer.receive_many(5000, timeout=PATIENCE if missing else 2):
            for name, number in numbers(messages):
                found.setdefault(name, []).append(number)
                missing.discard((name, number))
            await consumer.ack_many(messages)
        if missing:
            there = await asyncio.to_thread(seen_by, broker, topic)
            lost = f"{len(missing)} are missing after {PATIENCE} s of silence"
            pytest.fail(f"{lost}. The consumer: {consumer.stats()}. The broker: {there}")
    return found


async def repeats_in(client: Any, topic: str) -> list[str]:
    """Messages that the topic has twice: number, message ids, sequence ids and times of publication."""
    seen: dict[tuple[str, int], str] = {}
    found: list[str] = []
    async with client.reader(topic, position="earliest") as reader:
        while messages := await reader.receive_many(5000, timeout=2):
            for one, (name, number) in zip(messages, numbers(messages), strict=True):
                said = f"{one.id} sequence {one.sequence_id} of {one.producer_name} at {one.publish_time}"
                if before := seen.get((name, number)):
                    found.append(f"{name} {number}: {before}; {said}")
                seen[name, number] = said
    return found


def check(acknowledged: dict[str, list[int]], found: dict[str, list[int]], *, repeats: bool) -> None:
    """Asserts that no acknowledged message is missing and that first occurrences are in order; without
    ``repeats``, also that no message occurs twice."""
    for name, numbers in acknowledged.items():
        there = found.get(name, [])
        missing = sorted(set(numbers) - set(there))
        assert not missing, f"{name}: {len(missing)} of {len(numbers)} acknowledged are lost: {missing[:10]}"
        first = list(dict.fromkeys(there))
        assert first == sorted(first), f"{name}: out of order"
        if not repeats:
            assert len(first) == len(there), f"{name}: {len(there) - len(first)} repeated"
