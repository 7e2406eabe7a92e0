"""Service URLs of ``http`` and ``https``: what only the real Pulsar shows. See also the contract tests."""

from __future__ import annotations

import pytest

import forebay
import forebay.compat.pulsar as compat
from forebay import errors

from support.messages import numbered, receive
from support.pulsar.harness import RealPulsar

pytestmark = pytest.mark.real_pulsar


async def test_a_namespace_that_does_not_exist(real_pulsar: RealPulsar) -> None:
    async with forebay.connect(real_pulsar.admin) as http, forebay.connect(real_pulsar.url) as binary:
        for client in (http, binary):
            with pytest.raises(errors.TopicNotFound):
                await client.producer("persistent://public/no-such-namespace/t")


async def test_the_next_address_is_asked(real_pulsar: RealPulsar) -> None:
    host = real_pulsar.admin.removeprefix("http://")
    async with forebay.connect(f"http://127.0.0.1:1,{host}") as client:
        async with client.producer(real_pulsar.topic()) as producer:
            await producer.send(b"x")
    with pytest.raises(errors.ConnectFailed):
        await forebay.connect("http://127.0.0.1:1")


async def test_a_client_that_is_not_of_the_service(real_pulsar: RealPulsar) -> None:
    port = real_pulsar.url.rpartition(":")[2]
    with pytest.raises(errors.Error):
        await forebay.connect(f"http://127.0.0.1:{port}", operation_timeout=2)


async def test_tls_with_a_token(real_pulsar_secure: RealPulsar) -> None:
    options = {"tls_ca": str(real_pulsar_secure.ca), "operation_timeout": 60, "connect_timeout": 60}
    url = real_pulsar_secure.admin
    for token in (None, "nonsense"):
        with pytest.raises(errors.AuthenticationError):
            await forebay.connect(url, token=token, **options)
    with pytest.raises(errors.TlsError):
        await forebay.connect(url, token=real_pulsar_secure.token("admin"))
    topic = real_pulsar_secure.topic(partitions=2)
    async with forebay.connect(url, token=real_pulsar_secure.token("admin"), **options) as client:
        async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
            await producer.send_many(numbered(100))
            messages = await receive(consumer, 100)
            assert sorted(bytes(message.data) for message in messages) == numbered(100)
            await consumer.ack_many(messages)


async def test_a_lost_connection_is_looked_up_again(real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic()
    async with forebay.connect(real_pulsar.admin) as client:
        async with client.producer(topic) as producer, client.consumer(topic, "s") as consumer:
            await producer.send(b"1")
            real_pulsar.rest("PUT", f"{real_pulsar.path(topic)}/unload")
            await producer.send(b"2")
            received: set[bytes] = set()
            while received != {b"1", b"2"}:
                message = await consumer.receive(timeout=60)
                received.add(bytes(message.data))
                await consumer.ack(message)


def test_the_drop_in_takes_them(real_pulsar: RealPulsar) -> None:
    client = compat.Client(real_pulsar.admin)
    producer = client.create_producer(real_pulsar.topic())
    producer.send(b"x")
    client.close()
