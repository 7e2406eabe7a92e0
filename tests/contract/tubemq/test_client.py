"""Our TubeMQ client, the same on the embedded broker and on the real TubeMQ."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import forebay
from forebay import errors, frames
from forebay.tubemq import Position

from support.messages import numbered, payloads
from support.tubemq.harness import TubeMqService, group
from support.tubemq.load import BALANCES, connect, ready, take
from support.waiting import PATIENCE, until

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("size", [1, 100, 8_000, 8_192, 8_193, 100_000, 1_000_000])
async def test_each_size_arrives(tube: TubeMqService, size: int) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        async with client.consumer(topic, name, position="first") as consumer:
            await producer.send(b"x" * size, properties={"a": "b"})
            (message,) = await take(consumer, 1)
            assert bytes(message.data) == b"x" * size and message.properties == {"a": "b"}


async def test_what_is_too_large_is_refused_and_the_rest_goes_on(tube: TubeMqService) -> None:
    topic = tube.topic()
    async with connect(tube) as client, client.producer(topic) as producer:
        with pytest.raises(errors.MessageTooLarge):
            await producer.send(b"x" * (1 << 21))
        with pytest.raises(errors.InvalidArgument):
            await producer.send(b"")
        assert (await producer.send(b"x")).offset == 0


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ({"event_time": -5}, "event_time is -5"),
        ({"event_time": 2**64}, f"event_time is {2**64}"),
        ({"event_time": 253_402_300_800_000}, "event time 253402300800000"),
        ({"event_time": datetime(1969, 7, 20, tzinfo=UTC)}, "event_time is -14256000000"),
        ({"message_type": "a,b"}, 'message type "a,b"'),
        ({"message_type": " a"}, 'message type " a"'),
        ({"properties": {"a": "b=c"}}, 'property "a" with value "b=c"'),
        ({"properties": {"a,b": "c"}}, 'property "a,b"'),
    ],
)
async def test_what_is_not_valid_is_named_as_the_caller_named_it(
    embedded_tubemq: TubeMqService, extras: dict[str, Any], words: str
) -> None:
    async with connect(embedded_tubemq) as client, client.producer(embedded_tubemq.topic()) as producer:
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(errors.InvalidArgument, match=re.escape(words)) as caught:
                send(b"x", **extras)
            assert "$" not in str(caught.value)
        assert producer.pending == 0
        assert (await producer.send(b"x", event_time=0)).offset == 0


async def test_a_topic_that_nobody_has(tube: TubeMqService) -> None:
    async with connect(tube) as client:
        with pytest.raises(errors.TopicNotFound):
            async with client.producer("nobody_has_it"):
                pass
        with pytest.raises(errors.TopicNotFound):
            async with client.consumer("nobody_has_it", group()):
                pass


async def test_the_same_key_has_the_same_partition(tube: TubeMqService) -> None:
    topic, name = tube.topic(3), group()
    keys = [f"k, = % {number}" for number in range(20)]
    async with connect(tube) as client:
        homes: dict[str, set[int]] = {key: set() for key in keys}
        for _ in range(2):
            async with client.producer(topic) as producer:
                for key in keys:
                    homes[key].add((await producer.send(key.encode(), key)).partition)
        assert all(len(parts) == 1 for parts in homes.values())
        assert len({part for parts in homes.values() for part in parts}) == 3
        async with client.consumer(topic, name, position="first") as consumer:
            got = await take(consumer, 40)
            assert all(message.key == bytes(message.data).decode() for message in got)
            assert all(message.properties == {} for message in got)


@pytest.mark.parametrize("balance", BALANCES)
async def test_filters_are_seen_at_once(tube: TubeMqService, balance: str) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        async with client.consumer(topic, name, filters=["Aa", "till"], balance=balance) as consumer:
            await ready(consumer, 1)
            # The machine may stand still once.
            for _ in range(3):
                for number in range(30):
                    # "BB" has the hash of "Aa".
                    kind = ["till", "Aa", "BB", "other", None, "tills"][number % 6]
                    await producer.send(b"%s %d" % (str(kind).encode(), number), message_type=kind)
                began = time.monotonic()
                got = await take(consumer, 10)
                took = time.monotonic() - began
                assert [bytes(message.data).split()[0] for message in got] == [b"till", b"Aa"] * 5
                if took < 4:
                    break
            assert took < 4, "what is filtered is not read from the disk only"
            assert await consumer.receive_many(10, timeout=0.3) == []


async def test_positions(tube: TubeMqService) -> None:
    topic = tube.topic()
    async with connect(tube) as client, client.producer(topic) as producer:
        places = await producer.send_many(numbered(10))

        async def first_of(name: str, position: Any, then: bytes) -> bytes:
            async with client.consumer(topic, name, position=position) as consumer:
                await ready(consumer, 1)
                await producer.send(then)
                # Up to the end, acknowledged.
                got = payloads(await take(consumer, 1))
                while then not in got:
                    got += payloads(await take(consumer, 1))
                return got[0]

        assert await first_of(group(), "first", b"a") == b"m000000"
        assert await first_of(group(), "latest", b"b") == b"b"
        assert await first_of(group(), "max", b"c") == b"c"
        assert await first_of(group(), places[7], b"d") == b"m000007"
        # A known group resumes, wherever a new one would start; "max" does not.
        name = group()
        assert await first_of(name, places[9], b"e") == b"m000009"
        assert await first_of(name, "first", b"f") == b"f"
        await producer.send_many([b"skipped"] * 5)
        assert await first_of(name, "max", b"g") == b"g"


async def test_a_seek_to_a_position_leaves_the_other_partitions_where_they_are(tube: TubeMqService) -> None:
    topic = tube.topic(partitions=2)
    async with connect(tube) as client, client.producer(topic) as producer:
        places = await producer.send_many(numbered(10))
        async with client.consumer(topic, group(), position="first") as consumer:
            await ready(consumer, 2)
            # Unless it has to wait, `async for` takes what has arrived ahead.
            first, second = await anext(aiter(consumer)), await anext(aiter(consumer))
            await consumer.ack(first)
            await consumer.seek(places[numbered(10).index(second.data)])
            rest = sorted(payloads(await take(consumer, 9)))
            assert rest == [payload for payload in numbered(10) if payload != first.data]
            assert await consumer.receive_many(10, timeout=0.3) == []


async def test_what_was_taken_before_a_seek_does_not_come_after_one_that_another_replaced(
    tube: TubeMqService,
) -> None:
    topic = tube.topic()
    async with connect(tube) as client, client.producer(topic) as producer:
        await producer.send_many(numbered(10))
        async with client.consumer(topic, group(), position="first") as consumer:
            # Unless it has to wait, `async for` takes what has arrived ahead.
            assert [(await anext(aiter(consumer))).data for _ in range(2)] == numbered(10)[:2]
            # The first one fails after it has moved the partition.
            seeks = (consumer.seek("first"), consumer.seek("first"))
            await asyncio.gather(*seeks, return_exceptions=True)
            assert payloads(await take(consumer, 10)) == numbered(10)
            assert await consumer.receive_many(10, timeout=0.3) == []


async def test_seek_lag_and_pause(tube: TubeMqService) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        places = await producer.send_many(numbered(10))
        async with client.consumer(topic, name, position="first") as consumer:
            assert payloads(await take(consumer, 10)) == numbered(10)
            await consumer.seek(places[4])
            assert payloads(await take(consumer, 6)) == numbered(10)[4:]
            await consumer.seek("first")
            assert payloads(await take(consumer, 10)) == numbered(10)
            for end in ("latest", "max"):
                await consumer.seek("first")
                await consumer.seek(end)
                assert await consumer.receive_many(10, timeout=0.3) == []
            with pytest.raises(errors.Unsupported):
                await consumer.seek(time.time())

            consumer.pause()
            (part,) = consumer.partitions()
            assert part["state"] == "paused"
            await producer.send_many(numbered(5))
            # A request from before the pause may still be answered, without messages here.
            assert await consumer.receive_many(10, timeout=0.5) == []
            consumer.resume()
            assert payloads(await take(consumer, 5)) == numbered(5)
            (part,) = consumer.partitions()
            assert part["state"] == "reading"
            assert (part["topic"], part["broker_id"], part["partition"]) == (topic, 1, 0)
            await until(lambda: consumer.partitions()[0]["lag"] == 0)
            assert consumer.partitions()[0]["offset"] == 15 * 28


async def test_what_is_not_acknowledged_comes_again_to_the_next(tube: TubeMqService) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        await producer.send_many(numbered(10))
        async with client.consumer(topic, name, position="first") as consumer:
            got: list[Any] = []
            while len(got) < 10:
                got += await consumer.receive_many(10, timeout=5)
            # All but one, which is not the last.
            await consumer.ack_many([message for message in got if bytes(message.data) != b"m000003"])
        async with client.consumer(topic, name) as consumer:
            again = payloads(await take(consumer, 1))
            assert again[0] <= b"m000003" and b"m000003" in again


async def test_nack_gives_it_again(tube: TubeMqService) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        async with client.consumer(topic, name, position="first", nack_delay=0.1) as consumer:
            await producer.send(b"x")
            message = await consumer.receive(timeout=PATIENCE)
            assert message.redelivery_count == 0
            consumer.nack(message)
            message = await consumer.receive(timeout=PATIENCE)
            assert bytes(message.data) == b"x" and message.redelivery_count == 1
            await consumer.ack(message)
        async with client.consumer(topic, name) as consumer:
            assert await consumer.receive_many(1, timeout=0.5) == []


def test_the_blocking_twin(tube: TubeMqService) -> None:
    topic = tube.topic(3)
    with forebay.blocking.connect(tube.url) as client:
        with (
            client.producer(topic) as producer,
            client.consumer(topic, group(), position="first") as consumer,
        ):
            at = producer.send(b"x", "key")
            assert isinstance(at, Position)
            message = consumer.receive(timeout=PATIENCE)
            assert (message.partition, bytes(message.data), message.key) == (at.partition, b"x", "key")
            consumer.ack(message)
        assert client.partitions(topic) == 3


def test_a_table_is_written_in_one_call(tube: TubeMqService) -> None:
    topic = tube.topic(1)
    table = pa.table({"payload": [b"%d" % number for number in range(12_000)], "key": ["k"] * 12_000})
    report = frames.write(table, tube.url, topic, value="payload", key="key")
    assert (report.rows, report.bytes) == (12_000, sum(map(len, table["payload"].to_pylist())))
    assert isinstance(report.first, Position) and isinstance(report.last, Position)
    assert report.first.offset < report.last.offset
    with forebay.blocking.connect(tube.url) as client:
        with client.consumer(topic, group(), position="first", auto_ack=True) as consumer:
            got = consumer.read_frame(12_000, timeout=60)
    assert got["value"].to_pylist() == table["payload"].to_pylist()


@pytest.mark.parametrize("balance", BALANCES)
async def test_a_position_of_a_partition_that_is_not_there_is_refused_with_those_that_are(
    tube: TubeMqService, balance: Any
) -> None:
    topic, name = tube.topic(2), group()
    async with connect(tube) as client, client.producer(topic) as producer:
        at = await producer.send(b"x")
        broker = at.broker_id
        missing = Position(broker, 9_999, 0)
        with pytest.raises(errors.InvalidArgument, match=rf"{broker}:9999,.*{broker}:0, {broker}:1"):
            await client.consumer(topic, name, position=[at, missing], balance=balance)
        async with client.consumer(topic, name, position="first", balance=balance) as consumer:
            (message,) = await take(consumer, 1)
            assert bytes(message.data) == b"x", "the group was not moved, and its member has left"


async def test_client_balance_has_data_in_a_moment(tube: TubeMqService) -> None:
    topic = tube.topic()
    async with connect(tube) as client, client.producer(topic) as producer:
        await producer.send(b"x")
    # The machine may stand still once.
    for _ in range(3):
        began = time.monotonic()
        async with connect(tube) as client, client.consumer(topic, group(), position="first") as consumer:
            await consumer.receive(timeout=PATIENCE)
            took = time.monotonic() - began
        if took < 2:
            break
    assert took < 2
