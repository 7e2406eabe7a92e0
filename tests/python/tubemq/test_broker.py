"""The embedded TubeMQ for its users: topics on first use, credentials, restarts, figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import numbered, payloads
from support.pulsar.harness import EmbeddedPulsar
from support.tubemq import wire
from support.tubemq.harness import EmbeddedTubeMq, group
from support.tubemq.load import BALANCES, connect, ready, take
from support.waiting import PATIENCE


async def test_a_topic_comes_into_being_when_it_is_first_used() -> None:
    async with forebay.Broker(durability="memory", tubemq_port=0, tubemq_partitions=5) as broker:
        assert broker.tubemq_url is not None
        async with connect(broker.tubemq_url) as client:
            async with client.producer("made_by_a_producer") as producer:
                await producer.send(b"x")
            async with client.consumer("made_by_a_consumer", "g") as consumer:
                await ready(consumer, 5)
            assert await client.partitions("made_by_a_producer") == 5
        assert set(broker.topics()) == {"tubemq:made_by_a_producer", "tubemq:made_by_a_consumer"}


async def test_one_broker_speaks_three_protocols_and_keeps_them_apart() -> None:
    async with forebay.Broker(durability="memory", mqtt_port=0, tubemq_port=0) as broker:
        assert broker.mqtt_url and broker.tubemq_url
        for url in (broker.url, broker.mqtt_url, broker.tubemq_url):
            options: dict[str, Any] = {} if url == broker.mqtt_url else {"position": "earliest"}
            async with forebay.connect(url) as client, client.consumer("same", "g", **options) as consumer:
                if url == broker.tubemq_url:
                    await ready(consumer, 3)
                async with client.producer("same") as producer:
                    await producer.send(url.encode())
                message = await consumer.receive(timeout=PATIENCE)
                assert bytes(message.data) == url.encode()
                await consumer.ack(message)
                assert await consumer.receive_many(10, timeout=0.1) == []


async def test_the_first_message_comes_at_once() -> None:
    async with forebay.Broker(durability="memory", tubemq_port=0) as broker:
        assert broker.tubemq_url is not None
        async with connect(broker.tubemq_url) as client, client.producer("t") as producer:
            await producer.send(b"x")
        began = time.perf_counter()
        async with connect(broker.tubemq_url, heartbeat_interval=60) as client:
            async with client.consumer("t", "g", position="first") as consumer:
                await consumer.receive(timeout=PATIENCE)
        assert time.perf_counter() - began < 30, "it did not wait for a heartbeat"


@pytest.mark.parametrize("balance", BALANCES)
async def test_messages_and_offsets_outlive_a_restart(balance: str) -> None:
    broker = EmbeddedTubeMq(data=True)
    try:
        topic, name = broker.topic(2), group()
        async with connect(broker) as client, client.producer(topic) as producer:
            await producer.send_many(numbered(20))
            async with client.consumer(topic, name, position="first", balance=balance) as consumer:
                await take(consumer, 20)
            await producer.send_many([b"later"] * 5)
        broker.restart()
        async with connect(broker) as client:
            async with client.consumer(topic, name, position="first", balance=balance) as consumer:
                assert payloads(await take(consumer, 5)) == [b"later"] * 5
            async with client.consumer(topic, group(), position="first", balance=balance) as consumer:
                assert len(await take(consumer, 25)) == 25
    finally:
        broker.stop()


async def test_a_client_goes_on_when_the_broker_was_away() -> None:
    broker = EmbeddedTubeMq(data=True)
    try:
        topic = broker.topic()
        async with connect(broker) as client, client.producer(topic) as producer:
            async with client.consumer(topic, group(), position="first") as consumer:
                await producer.send(b"before")
                assert payloads(await take(consumer, 1)) == [b"before"]
                broker.restart(kill=True)
                at = await producer.send(b"after")
                assert at.offset == 28
                came: list[bytes] = []
                while b"after" not in came:
                    came += payloads(await take(consumer, 1))
                # The confirmation of the first may not have reached the disk.
                assert came in ([b"after"], [b"before", b"after"])
    finally:
        broker.stop()


async def test_users(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:secret\nbob:hunter2\n")
    users.chmod(0o600)
    broker = EmbeddedTubeMq(tubemq_user_file=str(users))
    try:
        topic = broker.topic()
        async with connect(broker, username="ann", password="secret") as client:
            async with client.producer(topic) as producer, client.consumer(topic, "g") as consumer:
                await ready(consumer, 1)
                await producer.send(b"x")
                assert payloads(await take(consumer, 1)) == [b"x"]
        for who in ({}, {"username": "ann", "password": "wrong"}, {"username": "eve", "password": "secret"}):
            with pytest.raises(errors.AuthenticationError):
                async with connect(broker, **who) as client, client.producer(topic) as producer:
                    await producer.send(b"x")
        # By hand: an expired signature, and none where the broker requires one.
        register: dict[str, Any] = {"clientId": "c", "brokerCheckSum": -1, "hostName": "127.0.0.1"}
        with wire.Raw(broker.ports[0]) as raw:
            old = {"authInfo": wire.credentials("ann", "secret", at=time.time() - 3600)}
            assert raw.call("producer_register", **register, authInfo=old)["errCode"] == 415
            said = raw.call(
                "producer_register", **register, authInfo={"authInfo": wire.credentials("ann", "secret")}
            )
            assert said["success"]
            message = {"clientId": "c", "topicName": topic, "partitionId": 0, "data": b"x", "flag": 0}
            said = raw.call("send", **message, checkSum=-1, sentAddr=0, authInfo={"visitAuthorizedToken": 1})
            assert said["errCode"] == 415
    finally:
        broker.stop()


def test_figures() -> None:
    broker = EmbeddedTubeMq()
    try:
        topic = broker.topic(2)
        with forebay.blocking.connect(broker.url) as client, client.producer(topic) as producer:
            producer.send_many(numbered(10))
            figures = broker.call("status")["tubemq"]
            assert figures["connections"] >= 1
            assert figures["topics"] == 1
    finally:
        broker.stop()


def test_without_a_port_there_is_no_tubemq() -> None:
    broker = EmbeddedPulsar(durability="memory")
    try:
        assert broker.call("tubemq_url") is None
    finally:
        broker.stop()
