"""The page Performance of the docs, from the results in benches/results and benches/history.

A result gets there by ``--json benches/results/SUITE.json``. ``tools/docs_pages.py`` writes the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches import ROOT, history, plots
from benches.curves.suite import CURVES, Curve, named
from benches.plots import Panel
from benches.suite import EMBEDDED, FSYNC
from benches.targets import Row

RESULTS = ROOT / "benches" / "results"
Result = dict[str, Any]

METHOD = """\
Each case runs in a process of its own. Cases that are compared take turns in the same run, and a figure is
the median of the rounds, with the median distance from it as its spread. Broker and clients share the
machine, so rates are lower than on two machines. Compare rates within one run only; from machine to machine,
compare ratios. The code is in `benches/`; `make bench-all` measures again.

The embedded broker is measured in memory and with `fsync`, where each message is on disk before it is
acknowledged. As configured here, Apache Pulsar, Mosquitto and TubeMQ do not wait for the disk.
"""
#: Suite, heading, what stands beside each other, and the target of the Makefile that measures it.
SECTIONS = (
    (
        "pulsar",
        "Pulsar and Spark",
        "Beside pulsar-client (`peer`), the Java client (`java`), and bare asyncio and SQLite (`bare`).",
        "bench",
    ),
    ("mqtt", "MQTT", "Beside other clients in Python, Mosquitto's programs and a client in C.", "bench-mqtt"),
    ("tubemq", "TubeMQ", "Beside the official Java client.", "bench-tubemq"),
    (
        "operating",
        "The embedded broker in operation",
        "With HTTP, permissions or a log, beside one without (`plain`).",
        "bench-operating",
    ),
    ("footprint", "Footprint", "Import, size, and what idle clients and brokers use.", "bench-footprint"),
)
#: Columns of the tables, in this order.
COLUMNS = {
    "rate": "messages/s",
    "cpu": "CPU of the client, us a message",
    "loop": "calling thread, us",
    "broker_cpu": "least CPU of the broker, us",
    "p50": "median of a call, us",
    "milliseconds": "ms",
    "connections": "connections held",
    "topics": "topics",
    "kib": "KiB a topic",
    "wakes": "wake-ups/s a topic",
    "growth": "growth, MiB",
    "limit": "limit, MiB",
    "installed": "installed, MiB",
    "packed": "compressed, MiB",
    "rss": "memory, MiB",
    "idle": "CPU while idle, ms/s",
}
BROKERS = {
    EMBEDDED: "the embedded broker in memory",
    FSYNC: "the embedded broker with fsync",
    "pulsar": "Apache Pulsar",
    "mosquitto": "Mosquitto",
    "fake": "a broker that only acknowledges and sends",
    "tubemq": "Apache InLong TubeMQ",
}


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---", *["--:"] * (len(head) - 1)], *lines]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in rows)


def cell(row: Row, column: str) -> str:
    if column not in row:
        return ""
    spread = row["spread"][column] / row[column] if row[column] else 0
    return number(row[column]) + (f" ± {spread:.0%}" if column == "rate" and spread >= 0.005 else "")


def missing(name: str, target: str) -> str:
    return (
        f"No result is in the repository.\n"
        f'`make {target} BENCH="--json benches/results/{name}.json"` measures and keeps one.\n'
    )


def rows_of(result: Result) -> Iterator[str]:
    """A table for each broker and size of message."""
    rows: list[Row] = [row for row in result["rows"] if "skipped" not in row]
    for broker, size in dict.fromkeys((row["broker"], row["size"]) for row in rows):
        here = [row for row in rows if (row["broker"], row["size"]) == (broker, size)]
        columns = [column for column in COLUMNS if any(column in row for row in here)]
        if len({(row["broker"], row["size"]) for row in rows}) > 1:
            yield f"### {result['suite']}: {size:,} B on {BROKERS[broker]}\n"
        yield table(
            ["case", *(COLUMNS[column] for column in columns)],
            [[f"`{row['case']}`", *(cell(row, column) for column in columns)] for row in here],
        )


def targets_of(result: Result) -> Iterator[str]:
    lines = [line for line in result["targets"] if line["measured"]]
    if lines:
        keys = ("target", "wanted", "measured", "verdict")
        yield table(list(keys), [[line[key] for key in keys] for line in lines])


def behind(results: dict[str, Result]) -> Iterator[str]:
    yield "## Where Forebay is not ahead\n"
    lines = [
        [line["target"], name, line["wanted"], line["measured"]]
        for name, result in results.items()
        for line in result["targets"]
        if line["verdict"] == "missed"
    ]
    if not results:
        yield "Unknown: no result is in the repository.\n"
    elif lines:
        yield "The targets that these results miss.\n"
        yield table(["target", "suite", "wanted", "measured"], lines)
    else:
        yield "These results miss no target.\n"
    if absent := [name for name in (*(name for name, *_ in SECTIONS), "curves") if name not in results]:
        yield f"Suites without a result: {', '.join(absent)}.\n"
    unmeasured = sum(line["verdict"] == "-" for one in results.values() for line in one["targets"])
    if unmeasured:
        yield f"Not measured in these runs: {unmeasured} targets.\n"


def curve_of(curve: Curve, result: Result, plots_folder: Path) -> Iterator[str]:
    yield f"### Curve: {curve.name}\n"
    found = {row["case"]: row for row in result["rows"]}
    names = [named(curve, step) for step in curve.steps]
    points: list[Row] = [found[name] for name in names if name in found and "x" in found[name]]
    if not points:
        yield "Not in this result.\n"
        return
    figures = {**curve.figures, "rss": f"memory of the {curve.pays}, MiB"}
    figures = {figure: label for figure, label in figures.items() if any(figure in row for row in points)}
    panels = [
        Panel(label, [(row["x"], row[figure], row["spread"][figure]) for row in points if figure in row])
        for figure, label in figures.items()
    ]
    plots.draw(panels, plots_folder / f"{curve.case}.svg")
    yield f"![{curve.name}]({plots_folder.name}/{curve.case}.svg)\n"
    lines = [
        [number(row["x"]), *(number(row[figure]) if figure in row else "" for figure in figures)]
        for row in points
    ]
    yield table([curve.name, *figures.values()], lines)
    for name in names:
        if "skipped" in (row := found.get(name, {})):
            yield f"{name.rpartition(': ')[2]} was skipped: {row['skipped']}.\n"


def machines(results: dict[str, Result]) -> str:
    lines: list[list[str]] = []
    for name, result in results.items():
        machine = result["machine"]
        lines.append(
            [
                name,
                result["date"][:10],
                f"`{result['commit']}`" + (", modified" if result["modified"] else ""),
                result["opt_level"],
                f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB",
                machine["kernel"],
                machine["python"],
                str(result["rounds"]),
            ]
        )
    return table(["suite", "date", "commit", "opt-level", "machine", "kernel", "Python", "rounds"], lines)


def page(plots_folder: Path, results_folder: Path = RESULTS, history_folder: Path = history.FOLDER) -> str:
    """The page in Markdown; writes its plots into a folder beside it."""
    plots_folder.mkdir(parents=True, exist_ok=True)
    names = [*(name for name, *_ in SECTIONS), "curves"]
    files = {name: results_folder / f"{name}.json" for name in names}
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    parts = ["# Performance\n", METHOD, "## Machine\n"]
    parts.append(machines(results) if results else "No result is in the repository.\n")
    parts += behind(results)
    for name, title, text, target in SECTIONS:
        parts.append(f"## {title}\n\n{text}\n")
        if name in results:
            parts += [*rows_of(results[name]), *targets_of(results[name])]
        else:
            parts.append(missing(name, target))
    parts.append("## Costs that grow\n\nEach on an embedded broker of its own.\n")
    if "curves" in results:
        parts += [part for curve in CURVES for part in curve_of(curve, results["curves"], plots_folder)]
        parts += targets_of(results["curves"])
    else:
        parts.append(missing("curves", "bench-curves"))
    parts.append(
        "## From commit to commit\n\n"
        "Results of `make bench-quick`: the embedded broker's rates as ratios to bare floors.\n"
    )
    if runs := history.load(history_folder):
        history.draw(runs, plots_folder / "history.svg")
        parts.append(f"![Ratios to the floor by commit]({plots_folder.name}/history.svg)\n")
    else:
        parts.append("No result is in the repository.\n")
    return "\n".join(parts)
