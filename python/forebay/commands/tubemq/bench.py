"""``forebay bench`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from forebay.commands._shared.bench import Bench, Figures
from forebay.commands._shared.options import scopes
from forebay.errors import Unsupported

from .doctor import JOIN_LIMIT, check_joined


def run(given: argparse.Namespace) -> int:
    """Measures and prints a table."""
    if given.compression:
        raise Unsupported("TubeMQ has no compression, so -z is not supported")
    if given.qos is not None:
        raise Unsupported("TubeMQ has no --qos; it is for MQTT URLs")
    options = scopes(given.options, "tubemq")
    bench = Bench(given, options, separator="_")

    async def through(client: Any) -> Figures:
        figures: Figures = {}
        wanted: dict[str, Any] = {**options["consumer"], "position": "max"}
        # The same topic as before: where topics are not created on first use, -t has to name one.
        async with client.consumer(bench.topic, f"forebay-bench-{time.time_ns():x}", **wanted) as consumer:
            deadline = time.monotonic() + JOIN_LIMIT
            # There is no event to wait for.
            while not check_joined(consumer.partitions(), deadline):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            async with client.producer(bench.topic, **options["producer"]) as producer:
                figures["send_many"] = await bench.send_lots(producer)
            figures["receive_many and ack_many"] = await bench.receive_all(consumer)
        return figures

    return bench.run(through)
