"""The types of values with schemas of Pulsar. Never run: pyright and mypy check it, as ``faces.py``."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, assert_type

from typing_extensions import Buffer

import forebay
from forebay import frames
from forebay.pulsar import (
    KeyValue,
    MessageId,
    PulsarClient,
    PulsarConsumer,
    PulsarMessage,
    PulsarProducer,
    PulsarTableView,
    Schema,
)
from forebay.pulsar import blocking as face


@dataclass
class Order:
    number: int


@dataclass
class Cancelled:
    number: int
    reason: str


class Generated:
    """Stands for a class that protobuf has generated."""


async def producers_take_values_of_their_schema(client: PulsarClient, maybe: Order | None) -> None:
    async with client.producer("orders", schema=Order, compression="zstd") as producer:
        assert_type(producer, PulsarProducer[Order])
        assert_type(await producer.send(Order(7), "key", properties={"a": "b"}), MessageId)
        producer.send_nowait(Order(7), "key", event_time=5)
        await producer.send_many([Order(7), Order(8)], ["a", "b"])
        producer.send(b"bytes")  # type: ignore[call-overload]
        producer.send(maybe)  # type: ignore[arg-type]
        producer.send({"number": 7})  # type: ignore[call-overload]
        producer.send_nowait(Cancelled(7, "late"))  # type: ignore[call-overload]
        producer.send_many([b"bytes"])  # type: ignore[list-item]
        producer.send(Order(7), qos=1)  # type: ignore[call-overload]
        # Tombstones, and messages with another schema.
        producer.send(None, "key", null_value=True)
        producer.send(Cancelled(7, "late"), schema=Cancelled)
        producer.send_nowait(Cancelled(7, "late"), schema=Schema.avro(Cancelled))
        producer.send(Order(7), schema=Schema.avro(Cancelled))  # type: ignore[misc]
        producer.send_many([Order(7)], ["key"])
        producer.send_many([Cancelled(7, "late")], schema=Cancelled)
        producer.send_many([Cancelled(7, "late")], ["key"], schema=Schema.avro(Cancelled))
        producer.send_many([Order(7)], schema=Schema.avro(Cancelled))  # type: ignore[misc]
        producer.send({"a": 1}, schema=Schema.json('{"type": "map", "values": "int"}'))
    client.producer("orders", schema=Order(7))  # type: ignore[call-overload]
    client.producer("orders", schema=Order, compresion="zstd")  # type: ignore[call-overload]


async def without_a_schema_payloads_are_bytes(client: PulsarClient) -> None:
    producer = await client.producer("orders")
    assert_type(producer, PulsarProducer[Buffer])
    producer.send(b"bytes")
    producer.send(bytearray(b"bytes"))
    producer.send_nowait(memoryview(b"bytes"))
    producer.send("text")  # type: ignore[call-overload]
    producer.send(Order(7))  # type: ignore[call-overload]
    producer.send(Order(7), schema=Order)
    of_bytes: PulsarProducer[bytes] = producer
    of_any: PulsarProducer = producer
    of_orders: PulsarProducer[Order] = producer  # type: ignore[assignment]
    assert_type(await (await client.consumer("orders", "billing")).receive(), PulsarMessage[bytes])
    assert_type(await client.table_view("prices"), PulsarTableView[bytes])
    of_all: list[forebay.Producer[Any]] = [of_bytes, of_any, of_orders]
    assert of_all


async def messages_have_values_of_the_schema(client: PulsarClient) -> None:
    async with client.consumer("orders", "billing", schema=Order, type="shared") as consumer:
        assert_type(consumer, PulsarConsumer[Order])
        message = await consumer.receive(timeout=1)
        assert_type(message, PulsarMessage[Order])
        assert_type(message.value, Order)
        assert_type(message.value.number, int)
        message.value.reason  # type: ignore[attr-defined]
        assert_type(message.data, bytes)
        assert_type(await consumer.receive_many(), list[PulsarMessage[Order]])
        assert_type(await consumer.receive_batch(10), list[PulsarMessage[Order]])
        async for each in consumer:
            assert_type(each.value, Order)
            await consumer.ack(each)
            await consumer.reconsume_later(each, 5)

        async def handle(message: PulsarMessage[Order]) -> None: ...
        async def handle_any(message: PulsarMessage) -> None: ...
        async def wrong(message: PulsarMessage[Cancelled]) -> None: ...

        assert_type(consumer.listen(handle), forebay.Listener[PulsarMessage[Order]])
        consumer.listen(handle_any)
        consumer.listen(wrong)  # type: ignore[arg-type]
    of_any: PulsarConsumer = consumer
    of_all: forebay.Consumer = consumer
    of_cancelled: PulsarConsumer[Cancelled] = consumer  # type: ignore[assignment]
    assert of_any is of_all is of_cancelled
    async with client.reader(["a", "b"], schema=Schema.avro(Order), position="earliest") as reader:
        assert_type((await reader.receive()).value, Order)
    assert_type((await (await client.reader("a")).receive()).value, bytes)
    client.consumer("orders", "billing", schema=Order, qos=1)  # type: ignore[call-overload]
    client.reader("orders", schema=7)  # type: ignore[call-overload]


async def table_views_have_values_of_the_schema(client: PulsarClient) -> None:
    async with client.table_view("orders", schema=Order, subscription="mine") as view:
        assert_type(view, PulsarTableView[Order])
        assert_type(view["a"], Order)
        assert_type(view.get("a"), Order | None)
        assert_type(view.items(), list[tuple[str, Order]])

    def number(message: PulsarMessage[Order]) -> int:
        return message.value.number

    assert_type((await client.table_view("orders", schema=Order, value=number))["a"], int)
    assert_type((await client.table_view("orders", value=lambda message: message.key))["a"], str | None)
    client.table_view("orders", schema=Order, value=7)  # type: ignore[call-overload]


def schemas_have_the_type_of_their_values(definition: Mapping[str, Any]) -> None:
    assert_type(Schema.avro(Order), Schema[Order])
    assert_type(Schema.json(Order), Schema[Order])
    assert_type(Schema.protobuf_native(Generated), Schema[Generated])
    assert_type(Schema.protobuf(Generated), Schema[Generated])
    assert_type(Schema.avro(definition), Schema[Any])
    assert_type(Schema.json('"string"'), Schema[Any])
    assert_type(Schema.primitive("string"), Schema[str])
    assert_type(Schema.primitive("int32"), Schema[int])
    assert_type(Schema.primitive("local_date"), Schema[date])
    assert_type(Schema.primitive("timestamp"), Schema[datetime])
    assert_type(Schema.auto(), Schema[Any])
    assert_type(Schema("protobuf_native", "", "{}", raw=True), Schema[bytes])
    assert_type(Schema.avro(Order).encode(Order(7)), bytes)
    assert_type(Schema.avro(Order).decode(b""), Order)
    Schema.avro(Order).encode(Cancelled(7, "late"))  # type: ignore[arg-type]
    Schema.primitive("int3")  # type: ignore[call-overload]
    Schema.avro(7)  # type: ignore[call-overload]
    Schema.avro(Order, name="Order")  # type: ignore[call-overload]
    assert_type(Schema.key_value(str, Order), Schema[KeyValue[str, Order]])
    assert_type(Schema.key_value(Schema.avro(Order), int, "separated"), Schema[KeyValue[Order, int]])
    assert_type(Schema.key_value("string", Order), Schema[KeyValue[Any, Order]])
    assert_type(Schema.key_value("string", "int64"), Schema[KeyValue[Any, Any]])


async def any_form_of_a_schema_will_do(
    client: PulsarClient, given: Schema[Order] | type[Order], unknown: Schema[Any] | type[Any] | str
) -> None:
    assert_type(await client.producer("orders", schema=given), PulsarProducer[Order])
    assert_type(await client.producer("orders", schema=unknown), PulsarProducer[Any])
    assert_type(await client.producer("orders", schema=str), PulsarProducer[str])
    assert_type(await client.producer("orders", schema="string"), PulsarProducer[Any])
    assert_type(await client.consumer("orders", "billing", schema="auto"), PulsarConsumer[Any])
    pairs = Schema.key_value(str, Order, encoding="separated")
    assert_type((await (await client.reader("orders", schema=pairs)).receive()).value.value, Order)
    native = Schema.protobuf_native(Generated)
    assert_type(await client.producer("orders", schema=native), PulsarProducer[Generated])


def ids_may_be_those_of_a_table(ids: list[str], own: list[MessageId]) -> None:
    frames.scan("pulsar://localhost", "orders", start=ids, end=own).close()


def the_blocking_face(client: face.PulsarClient) -> None:
    with client.producer("orders", schema=Order) as producer:
        assert_type(producer, face.PulsarProducer[Order])
        assert_type(producer.send(Order(7)), MessageId)
        producer.send_many([Order(7)])
        producer.submit_many([Order(7)]).wait()
        producer.submit_many([b"bytes"])  # type: ignore[list-item]
        producer.send(b"bytes")  # type: ignore[call-overload]
    with client.producer("orders") as plain:
        assert_type(plain, face.PulsarProducer[Buffer])
    with client.consumer("orders", "billing", schema=Order) as consumer:
        assert_type(consumer, face.PulsarConsumer[Order])
        assert_type(consumer.receive(), PulsarMessage[Order])
        for message in consumer:
            assert_type(message.value, Order)

        def handle(messages: Sequence[PulsarMessage[Order]]) -> None: ...

        handle(consumer.receive_many())
    with client.reader("orders", schema=Schema.json(Order)) as reader:
        assert_type(reader.receive().value, Order)
    with client.table_view("orders", schema=Order) as view:
        assert_type(view.values(), list[Order])
