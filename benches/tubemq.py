"""Measures our TubeMQ client beside the official Java client, interleaved, on the real TubeMQ and on the
embedded broker; prints a table, then the targets.

    make bench-tubemq BENCH="--rounds 3 --scale 1.0 --broker tubemq --broker embedded --broker embedded-fsync"

The JVM of the Java client and those of the servers are warm before anything is measured. The Java client
stays the same process; its CPU is that of the measured messages alone.

Our rows of receiving all carry the acknowledgement of a pack in the fetch of the next: while it reads, our
client knows no other way. The Java client confirms by a call of its own, as it does unless told otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clock import MIB
from targets import EMBEDDED, FSYNC, Row, Rows, Target, rate, share, show, times, verdicts

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.tubemq.harness import EmbeddedTubeMq, RealTubeMq, TubeMqService, group
from support.tubemq.java import Java

HERE = Path(__file__).parent
TUBEMQ = "tubemq"
BROKERS = (TUBEMQ, EMBEDDED, FSYNC)
SIZES = (100, 1024)

#: Case, client, messages at scale 1. What is read is what the sending cases left.
SENDS: list[tuple[str, str, int]] = [
    ("java send, window 10,000", "java", 200_000),
    ("penstock send, window 10,000", "send_10000", 200_000),
    ("penstock send_many", "send_many", 200_000),
    ("penstock send, window 256", "send_256", 100_000),
    ("java send, one at a time", "java", 20_000),
    ("penstock send, one at a time", "send_1", 20_000),
]
READS: list[tuple[str, str, int]] = [
    ("java receive + confirm", "java", 400_000),
    ("penstock async for + ack", "receive", 400_000),
    ("penstock receive_many + ack_many", "receive_many", 400_000),
    ("penstock receive_many, auto_ack", "receive_auto", 400_000),
]
JAVA_SEND, JAVA_ONE, JAVA_READ = (
    "java send, window 10,000",
    "java send, one at a time",
    "java receive + confirm",
)
OUR_SEND, OUR_ONE, OUR_READ = (
    "penstock send, window 10,000",
    "penstock send, one at a time",
    "penstock receive_many + ack_many",
)


def memory(size: int) -> Target:
    return Target(
        f"{TUBEMQ}, {size} B: resident at a window of 10,000",
        150,
        " MiB",
        lambda rows: rows.get(TUBEMQ, size, OUR_SEND, "rss"),
        at_most=True,
    )


def window(rows: Rows) -> float:
    return rows.get(TUBEMQ, 1024, "penstock send, window 256") / rows.get(TUBEMQ, 1024, OUR_ONE)


TARGETS = [
    *(times(f"{TUBEMQ}, {size} B: send / Java", 1, TUBEMQ, size, OUR_SEND, JAVA_SEND) for size in SIZES),
    *(
        share(f"{TUBEMQ}, {size} B: CPU of send / Java", 0.5, TUBEMQ, size, OUR_SEND, JAVA_SEND)
        for size in SIZES
    ),
    *(
        times(f"{TUBEMQ}, {size} B: one at a time / Java", 1, TUBEMQ, size, OUR_ONE, JAVA_ONE)
        for size in SIZES
    ),
    *(times(f"{TUBEMQ}, {size} B: receive / Java", 1, TUBEMQ, size, OUR_READ, JAVA_READ) for size in SIZES),
    *(memory(size) for size in SIZES),
    Target(f"{TUBEMQ}, 1 KiB: window 256 / window 1", 3, "x", window),
    rate("embedded, memory, 1 KiB: send", 150_000, EMBEDDED, 1024, OUR_SEND),
    rate("embedded, fsync, 1 KiB: send", 60_000, FSYNC, 1024, OUR_SEND),
    Target(
        "embedded: connect to first message",
        200,
        " ms",
        lambda rows: rows.get(EMBEDDED, 100, "first message", "milliseconds"),
        at_most=True,
    ),
]


class Failed(Exception):
    """A case came to no figure."""


def start(label: str) -> TubeMqService:
    if label == TUBEMQ:
        # What the server has by itself; the tests do with less.
        return RealTubeMq(
            pool={(3, 1): 2 * len(SIZES) + 1},
            BROKER_MEM="-Xmx768m -XX:MaxDirectMemorySize=1g",
            CACHE_MB="3",
        )
    return EmbeddedTubeMq(data=True) if label == FSYNC else EmbeddedTubeMq()


def ours(case: str, broker: TubeMqService, topic: str, count: int, size: int) -> Row:
    words = [str(HERE / "tubemq_cases.py"), case, broker.url, topic, str(count), str(size)]
    try:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed("no end in 300 s") from None
    if done.returncode:
        raise Failed(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout.splitlines()[-1])


def theirs(report: dict[str, Any]) -> Row:
    """As ``clock.Clock`` tells it."""
    if report.get("failed", 0) > report["count"] / 1000:
        raise Failed(f"{report['failed']} of {report['count']} messages were refused: {report['why']}")
    return {
        "rate": report["count"] / report["seconds"],
        "cpu": report["cpu"] / report["count"] * 1e6,
        "rss": report["rss"] / MIB,
    }


def java_send(java: Java, broker: TubeMqService, topic: str, count: int, size: int, window: int) -> Row:
    with java.producer(broker, topic) as producer:
        return theirs(producer.load(topic, count=count, size=size, window=window))


def java_receive(java: Java, broker: TubeMqService, topic: str, count: int) -> Row:
    with java.balance(broker, group(), topic, position="first") as consumer:
        return theirs(consumer.load(count=count, timeout_ms=300_000))


def one_round(
    java: Java, broker: TubeMqService, topic: str, size: int, scale: float, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, Row | Failed]]:
    sent = 0
    for name, client, messages in SENDS:
        count = max(int(messages * scale), 1_000)
        if not wanted(name) and not name.startswith(JAVA_SEND):
            continue
        try:
            if client == "java":
                width = 1 if name == JAVA_ONE else 10_000
                yield name, java_send(java, broker, topic, count, size, width)
            else:
                yield name, ours(client, broker, topic, count, size)
            sent += count
        except Failed as failed:
            yield name, failed
    for name, client, messages in READS:
        if not wanted(name):
            continue
        count = min(max(int(messages * scale), 1_000), int(sent * 0.99))
        try:
            if client == "java":
                yield name, java_receive(java, broker, topic, count)
            else:
                yield name, ours(client, broker, topic, count, size)
        except Failed as failed:
            yield name, failed
    if wanted("first message"):
        try:
            yield "first message", ours("first", broker, topic, 1, size)
        except Failed as failed:
            yield "first message", failed


def measure(label: str, java: Java, rounds: int, scale: float, only: str) -> tuple[list[Row], int]:
    broker = start(label)
    rows: list[Row] = []
    failures = 0
    try:
        warm = broker.topic(3)
        java_send(java, broker, warm, max(int(200_000 * scale), 5_000), 100, 1_000)
        java_send(java, broker, warm, max(int(20_000 * scale), 1_000), 100, 1)
        java_receive(java, broker, warm, max(int(150_000 * scale), 5_000))
        for size in SIZES:
            topic = broker.topic(3)
            runs: dict[str, list[Row]] = {}
            for _ in range(rounds):
                for name, result in one_round(
                    java, broker, topic, size, scale, lambda name: bool(re.search(only, name))
                ):
                    if isinstance(result, Failed):
                        failures += 1
                        print(f"{label:14} {size:5} B {name:36} failed: {result}", flush=True)
                    else:
                        runs.setdefault(name, []).append(result)
            for name, results in runs.items():
                medians = {key: statistics.median(one[key] for one in results) for key in results[0]}
                rows.append({"broker": label, "size": size, "case": name} | medians)
                figures = f"{medians.get('milliseconds', 0):.0f} ms"
                if "rate" in medians:
                    figures = f"{medians['rate']:12,.0f} msg/s {medians['cpu']:8.2f} CPU s/M"
                    figures += f" {medians['rss']:6.0f} MiB"
                print(f"{label:14} {size:5} B {name:36} {figures}", flush=True)
    finally:
        broker.stop()
    return rows, failures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--broker", action="append", choices=BROKERS)
    parser.add_argument("--only", default="", metavar="REGEX", help="of the rows, the names that match")
    parser.add_argument("--json", default="bench-tubemq.json")
    options = parser.parse_args()
    rows: list[Row] = []
    failures = 0
    for label in options.broker or BROKERS:
        with Java() as java:
            found, failed = measure(label, java, options.rounds, options.scale, options.only)
        rows += found
        failures += failed
    lines = verdicts(rows, TARGETS)
    show(lines)
    Path(options.json).write_text(json.dumps({"rows": rows, "targets": lines}, indent=1) + "\n")
    if failures:
        raise SystemExit(f"{failures} measurements failed")


if __name__ == "__main__":
    main()
