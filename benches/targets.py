"""Targets: figures that Forebay aims at, each computed from the rows of a run.

A missed target does not fail the run: rates depend on the machine, ratios less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


class Rows:
    """The medians of a run by broker, size and case."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = {(row["broker"], row["size"], row["case"]): row for row in rows}

    def get(self, broker: str, size: int, case: str, figure: str = "rate") -> float:
        """Raises ``KeyError`` for what was not measured."""
        return self._rows[broker, size, case][figure]

    def best(self, broker: str, size: int, case: str, *clients: str) -> Row:
        """The fastest of the rows ``client case``."""
        names = [(broker, size, f"{client} {case}") for client in clients]
        rows = [self._rows[name] for name in names if name in self._rows]
        if not rows:
            raise KeyError(case)
        return max(rows, key=lambda row: row["rate"])

    def ratio(self, broker: str, size: int, case: str, peer: str, figure: str = "rate") -> float:
        return self.get(broker, size, case, figure) / self.get(broker, size, peer, figure)


@dataclass(frozen=True)
class Target:
    """``measure`` gives a figure in ``unit`` that should reach ``wanted``, or stay below it."""

    what: str
    wanted: float
    unit: str
    measure: Callable[[Rows], float]
    at_most: bool = False

    def line(self, rows: Rows) -> Row:
        bound = "<=" if self.at_most else ">="
        line: Row = {"target": self.what, "wanted": f"{bound} {self._text(self.wanted)}"}
        try:
            measured = self.measure(rows)
        except KeyError:
            return line | {"measured": None, "verdict": "-"}
        met = measured <= self.wanted if self.at_most else measured >= self.wanted
        return line | {"measured": self._text(measured), "verdict": "met" if met else "missed"}

    def _text(self, value: float) -> str:
        number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return f"{number}{self.unit}"


def rate(what: str, wanted: float, broker: str, size: int, case: str) -> Target:
    return Target(what, wanted, "/s", lambda rows: rows.get(broker, size, case))


def times(what: str, wanted: float, broker: str, size: int, case: str, peer: str) -> Target:
    """The ratio of two rates."""
    return Target(what, wanted, "x", lambda rows: rows.ratio(broker, size, case, peer))


def share(what: str, wanted: float, broker: str, size: int, case: str, peer: str) -> Target:
    """The ratio of two figures of CPU per message."""
    return Target(what, wanted, "x", lambda rows: rows.ratio(broker, size, case, peer, "cpu"), at_most=True)


def verdicts(rows: list[Row], targets: list[Target]) -> list[Row]:
    """A line for each target, also for those without rows in this run."""
    found = Rows(rows)
    return [target.line(found) for target in targets]


def show(lines: list[Row]) -> None:
    print(f"\n{'target':62} {'wanted':>14} {'measured':>14}")
    for line in lines:
        measured = line["measured"] or "not measured"
        print(f"{line['target']:62} {line['wanted']:>14} {measured:>14}  {line['verdict']}")
