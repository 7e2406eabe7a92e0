"""What users may do: Mosquitto and the embedded broker with the same file of rules."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import forebay
from forebay import errors

from support.fixtures import running
from support.mqtt.harness import USERS, EmbeddedMqtt, Mosquitto, MqttService
from support.mqtt.wire import V5, V311, Raw, Will
from support.waiting import PATIENCE

RULES = """\
# Clients without a user: none get in.
topic read news/#

user ann
topic readwrite #
topic deny forbidden/#

user bob
topic read open/#
topic write open/from bob
topic deny open/closed/#

pattern readwrite devices/%c/#
pattern read inbox/%u
pattern deny nobody/#
"""
KINDS = {"embedded": EmbeddedMqtt, "mosquitto": Mosquitto}
NOT_AUTHORIZED = 0x87

User = Callable[..., Raw]


@pytest.fixture(params=["embedded", pytest.param("mosquitto", marks=pytest.mark.real_mqtt)], scope="module")
def ruled(request: pytest.FixtureRequest) -> Iterator[MqttService]:
    """A broker with users and :data:`RULES`."""
    yield from running(lambda: KINDS[request.param](users=True, acl=RULES))


@pytest.fixture
def user(ruled: MqttService) -> Iterator[User]:
    """``user("ann", version)``: a connection of a user, after CONNACK."""
    with ExitStack() as stack:

        def make(name: str, version: int = V5, client_id: str | None = None, **options: Any) -> Raw:
            one = stack.enter_context(ruled.raw(version))
            options |= {"username": name, "password": USERS[name]}
            one.connect(client_id or f"c{uuid.uuid4().hex[:12]}", **options)
            assert one.connack["reason"] == 0, one.connack
            return one

        yield make


def name() -> str:
    return uuid.uuid4().hex[:12]


def heard(one: Raw, last: str) -> list[str]:
    """Topics of the messages up to the one on ``last``."""
    topics: list[str] = []
    while not topics or topics[-1] != last:
        topics.append(one.message()["topic"])
    return topics


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publication_that_no_rule_allows_reaches_nobody(user: User, version: int, qos: int) -> None:
    watcher, bob = user("ann"), user("bob", version)
    topic = f"open/{name()}"
    watcher.subscribe("#")
    reason = bob.publish(topic, b"x", qos)
    # Before 5.0 there is no way to say it.
    assert reason == (NOT_AUTHORIZED if qos and version == V5 else 0)
    assert bob.publish("open/from bob", b"x", 1) == 0
    bob.sync()
    assert topic not in heard(watcher, "open/from bob")


def test_a_retained_message_that_no_rule_allows_is_not_kept(user: User) -> None:
    bob = user("bob")
    topic = f"open/{name()}"
    assert bob.publish(topic, b"x", 1, retain=True) == NOT_AUTHORIZED
    ann = user("ann")
    ann.subscribe(topic)
    ann.quiet()


def test_a_deny_outweighs_what_is_allowed_beside_it(user: User) -> None:
    ann = user("ann")
    assert ann.publish(f"forbidden/{name()}", b"x", 1) == NOT_AUTHORIZED
    assert ann.publish("forbidden", b"x", 1) == NOT_AUTHORIZED, "# is for the level above it, too"
    assert ann.publish(f"nobody/{name()}", b"x", 1) in (0, 0x10), "the rules of a user come first"


def test_a_subscriber_gets_what_it_may_read_of_its_filter(user: User, version: int) -> None:
    bob, ann = user("bob", version), user("ann")
    bob.subscribe([("#", 1), ("open/+/x", 0)])
    mark = name()
    for topic in (f"other/{mark}", f"open/closed/{mark}", "inbox/ann", f"open/{mark}/x"):
        for qos in (0, 1, 2):
            ann.publish(topic, b"x", qos)
    ann.publish("inbox/bob", b"x", 1)
    ann.publish(f"open/{mark}", b"x", 1)
    got = set(heard(bob, f"open/{mark}"))
    assert got == {f"open/{mark}/x", "inbox/bob", f"open/{mark}"}


def test_a_retained_message_is_for_those_who_may_read_it(user: User) -> None:
    ann, mark = user("ann"), name()
    topics = [f"open/{mark}", f"open/closed/{mark}", f"other/{mark}"]
    for topic in topics:
        ann.publish(topic, b"x", 1, retain=True)
    try:
        bob = user("bob")
        bob.subscribe([(f"+/{mark}", 1), (f"+/+/{mark}", 1)])
        assert bob.message()["topic"] == f"open/{mark}"
        bob.quiet()
    finally:
        for topic in topics:
            ann.publish(topic, b"", 1, retain=True)


def test_a_pattern_has_the_name_of_the_client_in_it(user: User) -> None:
    first, second = name(), name()
    one, other = user("bob", client_id=first), user("bob", client_id=second)
    one.subscribe("devices/#")
    assert other.publish(f"devices/{first}/state", b"x", 1) == NOT_AUTHORIZED
    assert other.publish(f"devices/{second}/state", b"x", 1) in (0, 0x10)
    assert one.publish(f"devices/{first}/state", b"mine", 1) == 0
    message = one.message()
    assert (message["topic"], message["payload"]) == (f"devices/{first}/state", b"mine")


def test_a_name_with_a_wildcard_gets_nothing_by_a_pattern(user: User) -> None:
    for wild in ("+", "#"):
        bob = user("bob", client_id=wild)
        assert bob.publish("devices/x/state", b"x", 1) == NOT_AUTHORIZED
        assert bob.publish(f"devices/{wild.replace('+', 'p').replace('#', 'h')}", b"x", 1) == NOT_AUTHORIZED


def test_a_will_that_no_rule_allows_is_not_published(ruled: MqttService, user: User) -> None:
    watcher, topic = user("ann"), f"other/{name()}"
    watcher.subscribe("#")
    with ruled.raw() as bob:
        options = {"username": "bob", "password": USERS["bob"], "will": Will(topic, b"gone", 1)}
        connack = bob.connect(name(), **options)
        # Mosquitto finds out when it would publish it.
        assert connack["reason"] == (NOT_AUTHORIZED if not ruled.is_real else 0)
        bob.drop()
    last = f"open/{name()}"
    assert user("ann").publish(last, b"x", 1) == 0
    assert topic not in heard(watcher, last)


def test_a_filter_below_which_nothing_may_be_read(ruled: MqttService, user: User) -> None:
    """The embedded broker says so; Mosquitto grants it, and nothing comes."""
    for version, refusal in ((V5, NOT_AUTHORIZED), (V311, 0x80)):
        bob = user("bob", version)
        codes = bob.subscribe([("other/#", 1), ("open/#", 1), ("open/closed/+", 1)])
        assert codes == ([1, 1, 1] if ruled.is_real else [refusal, 1, refusal])


async def test_our_client_is_told(ruled: MqttService) -> None:
    async with forebay.connect(ruled.url, username="bob", password=USERS["bob"]) as client:
        with pytest.raises(errors.AuthorizationError) as caught:
            await client.publish(f"open/{name()}", b"x", qos=1)
        assert caught.value.code is not None
        # The connection goes on.
        async with client.consumer("open/#", qos=1) as consumer:
            await client.publish("open/from bob", b"x", qos=1)
            assert (await consumer.receive(timeout=PATIENCE)).topic == "open/from bob"


async def test_our_client_is_told_of_a_filter_below_which_nothing_may_be_read(ruled: MqttService) -> None:
    """By the embedded broker. Mosquitto grants it, and nothing comes."""
    async with forebay.connect(ruled.url, username="bob", password=USERS["bob"]) as client:
        if not ruled.is_real:
            with pytest.raises(errors.AuthorizationError):
                await client.consumer("other/x", qos=1)
            return
        async with (
            client.consumer(["other/x", "open/#"], qos=1) as consumer,
            forebay.connect(ruled.url, username="ann", password=USERS["ann"]) as ann,
        ):
            await ann.publish("other/x", b"x", qos=1)
            await ann.publish("open/last", b"x", qos=1)
            assert (await consumer.receive(timeout=PATIENCE)).topic == "open/last"


def test_refusals_are_counted_and_new_rules_hold_at_once(tmp_path: Any) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite #\n")
    with forebay.Broker(mqtt_port=0, acl_file=rules) as broker:
        assert broker.mqtt_url
        with Raw(MqttService.port_of(broker.mqtt_url)) as peer:
            peer.connect("c")
            peer.subscribe("#")
            assert peer.publish("a", b"x", 1) == 0
            assert peer.message()["topic"] == "a"
            rules.write_text("topic readwrite b\n")
            assert broker.reload_permissions() == 1
            assert peer.publish("a", b"x", 1) == NOT_AUTHORIZED
            assert peer.publish("b", b"x", 1) == 0
            assert peer.message()["topic"] == "b"
            rules.write_text("topic readwrite b\ntopic reed a\n")
            with pytest.raises(errors.InvalidArgument, match=r"acl_file, line 2: .*reed"):
                broker.reload_permissions()
            assert peer.publish("b", b"x", 1) == 0, "the former rules stay"
            assert broker.status()["mqtt"]["denied"] == 1
    with pytest.raises(errors.InvalidArgument, match="acl_file, line 2"):
        forebay.Broker(mqtt_port=0, acl_file=rules)
    with forebay.Broker(mqtt_port=0) as broker, pytest.raises(errors.NotAllowed, match="acl_file"):
        broker.reload_permissions()
