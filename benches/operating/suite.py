"""The embedded broker in operation: what HTTP, permissions and the log cost, beside one without them, and how
long clients wait while strangers are at its listeners.

All brokers run during a round, and each load goes to one after the other. Idle ones use next to nothing. The
CPU time of the broker's process for a message is compared, the least of all rounds: other load on the machine
only adds to it, and distorts rates by more than these costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from benches.case import Failed, run
from benches.mqtt.suite import hold, preparation
from benches.suite import EMBEDDED, Group, Plan, Result, Suite
from benches.targets import Row, Rows, Target
from support import strangers

SIZE = 100
PLAIN, HTTP, RULES, LOG = "plain", "http", "rules", "log"
RULE_COUNT = 1_000
LOOKS = 2.0
"""Seconds between two looks: those of the page."""
LOADS = {
    # The clients in C leave the broker the most of the processor.
    "MQTT, QoS 0": ("mqtt", "c_receive", 0, 4_000_000),
    "MQTT, QoS 1": ("mqtt", "c_receive", 1, 2_000_000),
    "Pulsar, window": ("pulsar", "forebay_window", SIZE, 1_500_000),
    "Pulsar, one at a time": ("pulsar", "forebay_one", SIZE, 20_000),
    "TubeMQ, many": ("tubemq", "send_many", SIZE, 500_000),
    "TubeMQ, one at a time": ("tubemq", "send_1", SIZE, 20_000),
}
IDLE = 1_000
STRANGERS = 500
TRIPS = 2_000
"""Messages that are sent, received and acknowledged one after the other."""
PROTOCOLS = {"mqtt": "MQTT", "pulsar": "Pulsar", "tubemq": "TubeMQ"}
ALONE, CROWDED = "alone", f"{STRANGERS} strangers"


class Broker:
    """``forebay broker`` with all protocols, in memory.

    Args:
        words: further arguments.
        log: receives its log.
    """

    def __init__(self, words: list[str], log: Path) -> None:
        command = [sys.executable, "-m", "forebay", "broker", "--json", "--port", "0", "--mqtt-port", "0"]
        # Messages of all rounds are kept.
        options = {"max_connections": "8192", "max_store": "8GiB", "mqtt_slow_subscriber": "wait"}
        common = ["--tubemq-port", "0", *(f"-X{name}={value}" for name, value in options.items())]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*command, *common, *words], stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self.process.stdout
        self.urls: dict[str, str] = json.loads(self.process.stdout.readline())

    def address(self, protocol: str) -> Any:
        """Its address, as the cases of a protocol take it."""
        if protocol == "mqtt":
            return int(self.urls["mqtt_url"].rpartition(":")[2])
        return self.urls["url" if protocol == "pulsar" else "tubemq_url"]

    def cpu(self) -> float:
        """Seconds of processor time that its process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@contextlib.contextmanager
def watched(url: str) -> Generator[None]:
    """Looks at the broker as an open page does, and as Prometheus at the same time."""
    over = threading.Event()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    paths = ("/readyz", "/metrics", "/forebay/v1/clients", "/forebay/v1/mqtt/sessions")

    def watch() -> None:
        while not over.wait(LOOKS):
            for path in paths:
                with opener.open(url + path, timeout=30) as answer:
                    answer.read()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rules() -> str:
    """Rules of clients without a user, a third for each protocol; the last of them are used."""
    third = RULE_COUNT // 3
    topics = [
        *(f"site/{number}/+/state" for number in range(third)),
        *(f"persistent://public/default/site-{number}" for number in range(third)),
        *(f"tubemq:site-{number}" for number in range(third)),
        *("bench/#", "mark", "persistent://public/default/bench", "tubemq:bench"),
    ]
    return "".join(f"topic readwrite {topic}\n" for topic in topics)


def all_rounds(brokers: dict[str, Broker], plan: Plan) -> Iterator[Result]:
    """Each case with the medians of its rounds, and the least CPU time of the broker."""
    found: dict[str, list[Row]] = {}
    for number in range(plan.rounds):
        for name, result in one_round(brokers, plan, number):
            if isinstance(result, Failed):
                yield name, result
            else:
                found.setdefault(name, []).append(result)
    for name, rows in found.items():
        medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        yield name, medians | {"broker_cpu": min(row["broker_cpu"] for row in rows)}


