"""``penstock bench`` with an MQTT URL."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from penstock.client import Client, Consumer, connect
from penstock.commands import scopes
from penstock.commands.bench import case, sends, show
from penstock.errors import Timeout, Unsupported
from penstock.progress import Progress

_LOT = 1000
_AHEAD = 5
"""Lots that may be on their way: what a subscriber has not taken brokers queue, but not without end."""


def run(given: argparse.Namespace) -> int:
    """Measures and prints a table."""
    if given.compression:
        raise Unsupported("MQTT has no -z")
    show(given, asyncio.run(_measure(given)))
    return 0


async def _measure(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    options = scopes(given.options, "mqtt")
    options["producer"].setdefault("max_pending", given.window)
    if given.qos is not None:
        options["producer"]["qos"] = options["consumer"]["qos"] = given.qos
    payload = b"x" * given.size
    topic = given.topic or f"penstock-bench-{time.time_ns():x}"
    async with connect(given.url, **options["client"]) as client:
        async with client.producer(topic, **options["producer"]) as producer:
            figures = await sends(given, producer, payload)
        through = await _through(client, given, options, payload)
    return {**figures, "send_many to receive_many": through}


async def _through(
    client: Client, given: argparse.Namespace, options: dict[str, dict[str, Any]], payload: bytes
) -> dict[str, float]:
    topic = f"penstock-bench-{time.time_ns():x}"
    room = asyncio.Semaphore(_AHEAD)
    async with (
        client.consumer(topic, **options["consumer"]) as consumer,
        client.producer(topic, **options["producer"]) as producer,
    ):
        started = time.perf_counter()
        receiving = asyncio.create_task(_receive(consumer, given, room))
        sent = 0
        while sent < given.messages and not receiving.done():
            await room.acquire()
            lot = min(_LOT, given.messages - sent)
            await producer.send_many([payload] * lot)
            sent += lot
        await receiving
        return case(given.messages, given.size, time.perf_counter() - started)


async def _receive(consumer: Consumer, given: argparse.Namespace, room: asyncio.Semaphore) -> None:
    received = 0
    try:
        with Progress("through", given.messages, quiet=given.quiet or given.json) as progress:
            while received < given.messages:
                messages = await consumer.receive_many(_LOT, timeout=30)
                if not messages:
                    raise Timeout(f"{given.messages - received} messages did not come back")
                await consumer.ack_many(messages)
                before, received = received, received + len(messages)
                for _ in range(received // _LOT - before // _LOT):
                    room.release()
                progress.advance(len(messages))
    finally:
        # Whoever waits for room learns why there is none.
        room.release()
