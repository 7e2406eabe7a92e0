"""SUBSCRIBE, UNSUBSCRIBE, matching, shared subscriptions."""

from __future__ import annotations

import contextlib
import time

import pytest

from support.mqtt import wire
from support.mqtt.wire import V5, V311
from support.waiting import PATIENCE

MOSQUITTO = pytest.param("mosquitto", marks=pytest.mark.real_mqtt)

NO_LOCAL = 0b100


@pytest.mark.parametrize("packet_id", [1, 300, 65_535])
def test_suback_has_the_identifier_and_a_code_for_each_filter_in_order(
    open, version: int, topic: str, packet_id: int
) -> None:
    one = open(version)
    filters = [(f"{topic}/{qos}", qos) for qos in (2, 0, 1)]
    one.send(wire.subscribe(filters, packet_id, version))
    said = one.expect(wire.SUBACK)
    assert said["packet_id"] == packet_id
    assert said["reasons"] == [2, 0, 1]


@pytest.mark.differs("hivemq", "0x00 is all it says", version=V5)
@pytest.mark.parametrize("packet_id", [1, 300, 65_535])
def test_unsuback_has_the_identifier_and_comes_for_what_was_never_subscribed(
    open, version: int, topic: str, packet_id: int
) -> None:
    one = open(version)
    one.subscribe(topic)
    one.send(wire.unsubscribe([f"{topic}/never", topic], packet_id, version))
    said = one.expect(wire.UNSUBACK)
    assert said["packet_id"] == packet_id
    assert said["reasons"] == ([0x11, 0] if version == V5 else [])


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("{}/#", "{}", True),
        ("{}/#", "{}/a/b", True),
        ("{}/+", "{}/a", True),
        ("{}/+", "{}", False),
        ("{}/+", "{}/", True),
        ("{}/+", "{}/a/b", False),
        ("{}/+/b", "{}/a/b", True),
        ("{}/+/b", "{}//b", True),
        ("{}/+/+", "{}/a", False),
        ("{}/a", "{}/A", False),
        ("{}/a", "{}/a/", False),
        ("{}/a", "{}//a", False),
        ("+/+/a", "{}/a", True),
        ("/{}", "{}", False),
        ("+/{}", "/{}", True),
        ("{}/\N{ANGSTROM SIGN}", "{}/\N{LATIN CAPITAL LETTER A WITH RING ABOVE}", False),
        ("{}/\ufeff", "{}/\ufeff", True),
        ("{}/\ufeffa", "{}/a", False),
        ("{}/$x", "{}/$x", True),
        ("{}/#", "{}/$x", True),
    ],
)
def test_matching(open, topic: str, pattern: str, name: str, matches: bool) -> None:
    one = open()
    one.subscribe([(pattern.format(topic), 0), (f"{topic}/mark/mark/mark", 0)])
    one.publish(name.format(topic), b"x")
    one.publish(f"{topic}/mark/mark/mark", b"mark")
    got = []
    while b"mark" not in got:
        said = one.message()
        got.append(said["payload"])
        if said["payload"] == b"x":
            assert said["topic"] == name.format(topic)
    assert (b"x" in got) == matches


@pytest.mark.differs("hivemq", "it lets no client publish to such a topic")
@pytest.mark.parametrize("pattern", ["#", "+/{}", "+/#"])
def test_a_filter_that_begins_with_a_wildcard_does_not_match_what_begins_with_a_dollar(
    open, topic: str, pattern: str
) -> None:
    one = open()
    name = topic.replace("/", "")
    one.subscribe([(pattern.format(name), 0), (f"mark/{name}", 0)])
    one.publish(f"$private/{name}", b"x")
    one.publish(f"mark/{name}", b"mark")
    while (said := one.message())["topic"] != f"mark/{name}":
        assert not said["topic"].startswith("$")


@pytest.mark.differs("mosquitto", "it grants it", version=V5, filter="$share/g")
@pytest.mark.differs("mosquitto", "it grants it", version=V5, filter="$share//t")
@pytest.mark.differs("mosquitto", "it grants it", version=V5, filter="$share/+/t")
@pytest.mark.parametrize(
    "filter", ["a/#/b", "a#", "#a", "a+", "+a/b", "a/b+", "", "a\0", "$share/g", "$share//t", "$share/+/t"]
)
def test_a_filter_that_is_none_is_refused(open, version: int, filter: str) -> None:
    one = open(version)
    one.send(wire.subscribe([(filter, 0)], 1, version))
    packet = one.packet()
    if packet is not None and packet.kind == wire.SUBACK:
        reasons = wire.parse(packet, version)["reasons"]
        # Before MQTT 5.0 shared subscriptions are an extension of some brokers.
        assert reasons[0] >= 0x80 or (version < V5 and filter.startswith("$share"))
    elif packet is not None:
        assert wire.parse(packet, version)["reason"] in {0x81, 0x82, 0x8F}
        assert one.packet() is None


