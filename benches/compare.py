"""Measures two builds beside each other: this checkout, and another one whose engine is built.

    python -m benches.compare OTHER [--rounds 5] [--scale 1.0] [--only REGEX] [--json FILE]
    make bench-compare BENCH="OTHER --rounds 5"

Both engines should be built as they are published (``maturin develop --profile dist``): the profile of the
tests compiles in 16 units, which has cost one case a quarter of its time.

Each build talks to its own embedded broker, and both run the cases of this checkout. Every case runs once per
build and round, and the builds take turns at being first. The table shows the medians and the ratio of this
checkout to OTHER: above 1 is faster. Only the ratio means anything on another day.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from benches import ROOT
from benches.case import Failed, Report, run
from benches.mqtt.suite import compile_peer
from support.service import EmbeddedBroker

#: A row below this is called slower; scatter of the median over five rounds stays above it.
LEVEL = 0.97


@dataclass(frozen=True)
class Row:
    """A case on the embedded broker. ``fill`` is a case that provides what this one reads."""

    name: str
    protocol: str
    case: str
    count: int
    #: Bytes of a payload; with MQTT the quality of service.
    last: int
    fsync: bool = False
    fill: str = ""


ROWS = [
    Row("pulsar: window of sends, 100 B", "pulsar", "forebay_window", 300_000, 100),
    Row("pulsar: window of sends, 1 KiB", "pulsar", "forebay_window", 200_000, 1024),
    Row("pulsar: send_many, 100 B", "pulsar", "forebay_many", 500_000, 100),
    Row("pulsar: one at a time, 100 B", "pulsar", "forebay_one", 5_000, 100),
    Row("pulsar: async for + ack, 100 B", "pulsar", "forebay_for", 300_000, 100, fill="forebay_many"),
    Row("pulsar: receive_many, 100 B", "pulsar", "forebay_receive_many", 400_000, 100, fill="forebay_many"),
    Row("pulsar: listener, 100 B", "pulsar", "forebay_listen", 400_000, 100, fill="forebay_many"),
    Row("pulsar: blocking receive, 100 B", "pulsar", "forebay_blocking", 300_000, 100, fill="forebay_many"),
    Row("pulsar: window of sends, 1 KiB, fsync", "pulsar", "forebay_window", 100_000, 1024, fsync=True),
    Row("pulsar: send_many, 1 KiB, fsync", "pulsar", "forebay_many", 100_000, 1024, fsync=True),
    *(Row(f"mqtt: publish, QoS {qos}", "mqtt", "forebay_publish", 80_000, qos) for qos in (0, 1, 2)),
    *(Row(f"mqtt: receive, QoS {qos}", "mqtt", "forebay_receive", 80_000, qos) for qos in (0, 1, 2)),
    Row("mqtt: one at a time, QoS 1", "mqtt", "forebay_one", 5_000, 1),
    Row(
        "mqtt: publish to a session that is away, QoS 1, fsync",
        "mqtt",
        "forebay_keep",
        40_000,
        1,
        fsync=True,
    ),
    Row("tubemq: window of sends, 100 B", "tubemq", "send_10000", 200_000, 100),
    Row("tubemq: one at a time, 100 B", "tubemq", "send_1", 5_000, 100),
    Row("tubemq: send_many, 100 B", "tubemq", "send_many", 200_000, 100),
    Row("tubemq: receive_many + ack_many, 100 B", "tubemq", "receive_many", 200_000, 100, fill="send_many"),
    Row("spark: eager write, 100 B", "spark", "eager", 500_000, 100),
]


class Build:
    """A checkout with its engine."""

    def __init__(self, root: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(root / "python")}
        known = "".join(file.read_text() for file in (root / "python" / "forebay").rglob("*.py"))
        # The rate is that of arrivals, so nothing may be dropped. Older builds always wait for
        # subscribers.
        self.lossless = {"mqtt_slow_subscriber": "wait"} if "mqtt_slow_subscriber" in known else {}

    def measure(self, row: Row, scale: float) -> Report:
        """Runs the row on a fresh broker of the build."""
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {"mqtt_port": 0, "tubemq_port": 0, "max_store": "8GiB"}
            options |= self.lossless
            # Consumers subscribe after the publishers are done: the messages must stay until then.
            if row.fsync:
                # A session that is away has all messages of a row waiting.
                options |= {"data": folder, "mqtt_max_queue": 1_000_000, "mqtt_max_queue_bytes": "4GiB"}
            else:
                options |= {"durability": "memory", "retention_bytes": "4GiB"}
            broker = EmbeddedBroker(self.environment, **options)
            try:
                return self._measure(row, scale, broker)
            finally:
                broker.stop()

    def _measure(self, row: Row, scale: float, broker: EmbeddedBroker) -> Report:
        place: str | int = broker.url
        if row.protocol == "mqtt":
            place = urlsplit(broker.call("mqtt_url")).port or 0
        elif row.protocol == "tubemq":
            place = broker.call("tubemq_url")
        topic = f"compare{uuid4().hex[:8]}"
        count = row.count
        if count >= 10_000:
            count = max(int(count * scale) // 10_000 * 10_000, 10_000)
        if row.fill:
            self._run(row.protocol, row.fill, place, topic, count, row.last)
            # A little less than what was written: cases warm up with some messages.
            count = int(count * 0.9) // 1000 * 1000
        return self._run(row.protocol, row.case, place, topic, count, row.last)

    def _run(self, protocol: str, case: str, *arguments: Any) -> Report:
        return run(protocol, case, *arguments, timeout=600, environment=self.environment)


def compare(row: Row, ours: Build, other: Build, rounds: int, scale: float) -> dict[str, Any]:
    """The medians of both builds and their ratios."""
    reports: dict[Build, list[Report]] = {ours: [], other: []}
    for number in range(rounds):
        for build in (ours, other) if number % 2 else (other, ours):
            reports[build].append(build.measure(row, scale))
    rate, cpu = (
        {build: statistics.median(report[figure] for report in reports[build]) for build in reports}
        for figure in ("rate", "cpu")
    )
    return {
        "row": row.name,
        "rate": rate[ours],
        "other_rate": rate[other],
        "ratio": rate[ours] / rate[other],
        "cpu_ratio": cpu[ours] / cpu[other] if cpu[other] else 1.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benches.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, metavar="OTHER", help="a checkout whose engine is built")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median is shown")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of messages")
    parser.add_argument("--only", default="", metavar="REGEX", help="measure the rows whose names match")
    parser.add_argument(
        "--json", default="bench-compare.json", metavar="FILE", help="results, %(default)s by default"
    )
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        compile_peer(folder)
        ours, other = Build(ROOT), Build(options.other.resolve())
        for row in ROWS:
            if not re.search(options.only, row.name):
                continue
            try:
                result = compare(row, ours, other, options.rounds, options.scale)
            except Failed as error:
                # The other build may not have what the case needs. The rows behind it are measured.
                print(f"{row.name:42} no figure: {error}", flush=True)
                failures += 1
                continue
            results.append(result)
            mark = "" if result["ratio"] >= LEVEL else "  SLOWER"
            print(
                f"{row.name:42} {result['rate']:12,.0f} msg/s  other {result['other_rate']:12,.0f}"
                f"  ratio {result['ratio']:.2f}  CPU {result['cpu_ratio']:.2f}{mark}",
                flush=True,
            )
    Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if failures:
        raise SystemExit(f"{failures} measurements failed")


if __name__ == "__main__":
    main()
