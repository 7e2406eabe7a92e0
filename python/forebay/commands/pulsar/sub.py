"""``forebay sub`` with a Pulsar URL."""

from __future__ import annotations

import argparse
import re
from typing import Any

from forebay.commands._shared import files
from forebay.commands._shared import format as formats
from forebay.commands._shared.options import scopes
from forebay.commands._shared.subscribe import Limits, printer
from forebay.errors import InvalidArgument
from forebay.pulsar import blocking
from forebay.pulsar._positions import reader_name

from .arguments import POSITIONS, reads
from .end import End
from .format import compile_format, to_json
from .ids import message_ids, start

_IDLE_AT_END = 2.0
"""Seconds without a message after which ``-e`` takes the end for reached."""


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count, the time or the end of the topic is reached."""
    options = scopes(given.options, "pulsar")
    if given.parquet is not None:
        return _save(given, options)
    wanted: dict[str, Any] = options["consumer"]
    if given.type:
        wanted["type"] = given.type
    if given.position:
        wanted["position"] = _position(given)
    show = printer(given, to_json, lambda: compile_format(formats.text_of(given)))
    limits = Limits(given)
    limits.start()
    with blocking.connect(given.url, **options["client"]) as client:
        if given.pattern is not None:
            wanted["durable"] = bool(given.subscription) and wanted.get("durable", True)
            pattern = re.compile(given.pattern)
            consumer = client.consumer(pattern, given.subscription or reader_name(), **wanted)
        elif given.subscription:
            consumer = client.consumer(given.topic, given.subscription, **wanted)
        else:
            consumer = client.reader(given.topic, **wanted)
        with consumer:
            end = End(consumer) if given.exit else None
            while not limits.reached and not (end and end.reached):
                message = limits.receive(consumer, _IDLE_AT_END if end else None)
                if message is None:
                    return limits.status if limits.expired else 0
                show(message)
                if given.subscription and not given.no_ack:
                    consumer.ack(message)
                if end:
                    end.seen(message.id)
                limits.count()
    return 0


def _position(given: argparse.Namespace) -> Any:
    if given.position in POSITIONS:
        return POSITIONS[given.position]
    if reads(given):
        return start("-o", given.position)
    ids = message_ids(given.position)
    return ids[0] if len(ids) == 1 else ids


def _save(given: argparse.Namespace, options: dict[str, dict[str, Any]]) -> int:
    if given.subscription or given.type:
        raise InvalidArgument("--parquet reads the topics without a subscription: leave -s and -T out")
    begin = start("-o", given.position or "earliest")
    if given.pattern is not None:
        given.topic = re.compile(given.pattern)
    return files.save(given, begin, {**options["client"], **options["consumer"]})
