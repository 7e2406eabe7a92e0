"""PUBLISH and its handshakes, the server's side."""

from __future__ import annotations

import pytest

from support.mqtt import wire
from support.mqtt.wire import V5

NUMBERED = [b"%03d" % number for number in range(30)]


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_message_comes_at_the_lower_of_both_qos(
    open, version: int, topic: str, published: int, granted: int
) -> None:
    one = open(version)
    assert one.subscribe([(topic, granted)]) == [granted]
    assert one.publish(topic, b"payload", published) < 0x80
    said = one.message()
    assert (said["topic"], said["payload"]) == (topic, b"payload")
    assert said["qos"] == min(published, granted)
    assert said["dup"] is False
    assert ("packet_id" in said) == (said["qos"] > 0)
    one.quiet(0.1)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 200_000])
def test_payloads_of_all_sizes_arrive_as_they_are(open, topic: str, size: int) -> None:
    one = open()
    one.subscribe([(topic, 1)])
    payload = bytes(number % 251 for number in range(size))
    one.publish(topic, payload, 1)
    assert one.message()["payload"] == payload


def test_each_answer_has_the_identifier_of_the_publish(open, version: int, topic: str) -> None:
    one = open(version)
    for packet_id in (1, 2, 255, 256, 65_535):
        one.publish(topic, b"x", 1, packet_id)
        one.publish(topic, b"x", 2, packet_id)


def test_identifier_zero_closes_the_connection(open, version: int, topic: str) -> None:
    one = open(version)
    one.send(wire.publish(topic, b"x", 1, 0, version))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


@pytest.mark.differs("mosquitto", "it takes a second repetition for an error")
def test_a_repeated_publish_of_qos_2_gets_pubrec_and_is_not_delivered_again(
    open, version: int, topic: str
) -> None:
    one, watcher = open(version), open(version)
    watcher.subscribe([(topic, 2)])
    for repeated in (False, True, True, True):
        one.send(wire.publish(topic, b"once", 2, 7, version, dup=repeated))
        assert one.expect(wire.PUBREC)["packet_id"] == 7
    for _ in range(2):
        # Every PUBREL is answered, repeated or not, so that the sender can release it.
        one.send(wire.ack(wire.PUBREL, 7))
        assert one.expect(wire.PUBCOMP)["packet_id"] == 7
    assert watcher.message()["payload"] == b"once"
    watcher.quiet()


def test_after_pubcomp_the_identifier_is_a_new_message(open, version: int, topic: str) -> None:
    one, watcher = open(version), open(version)
    watcher.subscribe([(topic, 2)])
    for payload in (b"first", b"second"):
        one.publish(topic, payload, 2, 7)
    assert [watcher.message()["payload"] for _ in range(2)] == [b"first", b"second"]


def test_after_puback_the_identifier_is_a_new_message_with_dup_too(open, version: int, topic: str) -> None:
    one, watcher = open(version), open(version)
    watcher.subscribe([(topic, 1)])
    one.publish(topic, b"first", 1, 7)
    one.publish(topic, b"second", 1, 7, dup=True)
    got = [watcher.message() for _ in range(2)]
    assert [said["payload"] for said in got] == [b"first", b"second"]
    # DUP of the outgoing packet is independent of that of the incoming one.
    assert [said["dup"] for said in got] == [False, False]


def test_a_pubrel_of_an_unknown_identifier_is_answered(open, version: int) -> None:
    one = open(version)
    one.send(wire.ack(wire.PUBREL, 77))
    said = one.expect(wire.PUBCOMP)
    assert said["packet_id"] == 77
    # 0x92 where the version has reasons and the broker is exact.
    assert said["reason"] in ({0, 0x92} if version == V5 else {0})


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_one_client_come_in_their_order(open, version: int, topic: str, qos: int) -> None:
    watcher, one = open(version), open(version)
    watcher.subscribe([(topic, qos)])
    for number, payload in enumerate(NUMBERED, 1):
        one.publish(topic, payload, qos, number)
    assert [watcher.message()["payload"] for _ in NUMBERED] == NUMBERED


@pytest.mark.parametrize("qos", [1, 2])
def test_identifiers_of_the_server_are_not_zero_and_not_in_use(
    open, topic: str, client_id: str, qos: int
) -> None:
    kept = {"session_expiry_interval": 60}
    watcher, one = open(V5, client_id, props=kept), open()
    watcher.subscribe([(topic, qos)])
    watcher.drop()
    for payload in NUMBERED[:5]:
        one.publish(topic, payload, qos)
    back = open(V5, client_id, clean=False, props=kept)
    seen = [back.expect(wire.PUBLISH)["packet_id"] for _ in range(5)]
    assert 0 not in seen
    assert len(set(seen)) == len(seen)
    open(V5, client_id)


def test_a_slow_qos_2_subscriber_gets_pubrel_and_not_publish_again(open, version: int, topic: str) -> None:
    watcher, one = open(version), open(version)
    watcher.subscribe([(topic, 2)])
    one.publish(topic, b"once", 2)
    packet_id = watcher.expect(wire.PUBLISH)["packet_id"]
    watcher.quiet(0.2)
    for _ in range(2):
        watcher.send(wire.ack(wire.PUBREC, packet_id))
        assert watcher.expect(wire.PUBREL)["packet_id"] == packet_id
    watcher.send(wire.ack(wire.PUBCOMP, packet_id))
    watcher.quiet()


@pytest.mark.differs("hivemq", "it sends PUBREL after a refusal")
def test_a_message_that_the_subscriber_refuses_is_done_with(open, topic: str, client_id: str) -> None:
    kept = {"session_expiry_interval": 60}
    watcher, one = open(V5, client_id, props=kept), open()
    watcher.subscribe([(topic, 2)])
    one.publish(topic, b"refused", 1, 1)
    watcher.send(wire.ack(wire.PUBACK, watcher.expect(wire.PUBLISH)["packet_id"], 0x97))
    one.publish(topic, b"refused too", 2, 1)
    watcher.send(wire.ack(wire.PUBREC, watcher.expect(wire.PUBLISH)["packet_id"], 0x97))
    watcher.quiet()
    watcher.drop()
    back = open(V5, client_id, clean=False, props=kept)
    assert back.connack["session_present"]
    back.quiet()


@pytest.mark.parametrize(
    ("name", "packet"),
    [
        ("QoS 3", wire.packet(wire.PUBLISH, b"\0\1t\0\1", 0b0110)),
        ("a remaining length of five bytes", b"\x30\xff\xff\xff\xff\x7f"),
        ("a topic longer than the packet", wire.packet(wire.PUBLISH, b"\0\x09t")),
        ("no packet identifier", wire.packet(wire.PUBLISH, b"\0\1t", 0b0010)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_publish_closes_the_connection(open, version: int, name: str, packet: bytes) -> None:
    one = open(version)
    one.send(packet)
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


@pytest.mark.parametrize("topic_name", [b"a/+", b"a/#", b"#", b"a\0b", b"", b"\xff", b"a\xed\xa0\x80"])
def test_a_topic_name_that_is_none_closes_the_connection(open, version: int, topic_name: bytes) -> None:
    one = open(version)
    one.send(wire.publish(topic_name, b"x", 1, 1, version))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82], [0x90])


@pytest.mark.differs("mosquitto", "it takes it")
def test_dup_at_qos_0_closes_the_connection(open, version: int, topic: str) -> None:
    one = open(version)
    one.send(wire.publish(topic, b"x", 0, version=version, dup=True))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])
