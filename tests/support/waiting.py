"""Waiting for a condition without fixed sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def eventually(check: Callable[[], bool], timeout: float = 10.0) -> None:
    """Blocks until ``check`` holds."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


async def until(check: Callable[[], object], timeout: float = 10.0) -> None:
    """Waits on the event loop until ``check`` holds."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
