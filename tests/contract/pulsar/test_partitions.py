"""Partitioned topics: routing, hashing, ids, and consuming all partitions as one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from support.messages import gather, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


async def test_a_plain_topic_has_no_partitions(client: Any, topic: str) -> None:
    async with client.producer(topic):
        assert await client.partitions(topic) == 0


@pytest.mark.parametrize("count", [1, 4])
async def test_the_number_of_partitions_is_known(client: Any, service: PulsarService, count: int) -> None:
    assert await client.partitions(service.topic(partitions=count)) == count


async def test_all_partitions_are_consumed_as_one(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=4)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        ids = list(await producer.send_many(numbered(200), [f"k{i}" for i in range(200)]))
        messages = await receive(consumer, 200)
        assert sorted(payloads(messages)) == numbered(200)
        assert {message.id.partition for message in messages} == {0, 1, 2, 3}
        assert {message.id for message in messages} == set(ids)
        await consumer.ack_many(messages)


async def test_a_key_stays_in_its_partition_and_in_order(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await gather(*[producer.send(b"%d" % i, f"key-{i % 10}") for i in range(300)])
        places, order = defaultdict(set), defaultdict(list)
        for message in await receive(consumer, 300):
            places[message.key].add(message.id.partition)
            order[message.key].append(int(bytes(message.data)))
        assert all(len(partitions) == 1 for partitions in places.values())
        assert all(numbers == sorted(numbers) for numbers in order.values())
        assert len(set().union(*places.values())) > 1


@pytest.mark.parametrize(
    ("hashing", "key", "number"),
    [
        ("java", "key1", 3288498),
        ("java", "keykeykeykeykey1", 434058482),
        ("java", "Ünï", 215069),
        ("murmur3", "key1", 462881061),
        ("murmur3", "key2", 1936800180),
    ],
)
async def test_the_hash_of_the_key_chooses_the_partition(
    client: Any, service: PulsarService, hashing: str, key: str, number: int
) -> None:
    topic = service.topic(partitions=7)
    async with client.producer(topic, hashing=hashing) as producer:
        assert (await producer.send(b"x", key)).partition == number % 7


async def test_boost_hashing_is_accepted(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=7)
    async with client.producer(topic, hashing="boost") as producer:
        ids = await gather(*[producer.send(b"x", f"key-{i}") for i in range(30)])
        assert len({message_id.partition for message_id in ids}) > 2


async def test_messages_without_a_key_go_around(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    async with client.producer(topic, batching=False) as producer:
        ids = await gather(*[producer.send(b"x") for _ in range(30)])
        assert {message_id.partition for message_id in ids} == {0, 1, 2}


async def test_single_routing_stays_in_one_partition(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    async with client.producer(topic, routing="single", batching=False) as producer:
        ids = await gather(*[producer.send(b"x") for _ in range(30)])
        assert len({message_id.partition for message_id in ids}) == 1


async def test_a_partition_is_a_topic_of_its_own(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    async with (
        client.consumer(f"{topic}-partition-1", "s") as consumer,
        client.producer(f"{topic}-partition-1") as one,
        client.producer(f"{topic}-partition-2") as other,
    ):
        await other.send(b"not for us")
        await one.send(b"for us")
        message = await consumer.receive(timeout=PATIENCE)
        assert bytes(message.data) == b"for us"
        assert message.topic == f"{topic}-partition-1"


async def test_a_message_names_its_partition(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_many(numbered(20), [str(i) for i in range(20)])
        for message in await receive(consumer, 20):
            assert message.topic == f"{topic}-partition-{message.id.partition}"


async def test_each_partition_has_a_last_id(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        sent = await gather(*[producer.send(b"x") for _ in range(30)])
        last = await consumer.last_message_ids()
        assert len(last) == 3
        for message_id in last:
            own = [i for i in sent if i.partition == message_id.partition]
            assert (message_id.ledger, message_id.entry) == (own[-1].ledger, own[-1].entry)


async def test_what_is_acknowledged_in_all_partitions_does_not_come_again(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=3)
    async with client.producer(topic) as producer:
        async with client.consumer(topic, "s", ack_receipt=True) as consumer:
            await producer.send_many(numbered(30), [str(i) for i in range(30)])
            await consumer.ack_many(await receive(consumer, 30))
        async with client.consumer(topic, "s") as consumer:
            await producer.send(b"new")
            assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"new"


async def test_cumulative_acknowledgement_is_per_partition(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    async with client.producer(topic, batching=False) as producer:
        async with client.consumer(topic, "s", ack_receipt=True) as consumer:
            await gather(*[producer.send(b"%d" % i) for i in range(20)])
            messages = await receive(consumer, 20)
            zero = [message for message in messages if message.id.partition == 0]
            await consumer.ack_cumulative(zero[-1])
        async with client.consumer(topic, "s") as consumer:
            again = await receive(consumer, 20 - len(zero))
            assert {message.id.partition for message in again} == {1}


@pytest.mark.parametrize("taken", [30, 1])
async def test_seek_to_the_beginning_covers_all_partitions(
    client: Any, service: PulsarService, taken: int
) -> None:
    topic = service.topic(partitions=3)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_many(numbered(30), [str(i) for i in range(30)])
        await consumer.ack_many(await receive(consumer, taken))
        await consumer.seek("earliest")
        assert sorted(payloads(await receive(consumer, 30))) == numbered(30)


async def test_several_topics_are_consumed_as_one(client: Any, service: PulsarService) -> None:
    topics = [service.topic(), service.topic(partitions=2), service.topic()]
    async with client.consumer(topics, "s") as consumer:
        for topic in topics:
            async with client.producer(topic) as producer:
                await producer.send_many(numbered(10), [str(i) for i in range(10)])
        messages = await receive(consumer, 30)
        assert {message.topic.split("-partition-")[0] for message in messages} == set(topics)
        await consumer.ack_many(messages)


async def test_a_namespace_lists_its_topics(client: Any, service: PulsarService) -> None:
    plain, parted = service.topic(), service.topic(partitions=2)
    async with client.producer(plain), client.producer(parted):
        found = {name.split("-partition-")[0] for name in await client.topics("public/default")}
        assert {plain, parted} <= found
