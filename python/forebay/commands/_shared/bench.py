"""The cases of ``forebay bench`` and the table of their figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import forebay
from forebay.progress import Progress

Case = dict[str, float]
Figures = dict[str, Case]


class Bench:
    """One run of the command.

    Args:
        given: the parsed arguments.
        options: the options of ``client``, ``producer`` and ``consumer``.
        separator: joins the words of new topic names.
    """

    def __init__(
        self, given: argparse.Namespace, options: dict[str, dict[str, Any]], separator: str = "-"
    ) -> None:
        self.given = given
        self.options = options
        self._separator = separator
        self.payload = b"x" * given.size
        self.topic: str = given.topic or self.new_topic()
        options["producer"].setdefault("max_pending", given.window)

    def new_topic(self) -> str:
        """The name of a topic that does not exist yet."""
        return self._separator.join(("forebay", "bench", f"{time.time_ns():x}"))

    def run(self, through: Callable[[Any], Awaitable[Figures]]) -> int:
        """Measures ``send``, then the cases of ``through``, which gets the client; prints the table."""
        self._show(asyncio.run(self._measure(through)))
        return 0

    async def _measure(self, through: Callable[[Any], Awaitable[Figures]]) -> Figures:
        url: str = self.given.url
        async with forebay.connect(url, **self.options["client"]) as client:
            async with client.producer(self.topic, **self.options["producer"]) as producer:
                figures = await self._sends(producer)
            return {**figures, **await through(client)}

    async def _sends(self, producer: Any) -> Figures:
        """Message by message: one at a time, then in a window."""
        given, payload = self.given, self.payload
        times: list[float] = []
        for _ in range(min(1000, given.messages)):
            started = time.perf_counter()
            await producer.send(payload)
            times.append(time.perf_counter() - started)
        times.sort()
        one_at_a_time = {
            **self.case(len(times), sum(times)),
            "p50": times[len(times) // 2] * 1000,
            "p99": times[len(times) * 99 // 100] * 1000,
        }
        with self._progress("send") as progress:
            started = time.perf_counter()
            window: deque[asyncio.Future[Any]] = deque()
            for number in range(given.messages):
                if len(window) >= given.window:
                    await window.popleft()
                window.append(producer.send(payload))
                if number % 1000 == 0:
                    progress.advance(1000)
            for future in window:
                await future
        in_a_window = self.case(given.messages, time.perf_counter() - started)
        return {"send, one at a time": one_at_a_time, "send, in a window": in_a_window}

    async def send_lots(self, producer: Any) -> Case:
        """Sends all messages with ``send_many``, 10,000 in a call."""
        messages = self.given.messages
        started = time.perf_counter()
        lot = [self.payload] * min(10_000, messages)
        sent = 0
        while sent < messages:
            part = lot[: messages - sent]
            await producer.send_many(part)
            sent += len(part)
        return self.case(sent, time.perf_counter() - started)

    async def receive_lots(self, consumer: Any, what: str = "receive", lot: int = 1000) -> AsyncIterator[int]:
        """Receives and acknowledges as many messages as were sent; yields how many came with each call.
        Ends early when nothing comes for 30 seconds."""
        received = 0
        with self._progress(what) as progress:
            while received < self.given.messages:
                messages = await consumer.receive_many(lot, timeout=30)
                if not messages:
                    return
                await consumer.ack_many(messages)
                received += len(messages)
                yield len(messages)
                progress.advance(len(messages))

    async def receive_all(self, consumer: Any) -> Case:
        """Receives and acknowledges as many messages as were sent, and reports those that are missing."""
        started, received = time.perf_counter(), 0
        async for count in self.receive_lots(consumer):
            received += count
        if received < self.given.messages:
            print(f"forebay: {self.given.messages - received} messages did not come back", file=sys.stderr)
        return self.case(received, time.perf_counter() - started)

    def case(self, count: int, seconds: float) -> Case:
        """A line of the table."""
        seconds = max(seconds, 1e-9)
        return {
            "seconds": seconds,
            "rate": count / seconds,
            "mb_per_s": count * self.given.size / seconds / 1e6,
        }

    def _progress(self, what: str) -> Progress:
        return Progress(what, self.given.messages, quiet=self.given.quiet or self.given.json)

    def _show(self, figures: Figures) -> None:
        given = self.given
        if given.json:
            print(json.dumps({"messages": given.messages, "size": given.size, "cases": figures}))
            return
        print(f"{given.messages:,} messages of {given.size} bytes, window {given.window}, {given.url}")
        for name, case in figures.items():
            latency = "".join(f"  {q} {case[q]:.2f} ms" for q in ("p50", "p99") if q in case)
            print(f"{name:<28} {case['rate']:>12,.0f} /s  {case['mb_per_s']:>8,.1f} MB/s{latency}")