def one_round(brokers: dict[str, Broker], plan: Plan, number: int) -> Iterator[Result]:
    # Each broker is the first one in turn.
    first = number % len(brokers)
    order = [*brokers.items()][first:] + [*brokers.items()][:first]
    for load, (protocol, case, option, count) in LOADS.items():
        for label, broker in order:
            name = f"{label}: {load}"
            if not plan.wanted(name):
                continue
            messages = max(int(count * plan.scale), 1_000)
            arguments = (broker.address(protocol), "bench", messages, option)
            before = broker.cpu()
            looks = watched(broker.urls["http_url"]) if label == HTTP else contextlib.nullcontext()
            try:
                with looks:
                    report = run(protocol, case, *arguments, timeout=300)
            except Failed as failed:
                yield name, failed
            else:
                yield name, report | {"broker_cpu": (broker.cpu() - before) / messages * 1e6}


def idle(brokers: dict[str, Broker], plan: Plan) -> Iterator[Result]:
    """Resident sets with idle connections, which the log has told of."""
    for label in (PLAIN, LOG):
        if plan.wanted(f"{label}: idle"):
            broker = brokers[label]
            yield f"{label}: idle", hold(broker.process.pid, broker.address("mqtt"), IDLE)


@contextlib.contextmanager
def crowd(broker: strangers.EveryListener) -> Generator[None]:
    """Strangers of a process of their own, which come again whenever they are closed."""
    program = Path(strangers.__file__)
    command = [sys.executable, str(program), json.dumps(broker.ports), str(STRANGERS)]
    environment = os.environ | {"PYTHONPATH": str(program.parent.parent)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        yield
        process.stdin.close()


def waits(url: str, count: int) -> Row:
    """Microseconds of a round trip."""
    took = sorted(asyncio.run(strangers.round_trips(url, count)))
    return {"p50": took[len(took) // 2] * 1e6, "p99": took[len(took) * 99 // 100] * 1e6}


def trips(plan: Plan) -> Iterator[Result]:
    """Round trips without strangers and with them."""
    count = max(int(TRIPS * plan.scale), 100)
    broker = strangers.EveryListener()
    try:
        for protocol, title in PROTOCOLS.items():
            for label in (ALONE, CROWDED):
                name = f"{label}: {title}"
                if plan.wanted(name):
                    with crowd(broker) if label == CROWDED else contextlib.nullcontext():
                        yield name, waits(broker.clients[protocol], count)
    finally:
        broker.stop()


def groups(label: str, plan: Plan) -> Iterator[Group]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        acl = Path(folder) / "rules.acl"
        acl.write_text(rules())
        quiet = ["--log-level", "error"]
        words = {
            PLAIN: quiet,
            HTTP: [*quiet, "--http-port", "0"],
            RULES: [*quiet, "--acl-file", str(acl)],
            LOG: ["--log-format", "json"],
        }
        brokers: dict[str, Broker] = {}
        for name, given in words.items():
            brokers[name] = Broker(given, Path(folder) / f"{name}.log")
            stack.callback(brokers[name].stop)
        # Before the brokers have done anything else.
        yield Group(SIZE, lambda: idle(brokers, plan), once=True)
        yield Group(SIZE, lambda: all_rounds(brokers, plan), once=True)
    yield Group(SIZE, lambda: trips(plan))


def beside(label: str, load: str, wanted: float) -> Target:
    def measure(rows: Rows) -> float:
        return rows.ratio(EMBEDDED, SIZE, f"{label}: {load}", f"{PLAIN}: {load}", "broker_cpu")

    what = f"{load}: the broker's CPU with {label} / without"
    return Target(what, wanted, "x", measure, at_most=True)


def crowded(title: str) -> Target:
    def measure(rows: Rows) -> float:
        return rows.ratio(EMBEDDED, SIZE, f"{CROWDED}: {title}", f"{ALONE}: {title}", "p99")

    return Target(
        f"{title}: p99 of a round trip with {STRANGERS} strangers / without", 2, "x", measure, at_most=True
    )


def memory(rows: Rows) -> float:
    with_log, without = (rows.get(EMBEDDED, SIZE, f"{label}: idle", "rss") for label in (LOG, PLAIN))
    return with_log - without


TARGETS = [
    *(beside(HTTP, load, 1.02) for load in LOADS),
    *(beside(RULES, load, 1.03) for load in LOADS),
    *(beside(LOG, load, 1.02) for load in LOADS),
    *(crowded(title) for title in PROTOCOLS.values()),
    Target(f"{IDLE:,} idle connections: memory for the log", 1, " MiB", memory, at_most=True),
]

SUITE = Suite("operating", (EMBEDDED,), TARGETS, groups, "bench-operating.json", preparation)
