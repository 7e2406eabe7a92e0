"""MQTT 5.0 only: properties, expiry, aliases, limits, flow control, errors."""

from __future__ import annotations

import time

import pytest

from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.mqtt.wire import V5, V311

PAIRS = [("z", "1"), ("a", "2"), ("z", "1"), ("größe", "☃"), ("", "")]


def test_properties_of_a_message_are_forwarded_unchanged(open, topic: str) -> None:
    one = open()
    one.subscribe([(topic, 1)])
    props = [
        ("payload_format_indicator", 1),
        ("content_type", "text/plain"),
        ("response_topic", "answers/to/me"),
        ("correlation_data", bytes(range(256))),
        *(("user_property", pair) for pair in PAIRS),
    ]
    one.publish(topic, "Grüße".encode(), 1, props=props)
    said = one.message()["properties"]
    assert [value for name, value in said if name == "user_property"] == PAIRS
    assert sorted(map(str, said)) == sorted(map(str, props))


def test_a_client_of_3_1_1_gets_the_message_without_them(open, topic: str) -> None:
    old, new = open(V311), open()
    old.subscribe([(topic, 1)])
    new.publish(topic, b"x", 1, props={"content_type": "text/plain", "message_expiry_interval": 60})
    assert old.message()["payload"] == b"x"


@pytest.mark.differs("mosquitto", "it does not look", props=[("response_topic", "a/+")])
@pytest.mark.differs("mosquitto", "it does not look", props=[("response_topic", "a/#")])
@pytest.mark.differs("mosquitto", "it does not look", props=[("subscription_identifier", 1)])
@pytest.mark.differs("mosquitto", "it does not look", props=[("payload_format_indicator", 2)])
@pytest.mark.parametrize(
    "props",
    [
        [("response_topic", "a/+")],
        [("response_topic", "a/#")],
        [("subscription_identifier", 1)],
        [("server_keep_alive", 1)],
        [("content_type", "a"), ("content_type", "b")],
        [("payload_format_indicator", 2)],
    ],
    ids=str,
)
def test_properties_that_a_client_may_not_send_close_the_connection(open, topic: str, props) -> None:
    one = open()
    one.send(wire.publish(topic, b"x", 1, 1, props=props))
    assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [0x90], [])


def test_a_block_of_properties_that_ends_early_closes_the_connection(open, topic: str) -> None:
    one = open()
    one.send(wire.packet(wire.PUBLISH, wire.binary(topic) + b"\x7f\x01\x00"))
    assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [])


def test_a_length_with_more_bytes_than_it_needs_closes_the_connection(open, topic: str) -> None:
    one = open()
    one.send(wire.packet(wire.PUBLISH, wire.binary(topic) + b"\x80\x00x"))
    assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [])


# ------------------------------------------------------------------------------ expiry


def test_the_expiry_that_is_forwarded_is_what_is_left(open, topic: str, client_id: str) -> None:
    kept = {"session_expiry_interval": 60}
    one, other = open(V5, client_id, props=kept), open()
    one.subscribe([(topic, 1)])
    other.publish(topic, b"x", 1, props={"message_expiry_interval": 1000})
    assert dict(one.message()["properties"])["message_expiry_interval"] in range(900, 1001)
    one.drop()
    other.publish(topic, b"waits", 1, props={"message_expiry_interval": 1000})
    time.sleep(2.1)
    back = open(V5, client_id, clean=False, props=kept)
    assert 900 <= dict(back.message()["properties"])["message_expiry_interval"] <= 998
    open(V5, client_id)


def test_a_message_that_expired_is_not_delivered(open, topic: str, client_id: str) -> None:
    kept = {"session_expiry_interval": 60}
    one, other = open(V5, client_id, props=kept), open()
    one.subscribe([(topic, 1)])
    one.drop()
    other.publish(topic, b"short", 1, props={"message_expiry_interval": 1})
    other.publish(topic, b"long", 1, props={"message_expiry_interval": 60})
    time.sleep(2.1)
    back = open(V5, client_id, clean=False, props=kept)
    assert back.message()["payload"] == b"long"
    back.quiet(0.1)
    open(V5, client_id)


# ------------------------------------------------------------------------------ aliases


