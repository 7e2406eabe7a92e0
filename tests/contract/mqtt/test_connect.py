"""CONNECT and CONNACK: accepted and refused connections, and the form of a refusal."""

from __future__ import annotations

import pytest

from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.mqtt.wire import V5, V31, V311, Will


def refused(broker: MqttService, version: int, packet: bytes) -> int | None:
    """The reason of the refusal, or None when the broker closes without one."""
    with broker.raw(version) as one:
        one.send(packet)
        said = one.closed()
    if not said:
        return None
    assert [line["type"] for line in said] == ["CONNACK"], said
    assert said[0]["session_present"] is False
    assert said[0]["reason"] != 0
    return said[0]["reason"]


def test_connect_is_answered_with_one_connack(open, version: int) -> None:
    one = open(version)
    assert one.connack["session_present"] is False
    one.quiet()


def test_flags_of_connack_are_zero_but_for_session_present(broker: MqttService, version: int) -> None:
    with broker.raw(version) as one:
        one.send(wire.connect("flags", version))
        packet = one.packet()
    assert packet is not None
    assert packet.flags == 0
    assert packet.body[0] == 0


@pytest.mark.parametrize(
    "client_id", ["a", "0123456789ABCDEFGHIJabc", "abcdefghijklmnopqrstuvw", "KLMNOPQRSTUVWXYZxyz"]
)
def test_identifiers_of_1_to_23_digits_and_letters_are_accepted(open, version: int, client_id: str) -> None:
    open(version, client_id).sync()


def test_an_empty_identifier_is_assigned_by_the_server(broker: MqttService, open) -> None:
    first, second = open(V5, ""), open(V5, "")
    names = [one.property("assigned_client_identifier") for one in (first, second)]
    assert all(names)
    assert len(set(names)) == 2
    # It names the session: a client that connects with it takes the session over.
    with broker.raw() as third:
        assert third.connect(names[0])["reason"] == 0
        assert [line["reason"] for line in first.closed()] in ([], [0x8E])


def test_two_clients_of_3_1_1_without_identifier_are_two(open) -> None:
    first, second = open(V311, ""), open(V311, "")
    first.sync()
    second.sync()


def test_an_empty_identifier_without_clean_session_is_refused(broker: MqttService) -> None:
    assert refused(broker, V311, wire.connect("", V311, clean=False)) in {2, None}


def test_a_second_connect_closes_the_connection(open, version: int) -> None:
    one = open(version)
    one.send(wire.connect("again", version))
    said = one.closed()
    assert [line["reason"] for line in said if line["type"] == "DISCONNECT"] in ([], [0x82])
    assert all(line["type"] == "DISCONNECT" for line in said)


@pytest.mark.differs("hivemq", "it ignores the packet and waits for CONNECT")
@pytest.mark.parametrize(
    "packet",
    [
        wire.packet(wire.PINGREQ),
        wire.publish("t", b"1", 0, version=V311),
        wire.subscribe("t", 1, V311),
        wire.packet(wire.DISCONNECT),
        wire.packet(wire.CONNACK, b"\0\0"),
    ],
    ids=["PINGREQ", "PUBLISH", "SUBSCRIBE", "DISCONNECT", "CONNACK"],
)
def test_anything_before_connect_closes_the_connection(broker: MqttService, packet: bytes) -> None:
    with broker.raw(V311) as one:
        one.send(packet)
        assert one.closed() == []


def test_another_protocol_name_closes_the_connection(broker: MqttService, version: int) -> None:
    assert refused(broker, version, wire.connect("x", version, name="MQTX")) in {1, 0x84, None}


def test_a_level_that_nobody_speaks_is_refused(broker: MqttService) -> None:
    assert refused(broker, V5, wire.connect("x", 9, name="MQTT")) in {1, 0x84, None}


def test_the_reserved_connect_flag_is_checked(broker: MqttService, version: int) -> None:
    assert refused(broker, version, wire.connect("x", version, flags=1)) in {None, 0x81}


@pytest.mark.parametrize("flags", [0x08, 0x10, 0x20], ids=["QoS 1", "QoS 2", "retain"])
def test_will_flags_without_a_will_are_refused(broker: MqttService, version: int, flags: int) -> None:
    assert refused(broker, version, wire.connect("x", version, flags=flags)) in {None, 0x81, 0x82}


def test_a_will_of_qos_3_is_refused(broker: MqttService, version: int) -> None:
    packet = wire.connect("x", version, will=Will("t", b"1", 3))
    assert refused(broker, version, packet) in {None, 0x81, 0x82, 0x9B}


def test_a_password_without_user_name_is_refused_in_3_1_1(broker: MqttService) -> None:
    assert refused(broker, V311, wire.connect("x", V311, password=b"p")) in {None, 4}


def test_a_password_without_user_name_is_allowed_in_5_0(open) -> None:
    open(V5, password=b"p").sync()


@pytest.mark.differs("hivemq", "it takes any bytes as a user name", version=V311, field="user name")
@pytest.mark.parametrize("field", ["client identifier", "will topic", "user name"])
@pytest.mark.parametrize(
    "bad", [b"a\xc0\xaf", b"a\xed\xa0\x80", b"a\0"], ids=["overlong", "surrogate", "null"]
)
def test_strings_of_connect_are_well_formed(
    broker: MqttService, version: int, field: str, bad: bytes
) -> None:
    mark = "MARK"
    options = {
        "client identifier": {"client_id": mark},
        "will topic": {"client_id": "x", "will": Will(mark)},
        "user name": {"client_id": "x", "username": mark},
    }[field]
    packet = wire.connect(version=version, **options)
    # Of the same length, so that the remaining length stays.
    packet = packet.replace(mark.encode(), bad.ljust(4, b"a")[:4])
    assert refused(broker, version, packet) in {None, 0x81, 0x82, 0x85, 0x90, 2}


