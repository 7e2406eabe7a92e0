"""Import, size, idle client and idle broker, beside pulsar-client, paho-mqtt and Mosquitto."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.case import Failed, Skipped, run
from benches.clock import MIB, PeakMemory
from benches.footprint.cases import wheels
from benches.suite import EMBEDDED, Group, Plan, Result, Suite
from benches.targets import Row, Rows, Target
from support.mqtt.harness import Mosquitto
from support.service import EmbeddedBroker

SIZE = 0
STARTS = 10
IDLE = 10.0
PULSAR, PAHO = "pulsar-client", "paho-mqtt"


def on_processor(pid: int) -> float:
    """Seconds that the threads of a process have run."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def idle(pid: int) -> Row:
    """Resident set in MiB, and CPU in milliseconds per second."""
    time.sleep(1)
    began = on_processor(pid)
    time.sleep(IDLE)
    return {"rss": PeakMemory.now(pid) / MIB, "idle": (on_processor(pid) - began) * 1e3 / IDLE}


def embedded(**options: Any) -> Row:
    broker = EmbeddedBroker(durability="memory", **options)
    try:
        return idle(broker.process.pid)
    finally:
        broker.stop()


def mosquitto() -> Row:
    broker = Mosquitto(VERBOSE="0")
    try:
        return idle(broker.pid)
    finally:
        broker.stop()


def size_of_wheel() -> Row:
    if not wheels():
        raise Skipped("there is no wheel in dist/: run `make wheel`")
    return case("size_of_wheel")


def case(name: str, *arguments: Any) -> Row:
    return run("footprint", name, *arguments, timeout=120)


def rows(broker: EmbeddedBroker) -> dict[str, Callable[[], Row]]:
    mqtt = broker.call("mqtt_url")
    return {
        "import: python alone": lambda: case("importing", "sys", STARTS),
        "import: forebay": lambda: case("importing", "forebay", STARTS),
        "import: forebay with Pulsar": lambda: case("importing", "forebay.pulsar", STARTS),
        f"import: {PULSAR}": lambda: case("importing", "pulsar", STARTS),
        f"import: {PAHO}": lambda: case("importing", "paho.mqtt.client", STARTS),
        "size: forebay, wheel": size_of_wheel,
        "size: forebay, this environment": lambda: case("size_of_checkout"),
        f"size: {PULSAR}": lambda: case("size_of_distribution", PULSAR),
        f"size: {PAHO}": lambda: case("size_of_distribution", PAHO),
        "idle client, Pulsar: forebay": lambda: case("client_forebay", broker.url),
        f"idle client, Pulsar: {PULSAR}": lambda: case("client_pulsar", broker.url),
        "idle client, MQTT: forebay": lambda: case("client_forebay", mqtt),
        f"idle client, MQTT: {PAHO}": lambda: case("client_paho", mqtt),
        "idle broker: forebay, Pulsar alone": embedded,
        "idle broker: forebay, all protocols": lambda: embedded(mqtt_port=0, tubemq_port=0, http_port=0),
        "idle broker: mosquitto": mosquitto,
    }


def one_round(broker: EmbeddedBroker, plan: Plan) -> Iterator[Result]:
    for name, measure in rows(broker).items():
        if plan.wanted(name):
            try:
                yield name, measure()
            except Failed as failed:
                yield name, failed


def groups(label: str, plan: Plan) -> Iterator[Group]:
    broker = EmbeddedBroker(durability="memory", mqtt_port=0)
    try:
        yield Group(SIZE, lambda: one_round(broker, plan))
    finally:
        broker.stop()


def beside(what: str, ours: str, peer: str, figure: str) -> Target:
    def measure(found: Rows) -> float:
        return found.ratio(EMBEDDED, SIZE, f"{what}: {ours}", f"{what}: {peer}", figure)

    return Target(f"{what}, {figure}: {ours} / {peer}", 1, "x", measure, at_most=True)


TARGETS = [
    *(beside("import", "forebay", peer, "milliseconds") for peer in (PULSAR, PAHO)),
    *(beside("size", "forebay, wheel", peer, "packed") for peer in (PULSAR, PAHO)),
    *(beside("idle client, Pulsar", "forebay", PULSAR, figure) for figure in ("rss", "idle")),
    *(beside("idle client, MQTT", "forebay", PAHO, figure) for figure in ("rss", "idle")),
    *(beside("idle broker", "forebay, all protocols", "mosquitto", figure) for figure in ("rss", "idle")),
]

SUITE = Suite("footprint", (EMBEDDED,), TARGETS, groups, "bench-footprint.json")
