"""Measures Penstock beside pulsar-client on the same brokers, interleaved, and prints a table.

    make bench BENCH="--rounds 3 --scale 1.0 --broker embedded --broker embedded-fsync --broker pulsar"

Each case runs in a process of its own; the median of the rounds is shown. Rates of one run compare with each
other, not with those of another run or machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from harness import EmbeddedBroker, RealPulsar, Service  # noqa: E402

# Case, messages at scale 1, and whether it needs messages to be there.
PUBLISH = [
    ("penstock_window", 300_000),
    ("penstock_many", 500_000),
    ("penstock_one", 3_000),
    ("peer_callback", 60_000),
    ("peer_asyncio", 40_000),
]
CONSUME = [
    ("penstock_for", 300_000),
    ("penstock_receive_many", 400_000),
    ("penstock_blocking", 200_000),
    ("peer_receive", 200_000),
    ("peer_batch_receive", 300_000),
    ("peer_asyncio_receive", 40_000),
]


def case(name: str, service: Service, topic: str, count: int, size: int) -> dict[str, float]:
    command = [sys.executable, str(HERE / "cases.py"), name, service.url, topic, str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(service: Service, label: str, rounds: int, scale: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for size in (100, 1024):
        runs: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            # A topic a round: every publisher adds to it, every consumer reads it from the start.
            topic = service.topic()
            for name, count in PUBLISH:
                runs.setdefault(name, []).append(case(name, service, topic, step(count, scale), size))
            case("penstock_many", service, topic, step(500_000, scale), size)
            for name, count in CONSUME:
                runs.setdefault(name, []).append(case(name, service, topic, step(count, scale), size))
            service.delete_topic(topic)
        for name, results in runs.items():
            row: dict[str, Any] = {"broker": label, "size": size, "case": name}
            for key in ("rate", "cpu", "rss"):
                row[key] = statistics.median(result[key] for result in results)
            rows.append(row)
            print(
                f"{label:16} {size:5} B  {name:22} {row['rate']:12,.0f} msg/s"
                f" {row['cpu']:8.2f} CPU s/M {row['rss']:7.0f} MiB",
                flush=True,
            )
    return rows


def step(count: int, scale: float) -> int:
    """A whole number of send_many calls, where there are any."""
    scaled = max(int(count * scale), 1_000)
    return scaled if scaled < 10_000 else scaled // 10_000 * 10_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--broker", action="append", choices=["embedded", "embedded-fsync", "pulsar"])
    parser.add_argument("--json", default="bench.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for label in options.broker or ["embedded", "embedded-fsync", "pulsar"]:
        with tempfile.TemporaryDirectory() as folder:
            service: Any
            if label == "pulsar":
                service = RealPulsar()
            elif label == "embedded":
                # Consumers subscribe after the publishers are done: what they will read must stay until then.
                service = EmbeddedBroker(durability="memory", max_store="8GiB", retention_bytes="4GiB")
            else:
                service = EmbeddedBroker(data=folder)
            try:
                rows += measure(service, label, options.rounds, options.scale)
            finally:
                service.stop()
    Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
