"""The messages that ``forebay pub`` publishes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import InvalidArgument

from .failed import Failed


def one_topic(given: argparse.Namespace) -> str:
    """The topic to publish to.

    Raises:
        InvalidArgument: more than one was given.
    """
    topic, *more = given.topic
    if more:
        raise InvalidArgument(f"pub publishes to one topic, not {1 + len(more)}")
    return topic


def keyed(given: argparse.Namespace) -> Iterator[tuple[bytes, str | None]]:
    """Payloads with their keys, which come from ``-k`` or from the text before ``-K``.

    Raises:
        Failed: as :func:`payloads`.
    """
    separator = given.key_separator and given.key_separator.encode()
    for payload in payloads(given):
        before, found, after = payload.partition(separator) if separator else (b"", b"", b"")
        yield (after, before.decode()) if found else (payload, given.key)


def payloads(given: argparse.Namespace) -> Iterator[bytes]:
    """The payloads from ``-m``, ``-f``, ``-l``, ``-s`` and ``-n``.

    Raises:
        Failed: a file or standard input is empty. An empty message deletes a retained one, so only ``-n``,
            ``-m ""`` and an empty line of ``-l`` make one.
    """
    if given.lines:
        for line in sys.stdin.buffer:
            # A CR is part of the line, as for mosquitto_pub.
            yield line.removesuffix(b"\n")
        return
    if given.message:
        lot = [text.encode() for text in given.message]
    elif given.file:
        lot = [_not_empty(name, Path(name).read_bytes()) for name in given.file]
    elif given.null:
        lot = [b""]
    else:
        lot = [_not_empty("standard input", sys.stdin.buffer.read())]
    for number in range(given.repeat):
        if number and (delay := getattr(given, "repeat_delay", None)):
            time.sleep(delay)
        yield from lot


def _not_empty(name: str, content: bytes) -> bytes:
    if not content:
        raise Failed(f"{name} is empty: a message without a payload is published by -n only")
    return content
