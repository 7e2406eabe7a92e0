"""Pulsar beside pulsar-client and the official Java client, on the embedded broker and on Apache Pulsar;
Spark's rows too."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benches.case import Failed, one_core, run
from benches.clock import java_row
from benches.pulsar.cases import WINDOW
from benches.spark.connector import JAR
from benches.suite import EMBEDDED, FSYNC, ON_ONE_CORE, Group, Plan, Result, Suite
from benches.targets import Row, Target, rate, share, times
from support import pysparks
from support.java import Refused
from support.pulsar.harness import EmbeddedPulsar, PulsarService, RealPulsar
from support.pulsar.java import PulsarJava

PULSAR = "pulsar"
#: How the names of the Java client's cases begin.
JAVA = "java_"
BROKERS = (EMBEDDED, FSYNC, PULSAR)
SIZES = (100, 1024)


@dataclass(frozen=True)
class Step:
    """A case, its messages at scale 1, and the brokers and sizes where it is worth measuring."""

    case: str
    count: int
    brokers: tuple[str, ...] = BROKERS
    sizes: tuple[int, ...] = SIZES
    protocol: str = "pulsar"
    #: Whether later steps read what it sent: it runs even if its row is not wanted.
    fills: bool = False
    #: Whether it and the broker share a core.
    one_core: bool = False

    @property
    def row(self) -> str:
        return self.case + (ON_ONE_CORE if self.one_core else "")


# One after the other on one topic per round: publishers add to it, consumers read it from the
# start.
STEPS = [
    Step("forebay_window", 300_000),
    Step("forebay_many", 500_000),
    Step("bare_sqlite", 500_000, (FSYNC,)),
    Step("forebay_one", 3_000),
    Step("peer_one", 3_000),
    Step("java_one", 3_000),
    Step("forebay_one", 10_000, (EMBEDDED,), one_core=True),
    Step("peer_one", 10_000, (EMBEDDED,), one_core=True),
    Step("bare_asyncio", 3_000, (EMBEDDED,)),
    Step("java_window", 300_000),
    Step("peer_callback", 60_000),
    Step("peer_asyncio", 40_000),
    Step("compat_callback", 300_000),
    Step("compat_asyncio", 200_000),
    # Enough to read for the fast consumers.
    Step("forebay_many", 500_000, fills=True),
    Step("forebay_for", 300_000),
    Step("java_receive", 300_000),
    Step("forebay_receive_many", 400_000),
    Step("forebay_shared", 400_000),
    Step("forebay_dead_letter", 400_000),
    Step("forebay_listen", 400_000),
    Step("forebay_blocking", 200_000),
    Step("peer_receive", 200_000),
    Step("peer_batch_receive", 300_000),
    Step("peer_asyncio_receive", 40_000),
    Step("compat_receive", 200_000),
    Step("compat_batch_receive", 300_000),
    Step("compat_asyncio_receive", 200_000),
    # Rows of their own schema, whatever the size.
    Step("forebay_avro_send", 300_000, (EMBEDDED, PULSAR), (100,)),
    Step("forebay_avro_read", 200_000, (EMBEDDED, PULSAR), (100,)),
    Step("peer_avro_send", 20_000, (EMBEDDED, PULSAR), (100,)),
    Step("peer_avro_read", 10_000, (EMBEDDED, PULSAR), (100,)),
    Step("pattern_topics", 1_000, (EMBEDDED, PULSAR), (100,)),
    Step("memory_receive", 0, (EMBEDDED, PULSAR), (1024,)),
    Step("memory_receive_singly", 0, (EMBEDDED,), (1024,)),
    Step("memory_send", 200_000, (EMBEDDED,), (1024,)),
]
# Not counted: a JVM that has just started runs at half its speed, whichever client comes first.
WARM_UP = [
    Step("forebay_many", 1_000_000, (PULSAR,), fills=True),
    Step("forebay_window", 1_000_000, (PULSAR,), fills=True),
    Step("peer_callback", 100_000, (PULSAR,), fills=True),
    Step("peer_receive", 1_000_000, (PULSAR,), fills=True),
]
# The same for the JVM of the Java client, whose process is one throughout.
JAVA_WARM_UP = [
    Step("java_window", 600_000, fills=True),
    Step("java_one", 20_000, fills=True),
    Step("java_receive", 600_000, fills=True),
]
SPARK = Step("spark", 1_000_000, (EMBEDDED, PULSAR), protocol="spark")
OF_SPARK = ("written", "written-avro", "read", "avro")
"""Ends of the names of its topics."""
# Reads what that has written.
OF_CONNECTOR = ("connector", "connector-avro")
CONNECTOR = Step("connector", 1_000_000, (PULSAR,), protocol="spark")


def memory(what: str, wanted: float, broker: str, size: int, case: str) -> Target:
    return Target(what, wanted, " MiB", lambda rows: rows.get(broker, size, case, "rss"), at_most=True)


def growth(what: str, wanted: float, broker: str, case: str) -> Target:
    return Target(
        what,
        wanted,
        "x",
        lambda rows: rows.get(broker, 1024, case, "growth") / rows.get(broker, 1024, case, "limit"),
        at_most=True,
    )


TARGETS = [
    rate(
        "embedded in memory, 100 B, window 1000: acknowledged sends",
        300_000,
        EMBEDDED,
        100,
        "forebay_window",
    ),
    rate(
        "embedded in memory, 100 B: receive_many + ack_many", 500_000, EMBEDDED, 100, "forebay_receive_many"
    ),
    rate("embedded in memory, 100 B: async for + ack", 300_000, EMBEDDED, 100, "forebay_for"),
    rate("embedded in memory, 100 B: listener, one at a time", 300_000, EMBEDDED, 100, "forebay_listen"),
    times("embedded fsync, 1 KiB, send_many / bare SQLite", 0.9, FSYNC, 1024, "forebay_many", "bare_sqlite"),
    times(
        "embedded fsync, 1 KiB, window 1000 / bare SQLite", 0.9, FSYNC, 1024, "forebay_window", "bare_sqlite"
    ),
    Target(
        "bridge: loop thread per completed send, window 1000",
        1.5,
        " us",
        lambda rows: rows.get(EMBEDDED, 100, "forebay_window", "loop"),
        at_most=True,
    ),
    Target(
        "one at a time / bare asyncio stream pair, time",
        1.5,
        "x",
        lambda rows: rows.ratio(EMBEDDED, 100, "bare_asyncio", "forebay_one"),
        at_most=True,
    ),
    Target(
        "Pulsar 100 B: one at a time / pulsar-client's send, median time",
        0.9,
        "x",
        lambda rows: rows.ratio(PULSAR, 100, "forebay_one", "peer_one", "p50"),
        at_most=True,
    ),
    times("Pulsar 100 B: async for + ack / Java", 1, PULSAR, 100, "forebay_for", "java_receive"),
    share("Pulsar 100 B: its CPU / Java, receive", 1, PULSAR, 100, "forebay_for", "java_receive"),
    times("Pulsar 100 B: window / Java", 1, PULSAR, 100, "forebay_window", "java_window"),
    times("Pulsar 100 B: window / pulsar.asyncio", 10, PULSAR, 100, "forebay_window", "peer_asyncio"),
    times("Pulsar 100 B: window / send_async + callback", 7, PULSAR, 100, "forebay_window", "peer_callback"),
    share(
        "Pulsar 100 B: its CPU / send_async + callback",
        1 / 8,
        PULSAR,
        100,
        "forebay_window",
        "peer_callback",
    ),
    times("Pulsar 100 B: send_many / pulsar.asyncio", 20, PULSAR, 100, "forebay_many", "peer_asyncio"),
    times(
        "Pulsar 100 B: async for + ack / pulsar.asyncio",
        8,
        PULSAR,
        100,
        "forebay_for",
        "peer_asyncio_receive",
    ),
    times(
        "Pulsar 100 B: receive_many / batch_receive",
        1.5,
        PULSAR,
        100,
        "forebay_receive_many",
        "peer_batch_receive",
    ),
    times(
        "Pulsar 100 B: blocking receive + ack / pulsar-client",
        1,
        PULSAR,
        100,
        "forebay_blocking",
        "peer_receive",
    ),
    times(
        "Pulsar 100 B: drop-in send_async / pulsar-client", 3, PULSAR, 100, "compat_callback", "peer_callback"
    ),
    share("Pulsar 100 B: its CPU / pulsar-client", 1 / 3, PULSAR, 100, "compat_callback", "peer_callback"),
    times(
        "Pulsar 100 B: drop-in receive / pulsar-client", 1.2, PULSAR, 100, "compat_receive", "peer_receive"
    ),
    share(
        "Pulsar 100 B: its CPU / pulsar-client, receive", 1 / 3, PULSAR, 100, "compat_receive", "peer_receive"
    ),
    times(
        "embedded 100 B: with a dead letter policy / without",
        0.95,
        EMBEDDED,
        100,
        "forebay_dead_letter",
        "forebay_shared",
    ),
    times("Pulsar, Avro: frames / records, sent", 10, PULSAR, 100, "forebay_avro_send", "peer_avro_send"),
    times("Pulsar, Avro: frames / records, read", 10, PULSAR, 100, "forebay_avro_read", "peer_avro_read"),
    times("Pulsar 1 KiB: window / pulsar.asyncio", 7.5, PULSAR, 1024, "forebay_window", "peer_asyncio"),
    times(
        "Pulsar 1 KiB: async for + ack / pulsar.asyncio",
        7.5,
        PULSAR,
        1024,
        "forebay_for",
        "peer_asyncio_receive",
    ),
    *(
        target
        for broker in (EMBEDDED, PULSAR)
        for target in (
            times(
                f"{broker}, Spark 100 B: rows / foreachPartition",
                8,
                broker,
                100,
                "spark_write",
                "peer_foreach",
            ),
            share(
                f"{broker}, Spark 100 B: CPU / foreachPartition",
                1 / 8,
                broker,
                100,
                "spark_write",
                "peer_foreach",
            ),
        )
    ),
    *(
        target
        for size, label in ((100, "100 B"), (1024, "1 KiB"))
        for target in (
            times(f"Spark {label}: write / connector", 1.5, PULSAR, size, "spark_write", "connector_write"),
            share(f"Spark {label}: its CPU / connector", 0.6, PULSAR, size, "spark_write", "connector_write"),
            times(f"Spark {label}: read / connector", 2, PULSAR, size, "spark_read", "connector_read"),
            share(
                f"Spark {label}: its CPU / connector, read", 1, PULSAR, size, "spark_read", "connector_read"
            ),
            times(f"Spark {label}: stream / read", 0.9, PULSAR, size, "spark_stream", "spark_read"),
            memory(f"Spark {label}: memory of a worker that writes", 300, PULSAR, size, "spark_write"),
            memory(f"Spark {label}: memory of a worker that reads", 300, PULSAR, size, "spark_read"),
        )
    ),
    times("Spark, Avro: write / connector", 3, PULSAR, 100, "spark_avro", "connector_avro"),
    times("Spark, Avro: read / connector", 2, PULSAR, 100, "spark_read_avro", "connector_read_avro"),
    # Beyond the payloads: the allocator's slack, and what the client knows of each message.
    growth("memory growth / memory_limit, slow broker", 1.1, EMBEDDED, "memory_send"),
    growth("memory growth / receiver_queue, unread", 1.25, EMBEDDED, "memory_receive"),
    growth("Pulsar: memory growth / receiver_queue, unread", 1.25, PULSAR, "memory_receive"),
    growth("memory growth / receiver_queue, singly, unread", 1.25, EMBEDDED, "memory_receive_singly"),
]


def load(
    java: PulsarJava | None, service: PulsarService, case: str, topic: str, count: int, size: int
) -> Row:
    """A case of the official Java client, in the form of those of ``cases.py``."""
    assert java, "no row of it was wanted"
    if case == "java_receive":
        with java.consumer(service, topic, "java") as consumer:
            return java_row(consumer.load(count=count))
    # One at a time without batches, in which a single message would wait for others.
    options = {"batchingEnabled": False} if case == "java_one" else {}
    with java.producer(service, topic, **options) as producer:
        width = 1 if case == "java_one" else WINDOW
        return java_row(producer.load(count=count, size=size, window=width))


def one_round(
    service: PulsarService, label: str, size: int, plan: Plan, java: PulsarJava | None, *steps: list[Step]
) -> Iterator[Result]:
    """Each list of steps has a topic of its own."""
    for together in steps:
        here = [step for step in together if label in step.brokers and size in step.sizes]
        here = [step for step in here if step.fills or plan.wanted(step.row)]
        if not here:
            continue
        topic = service.topic()
        # Those of Spark have topics of their own. The connector has a task for each partition.
        ends = (OF_SPARK if SPARK in here else ()) + (OF_CONNECTOR if CONNECTOR in here else ())
        names = [f"{topic}-{end}" for end in ends] or [topic]
        divided = SPARK in here and label == PULSAR
        for name in names if divided else ():
            service.create_topic(name, 2)
        for step in here:
            if step is CONNECTOR:
                where, environment = (service.url, service.admin), pysparks.environment("3.5")
            else:
                where, environment = (service.url,), None
            count = scaled(step.count, plan.scale)
            arguments = (*where, topic, count, size)
            try:
                if step.case.startswith(JAVA):
                    yield step.row, load(java, service, step.case, topic, count, size)
                    continue
                with one_core(service.process.pid) if step.one_core else contextlib.nullcontext():
                    report = run(step.protocol, step.case, *arguments, timeout=900, environment=environment)
            except (Failed, Refused) as failed:
                yield step.row, failed if isinstance(failed, Failed) else Failed(str(failed))
                continue
            # Spark's case measures several ways in one JVM.
            several = all(isinstance(value, dict) for value in report.values())
            yield from report.items() if several else [(step.row, report)]
        for name in names:
            service.delete_topic(name, partitioned=divided)


def scaled(count: int, scale: float) -> int:
    """A whole number of send_many calls, unless it is less than one."""
    scaled = max(int(count * scale), 1_000)
    return scaled if scaled < 10_000 else scaled // 10_000 * 10_000


def start(label: str, folder: str) -> Any:
    if label == PULSAR:
        return RealPulsar()
    if label == EMBEDDED:
        # Consumers subscribe after the publishers are done: the messages must stay until then.
        return EmbeddedPulsar(durability="memory", max_store="5GiB", retention_bytes="4GiB")
    return EmbeddedPulsar(data=folder, max_store="16GiB")


def groups(label: str, plan: Plan) -> Iterator[Group]:
    of_spark = [SPARK]
    if label == PULSAR and plan.wanted(CONNECTOR.case):
        if os.environ.get(JAR):
            of_spark.append(CONNECTOR)
        else:
            print(f"NOT MEASURED: the JVM connector, whose jar {JAR} names", flush=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        of_java = any(plan.wanted(step.row) for step in STEPS if step.case.startswith(JAVA))
        java = stack.enter_context(PulsarJava(optimizing=True)) if of_java else None
        warm_up = [WARM_UP, *([JAVA_WARM_UP] if java else [])]
        service = start(label, folder)
        try:
            for size in SIZES:
                for _ in one_round(service, label, size, plan, java, *warm_up):
                    pass
                # Spark has topics of its own: its rows are many.
                yield Group(
                    size, lambda size=size: one_round(service, label, size, plan, java, STEPS, of_spark)
                )
        finally:
            service.stop()


SUITE = Suite("pulsar", BROKERS, TARGETS, groups, "bench.json")