@pytest.mark.parametrize(
    "kind", [wire.SUBSCRIBE, wire.UNSUBSCRIBE, wire.PUBREL], ids=lambda kind: wire.NAMES[kind]
)
def test_flags_that_are_reserved_close_the_connection(open, version: int, kind: int, topic: str) -> None:
    one = open(version)
    body = {
        wire.SUBSCRIBE: wire.subscribe(topic, 1, version),
        wire.UNSUBSCRIBE: wire.unsubscribe(topic, 1, version),
        wire.PUBREL: wire.ack(wire.PUBREL, 1),
    }[kind][2:]
    one.send(wire.packet(kind, body, 0))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


@pytest.mark.parametrize("kind", [wire.SUBSCRIBE, wire.UNSUBSCRIBE], ids=lambda kind: wire.NAMES[kind])
def test_no_filter_at_all_closes_the_connection(open, version: int, kind: int) -> None:
    one = open(version)
    one.send(wire.packet(kind, b"\0\1" + wire.properties(version)))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


@pytest.mark.parametrize("options", [0b11, 0b1100_0000, 0b0100_0000, 0b1000_0000])
def test_options_that_are_reserved_close_the_connection(open, version: int, options: int, topic: str) -> None:
    one = open(version)
    one.send(wire.subscribe([(topic, options)], 1, version))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


def test_identifier_zero_closes_the_connection(open, version: int, topic: str) -> None:
    one = open(version)
    one.send(wire.subscribe(topic, 0, version))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


def test_subscribing_again_replaces(open, version: int, topic: str) -> None:
    one = open(version)
    for qos in (2, 0, 1):
        assert one.subscribe([(topic, qos)]) == [qos]
        one.publish(topic, b"x", 2)
        assert one.message()["qos"] == qos
        one.quiet(0.1)


def test_unsubscribe_compares_byte_by_byte(open, version: int, topic: str) -> None:
    one = open(version)
    one.subscribe([(f"{topic}/+", 0)])
    for other in (f"{topic}/a", f"{topic}/#", f"{topic.upper()}/+"):
        one.send(wire.unsubscribe(other, 2, version))
        one.expect(wire.UNSUBACK)
    one.publish(f"{topic}/a", b"x")
    one.message()
    one.send(wire.unsubscribe(f"{topic}/+", 2, version))
    one.expect(wire.UNSUBACK)
    one.publish(f"{topic}/a", b"x")
    one.quiet(0.1)


def test_what_was_begun_is_finished_after_unsubscribe(open, version: int, topic: str) -> None:
    one, other = open(version), open(version)
    one.subscribe([(topic, 2)])
    other.publish(topic, b"begun", 2)
    packet_id = one.expect(wire.PUBLISH)["packet_id"]
    one.send(wire.unsubscribe(topic, 2, version))
    one.expect(wire.UNSUBACK)
    one.send(wire.ack(wire.PUBREC, packet_id))
    assert one.expect(wire.PUBREL)["packet_id"] == packet_id
    one.send(wire.ack(wire.PUBCOMP, packet_id))
    one.quiet(0.1)


@pytest.mark.differs("mosquitto", "the last one found decides", version=V311)
def test_overlapping_filters_respect_the_highest_qos(open, version: int, topic: str) -> None:
    one = open(version)
    one.subscribe([(f"{topic}/#", 0), (f"{topic}/+", 2), (f"{topic}/a", 1)])
    one.publish(f"{topic}/a", b"x", 2)
    # One copy, or one for each filter: the standard leaves it to the server.
    got = [one.message()]
    one.sync()
    while True:
        try:
            got.append(one.message(0.2))
        except TimeoutError:
            break
    assert max(said["qos"] for said in got) == 2
    assert len(got) in {1, 3}


def test_overlapping_filters_bring_all_identifiers(open, topic: str) -> None:
    one = open()
    for number, pattern in ((5, f"{topic}/#"), (268_435_455, f"{topic}/+")):
        one.subscribe([(pattern, 1)], number % 100 + 1, props={"subscription_identifier": number})
    one.publish(f"{topic}/a", b"x", 1)
    seen: set[int] = set()
    while len(seen) < 2:
        seen |= {value for name, value in one.message()["properties"] if name == "subscription_identifier"}
    assert seen == {5, 268_435_455}


