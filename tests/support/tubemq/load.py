"""Helpers for tests of the TubeMQ client, and a load that records what was acknowledged."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import forebay
from forebay import errors

from support.tubemq.harness import TubeMqService
from support.waiting import PATIENCE, until

BALANCES = ["client", "server"]


def connect(service: TubeMqService | str, **options: Any) -> Any:
    url = service if isinstance(service, str) else service.url
    return forebay.connect(url, **({"heartbeat_interval": 1, "max_backoff": 0.5} | options))


async def take(consumer: Any, count: int, timeout: float = PATIENCE) -> list[Any]:
    """At least ``count`` messages, each acknowledged."""
    messages: list[Any] = []
    deadline = time.monotonic() + timeout
    while len(messages) < count:
        left = deadline - time.monotonic()
        got = await consumer.receive_many(1000, timeout=max(min(left, 1), 0.01))
        assert got or left > 0, f"{len(messages)} of {count} messages in {timeout} s"
        for message in got:
            await consumer.ack(message)
        messages += got
    return messages


async def ready(consumer: Any, count: int, timeout: float = PATIENCE) -> None:
    """Waits until the consumer reads that many partitions."""
    deadline = time.monotonic() + timeout
    while sum(part["state"] == "reading" for part in consumer.partitions()) < count:
        assert time.monotonic() < deadline, consumer.partitions()
        await asyncio.sleep(0.02)


class Flow:
    """Sends numbers as fast as they are accepted, and keeps those that the broker acknowledged."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.taken: list[int] = []
        self.failed: list[BaseException] = []
        self._task = asyncio.ensure_future(self._run())
        self._stop = False

    async def _one(self, number: int) -> None:
        try:
            await self.producer.send(b"%d" % number)
        except errors.Error as error:
            self.failed.append(error)
        else:
            self.taken.append(number)

    async def _run(self) -> None:
        number, waiting = 0, set[asyncio.Task[None]]()
        while not self._stop:
            waiting.add(asyncio.ensure_future(self._one(number)))
            number += 1
            if len(waiting) >= 50:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            await asyncio.wait(waiting)

    async def progress(self, count: int, timeout: float = 60.0) -> None:
        goal = len(self.taken) + count
        await until(lambda: len(self.taken) >= goal or self._task.done(), timeout)
        assert not self._task.done(), self._task

    async def stop(self) -> None:
        self._stop = True
        await asyncio.wait_for(self._task, 60)
