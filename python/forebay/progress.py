"""Progress on a terminal: a bar with ``rich`` if it is installed, a plain line otherwise.

Nothing is shown when standard error is not a terminal, unless ``plain=True`` asks for an occasional line.
``NO_COLOR`` is honoured.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Self

_EVERY = 2.0
"""Seconds between plain lines."""


class Progress:
    """A bar from 0 to ``total``; ``advance(n)`` may be called from any thread.

    Args:
        what: name of the work.
        total: number of units to do; ``None`` if it is not known.
        unit: name of the units.
        plain: print a line every two seconds if there is no terminal.
        quiet: show nothing.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        unit: str = "messages",
        plain: bool = False,
        quiet: bool = False,
    ) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0
        self._rich: Any = None
        self._task: Any = None
        self._terminal = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._plain = plain and not quiet and not self._terminal
        self._started = self._said = time.monotonic()

    def __enter__(self) -> Self:
        self._started = self._said = time.monotonic()
        if self._terminal:
            self._rich = _rich_progress(self.unit)
            if self._rich is not None:
                self._rich.start()
                self._task = self._rich.add_task(self.what, total=self.total)
        return self

    def advance(self, count: int) -> None:
        """Reports that ``count`` more units are done."""
        self.done += count
        if self._rich is not None:
            self._rich.advance(self._task, count)
        elif (self._terminal or self._plain) and time.monotonic() - self._said > (
            _EVERY if self._plain else 0.2
        ):
            self._say(end="\n" if self._plain else "\r")

    def _say(self, end: str) -> None:
        self._said = time.monotonic()
        rate = self.done / max(self._said - self._started, 1e-9)
        of = f" of {self.total:,}" if self.total else ""
        print(
            f"{self.what}: {self.done:,}{of} {self.unit}, {rate:,.0f}/s", end=end, file=sys.stderr, flush=True
        )

    def __exit__(self, *exc: object) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif self._terminal:
            self._say(end="\n")


def _rich_progress(unit: str) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        console=Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR"))),
    )
