"""Compares the newest result of ``make bench-quick`` with the one before, and draws all of them.

    python -m benches.history [--chart FILE]

Results are the files of benches/history, one for each commit that was measured. A row is the ratio of a rate
to that of a bare floor measured at the same time, so results of different days compare; those of different
machines do not. A row that is slower than before is named, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from benches import ROOT, plots
from benches.compare import LEVEL
from benches.plots import Panel

FOLDER = ROOT / "benches" / "history"
Run = dict[str, Any]


class Change(NamedTuple):
    """A row of two results: medians of the ratio to the floor, and the sum of both spreads."""

    row: str
    before: float
    now: float
    spread: float

    @property
    def is_slower(self) -> bool:
        """Whether it is below ``LEVEL`` of before by more than the spread of both."""
        return LEVEL * self.before - self.now > self.spread


def load(folder: Path) -> list[Run]:
    """All results, the oldest first."""
    return sorted(
        (json.loads(file.read_text()) for file in folder.glob("*.json")), key=lambda run: run["date"]
    )


def former(runs: list[Run]) -> Run | None:
    """The result before the newest one, of the same processor, number of cores and Python, and of an engine
    that was optimised alike."""

    def place(run: Run) -> tuple[Any, ...]:
        return run["opt_level"], *(run["machine"][fact] for fact in ("cpu", "cores", "python"))

    return next((run for run in reversed(runs[:-1]) if place(run) == place(runs[-1])), None)


def changes(now: Run, before: Run) -> list[Change]:
    """The rows that both results have."""
    old = {row["case"]: row for row in before["rows"]}
    return [
        Change(
            row["case"],
            old[row["case"]]["ratio"],
            row["ratio"],
            row["spread"]["ratio"] + old[row["case"]]["spread"]["ratio"],
        )
        for row in now["rows"]
        if row["case"] in old
    ]


def draw(runs: list[Run], chart: Path) -> None:
    """A panel for each row of the newest result, a point with its spread for each result."""
    panels = [
        Panel(
            newest["case"],
            [
                (number, row["ratio"], row["spread"]["ratio"])
                for number, run in enumerate(runs)
                for row in run["rows"]
                if row["case"] == newest["case"]
            ],
            [run["commit"] for run in runs],
        )
        for newest in runs[-1]["rows"]
    ]
    plots.draw(panels, chart, "Rate / bare floor of the same run, for each commit: higher is faster")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benches.history", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--chart",
        type=Path,
        default=Path("bench-history.svg"),
        metavar="FILE",
        help="SVG or PNG, %(default)s",
    )
    options = parser.parse_args()
    runs = load(FOLDER)
    if not runs:
        raise SystemExit("benches/history is empty: run `make bench-quick`")
    draw(runs, options.chart)
    before = former(runs)
    if before is None:
        print(
            f"{runs[-1]['commit']} is the first result of this machine and opt-level. Chart: {options.chart}"
        )
        return
    print(f"{runs[-1]['commit']} beside {before['commit']}, rate / floor. Chart: {options.chart}")
    found = changes(runs[-1], before)
    for change in found:
        print(
            f"{change.row:54} {change.now:8.3f} before {change.before:8.3f}  {change.now / change.before:.2f}"
            f" ± {change.spread / change.before:.2f}{'  SLOWER' if change.is_slower else ''}"
        )
    if slower := [change.row for change in found if change.is_slower]:
        raise SystemExit(f"slower than {before['commit']}: {'; '.join(slower)}")


if __name__ == "__main__":
    main()
