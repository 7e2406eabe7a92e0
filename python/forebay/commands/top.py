"""``forebay top``: rates, topics and backlogs of a broker, again and again."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from forebay._core import parse
from forebay.errors import Error, InvalidArgument, Unsupported

from ._shared import prometheus, snapshot
from ._shared.display import printable, size
from ._shared.options import scopes
from ._shared.web import Web

_USUAL = "persistent://public/default/"
"""The beginning of topic names that is left out."""
_NARROW = 70
"""Columns of a terminal below which some figures are left out."""
_TINY = 36
"""Columns below which the names of subscriptions are left out as well."""
Figures = dict[str, Any]
Lines = list[list[str]]


def run(given: argparse.Namespace) -> int:
    """Shows the figures until Ctrl-C, or once."""
    try:
        interval = parse.duration(given.interval)
    except ValueError as error:
        raise InvalidArgument(f"--interval: {error}") from None
    if interval < 0.1:
        raise InvalidArgument(f"--interval is at least 100ms, not {given.interval}")
    web = Web(given.url, scopes(given.options, "pulsar")["client"])
    watch = _Watch(web, interval)
    if given.json:
        _repeat(watch, given.once, lambda figures: print(json.dumps(figures), flush=True))
    elif given.once or not sys.stdout.isatty():
        _repeat(watch, given.once, lambda figures: print(plain(figures), flush=True))
    else:
        _live(watch)
    return 0


class _Watch:
    """The broker, looked at after each interval."""

    def __init__(self, web: Web, interval: float) -> None:
        self._web = web
        self._interval = interval
        self._before = self._now()
        if not self._before.protocols:
            raise Unsupported(
                "this web service has no figures of an embedded broker or of a Pulsar under /metrics"
            )

    def _now(self) -> snapshot.Snapshot:
        return snapshot.taken(prometheus.scraped(self._web))

    def next(self) -> Figures:
        """The figures after the next interval."""
        time.sleep(max(self._before.at + self._interval - time.monotonic(), self._interval / 2))
        now = self._now()
        figures = snapshot.changes(self._before, now)
        self._before = now
        return figures


def _repeat(watch: _Watch, once: bool, show: Callable[[Figures], None]) -> None:
    show(watch.next())
    while not once:
        show(watch.next())


# ---- for people


def summary(figures: Figures) -> str:
    """A line about the broker."""
    said = figures["broker"]
    words: list[str] = [said["version"]] if "version" in said else []
    if "uptime" in said:
        words.append(f"up {_time(said['uptime'])}")
    if "store_bytes" in said:
        limit = said.get("store_limit_bytes")
        words.append(f"store {size(said['store_bytes'])}" + (f" of {size(limit)}" if limit else ""))
    if "disk_free_bytes" in said:
        words.append(f"disk free {size(said['disk_free_bytes'])}")
    if said.get("store_writable") == 0:
        words.append("STORE CANNOT BE WRITTEN")
    return ", ".join(words)


def protocol_rows(figures: Figures, width: int) -> Lines:
    """The table of protocols, its titles first."""
    rows = [["protocol", "conn", "in/s", "out/s", "in B/s", "out B/s"]]
    rows += [
        [
            *(one["protocol"], f"{one['connections']:,}"),
            *(_rate(one["received_per_second"]), _rate(one["sent_per_second"])),
            *(size(one["received_bytes_per_second"]), size(one["sent_bytes_per_second"])),
        ]
        for one in figures["protocols"]
    ]
    return rows if width >= _NARROW else [row[:4] for row in rows]


def topic_rows(figures: Figures, width: int, most: int | None = None) -> Lines:
    """The table of topics and their subscriptions, its titles first.

    Args:
        figures: of the broker.
        width: columns of the terminal.
        most: rows, with that of the titles.
    """
    rows = [["topic", "subscription", "in/s", "backlog", "unacked", "cons"]]
    for topic in figures["topics"]:
        name = printable(topic["topic"].removeprefix(_USUAL))
        incoming = _rate(topic["received_per_second"])
        subscriptions = topic["subscriptions"] or [None]
        for at, one in enumerate(subscriptions):
            first = [name, incoming] if at == 0 else ["", ""]
            figures_of = (
                ["", "", "", ""]
                if one is None
                else [
                    *(printable(one["subscription"]), f"{one['backlog']:,}"),
                    *(f"{one['unacknowledged']:,}", f"{one['consumers']:,}"),
                ]
            )
            rows.append([first[0], figures_of[0], first[1], *figures_of[1:]])
    rows = rows if most is None else rows[: max(most, 1)]
    if width < _TINY:
        return [[row[0], *row[2:4]] for row in rows]
    return rows if width >= _NARROW else [row[:4] for row in rows]


def plain(figures: Figures) -> str:
    """All figures as text, without a limit on its width."""
    tables = (protocol_rows(figures, _NARROW), topic_rows(figures, _NARROW))
    omitted = [f"{figures['omitted']:,} more topics"] if figures["omitted"] else []
    return "\n".join([summary(figures), *(f"\n{_aligned(rows)}" for rows in tables), *omitted]) + "\n"


def _aligned(rows: Lines) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = _right(rows[0])
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    )


def _right(titles: list[str]) -> list[bool]:
    return [title not in ("protocol", "topic", "subscription") for title in titles]


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _time(seconds: float) -> str:
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


# ---- on a terminal


def _live(watch: _Watch) -> None:
    """Shows the figures on the whole screen until Ctrl-C. A broker that does not answer is asked again."""
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        raise Unsupported(
            "top on a terminal needs rich: pip install 'forebay[cli]'; --once and --json do without"
        ) from None
    console: Any = Console(no_color=bool(os.environ.get("NO_COLOR")))
    figures: Figures | None = None
    problem = "the first rates come after an interval"
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(_screen(figures, problem, *shutil.get_terminal_size()), refresh=True)
            try:
                figures, problem = watch.next(), ""
            except Error as error:
                if not error.retriable:
                    raise
                problem = f"no figures since {time.strftime('%H:%M:%S')}: {error}"


def _screen(figures: Figures | None, problem: str, width: int, height: int) -> Any:
    """The screen, for rich."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def line(text: str, style: str = "") -> Any:
        return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")

    def table(rows: Lines) -> Any:
        made = Table(box=None, pad_edge=False, expand=True)
        for title, is_right in zip(rows[0], _right(rows[0]), strict=True):
            # Texts share what is left.
            made.add_column(
                title,
                justify="right" if is_right else "left",
                no_wrap=True,
                overflow="ellipsis",
                ratio=None if is_right else 1,
            )
        for row in rows[1:]:
            made.add_row(*(Text(cell) for cell in row))
        return made

    if figures is None:
        return Group(line(problem))
    protocols = protocol_rows(figures, width)
    # The lines around the tables, and their titles.
    rows = topic_rows(figures, width, height - len(protocols) - 4)
    foot = f"{len(figures['topics']) + figures['omitted']:,} topics; Ctrl-C ends"
    return Group(
        line(summary(figures), "bold"),
        table(protocols),
        line(""),
        table(rows),
        line(problem or foot, "red" if problem else "dim"),
    )
