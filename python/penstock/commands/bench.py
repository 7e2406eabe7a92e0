"""``penstock bench``: what this machine, this network and this broker give."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from typing import Any

from penstock.client import Client, Consumer, Producer, connect
from penstock.errors import Unsupported
from penstock.options import protocol_of, split_url
from penstock.progress import Progress

from . import scopes


def run(given: argparse.Namespace) -> int:
    """Measures and prints a table."""
    protocol = protocol_of(split_url(given.url)[0])
    if protocol == "mqtt":
        from .mqtt.bench import run as run_mqtt

        return run_mqtt(given)
    if protocol == "tubemq":
        from .tubemq.bench import run as run_tubemq

        return run_tubemq(given)
    if given.qos is not None:
        raise Unsupported("Pulsar has no --qos; it is for MQTT URLs")
    show(given, asyncio.run(_measure(given)))
    return 0


def show(given: argparse.Namespace, figures: dict[str, dict[str, float]]) -> None:
    """The figures as a table, or as JSON."""
    if given.json:
        print(json.dumps({"messages": given.messages, "size": given.size, "cases": figures}))
        return
    print(f"{given.messages:,} messages of {given.size} bytes, window {given.window}, {given.url}")
    for name, case in figures.items():
        latency = "".join(f"  {q} {case[q]:.2f} ms" for q in ("p50", "p99") if q in case)
        print(f"{name:<28} {case['rate']:>12,.0f} /s  {case['mb_per_s']:>8,.1f} MB/s{latency}")


async def _measure(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    options = scopes(given.options)
    options["producer"].setdefault("max_pending", given.window)
    if given.compression:
        options["producer"]["compression"] = given.compression
    payload = b"x" * given.size
    topic = given.topic or f"penstock-bench-{time.time_ns():x}"
    figures: dict[str, dict[str, float]] = {}

    async with connect(given.url, **options["client"]) as client:
        async with client.producer(topic, **options["producer"]) as producer:
            figures.update(await sends(given, producer, payload))
        figures.update(await _many(client, given, options, payload))
    return figures


async def sends(given: argparse.Namespace, producer: Producer, payload: bytes) -> dict[str, dict[str, float]]:
    """Message by message: one at a time, then in a window."""
    figures: dict[str, dict[str, float]] = {}
    times: list[float] = []
    for _ in range(min(1000, given.messages)):
        started = time.perf_counter()
        await producer.send(payload)
        times.append(time.perf_counter() - started)
    times.sort()
    figures["send, one at a time"] = {
        **case(len(times), given.size, sum(times)),
        "p50": times[len(times) // 2] * 1000,
        "p99": times[len(times) * 99 // 100] * 1000,
    }
    with Progress("send", given.messages, quiet=given.quiet or given.json) as progress:
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
    figures["send, in a window"] = case(given.messages, given.size, time.perf_counter() - started)
    return figures


async def _many(
    client: Client, given: argparse.Namespace, options: dict[str, dict[str, Any]], payload: bytes
) -> dict[str, dict[str, float]]:
    topic = f"penstock-bench-{time.time_ns():x}"
    figures: dict[str, dict[str, float]] = {}
    async with client.consumer(topic, "bench", **options["consumer"]) as consumer:
        async with client.producer(topic, **options["producer"]) as producer:
            figures["send_many"] = await send_lots(given, producer, payload)
        figures["receive_many and ack_many"] = await receives(given, consumer)
        await consumer.unsubscribe()
    return figures


async def send_lots(given: argparse.Namespace, producer: Producer, payload: bytes) -> dict[str, float]:
    """In large lots."""
    started = time.perf_counter()
    lot = [payload] * min(10_000, given.messages)
    sent = 0
    while sent < given.messages:
        part = lot[: given.messages - sent]
        await producer.send_many(part)
        sent += len(part)
    return case(sent, given.size, time.perf_counter() - started)


async def receives(given: argparse.Namespace, consumer: Consumer) -> dict[str, float]:
    """Takes and acknowledges as many messages as were sent."""
    with Progress("receive", given.messages, quiet=given.quiet or given.json) as progress:
        started, received = time.perf_counter(), 0
        while received < given.messages:
            messages = await consumer.receive_many(1000, timeout=30)
            if not messages:
                print(f"penstock: {given.messages - received} messages did not come back", file=sys.stderr)
                break
            await consumer.ack_many(messages)
            received += len(messages)
            progress.advance(len(messages))
        return case(received, given.size, time.perf_counter() - started)


def case(count: int, size: int, seconds: float) -> dict[str, float]:
    """A line of the table."""
    seconds = max(seconds, 1e-9)
    return {"seconds": seconds, "rate": count / seconds, "mb_per_s": count * size / seconds / 1e6}
