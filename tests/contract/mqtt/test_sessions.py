"""Sessions: state that outlives a connection, and redelivery."""

from __future__ import annotations

import time

import pytest

from support.mqtt import wire
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE


@pytest.fixture
def session(open, client_id: str):
    """``session(version)``: a connection of one persistent session."""

    def make(version: int, **options):
        if version == V5:
            options.setdefault("props", {"session_expiry_interval": 60})
        return open(version, client_id, clean=False, **options)

    yield make
    # Discards the session.
    open(V5, client_id)


@pytest.mark.parametrize("version", [V31, V311, V5], indirect=True)
def test_session_present_says_whether_there_was_one(session, open, version: int, client_id: str) -> None:
    one = session(version)
    assert one.connack["session_present"] is False
    one.drop()
    if version > 3:
        assert session(version).connack["session_present"] is True
    again = open(version, client_id)
    assert again.connack["session_present"] is False


def test_a_session_of_its_connection_ends_with_it(open, version: int, client_id: str, topic: str) -> None:
    one = open(version, client_id)
    one.subscribe([(topic, 1)])
    one.drop()
    back = open(version, client_id, clean=False)
    assert back.connack["session_present"] is False
    back.publish(topic, b"x", 1)
    back.quiet(0.1)


@pytest.mark.parametrize("ending", ["disconnect", "drop"])
def test_subscriptions_and_messages_wait_for_the_client(
    session, open, version: int, topic: str, ending: str
) -> None:
    one = session(version)
    one.subscribe([(f"{topic}/+", 2)])
    if ending == "disconnect":
        one.send(wire.disconnect())
        one.closed()
    one.drop()
    other = open(version)
    for qos in (1, 2):
        other.publish(f"{topic}/{qos}", b"%d" % qos, qos)
    back = session(version)
    got = {(said["payload"], said["qos"], said["dup"]) for said in (back.message(), back.message())}
    assert got == {(b"1", 1, False), (b"2", 2, False)}
    other.publish(f"{topic}/x", b"live", 1)
    assert back.message()["payload"] == b"live"


def test_messages_that_waited_come_in_their_order(session, open, version: int, topic: str) -> None:
    one = session(version)
    one.subscribe([(topic, 1)])
    one.drop()
    other = open(version)
    sent = [b"%02d" % number for number in range(40)]
    for payload in sent:
        other.publish(topic, payload, 1)
    back = session(version)
    assert [back.message()["payload"] for _ in sent] == sent


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_comes_again_with_dup_and_its_identifier(
    session, open, version: int, topic: str, qos: int
) -> None:
    one = session(version)
    one.subscribe([(topic, qos)])
    one.drop()
    other = open(version)
    for payload in (b"1", b"2", b"3"):
        other.publish(topic, payload, qos)
    one = session(version)
    first = [one.expect(wire.PUBLISH) for _ in range(3)]
    one.drop()
    back = session(version)
    again = [back.expect(wire.PUBLISH) for _ in range(3)]
    assert [said["payload"] for said in again] == [b"1", b"2", b"3"]
    assert [said["packet_id"] for said in again] == [said["packet_id"] for said in first]
    assert all(said["dup"] for said in again)


def test_after_pubrec_only_pubrel_comes_again(session, open, version: int, topic: str) -> None:
    one = session(version)
    one.subscribe([(topic, 2)])
    open(version).publish(topic, b"once", 2)
    packet_id = one.expect(wire.PUBLISH)["packet_id"]
    one.send(wire.ack(wire.PUBREC, packet_id))
    one.expect(wire.PUBREL)
    one.drop()
    back = session(version)
    assert back.expect(wire.PUBREL)["packet_id"] == packet_id
    back.send(wire.ack(wire.PUBCOMP, packet_id))
    back.quiet(0.2)


def test_a_qos_2_message_of_a_client_that_was_cut_is_delivered_once(
    session, open, version: int, topic: str
) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 2)])
    one = session(version)
    one.send(wire.publish(topic, b"once", 2, 9, version))
    one.expect(wire.PUBREC)
    one.drop()
    back = session(version)
    back.send(wire.publish(topic, b"once", 2, 9, version, dup=True))
    assert back.expect(wire.PUBREC)["packet_id"] == 9
    back.send(wire.ack(wire.PUBREL, 9))
    back.expect(wire.PUBCOMP)
    assert watcher.message()["payload"] == b"once"
    watcher.quiet(0.2)