@pytest.mark.differs("hivemq", "it takes what is too much")
def test_fields_that_are_missing_or_too_many_are_refused(broker: MqttService, version: int) -> None:
    whole = wire.connect("x", version)
    body = whole[2:]
    for wrong in (body[:-1], body + b"\0", body[: len(body) - 2]):
        with broker.raw(version) as one:
            one.send(wire.packet(wire.CONNECT, wrong))
            one.socket.shutdown(1)
            assert all(line["reason"] for line in one.closed())


@pytest.mark.differs("mosquitto", "it closes without a DISCONNECT", version=V5)
def test_who_connects_with_an_identifier_in_use_takes_over(open, version: int, client_id: str) -> None:
    first = open(version, client_id)
    second = open(version, client_id)
    assert [line.get("reason") for line in first.closed()] == ([0x8E] if version == V5 else [])
    second.sync()


def test_the_identifier_names_the_session_whatever_its_case(open, version: int, client_id: str) -> None:
    first, second = open(version, client_id), open(version, client_id.upper())
    first.sync()
    second.sync()


@pytest.mark.parametrize(
    ("name", "value"),
    [("receive_maximum", 0), ("maximum_packet_size", 0), ("request_problem_information", 2)],
)
def test_values_that_the_standard_forbids_are_refused(broker: MqttService, name: str, value: int) -> None:
    assert refused(broker, V5, wire.connect("x", V5, props={name: value})) in {0x81, 0x82, None}


def test_a_property_twice_is_refused(broker: MqttService) -> None:
    props = [("session_expiry_interval", 1), ("session_expiry_interval", 1)]
    assert refused(broker, V5, wire.connect("x", V5, props=props)) in {0x81, 0x82, None}


def test_a_property_that_does_not_belong_in_connect_is_refused(broker: MqttService) -> None:
    assert refused(broker, V5, wire.connect("x", V5, props={"topic_alias": 1})) in {0x81, 0x82, None}


@pytest.mark.differs("mosquitto", "it ignores them")
def test_authentication_data_without_method_are_refused(broker: MqttService) -> None:
    packet = wire.connect("x", V5, props={"authentication_data": b"1"})
    assert refused(broker, V5, packet) in {0x81, 0x82, 0x8C, None}


@pytest.mark.differs("hivemq", "without an authenticator it accepts any method")
def test_an_authentication_method_that_nobody_knows_is_refused(broker: MqttService) -> None:
    packet = wire.connect("x", V5, props={"authentication_method": "UNKNOWN"})
    assert refused(broker, V5, packet) in {0x8C, 0x87}


def test_response_information_is_given_only_when_it_is_asked_for(open) -> None:
    assert open(V5).property("response_information") is None
    assert open(V5, props={"request_response_information": 0}).property("response_information") is None


def test_without_a_method_there_is_none_in_connack(open) -> None:
    assert open(V5).property("authentication_method") is None


def test_ping_is_answered(open, version: int) -> None:
    one = open(version)
    for _ in range(3):
        one.sync()


def test_who_is_silent_for_one_and_a_half_times_the_keep_alive_is_disconnected(open, version: int) -> None:
    for attempts_left in reversed(range(5)):
        one = open(version, keep_alive=1)
        try:
            # Alive as long as it sends packets. It sends none while the machine stands still.
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    one.packet(0.5)
                one.sync()
            break
        except (AssertionError, OSError, pytest.fail.Exception):
            if not attempts_left:
                raise
    # Brokers check periodically, not every second.
    said = one.closed()
    assert [line["reason"] for line in said] in ([], [0x8D])


def test_without_keep_alive_nobody_is_disconnected(open, version: int) -> None:
    # A test cannot wait for ever. But the broker assigns no short keep alive of its own.
    one = open(version, keep_alive=0)
    assert one.property("server_keep_alive", 65535) > 60
    one.quiet(0.5)


def test_packets_right_behind_connect_are_processed(broker: MqttService, version: int, topic: str) -> None:
    with broker.raw(version) as one:
        one.send(
            wire.connect("", version),
            wire.subscribe(topic, 1, version),
            wire.publish(topic, b"early", 0, version=version),
        )
        assert one.expect(wire.CONNACK)["reason"] == 0
        assert one.expect(wire.SUBACK)["reasons"] == [0]
        assert one.message()["payload"] == b"early"


def test_packets_behind_a_refused_connect_are_not_processed(
    broker: MqttService, open, version: int, topic: str
) -> None:
    watcher = open(version)
    watcher.subscribe(topic)
    with broker.raw(version) as one:
        one.send(wire.connect("x", version, flags=1), wire.publish(topic, b"never", 0, version=version))
        one.closed()
    watcher.quiet()


def test_a_packet_may_come_in_pieces(broker: MqttService, version: int, topic: str) -> None:
    with broker.raw(version) as one:
        for byte in wire.connect("piecemeal", version):
            one.send(bytes([byte]))
        assert one.expect(wire.CONNACK)["reason"] == 0
        for byte in wire.subscribe(topic, 1, version) + wire.publish(topic, b"x" * 150, 0, version=version):
            one.send(bytes([byte]))
        assert one.expect(wire.SUBACK)["reasons"] == [0]
        assert one.message()["payload"] == b"x" * 150


def test_the_name_of_3_1_is_its_own(open, topic: str) -> None:
    one = open(V31)
    one.subscribe([(topic, 2)])
    one.publish(topic, b"x", 2)
    assert one.message()["qos"] == 2
