"""The official Python client and ours read each other's values, and their schemas are the same to brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pulsar.schema
import pytest

import penstock
import pulsar
from penstock.pulsar import Avro, Schema

from support.pulsar.harness import PulsarService


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
        service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=15
    )
    yield client
    client.close()


@pytest.fixture
def ours(service: PulsarService) -> Iterator[Any]:
    with penstock.blocking.connect(service.url, operation_timeout=15) as client:
        yield client


def subscribed(official: Any, topic: str, schema: Any) -> Any:
    return official.subscribe(
        topic, "official", schema=schema, initial_position=pulsar.InitialPosition.Earliest
    )


def test_json_of_ours_is_read_by_the_official_client(official: Any, ours: Any, topic: str) -> None:
    with ours.producer(topic, schema=Schema.json(OurItem)) as producer:
        producer.send(OurItem("nut", 3, ["a"]))
        producer.send(OurItem("bolt"))
    consumer = subscribed(official, topic, pulsar.schema.JsonSchema(Item))
    first, second = consumer.receive(20_000).value(), consumer.receive(20_000).value()
    assert (first.name, first.count, first.tags) == ("nut", 3, ["a"])
    assert (second.name, second.count, second.tags) == ("bolt", None, [])


def test_json_of_the_official_client_is_read_by_ours(official: Any, ours: Any, topic: str) -> None:
    producer = official.create_producer(topic, schema=pulsar.schema.JsonSchema(Item))
    producer.send(Item(name="nut", count=3, tags=["a"]))
    producer.send(Item(name="bolt"))
    with ours.consumer(topic, "ours", schema=Schema.json(OurItem), position="earliest") as consumer:
        assert consumer.receive(timeout=20).value == OurItem("nut", 3, ["a"])
        assert consumer.receive(timeout=20).value.name == "bolt"
    with ours.reader(topic, schema="auto", position="earliest") as reader:
        assert reader.receive(timeout=20).value == {"name": "nut", "count": 3, "tags": ["a"]}


def test_text_is_read_by_both(official: Any, ours: Any, topic: str) -> None:
    with ours.producer(topic, schema="string") as producer:
        producer.send("grüße")
    assert subscribed(official, topic, pulsar.schema.StringSchema()).receive(20_000).value() == "grüße"
    official.create_producer(topic, schema=pulsar.schema.StringSchema()).send("zurück")
    with ours.reader(topic, schema="string", position="earliest") as reader:
        assert [reader.receive(timeout=20).value for _ in range(2)] == ["grüße", "zurück"]


def test_a_definition_of_both_is_one_version(official: Any, ours: Any, topic: str) -> None:
    official.create_producer(topic, schema=pulsar.schema.JsonSchema(Item)).send(Item(name="nut"))
    with ours.producer(topic, schema=Schema.json(Item.schema())) as producer:
        producer.send({"name": "bolt", "count": 1, "tags": None})
    with ours.reader(topic, position="earliest") as reader:
        versions = {reader.receive(timeout=20).schema_version for _ in range(2)}
    assert versions == {bytes(8)}
