"""The frame of all suites: rounds, medians, the table, and the targets at its end."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.case import Failed, Skipped
from benches.origin import origin
from benches.targets import Row, Target, show, verdicts

#: The embedded broker in memory, and with each commit on disk.
EMBEDDED, FSYNC = "embedded", "embedded-fsync"

#: How the names of rows end whose clients and broker share a core.
ON_ONE_CORE = " on one core"

#: The name of a row and its figures.
Result = tuple[str, Row | Failed]


@dataclass(frozen=True)
class Plan:
    """The options of a run."""

    rounds: int
    #: Factor of the number of messages.
    scale: float
    #: Whether rows of this name are wanted.
    wanted: Callable[[str], bool]
    #: Seconds of a point of a curve after which larger ones are skipped.
    limit: float = 60.0


@dataclass(frozen=True)
class Group:
    """Rows of one message size on one broker: ``run`` measures each once."""

    size: int
    run: Callable[[], Iterator[Result]]
    #: Whether it is measured once only, whatever the number of rounds.
    once: bool = False


@dataclass(frozen=True)
class Suite:
    """A set of benchmarks with its brokers and targets."""

    name: str
    brokers: tuple[str, ...]
    targets: list[Target]
    #: The groups of a broker, which it starts and stops.
    groups: Callable[[str, Plan], Iterator[Group]]
    #: Default of --json. ``{day}`` and ``{commit}`` are those of the run.
    file: str
    #: Entered around the whole run.
    preparation: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    #: Default of --rounds.
    rounds: int = 3
    #: Whether a run refuses to replace an earlier result.
    keep: bool = False


def run(suite: Suite, brokers: list[str], plan: Plan, name: str) -> int:
    """Measures, prints the table and the targets, writes both to the file of this name; returns the number of
    failures."""
    facts = origin()
    file = Path(name.format(day=facts["date"][:10], commit=facts["commit"]))
    if suite.keep and file.exists():
        raise SystemExit(f"{file} exists: this commit has been measured today; delete it to measure again")
    rows: list[Row] = []
    failures = 0
    with suite.preparation():
        for broker in brokers:
            with contextlib.closing(suite.groups(broker, plan)) as groups:
                for group in groups:
                    found, failed = _measure(broker, group, plan.rounds)
                    rows += found
                    failures += failed
    lines = verdicts(rows, suite.targets)
    if lines:
        show(lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    result = {"suite": suite.name, **facts, "rounds": plan.rounds, "scale": plan.scale}
    file.write_text(json.dumps(result | {"rows": rows, "targets": lines}, indent=1) + "\n")
    return failures


def _measure(broker: str, group: Group, rounds: int) -> tuple[list[Row], int]:
    """The medians of the rounds. Failed rounds are left out of it."""
    runs: dict[str, list[Row]] = {}
    skipped: dict[str, str] = {}
    failures = 0
    for _ in range(1 if group.once else rounds):
        for name, result in group.run():
            if isinstance(result, Skipped):
                skipped[name] = str(result)
                print(f"{_start(broker, group.size, name)} skipped: {result}", flush=True)
            elif isinstance(result, Failed):
                failures += 1
                print(f"{_start(broker, group.size, name)} failed: {result}", flush=True)
            else:
                runs.setdefault(name, []).append(result)
    rows: list[Row] = []
    for name, results in runs.items():
        medians = {key: statistics.median(result[key] for result in results) for key in results[0]}
        spreads = {key: _spread([result[key] for result in results]) for key in medians}
        row: Row = {"broker": broker, "size": group.size, "case": name, **medians, "spread": spreads}
        rows.append(row)
        print(f"{_start(broker, group.size, name)} {_figures(row)}", flush=True)
    rows += (
        {"broker": broker, "size": group.size, "case": name, "skipped": why}
        for name, why in skipped.items()
        if name not in runs
    )
    return rows, failures


def _spread(values: list[float]) -> float:
    """The median distance from the median."""
    median = statistics.median(values)
    return statistics.median(abs(value - median) for value in values)


def _start(broker: str, size: int, name: str) -> str:
    return f"{broker:14} {size:5} B  {name:44}"


def _figures(row: Row) -> str:
    if "ratio" in row:
        spread = row["spread"]["ratio"]
        return (
            f"{row['rate']:12,.0f}/s, floor {row['floor']:12,.0f}/s, ratio {row['ratio']:.3f} ± {spread:.3f}"
        )
    if "growth" in row:
        return f"resident set grew by {row['growth']:.1f} MiB, limit {row['limit']:.0f} MiB"
    if "milliseconds" in row:
        return f"{row['milliseconds']:.0f} ms"
    if "connections" in row:
        return f"{row['connections']:12,.0f} held, broker {row['rss']:.0f} MiB"
    if "topics" in row:
        busy = f"{row['wakes']:.3f} wake-ups and {row['cpu']:.1f} us of CPU in a second"
        return f"{row['kib']:.1f} KiB a topic, {busy}"
    if "x" in row or "rate" not in row:
        places = {"broker", "size", "case", "spread", "x"}
        return ", ".join(f"{key} {value:,.4g}" for key, value in row.items() if key not in places)
    line = f"{row['rate']:12,.0f} msg/s {row['cpu']:8.2f} CPU s/M"
    if "cpu_jvm" in row:
        parts = (f"{part} {row[f'cpu_{part}']:.2f}" for part in ("driver", "jvm", "workers"))
        return f"{line} ({', '.join(parts)}), a worker {row['rss']:.0f} MiB at most"
    if "loop" in row:
        line += f" {row['loop']:8.2f} of it calling thread"
    if "p50" in row:
        line += f" {row['p50']:8.0f} us, the median of a call"
    if "broker_cpu" in row:
        line += f" {row['broker_cpu']:8.2f} of the broker"
    if "rss" in row:
        line += f" {row['rss']:6.0f} MiB"
    return line
