"""Measures MQTT clients beside each other, interleaved, on a fake broker, on Mosquitto and on the embedded
broker, and the embedded broker itself; prints a table, then the targets.

    make bench-mqtt BENCH="--rounds 3 --scale 1.0 --broker fake --broker mosquitto --broker embedded"

The fake broker (``mqtt_peer.c``) only answers and sends: what is left is the client's own cost. Real brokers
are the limit of the fast clients. The rows of ``c`` are a client in C, which shows where that limit is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from targets import Row, Rows, Target, show, verdicts

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.mqtt.harness import EmbeddedMqtt, Mosquitto

HERE = Path(__file__).parent
FAKE, MOSQUITTO, EMBEDDED = "fake", "mosquitto", "embedded"
BROKERS = (FAKE, MOSQUITTO, EMBEDDED)
SIZE = 100
OURS = ("penstock", "penstock_many")
PEERS = ("paho", "aiomqtt", "gmqtt", "mqttium", "mqttium_many", "mqttium_callback")
# Of which a quarter of the messages says as much.
SLOW = ("paho", "aiomqtt")

# Clients of each scenario, by the names of their cases; messages at scale 1.
PUBLISH = {
    "penstock": "penstock_publish",
    "penstock_many": "penstock_publish_many",
    "paho": "paho_publish",
    "aiomqtt": "aiomqtt_publish",
    "gmqtt": "gmqtt_publish",
    "mqttium": "mqttium_publish",
    "mqttium_many": "mqttium_publish_many",
    "mosquitto_pub": "mosquitto_publish",
    "c": "c_publish",
}
RECEIVE = {
    "penstock": "penstock_receive",
    "penstock_many": "penstock_receive_many",
    "paho": "paho_receive",
    "aiomqtt": "aiomqtt_receive",
    "gmqtt": "gmqtt_receive",
    "mqttium": "mqttium_receive",
    "mqttium_callback": "mqttium_receive_callback",
    "mosquitto_sub": "mosquitto_receive",
    "c": "c_receive",
}
ONE = {client: f"{client}_one" for client in ("penstock", "paho", "aiomqtt", "gmqtt", "mqttium", "c")}
SCENARIOS: list[tuple[str, int, dict[str, str], int]] = [
    ("publish, QoS 0", 0, PUBLISH, 200_000),
    ("publish, QoS 1", 1, PUBLISH, 80_000),
    ("publish, QoS 2", 2, PUBLISH, 40_000),
    ("publish, QoS 1, one at a time", 1, ONE, 8_000),
    ("receive, QoS 0", 0, RECEIVE, 200_000),
    ("receive, QoS 1", 1, RECEIVE, 80_000),
    ("receive, QoS 2", 2, RECEIVE, 40_000),
]


def at_least(scenario: str, wanted: float) -> Target:
    measure: Callable[[Rows], float] = lambda rows: rows.get(FAKE, SIZE, f"penstock {scenario}")  # noqa: E731
    return Target(f"{FAKE}: {scenario}", wanted, "/s", measure)


def ahead(broker: str, scenario: str) -> Target:
    def measure(rows: Rows) -> float:
        return rows.best(broker, SIZE, scenario, *OURS) / rows.best(broker, SIZE, scenario, *PEERS)

    return Target(f"{broker}: {scenario} / best Python peer", 1, "x", measure)


TARGETS = [
    at_least("publish, QoS 0", 250_000),
    at_least("publish, QoS 1", 60_000),
    at_least("publish, QoS 2", 35_000),
    at_least("publish, QoS 1, one at a time", 11_000),
    at_least("receive, QoS 0", 250_000),
    at_least("receive, QoS 1", 80_000),
    at_least("receive, QoS 2", 35_000),
    *(ahead(broker, name) for broker in (FAKE, MOSQUITTO) for name, *_ in SCENARIOS),
    Target(
        "embedded broker: QoS 0, one publisher to one subscriber",
        185_000,
        "/s",
        lambda rows: rows.get(EMBEDDED, SIZE, "c receive, QoS 0"),
    ),
    Target(
        "embedded broker: 1,000 idle connections",
        30,
        " MiB",
        lambda rows: rows.get(EMBEDDED, SIZE, "1,000 idle", "rss"),
        at_most=True,
    ),
    Target(
        "embedded broker: connections held",
        10_000,
        "",
        lambda rows: rows.get(EMBEDDED, SIZE, "10,000 idle", "connections"),
    ),
]


class Fake:
    """The broker that only answers and sends."""

    def __init__(self) -> None:
        words = [os.environ["MQTT_PEER"], "serve"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def topic(self) -> str:
        return "blast"

    def stop(self) -> None:
        self.process.communicate(timeout=10)


def start(label: str) -> Any:
    if label == FAKE:
        return Fake()
    if label == MOSQUITTO:
        # Nothing is dropped: what is measured is what arrives.
        extra = "max_queued_messages 0\nmax_inflight_messages 200\nset_tcp_nodelay true\n"
        return Mosquitto(extra=extra, VERBOSE="0")
    return EmbeddedMqtt(durability="memory")


class Failed(Exception):
    """A case came to no figure."""


def case(name: str, broker: Any, count: int, qos: int) -> Row:
    words = [str(HERE / "mqtt_cases.py"), name, str(broker.port), broker.topic(), str(count), str(qos)]
    try:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=180, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed("no end in 180 s") from None
    if done.returncode:
        raise Failed(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout.splitlines()[-1])


def one_round(broker: Any, scale: float, only: str) -> Iterator[tuple[str, Row | Failed]]:
    for scenario, qos, clients, count in SCENARIOS:
        for client, name in clients.items():
            if not re.search(only, f"{client} {scenario}"):
                continue
            messages = max(int(count * scale / (4 if client in SLOW else 1)), 1_000)
            try:
                yield f"{client} {scenario}", case(name, broker, messages, qos)
            except Failed as failed:
                yield f"{client} {scenario}", failed


def idle(broker: Any, count: int) -> Row:
    """The broker's resident set while it holds connections that say nothing."""
    words = [os.environ["MQTT_PEER"], "hold", str(broker.port), str(count)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    held = process.stdout.readline() == "held\n"
    status = Path(f"/proc/{broker.pid}/status").read_text()
    process.communicate(timeout=30)
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found
    return {"connections": count if held else 0, "rss": int(found[1]) / 1024}


def measure(label: str, broker: Any, rounds: int, scale: float, only: str) -> tuple[list[Row], int]:
    runs: dict[str, list[Row]] = {}
    failures = 0
    if label == EMBEDDED and not only:
        # Before it has done anything else.
        runs |= {f"{count:,} idle": [idle(broker, count)] for count in (1_000, 10_000)}
    for _ in range(rounds):
        for name, result in one_round(broker, scale, only):
            if isinstance(result, Failed):
                failures += 1
                print(f"{label:10} {name:48} failed: {result}", flush=True)
            else:
                runs.setdefault(name, []).append(result)
    rows: list[Row] = []
    for name, results in runs.items():
        medians = {key: statistics.median(result[key] for result in results) for key in results[0]}
        row = {"broker": label, "size": SIZE, "case": name} | medians
        rows.append(row)
        if "rate" in row:
            figures = f"{row['rate']:12,.0f} msg/s {row['cpu']:8.2f} CPU s/M"
            if "rss" in row:
                figures += f" {row['rss']:6.0f} MiB"
        else:
            figures = f"{row['connections']:12,.0f} held, broker {row['rss']:.0f} MiB"
        print(f"{label:10} {name:48} {figures}", flush=True)
    return rows, failures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--broker", action="append", choices=BROKERS)
    parser.add_argument("--only", default="", metavar="REGEX", help="of the rows, the names that match")
    parser.add_argument("--json", default="bench-mqtt.json")
    options = parser.parse_args()
    # 10,000 connections are as many files.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows: list[Row] = []
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MQTT_PEER"] = f"{folder}/mqtt_peer"
        source = str(HERE / "mqtt_peer.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", os.environ["MQTT_PEER"], source], check=True)
        for name in ("mosquitto_pub", "mosquitto_sub"):
            os.environ[name.upper()] = Mosquitto.program(name)
        for label in options.broker or BROKERS:
            broker = start(label)
            try:
                found, failed = measure(label, broker, options.rounds, options.scale, options.only)
            finally:
                broker.stop()
            rows += found
            failures += failed
    lines = verdicts(rows, TARGETS)
    show(lines)
    Path(options.json).write_text(json.dumps({"rows": rows, "targets": lines}, indent=1) + "\n")
    if failures:
        raise SystemExit(f"{failures} measurements failed")


if __name__ == "__main__":
    main()
