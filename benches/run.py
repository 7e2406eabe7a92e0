"""Measures Penstock beside pulsar-client on the same brokers, interleaved, and prints a table, then the
targets: what was wanted, what was measured, met or missed.

    make bench BENCH="--rounds 3 --scale 1.0 --broker embedded --broker embedded-fsync --broker pulsar"

Each case runs in a process of its own; the median of the rounds is shown. Rates of one run compare with each
other, not with those of another run or machine. A missed target is no failure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from targets import EMBEDDED, FSYNC, PULSAR, TARGETS, show, verdicts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.pulsar.harness import EmbeddedPulsar, PulsarService, RealPulsar  # noqa: E402

BROKERS = (EMBEDDED, FSYNC, PULSAR)
SIZES = (100, 1024)


@dataclass(frozen=True)
class Step:
    """A case, how many messages at scale 1, and where it says anything."""

    case: str
    count: int
    brokers: tuple[str, ...] = BROKERS
    sizes: tuple[int, ...] = SIZES


# One after the other on a topic a round: every publisher adds to it, every consumer reads it from the start.
STEPS = [
    Step("penstock_window", 300_000),
    Step("penstock_many", 500_000),
    Step("bare_sqlite", 500_000, (FSYNC,)),
    Step("penstock_one", 3_000),
    Step("bare_asyncio", 3_000, (EMBEDDED,)),
    Step("peer_callback", 60_000),
    Step("peer_asyncio", 40_000),
    # Something to read for those who are fast.
    Step("penstock_many", 500_000),
    Step("penstock_for", 300_000),
    Step("penstock_receive_many", 400_000),
    Step("penstock_blocking", 200_000),
    Step("peer_receive", 200_000),
    Step("peer_batch_receive", 300_000),
    Step("peer_asyncio_receive", 40_000),
    Step("memory_receive", 0, (EMBEDDED, PULSAR), (1024,)),
    Step("memory_receive_singly", 0, (EMBEDDED,), (1024,)),
    Step("memory_send", 200_000, (EMBEDDED,), (1024,)),
]
# Not counted: a JVM that has just started runs at half its speed, for whoever comes first.
WARM_UP = [
    Step("penstock_many", 1_000_000, (PULSAR,)),
    Step("penstock_window", 1_000_000, (PULSAR,)),
    Step("peer_callback", 100_000, (PULSAR,)),
    Step("peer_receive", 1_000_000, (PULSAR,)),
]
SPARK = Step("spark", 1_000_000, (EMBEDDED, PULSAR))

Results = dict[str, dict[str, float]]


def case(name: str, service: PulsarService, topic: str, count: int, size: int) -> Results:
    """What it measured, by case: most measure one thing."""
    command = [sys.executable, str(HERE / "cases.py"), name, service.url, topic, str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def one_round(
    service: PulsarService, label: str, size: int, scale: float, plan: tuple[list[Step], ...]
) -> Iterator[Results]:
    for steps in plan:
        here = [step for step in steps if label in step.brokers and size in step.sizes]
        if not here:
            continue
        topic = service.topic()
        for step in here:
            yield case(step.case, service, topic, scaled(step.count, scale), size)
        service.delete_topic(topic)


def measure(service: PulsarService, label: str, rounds: int, scale: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        for _ in one_round(service, label, size, scale, (WARM_UP,)):
            pass
        runs: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            # Spark has a topic of its own: its rows are many.
            for results in one_round(service, label, size, scale, (STEPS, [SPARK])):
                for name, result in results.items():
                    runs.setdefault(name, []).append(result)
        for name, results in runs.items():
            medians = {key: statistics.median(result[key] for result in results) for key in results[0]}
            row = {"broker": label, "size": size, "case": name} | medians
            rows.append(row)
            print(text(row), flush=True)
    return rows


def text(row: dict[str, Any]) -> str:
    start = f"{row['broker']:16} {row['size']:5} B  {row['case']:22}"
    if "growth" in row:
        return f"{start} resident set grew by {row['growth']:.1f} MiB, limit {row['limit']:.0f} MiB"
    line = f"{start} {row['rate']:12,.0f} msg/s {row['cpu']:8.2f} CPU s/M"
    if "cpu_jvm" in row:
        parts = (f"{part} {row[f'cpu_{part}']:.2f}" for part in ("driver", "jvm", "workers"))
        return f"{line} ({', '.join(parts)})"
    return f"{line} {row['loop']:8.2f} of it calling thread {row['rss']:7.0f} MiB"


def scaled(count: int, scale: float) -> int:
    """A whole number of send_many calls, where there are any."""
    scaled = max(int(count * scale), 1_000)
    return scaled if scaled < 10_000 else scaled // 10_000 * 10_000


def start(label: str, folder: str) -> Any:
    if label == PULSAR:
        return RealPulsar()
    if label == EMBEDDED:
        # Consumers subscribe after the publishers are done: what they will read must stay until then.
        return EmbeddedPulsar(durability="memory", max_store="8GiB", retention_bytes="4GiB")
    return EmbeddedPulsar(data=folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--broker", action="append", choices=BROKERS)
    parser.add_argument("--json", default="bench.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for label in options.broker or BROKERS:
        with tempfile.TemporaryDirectory() as folder:
            service = start(label, folder)
            try:
                rows += measure(service, label, options.rounds, options.scale)
            finally:
                service.stop()
    lines = verdicts(rows, TARGETS)
    show(lines)
    Path(options.json).write_text(json.dumps({"rows": rows, "targets": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
