"""Our client and the official Java client on one server; and the Java client alone, which on the embedded
broker tests that broker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from support.messages import numbered, payloads
from support.tubemq.harness import RealTubeMq, TubeMqService, group
from support.tubemq.java import Java, Refused
from support.tubemq.load import BALANCES, connect, ready, take
from support.waiting import eventually

pytestmark = [pytest.mark.real_tubemq, pytest.mark.timeout(150)]


def positions(server: RealTubeMq, name: str, topic: str) -> dict[int, int]:
    """The group's position, as stored by the server."""
    return {part: one["curOffset"] for part, one in server.offsets(name, topic).items()}


async def test_our_producer_to_the_java_consumer(tube: TubeMqService, java: Java) -> None:
    topic = tube.topic(3)
    async with connect(tube) as client, client.producer(topic) as producer:
        sent = numbered(300)
        places = await producer.send_many(sent)
        assert len(set(places)) == 300, "each has its place"
        assert {at.partition for at in places} == {0, 1, 2}
        assert {at.broker_id for at in places} == {1}
        assert all(abs(at.time / 1000 - time.time()) < 60 for at in places)
        stamp = 1_795_000_000_000
        full = await producer.send(
            b"\x00\xff" * 500,
            properties={"a": "b", "schlüssel": "größe"},
            message_type="till",
            event_time=stamp,
        )

    def read() -> None:
        with java.balance(tube, group(), topic, position="first") as consumer:
            got = consumer.receive(301)
            assert sorted(one.data for one in got) == sorted([*sent, b"\x00\xff" * 500])
            (one,) = (one for one in got if one.type)
            assert one.type == "till"
            assert one.time == time.strftime("%Y%m%d%H%M", time.localtime(stamp / 1000))
            assert one.attributes["a"] == "b" and one.attributes["schlüssel"] == "größe"
            assert one.message_id == full.message_id
            assert one.partition == f"1:{topic}:{full.partition}"
            # In each partition in the order of sending.
            by_partition: dict[str, list[bytes]] = {}
            for one in got:
                by_partition.setdefault(one.partition, []).append(one.data)
            for bodies in by_partition.values():
                plain = [body for body in bodies if body.startswith(b"m")]
                assert plain == sorted(plain)
        with java.pull(tube, group(), topic, position="first") as consumer:
            assert len(consumer.receive(301)) == 301

    await asyncio.to_thread(read)


@pytest.mark.parametrize("balance", BALANCES)
async def test_the_java_producer_to_our_consumer(tube: TubeMqService, java: Java, balance: str) -> None:
    topic, name = tube.topic(2, 2), group()
    sent = numbered(200)

    def write() -> dict[str, Any]:
        with java.producer(tube, topic) as producer:
            producer.send_all(topic, sent)
            return producer.send(topic, b"last", type="till", time="202611211234", attributes={"a": "b"})

    async with connect(tube) as client:
        async with client.consumer(topic, name, balance=balance, position="first") as consumer:
            last = await asyncio.to_thread(write)
            got = await take(consumer, 201, 40)
            assert sorted(payloads(got)) == sorted([*sent, b"last"])
            (one,) = (message for message in got if message.message_type)
            assert one.message_type == "till"
            assert one.properties == {"a": "b"}
            assert one.key is None and one.topic == topic
            assert time.strftime("%Y%m%d%H%M", time.localtime(one.event_time / 1000)) == "202611211234"
            assert (one.broker_id, one.partition) == (1, last["partition"])
            assert one.message_id == last["message_id"]
            assert {part["partition"] for part in consumer.partitions()} == tube.numbers(2, 2)
        if isinstance(tube, RealTubeMq):
            # After it has left, the group's offsets are the ends.
            ends = {part: end for part, (_, end) in (await asyncio.to_thread(tube.ends, topic)).items()}
            await asyncio.to_thread(eventually, lambda: positions(tube, name, topic) == ends)
            assert await asyncio.to_thread(tube.holders, name) == {}


async def test_a_group_goes_on_where_the_other_client_left_it(tube: TubeMqService, java: Java) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        await producer.send_many(numbered(10))
        async with client.consumer(topic, name, position="first") as consumer:
            assert payloads(await take(consumer, 10)) == numbered(10)
        await producer.send_many([b"for Java"] * 3)

        def read() -> None:
            with java.balance(tube, name, topic, position="first") as consumer:
                assert [one.data for one in consumer.receive(3)] == [b"for Java"] * 3

        await asyncio.to_thread(read)
        await producer.send(b"for us")
        async with client.consumer(topic, name) as consumer:
            assert payloads(await take(consumer, 1)) == [b"for us"]


async def test_a_java_member_and_ours_share_a_group(tube: TubeMqService, java: Java) -> None:
    topic, name = tube.topic(3), group()
    async with connect(tube) as client:
        async with client.consumer(topic, name, balance="server", position="first") as ours:
            await ready(ours, 3)
            theirs = await asyncio.to_thread(java.pull, tube, name, topic, position="first", wait=40)
            here: set[int] = set()
            there: set[int] = set()
            # A partition that one of them has given back becomes the other's at its next heartbeat.
            async with asyncio.timeout(40):
                while not (here and there and not here & there and here | there == {0, 1, 2}):
                    await asyncio.sleep(0.05)
                    here = {part["partition"] for part in ours.partitions() if part["state"] == "reading"}
                    there = {int(key.split(":")[2]) for key in await asyncio.to_thread(theirs.partitions)}
            await asyncio.to_thread(theirs.close)
            await ready(ours, 3, 40)


