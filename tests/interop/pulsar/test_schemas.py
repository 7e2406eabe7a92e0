"""The official Python client and ours read each other's values, and their schemas are the same to brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pulsar.schema
import pyarrow as pa
import pytest

import forebay
import pulsar
from forebay.pulsar import Avro, Schema

from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


class Item(pulsar.schema.Record):
    name = pulsar.schema.String()
    count = pulsar.schema.Integer()
    tags = pulsar.schema.Array(pulsar.schema.String())


@dataclass
class OurItem:
    name: str | None = None
    count: Annotated[int | None, Avro(["null", "int"])] = None  # type: ignore[arg-type]
    tags: list[str] | None = field(default_factory=list[str])


@pytest.fixture
def official(service: PulsarService) -> Iterator[Any]:
    client = pulsar.Client(
        service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    yield client
    client.close()


@pytest.fixture
def ours(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url, connect_timeout=PATIENCE) as client:
        yield client


def subscribed(official: Any, topic: str, schema: Any) -> Any:
    return official.subscribe(
        topic, "official", schema=schema, initial_position=pulsar.InitialPosition.Earliest
    )


KINDS = {
    "json": (Schema.json, pulsar.schema.JsonSchema),
    "avro": (Schema.avro, pulsar.schema.AvroSchema),
}
"""Of ours and of the official module, whose Avro is that of fastavro."""


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_ours_are_read_by_the_official_client(
    official: Any, ours: Any, topic: str, kind: str
) -> None:
    schema, official_schema = KINDS[kind]
    with ours.producer(topic, schema=schema(OurItem)) as producer:
        producer.send(OurItem("nut", 3, ["a"]))
        producer.send(OurItem("bolt"))
    consumer = subscribed(official, topic, official_schema(Item))
    first, second = consumer.receive(60_000).value(), consumer.receive(60_000).value()
    assert (first.name, first.count, first.tags) == ("nut", 3, ["a"])
    assert (second.name, second.count, second.tags) == ("bolt", None, [])


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_the_official_client_are_read_by_ours(
    official: Any, ours: Any, topic: str, kind: str
) -> None:
    schema, official_schema = KINDS[kind]
    producer = official.create_producer(topic, schema=official_schema(Item))
    producer.send(Item(name="nut", count=3, tags=["a"]))
    producer.send(Item(name="bolt"))
    with ours.consumer(topic, "ours", schema=schema(OurItem), position="earliest") as consumer:
        assert consumer.receive(timeout=60).value == OurItem("nut", 3, ["a"])
        assert consumer.receive(timeout=60).value.name == "bolt"
    with ours.reader(topic, schema="auto", position="earliest") as reader:
        assert reader.receive(timeout=60).value == {"name": "nut", "count": 3, "tags": ["a"]}


def test_text_is_read_by_both(official: Any, ours: Any, topic: str) -> None:
    with ours.producer(topic, schema="string") as producer:
        producer.send("grüße")
    assert subscribed(official, topic, pulsar.schema.StringSchema()).receive(60_000).value() == "grüße"
    official.create_producer(topic, schema=pulsar.schema.StringSchema()).send("zurück")
    with ours.reader(topic, schema="string", position="earliest") as reader:
        assert [reader.receive(timeout=60).value for _ in range(2)] == ["grüße", "zurück"]


def test_a_definition_of_both_is_one_version(official: Any, ours: Any, topic: str) -> None:
    official.create_producer(topic, schema=pulsar.schema.JsonSchema(Item)).send(Item(name="nut"))
    with ours.producer(topic, schema=Schema.json(Item.schema())) as producer:
        producer.send({"name": "bolt", "count": 1, "tags": None})
    with ours.reader(topic, position="earliest") as reader:
        versions = {reader.receive(timeout=60).schema_version for _ in range(2)}
    assert versions == {bytes(8)}


class Row(pulsar.schema.Record):
    number = pulsar.schema.Long(required=True)
    price = pulsar.schema.Double()
    note = pulsar.schema.String()
    tags = pulsar.schema.Array(pulsar.schema.String())


ROWS: list[dict[str, Any]] = [
    {
        "number": number,
        "price": number / 8,
        "note": None if number % 3 else "ü",
        "tags": ["a", ""][: number % 3],
    }
    for number in range(-500, 500)
]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_ours_are_records_of_the_official_client(
    official: Any, ours: Any, topic: str, kind: str
) -> None:
    schema, official_schema = KINDS[kind]
    consumer = subscribed(official, topic, official_schema(Row))
    with ours.producer(topic, schema=schema(Row.schema())) as producer:
        producer.send_frame(pa.Table.from_pylist(ROWS))
    got = [vars(consumer.receive(60_000).value()) for _ in ROWS]
    assert [{name: value[name] for name in ROWS[0]} for value in got] == ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_the_official_client_are_frames_of_ours(
    official: Any, ours: Any, topic: str, kind: str
) -> None:
    producer = official.create_producer(topic, schema=KINDS[kind][1](Row))
    for row in ROWS:
        producer.send_async(Row(**row), None)
    producer.flush()
    with ours.reader(topic, schema="auto", position="earliest") as reader:
        values: list[Any] = []
        while len(values) < len(ROWS):
            values += reader.read_frame(len(ROWS), timeout=60).column("value").to_pylist()
    assert values == ROWS