def test_a_clean_start_throws_away_what_waited(
    session, open, version: int, topic: str, client_id: str
) -> None:
    one = session(version)
    one.subscribe([(topic, 1)])
    one.drop()
    open(version).publish(topic, b"lost", 1)
    clean = open(version, client_id)
    assert clean.connack["session_present"] is False
    clean.quiet(0.2)
    clean.publish(topic, b"x", 1)
    clean.quiet(0.1)


def test_unsubscribing_is_kept_too(session, open, version: int, topic: str) -> None:
    one = session(version)
    one.subscribe([(topic, 1)])
    one.send(wire.unsubscribe(topic, 2, version))
    one.expect(wire.UNSUBACK)
    one.drop()
    open(version).publish(topic, b"x", 1)
    session(version).quiet(0.2)


def test_a_session_taken_over_goes_on(session, open, version: int, topic: str) -> None:
    one = session(version)
    one.subscribe([(topic, 1)])
    second = session(version)
    one.closed()
    open(version).publish(topic, b"x", 1)
    assert second.message()["payload"] == b"x"


def test_options_of_a_subscription_are_kept(session, open, settle, version: int, topic: str) -> None:
    one = session(version)
    if version == V5:
        settle(one, 1 | 0b1100, props={"subscription_identifier": 77})
    else:
        settle(one)
    # Its acknowledgement has arrived: it does not come again.
    one.sync()
    one.drop()
    back = session(version)
    other = open(version)
    other.publish(topic, b"x", 2, retain=True)
    said = back.message()
    assert (said["payload"], said["qos"]) == (b"x", 1)
    assert said["retain"] is (version == V5)
    if version == V5:
        assert ("subscription_identifier", 77) in said["properties"]
        back.publish(topic, b"mine", 1)
        back.quiet(0.1)
    other.publish(topic, b"", 1, retain=True)


def test_a_session_expires(open, client_id: str) -> None:
    one = open(V5, client_id, props={"session_expiry_interval": 1})
    one.drop()
    deadline = time.monotonic() + PATIENCE
    while True:
        time.sleep(1.2)
        back = open(V5, client_id, clean=False, props={"session_expiry_interval": 1})
        if not back.connack["session_present"]:
            break
        assert time.monotonic() < deadline
        back.drop()


def test_without_an_expiry_interval_it_ends_with_the_connection(open, client_id: str) -> None:
    open(V5, client_id, clean=False).drop()
    assert open(V5, client_id, clean=False).connack["session_present"] is False


def test_disconnect_may_shorten_the_expiry(session, open, client_id: str) -> None:
    one = session(V5)
    one.send(wire.disconnect(0, [("session_expiry_interval", 0)]))
    one.closed()
    assert open(V5, client_id, clean=False).connack["session_present"] is False


def test_disconnect_may_not_prolong_a_session_without_expiry(open) -> None:
    one = open(V5)
    one.send(wire.disconnect(0, [("session_expiry_interval", 60)]))
    said = one.closed()
    assert [line["reason"] for line in said] in ([0x82], [])


def test_identifiers_are_free_again_in_a_new_connection(session, version: int, topic: str) -> None:
    for _ in range(2):
        one = session(version)
        assert one.publish(topic, b"x", 2, 5) < 0x80
        one.drop()


@pytest.mark.differs("hivemq", "it grants QoS 1 at most, which may go to another member")
def test_a_qos_2_delivery_of_a_group_is_finished_by_the_member_that_began_it(
    session, open, topic: str
) -> None:
    one = session(V5)
    assert one.subscribe([(f"$share/g/{topic}", 2)]) == [2]
    open(V5).publish(topic, b"x", 2)
    packet_id = one.expect(wire.PUBLISH)["packet_id"]
    other = open(V5)
    other.subscribe([(f"$share/g/{topic}", 2)])
    one.drop()
    back = session(V5)
    again = back.expect(wire.PUBLISH)
    assert (again["packet_id"], again["payload"]) == (packet_id, b"x")
    other.quiet(0.2)


@pytest.mark.differs("hivemq", "it grants QoS 1 at most, which may go to another member")
def test_nobody_else_gets_the_qos_2_message_of_a_member_whose_session_ended(open, topic: str) -> None:
    one = open(V5)
    assert one.subscribe([(f"$share/g/{topic}", 2)]) == [2]
    open(V5).publish(topic, b"x", 2)
    one.expect(wire.PUBLISH)
    other = open(V5)
    other.subscribe([(f"$share/g/{topic}", 2)])
    one.drop()
    other.quiet(0.5)