@pytest.mark.parametrize("balance", BALANCES)
def test_java_to_java(tube: TubeMqService, java: Java, balance: str) -> None:
    topic, name = tube.topic(2, 2), group()
    consume = java.pull if balance == "server" else java.balance
    with java.producer(tube, topic) as producer, consume(tube, name, topic, position="first") as consumer:
        sent = numbered(500)
        places = producer.send_all(topic, sent, type="till", attributes={"a": "b"})
        assert {at["partition"] for at in places} == tube.numbers(2, 2)
        assert all(abs(at["time"] / 1000 - time.time()) < 60 for at in places)
        got = consumer.receive(500)
        assert sorted(one.data for one in got) == sent
        assert {one.attributes["a"] for one in got} == {"b"}
        assert {one.message_id for one in got} == {at["message_id"] for at in places}
        consumer.nothing()
    # The group has passed them.
    with consume(tube, name, topic, position="first") as consumer:
        consumer.nothing()
    # Another group has not passed them.
    with consume(tube, group(), topic, position="first") as consumer:
        assert len(consumer.receive(500)) == 500


def test_java_takes_back_and_seeks(tube: TubeMqService, java: Java) -> None:
    topic, name = tube.topic(), group()
    with (
        java.producer(tube, topic) as producer,
        java.balance(tube, name, topic, position="first") as consumer,
    ):
        places = [producer.send(topic, body) for body in numbered(20)]
        assert [at["offset"] for at in places] == list(range(0, 20 * 28, 28))
        # Not consumed: it is delivered again.
        first = consumer.receive(20, confirm="no")
        assert [one.data for one in first[:20]] == numbered(20)
        got = consumer.receive(20)
        assert [one.data for one in got] == numbered(20)
        assert consumer.partitions()[f"1:{topic}:0"] == {"offset": 20 * 28, "max": 20 * 28}
        # At another position.
        assert consumer.call("disconnect", f"1:{topic}:0") == "ok"
        assert consumer.call("connect", f"1:{topic}:0", 15 * 28) == "ok"
        assert [one.data for one in consumer.receive(5)] == numbered(20)[15:]
    with java.balance(tube, group(), topic, position="max") as consumer:
        consumer.nothing()
        producer = java.producer(tube, topic)
        producer.send(topic, b"after")
        assert [one.data for one in consumer.receive(1)] == [b"after"]
        producer.close()


@pytest.mark.parametrize("balance", BALANCES)
def test_two_java_members_share(tube: TubeMqService, java: Java, balance: str) -> None:
    topic, name = tube.topic(3), group()
    with java.producer(tube, topic) as producer:
        if balance == "server":
            with java.pull(tube, name, topic) as one, java.pull(tube, name, topic) as two:
                eventually(lambda: len(one.partitions()) + len(two.partitions()) == 3, 30)
                assert not one.partitions().keys() & two.partitions().keys()
                two.close()
                eventually(lambda: len(one.partitions()) == 3, 30)
                producer.send_all(topic, numbered(30))
                assert len(one.receive(30)) == 30
        else:
            with java.balance(tube, name, topic) as one:
                assert len(one.partitions()) == 3
                with java.balance(tube, name, topic, connect=False) as two:
                    key = f"1:{topic}:0"
                    assert two.call("meta")[key]
                    assert str(two.call("connect", key, -1)).startswith("410")
                    assert one.call("disconnect", key) == "ok"
                    eventually(lambda: two.call("connect", key, -1) == "ok")
                    producer.send_all(topic, numbered(30))
                    assert len(one.receive(20)) + len(two.receive(10)) == 30


def test_java_sends_large_and_odd_messages(tube: TubeMqService, java: Java) -> None:
    topic = tube.topic()
    bodies = [b"\0", b"\xff" * 100, b"x" * 8192, b"y" * 8193, b"z" * 1_000_000]
    with (
        java.producer(tube, topic) as producer,
        java.balance(tube, group(), topic, position="first") as consumer,
    ):
        for body in bodies:
            assert producer.send(topic, body, attributes={"größe": str(len(body))})["success"]
        got = consumer.receive(len(bodies))
        assert [one.data for one in got] == bodies
        assert [one.attributes["größe"] for one in got] == [str(len(body)) for body in bodies]


def test_java_is_refused_in_words(tube: TubeMqService, java: Java) -> None:
    with pytest.raises(Refused, match="Register to master failed"):
        java.pull(tube, group(), "nobody_has_it", wait=0)
    topic, name = tube.topic(), group()
    with java.pull(tube, name, topic):
        # All members of a group have the same mode, topics and filters.
        with pytest.raises(Refused):
            java.balance(tube, name, topic)
        with pytest.raises(Refused):
            java.pull(tube, name, {topic: ["x"]}, wait=0)