def test_each_alias_up_to_the_maximum_stands_for_its_topic(open, topic: str) -> None:
    one = open()
    one.subscribe([(f"{topic}/#", 0)])
    maximum = one.property("topic_alias_maximum", 0)
    assert maximum > 0
    for alias in {1, maximum}:
        one.send(wire.publish(f"{topic}/{alias}", b"named", props={"topic_alias": alias}))
        one.send(wire.publish("", b"by alias", props={"topic_alias": alias}))
        for payload in (b"named", b"by alias"):
            said = one.message()
            assert (said["topic"], said["payload"]) == (f"{topic}/{alias}", payload)
            # An alias belongs to one connection; it is not forwarded.
            assert "topic_alias" not in dict(said["properties"])
    # A topic name reassigns it.
    one.send(wire.publish(f"{topic}/new", b"1", props={"topic_alias": 1}))
    one.send(wire.publish("", b"2", props={"topic_alias": 1}))
    assert [one.message()["topic"] for _ in range(2)] == [f"{topic}/new"] * 2


@pytest.mark.parametrize("which", ["zero", "too high", "unknown"])
def test_an_alias_that_is_none_closes_the_connection(open, topic: str, which: str) -> None:
    one = open()
    maximum = one.property("topic_alias_maximum", 0)
    alias, name = {"zero": (0, topic), "too high": (maximum + 1, topic), "unknown": (1, "")}[which]
    one.send(wire.publish(name, b"x", props={"topic_alias": alias}))
    assert [line["reason"] for line in one.closed()] in ([0x94], [0x82], [0x81], [])


def test_aliases_do_not_outlive_the_connection(open, topic: str, client_id: str) -> None:
    kept = {"session_expiry_interval": 60}
    one = open(V5, client_id, props=kept)
    one.publish(topic, b"x", 1, props={"topic_alias": 1})
    one.drop()
    back = open(V5, client_id, clean=False, props=kept)
    back.send(wire.publish("", b"x", props={"topic_alias": 1}))
    assert [line["reason"] for line in back.closed()] in ([0x94], [0x82], [])
    open(V5, client_id)


@pytest.mark.parametrize("maximum", [0, 1, 3])
def test_the_server_uses_no_alias_above_the_maximum_of_the_client(open, topic: str, maximum: int) -> None:
    one = open(props={"topic_alias_maximum": maximum})
    one.subscribe([(f"{topic}/#", 0)])
    names: dict[int, str] = {}
    for number in range(30):
        one.publish(f"{topic}/{number % 5}", b"%d" % number)
        said = one.message()
        alias = dict(said["properties"]).get("topic_alias")
        if alias is not None:
            assert 1 <= alias <= maximum
            if said["topic"]:
                names[alias] = said["topic"]
        assert (said["topic"] or names[alias]) == f"{topic}/{number % 5}"
        assert said["payload"] == b"%d" % number


# ------------------------------------------------------------------------------ limits


def test_the_server_sends_nothing_larger_than_the_client_takes(open, topic: str) -> None:
    small, any = open(props={"maximum_packet_size": 200}), open()
    for one in (small, any):
        one.subscribe([(topic, 1)])
    any.publish(topic, bytes(300), 1)
    any.publish(topic, b"fits", 1)
    assert [any.message()["payload"] for _ in range(2)] == [bytes(300), b"fits"]
    # For this client the large message counts as delivered.
    assert small.message()["payload"] == b"fits"
    small.quiet(0.1)


@pytest.mark.differs("hivemq", "it sends nothing more, not even at QoS 0, while something is in flight")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("maximum", [1, 3])
def test_the_server_stays_within_the_receive_maximum_of_the_client(
    open, topic: str, qos: int, maximum: int
) -> None:
    one, other = open(props={"receive_maximum": maximum}), open()
    one.subscribe([(topic, qos), (f"{topic}/0", 0)])
    for number in range(6):
        other.publish(topic, b"%d" % number, qos)
    first = [one.expect(wire.PUBLISH) for _ in range(maximum)]
    with pytest.raises(TimeoutError):
        one.packet(0.2)
    # Packets other than messages of QoS 1 and 2 go on.
    one.sync()
    other.publish(f"{topic}/0", b"QoS 0")
    assert one.expect(wire.PUBLISH)["payload"] == b"QoS 0"
    got = [said["payload"] for said in first]
    for said in first:
        one.send(wire.ack(wire.PUBACK if qos == 1 else wire.PUBREC, said["packet_id"]))
        if qos == 2:
            one.expect(wire.PUBREL)
            one.send(wire.ack(wire.PUBCOMP, said["packet_id"]))
    while len(got) < 6:
        got.append(one.message()["payload"])
    assert got == [b"%d" % number for number in range(6)]


