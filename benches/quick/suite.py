"""A few rows of each protocol on the embedded broker, each as a ratio to a bare floor.

Row and floor take turns, so what else the machine does at the time mostly cancels out. A floor exchanges as
many messages of the same size, with an answer to each window of them, between two bare asyncio processes;
with fsync it writes the same batches into a bare SQLite; that of an import is `import asyncio`. Above 1 is
faster than the floor, which handles each message in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benches.case import Failed, run
from benches.compare import ROWS, Build
from benches.mqtt.suite import preparation
from benches.origin import MEASURED
from benches.suite import EMBEDDED, Group, Plan, Result, Suite
from benches.targets import Row

SIZE = 100
FRAMES, COMMITS = "bare_asyncio", "bare_sqlite"
#: The floor of each row of `benches.compare`: its case, number of messages, size and window; for
#: commits, messages in a row and rows in a transaction if they differ from Pulsar's batches.
FLOORS: dict[str, tuple[str, tuple[int, ...]]] = {
    "pulsar: one at a time, 100 B": (FRAMES, (5_000, 100, 1)),
    "pulsar: window of sends, 100 B": (FRAMES, (100_000, 100, 1000)),
    "pulsar: async for + ack, 100 B": (FRAMES, (100_000, 100, 1000)),
    "pulsar: window of sends, 1 KiB, fsync": (COMMITS, (200_000, 1024)),
    "mqtt: one at a time, QoS 1": (FRAMES, (5_000, 100, 1)),
    "mqtt: publish, QoS 1": (FRAMES, (100_000, 100, 100)),
    "mqtt: receive, QoS 1": (FRAMES, (100_000, 100, 100)),
    "mqtt: publish to a session that is away, QoS 1, fsync": (COMMITS, (60_000, 100, 1, 100)),
    "tubemq: one at a time, 100 B": (FRAMES, (5_000, 100, 1)),
    "tubemq: window of sends, 100 B": (FRAMES, (100_000, 100, 1000)),
    "tubemq: receive_many + ack_many, 100 B": (FRAMES, (100_000, 100, 1000)),
}
BRIDGED = "pulsar: window of sends, 100 B"
BRIDGE, IMPORT = "bridge: sends per second of loop thread", "import forebay / import asyncio"
STARTS = 10


def beside(rate: float, floor: float) -> Row:
    return {"rate": rate, "floor": floor, "ratio": rate / floor}


def one_round(plan: Plan) -> Iterator[Result]:
    build = Build(MEASURED)
    for row in ROWS:
        names = [row.name, *([BRIDGE] if row.name == BRIDGED else [])]
        if row.name not in FLOORS or not any(map(plan.wanted, names)):
            continue
        case, arguments = FLOORS[row.name]
        try:
            ours = build.measure(row, plan.scale)
            floor = run("pulsar", case, "", "", *arguments, timeout=120)
        except Failed as failed:
            yield row.name, failed
            continue
        yield row.name, beside(ours["rate"], floor["rate"])
        if row.name == BRIDGED:
            # Per send the loop's thread spends ``loop`` microseconds.
            yield BRIDGE, beside(1e6 / ours["loop"], 1e6 / floor["loop"])
    if plan.wanted(IMPORT):
        try:
            rates: list[Any] = [
                run("footprint", "importing", module, STARTS, timeout=120)["rate"]
                for module in ("forebay", "asyncio")
            ]
        except Failed as failed:
            yield IMPORT, failed
        else:
            yield IMPORT, beside(*rates)


def groups(label: str, plan: Plan) -> Iterator[Group]:
    yield Group(SIZE, lambda: one_round(plan))


SUITE = Suite(
    "quick",
    (EMBEDDED,),
    [],
    groups,
    "benches/history/{day}-{commit}.json",
    preparation,
    rounds=7,
    keep=True,
)
