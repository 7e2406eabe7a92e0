"""Retained messages."""

from __future__ import annotations

import time

import pytest

from support.mqtt import wire
from support.mqtt.wire import V5
from support.waiting import PATIENCE

NO_LOCAL, AS_PUBLISHED = 0b100, 0b1000


@pytest.fixture
def retained(open, topic: str):
    """Publishes a retained message, and removes it at the end."""
    one = open()

    def publish(payload: bytes, qos: int = 1, suffix: str = "", **options) -> None:
        one.publish(topic + suffix, payload, qos, retain=True, **options)
        suffixes.add(suffix)

    suffixes: set[str] = set()
    yield publish
    for suffix in suffixes:
        one.publish(topic + suffix, b"", 1, retain=True)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_new_subscription_gets_the_last_one(open, retained, version: int, topic: str, qos: int) -> None:
    for payload in (b"first", b"last"):
        retained(payload, qos)
    # QoS 0 is not acknowledged: a subscriber that is too early subscribes again.
    for _ in range(20 if qos == 0 else 1):
        one = open(version)
        one.subscribe([(topic, 2)])
        said = one.message()
        if (said["payload"], said["retain"]) == (b"last", True):
            break
    assert (said["payload"], said["retain"], said["qos"]) == (b"last", True, qos)
    if qos:
        # A message of QoS 0 may still be on its way to a new subscriber.
        one.quiet(0.1)


def test_it_comes_at_the_granted_qos(open, retained, topic: str) -> None:
    retained(b"kept", 2)
    one = open()
    one.subscribe([(topic, 0)])
    assert one.message()["qos"] == 0


def test_each_topic_has_its_own(open, retained, version: int, topic: str) -> None:
    for suffix in ("/a", "/b", "/c/d"):
        retained(suffix.encode(), 1, suffix)
    one = open(version)
    one.subscribe([(f"{topic}/#", 1)])
    assert {one.message()["payload"] for _ in range(3)} == {b"/a", b"/b", b"/c/d"}
    one.quiet(0.1)
    one.subscribe([(f"{topic}/+", 1)])
    assert {one.message()["payload"] for _ in range(2)} == {b"/a", b"/b"}


def test_who_is_subscribed_gets_it_without_the_flag(open, settle, retained, version: int) -> None:
    one = open(version)
    settle(one)
    retained(b"live")
    said = one.message()
    assert (said["payload"], said["retain"]) == (b"live", False)


def test_retain_as_published_keeps_the_flag(open, settle, retained, topic: str) -> None:
    one, other = open(), open()
    settle(one, 1 | AS_PUBLISHED)
    retained(b"live")
    said = one.message()
    assert (said["payload"], said["retain"]) == (b"live", True)
    other.publish(topic, b"not retained", 1)
    said = one.message()
    assert (said["payload"], said["retain"]) == (b"not retained", False)


def test_an_empty_one_is_delivered_and_removes_what_was_kept(
    open, settle, retained, version: int, topic: str
) -> None:
    watcher = open(version)
    settle(watcher)
    for payload in (b"kept", b""):
        retained(payload)
        assert watcher.message()["payload"] == payload
    late = open(version)
    late.subscribe([(topic, 1)])
    late.quiet(0.1)


def test_a_message_without_the_flag_changes_nothing(open, retained, version: int, topic: str) -> None:
    retained(b"kept")
    one = open(version)
    one.publish(topic, b"passing", 1)
    one.publish(topic, b"", 1)
    late = open(version)
    late.subscribe([(topic, 1)])
    assert late.message()["payload"] == b"kept"


def test_it_outlives_the_session_of_the_publisher(open, version: int, topic: str) -> None:
    one = open(version)
    one.publish(topic, b"kept", 1, retain=True)
    one.send(wire.disconnect())
    one.closed()
    late = open(version)
    late.subscribe([(topic, 1)])
    assert late.message()["payload"] == b"kept"
    late.publish(topic, b"", 1, retain=True)


def test_subscribing_again_sends_it_again(open, retained, version: int, topic: str) -> None:
    retained(b"kept")
    one = open(version)
    for _ in range(2):
        one.subscribe([(topic, 1)])
        assert one.message()["payload"] == b"kept"


def test_retain_handling_1_sends_it_once(open, retained, topic: str) -> None:
    retained(b"kept")
    one = open()
    one.subscribe([(topic, 1 | 1 << 4)])
    assert one.message()["payload"] == b"kept"
    one.subscribe([(topic, 1 | 1 << 4)])
    one.quiet()
    # It is sent again when the subscription is new again.
    one.send(wire.unsubscribe(topic))
    one.expect(wire.UNSUBACK)
    one.subscribe([(topic, 1 | 1 << 4)])
    assert one.message()["payload"] == b"kept"


def test_retain_handling_2_sends_none(open, retained, topic: str) -> None:
    retained(b"kept")
    one = open()
    one.subscribe([(topic, 1 | 2 << 4)])
    one.quiet()


def test_retain_handling_3_closes_the_connection(open, topic: str) -> None:
    one = open()
    one.send(wire.subscribe([(topic, 3 << 4)]))
    assert [line["reason"] for line in one.closed()] in ([0x81], [0x82], [])


@pytest.mark.differs("mosquitto", "it sends them")
def test_a_shared_subscription_gets_none(open, retained, topic: str) -> None:
    retained(b"kept")
    one = open()
    one.subscribe([(f"$share/g/{topic}", 1)])
    one.quiet()


def test_its_properties_are_kept(open, retained, topic: str) -> None:
    props = [("content_type", "text/plain"), ("user_property", ("b", "2")), ("user_property", ("a", "1"))]
    retained(b"kept", props=props)
    one = open()
    one.subscribe([(topic, 1)])
    assert sorted(map(str, one.message()["properties"])) == sorted(map(str, props))


def test_it_expires(open, topic: str) -> None:
    one = open()
    one.publish(topic, b"short", 1, retain=True, props={"message_expiry_interval": 5})
    one.subscribe([(topic, 1)])
    first = one.message()
    assert dict(first["properties"])["message_expiry_interval"] <= 5
    late = open(V5)
    deadline = time.monotonic() + PATIENCE
    with pytest.raises(TimeoutError):
        while time.monotonic() < deadline:
            late.subscribe([(topic, 1)])
            late.message(0.1)