def test_the_server_takes_as_many_in_flight_as_it_says(open, topic: str) -> None:
    one = open()
    maximum = one.property("receive_maximum", 65_535)
    count = min(maximum, 200)
    one.send(*[wire.publish(topic, b"x", 2, number) for number in range(1, count + 1)])
    assert [one.expect(wire.PUBREC)["packet_id"] for _ in range(count)] == list(range(1, count + 1))
    one.sync()


@pytest.mark.differs("mosquitto", "it takes more")
def test_one_message_more_than_the_server_takes_closes_the_connection(open, topic: str) -> None:
    one = open()
    maximum = one.property("receive_maximum", 65_535)
    if maximum > 1000:
        pytest.fail("the broker has no receive maximum that could be reached")
    one.send(*[wire.publish(topic, b"x", 2, number) for number in range(1, maximum + 2)])
    said = [line for line in one.closed() if line["type"] == "DISCONNECT"]
    assert [line["reason"] for line in said] in ([0x93], [])


# ------------------------------------------------------------------------------ answers


def test_without_problem_information_answers_have_no_words(open, topic: str) -> None:
    one = open(props={"request_problem_information": 0})
    one.send(wire.subscribe([("a/#/b", 0)]))
    packet = one.packet()
    assert packet is not None
    said = wire.parse(packet, V5)
    if said["type"] == "SUBACK":
        assert said["properties"] == []


@pytest.mark.parametrize(
    "packet",
    [
        wire.ack(wire.PUBACK, 1, 0, []),
        wire.ack(wire.PUBREL, 1, 0x92, [("reason_string", "unknown"), ("user_property", ("a", "b"))]),
        wire.ack(wire.PUBCOMP, 1, 0x92),
    ],
    ids=["PUBACK", "PUBREL", "PUBCOMP"],
)
def test_short_and_long_acknowledgements_are_read(open, packet: bytes) -> None:
    one = open()
    one.send(packet)
    if packet[0] >> 4 == wire.PUBREL:
        one.expect(wire.PUBCOMP)
    one.sync()


@pytest.mark.differs("mosquitto", "it takes it")
@pytest.mark.parametrize("code", [0x01, 0x7F])
def test_a_reason_code_that_there_is_not_closes_the_connection(open, topic: str, code: int) -> None:
    one, other = open(), open()
    one.subscribe([(topic, 1)])
    other.publish(topic, b"x", 1)
    one.send(wire.ack(wire.PUBACK, one.expect(wire.PUBLISH)["packet_id"], code))
    assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [])


@pytest.mark.differs("mosquitto", "it takes it", kind=wire.PINGRESP)
@pytest.mark.parametrize(
    "kind", [wire.CONNACK, wire.SUBACK, wire.UNSUBACK, wire.PINGRESP], ids=lambda kind: wire.NAMES[kind]
)
def test_packets_that_only_a_server_sends_close_the_connection(open, version: int, kind: int) -> None:
    one = open(version)
    one.send(wire.packet(kind, b"\0\0\0" if kind != wire.PINGRESP else b""))
    assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [])


def test_auth_without_a_method_closes_the_connection(open) -> None:
    one = open()
    one.send(wire.auth(0x19, [("authentication_method", "X")]))
    assert [line["reason"] for line in one.closed()] in ([0x82], [0x8C], [])


def test_auth_and_disconnect_with_reserved_flags_close_the_connection(open) -> None:
    for kind in (wire.AUTH, wire.DISCONNECT):
        one = open()
        one.send(wire.packet(kind, b"\0", 1))
        assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [])


@pytest.mark.differs("hivemq", "it processes it")
def test_nothing_of_a_client_is_processed_after_its_disconnect(broker: MqttService, open, topic: str) -> None:
    watcher, one = open(), open()
    watcher.subscribe(topic)
    one.send(wire.disconnect(), wire.publish(topic, b"late"))
    assert one.closed() == []
    # HiveMQ delivers it, sooner or later.
    watcher.quiet(30 if broker.name == "hivemq" else 0.2)
