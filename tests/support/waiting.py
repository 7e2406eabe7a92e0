"""Waiting for a condition without fixed sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

PATIENCE = 60.0
"""Seconds for what must happen. A run that passes waits for none of them; a real broker on a loaded machine
whose disk is busy may stand still for tens of seconds."""


def line_with(text: str, lines: Iterable[str]) -> str:
    """The next line that has ``text``: a log has others between those that a test is about."""
    for line in lines:
        if text in line:
            return line
    raise AssertionError(f"there is no line with {text!r}")


def eventually(check: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Blocks until ``check`` holds."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


async def until(check: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Waits on the event loop until ``check`` holds."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
