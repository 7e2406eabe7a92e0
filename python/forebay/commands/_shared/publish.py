"""The loop of ``forebay pub``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from forebay import blocking
from forebay.errors import MemoryLimit, QueueFull
from forebay.progress import Progress

from .failed import refusals


def publish(
    given: argparse.Namespace,
    topic: str,
    options: dict[str, dict[str, Any]],
    messages: Iterable[tuple[Any, ...]],
    fields: dict[str, Any],
    to_json: Callable[[tuple[Any, ...], Any], dict[str, Any]],
) -> int:
    """Publishes, and waits until the broker has answered for every message.

    Args:
        given: the parsed arguments.
        topic: where to publish.
        options: the options of ``client`` and ``producer``.
        messages: the positional arguments of ``send`` for each message; the payload is the first.
        fields: the keyword arguments of every ``send``.
        to_json: what ``--json`` prints for a message and the answer to it.
    """
    started, count, size = time.monotonic(), 0, 0
    url: str = given.url
    with (
        blocking.connect(url, **options["client"]) as client,
        client.producer(topic, **options["producer"]) as opened,
        Progress("publishing", quiet=given.quiet or given.json) as progress,
        # A line of standard input may be what no message can be.
        refusals(),
    ):
        producer: Any = opened
        for message in messages:
            if given.json:
                print(json.dumps(to_json(message, producer.send(*message, **fields))), flush=True)
            else:
                _push(producer, message, fields)
            count, size = count + 1, size + len(message[0])
            progress.advance(1)
        producer.flush()
    if not given.quiet and not given.json and count > 1:
        seconds = max(time.monotonic() - started, 1e-9)
        rate = f"{count / seconds:,.0f} messages/s"
        print(f"{count:,} messages, {size:,} bytes, {seconds:.2f} s, {rate}", file=sys.stderr)
    return 0


def _push(producer: Any, message: tuple[Any, ...], fields: dict[str, Any]) -> None:
    """Sends without waiting for the answer; a full window, and full memory, are flushed first."""
    try:
        producer.send_nowait(*message, **fields)
    except (QueueFull, MemoryLimit):
        producer.flush()
        producer.send_nowait(*message, **fields)
