"""The official Java client of TubeMQ, in a process of its own that is driven over pipes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from support.java import Handle, JavaPeer, Refused
from support.scripts import BROKERS, run_script
from support.tubemq.harness import TubeMqService
from support.waiting import PATIENCE

TUBEMQ = BROKERS / "tubemq"


@dataclass
class Seen:
    """A message as the Java client received it."""

    topic: str
    data: bytes
    partition: str
    offset: int
    message_id: int
    type: str | None = None
    time: str | None = None
    #: As on the wire, system attributes included.
    attributes: dict[str, str] = field(default_factory=dict)


def _seen(one: dict[str, Any]) -> Seen:
    text = one.get("attributes") or ""
    return Seen(
        one["topic"],
        bytes.fromhex(one["data"]),
        one["partition"],
        one["offset"],
        one["message_id"],
        one.get("type"),
        one.get("time"),
        dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair),
    )


class Java(JavaPeer):
    """The official Java client in a process of its own, with any number of producers and consumers.

    After ``kill`` none of them unregisters.
    """

    def __init__(self, *options: str) -> None:
        classpath = run_script(str(TUBEMQ / "fetch-tubemq"), timeout=600).strip()
        super().__init__(
            "-Xmx512m",
            *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
            *("-Dio.netty.tryReflectionSetAccessible=true", "-Dtubemq.log.level=error"),
            f"-Dlog4j.configurationFile={TUBEMQ / 'log4j2.xml'}",
            *options,
            *("-cp", classpath, "Peer"),
        )

    def usage(self) -> dict[str, float]:
        """``cpu`` in seconds, ``rss`` in bytes."""
        return self.call("", "usage")

    def _open(self, kind: str, service: TubeMqService | str, options: dict[str, Any]) -> str:
        masters = service if isinstance(service, str) else service.address
        return self.open(kind, {"masters": masters} | options)

    def producer(self, service: TubeMqService | str, *topics: str, **options: Any) -> JavaProducer:
        producer = JavaProducer(self, self._open("producer", service, options))
        if topics:
            producer.publish(*topics)
        return producer

    def pull(
        self, service: TubeMqService | str, group: str, topics: Any, *, wait: float = 30.0, **options: Any
    ) -> JavaConsumer:
        """A consumer with server balance. Waits ``wait`` seconds for partitions, unless that is 0."""
        subscribed = {"group": group, "topics": _topics(topics)}
        consumer = JavaConsumer(self, self._open("pull", service, subscribed | options))
        if wait and not consumer.call("ready", int(wait * 1000)):
            raise Refused(f"no partitions in {wait} s")
        return consumer

    def balance(
        self, service: TubeMqService | str, group: str, topics: Any, *, connect: bool = True, **options: Any
    ) -> JavaConsumer:
        """A consumer with client balance, connected to all partitions, at ``offsets`` if given."""
        subscribed = {"group": group, "topics": _topics(topics)}
        consumer = JavaConsumer(self, self._open("balance", service, subscribed | options))
        if connect:
            consumer.call("connect_all", {"offsets": options.get("offsets", {})})
        return consumer


def _topics(topics: str | Iterable[str] | dict[str, Iterable[str]]) -> dict[str, list[str]]:
    """Topics with their filters; no filter selects every message."""
    if isinstance(topics, dict):
        return {name: list(filters) for name, filters in topics.items()}
    return {name: [] for name in ([topics] if isinstance(topics, str) else topics)}


class JavaProducer(Handle):
    def publish(self, *topics: str, timeout: float = PATIENCE) -> None:
        """Waits until each topic accepts messages."""
        self.call("publish", list(topics))
        deadline = time.monotonic() + timeout
        for topic in topics:
            while not self.call("accepts", topic):
                assert time.monotonic() < deadline, f"{topic} accepts no messages"
                time.sleep(0.01)

    def send(self, topic: str, data: bytes, **options: Any) -> dict[str, Any]:
        """Sends with options ``type``, ``time``, ``attributes`` and returns the broker's answer."""
        return self.call("send", topic, data.hex(), options)

    def send_all(self, topic: str, payloads: Iterable[bytes], **options: Any) -> list[dict[str, Any]]:
        """Sends all without waiting in between, and asserts that all succeed."""
        results = self.call("send_all", topic, [data.hex() for data in payloads], options)
        assert all(one["success"] for one in results), results
        return results

    def load(self, topic: str, **options: Any) -> dict[str, Any]:
        return self.call("load", topic, options)


class JavaConsumer(Handle):
    def receive(self, count: int, timeout: float = PATIENCE, confirm: str = "yes") -> list[Seen]:
        """At least ``count`` messages, because batches arrive as a whole; ``packs`` describes the batches."""
        answer = self.call("receive", count, int(timeout * 1000), confirm)
        self.packs: list[dict[str, Any]] = answer["packs"]
        messages = [_seen(one) for one in answer["messages"]]
        assert len(messages) >= count, f"{len(messages)} of {count} messages; last: {answer.get('last')}"
        return messages

    def nothing(self, wait: float = 0.5) -> None:
        answer = self.call("receive", 1, int(wait * 1000), "yes")
        assert not answer["messages"], answer["messages"]

    def partitions(self) -> dict[str, dict[str, int]]:
        """``offset`` and ``max`` by "broker:topic:partition"."""
        return self.call("partitions")

    def load(self, **options: Any) -> dict[str, Any]:
        return self.call("load", options)
