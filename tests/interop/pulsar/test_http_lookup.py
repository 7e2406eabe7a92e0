"""Service URLs of ``http`` and ``https`` on the real Pulsar: its web service says what a client must know."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

import penstock
import penstock.compat.pulsar as compat
from penstock import errors
from penstock.pulsar import Schema

from support.messages import numbered, receive
from support.pulsar.harness import RealPulsar

pytestmark = pytest.mark.real_pulsar


@dataclass
class Order:
    number: int


async def test_topics_with_and_without_partitions(real_pulsar: RealPulsar) -> None:
    async with penstock.connect(real_pulsar.admin) as client:
        for partitions in (0, 3):
            topic = real_pulsar.topic(partitions)
            async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
                assert await client.partitions(topic) == partitions
                await producer.send_many(numbered(300), [str(number) for number in range(300)])
                messages = await receive(consumer, 300)
                assert sorted(bytes(message.data) for message in messages) == numbered(300)
                await consumer.ack_many(messages)


async def test_a_name_with_characters_that_urls_encode(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic() + " a+b%20ü"
    async with penstock.connect(real_pulsar.admin) as http, penstock.connect(real_pulsar.url) as binary:
        async with binary.consumer(topic, "s") as consumer, http.producer(topic) as producer:
            await producer.send(b"x")
            assert (await consumer.receive(timeout=10)).data == b"x"


async def test_a_topic_that_does_not_exist(real_pulsar: RealPulsar) -> None:
    async with penstock.connect(real_pulsar.admin) as http, penstock.connect(real_pulsar.url) as binary:
        for client in (http, binary):
            with pytest.raises(errors.TopicNotFound):
                await client.partitions("persistent://public/default/no-such-topic")
            with pytest.raises(errors.TopicNotFound):
                await client.producer("persistent://public/no-such-namespace/t")


async def test_schemas_of_each_version(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic()
    async with penstock.connect(real_pulsar.admin) as http, penstock.connect(real_pulsar.url) as binary:
        async with http.producer(topic, schema=Schema.avro(Order)) as producer:
            await producer.send(Order(7))
        one, other = await http.schema(topic), await binary.schema(topic)
        assert (one.name, one.type, one.definition) == (other.name, other.type, other.definition)
        assert dict(one.properties) == dict(other.properties)
        async with http.consumer(topic, "s", schema="auto", position="earliest") as consumer:
            assert (await consumer.receive(timeout=10)).value == {"number": 7}
        with pytest.raises(errors.TopicNotFound):
            await http.schema(real_pulsar.topic())


async def test_a_pattern_finds_topics_and_new_ones(real_pulsar: RealPulsar) -> None:
    prefix = real_pulsar.topic()
    async with penstock.connect(real_pulsar.admin) as client:
        async with client.producer(f"{prefix}-1") as producer:
            await producer.send(b"1")
        pattern = re.compile(f"{prefix}-.*")
        options: dict[str, Any] = {"position": "earliest", "pattern_update_interval": "200ms"}
        async with client.consumer(pattern, "s", **options) as consumer:
            assert (await consumer.receive(timeout=10)).data == b"1"
            async with client.producer(f"{prefix}-2") as producer:
                await producer.send(b"2")
            assert (await consumer.receive(timeout=20)).data == b"2"
        assert f"{prefix}-2" in await client.topics("public/default")


async def test_the_next_address_is_asked(real_pulsar: RealPulsar) -> None:
    host = real_pulsar.admin.removeprefix("http://")
    async with penstock.connect(f"http://127.0.0.1:1,{host}") as client:
        async with client.producer(real_pulsar.topic()) as producer:
            await producer.send(b"x")
    with pytest.raises(errors.ConnectFailed):
        await penstock.connect("http://127.0.0.1:1")


async def test_a_client_that_is_not_of_the_service(real_pulsar: RealPulsar) -> None:
    port = real_pulsar.url.rpartition(":")[2]
    with pytest.raises(errors.Error):
        await penstock.connect(f"http://127.0.0.1:{port}", operation_timeout=2)


async def test_tls_with_a_token(real_pulsar_secure: RealPulsar) -> None:
    options = {"tls_ca": str(real_pulsar_secure.ca), "operation_timeout": 10}
    url = real_pulsar_secure.admin
    for token in (None, "nonsense"):
        with pytest.raises(errors.AuthenticationError):
            await penstock.connect(url, token=token, **options)
    with pytest.raises(errors.TlsError):
        await penstock.connect(url, token=real_pulsar_secure.token("admin"))
    topic = real_pulsar_secure.topic(partitions=2)
    async with penstock.connect(url, token=real_pulsar_secure.token("admin"), **options) as client:
        async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
            await producer.send_many(numbered(100))
            messages = await receive(consumer, 100)
            assert sorted(bytes(message.data) for message in messages) == numbered(100)
            await consumer.ack_many(messages)


async def test_a_lost_connection_is_looked_up_again(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic()
    async with penstock.connect(real_pulsar.admin) as client:
        async with client.producer(topic) as producer, client.consumer(topic, "s") as consumer:
            await producer.send(b"1")
            real_pulsar.rest("PUT", f"{real_pulsar.path(topic)}/unload")
            await producer.send(b"2")
            received: set[bytes] = set()
            while received != {b"1", b"2"}:
                message = await consumer.receive(timeout=20)
                received.add(bytes(message.data))
                await consumer.ack(message)


def test_the_drop_in_takes_them(real_pulsar: RealPulsar) -> None:
    client = compat.Client(real_pulsar.admin)
    producer = client.create_producer(real_pulsar.topic())
    producer.send(b"x")
    client.close()
