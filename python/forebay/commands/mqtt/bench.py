"""``forebay bench`` with an MQTT URL."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from forebay.commands._shared.bench import Bench, Figures
from forebay.commands._shared.options import scopes
from forebay.errors import Timeout, Unsupported

_LOT = 1000
_AHEAD = 5
"""Lots in flight: a broker queues what a subscriber has not taken yet, but only up to a limit."""


def run(given: argparse.Namespace) -> int:
    """Measures and prints a table."""
    if given.compression:
        raise Unsupported("MQTT has no compression, so -z is not supported")
    options = scopes(given.options, "mqtt")
    if given.qos is not None:
        options["producer"]["qos"] = options["consumer"]["qos"] = given.qos
    bench = Bench(given, options)

    async def through(client: Any) -> Figures:
        topic = bench.new_topic()
        room = asyncio.Semaphore(_AHEAD)
        async with (
            client.consumer(topic, **options["consumer"]) as consumer,
            client.producer(topic, **options["producer"]) as producer,
        ):
            started = time.perf_counter()
            receiving = asyncio.create_task(_receive(bench, consumer, room))
            sent = 0
            while sent < given.messages and not receiving.done():
                await room.acquire()
                lot = min(_LOT, given.messages - sent)
                await producer.send_many([bench.payload] * lot)
                sent += lot
            await receiving
            took = time.perf_counter() - started
        return {"send_many to receive_many": bench.case(given.messages, took)}

    return bench.run(through)


async def _receive(bench: Bench, consumer: Any, room: asyncio.Semaphore) -> None:
    received = 0
    try:
        async for count in bench.receive_lots(consumer, "through", _LOT):
            before, received = received, received + count
            for _ in range(received // _LOT - before // _LOT):
                room.release()
        if received < bench.given.messages:
            raise Timeout(f"{bench.given.messages - received} messages did not come back")
    finally:
        # A sender that waits for room goes on, and finds out that this task has ended.
        room.release()
