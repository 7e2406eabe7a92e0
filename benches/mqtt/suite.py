"""MQTT beside other clients on a fake broker, Mosquitto and the embedded broker, and that broker itself.

The fake broker (``peer.c``) only acknowledges and sends: the rest is the client's own cost. Real brokers
limit the fast clients; the rows of ``c``, a client in C, show where.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.case import Failed, one_core, run
from benches.suite import EMBEDDED, ON_ONE_CORE, Group, Plan, Result, Suite
from benches.targets import Row, Rows, Target
from support.mqtt.harness import EmbeddedMqtt, Mosquitto

FAKE, MOSQUITTO = "fake", "mosquitto"
BROKERS = (FAKE, MOSQUITTO, EMBEDDED)
SIZE = 100
OURS = ("forebay", "forebay_many")
PEERS = ("paho", "aiomqtt", "gmqtt", "mqttium", "mqttium_many", "mqttium_callback")
# A quarter of the messages says as much about these.
SLOW = ("paho", "aiomqtt")

# Clients of each scenario, by the names of their cases; messages at scale 1.
PUBLISH = {
    "forebay": "forebay_publish",
    "forebay_many": "forebay_publish_many",
    "paho": "paho_publish",
    "aiomqtt": "aiomqtt_publish",
    "gmqtt": "gmqtt_publish",
    "mqttium": "mqttium_publish",
    "mqttium_many": "mqttium_publish_many",
    "mosquitto_pub": "mosquitto_publish",
    "c": "c_publish",
}
RECEIVE = {
    "forebay": "forebay_receive",
    "forebay_many": "forebay_receive_many",
    "paho": "paho_receive",
    "aiomqtt": "aiomqtt_receive",
    "gmqtt": "gmqtt_receive",
    "mqttium": "mqttium_receive",
    "mqttium_callback": "mqttium_receive_callback",
    "mosquitto_sub": "mosquitto_receive",
    "c": "c_receive",
}
ONE = {client: f"{client}_one" for client in ("forebay", "paho", "aiomqtt", "gmqtt", "mqttium", "c")}
SCENARIOS: list[tuple[str, int, dict[str, str], int]] = [
    ("publish, QoS 0", 0, PUBLISH, 200_000),
    ("publish, QoS 1", 1, PUBLISH, 80_000),
    ("publish, QoS 2", 2, PUBLISH, 40_000),
    ("publish, QoS 1, one at a time", 1, ONE, 8_000),
    ("publish, QoS 1, one at a time on one core", 1, ONE, 20_000),
    ("receive, QoS 0", 0, RECEIVE, 200_000),
    ("receive, QoS 1", 1, RECEIVE, 80_000),
    ("receive, QoS 2", 2, RECEIVE, 40_000),
]


def at_least(scenario: str, wanted: float) -> Target:
    measure: Callable[[Rows], float] = lambda rows: rows.get(FAKE, SIZE, f"forebay {scenario}")  # noqa: E731
    return Target(f"{FAKE}: {scenario}", wanted, "/s", measure)


def ahead(broker: str, scenario: str) -> Target:
    return Target(
        f"{broker}: {scenario} / best Python peer",
        1,
        "x",
        lambda rows: beside(rows, broker, scenario, "rate"),
    )


def frugal(broker: str, scenario: str) -> Target:
    return Target(
        f"{broker}: {scenario}: CPU / best Python peer",
        0.5,
        "x",
        lambda rows: beside(rows, broker, scenario, "cpu"),
        at_most=True,
    )


def beside(rows: Rows, broker: str, scenario: str, figure: str) -> float:
    """A figure of our fastest row as a ratio to that of the fastest Python client."""
    ours, theirs = (rows.best(broker, SIZE, scenario, *clients) for clients in (OURS, PEERS))
    return ours[figure] / theirs[figure]


TARGETS = [
    at_least("publish, QoS 0", 250_000),
    at_least("publish, QoS 1", 60_000),
    at_least("publish, QoS 2", 35_000),
    at_least("publish, QoS 1, one at a time", 12_000),
    at_least("receive, QoS 0", 250_000),
    at_least("receive, QoS 1", 80_000),
    at_least("receive, QoS 2", 35_000),
    *(ahead(broker, name) for broker in (FAKE, MOSQUITTO) for name, *_ in SCENARIOS),
    *(frugal(MOSQUITTO, f"receive, QoS {qos}") for qos in (0, 1, 2)),
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
    """The broker that only acknowledges and sends."""

    def __init__(self) -> None:
        words = [os.environ["MQTT_PEER"], "serve"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def topic(self) -> str:
        return "blast"

    def stop(self) -> None:
        self.process.communicate(timeout=10)


def start(label: str) -> Any:
    if label == FAKE:
        return Fake()
    if label == MOSQUITTO:
        # Mosquitto must not drop messages: the rate is that of arrivals.
        extra = "max_queued_messages 0\nmax_inflight_messages 200\nset_tcp_nodelay true\n"
        return Mosquitto(extra=extra, VERBOSE="0")
    # Nor must the embedded broker; and all connections come from one address, which has a share of
    # the limit.
    return EmbeddedMqtt(durability="memory", mqtt_slow_subscriber="wait", max_connections=32_768)


def one_round(broker: Any, plan: Plan) -> Iterator[Result]:
    for scenario, qos, clients, count in SCENARIOS:
        for client, name in clients.items():
            if not plan.wanted(f"{client} {scenario}"):
                continue
            messages = max(int(count * plan.scale / (4 if client in SLOW else 1)), 1_000)
            try:
                with one_core(broker.pid) if scenario.endswith(ON_ONE_CORE) else contextlib.nullcontext():
                    report = run("mqtt", name, broker.port, broker.topic(), messages, qos, timeout=180)
            except Failed as failed:
                yield f"{client} {scenario}", failed
            else:
                yield f"{client} {scenario}", report


def hold(pid: int, port: int, count: int) -> Row:
    """The resident set of a broker while it holds idle connections."""
    words = [os.environ["MQTT_PEER"], "hold", str(port), str(count)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    held = process.stdout.readline() == "held\n"
    status = Path(f"/proc/{pid}/status").read_text()
    process.communicate(timeout=30)
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found
    return {"connections": count if held else 0, "rss": int(found[1]) / 1024}


def idle_connections(broker: Any, plan: Plan) -> Iterator[Result]:
    for count in (1_000, 10_000):
        if plan.wanted(f"{count:,} idle"):
            yield f"{count:,} idle", hold(broker.pid, broker.port, count)


def groups(label: str, plan: Plan) -> Iterator[Group]:
    broker = start(label)
    try:
        if label == EMBEDDED:
            # Before the broker has done anything else.
            yield Group(SIZE, lambda: idle_connections(broker, plan), once=True)
        yield Group(SIZE, lambda: one_round(broker, plan))
    finally:
        broker.stop()


def compile_peer(folder: str) -> None:
    """Compiles the fake broker into ``folder``; the cases find it in the environment."""
    os.environ["MQTT_PEER"] = f"{folder}/mqtt_peer"
    source = str(Path(__file__).with_name("peer.c"))
    subprocess.run(["cc", "-O2", "-pthread", "-o", os.environ["MQTT_PEER"], source], check=True)


@contextlib.contextmanager
def preparation() -> Iterator[None]:
    """Compiles the fake broker and locates Mosquitto's programs; the cases find them in the environment."""
    # 10,000 connections need as many files.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        compile_peer(folder)
        for name in ("mosquitto_pub", "mosquitto_sub"):
            os.environ[name.upper()] = Mosquitto.program(name)
        yield


SUITE = Suite("mqtt", BROKERS, TARGETS, groups, "bench-mqtt.json", preparation)
