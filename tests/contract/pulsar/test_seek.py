"""Moving a subscription: by id, by time, to the ends."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import gather, nothing, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


async def filled(producer: Any, count: int = 10) -> list[Any]:
    return await gather(*[producer.send(payload) for payload in numbered(count)])


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
async def test_to_the_beginning(client: Any, topic: str, kind: str) -> None:
    async with client.consumer(topic, "s", type=kind) as consumer, client.producer(topic) as producer:
        await filled(producer)
        await consumer.ack_many(await receive(consumer, 10))
        await consumer.seek("earliest")
        assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_to_the_beginning_of_a_batch_of_which_some_are_acknowledged(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared", ack_receipt=True) as consumer:
        async with client.producer(topic) as producer:
            await producer.send_many(numbered(10))
        messages = await receive(consumer, 10)
        assert messages[0].id.batch_size == 10
        await consumer.ack_many(messages[::2])
        await consumer.seek("earliest")
        assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_to_the_end(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", position="earliest") as consumer,
        client.producer(topic) as producer,
    ):
        await filled(producer)
        await consumer.seek("latest")
        await producer.send(b"new")
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"new"


@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_by_id_begins_after_it(client: Any, topic: str, batching: bool) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=batching) as producer:
        ids = await filled(producer)
        await receive(consumer, 10)
        await consumer.seek(ids[3])
        assert payloads(await receive(consumer, 6)) == numbered(10)[4:]
        await nothing(consumer)


@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_by_id_inclusive_begins_with_it(client: Any, topic: str, batching: bool) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=batching) as producer:
        ids = await filled(producer)
        await receive(consumer, 10)
        await consumer.seek(ids[3], inclusive=True)
        assert payloads(await receive(consumer, 7)) == numbered(10)[3:]
        await nothing(consumer)


@pytest.mark.parametrize("form", ["ms", "datetime", "ISO 8601"])
async def test_by_time(client: Any, topic: str, form: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        await producer.send(b"before")
        before = (await consumer.receive(timeout=PATIENCE)).publish_time
        # Publish times are whole milliseconds: wait for the next but one.
        while time.time() * 1000 < before + 2:
            time.sleep(0.001)
        moment = int(time.time() * 1000)
        while time.time() * 1000 < moment + 2:
            time.sleep(0.001)
        await producer.send(b"after")
        await consumer.receive(timeout=PATIENCE)
        at = datetime.fromtimestamp(moment / 1000, UTC)
        await consumer.seek({"ms": moment, "datetime": at, "ISO 8601": at.isoformat()}[form])
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"after"
        await nothing(consumer)


@pytest.mark.parametrize("back", ["1h", "-1h", timedelta(hours=1)])
async def test_by_a_duration_back(client: Any, topic: str, back: Any) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send(b"x")
        await consumer.receive(timeout=PATIENCE)
        await consumer.seek(back)
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"x"
        with pytest.raises(errors.InvalidArgument, match=r"seek: expected .* or a duration back, such as 2h"):
            await consumer.seek("soon")


async def test_to_a_time_before_everything(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await filled(producer)
        await receive(consumer, 10)
        await consumer.seek(1)
        assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_what_was_fetched_ahead_does_not_come_after_a_seek(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        ids = await filled(producer, 100)
        await consumer.receive(timeout=PATIENCE)
        await consumer.seek(ids[89])
        assert payloads(await receive(consumer, 10)) == numbered(100)[90:]
        await nothing(consumer)


async def test_a_seek_to_an_id_leaves_the_other_partitions_where_they_are(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=2)
    async with client.consumer(topic, "s") as consumer:
        for number, name in enumerate("ab"):
            async with client.producer(f"{topic}-partition-{number}", batching=False) as producer:
                await gather(*[producer.send(f"{name}{i}".encode()) for i in range(5)])
        # Unless it has to wait, `async for` takes what has arrived ahead.
        first, second = await anext(aiter(consumer)), await anext(aiter(consumer))
        await consumer.seek(second.id)
        rest = payloads(await receive(consumer, 8))
        sent = [f"{name}{i}".encode() for name in "ab" for i in range(5)]
        assert sorted(rest) == [payload for payload in sent if payload not in (first.data, second.data)]
        await nothing(consumer)


async def test_many_seeks_in_a_row(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        ids = await filled(producer, 20)
        for place in (3, 17, 0, 10, 19, 5):
            await consumer.seek(ids[place], inclusive=True)
            assert bytes((await consumer.receive(timeout=PATIENCE)).data) == numbered(20)[place]


async def test_acknowledged_messages_come_again_after_a_seek(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", ack_receipt=True) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        ids = await filled(producer)
        await consumer.ack_many(await receive(consumer, 10))
        await consumer.seek(ids[4], inclusive=True)
        assert sorted(payloads(await receive(consumer, 6))) == numbered(10)[4:]


async def test_messages_go_on_after_a_seek(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        ids = await filled(producer)
        await consumer.seek(ids[9])
        for payload in (b"new", b"newer"):
            await producer.send(payload)
            assert bytes((await consumer.receive(timeout=PATIENCE)).data) == payload


@pytest.mark.parametrize("position", ["nowhere", -5, None])
async def test_a_position_that_is_none_is_an_error(client: Any, topic: str, position: Any) -> None:
    async with client.consumer(topic, "s") as consumer:
        with pytest.raises((errors.InvalidArgument, TypeError)):
            await consumer.seek(position)


async def test_the_ids_of_earliest_and_latest_are_positions(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await filled(producer)
        await receive(consumer, 10)
        await consumer.seek(forebay.pulsar.MessageId.earliest)
        assert payloads(await receive(consumer, 10)) == numbered(10)
        await consumer.seek(forebay.pulsar.MessageId.latest)
        await nothing(consumer)


async def test_each_partition_to_a_position_of_its_own(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    sent: dict[str, list[Any]] = {}
    async with client.consumer(topic, "s") as consumer:
        for number in range(3):
            async with client.producer(f"{topic}-partition-{number}", batching=False) as producer:
                sent[f"{topic}-partition-{number}"] = await filled(producer, 4)
        await receive(consumer, 12)
        ids = list(sent.values())
        positions = {f"{topic}-partition-0": "earliest", f"{topic}-partition-1": ids[1][2]}
        await consumer.seek(positions.get)
        got = await receive(consumer, 5)
        by_topic: dict[str, list[bytes]] = {}
        for message in got:
            by_topic.setdefault(message.topic, []).append(bytes(message.data))
        assert by_topic == {
            f"{topic}-partition-0": numbered(4),
            f"{topic}-partition-1": numbered(4)[3:],
        }
        await nothing(consumer)


async def test_a_position_of_another_partition_moves_nothing(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        await filled(producer, 4)
        first = (await receive(consumer, 4))[0].id
        with pytest.raises(errors.InvalidArgument, match="another topic or partition"):
            await consumer.seek(lambda name: "earliest" if name == first.topic else first)
        with pytest.raises(errors.InvalidArgument):
            await consumer.seek(lambda name: "nowhere" if name != first.topic else "earliest")
        await nothing(consumer)


async def test_a_function_that_raises_moves_nothing(client: Any, topic: str) -> None:
    def position(name: str) -> str:
        raise KeyError(name)

    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await filled(producer, 2)
        await receive(consumer, 2)
        with pytest.raises(KeyError):
            await consumer.seek(position)
        await nothing(consumer)


@pytest.mark.parametrize("kind", ["shared", "key_shared", "failover"])
async def test_two_consumers_that_seek_at_the_same_moment_keep_nothing_to_themselves(
    client: Any, topic: str, kind: str
) -> None:
    async with (
        client.consumer(topic, "s", type=kind, ack_receipt=True) as late,
        client.consumer(topic, "s", type=kind, ack_receipt=True) as early,
        client.producer(topic, batching=False) as producer,
    ):
        ids = await gather(*[producer.send(payload, key=payload.decode()) for payload in numbered(40)])

        async def drain(consumer: Any) -> set[bytes]:
            got: set[bytes] = set()
            # What was dropped as late comes again after a second.
            while messages := await consumer.receive_many(100, timeout=2):
                got |= set(payloads(messages))
                await consumer.ack_many(messages)
            return got

        await gather(drain(late), drain(early))
        for pause in (0, 0.002, 0.02):

            async def back(pause: float) -> None:
                await asyncio.sleep(pause)
                await early.seek(ids[2], inclusive=True)

            await gather(late.seek(ids[30]), back(pause))
            got: set[bytes] = set()
            deadline = time.monotonic() + PATIENCE
            while not got >= set(numbered(40)[31:]):
                assert time.monotonic() < deadline, "behind both positions"
                got = got.union(*await gather(drain(late), drain(early)))
            await late.redeliver_unacknowledged()
            await early.redeliver_unacknowledged()
            await nothing(late)
            await nothing(early)
