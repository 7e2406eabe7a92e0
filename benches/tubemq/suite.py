"""TubeMQ beside the official Java client, on the real TubeMQ and on the embedded broker.

The JVM of the Java client and those of the servers are warm before anything is measured. The Java client is
one process throughout; its CPU is that of the measured messages alone.

In all our receiving rows, the fetch of a batch carries the acknowledgement of the one before. The Java client
confirms with a separate call, as it does by default.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from benches.case import Failed, one_core, run
from benches.clock import java_row
from benches.suite import EMBEDDED, FSYNC, ON_ONE_CORE, Group, Plan, Result, Suite
from benches.targets import Row, Rows, Target, rate, share, times
from support.tubemq.harness import EmbeddedTubeMq, RealTubeMq, TubeMqService, group
from support.tubemq.java import Java

TUBEMQ = "tubemq"
BROKERS = (TUBEMQ, EMBEDDED, FSYNC)
SIZES = (100, 1024)

#: Row, case or client, messages at scale 1. The reading cases read what the sending cases left.
SENDS: list[tuple[str, str, int]] = [
    ("java send, window 10,000", "java", 200_000),
    ("forebay send, window 10,000", "send_10000", 200_000),
    ("forebay send_many", "send_many", 200_000),
    ("forebay send, window 256", "send_256", 100_000),
    ("java send, one at a time", "java", 20_000),
    ("forebay send, one at a time", "send_1", 20_000),
    ("java send, one at a time on one core", "java", 20_000),
    ("forebay send, one at a time on one core", "send_1", 20_000),
]
READS: list[tuple[str, str, int]] = [
    ("java receive + confirm", "java", 400_000),
    ("forebay async for + ack", "receive", 400_000),
    ("forebay receive_many + ack_many", "receive_many", 400_000),
    ("forebay receive_many, auto_ack", "receive_auto", 400_000),
]
JAVA_SEND, JAVA_ONE, JAVA_READ = (
    "java send, window 10,000",
    "java send, one at a time",
    "java receive + confirm",
)
OUR_SEND, OUR_ONE, OUR_READ, OUR_FOR = (
    "forebay send, window 10,000",
    "forebay send, one at a time",
    "forebay receive_many + ack_many",
    "forebay async for + ack",
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
    return rows.get(TUBEMQ, 1024, "forebay send, window 256") / rows.get(TUBEMQ, 1024, OUR_ONE)


TARGETS = [
    *(times(f"{TUBEMQ}, {size} B: send / Java", 1.3, TUBEMQ, size, OUR_SEND, JAVA_SEND) for size in SIZES),
    *(
        share(f"{TUBEMQ}, {size} B: CPU of send / Java", 0.35, TUBEMQ, size, OUR_SEND, JAVA_SEND)
        for size in SIZES
    ),
    *(
        times(f"{label}, {size} B: {what} / Java", 1, label, size, our, java)
        for label in (TUBEMQ, EMBEDDED)
        for size in SIZES
        for what, our, java in (
            ("one at a time", OUR_ONE, JAVA_ONE),
            ("one at a time on one core", OUR_ONE + ON_ONE_CORE, JAVA_ONE + ON_ONE_CORE),
            ("receive", OUR_READ, JAVA_READ),
            ("async for + ack", OUR_FOR, JAVA_READ),
        )
    ),
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


def start(label: str) -> TubeMqService:
    if label == TUBEMQ:
        # The server's own defaults; the tests run it with less.
        return RealTubeMq(
            pool={(3, 1): 2 * len(SIZES) + 1},
            BROKER_MEM="-Xmx768m -XX:MaxDirectMemorySize=1g",
            CACHE_MB="3",
        )
    # The messages of all rounds stay.
    options: dict[str, Any] = {"data": True} if label == FSYNC else {}
    return EmbeddedTubeMq(max_store="8GiB", **options)


def ours(case: str, broker: TubeMqService, topic: str, count: int, size: int) -> Row:
    return run("tubemq", case, broker.url, topic, count, size, timeout=300)


def processes(broker: TubeMqService) -> list[int]:
    if isinstance(broker, RealTubeMq):
        return [broker.pid(part) for part in broker.parts]
    assert isinstance(broker, EmbeddedTubeMq)
    return [broker.pid]


def java_send(java: Java, broker: TubeMqService, topic: str, count: int, size: int, window: int) -> Row:
    with java.producer(broker, topic) as producer:
        return java_row(producer.load(topic, count=count, size=size, window=window))


def java_receive(java: Java, broker: TubeMqService, topic: str, count: int) -> Row:
    with java.balance(broker, group(), topic, position="first") as consumer:
        return java_row(consumer.load(count=count, timeout_ms=300_000))


def one_round(java: Java, broker: TubeMqService, topic: str, size: int, plan: Plan) -> Iterator[Result]:
    sent = 0
    for name, client, messages in SENDS:
        count = max(int(messages * plan.scale), 1_000)
        # The first one fills the topic for the reading cases.
        if not plan.wanted(name) and name != JAVA_SEND:
            continue
        try:
            cores = (
                one_core(*processes(broker), java.process.pid)
                if name.endswith(ON_ONE_CORE)
                else contextlib.nullcontext()
            )
            with cores:
                if client == "java":
                    width = 1 if name.startswith(JAVA_ONE) else 10_000
                    report = java_send(java, broker, topic, count, size, width)
                else:
                    report = ours(client, broker, topic, count, size)
            yield name, report
            sent += count
        except Failed as failed:
            yield name, failed
    for name, client, messages in READS:
        if not plan.wanted(name):
            continue
        count = min(max(int(messages * plan.scale), 1_000), int(sent * 0.99))
        try:
            if client == "java":
                yield name, java_receive(java, broker, topic, count)
            else:
                yield name, ours(client, broker, topic, count, size)
        except Failed as failed:
            yield name, failed
    if plan.wanted("first message"):
        try:
            yield "first message", ours("first", broker, topic, 1, size)
        except Failed as failed:
            yield "first message", failed


def groups(label: str, plan: Plan) -> Iterator[Group]:
    with Java() as java:
        broker = start(label)
        try:
            warm = broker.topic(3)
            java_send(java, broker, warm, max(int(200_000 * plan.scale), 5_000), 100, 1_000)
            java_send(java, broker, warm, max(int(20_000 * plan.scale), 1_000), 100, 1)
            java_receive(java, broker, warm, max(int(150_000 * plan.scale), 5_000))
            for size in SIZES:
                topic = broker.topic(3)
                yield Group(size, lambda size=size, topic=topic: one_round(java, broker, topic, size, plan))
        finally:
            broker.stop()


SUITE = Suite("tubemq", BROKERS, TARGETS, groups, "bench-tubemq.json")
