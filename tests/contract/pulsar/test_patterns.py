"""Patterns of topics: those that match, now and later, are consumed."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from forebay import blocking
from forebay.errors import ConsumerBusy, InvalidArgument, InvalidTopic, NotAllowed
from forebay.pulsar import DeadLetterPolicy

from support.commands import Commands
from support.messages import nothing, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import until

OFTEN = {"pattern_update_interval": 0.2, "partitions_update_interval": 0.2}


@pytest.fixture
def name() -> Callable[[str], str]:
    """Full names of topics with a prefix of this test."""
    prefix = f"p{uuid.uuid4().hex[:10]}"
    return lambda rest: f"persistent://public/default/{prefix}-{rest}"


async def send(client: Any, topic: str, *values: bytes) -> None:
    async with client.producer(topic) as producer:
        for value in values:
            await producer.send(value)


async def test_a_pattern_takes_the_topics_that_match(client: Any, name: Callable[[str], str]) -> None:
    for rest in ("orders-1", "orders-2", "returns"):
        await send(client, name(rest), b"before")
    pattern = re.compile(name("orders-.*"))
    async with client.consumer(pattern, "s", position="earliest", **OFTEN) as consumer:
        messages = await receive(consumer, 2)
        assert sorted(message.topic for message in messages) == [name("orders-1"), name("orders-2")]
        await consumer.ack_many(messages)
        await nothing(consumer)
        assert consumer.topic == pattern.pattern


async def test_topics_that_appear_are_consumed_from_their_first_message(
    client: Any, name: Callable[[str], str]
) -> None:
    # A long interval: a broker that can tells at once.
    async with client.consumer(re.compile(name(".*")), "s", pattern_update_interval=2) as consumer:
        for rest in ("a", "b"):
            await send(client, name(rest), b"1", b"2")
            assert payloads(await receive(consumer, 2)) == [b"1", b"2"]


async def test_brokers_tell_of_topics_that_appear(client: Any, name: Callable[[str], str]) -> None:
    # The list is asked for too seldom to matter.
    async with client.consumer(re.compile(name(".*")), "s", pattern_update_interval=600) as consumer:
        for rest in ("a", "b"):
            await send(client, name(rest), rest.encode())
            assert payloads(await receive(consumer, 1)) == [rest.encode()]


async def test_topics_disappear_and_come_again(
    client: Any, service: PulsarService, name: Callable[[str], str]
) -> None:
    async with client.consumer(re.compile(name(".*")), "s", **OFTEN) as consumer:
        for rest in ("a", "b"):
            await send(client, name(rest), rest.encode())
            (message,) = await receive(consumer, 1)
            await consumer.ack(message)
        for turn in range(2):
            service.delete_topic(name("a"))
            await send(client, name("b"), b"stays")
            await consumer.ack(*await receive(consumer, 1))
            # Made by the producer: the consumer of a pattern makes no topic again that was deleted.
            await send(client, name("a"), b"again %d" % turn)
            (message,) = await receive(consumer, 1)
            assert bytes(message.data) == b"again %d" % turn
            await consumer.ack(message)


async def test_partitions_are_of_one_topic_and_grow(
    client: Any, service: PulsarService, name: Callable[[str], str]
) -> None:
    service.create_topic(name("parts"), 2)
    async with client.consumer(re.compile(name("parts")), "s", **OFTEN) as consumer:
        for count in (2, 4):
            if count > 2:
                service.grow_topic(name("parts"), count)
            for partition in range(count):
                await send(client, f"{name('parts')}-partition-{partition}", b"%d" % partition)
            messages = await receive(consumer, count)
            assert {message.id.partition for message in messages} == set(range(count))
            await consumer.ack_many(messages)


async def test_flags_and_alternatives_work_on_every_broker(client: Any, name: Callable[[str], str]) -> None:
    for rest in ("orders", "returns", "others"):
        await send(client, name(rest), rest.encode())
    local = name("").rpartition("/")[2]
    pattern = re.compile(f"{local.upper()}orders|{local}RETURNS", re.IGNORECASE)
    async with client.consumer(pattern, "s", position="earliest", **OFTEN) as consumer:
        assert sorted(payloads(await receive(consumer, 2))) == [b"orders", b"returns"]
        await nothing(consumer)


async def test_dead_letters_of_a_pattern_are_not_consumed_by_it(
    client: Any, name: Callable[[str], str]
) -> None:
    policy = DeadLetterPolicy(1)
    options = {"type": "shared", "nack_delay": 0.1, "dead_letter": policy, **OFTEN}
    async with client.consumer(re.compile(name(".*")), "s", **options) as consumer:
        await send(client, name("a"), b"bad")
        for _ in range(2):
            (message,) = await receive(consumer, 1)
            await consumer.nack(message)
        async with client.consumer(f"{name('a')}-s-DLQ", "t", position="earliest") as letters:
            assert payloads(await receive(letters, 1)) == [b"bad"]
        await nothing(consumer, 1.0)


async def test_more_topics_than_the_limit_are_refused(client: Any, name: Callable[[str], str]) -> None:
    for rest in ("a", "b", "c"):
        await send(client, name(rest), b"x")
    with pytest.raises(NotAllowed, match=r"matches 3 topics.*pattern_max_topics is 2"):
        await client.consumer(re.compile(name(".*")), "s", pattern_max_topics=2)


async def test_topics_over_the_limit_are_left_out_while_it_runs(
    client: Any, name: Callable[[str], str]
) -> None:
    async with client.consumer(re.compile(name(".*")), "s", pattern_max_topics=1, **OFTEN) as consumer:
        await send(client, name("a"), b"first")
        assert payloads(await receive(consumer, 1)) == [b"first"]
        await send(client, name("b"), b"second")
        await nothing(consumer, 0.6)
        await send(client, name("a"), b"third")
        assert payloads(await receive(consumer, 1)) == [b"third"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"persistent://public/default/(x)\1", "backreferences.*position 31"),
        ("persistent://public/default/a(?=b)", "look-around.*position 29"),
        ("persistent://public/def.*/a", "of one namespace"),
    ],
)
async def test_a_pattern_that_brokers_cannot_have_is_refused(client: Any, pattern: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        await client.consumer(re.compile(pattern), "s")


async def test_a_pattern_of_bytes_is_refused_at_once(client: Any) -> None:
    with pytest.raises(InvalidArgument, match="bytes"):
        client.consumer(re.compile(b"a"), "s")


@pytest.mark.parametrize(
    ("rest", "meant"),
    [("orders-*", "orders-.*"), ("orders-.*", "orders-.*"), ("*", ".*"), ("a.+", "a.+"), ("[ab]*", "[ab]*")],
)
async def test_a_name_that_looks_like_a_pattern_is_refused_by_every_verb(
    client: Any, service: PulsarService, name: Callable[[str], str], rest: str, meant: str
) -> None:
    text = re.escape(f"pass re.compile({name(meant)!r}) to consumer()")
    with blocking.connect(service.url) as other:
        faces: tuple[Any, ...] = (client, other)
        for face in faces:
            with pytest.raises(InvalidTopic, match=text):
                face.consumer(name(rest), "s")
            with pytest.raises(InvalidTopic, match=text):
                face.consumer([name("a"), name(rest)], "s")
            with pytest.raises(InvalidTopic, match=text):
                face.reader(name(rest))
            with pytest.raises(InvalidTopic, match=text):
                face.table_view(name(rest))
            with pytest.raises(InvalidTopic, match=text):
                face.producer(name(rest))
    command = Commands(service.url)
    assert f"--pattern {shlex.quote(name(meant))} reads" in command.misused(
        "sub", "-t", name(rest), "-s", "s"
    )
    assert "looks like a pattern" in command.refused("pub", "-t", name(rest), "-m", "x")
    assert name(rest) not in await client.topics("public/default")


async def test_a_message_is_no_position_of_a_pattern(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        message_id = await producer.send(b"x")
    with pytest.raises(InvalidArgument, match="a pattern stands for many topics"):
        await client.consumer(re.compile(topic), "s", position=message_id)


async def test_a_topic_that_cannot_be_subscribed_at_first_is_consumed_later(
    client: Any, name: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    async with client.consumer(re.compile(name(".*")), "s", **OFTEN) as consumer:
        for number in range(20):
            topic = name(str(number))
            try:
                other = await client.consumer(topic, "s")
                break
            except ConsumerBusy:
                # The consumer of the pattern was faster.
                pass
        else:
            pytest.fail("every topic went to the consumer of the pattern at once")
        await until(lambda: any("is tried again" in record.getMessage() for record in caplog.records))
        await other.close()
        await send(client, topic, b"x")
        assert payloads(await receive(consumer, 1)) == [b"x"]


async def test_a_pattern_is_of_a_domain(client: Any, name: Callable[[str], str]) -> None:
    kept, passing = name("kept"), name("passing").replace("persistent", "non-persistent", 1)
    async with client.producer(kept) as first, client.producer(passing) as second:
        for domain, wanted in {
            None: {kept},
            "persistent": {kept},
            "non-persistent": {passing},
            "all": {kept, passing},
        }.items():
            options = {"topics_domain": domain} if domain else {}
            pattern = re.compile(name(".*").removeprefix("persistent://" if domain else ""))
            async with client.consumer(pattern, f"s-{domain}", **options, **OFTEN) as consumer:
                await first.send(b"x")
                await second.send(b"x")
                messages = await receive(consumer, len(wanted))
                assert {message.topic for message in messages} == wanted
                await nothing(consumer)
