"""``penstock pub`` with an MQTT URL."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from penstock import blocking
from penstock.commands import scopes
from penstock.commands.pub import payloads
from penstock.errors import InvalidArgument, QueueFull
from penstock.progress import Progress

from . import arguments


def run(given: argparse.Namespace) -> int:
    """Publishes and waits for all answers."""
    topic, *more = given.topic
    if more:
        raise InvalidArgument(f"one topic is published to, not {1 + len(more)}")
    options = scopes(given.options, "mqtt")
    client_options = arguments.client_options(given, options["client"])
    producer_options = options["producer"]
    arguments.quality(given, "producer", producer_options)
    if given.retain:
        producer_options["retain"] = True
    fields = arguments.properties(given, "publish")
    messages = payloads(given)
    started, count, size = time.monotonic(), 0, 0
    with (
        blocking.connect(given.url, **client_options) as client,
        client.producer(topic, **producer_options) as producer,
        Progress("publishing", quiet=given.quiet or given.json) as progress,
    ):
        for payload in messages:
            if given.json:
                reason: Any = producer.send(payload, **fields)
                print(json.dumps({"topic": topic, "reason": reason.name, "code": int(reason)}), flush=True)
            else:
                _send(producer, payload, fields)
            count, size = count + 1, size + len(payload)
            progress.advance(1)
        producer.flush()
    if not given.quiet and not given.json and count > 1:
        seconds = max(time.monotonic() - started, 1e-9)
        rate = f"{count / seconds:,.0f} messages/s"
        print(f"{count:,} messages, {size:,} bytes, {seconds:.2f} s, {rate}", file=sys.stderr)
    return 0


def _send(producer: blocking.Producer, payload: bytes, fields: dict[str, Any]) -> None:
    try:
        producer.send_nowait(payload, **fields)
    except QueueFull:
        producer.flush()
        producer.send_nowait(payload, **fields)
