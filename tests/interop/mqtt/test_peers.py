"""Clients of other authors on the embedded broker: paho-mqtt, aiomqtt, gmqtt, the npm client, and
mosquitto_pub with mosquitto_sub."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.fixtures import start
from support.mqtt.harness import EmbeddedMqtt
from support.mqtt.peers import PEERS, Filter, MosquittoPrograms, MqttJs, Paho, Peer, PeerWill, Refused, Target
from support.mqtt.proxy import Proxy
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE

NAMES = {V31: "3.1", V311: "3.1.1", V5: "5.0"}


def each(*without: str) -> pytest.MarkDecorator:
    """Each peer in each of its versions, except those that lack the feature."""
    return pytest.mark.parametrize(
        ("peer", "version"),
        [
            pytest.param(peer, version, id=f"{name}-{NAMES[version]}")
            for name, peer in PEERS.items()
            for version in peer.versions
            if name not in without
        ],
    )


EACH_PEER = each()
EACH_OF_5_0 = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
"""For what does not depend on the version as well."""
# gmqtt and mosquitto_sub lack some options.
CAN = pytest.mark.parametrize(
    "peer", [peer for name, peer in PEERS.items() if name not in {"gmqtt", "mosquitto"}], ids=lambda p: p.name
)

Make = Callable[..., Any]
KEPT = {"session_expiry_interval": 60}


@pytest.fixture
def make() -> Iterator[Make]:
    """``make(Paho)``: a peer that is closed at the end."""
    made: list[Peer] = []

    def one(kind: type[Peer]) -> Any:
        made.append(kind())
        return made[-1]

    yield one
    for peer in made:
        peer.close()


@pytest.fixture
def topic(embedded_mqtt: EmbeddedMqtt) -> str:
    return embedded_mqtt.topic()


@pytest.fixture
def client_id() -> str:
    return f"p{uuid.uuid4().hex[:10]}"


@pytest.fixture
def target(embedded_mqtt: EmbeddedMqtt) -> Target:
    return Target(embedded_mqtt.port)


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedMqtt]:
    """A broker with users."""
    broker = start(lambda: EmbeddedMqtt(users=True))
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def secure() -> Iterator[EmbeddedMqtt]:
    """A broker with TLS."""
    broker = start(lambda: EmbeddedMqtt(tls=True))
    yield broker
    broker.stop()


@pytest.fixture
def durable() -> Iterator[EmbeddedMqtt]:
    """A broker with a data folder, which may be stopped and started."""
    broker = start(lambda: EmbeddedMqtt(data=True))
    yield broker
    broker.stop()


@EACH_PEER
def test_each_qos_both_ways(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer], version: int
) -> None:
    for qos in (0, 1, 2):
        one = make(peer)
        one.connect(target, f"{client_id}{qos}", version)
        assert one.subscribe(Filter(f"{topic}/{qos}/+", qos)) == [qos]
        sent = [b"", b"x", bytes(range(256)), b"y" * 20_000]
        for number, payload in enumerate(sent):
            one.publish(f"{topic}/{qos}/{number}", payload, qos)
        got = one.receive(len(sent))
        assert [message.payload for message in sorted(got, key=lambda m: m.topic)] == sent
        assert {message.qos for message in got} == {qos}
        assert not any(message.retain for message in got)
        one.disconnect()


def test_from_each_peer_to_each_other(make: Make, target: Target, topic: str, client_id: str) -> None:
    everyone = [(kind, version) for kind in PEERS.values() for version in kind.versions]
    receivers = []
    for number, (kind, version) in enumerate(everyone):
        receiver = make(kind)
        receiver.connect(target, f"{client_id}r{number}", version)
        receiver.subscribe(Filter(topic, 2))
        receivers.append(receiver)
    for number, (kind, version) in enumerate(everyone):
        one = make(kind)
        one.connect(target, f"{client_id}s{number}", version)
        one.publish(topic, b"%d" % number, 2)
        for receiver in receivers:
            (message,) = receiver.receive(1)
            assert (message.topic, message.payload, message.qos) == (topic, b"%d" % number, 2), kind
        one.disconnect()


@EACH_PEER
def test_retained_messages(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer], version: int
) -> None:
    one = make(peer)
    one.connect(target, client_id, version)
    one.publish(topic, b"first", 1, retain=True)
    one.publish(topic, b"last", 1, retain=True)
    two = make(peer)
    two.connect(target, f"{client_id}2", version)
    two.subscribe(Filter(topic, 1))
    (message,) = two.receive(1)
    assert (message.payload, message.retain) == (b"last", True)
    one.publish(topic, b"", 1, retain=True)
    (message,) = two.receive(1)
    assert (message.payload, message.retain) == (b"", False)
    three = make(peer)
    three.connect(target, f"{client_id}3", version)
    three.subscribe(Filter(topic, 1))
    three.nothing()


@EACH_PEER
def test_wills(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer], version: int
) -> None:
    watcher = make(Paho)
    watcher.connect(target, f"{client_id}w", V5)
    watcher.subscribe(Filter(topic, 2))
    for ending, expected in (("kill", [b"gone"]), ("disconnect", [])):
        one = make(peer)
        one.connect(target, client_id, version, will=PeerWill(topic, b"gone", 1))
        # mosquitto_sub does not connect without it.
        one.subscribe(Filter(f"{topic}/none", 0))
        if ending == "disconnect" and peer is MosquittoPrograms and version == V5:
            # It sends "disconnect with will message".
            expected = [b"gone"]
        getattr(one, ending)()
        assert [message.payload for message in watcher.up_to(1, PATIENCE if expected else 0.3)] == expected


@EACH_PEER
def test_a_session_that_is_kept(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer], version: int
) -> None:
    # mosquitto_sub requests an endless session by itself.
    kept = KEPT if version == V5 and peer is not MosquittoPrograms else None
    writer = make(Paho)
    writer.connect(target, f"{client_id}w", V5)
    one = make(peer)
    assert one.connect(target, client_id, version, clean=False, properties=kept) is False
    one.subscribe(Filter(topic, 2))
    one.disconnect()
    for qos in (1, 2):
        writer.publish(topic, b"%d" % qos, qos)
    again = make(peer)
    present = again.connect(target, client_id, version, clean=False, properties=kept)
    if peer is MosquittoPrograms:
        again.subscribe(Filter(topic, 2))
    else:
        # MQTT 3.1 lacks this flag.
        assert present is (version > V31)
    got = again.receive(2)
    assert [(message.payload, message.qos) for message in got] == [(b"1", 1), (b"2", 2)]
    again.nothing()
    again.disconnect()
    last = make(peer)
    assert last.connect(target, client_id, version) is False


@each("mosquitto")
def test_unsubscribing(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer], version: int
) -> None:
    one = make(peer)
    one.connect(target, client_id, version)
    one.subscribe(Filter(f"{topic}/a", 1), Filter(f"{topic}/b", 1))
    one.unsubscribe(f"{topic}/a")
    one.publish(f"{topic}/a", b"a", 1)
    one.publish(f"{topic}/b", b"b", 1)
    assert [message.payload for message in one.receive(1)] == [b"b"]
    one.nothing(0.1)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_shared_subscription_of_all_peers(
    make: Make, target: Target, topic: str, client_id: str, qos: int
) -> None:
    members = []
    for number, kind in enumerate(PEERS.values()):
        member = make(kind)
        member.connect(target, f"{client_id}{number}", V5)
        member.subscribe(Filter(f"$share/group/{topic}", qos))
        members.append(member)
    writer = make(Paho)
    writer.connect(target, client_id, V5)
    sent = [b"%03d" % number for number in range(50)]
    for payload in sent:
        writer.publish(topic, payload, qos)
    got: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(got) < len(sent) and time.monotonic() < deadline:
        for member in members:
            got += [message.payload for message in member.up_to(50, 0.02)]
    assert sorted(got) == sent


PROPERTIES: dict[str, Any] = {
    "payload_format_indicator": 1,
    "message_expiry_interval": 300,
    "content_type": "text/plain",
    "response_topic": "answers/1",
    "correlation_data": b"correlated",
    "user_property": [("origin", "till"), ("origin", "second"), ("größe", "☃")],
}


@EACH_OF_5_0
@pytest.mark.parametrize("receiver", [Paho, MqttJs], ids=lambda peer: peer.name)
def test_properties(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer], receiver: type[Peer]
) -> None:
    sent = {k: v for k, v in PROPERTIES.items() if peer.name != "gmqtt" or not k.startswith("payload")}
    watcher, one = make(receiver), make(peer)
    watcher.connect(target, f"{client_id}w", V5)
    watcher.subscribe(Filter(topic, 1), properties={"subscription_identifier": 268_435_455})
    one.connect(target, client_id, V5)
    one.publish(topic, "Grüße".encode(), 1, properties=sent)
    (message,) = watcher.receive(1)
    assert message.properties.pop("subscription_identifier") == [268_435_455]
    assert message.properties.pop("message_expiry_interval") in range(200, 301)
    assert message.properties == {k: v for k, v in sent.items() if k != "message_expiry_interval"}


@CAN
def test_limits_are_told_and_options_honoured(
    make: Make, target: Target, topic: str, client_id: str, peer: type[Peer]
) -> None:
    one, other = make(peer), make(Paho)
    one.connect(target, client_id, V5, properties={"receive_maximum": 2, "maximum_packet_size": 2_000})
    other.connect(target, f"{client_id}o", V5)
    one.subscribe(Filter(topic, 1, no_local=True, retain_as_published=True, retain_handling=2))
    one.publish(topic, b"own", 1)
    other.publish(topic, b"kept", 1, retain=True)
    (message,) = one.receive(1)
    assert (message.payload, message.retain) == (b"kept", True)
    one.subscribe(Filter(topic, 1, retain_handling=2))
    one.nothing(0.2)
    other.publish(topic, bytes(5_000), 1)
    for number in range(10):
        other.publish(topic, b"%d" % number, 1)
    assert [message.payload for message in one.receive(10)] == [b"%d" % number for number in range(10)]
    other.publish(topic, b"", 1, retain=True)


def test_topic_aliases_of_the_npm_client(make: Make, target: Target, topic: str, client_id: str) -> None:
    watcher, one = make(Paho), make(MqttJs)
    watcher.connect(target, f"{client_id}w", V5, properties={"topic_alias_maximum": 3})
    watcher.subscribe(Filter(f"{topic}/#", 1))
    one.connect(target, client_id, V5, autoUseTopicAlias=True, autoAssignTopicAlias=True)
    for number in range(30):
        one.publish(f"{topic}/{number % 4}", b"%d" % number, 1)
    got = watcher.receive(30)
    assert [message.payload for message in got] == [b"%d" % number for number in range(30)]
    assert [message.topic for message in got if message.topic] == [
        f"{topic}/{number % 4}" for number, message in enumerate(got) if message.topic
    ]


# ------------------------------------------------------------------------------ users


@EACH_PEER
def test_users(make: Make, guarded: EmbeddedMqtt, client_id: str, peer: type[Peer], version: int) -> None:
    target, topic = Target(guarded.port), guarded.topic()
    one = make(peer)
    one.connect(target, client_id, version, username="ann", password="secret")
    one.subscribe(Filter(topic, 1))
    one.publish(topic, b"x", 1)
    one.receive(1)
    for name, password in (("ann", "wrong"), ("nobody", "secret"), (None, None)):
        with pytest.raises((Refused, AssertionError)):
            stranger = make(peer)
            stranger.connect(target, f"{client_id}s", version, username=name, password=password)
            # mosquitto_pub connects when it publishes.
            stranger.publish(topic, b"x", 1)
    one.nothing(0.1)


# ------------------------------------------------------------------------------ ways to connect


@CAN
def test_websocket(
    make: Make, embedded_mqtt: EmbeddedMqtt, topic: str, client_id: str, peer: type[Peer]
) -> None:
    target = Target(embedded_mqtt.port_of(embedded_mqtt.ws_url), websocket=True)
    one = make(peer)
    one.connect(target, client_id, V5)
    one.subscribe(Filter(topic, 2))
    for payload in (b"small", bytes(100_000)):
        one.publish(topic, payload, 2)
        assert [message.payload for message in one.receive(1)] == [payload]
    one.disconnect()


@EACH_OF_5_0
def test_tls(make: Make, secure: EmbeddedMqtt, client_id: str, peer: type[Peer]) -> None:
    assert secure.certificates is not None
    target = Target(secure.port, context=secure.certificates.context(), ca=secure.certificates.ca)
    topic = secure.topic()
    one = make(peer)
    one.connect(target, client_id, V5)
    one.subscribe(Filter(topic, 2))
    one.publish(topic, b"x" * 50_000, 2)
    assert [len(message.payload) for message in one.receive(1)] == [50_000]
    one.disconnect()


@EACH_OF_5_0
def test_keep_alive(make: Make, target: Target, topic: str, client_id: str, peer: type[Peer]) -> None:
    # The minimum of mosquitto_sub is five seconds.
    seconds = 5 if peer is MosquittoPrograms else 1
    writer = make(Paho)
    writer.connect(target, f"{client_id}w", V5)
    for number in range(3):
        one = make(peer)
        one.connect(target, f"{client_id}{number}", V5, keep_alive=seconds)
        one.subscribe(Filter(topic, 1))
        one.nothing(seconds * 2.5)
        writer.publish(topic, b"still here", 1)
        # A peer whose machine stood still is rightly dropped; one that sends no pings is dropped
        # each time.
        if got := one.up_to(1, 10):
            break
    assert [message.payload for message in got] == [b"still here"]


# ------------------------------------------------------------------------------ cuts and restarts


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("before", [True, False], ids=["lost", "arrived"])
def test_a_publisher_cut_at_each_packet(
    make: Make, embedded_mqtt: EmbeddedMqtt, version: int, qos: int, before: bool
) -> None:
    kept = KEPT if version == V5 else None
    for at in range(qos * 2):
        topic, name = embedded_mqtt.topic(), f"cut{uuid.uuid4().hex[:8]}"
        watcher = make(Paho)
        watcher.connect(Target(embedded_mqtt.port), f"{name}w", version)
        watcher.subscribe(Filter(topic, 2))
        with Proxy(embedded_mqtt.port) as proxy:
            one = make(Paho)
            one.connect(Target(proxy.port), name, version, clean=False, properties=kept)
            if version == V5:
                # Its default requests a clean start on later connections too.
                one.client._clean_start = False
            proxy.cut_at(at, before=before)
            info = one.client.publish(topic, b"once", qos)
            assert one._ended.wait(PATIENCE)
            one.client.loop_stop()
            assert one.again() is True
            one.acknowledged(info)
            one.publish(topic, b"end", qos)
            one.disconnect()
        got: list[bytes] = []
        while b"end" not in got:
            got += [message.payload for message in watcher.receive(1)]
        assert got.count(b"end") == 1
        assert got.count(b"once") == 1 if qos == 2 else got.count(b"once") >= 1, (at, before, got)
        watcher.disconnect()


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("before", [True, False], ids=["lost", "arrived"])
def test_a_subscriber_cut_at_each_packet(
    make: Make, embedded_mqtt: EmbeddedMqtt, version: int, qos: int, before: bool
) -> None:
    kept = KEPT if version == V5 else None
    for at in range(qos * 2):
        topic, name = embedded_mqtt.topic(), f"cut{uuid.uuid4().hex[:8]}"
        writer = make(Paho)
        writer.connect(Target(embedded_mqtt.port), f"{name}w", version)
        with Proxy(embedded_mqtt.port) as proxy:
            one = make(Paho)
            one.connect(Target(proxy.port), name, version, clean=False, properties=kept)
            one.subscribe(Filter(topic, 2))
            if version == V5:
                one.client._clean_start = False
            proxy.cut_at(at, before=before)
            writer.publish(topic, b"once", qos)
            assert one._ended.wait(PATIENCE)
            one.client.loop_stop()
            assert one.again() is True
            writer.publish(topic, b"end", qos)
            got: list[bytes] = []
            while b"end" not in got:
                got += [message.payload for message in one.receive(1)]
            assert got.count(b"once") == 1 if qos == 2 else got.count(b"once") >= 1, (at, before, got)
            one.disconnect()
        writer.disconnect()


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@EACH_PEER
def test_sessions_retained_and_queued_messages_outlive_the_broker(
    make: Make, durable: EmbeddedMqtt, client_id: str, peer: type[Peer], version: int, kill: bool
) -> None:
    kept = KEPT if version == V5 and peer is not MosquittoPrograms else None
    topic = durable.topic()
    one = make(peer)
    one.connect(Target(durable.port), client_id, version, clean=False, properties=kept)
    one.subscribe(Filter(f"{topic}/#", 2))
    one.disconnect()
    writer = make(Paho)
    writer.connect(Target(durable.port), f"{client_id}w", V5)
    writer.publish(f"{topic}/1", b"1", 1)
    writer.publish(f"{topic}/2", b"2", 2, retain=True)
    durable.restart(kill=kill)
    again = make(peer)
    again.connect(Target(durable.port), client_id, version, clean=False, properties=kept)
    if peer is MosquittoPrograms:
        again.subscribe(Filter(f"{topic}/none", 2))
    assert [message.payload for message in again.receive(2)] == [b"1", b"2"]
    late = make(peer)
    late.connect(Target(durable.port), f"{client_id}l", version)
    late.subscribe(Filter(f"{topic}/#", 1))
    assert [(message.payload, message.retain) for message in late.receive(1)] == [(b"2", True)]
