"""Records the traffic between clients and brokers of other authors into ``golden/mqtt``.

    python tests/golden/record_mqtt.py [FOLDER]

Each session becomes a file of JSON lines. The first names broker and client. Then comes a line per packet, in
the order seen on the wire: its connection, its sender, its bytes as hex, and its fields as read by
``support.mqtt.wire``, which shares nothing with the engine (bytes values are hex). A line at the end of each
connection tells which side closed it. The sessions of the client "raw" hold packets that no client sends,
and the brokers' reactions.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.mqtt import wire
from support.mqtt.harness import HiveMq, Mosquitto, MqttService, as_json
from support.mqtt.peers import (
    Aiomqtt,
    Filter,
    Gmqtt,
    MosquittoPrograms,
    MqttJs,
    Paho,
    Peer,
    PeerWill,
    Refused,
    Target,
)
from support.mqtt.proxy import Passage, Proxy
from support.mqtt.wire import V5, V31, V311

VERSIONS = {V31: "31", V311: "311", V5: "5"}

PUBLISHED: dict[str, Any] = {
    "payload_format_indicator": 1,
    "message_expiry_interval": 300,
    "content_type": "text/plain",
    "response_topic": "answers/1",
    # Some clients accept text only.
    "correlation_data": b"correlated",
    "user_property": [("origin", "till"), ("origin", "second"), ("größe", "☃")],
}
CONNECTED: dict[str, Any] = {
    "session_expiry_interval": 600,
    "receive_maximum": 7,
    "maximum_packet_size": 100_000,
    "topic_alias_maximum": 9,
    "request_response_information": 1,
    "request_problem_information": 1,
    "user_property": [("client", "recorded")],
}
WILL: dict[str, Any] = {
    "will_delay_interval": 0,
    "payload_format_indicator": 1,
    "message_expiry_interval": 60,
    "content_type": "text/plain",
    "response_topic": "answers/will",
    "correlation_data": b"correlated",
    "user_property": [("will", "yes")],
}


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.connections = self.frames = self.scenarios = 0

    def scenario(self, broker: MqttService, name: str, client: str, play: Callable[[Target], None]) -> None:
        with Proxy(broker.port) as proxy:
            play(Target(proxy.port))
            for passage in proxy.passages:
                passage.done.wait(5)
        self.scenarios += 1
        lines: list[dict[str, Any]] = [{"broker": broker.name, "client": client}]
        connections = [passage for passage in proxy.passages if passage.packets]
        for number, passage in enumerate(connections, 1):
            lines += self._lines(number, passage)
        path = self._folder / f"{broker.name}-{client}-{name}.jsonl"
        assert not path.exists(), path
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    def _lines(self, number: int, passage: Passage) -> Iterator[dict[str, Any]]:
        self.connections += 1
        version = V311
        for direction, packet in passage.packets:
            self.frames += 1
            try:
                said = wire.parse(packet, version)
            except (wire.Malformed, KeyError, UnicodeDecodeError) as error:
                said = {"type": packet.name, "malformed": str(error)}
            version = said.get("version", version)
            yield {"connection": number, "from": direction, "hex": packet.raw.hex(), "said": as_json(said)}
        yield {"connection": number, "closed_by": passage.closed_by}


@contextlib.contextmanager
def peer(kind: type[Peer]) -> Iterator[Any]:
    one = kind()
    try:
        yield one
    finally:
        one.close()


# ------------------------------------------------------------------------------ sessions of clients


def qos(kind: type[Peer], version: int) -> Callable[[Target], None]:
    """Each QoS both ways, short and long, unsubscribe, disconnect."""

    def play(target: Target) -> None:
        with peer(kind) as one:
            one.connect(target, f"qos-{VERSIONS[version]}", version)
            wanted = [Filter("q/0", 0), Filter("q/1", 1), Filter("q/+", 2)]
            one.subscribe(*wanted[2:] if kind is MosquittoPrograms else wanted)
            for number in (0, 1, 2):
                one.publish(f"q/{number}", b"x" * (200 if number == 2 else number), number)
            one.receive(3)
            if kind is not MosquittoPrograms:
                one.unsubscribe("q/0", "q/1", "q/+")
            one.disconnect()

    return play


def properties(kind: type[Peer]) -> Callable[[Target], None]:
    """Every MQTT 5.0 property that the client can send."""

    def play(target: Target) -> None:
        with peer(kind) as one:
            connected = CONNECTED
            if kind is MosquittoPrograms:
                # It has no aliases, and with -c it requests an endless session by itself.
                left_out = {"topic_alias_maximum", "session_expiry_interval"}
                connected = {k: v for k, v in connected.items() if k not in left_out}
                one.connect(target, "props", V5, clean=False, properties=connected)
            else:
                if kind is Gmqtt:
                    connected = {k: v for k, v in connected.items() if not k.startswith("request")}
                one.connect(target, "props", V5, properties=connected)
            one.subscribe(
                Filter("p/#", 1, no_local=False, retain_as_published=True, retain_handling=1),
                properties={"subscription_identifier": 268_435_455}
                | ({} if kind is Gmqtt else {"user_property": [("sub", "1")]}),
            )
            # gmqtt does not support all of them.
            published = {
                k: v for k, v in PUBLISHED.items() if kind is not Gmqtt or not k.startswith("payload")
            }
            for number in (0, 1, 2):
                one.publish(f"p/{number}", b"payload", number, properties=published)
            one.receive(3)
            if kind in {Paho, MqttJs}:
                ended = {"session_expiry_interval": 0, "reason_string": "done", "user_property": [("d", "1")]}
                one.disconnect(reason=4, properties=ended)
            else:
                one.disconnect()

    return play


def retained(kind: type[Peer], version: int) -> Callable[[Target], None]:
    def play(target: Target) -> None:
        with peer(kind) as one, peer(kind) as two:
            one.connect(target, "retainer", version)
            topic = f"retained/{kind.name}/{version}"
            one.publish(topic, b"kept", 1, retain=True)
            two.connect(target, "late", version)
            two.subscribe(Filter(f"{topic}/#", 2))
            two.receive(1)
            one.publish(topic, b"live", 0, retain=True)
            two.receive(1)
            one.publish(topic, b"", 1, retain=True)
            two.receive(1)
            two.disconnect()
            one.disconnect()

    return play


def will(kind: type[Peer], version: int) -> Callable[[Target], None]:
    def play(target: Target) -> None:
        with peer(Paho) as watcher, peer(kind) as dying:
            watcher.connect(target, "watcher", version)
            watcher.subscribe(Filter("wills/#", 2))
            said = {k: v for k, v in WILL.items() if kind is not Gmqtt or not k.startswith("payload")}
            asked = PeerWill("wills/me", b"gone", 2, True, said if version == V5 else {})
            dying.connect(target, "dying", version, will=asked)
            if kind is MosquittoPrograms:
                # It connects when it subscribes.
                dying.subscribe(Filter("nothing", 0))
            dying.kill()
            watcher.receive(1)
            watcher.publish("wills/me", b"", 1, retain=True)
            watcher.disconnect()

    return play


def session(kind: type[Peer], version: int) -> Callable[[Target], None]:
    """A resumed session, with messages that arrived meanwhile."""

    def play(target: Target) -> None:
        kept = {"session_expiry_interval": 600} if version == V5 else None
        name = f"keeper-{kind.name}-{version}"
        with peer(kind) as one, peer(Paho) as two:
            one.connect(target, name, version, clean=False, properties=kept)
            one.subscribe(Filter("s/#", 2))
            one.disconnect()
            two.connect(target, "writer", version)
            for number in (1, 2):
                two.publish(f"s/{number}", b"meanwhile", number)
            with peer(kind) as again:
                assert again.connect(target, name, version, clean=False, properties=kept)
                again.receive(2)
                again.unsubscribe("s/#")
                again.disconnect()
            with peer(kind) as last:
                last.connect(target, name, version)
                last.disconnect()
            two.disconnect()

    return play


def in_flight(version: int, at: int) -> Callable[[Target], None]:
    """The connection ends at the given packet after CONNACK; the client comes back with DUP or PUBREL."""

    def play(target: Target) -> None:
        with Proxy(target.port) as inner:
            kept = {"session_expiry_interval": 600} if version == V5 else None
            with peer(Paho) as one:
                name = f"flight-{version}-{at}"
                one.connect(Target(inner.port), name, version, clean=False, properties=kept)
                inner.cut_at(at, before=True)
                info = one.client.publish("flight", b"once", 2)
                one._ended.wait(5)
                one.client.loop_stop()
                if version == V5:
                    # Its default requests a clean start on later connections too.
                    one.client._clean_start = False
                one.again()
                info.wait_for_publish(5)
                assert info.is_published()
                one.disconnect()

    return play


def shared(target: Target) -> None:
    with peer(Paho) as one, peer(MqttJs) as two, peer(Aiomqtt) as three:
        one.connect(target, "member-1", V5)
        two.connect(target, "member-2", V5)
        for member in (one, two):
            member.subscribe(Filter("$share/group/jobs/+", 1))
        three.connect(target, "boss", V5)
        for number in range(6):
            three.publish(f"jobs/{number}", b"job", 1)
        got = one._receive(6, 0.5) + two._receive(6, 0.5)
        assert len(got) == 6, got
        for member in (one, two, three):
            member.disconnect()


def taken_over(version: int) -> Callable[[Target], None]:
    def play(target: Target) -> None:
        with peer(Paho) as one, peer(Paho) as two:
            one.connect(target, "same", version)
            two.connect(target, "same", version)
            one._ended.wait(5)
            two.disconnect()

    return play


def keep_alive(target: Target) -> None:
    with peer(Paho) as one:
        one.connect(target, "idle", V311, keep_alive=1)
        one.nothing(2.2)
        one.disconnect()


def assigned(version: int) -> Callable[[Target], None]:
    """No client identifier: the server assigns one."""

    def play(target: Target) -> None:
        with peer(Paho) as one:
            one.connect(target, "", version)
            one.disconnect()

    return play


def aliases(target: Target) -> None:
    """Topic aliases of the client."""
    with peer(MqttJs) as one:
        one.connect(target, "aliases", V5, autoUseTopicAlias=True, autoAssignTopicAlias=True)
        for _ in range(3):
            for number in range(3):
                one.publish(f"a/long/topic/name/{number}", b"1", 1)
        one.disconnect()


def server_aliases(target: Target) -> None:
    """Topic aliases of the server, if it uses them."""
    with peer(Paho) as one:
        one.connect(target, "aliases-in", V5, properties={"topic_alias_maximum": 5})
        one.subscribe(Filter("in/#", 1))
        for _ in range(3):
            one.publish("in/a/long/topic/name", b"1", 1)
        one.receive(3)
        one.disconnect()


def challenge(target: Target) -> None:
    """Enhanced authentication, and re-authentication."""
    with peer(MqttJs) as one:
        auth = {"authentication_method": "CHALLENGE", "authentication_data": b"ann"}
        one.connect(target, "proven", V5, properties=auth, challenge="secret")
        one.call("reauthenticate", "CHALLENGE", "ann")
        one.publish("after", b"1", 1)
        one.disconnect()
    with peer(MqttJs) as one, contextlib.suppress(Refused):
        one.connect(target, "unproven", V5, properties=auth, challenge="wrong")


def wrong_password(kind: type[Peer], version: int) -> Callable[[Target], None]:
    def play(target: Target) -> None:
        with peer(kind) as one, contextlib.suppress(Refused):
            one.connect(target, "stranger", version, username="ann", password="wrong")

    return play


def forbidden(kind: type[Peer], version: int) -> Callable[[Target], None]:
    def play(target: Target) -> None:
        with peer(kind) as one:
            one.connect(target, "curious", version, username="ann", password="secret")
            with contextlib.suppress(Refused):
                one.subscribe(Filter("allowed/x", 1), Filter("forbidden/x", 1))
        with peer(kind) as one:
            one.connect(target, "curious", version, username="ann", password="secret")
            with contextlib.suppress(Refused, AssertionError):
                one.publish("forbidden/x", b"1", 1)
        with peer(kind) as one:
            one.connect(target, "curious", version, username="ann", password="secret")
            with contextlib.suppress(Refused, AssertionError):
                one.publish("forbidden/x", b"1", 2)

    return play


# ------------------------------------------------------------------------------ packets that no
# client sends


def raw(version: int, *packets: bytes, connected: bool = True) -> Callable[[Target], None]:
    def play(target: Target) -> None:
        with wire.Raw(target.port, version) as one:
            if connected:
                one.connect("raw")
            one.send(*packets)
            with contextlib.suppress(TimeoutError, wire.Malformed):
                # Until the broker closes or falls silent.
                while one.packet(0.3) is not None:
                    pass

    return play


def odd() -> Iterator[tuple[str, Callable[[Target], None]]]:
    for version in (V311, V5):
        name = VERSIONS[version]
        yield f"{name}-connect-twice", raw(version, wire.connect("raw", version))
        yield f"{name}-no-connect", raw(version, wire.packet(wire.PINGREQ), connected=False)
        bad = [("a/#/b", 0), ("ok/+", 1), ("a+/b", 0)]
        yield f"{name}-bad-filter", raw(version, wire.subscribe(bad, 7, version))
        yield f"{name}-wildcard-topic", raw(version, wire.publish("a/+", b"", 1, 3, version))
        yield f"{name}-qos-3", raw(version, wire.packet(wire.PUBLISH, b"\x00\x01a\x00\x01", 6))
        yield f"{name}-pubrel-unknown", raw(version, wire.ack(wire.PUBREL, 77))
        yield (
            f"{name}-publish-again",
            raw(
                version,
                *[wire.publish("again", b"x", 2, 9, version, dup=n > 0) for n in range(3)],
                wire.ack(wire.PUBREL, 9),
                wire.ack(wire.PUBREL, 9),
            ),
        )
        yield f"{name}-bad-utf8", raw(version, wire.publish(b"a\xff", b"", 0, version=version))
        yield f"{name}-not-subscribed", raw(version, wire.unsubscribe(["nope", "neither"], 5, version))
        yield f"{name}-reserved-flags", raw(version, wire.packet(wire.SUBSCRIBE, b"\x00\x01", 0))
    yield (
        "31-qos",
        raw(
            V31,
            wire.subscribe([("q", 2)], 1, V31),
            wire.publish("q", b"31", 2, 2, V31),
            wire.ack(wire.PUBREL, 2),
        ),
    )
    yield "311-wrong-name", raw(V311, wire.connect("raw", V311, name="MQTX"), connected=False)
    yield "311-level-9", raw(V311, wire.connect("raw", 9, name="MQTT"), connected=False)
    yield "311-empty-id-kept", raw(V311, wire.connect("", V311, clean=False), connected=False)
    yield "5-alias-zero", raw(V5, wire.publish("t", b"", 0, props={"topic_alias": 0}))
    yield "5-alias-too-high", raw(V5, wire.publish("t", b"", 0, props={"topic_alias": 60_000}))
    yield "5-alias-unknown", raw(V5, wire.publish("", b"", 0, props={"topic_alias": 1}))
    yield (
        "5-property-twice",
        raw(V5, wire.publish("t", b"", 0, props=[("content_type", "a"), ("content_type", "b")])),
    )
    yield "5-property-misplaced", raw(V5, wire.publish("t", b"", 0, props={"server_keep_alive": 1}))
    yield (
        "5-subscription-identifier-of-client",
        raw(V5, wire.publish("t", b"", 0, props={"subscription_identifier": 1})),
    )
    yield "5-no-local-shared", raw(V5, wire.subscribe([("$share/g/t", 4)], 3))
    yield (
        "5-disconnect-long",
        raw(V5, wire.disconnect(4, [("reason_string", "bye"), ("user_property", ("a", "b"))])),
    )
    yield "5-disconnect-code", raw(V5, wire.disconnect(4))
    yield (
        "5-long-acks",
        raw(
            V5,
            wire.subscribe([("l/#", 2)], 1),
            wire.publish("l/1", b"1", 1, 2),
            wire.publish("l/2", b"2", 2, 3),
            wire.ack(wire.PUBREL, 3, 0, [("reason_string", "go on"), ("user_property", ("k", "v"))]),
            wire.ack(wire.PUBACK, 1, 0, [("reason_string", "fine"), ("user_property", ("k", "v"))]),
            wire.ack(wire.PUBREC, 2, 0x10, []),
            wire.ack(wire.PUBCOMP, 2, 0),
        ),
    )
    yield "5-auth-unasked", raw(V5, wire.auth(0x18, [("authentication_method", "X")]))
    yield "5-expiry-from-zero", raw(V5, wire.disconnect(0, [("session_expiry_interval", 10)]))
    yield "5-refused", raw(V5, wire.connect("raw", V5, props={"receive_maximum": 0}), connected=False)
    yield (
        "5-aliases",
        raw(
            V5,
            wire.subscribe([("al/#", 0)], 1),
            wire.publish("al/1", b"1", props={"topic_alias": 1}),
            wire.publish("", b"2", props={"topic_alias": 1}),
            wire.publish("al/3", b"3", props={"topic_alias": 1}),
            wire.publish("", b"4", props={"topic_alias": 1}),
        ),
    )


# ------------------------------------------------------------------------------ main


def record(recorder: Recorder, broker: MqttService) -> None:
    first = broker.name == "mosquitto"
    for kind in (Paho, Aiomqtt, Gmqtt, MqttJs, MosquittoPrograms):
        for version in kind.versions:
            # Older versions behave the same with both brokers.
            if first or kind in {Paho, MqttJs}:
                recorder.scenario(broker, f"{VERSIONS[version]}-qos", kind.name, qos(kind, version))
        recorder.scenario(broker, "5-properties", kind.name, properties(kind))
    for version in (V311, V5):
        recorder.scenario(broker, f"{VERSIONS[version]}-retained", "paho", retained(Paho, version))
        recorder.scenario(broker, f"{VERSIONS[version]}-session", "paho", session(Paho, version))
        recorder.scenario(broker, f"{VERSIONS[version]}-taken-over", "paho", taken_over(version))
        recorder.scenario(broker, f"{VERSIONS[version]}-assigned", "paho", assigned(version))
        for at in range(4):
            recorder.scenario(broker, f"{VERSIONS[version]}-in-flight-{at}", "paho", in_flight(version, at))
    for kind in (Paho, Gmqtt, MqttJs, MosquittoPrograms) if first else (Paho,):
        recorder.scenario(broker, "5-will", kind.name, will(kind, V5))
    recorder.scenario(broker, "311-will", "paho", will(Paho, V311))
    recorder.scenario(broker, "5-session", "mqtt.js", session(MqttJs, V5))
    recorder.scenario(broker, "5-shared", "several", shared)
    recorder.scenario(broker, "311-keep-alive", "paho", keep_alive)
    recorder.scenario(broker, "5-aliases", "mqtt.js", aliases)
    recorder.scenario(broker, "5-server-aliases", "paho", server_aliases)
    for name, play in odd():
        recorder.scenario(broker, name, "raw", play)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "mqtt"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    recorder = Recorder(folder)
    for make in (Mosquitto, HiveMq):
        broker = make()
        record(recorder, broker)
        broker.stop()
        guarded = make(users=True)
        for version in (V311, V5):
            name = VERSIONS[version]
            recorder.scenario(guarded, f"{name}-wrong-password", "paho", wrong_password(Paho, version))
            recorder.scenario(guarded, f"{name}-forbidden", "mqtt.js", forbidden(MqttJs, version))
        if make is HiveMq:
            recorder.scenario(guarded, "5-challenge", "mqtt.js", challenge)
        guarded.stop()
    print(f"{recorder.scenarios} sessions, {recorder.connections} connections, {recorder.frames} frames")


main()
