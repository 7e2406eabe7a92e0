"""``penstock sub`` with an MQTT URL."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import blocking
from penstock.commands import scopes
from penstock.commands.sub import TIMED_OUT, seconds
from penstock.errors import InvalidArgument, Timeout
from penstock.mqtt import matches

from . import arguments
from .format import compile_format, to_json

if TYPE_CHECKING:
    from penstock import Message


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count or the time is reached."""
    if given.no_retained and given.retained_only:
        raise InvalidArgument("-R and --retained-only leave nothing")
    topics = given.topic
    options = scopes(given.options, "mqtt")
    client_options = arguments.client_options(given, options["client"])
    wanted = options["consumer"]
    arguments.quality(given, "consumer", wanted)
    show = _shower(given)
    for pattern in given.filter_out:
        # A mistake shows before anything is printed.
        matches(pattern, "topic")
    left = None if given.count is None else max(given.count, 0)
    limit = None if given.timeout is None else seconds(given.timeout)
    with (
        blocking.connect(given.url, **client_options) as client,
        client.consumer(topics, given.subscription, **wanted) as consumer,
    ):
        deadline = None if limit is None else time.monotonic() + limit
        while left != 0 and not given.exit_after_sub:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                message = consumer.receive(wait)
            except Timeout:
                return TIMED_OUT
            if given.retained_only and not message.retain:
                break
            if not _is_wanted(given, message):
                consumer.ack(message)
                continue
            show(message)
            if not given.no_ack:
                consumer.ack(message)
            if left is not None:
                left -= 1
            if deadline is not None and time.monotonic() >= deadline and left != 0:
                return TIMED_OUT
    return 0


def _is_wanted(given: argparse.Namespace, message: Message) -> bool:
    if given.no_retained and message.retain:
        return False
    return not any(matches(pattern, message.topic) for pattern in given.filter_out)


def _shower(given: argparse.Namespace) -> Callable[[Message], None]:
    out = sys.stdout.buffer
    if given.json:

        def as_json(message: Message) -> None:
            out.write(json.dumps(to_json(message)).encode() + b"\n")
            out.flush()

        return as_json
    text = given.format
    if text is None:
        text = "%t %p" if given.verbose else "%p"
    parts = compile_format(text)
    end = b"" if given.no_newline else b"\n"

    def formatted(message: Message) -> None:
        out.write(b"".join(part if isinstance(part, bytes) else part(message) for part in parts) + end)
        out.flush()

    return formatted
