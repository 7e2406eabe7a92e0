"""Service URLs of ``http``: the lookups of clients by the web service of the broker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

import forebay
import pulsar
from forebay import errors
from forebay.pulsar import Schema

from support.messages import numbered, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


@dataclass
class Order:
    number: int


async def test_topics_with_and_without_partitions(service: PulsarService) -> None:
    async with forebay.connect(service.admin) as client:
        for partitions in (0, 3):
            topic = service.topic(partitions)
            async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
                assert await client.partitions(topic) == partitions
                await producer.send_many(numbered(300), [str(number) for number in range(300)])
                messages = await receive(consumer, 300)
                assert sorted(bytes(message.data) for message in messages) == numbered(300)
                await consumer.ack_many(messages)


async def test_a_name_with_characters_that_urls_encode(service: PulsarService) -> None:
    topic = service.topic() + " a+b%20ü"
    async with forebay.connect(service.admin) as http, forebay.connect(service.url) as binary:
        async with binary.consumer(topic, "s") as consumer, http.producer(topic) as producer:
            await producer.send(b"x")
            assert (await consumer.receive(timeout=PATIENCE)).data == b"x"


async def test_a_topic_that_does_not_exist(service: PulsarService) -> None:
    async with forebay.connect(service.admin) as client:
        with pytest.raises(errors.TopicNotFound):
            await client.partitions("persistent://public/default/no-such-topic")
        with pytest.raises(errors.TopicNotFound):
            await client.schema(service.topic())


async def test_schemas_and_patterns(service: PulsarService) -> None:
    topic = service.topic()
    async with forebay.connect(service.admin) as http, forebay.connect(service.url) as binary:
        async with http.producer(topic, schema=Schema.avro(Order)) as producer:
            await producer.send(Order(7))
        one, other = await http.schema(topic), await binary.schema(topic)
        assert (one.name, one.type, one.definition) == (other.name, other.type, other.definition)
        assert dict(one.properties) == dict(other.properties)
        options: dict[str, Any] = {"position": "earliest", "pattern_update_interval": "200ms"}
        async with http.consumer(re.compile(f"{topic}.*"), "s", schema="auto", **options) as consumer:
            assert (await consumer.receive(timeout=PATIENCE)).value == {"number": 7}
            async with http.producer(f"{topic}-2", schema=Schema.avro(Order)) as producer:
                await producer.send(Order(8))
            assert (await consumer.receive(timeout=PATIENCE)).value == {"number": 8}
        assert f"{topic}-2" in await http.topics("public/default")


@pytest.mark.parametrize("partitions", [0, 2])
def test_the_official_client(service: PulsarService, partitions: int) -> None:
    topic = service.topic(partitions)
    client = pulsar.Client(service.admin, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        assert len(client.get_topic_partitions(topic)) == max(partitions, 1)
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic)
        for number in range(20):
            producer.send(b"%d" % number)
        received = [consumer.receive(60_000) for _ in range(20)]
        assert sorted(int(message.data()) for message in received) == list(range(20))
        for message in received:
            consumer.acknowledge(message)
        pattern = re.compile(f"{topic}.*")
        found = client.subscribe(pattern, "p", initial_position=pulsar.InitialPosition.Earliest)
        assert found.receive(60_000).data()
    finally:
        client.close()
