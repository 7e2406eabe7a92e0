"""``penstock bench`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, cast

from penstock.client import Client, connect
from penstock.commands import scopes
from penstock.commands.bench import receives, send_lots, sends, show
from penstock.errors import Unsupported
from penstock.tubemq.client import TubeConsumer

from .doctor import JOIN_LIMIT, check_joined


def run(given: argparse.Namespace) -> int:
    """Measures and prints a table."""
    if given.compression:
        raise Unsupported("TubeMQ has no compression, hence no -z")
    if given.qos is not None:
        raise Unsupported("TubeMQ has no --qos; it is for MQTT URLs")
    show(given, asyncio.run(_measure(given)))
    return 0


async def _measure(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    options = scopes(given.options, "tubemq")
    options["producer"].setdefault("max_pending", given.window)
    payload = b"x" * given.size
    # Where topics do not come into being by themselves, -t has to name one.
    topic = given.topic or f"penstock_bench_{time.time_ns():x}"
    async with connect(given.url, **options["client"]) as client:
        async with client.producer(topic, **options["producer"]) as producer:
            figures = await sends(given, producer, payload)
        return {**figures, **await _many(client, given, topic, options, payload)}


async def _many(
    client: Client, given: argparse.Namespace, topic: str, options: dict[str, dict[str, Any]], payload: bytes
) -> dict[str, dict[str, float]]:
    wanted: dict[str, Any] = {**options["consumer"], "position": "max"}
    async with client.consumer(topic, f"penstock-bench-{time.time_ns():x}", **wanted) as opened:
        consumer = cast("TubeConsumer", opened)
        deadline = time.monotonic() + JOIN_LIMIT
        # There is no event to wait for: it is asked again.
        while not check_joined(consumer.partitions(), deadline):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with client.producer(topic, **options["producer"]) as producer:
            figures = {"send_many": await send_lots(given, producer, payload)}
        figures["receive_many and ack_many"] = await receives(given, consumer)
    return figures
