"""``forebay bench`` with a Pulsar URL."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.commands._shared.bench import Bench, Figures
from forebay.commands._shared.options import scopes
from forebay.errors import Unsupported


def run(given: argparse.Namespace) -> int:
    """Measures and prints a table."""
    if given.qos is not None:
        raise Unsupported("Pulsar has no --qos; it is for MQTT URLs")
    options = scopes(given.options, "pulsar")
    if given.compression:
        options["producer"]["compression"] = given.compression
    bench = Bench(given, options)

    async def through(client: Any) -> Figures:
        figures: Figures = {}
        topic = bench.new_topic()
        async with client.consumer(topic, "bench", **options["consumer"]) as consumer:
            async with client.producer(topic, **options["producer"]) as producer:
                figures["send_many"] = await bench.send_lots(producer)
            figures["receive_many and ack_many"] = await bench.receive_all(consumer)
            await consumer.unsubscribe()
        return figures

    return bench.run(through)
