"""Cells of a table that run side by side in one event loop: they wait, and compute nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any


async def side_by_side(cells: Sequence[tuple[Any, Awaitable[None]]]) -> None:
    """Waits for all. The error has each that failed, with its cell's ``name`` and the events that it has
    ``seen``."""
    results = await asyncio.gather(*(work for _, work in cells), return_exceptions=True)
    failures: list[BaseException] = []
    for (cell, _), result in zip(cells, results, strict=True):
        if isinstance(result, BaseException):
            events = [(event.kind, event.address, event.attempts, str(event.error)) for event in cell.seen]
            result.add_note(f"{cell.name}: {events}")
            failures.append(result)
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(cells)} cells", failures)
