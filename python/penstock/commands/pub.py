"""``penstock pub``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import blocking
from penstock.errors import InvalidArgument, QueueFull
from penstock.progress import Progress

from . import pairs, scopes


def run(given: argparse.Namespace) -> int:
    """Publishes and waits for all receipts."""
    topic, *more = given.topic
    if more:
        raise InvalidArgument(f"one topic is published to, not {1 + len(more)}")
    options = scopes(given.options)
    if given.compression:
        options["producer"]["compression"] = given.compression
    properties = pairs(given.property, "properties") or None
    arguments: dict[str, Any] = {"properties": properties, "null_value": given.null}
    messages = keyed(given)
    started, count, size = time.monotonic(), 0, 0
    with (
        blocking.connect(given.url, **options["client"]) as client,
        client.producer(topic, **options["producer"]) as producer,
        Progress("publishing", quiet=given.quiet or given.json) as progress,
    ):
        for payload, key in messages:
            if given.json:
                import json

                print(
                    json.dumps({"id": str(producer.send(payload, key, **arguments)), "key": key}), flush=True
                )
            else:
                push(producer, payload, key, arguments)
            count, size = count + 1, size + len(payload)
            progress.advance(1)
        producer.flush()
    if not given.quiet and not given.json and count > 1:
        seconds = max(time.monotonic() - started, 1e-9)
        rate = f"{count / seconds:,.0f} messages/s"
        print(f"{count:,} messages, {size:,} bytes, {seconds:.2f} s, {rate}", file=sys.stderr)
    return 0


def push(producer: blocking.Producer, payload: bytes, key: str | None, arguments: dict[str, Any]) -> None:
    """Sends without waiting, unless there is no room."""
    try:
        producer.send_nowait(payload, key, **arguments)
    except QueueFull:
        producer.flush()
        producer.send_nowait(payload, key, **arguments)


def keyed(given: argparse.Namespace) -> Iterator[tuple[bytes, str | None]]:
    """Payloads with their keys: ``-k``, or what stands before ``-K``.

    Raises:
        InvalidArgument: ``-K`` without lines, or nothing to publish.
    """
    if given.key_separator and not given.lines:
        raise InvalidArgument("-K needs -l")
    separator = given.key_separator and given.key_separator.encode()
    for payload in payloads(given):
        before, found, after = payload.partition(separator) if separator else (b"", b"", b"")
        yield (after, before.decode()) if found else (payload, given.key)


def payloads(given: argparse.Namespace) -> Iterator[bytes]:
    """What ``-m``, ``-f``, ``-l``, ``-s`` and ``-n`` say.

    Raises:
        InvalidArgument: nothing.
    """
    if given.lines:
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
        return
    if given.message:
        lot = [text.encode() for text in given.message]
    elif given.file:
        lot = [Path(name).read_bytes() for name in given.file]
    elif given.null:
        lot = [b""]
    elif given.stdin or not sys.stdin.isatty():
        lot = [sys.stdin.buffer.read()]
    else:
        raise InvalidArgument("nothing to publish: use -m, -f, -l, -s or -n")
    for _ in range(given.repeat):
        yield from lot
