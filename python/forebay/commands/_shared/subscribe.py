"""The limits of ``forebay sub`` and how it prints messages."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from forebay.errors import Timeout

from .display import visible_bytes
from .options import seconds

TIMED_OUT = 27
"""Exit status when -W ends the command before -C is reached, as in mosquitto_sub."""
Part = bytes | Callable[[Any], bytes]
"""A piece of a compiled format: constant bytes, or a function of the message."""


class Limits:
    """``-C``, the number of messages to print, and ``-W``, the time to print them in."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._left: int | None = given.count
        self.seconds = None if given.timeout is None else seconds(given.timeout)
        """The time of ``-W``."""
        self._deadline: float | None = None

    def start(self) -> None:
        """Starts the clock of ``-W``."""
        self._deadline = None if self.seconds is None else time.monotonic() + self.seconds

    @property
    def reached(self) -> bool:
        """Whether ``-C`` messages have been printed."""
        return self._left == 0

    @property
    def left(self) -> float | None:
        """Seconds until the time of ``-W`` is over; ``None`` without it."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    @property
    def expired(self) -> bool:
        """Whether the time of ``-W`` is over."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def status(self) -> int:
        """The exit status after ``-W`` where it is an error only if ``-C`` has not been reached."""
        return TIMED_OUT if self._left else 0

    def receive(self, consumer: Any, longest: float | None = None) -> Any:
        """The next message, or ``None`` when ``-W`` or ``longest`` seconds ended the wait."""
        # Messages may come faster than they are printed or filtered out.
        if self.expired:
            return None
        wait = self.left
        if longest is not None:
            wait = longest if wait is None else min(wait, longest)
        try:
            return consumer.receive(wait)
        except Timeout:
            return None

    def count(self) -> None:
        """Counts a printed message."""
        if self._left is not None:
            self._left -= 1


def printer(
    given: argparse.Namespace,
    to_json: Callable[[Any], dict[str, Any]],
    compile_format: Callable[[], Sequence[Part]],
    end: bytes = b"",
) -> Callable[[Any], None]:
    """A function that prints a message as ``--json`` or the format asks. On a terminal control characters of
    the message are escaped; a file or pipe gets its bytes as they are.

    Args:
        given: the parsed arguments.
        to_json: the message as ``--json`` prints it.
        compile_format: the format, compiled; not called with ``--json``.
        end: printed after the format.
    """
    out = sys.stdout.buffer
    if given.json:
        indent = 2 if getattr(given, "pretty", False) else None

        def as_json(message: Any) -> None:
            out.write(json.dumps(to_json(message), indent=indent).encode() + b"\n")
            out.flush()

        return as_json
    parts = compile_format()
    if sys.stdout.isatty():
        # Topics, keys and payloads are a stranger's. The format is the user's own.
        parts = [part if isinstance(part, bytes) else _visible(part) for part in parts]

    def formatted(message: Any) -> None:
        out.write(b"".join(part if isinstance(part, bytes) else part(message) for part in parts) + end)
        out.flush()

    return formatted


def _visible(part: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda message: visible_bytes(part(message))


def payload_to_json(data: bytes) -> dict[str, str]:
    """A payload as ``--json`` prints it: text, or base64 when it is not UTF-8."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(data).decode()}
