"""``penstock pub`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from typing import Any

from penstock import blocking
from penstock.commands import pairs, scopes
from penstock.commands.pub import keyed, push
from penstock.errors import InvalidArgument
from penstock.progress import Progress


def run(given: argparse.Namespace) -> int:
    """Publishes and waits for all answers."""
    topic, *more = given.topic
    if more:
        raise InvalidArgument(f"one topic is published to, not {1 + len(more)}")
    options = scopes(given.options, "tubemq")
    fields: dict[str, Any] = {"properties": pairs(given.property, "properties") or None}
    if given.message_type is not None:
        fields["message_type"] = given.message_type
    if given.event_time is not None:
        fields["event_time"] = when(given.event_time)
    started, count, size = time.monotonic(), 0, 0
    with (
        blocking.connect(given.url, **options["client"]) as client,
        client.producer(topic, **options["producer"]) as producer,
        Progress("publishing", quiet=given.quiet or given.json) as progress,
    ):
        for payload, key in keyed(given):
            if given.json:
                print(json.dumps(to_json(topic, key, producer.send(payload, key, **fields))), flush=True)
            else:
                push(producer, payload, key, fields)
            count, size = count + 1, size + len(payload)
            progress.advance(1)
        producer.flush()
    if not given.quiet and not given.json and count > 1:
        seconds = max(time.monotonic() - started, 1e-9)
        rate = f"{count / seconds:,.0f} messages/s"
        print(f"{count:,} messages, {size:,} bytes, {seconds:.2f} s, {rate}", file=sys.stderr)
    return 0


def to_json(topic: str, key: str | None, at: Any) -> dict[str, Any]:
    """What ``--json`` says of a message that a broker has taken."""
    return {
        "topic": topic,
        "broker": at.broker_id,
        "partition": at.partition,
        "offset": at.offset,
        "time": at.time,
        "id": str(at),
        "message_id": at.message_id,
        "key": key,
    }


def when(text: str) -> datetime.datetime | int:
    """A time of the command line.

    Raises:
        InvalidArgument: it is none, or has no zone.
    """
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        text = f"-E is ms since 1970 or a time with its zone, as 2026-11-21T12:00:00Z, not {text!r}"
        raise InvalidArgument(text)
    return moment
