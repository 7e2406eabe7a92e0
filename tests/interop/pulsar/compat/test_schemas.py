"""Schemas of the official module: declared to the broker, checked by it, and read by the other."""

from __future__ import annotations

import enum
from typing import Any

import pytest


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


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
    message = consumer.receive(60_000)
    assert (message.value().number, message.value().items) == (7, ["a"])
    assert message.schema_version() in ("", "\0" * 8)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    assert reader.read_next(60_000).value() == cls(number=7, items=["a"])


def test_text(pulsar: Any, client: Any, topic: str, earliest: Any) -> None:
    schema = pulsar.schema.StringSchema()
    client.create_producer(topic, schema=schema).send("grüße")
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=earliest)
    message = consumer.receive(60_000)
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
    assert [consumer.receive(60_000).data() for _ in range(2)] == [b"one", b"two"]


def everything(pulsar: Any) -> Any:
    """A record with a field of each type."""
    schema = pulsar.schema

    class Place(schema.Record):
        street = schema.String(required=True)
        number = schema.Integer()

    class Everything(schema.Record):
        yes = schema.Boolean(required=True)
        small = schema.Integer(required=True)
        large = schema.Long(required=True)
        single = schema.Float()
        double = schema.Double()
        raw = schema.Bytes()
        text = schema.String(default="none")
        colour = schema.CustomEnum(Colour)
        place = Place()
        names = schema.Array(schema.String())
        places = schema.Array(Place())
        counts = schema.Map(schema.Long())
        nothing = schema.String()

    return Place, Everything


def filled(pulsar: Any) -> tuple[Any, Any]:
    place, cls = everything(pulsar)
    record = cls(
        yes=True,
        small=-5,
        large=1 << 40,
        single=0.5,
        double=-1e300,
        raw=b"\0\xff",
        text="grüße",
        colour=Colour.GREEN,
        place=place(street="a", number=7),
        names=["x", ""],
        places=[place(street="b"), place(street="c", number=-1)],
        counts={"k": 1 << 60},
        nothing=None,
    )
    return cls, record


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_a_record_with_a_field_of_each_type(
    pulsar: Any, client: Any, topic: str, earliest: Any, kind: str
) -> None:
    cls, record = filled(pulsar)
    if kind == "JsonSchema":
        record.raw = None
    schema = getattr(pulsar.schema, kind)(cls)
    client.create_producer(topic, schema=schema).send(record)
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=earliest)
    value = consumer.receive(60_000).value()
    assert value == record
    assert (value.colour, value.place.street, value.places[1].number) == (Colour.GREEN, "a", -1)


def test_avro_of_dictionaries(pulsar: Any, client: Any, topic: str, earliest: Any) -> None:
    definition = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "number", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
    }
    schema = pulsar.schema.AvroSchema(None, schema_definition=definition)
    producer = client.create_producer(topic, schema=schema)
    producer.send({"number": 1, "note": None})
    producer.send({"number": 2, "note": "late"})
    with pytest.raises(ValueError, match="dict type"):
        producer.send("text")
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=earliest)
    got = [consumer.receive(60_000).value() for _ in range(2)]
    assert got == [{"number": 1, "note": None}, {"number": 2, "note": "late"}]


def test_avro_is_read_by_the_schema_of_its_writer(
    pulsar: Any, client: Any, topic: str, earliest: Any
) -> None:
    schema = pulsar.schema

    class Old(schema.Record):
        number = schema.Integer(required=True)
        gone = schema.String(required_default=True)

    class New(schema.Record):
        number = schema.Integer(required=True)
        added = schema.String(required=True, default="standard", required_default=True)

    client.create_producer(topic, schema=schema.AvroSchema(Old)).send(Old(number=1, gone="x"))
    client.create_producer(topic, schema=schema.AvroSchema(New)).send(New(number=2, added="y"))
    consumer = client.subscribe(topic, "s", schema=schema.AvroSchema(New), initial_position=earliest)
    first, second = consumer.receive(60_000), consumer.receive(60_000)
    assert (first.value().number, first.value().added) == (1, "standard")
    assert (second.value().number, second.value().added) == (2, "y")


def test_a_record_that_lacks_a_field_is_refused(pulsar: Any, client: Any, topic: str) -> None:
    cls = order(pulsar)
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(cls))
    with pytest.raises(Exception):  # of another type in each version of fastavro
        producer.send(cls(items=["a"]))
    producer.send(cls(number=1))
