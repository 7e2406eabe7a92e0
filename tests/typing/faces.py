"""The types that users see. Never run: pyright and mypy check it. An expected error carries an ignore
comment, and a comment that is not needed is an error."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from typing import Any, assert_type

from typing_extensions import Buffer

import forebay
from forebay import telemetry
from forebay.mqtt import MqttClient, MqttConsumer, MqttMessage, MqttProducer, ReasonCode
from forebay.pulsar import (
    MessageId,
    MessageIds,
    OutgoingMessage,
    PulsarClient,
    PulsarConsumer,
    PulsarMessage,
    PulsarProducer,
)
from forebay.tubemq import Position, TubeMqClient, TubeMqConsumer, TubeMqProducer


async def a_literal_url_gives_the_client_of_its_protocol() -> None:
    assert_type(await forebay.connect("embedded:"), PulsarClient)
    assert_type(await forebay.connect("pulsar://localhost:6650", token="env:TOKEN"), PulsarClient)
    assert_type(await forebay.connect("mqtt://localhost", client_id="till"), MqttClient)
    assert_type(await forebay.connect("tubemq://127.0.0.1:8715"), TubeMqClient)


async def any_other_url_gives_the_verbs_of_every_protocol(url: str) -> None:
    async with forebay.connect(url, tls_ca="ca.pem") as client:
        assert_type(client, forebay.Client)
        async with client.producer("orders", max_pending=10) as producer:
            assert_type(producer, forebay.Producer)
            await producer.send(b"x", properties={"a": "b"})
            producer.send_nowait(b"x")
            await producer.send_many([b"x"])
            await producer.flush()
            producer.send(b"x", key="k")  # type: ignore[call-arg]
            producer.name  # type: ignore[attr-defined]
        async with client.consumer("orders", "billing") as consumer:
            assert_type(consumer, forebay.Consumer)
            assert_type(await consumer.receive(timeout=1), forebay.Message)
            async for message in consumer:
                await consumer.ack(message)
            consumer.seek("earliest")  # type: ignore[attr-defined]
        client.publish("a", b"")  # type: ignore[attr-defined]
    forebay.connect(url, tls_cert_file="x")  # type: ignore[call-overload]


async def pulsar(url: str) -> None:
    async with forebay.pulsar.connect(url, listener_name="outside") as client:
        assert_type(client, PulsarClient)
        async with client.producer("orders", compression="zstd") as producer:
            assert_type(producer, PulsarProducer[Buffer])
            assert_type(await producer.send(b"x", "k", deliver_after=5), MessageId)
            assert_type(await producer.send_many([b"x"], ["k"]), MessageIds)
            producer.send(b"x", qos=1)  # type: ignore[call-overload]
        async with client.consumer("orders", "billing", type="shared") as consumer:
            assert_type(consumer, PulsarConsumer[bytes])
            assert_type(await consumer.last_message_ids(), list[MessageId])
            await consumer.seek("earliest")
            message = await consumer.receive()
            assert_type(message, PulsarMessage[bytes])
            assert_type(message.id, MessageId)
            message.qos  # type: ignore[attr-defined]
            consumer.partitions()  # type: ignore[attr-defined]

            async def handle(message: PulsarMessage) -> None: ...

            listener = consumer.listen(handle, concurrency=16)
            assert_type(listener, forebay.Listener[PulsarMessage[bytes]])
            await listener.stop()

            def wrong(message: MqttMessage) -> None: ...

            consumer.listen(wrong)  # type: ignore[arg-type]
            # Futures, where a task needs a coroutine.
            await asyncio.create_task(consumer.receive())  # type: ignore[arg-type]
            await asyncio.ensure_future(consumer.receive())
        client.producer("orders", qos=1)  # type: ignore[call-overload]
        client.reauthenticate()  # type: ignore[attr-defined]
        interceptor = forebay.pulsar.ProducerInterceptor()
        client.producer("orders", interceptors=interceptor)
        client.producer("orders", interceptors=[interceptor])
        client.producer("orders", interceptors=telemetry.ProducerTracing())

        class Counts(forebay.pulsar.ProducerInterceptor):
            def before_send_many(self, producer: Any, messages: list[OutgoingMessage]) -> None: ...

        client.producer("orders", interceptors=Counts())
        client.consumer("orders", "billing", interceptors=interceptor)  # type: ignore[call-overload]
        async with client.reader("orders", position={"orders-partition-0": message.id}) as reader:
            assert_type(reader, PulsarConsumer[bytes])
        client.reader("orders", position="-2h", subscription="mine")
        client.reader("orders", position=2.5)  # type: ignore[call-overload]
        async with client.table_view("prices") as view:
            assert_type(view["tea"], bytes)
            assert_type(view.get("tea"), bytes | None)
        async with client.table_view("prices", value=lambda message: int(message.data)) as numbers:
            assert_type(numbers.items(), list[tuple[str, int]])
    forebay.pulsar.connect(url, client_id="till")  # type: ignore[arg-type]


async def mqtt(url: str) -> None:
    async with forebay.mqtt.connect(url, client_id="till") as client:
        assert_type(client, MqttClient)
        assert_type(await client.publish("a", b"", qos=1), ReasonCode)
        async with client.producer("a", qos=2) as producer:
            assert_type(producer, MqttProducer)
            assert_type(await producer.send(b"x", retain=True), ReasonCode)
            assert_type(await producer.send_many([b"x"], ["b"]), list[ReasonCode])
            producer.send(b"x", key="k")  # type: ignore[call-arg]
            producer.last_sequence_id  # type: ignore[attr-defined]
        async with client.subscribe("a/#") as consumer:
            assert_type(consumer, MqttConsumer)
            async for message in consumer:
                assert_type(message, MqttMessage)
                message.id  # type: ignore[attr-defined]
            consumer.nack(await consumer.receive())  # type: ignore[attr-defined]
        client.reader("a")  # type: ignore[attr-defined]


async def tubemq(url: str) -> None:
    async with forebay.tubemq.connect(url) as client:
        assert_type(client, TubeMqClient)
        async with client.producer("demo") as producer:
            assert_type(producer, TubeMqProducer)
            assert_type(await producer.send(b"x", "k", message_type="till"), Position)
            producer.send(b"x", ordering_key=b"k")  # type: ignore[call-arg]
        async with client.consumer("demo", "billing", filters=["till"]) as consumer:
            assert_type(consumer, TubeMqConsumer)
            await consumer.nack(await consumer.receive())
            consumer.pause()
            consumer.last_message_ids()  # type: ignore[attr-defined]


def the_blocking_face(url: str) -> None:
    assert_type(forebay.blocking.connect("embedded:"), forebay.pulsar.blocking.PulsarClient)
    assert_type(forebay.blocking.connect(url), forebay.blocking.Client)
    with forebay.pulsar.blocking.connect(url) as client, client.producer("orders") as producer:
        assert_type(producer.send(b"x", "k"), MessageId)
        assert_type(producer.send_many([b"x"]), MessageIds)
        assert_type(producer.submit_many([b"x"]).wait(), MessageIds)
        producer.flush(timeout=1)
        client.producer("orders", interceptors=[telemetry.ProducerTracing()])
        with client.consumer("orders", "billing") as consumer, consumer.listen(print) as listener:
            assert_type(listener, forebay.blocking.Listener[PulsarMessage[bytes]])
    with forebay.mqtt.blocking.connect(url) as mqtt_client:
        assert_type(mqtt_client.publish("a", b""), ReasonCode)
        assert_type(telemetry.inject({"a": "b"}), dict[str, str])
        assert_type(telemetry.inject([("a", "b"), ("a", "c")]), list[tuple[str, str]])
        mqtt_client.partitions("a")  # type: ignore[attr-defined]


forebay.MessageId  # type: ignore[attr-defined]
