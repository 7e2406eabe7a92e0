"""Schemas of the official module: declared to the broker, checked by it, and read by the other."""

from __future__ import annotations

from typing import Any

import pytest


def order(pulsar: Any) -> Any:
    schema = pulsar.schema

    class Order(schema.Record):
        number = schema.Integer(required=True)
        items = schema.Array(schema.String())

    return Order


def test_records_as_json(pulsar: Any, client: Any, topic: str, earliest: Any) -> None:
    cls = order(pulsar)
    schema = pulsar.schema.JsonSchema(cls)
    producer = client.create_producer(topic, schema=schema)
    producer.send(cls(number=7, items=["a"]))
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=earliest)
    message = consumer.receive(20_000)
    assert (message.value().number, message.value().items) == (7, ["a"])
    assert message.schema_version() in ("", "\0" * 8)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    assert reader.read_next(20_000).value() == cls(number=7, items=["a"])


def test_text(pulsar: Any, client: Any, topic: str, earliest: Any) -> None:
    schema = pulsar.schema.StringSchema()
    client.create_producer(topic, schema=schema).send("grüße")
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=earliest)
    message = consumer.receive(20_000)
    assert (message.value(), message.data()) == ("grüße", "grüße".encode())


def test_a_record_of_another_class_is_refused(pulsar: Any, client: Any, topic: str) -> None:
    producer = client.create_producer(topic, schema=pulsar.schema.JsonSchema(order(pulsar)))
    for wrong in ("text", b"raw", {"number": 1}):
        with pytest.raises(TypeError, match="Invalid record obj of type"):
            producer.send(wrong)


def test_a_schema_that_does_not_follow_is_refused(pulsar: Any, client: Any, topic: str) -> None:
    class Order(pulsar.schema.Record):
        weight = pulsar.schema.Double(required=True)

    client.create_producer(topic, schema=pulsar.schema.JsonSchema(order(pulsar)))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.JsonSchema(Order))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.StringSchema())


def test_bytes_may_be_sent_to_a_topic_with_a_schema(
    pulsar: Any, client: Any, topic: str, earliest: Any
) -> None:
    client.create_producer(topic, schema=pulsar.schema.StringSchema()).send("one")
    client.create_producer(topic).send(b"two")
    consumer = client.subscribe(topic, "s", initial_position=earliest)
    assert [consumer.receive(20_000).data() for _ in range(2)] == [b"one", b"two"]
