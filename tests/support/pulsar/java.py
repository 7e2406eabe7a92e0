"""The official Java clients of Pulsar, in processes of their own that are driven over pipes."""

from __future__ import annotations

import base64
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.java import Handle, JavaPeer
from support.pulsar.harness import PulsarService
from support.scripts import BROKERS, run_script
from support.waiting import PATIENCE


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Maker:
    town: str | None = None


@dataclass
class Item:
    """A value with a schema, as ``Item.java`` has it."""

    name: str | None = None
    count: int | None = None
    price: float | None = None
    sold: bool | None = None
    raw: bytes | None = None
    tags: list[str] | None = None
    stock: dict[str, int] | None = None
    maker: Maker | None = None
    colour: Colour | None = None


@dataclass
class Seen:
    """A message as the Java client received it."""

    data: bytes
    #: As JSON has it; bytes are base64.
    value: Any
    key: str | None
    ordering_key: bytes | None
    properties: dict[str, str]
    event_time: int
    sequence_id: int
    schema_version: bytes | None
    producer: str
    redelivery_count: int
    topic: str
    #: Ledger, entry, partition, batch index.
    id: tuple[int, int, int, int]
    id_bytes: bytes
    #: Under which a consumer acknowledges it; not of readers.
    number: int = field(default=-1, compare=False)


def encoded(value: Any) -> Any:
    """A value as JSON: bytes become base64, enums their names, pairs lists."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: encoded(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: encoded(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [encoded(one) for one in value]
    return value


def _seen(one: dict[str, Any]) -> Seen:
    for name in ("data", "ordering_key", "schema_version", "id_bytes"):
        one[name] = None if one[name] is None else base64.b64decode(one[name])
    return Seen(**one | {"id": tuple(one["id"])})


def _command(program: str, *, optimizing: bool = False) -> tuple[str, ...]:
    """Runs a program of ``tests/brokers/pulsar``: the options and the class of ``java``. Without the
    optimizing compiler, programs that do little start sooner."""
    classpath = run_script(str(BROKERS / "pulsar" / "fetch-pulsar"), timeout=900).strip()
    opens = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.net", "jdk.internal.misc")
    ]
    return (
        *(
            "-Xmx768m",
            *(() if optimizing else ("-XX:TieredStopAtLevel=1",)),
            "-Djava.net.preferIPv4Stack=true",
            *opens,
        ),
        *("-Dio.netty.tryReflectionSetAccessible=true", "-cp", classpath, program),
    )


class PulsarAdminJava(JavaPeer):
    """The official Java client of the administration in a process of its own, for any number of brokers."""

    def __init__(self) -> None:
        super().__init__(*_command("Admin"))

    def ask(self, service: PulsarService, method: str, *arguments: Any) -> dict[str, Any]:
        """Calls a method, such as ``topics.getStats``: its ``answer``, or ``exception``, ``status`` and
        ``reason``."""
        return self.call(service.admin, method, *arguments)


class PulsarJava(JavaPeer):
    """The official Java client in a process of its own, with any number of producers and consumers.

    Options that are not in ``OWN`` go to the client's own configuration, by the names of its fields:
    ``compressionType="LZ4"``.
    """

    def __init__(self, *, optimizing: bool = False) -> None:
        super().__init__(*_command("Peer", optimizing=optimizing))

    def _made(self, kind: str, service: PulsarService, options: dict[str, Any]) -> str:
        own = {name: encoded(value) for name, value in options.items() if name in OWN}
        conf = {name: value for name, value in options.items() if name not in OWN}
        return self.open(kind, {"url": service.url, "conf": conf} | own)

    def producer(self, service: PulsarService, topic: str, **options: Any) -> JavaProducer:
        return JavaProducer(self, self._made("producer", service, {"topic": topic} | options))

    def consumer(
        self,
        service: PulsarService,
        topic: str | Sequence[str] | None,
        subscription: str = "s",
        **options: Any,
    ) -> JavaConsumer:
        """Begins with what is there. Without ``topic``, ``pattern`` chooses the topics."""
        common = {"subscriptionName": subscription, "subscriptionInitialPosition": "Earliest"}
        named = {} if topic is None else {"topic": topic}
        return JavaConsumer(self, self._made("consumer", service, common | named | options))

    def reader(self, service: PulsarService, topic: str, **options: Any) -> JavaReader:
        return JavaReader(self, self._made("reader", service, {"topic": topic} | options))

    def view(self, service: PulsarService, topic: str, **options: Any) -> JavaView:
        return JavaView(self, self._made("view", service, {"topic": topic} | options))

    def schema(
        self, service: PulsarService, topic: str, version: bytes | None = None
    ) -> tuple[str, str, bytes, dict[str, str]]:
        """Type, name, definition and properties of a schema of a topic: of a version, or of the latest."""
        asked = {"url": service.url, "topic": topic, "version": encoded(version)}
        kind, name, definition, properties = self.call("", "schema", asked)
        return kind, name, base64.b64decode(definition), properties

    def partitions(self, service: PulsarService, topic: str) -> list[str]:
        """The full names of a topic's partitions."""
        return self.call("", "partitions", {"url": service.url, "topic": topic})