def test_the_identifier_of_a_subscription_is_replaced_with_it(open, topic: str) -> None:
    one = open()
    for number in (5, 6):
        one.subscribe([(topic, 0)], props={"subscription_identifier": number})
    one.subscribe([(f"{topic}/other", 0)])
    one.publish(topic, b"x")
    assert ("subscription_identifier", 6) in one.message()["properties"]
    one.publish(f"{topic}/other", b"x")
    assert one.message()["properties"] == []


@pytest.mark.parametrize("props", [[("subscription_identifier", 0)], [("subscription_identifier", 1)] * 2])
def test_an_identifier_of_a_subscription_is_one_and_not_zero(open, topic: str, props: list) -> None:
    one = open()
    one.send(wire.subscribe([(topic, 0)], 1, props=props))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


def test_no_local(open, topic: str) -> None:
    one, other = open(), open()
    one.subscribe([(topic, NO_LOCAL)])
    one.publish(topic, b"mine", 1)
    other.publish(topic, b"another's", 1)
    assert one.message()["payload"] == b"another's"
    one.quiet(0.1)


@pytest.mark.differs("mosquitto", "it grants it")
def test_no_local_on_a_shared_subscription_closes_the_connection(open, topic: str) -> None:
    one = open()
    one.send(wire.subscribe([(f"$share/g/{topic}", NO_LOCAL)]))
    assert [line["reason"] for line in one.closed()] in ([], [0x81], [0x82])


@pytest.mark.differs("hivemq", "it grants QoS 1 at most", qos=2)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_shared_subscription_gives_each_message_to_one_member(open, topic: str, qos: int) -> None:
    members, other = [open() for _ in range(3)], open()
    for member in members:
        member.subscribe([(f"$share/group/{topic}/+", qos)])
    sent = {b"%d" % number for number in range(12)}
    for payload in sent:
        other.publish(f"{topic}/x", payload, qos)
    got: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(got) < 12 and time.monotonic() < deadline:
        for member in members:
            with contextlib.suppress(TimeoutError):
                said = member.message(0.05)
                assert said["topic"] == f"{topic}/x"
                assert said["qos"] == qos
                got.append(said["payload"])
    for member in members:
        member.quiet(0.1)
    assert len(got) == 12
    assert set(got) == sent


def test_each_group_and_who_has_none_get_each_message(open, topic: str) -> None:
    other = open()
    for pattern in (f"$share/a/{topic}", f"$share/b/{topic}", topic):
        one = open()
        one.subscribe([(pattern, 1)])
        other.publish(topic, pattern.encode(), 1)
        assert one.message()["payload"] == pattern.encode()


# HiveMQ sends some of the copies, and takes turns by other rules.
@pytest.mark.parametrize("broker", ["embedded_mqtt", MOSQUITTO], indirect=True)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "filters",
    [("$share/g/{}/+", "{}/#"), ("{}/#", "$share/g/{}/+", "{}/+"), ("$share/g/{}/+", "$share/h/{}/#")],
    ids=["shared first", "shared in the middle", "shared only"],
)
def test_a_client_of_mqtt_3_gets_a_message_once_for_shared_and_other_filters(
    open, topic: str, filters: tuple[str, ...], qos: int
) -> None:
    """3.3.5 of MQTT 3.1.1. Clients of MQTT 5 tell the copies by their subscription identifiers."""
    one, member, other = open(V311), open(V311), open()
    for pattern in filters:
        one.subscribe([(pattern.format(topic), qos)])
    member.subscribe([(f"$share/g/{topic}/+", qos)])
    for number in range(4):
        other.publish(f"{topic}/x", b"%d" % number, qos)
    assert [one.message()["payload"] for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    # The member has its turns nevertheless.
    assert [member.message()["payload"] for _ in range(2)] in ([b"0", b"2"], [b"1", b"3"])
    one.quiet(0.1)
    member.quiet(0.1)


def test_who_leaves_a_group_gets_nothing_more(open, topic: str) -> None:
    stays, leaves, other = open(), open(), open()
    for member in (stays, leaves):
        member.subscribe([(f"$share/g/{topic}", 1)])
    leaves.send(wire.unsubscribe(f"$share/g/{topic}"))
    assert leaves.expect(wire.UNSUBACK)["reasons"] == [0]
    for number in range(6):
        other.publish(topic, b"%d" % number, 1)
    assert [stays.message()["payload"] for _ in range(6)] == [b"%d" % number for number in range(6)]
    leaves.quiet(0.1)


def test_a_member_of_qos_0_gets_messages_at_qos_0(open, topic: str) -> None:
    one, other = open(), open()
    one.subscribe([(f"$share/g/{topic}", 0)])
    other.publish(topic, b"x", 2)
    assert one.message()["qos"] == 0
