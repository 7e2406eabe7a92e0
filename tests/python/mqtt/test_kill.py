"""``forebay broker --data --mqtt-port`` killed with messages of QoS 1 and 2 in flight: acknowledged messages
survive, those of QoS 2 are delivered exactly once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kill import Reconnecting, brokers_on, kill_under_load, seeded
from support.mqtt import wire
from support.mqtt.wire import V5, V311, Raw
from support.scripts import free_port
from support.service import BrokerProcess
from support.waiting import eventually

FOREVER: dict[str, Any] = {"session_expiry_interval": 0xFFFFFFFF}
WINDOW = 40


class Peer(Reconnecting):
    """A client with a persistent session."""

    def __init__(self, port: int, name: str, version: int) -> None:
        super().__init__(port, name)
        self.version = version

    def session(self) -> None:
        with Raw(self.port, self.version) as raw:
            raw.timeout = 5
            props = FOREVER if self.version == V5 else None
            self.handle(raw, raw.connect(self.name, clean=False, props=props))

    def is_cut(self, error: Exception) -> bool:
        # Raw asserts what it expects to read.
        return super().is_cut(error) or isinstance(error, AssertionError)

    def handle(self, raw: Raw, answer: dict[str, Any]) -> None:
        raise NotImplementedError


class Publisher(Peer):
    """Publishes numbered messages of QoS 1 and 2 in turn, and keeps each until it is acknowledged."""

    def __init__(self, port: int, name: str, version: int, topic: str) -> None:
        super().__init__(port, name, version)
        self.topic = topic
        self.number = 0
        # Payload, QoS and whether PUBREC has come, by packet identifier, in the order they were sent.
        self.flights: dict[int, tuple[bytes, int, bool]] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.done = threading.Event()

    def handle(self, raw: Raw, answer: dict[str, Any]) -> None:
        assert answer["reason"] == 0
        if self.connections:
            assert answer["session_present"], "the session is lost"
        self.connections += 1
        for packet_id, (payload, qos, released) in self.flights.items():
            if released:
                raw.send(wire.ack(wire.PUBREL, packet_id))
            else:
                raw.send(wire.publish(self.topic, payload, qos, packet_id, self.version, dup=True))
        while not (self.stopping.is_set() and not self.flights):
            while len(self.flights) < WINDOW and not self.stopping.is_set():
                self.number += 1
                packet_id = self.number % 60_000 + 1
                payload, qos = b"%s %d" % (self.name.encode(), self.number), 1 + self.number % 2
                self.flights[packet_id] = payload, qos, False
                raw.send(wire.publish(self.topic, payload, qos, packet_id, self.version))
            one = raw.packet()
            if one is None:
                raise ConnectionError
            said = wire.parse(one, self.version)
            packet_id = said["packet_id"]
            assert said.get("reason", 0) < 0x80 or said["reason"] == 0x92, said
            if one.kind == wire.PUBREC:
                payload, qos, _ = self.flights[packet_id]
                self.flights[packet_id] = payload, qos, True
                self.acknowledged[payload] = qos
                raw.send(wire.ack(wire.PUBREL, packet_id))
            else:
                payload, qos, _ = self.flights.pop(packet_id)
                self.acknowledged[payload] = qos
        self.done.set()


class Subscriber(Peer):
    """Records the messages, and the identifiers of QoS 2 that are not released."""

    def __init__(self, port: int, name: str, version: int, topic: str) -> None:
        super().__init__(port, name, version)
        self.topic = topic
        self.got: list[tuple[bytes, int]] = []
        self.incoming: set[int] = set()

    def handle(self, raw: Raw, answer: dict[str, Any]) -> None:
        if not self.connections:
            assert raw.subscribe([(self.topic, 2)]) == [2]
        else:
            assert answer["session_present"], "the session is lost"
        self.connections += 1
        while not self.stopping.is_set():
            try:
                one = raw.packet(0.2)
            except TimeoutError:
                continue
            if one is None:
                raise ConnectionError
            said = wire.parse(one, self.version)
            if one.kind == wire.PUBREL:
                self.incoming.discard(said["packet_id"])
                raw.send(wire.ack(wire.PUBCOMP, said["packet_id"]))
            elif said["qos"] == 1:
                self.got.append((said["payload"], 1))
                raw.send(wire.ack(wire.PUBACK, said["packet_id"]))
            else:
                if said["packet_id"] not in self.incoming:
                    self.got.append((said["payload"], 2))
                self.incoming.add(said["packet_id"])
                raw.send(wire.ack(wire.PUBREC, said["packet_id"]))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Callable[..., tuple[BrokerProcess, int]]]:
    """``broker(*options)`` starts a broker and returns it with its MQTT port."""
    with brokers_on(tmp_path / "data") as start:

        def with_port(*options: str) -> tuple[BrokerProcess, int]:
            port = free_port()
            return start("--mqtt-port", str(port), *options), port

        yield with_port


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_kills_with_messages_in_flight(broker: Callable[..., tuple[BrokerProcess, int]]) -> None:
    process, port = broker("-X", "mqtt_max_queue=1000000")
    topic = "killed/t"
    subscribers = [Subscriber(port, f"s{version}", version, "killed/#") for version in (V5, V311)]
    for subscriber in subscribers:
        subscriber.start()
    eventually(lambda: all(subscriber.connections for subscriber in subscribers))
    publishers = [Publisher(port, f"p{version}", version, topic) for version in (V5, V311)]
    for publisher in publishers:
        publisher.start()

    def progress(count: int) -> None:
        goals = [(publisher, len(publisher.acknowledged) + count) for publisher in publishers]
        eventually(lambda: all(len(p.acknowledged) >= goal for p, goal in goals), 120)

    kill_under_load(process, seeded(), progress)
    for publisher in publishers:
        publisher.stopping.set()
    assert all(publisher.done.wait(120) for publisher in publishers)
    sent = {payload: qos for publisher in publishers for payload, qos in publisher.acknowledged.items()}

    def complete() -> bool:
        return all(len({payload for payload, _ in s.got}) == len(sent) for s in subscribers)

    eventually(complete, 120)
    for subscriber in subscribers:
        subscriber.stopping.set()
        subscriber.join(10)
    for peer in [*publishers, *subscribers]:
        assert peer.error is None, peer.error
        assert peer.connections > 10, "the kills were noticed"
    for subscriber in subscribers:
        assert {payload for payload, _ in subscriber.got} == set(sent)
        twice = [payload for payload, qos in subscriber.got if qos == 2]
        assert len(twice) == len(set(twice)), "QoS 2 came more than once"
        for publisher in publishers:
            for qos in (1, 2):
                firsts = dict.fromkeys(
                    int(payload.split()[1])
                    for payload, of in subscriber.got
                    if of == qos and payload.startswith(publisher.name.encode() + b" ")
                )
                assert list(firsts) == sorted(firsts), f"{subscriber.name}: {publisher.name} out of order"


def test_retained_messages_sessions_and_wills_outlive_a_kill(
    broker: Callable[..., tuple[BrokerProcess, int]],
) -> None:
    process, port = broker()
    with Raw(port) as watcher, Raw(port) as publisher:
        watcher.connect("watcher", clean=False, props=FOREVER)
        watcher.subscribe([("will/#", 1), ("queued", 2)])
        watcher.socket.close()
        will = wire.Will("will/x", b"gone", qos=1)
        publisher.connect("publisher", clean=False, props=FOREVER, will=will)
        assert publisher.publish("state", b"on", 1, retain=True) in (0, 0x10)
        assert publisher.publish("queued", b"waits", 2) == 0
        process.end()
    process.start()
    with Raw(port) as watcher:
        assert watcher.connect("watcher", clean=False, props=FOREVER)["session_present"]
        got = {watcher.message()["payload"] for _ in range(2)}
        assert got == {b"gone", b"waits"}
        watcher.subscribe("state", 2)
        said = watcher.message()
        assert said["payload"] == b"on"
        assert said["retain"]


def test_a_broker_that_is_told_to_stop_tells_its_clients(
    broker: Callable[..., tuple[BrokerProcess, int]],
) -> None:
    process, port = broker()
    with Raw(port) as peer:
        peer.connect("peer")
        assert process.end(signal.SIGTERM) == 0
        assert peer.closed()[-1]["reason"] == 0x8B
