"""Measures two builds beside each other: this checkout, and another one whose engine is built.

    python -m benches.compare OTHER [--rounds 5] [--scale 1.0] [--only REGEX] [--json FILE]
    make bench-compare BENCH="OTHER --rounds 5"

Each build talks to its own embedded broker, and both run the cases of this checkout. Every case runs once per
build and round, and the builds take turns at being first. The table shows the medians and the ratio of this
checkout to OTHER: above 1 is faster. Only the ratio means anything on another day.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from benches import ROOT
from benches.case import Failed, Report, command

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
    Row("pulsar: window of sends, 100 B", "pulsar", "penstock_window", 300_000, 100),
    Row("pulsar: window of sends, 1 KiB", "pulsar", "penstock_window", 200_000, 1024),
    Row("pulsar: send_many, 100 B", "pulsar", "penstock_many", 500_000, 100),
    Row("pulsar: one at a time, 100 B", "pulsar", "penstock_one", 5_000, 100),
    Row("pulsar: async for + ack, 100 B", "pulsar", "penstock_for", 300_000, 100, fill="penstock_many"),
    Row("pulsar: receive_many, 100 B", "pulsar", "penstock_receive_many", 400_000, 100, fill="penstock_many"),
    Row("pulsar: blocking receive, 100 B", "pulsar", "penstock_blocking", 300_000, 100, fill="penstock_many"),
    Row("pulsar: window of sends, 1 KiB, fsync", "pulsar", "penstock_window", 100_000, 1024, fsync=True),
    Row("pulsar: send_many, 1 KiB, fsync", "pulsar", "penstock_many", 100_000, 1024, fsync=True),
    *(Row(f"mqtt: publish, QoS {qos}", "mqtt", "penstock_publish", 80_000, qos) for qos in (0, 1, 2)),
    *(Row(f"mqtt: receive, QoS {qos}", "mqtt", "penstock_receive", 80_000, qos) for qos in (0, 1, 2)),
    Row("tubemq: window of sends, 100 B", "tubemq", "send_10000", 200_000, 100),
    Row("tubemq: send_many, 100 B", "tubemq", "send_many", 200_000, 100),
    Row("tubemq: receive_many + ack_many, 100 B", "tubemq", "receive_many", 200_000, 100, fill="send_many"),
    Row("spark: eager write, 100 B", "spark", "spark", 500_000, 100),
]


class Build:
    """A checkout with its engine, and a broker of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {**os.environ, "PYTHONPATH": str(root / "python")}

    @contextlib.contextmanager
    def broker(self, data: str | None) -> Iterator[dict[str, str]]:
        """A broker in a process of its own; its URLs."""
        options: dict[str, Any] = {"mqtt_port": 0, "tubemq_port": 0, "max_store": "8GiB"}
        # Consumers subscribe after the publishers are done: the messages must stay until then.
        options |= {"data": data} if data else {"durability": "memory", "retention_bytes": "4GiB"}
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/brokers/embedded.py"), json.dumps(options)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin
        assert process.stdout
        try:
            urls = {"pulsar": self._answer(process)}
            for protocol in ("mqtt", "tubemq"):
                process.stdin.write(json.dumps([f"{protocol}_url"]) + "\n")
                process.stdin.flush()
                urls[protocol] = self._answer(process)
            yield urls | {"spark": urls["pulsar"]}
        finally:
            process.communicate(timeout=60)

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> str:
        assert process.stdout
        return json.loads(process.stdout.readline())["ok"]

    def measure(self, row: Row, scale: float) -> Report:
        """Runs the row on a fresh broker."""
        with tempfile.TemporaryDirectory() as folder, self.broker(folder if row.fsync else None) as urls:
            url = urls[row.protocol]
            topic = f"compare{uuid4().hex[:8]}"
            count = (
                max(int(row.count * scale) // 10_000 * 10_000, 10_000) if row.count >= 10_000 else row.count
            )
            place = urlsplit(url).port if row.protocol == "mqtt" else url
            for case in filter(None, (row.fill, row.case)):
                arguments = (place, topic, count, row.last)
                # What is read is a little less than what was written: cases warm up with some messages.
                read = (place, topic, int(count * 0.9) // 1000 * 1000, row.last) if row.fill else arguments
                report = self._run(row.protocol, case, *(arguments if case == row.fill else read))
            return report["spark_write"] if row.protocol == "spark" and "spark_write" in report else report

    def _run(self, protocol: str, case: str, *arguments: Any) -> Report:
        done = subprocess.run(
            command(protocol, case, *arguments),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise Failed(done.stderr.strip().rpartition("\n")[2])
        return json.loads(done.stdout.splitlines()[-1])


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
    ours, other = Build(ROOT), Build(options.other.resolve())
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MQTT_PEER"] = f"{folder}/mqtt_peer"
        source = str(ROOT / "benches/mqtt/peer.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", os.environ["MQTT_PEER"], source], check=True)
        for build in (ours, other):
            build.environment["MQTT_PEER"] = os.environ["MQTT_PEER"]
        for row in ROWS:
            if not re.search(options.only, row.name):
                continue
            result = compare(row, ours, other, options.rounds, options.scale)
            results.append(result)
            mark = "" if result["ratio"] >= LEVEL else "  SLOWER"
            print(
                f"{row.name:42} {result['rate']:12,.0f} msg/s  other {result['other_rate']:12,.0f}"
                f"  ratio {result['ratio']:.2f}  CPU {result['cpu_ratio']:.2f}{mark}",
                flush=True,
            )
    Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
