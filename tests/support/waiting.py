"""Waiting for a condition without fixed sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds for what must happen. A run that passes waits for none of them; a real broker on a loaded machine
whose disk is busy may stand still for tens of seconds."""


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
