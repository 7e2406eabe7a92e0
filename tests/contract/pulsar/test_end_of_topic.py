"""Topics that are terminated: consumers get everything and learn of the end, producers are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay import errors
from forebay.pulsar import ConsumerInterceptor

from support.messages import gather, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


async def collect(consumer: Any) -> list[bytes]:
    got: list[bytes] = []
    async for message in consumer:
        got.append(bytes(message.data))
        await consumer.ack(message)
    return got


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
async def test_an_iteration_ends_with_the_topic(
    client: Any, service: PulsarService, topic: str, kind: str
) -> None:
    async with client.consumer(topic, "s", type=kind) as consumer, client.producer(topic) as producer:
        await gather(*[producer.send(payload) for payload in numbered(5)])
        iteration = asyncio.create_task(collect(consumer))
        service.terminate_topic(topic)
        assert await asyncio.wait_for(iteration, PATIENCE) == numbered(5)
        await asyncio.wait_for(consumer.wait_for_end(), PATIENCE)
        assert consumer.reached_end
        with pytest.raises(errors.EndOfTopic):
            await consumer.receive(timeout=PATIENCE)
        with pytest.raises(errors.EndOfTopic):
            await consumer.receive_many(10, timeout=PATIENCE)


async def test_an_iteration_with_interceptors_ends_with_the_topic(
    client: Any, service: PulsarService, topic: str
) -> None:
    options: dict[str, Any] = {"interceptors": ConsumerInterceptor()}
    async with client.consumer(topic, "s", **options) as consumer, client.producer(topic) as producer:
        await producer.send(b"x")
        service.terminate_topic(topic)
        assert await asyncio.wait_for(collect(consumer), PATIENCE) == [b"x"]


async def test_the_end_is_reached_when_everything_is_acknowledged(
    client: Any, service: PulsarService, topic: str
) -> None:
    async with client.consumer(topic, "s", ack_receipt=True) as consumer, client.producer(topic) as producer:
        await gather(*[producer.send(payload) for payload in numbered(3)])
        service.terminate_topic(topic)
        messages = await receive(consumer, 3)
        await consumer.ack_many(messages[:2])
        with pytest.raises(errors.Timeout):
            await consumer.receive(timeout=0.3)
        assert not consumer.reached_end
        await consumer.ack(messages[2])
        await asyncio.wait_for(consumer.wait_for_end(), PATIENCE)


async def test_a_seek_back_begins_again(client: Any, service: PulsarService, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await gather(*[producer.send(payload) for payload in numbered(3)])
        service.terminate_topic(topic)
        assert len(await asyncio.wait_for(collect(consumer), PATIENCE)) == 3
        await consumer.seek("earliest")
        assert await asyncio.wait_for(collect(consumer), PATIENCE) == numbered(3)


async def test_producers_of_a_terminated_topic_are_refused(
    client: Any, service: PulsarService, topic: str
) -> None:
    async with client.consumer(topic, "s", position="earliest") as consumer:
        producer = await client.producer(topic)
        await producer.send(b"kept")
        service.terminate_topic(topic)
        with pytest.raises(errors.TopicTerminated):
            await producer.send(b"late")
        with pytest.raises(errors.TopicTerminated):
            await client.producer(topic)
        assert payloads(await receive(consumer, 1)) == [b"kept"]


async def test_a_subscription_that_is_made_at_the_end_has_nothing_to_wait_for(
    client: Any, service: PulsarService, topic: str
) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"before")
    service.terminate_topic(topic)
    async with client.consumer(topic, "s", position="latest") as consumer:
        await asyncio.wait_for(consumer.wait_for_end(), PATIENCE)
        assert not await consumer.has_message_available()


async def test_all_partitions_have_to_end(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        await gather(*[producer.send(payload) for payload in numbered(6)])
        service.terminate_topic(f"{topic}-partition-0")
        await consumer.ack_many(await receive(consumer, 6))
        with pytest.raises(errors.Timeout):
            await consumer.receive(timeout=0.3)
        assert not consumer.reached_end
        service.terminate_topic(f"{topic}-partition-1")
        assert await asyncio.wait_for(collect(consumer), PATIENCE) == []


async def test_closing_ends_the_wait_for_the_end(client: Any, topic: str) -> None:
    consumer = await client.consumer(topic, "s")
    waiting = asyncio.create_task(consumer.wait_for_end())
    await asyncio.sleep(0.05)
    await consumer.close()
    with pytest.raises(errors.Closed):
        await asyncio.wait_for(waiting, PATIENCE)
