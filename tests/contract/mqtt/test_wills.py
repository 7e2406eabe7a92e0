"""Wills: the cases in which they are published, and those in which they are not."""

from __future__ import annotations

import time

import pytest

from support.mqtt import wire
from support.mqtt.wire import V5, Will


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_when_the_connection_ends_without_disconnect(
    open, version: int, topic: str, qos: int
) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 2)])
    dying = open(version, will=Will(topic, b"gone", qos))
    dying.socket.close()
    said = watcher.message()
    assert (said["payload"], said["qos"], said["retain"]) == (b"gone", qos, False)
    watcher.quiet()


def test_disconnect_deletes_the_will(open, version: int, topic: str) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 2)])
    one = open(version, will=Will(topic, b"gone"))
    one.send(wire.disconnect())
    one.closed()
    watcher.quiet()


def test_without_a_will_none_is_published(open, version: int, topic: str) -> None:
    watcher = open(version)
    watcher.subscribe([("#", 2), (topic, 2)])
    open(version).socket.close()
    with pytest.raises(TimeoutError):
        # Other tests may publish; no message may arrive on our topic.
        while (said := watcher.message(0.5))["topic"] != topic:
            pass
        raise AssertionError(said)


def test_a_will_is_published_when_the_client_breaks_the_protocol(open, version: int, topic: str) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 0)])
    dying = open(version, will=Will(topic, b"gone"))
    dying.send(wire.publish(topic, b"", 3, 1, version))
    dying.closed()
    assert watcher.message()["payload"] == b"gone"


def test_a_will_is_published_when_the_keep_alive_is_over(open, version: int, topic: str) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 0)])
    dying = open(version, keep_alive=1, will=Will(topic, b"gone"))
    # Brokers check periodically, not every second.
    assert watcher.message()["payload"] == b"gone"
    dying.closed()


def test_a_will_is_published_when_the_session_is_taken_over(
    open, version: int, topic: str, client_id: str
) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 0)])
    open(version, client_id, will=Will(topic, b"gone"))
    open(version, client_id)
    assert watcher.message()["payload"] == b"gone"


def test_a_will_with_retain_is_retained(open, settle, version: int, topic: str) -> None:
    watcher = open(version)
    settle(watcher)
    open(version, will=Will(topic, b"kept", 1, retain=True)).socket.close()
    # For a current subscriber it is an ordinary message.
    said = watcher.message()
    assert (said["payload"], said["retain"]) == (b"kept", False)
    late = open(version)
    late.subscribe([(topic, 1)])
    said = late.message()
    assert (said["payload"], said["retain"]) == (b"kept", True)
    late.publish(topic, b"", 1, retain=True)


def test_a_will_without_retain_is_not_retained(open, version: int, topic: str) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 1)])
    open(version, will=Will(topic, b"once", 1)).socket.close()
    watcher.message()
    late = open(version)
    late.subscribe([(topic, 1)])
    late.quiet()


def test_an_empty_will_is_a_message_all_the_same(open, version: int, topic: str) -> None:
    watcher = open(version)
    watcher.subscribe([(topic, 1)])
    open(version, will=Will(topic, b"", 1)).socket.close()
    assert watcher.message()["payload"] == b""


def test_disconnect_with_will_message_publishes_it(open, topic: str) -> None:
    watcher = open()
    watcher.subscribe([(topic, 1)])
    one = open(will=Will(topic, b"asked for"))
    one.send(wire.disconnect(4))
    one.closed()
    assert watcher.message()["payload"] == b"asked for"


def test_a_delayed_will_waits(open, topic: str) -> None:
    watcher = open()
    watcher.subscribe([(topic, 1)])
    will = Will(topic, b"later", properties=[("will_delay_interval", 1)])
    began = time.monotonic()
    open(will=will, props={"session_expiry_interval": 60}).socket.close()
    assert watcher.message()["payload"] == b"later"
    assert time.monotonic() - began > 0.9


def test_who_is_back_in_time_cancels_the_delayed_will(open, topic: str, client_id: str) -> None:
    kept = {"session_expiry_interval": 60}
    for number in range(10):
        watcher, who, own = open(), f"{client_id}{number}", f"{topic}/{number}"
        watcher.subscribe([(own, 1)])
        will = Will(own, b"never", properties=[("will_delay_interval", 1)])
        one = open(V5, who, will=will, props=kept)
        began = time.monotonic()
        one.socket.close()
        back = open(V5, who, clean=False, props=kept)
        # Unless the machine stood still, it is back in time.
        if time.monotonic() - began < 0.8:
            break
    assert back.connack["session_present"] is True
    watcher.quiet(1.5)


@pytest.mark.differs("mosquitto", "it waits for the delay all the same")
def test_a_delayed_will_is_published_when_the_session_ends_before(open, topic: str) -> None:
    watcher = open()
    watcher.subscribe([(topic, 1)])
    will = Will(topic, b"session is over", properties=[("will_delay_interval", 600)])
    open(will=will, props={"session_expiry_interval": 0}).socket.close()
    assert watcher.message()["payload"] == b"session is over"


@pytest.mark.differs("mosquitto", "it waits for the delay all the same")
def test_a_clean_start_ends_the_session_and_publishes_the_delayed_will(
    open, topic: str, client_id: str
) -> None:
    watcher = open()
    watcher.subscribe([(topic, 1)])
    will = Will(topic, b"session is over", properties=[("will_delay_interval", 600)])
    open(V5, client_id, will=will, props={"session_expiry_interval": 600}).socket.close()
    open(V5, client_id, clean=True)
    assert watcher.message()["payload"] == b"session is over"


def test_properties_of_the_will_arrive_in_their_order(open, topic: str) -> None:
    watcher = open()
    watcher.subscribe([(topic, 1)])
    pairs = [("z", "1"), ("a", "2"), ("z", "3"), ("m", "☃")]
    properties = [
        ("payload_format_indicator", 1),
        ("content_type", "text/plain"),
        ("response_topic", "answers"),
        ("correlation_data", b"\x00\xff"),
        *(("user_property", pair) for pair in pairs),
    ]
    open(will=Will(topic, b"gone", 1, properties=properties)).socket.close()
    said = watcher.message()["properties"]
    assert [value for name, value in said if name == "user_property"] == pairs
    assert dict(said) | {"user_property": None} == dict(properties) | {"user_property": None}
