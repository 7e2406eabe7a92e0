"""The figures that Penstock sets itself, each as a number that a run's rows give or do not give. Nothing here
makes a run fail: figures depend on the machine, ratios less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
FSYNC, EMBEDDED, PULSAR = "embedded-fsync", "embedded", "pulsar"


class Rows:
    """The medians of a run by broker, size and case."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = {(row["broker"], row["size"], row["case"]): row for row in rows}

    def get(self, broker: str, size: int, case: str, figure: str = "rate") -> float:
        """Raises ``KeyError`` for what was not measured."""
        return self._rows[broker, size, case][figure]

    def best(self, broker: str, size: int, case: str, *clients: str) -> float:
        """The highest rate of these that were measured, ``client case``."""
        names = [(broker, size, f"{client} {case}") for client in clients]
        rates = [self._rows[name]["rate"] for name in names if name in self._rows]
        if not rates:
            raise KeyError(case)
        return max(rates)

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
    """Rates."""
    return Target(what, wanted, "x", lambda rows: rows.ratio(broker, size, case, peer))


def share(what: str, wanted: float, broker: str, size: int, case: str, peer: str) -> Target:
    """CPU per message."""
    return Target(what, wanted, "x", lambda rows: rows.ratio(broker, size, case, peer, "cpu"), at_most=True)


def growth(what: str, wanted: float, broker: str, case: str) -> Target:
    return Target(
        what,
        wanted,
        "x",
        lambda rows: rows.get(broker, 1024, case, "growth") / rows.get(broker, 1024, case, "limit"),
        at_most=True,
    )


TARGETS = [
    rate(
        "embedded in memory, 100 B, window 1000: acknowledged sends",
        300_000,
        EMBEDDED,
        100,
        "penstock_window",
    ),
    rate(
        "embedded in memory, 100 B: receive_many + ack_many", 500_000, EMBEDDED, 100, "penstock_receive_many"
    ),
    rate("embedded in memory, 100 B: async for + ack", 300_000, EMBEDDED, 100, "penstock_for"),
    times("embedded fsync, 1 KiB, send_many / bare SQLite", 0.5, FSYNC, 1024, "penstock_many", "bare_sqlite"),
    times(
        "embedded fsync, 1 KiB, window 1000 / bare SQLite", 0.5, FSYNC, 1024, "penstock_window", "bare_sqlite"
    ),
    Target(
        "bridge: loop thread per completed send, window 1000",
        2.0,
        " us",
        lambda rows: rows.get(EMBEDDED, 100, "penstock_window", "loop"),
        at_most=True,
    ),
    Target(
        "one at a time / bare asyncio stream pair, time",
        1.5,
        "x",
        lambda rows: rows.ratio(EMBEDDED, 100, "bare_asyncio", "penstock_one"),
        at_most=True,
    ),
    times("Pulsar 100 B: window / pulsar.asyncio", 10, PULSAR, 100, "penstock_window", "peer_asyncio"),
    times("Pulsar 100 B: window / send_async + callback", 7, PULSAR, 100, "penstock_window", "peer_callback"),
    share(
        "Pulsar 100 B: its CPU / send_async + callback",
        1 / 8,
        PULSAR,
        100,
        "penstock_window",
        "peer_callback",
    ),
    times("Pulsar 100 B: send_many / pulsar.asyncio", 20, PULSAR, 100, "penstock_many", "peer_asyncio"),
    times(
        "Pulsar 100 B: async for + ack / pulsar.asyncio",
        8,
        PULSAR,
        100,
        "penstock_for",
        "peer_asyncio_receive",
    ),
    times(
        "Pulsar 100 B: receive_many / batch_receive",
        1.5,
        PULSAR,
        100,
        "penstock_receive_many",
        "peer_batch_receive",
    ),
    times(
        "Pulsar 100 B: blocking receive + ack / pulsar-client",
        1,
        PULSAR,
        100,
        "penstock_blocking",
        "peer_receive",
    ),
    times("Pulsar 1 KiB: window / pulsar.asyncio", 7.5, PULSAR, 1024, "penstock_window", "peer_asyncio"),
    times(
        "Pulsar 1 KiB: async for + ack / pulsar.asyncio",
        7.5,
        PULSAR,
        1024,
        "penstock_for",
        "peer_asyncio_receive",
    ),
    *(
        target
        for broker in (EMBEDDED, PULSAR)
        for target in (
            times(
                f"{broker}, Spark 100 B: rows / foreachPartition",
                8,
                broker,
                100,
                "spark_write",
                "peer_foreach",
            ),
            share(
                f"{broker}, Spark 100 B: CPU / foreachPartition",
                1 / 8,
                broker,
                100,
                "spark_write",
                "peer_foreach",
            ),
        )
    ),
    # Beyond the payloads: the allocator's slack, and what the client knows of each message.
    growth("memory growth / memory_limit, slow broker", 1.1, EMBEDDED, "memory_send"),
    growth("memory growth / receiver_queue, nobody reads", 1.25, EMBEDDED, "memory_receive"),
    growth("memory growth / receiver_queue, singly, nobody reads", 1.25, EMBEDDED, "memory_receive_singly"),
]


def verdicts(rows: list[Row], targets: list[Target]) -> list[Row]:
    """A line for each target, also for those that this run has no rows for."""
    found = Rows(rows)
    return [target.line(found) for target in targets]


def show(lines: list[Row]) -> None:
    print(f"\n{'target':62} {'wanted':>14} {'measured':>14}")
    for line in lines:
        measured = line["measured"] or "not measured"
        print(f"{line['target']:62} {line['wanted']:>14} {measured:>14}  {line['verdict']}")
