"""The types that programs see through the drop-in for pulsar-client. Never run: pyright and mypy check it."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import assert_type

import forebay.compat.pulsar as pulsar
import forebay.compat.pulsar.asyncio as aio


def programs_have_types() -> None:
    client = pulsar.Client("pulsar://localhost:6650", pulsar.AuthenticationToken("token"))
    consumer = client.subscribe("orders", "billing", pulsar.ConsumerType.Shared)
    assert_type(consumer, pulsar.Consumer)
    message = consumer.receive(timeout_millis=1000)
    assert_type(message, pulsar.Message)
    assert_type(message.data(), bytes)
    assert_type(message.message_id(), pulsar.MessageId)
    assert_type(message.properties(), dict[str, str])
    consumer.acknowledge(message)
    consumer.acknowledge(message.message_id())
    consumer.acknowledge("message")  # type: ignore[arg-type]
    assert_type(consumer.batch_receive(), list[pulsar.Message])
    producer = client.create_producer("orders", compression_type=pulsar.CompressionType.ZSTD)
    assert_type(producer, pulsar.Producer)
    assert_type(producer.send(b"x", partition_key="k"), pulsar.MessageId)

    def callback(result: pulsar.Result, message_id: pulsar.MessageId) -> None: ...

    producer.send_async(b"x", callback)
    client.create_producer("orders", compression_type="zstd")  # type: ignore[arg-type]
    assert_type(client.create_reader("orders", pulsar.MessageId.earliest), pulsar.Reader)


def listeners_have_types(client: pulsar.Client) -> None:
    def listener(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        consumer.acknowledge(message)

    client.subscribe("orders", "billing", message_listener=listener)


async def asyncio_has_types() -> None:
    client = aio.Client("pulsar://localhost:6650")
    consumer = await client.subscribe("orders", "billing")
    assert_type(consumer, aio.Consumer)
    assert_type(await consumer.receive(), pulsar.Message)
    assert_type(await (await client.create_producer("orders")).send(b"x"), pulsar.MessageId)
