"""Topics that get more partitions, and topics that are deleted, while producers and consumers run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from support.messages import payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE

OFTEN = {"partitions_update_interval": 0.1}


async def send_until_spread(producer: Any, partitions: int, sent: list[bytes]) -> None:
    """Sends messages with keys until each of the partitions has got some."""
    places: set[int] = set()
    try:
        async with asyncio.timeout(PATIENCE):
            while len(places) < partitions:
                batch = [b"%d" % (len(sent) + i) for i in range(100)]
                ids = await producer.send_many(batch, [f"k{i % 50}" for i in range(100)])
                sent += batch
                places |= {message_id.partition for message_id in ids}
                # New partitions come with time, not with the number of messages.
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"only the partitions {places} got messages")


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
async def test_growth_under_load_loses_nothing_and_keeps_the_order(
    client: Any, service: PulsarService, kind: Any
) -> None:
    topic = service.topic(partitions=2)
    sent: list[bytes] = []
    async with (
        client.consumer(topic, "s", type=kind, **OFTEN) as consumer,
        client.producer(topic, **OFTEN) as producer,
    ):
        await send_until_spread(producer, 2, sent)
        service.grow_topic(topic, 5)
        await send_until_spread(producer, 5, sent)
        messages = await receive(consumer, len(sent))
        assert sorted(payloads(messages)) == sorted(sent)
        order = defaultdict(list)
        for message in messages:
            order[message.topic].append(int(bytes(message.data)))
        assert len(order) == 5
        assert all(numbers == sorted(numbers) for numbers in order.values())
        await consumer.ack_many(messages)


async def test_a_key_goes_where_a_new_producer_would_send_it(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=1)
    keys = [f"k{i}" for i in range(50)]
    async with client.producer(topic, **OFTEN) as old:
        await old.send_many([b"x"] * 50, keys)
        service.grow_topic(topic, 4)
        await send_until_spread(old, 4, [])
        async with client.producer(topic) as new:
            before = await old.send_many([b"x"] * 50, keys)
            after = await new.send_many([b"x"] * 50, keys)
        assert [i.partition for i in before] == [i.partition for i in after]


@pytest.mark.parametrize("durable", [True, False])
async def test_what_is_sent_before_the_consumer_notices_is_received(
    client: Any, service: PulsarService, durable: bool
) -> None:
    topic = service.topic(partitions=1)
    options = {"durable": durable, "position": "latest", "partitions_update_interval": 0.5}
    async with client.consumer(topic, "s", **options) as consumer:
        service.grow_topic(topic, 3)
        sent: list[bytes] = []
        async with client.producer(topic) as producer:
            await send_until_spread(producer, 3, sent)
        assert sorted(payloads(await receive(consumer, len(sent)))) == sorted(sent)


async def test_messages_that_wait_while_the_topic_grows_are_received(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=1)
    async with client.consumer(topic, "s", **OFTEN) as consumer, client.producer(topic, **OFTEN) as producer:
        sent = [b"%d" % i for i in range(100)]
        await producer.send_many(sent)
        got = await receive(consumer, 1)
        service.grow_topic(topic, 3)
        await send_until_spread(producer, 3, sent)
        got += await receive(consumer, len(sent) - 1)
        assert sorted(payloads(got)) == sorted(sent)
        # Nothing waits any more, and the next message of each partition is seen.
        more: list[bytes] = []
        await send_until_spread(producer, 3, more)
        assert sorted(payloads(await receive(consumer, len(more)))) == sorted(more)


async def test_a_deleted_topic_that_is_made_again_is_consumed_again(
    client: Any, service: PulsarService
) -> None:
    kept, deleted = service.topic(), service.topic(partitions=2)
    # The subscription ends with its topic: the next one begins where the option says.
    options = {"position": "earliest", **OFTEN}
    async with (
        client.consumer([kept, deleted], "s", **options) as consumer,
        client.producer(kept) as producer,
    ):
        await producer.send(b"before")
        assert payloads(await receive(consumer, 1)) == [b"before"]
        service.delete_topic(deleted, partitioned=True)
        await producer.send(b"meanwhile")
        assert payloads(await receive(consumer, 1)) == [b"meanwhile"]
        service.create_topic(deleted, 3)
        sent: list[bytes] = []
        async with client.producer(deleted) as other:
            await send_until_spread(other, 3, sent)
        assert sorted(payloads(await receive(consumer, len(sent)))) == sorted(sent)
        await producer.send(b"after")
        assert payloads(await receive(consumer, 1)) == [b"after"]