OWN = {
    *(
        "topic",
        "pattern",
        "schema",
        "key_based",
        "later",
        "update_seconds",
        "dead_letter",
        "ranges",
        "events",
    ),
    *("out_of_order", "start", "inclusive"),
}
"""Options that ``Peer.java`` reads itself."""


class JavaProducer(Handle):
    def send(self, *messages: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
        """Sends messages with ``value`` and ``key``, ``key_bytes``, ``ordering_key``, ``properties``,
        ``event_time``, ``sequence_id``, ``deliver_after`` (milliseconds) and ``schema`` as wanted, without
        waiting in between. Returns their ids as in `Seen`."""
        return [tuple(id) for id in self.call("send", encoded(messages))]  # type: ignore[misc]

    def send_bytes(self, *payloads: bytes) -> list[tuple[int, int, int, int]]:
        return self.send(*({"value": payload} for payload in payloads))

    def load(self, **options: Any) -> dict[str, Any]:
        return self.call("load", options)


class _Receiving(Handle):
    def receive(self, count: int, timeout: float = PATIENCE) -> list[Seen]:
        """Exactly ``count`` messages, in order of arrival."""
        messages = [_seen(one) for one in self.call("receive", count, int(timeout * 1000))]
        assert len(messages) == count, f"{len(messages)} of {count} messages arrived in {timeout} s"
        return messages

    def up_to(self, count: int, timeout: float) -> list[Seen]:
        """At most ``count`` messages; fewer after ``timeout`` seconds."""
        return [_seen(one) for one in self.call("receive", count, int(timeout * 1000))]

    def nothing(self, wait: float = 0.3) -> None:
        """Asserts that no (more) messages arrive."""
        assert self.up_to(1, wait) == []


class JavaConsumer(_Receiving):
    def ack(self, *messages: Seen) -> None:
        for message in messages:
            self.call("ack", message.number)

    def nack(self, message: Seen) -> None:
        self.call("nack", message.number)

    def reconsume_later(self, message: Seen, delay: float, **properties: str) -> None:
        self.call("reconsume_later", message.number, int(delay * 1000), properties)

    def load(self, **options: Any) -> dict[str, Any]:
        return self.call("load", options)

    def events(self) -> list[str]:
        """``"active 0"``, ``"inactive 0"``: what the listener heard, with the partition."""
        return self.call("events")

    def reached_end(self) -> bool:
        return self.call("reached_end")


class JavaReader(_Receiving):
    def available(self) -> bool:
        return self.call("available")

    def reached_end(self) -> bool:
        return self.call("reached_end")


class JavaView(Handle):
    def entries(self) -> dict[str, Any]:
        """The entries, once it has read all messages that the topic has now."""
        return self.call("entries")
