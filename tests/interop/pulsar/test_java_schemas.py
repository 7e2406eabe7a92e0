"""Schemas of the official Java client and of ours on the embedded broker and a real Pulsar: values, what the
broker stores and what it refuses."""
# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

import forebay
from forebay import frames
from forebay.pulsar import KeyValue, Schema

from support.java import Refused
from support.pulsar.harness import PulsarService
from support.pulsar.java import Colour, Item, Maker, PulsarJava, encoded
from support.waiting import PATIENCE

pytestmark = [pytest.mark.real_pulsar, pytest.mark.timeout(120)]

ITEM = Item(
    "grüße", -(2**40), 0.1, True, b"\x00\xff", ["a", ""], {"x": 1, "ü": -1}, Maker("Köln"), Colour.RED
)


def struct() -> Any:
    """A class that both languages have generated."""
    from google.protobuf.struct_pb2 import Struct

    return Struct


def a_struct() -> Any:
    value = struct()()
    value.update({"ü": 1.5, "list": [True, "☃", None, {}], "nested": {"a": -0.5}})
    return value


def as_json(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


NOON = datetime(2026, 11, 23, 12, 30, 15, 123_000, tzinfo=UTC)
PRIMITIVES: dict[str, tuple[list[Any], list[Any]]] = {
    "string": (["grüße ☃", ""], ["grüße ☃", ""]),
    "boolean": ([True, False], [True, False]),
    "int8": ([-128, 127], [-128, 127]),
    "int16": ([-(2**15), 2**15 - 1], [-(2**15), 2**15 - 1]),
    "int32": ([-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1]),
    "int64": ([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    "float": ([1.5, -0.25], [1.5, -0.25]),
    "double": ([0.1, -1e300], [0.1, -1e300]),
    "local_date": ([date(2026, 11, 23), date(1969, 7, 20)], ["2026-11-23", "1969-07-20"]),
    "local_time": ([time(12, 30, 15, 123_456), time()], ["12:30:15.123456", "00:00"]),
    "local_date_time": ([NOON.replace(tzinfo=None)], ["2026-11-23T12:30:15.123"]),
    "instant": ([NOON], ["2026-11-23T12:30:15.123Z"]),
}
"""Values, and the same as Java has them."""


def case(name: str) -> tuple[Any, list[Any], list[Any]]:
    """A schema, values, and the values as Java has them."""
    if name in PRIMITIVES:
        return (Schema.primitive(name), *PRIMITIVES[name])  # type: ignore[arg-type]
    if name in ("json", "avro"):
        items = [ITEM, Item()]
        return getattr(Schema, name)(Item), items, [encoded(one) for one in items]
    if name in ("protobuf", "protobuf_native"):
        values = [a_struct(), struct()()]
        return getattr(Schema, name)(struct()), values, [as_json(one) for one in values]
    if name == "protobuf2":
        from google.protobuf.descriptor_pb2 import UninterpretedOption

        return Schema.protobuf(UninterpretedOption), [], []
    encoding, key, value = name.split(":")
    (keys, seen_keys), (values, seen_values) = case(key)[1:], case(value)[1:]
    pairs = [KeyValue(*pair) for pair in zip(keys, values, strict=False)]
    seen = [list(pair) for pair in zip(seen_keys, seen_values, strict=False)]
    nulls = [KeyValue(None, values[0]), KeyValue(keys[0], None)]
    schema = Schema.key_value(case(key)[0], case(value)[0], encoding)  # type: ignore[arg-type]
    return schema, pairs + nulls, [*seen, [None, seen_values[0]], [seen_keys[0], None]]


PAIRS = [
    f"{encoding}:{parts}"
    for encoding in ("inline", "separated")
    for parts in ("string:int64", "json:avro", "int32:string", "avro:json")
]
STRUCTURED = ["json", "avro", "protobuf", "protobuf_native"]
EACH = pytest.mark.parametrize("name", [*PRIMITIVES, *STRUCTURED, *PAIRS])


@pytest.fixture
def ours(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url, connect_timeout=PATIENCE) as client:
        yield client


@EACH
def test_values_of_ours_are_read_by_java(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str, name: str
) -> None:
    schema, values, expected = case(name)
    with ours.producer(topic, schema=schema) as producer:
        producer.send_many(values)
    with pulsar_java.reader(service, topic, schema=name) as reader:
        assert [one.value for one in reader.receive(len(values))] == expected


@EACH
def test_values_of_java_are_read_by_us(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str, name: str
) -> None:
    schema, values, given = case(name)
    ours.consumer(topic, "keep", position="earliest").close()
    with pulsar_java.producer(service, topic, schema=name) as producer:
        producer.send(*({"value": one} for one in given))
    with ours.reader(topic, schema=schema, position="earliest") as reader:
        messages = [reader.receive(timeout=PATIENCE) for _ in values]
    assert [one.value for one in messages] == values
    if name in PRIMITIVES:
        assert [one.data for one in messages] == [schema.encode(value) for value in values]
    if not name.startswith("protobuf"):
        column = frames.read(service.url, topic, decode=True)["value"]
        assert column.to_pylist() == [as_cell(value) for value in values]


def as_cell(value: Any) -> Any:
    """A value as a column of Arrow has it."""
    if isinstance(value, KeyValue):
        return {"key": as_cell(value.key), "value": as_cell(value.value)}
    if isinstance(value, Item | Maker):
        return {one.name: as_cell(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Colour):
        return value.name
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize("name", ["json", "avro", "separated:string:avro", "inline:int32:json", "string"])
def test_java_reads_what_is_there_without_knowing(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str, name: str
) -> None:
    """It gets each message's schema from the broker by its version."""
    schema, values, _ = case(name)
    with ours.producer(topic, schema=schema) as producer:
        producer.send(values[0])
    with pulsar_java.reader(service, topic, schema="auto") as reader:
        (seen,) = reader.receive(1)
    expected = encoded(values[0]) if name != "string" else values[0]
    found = seen.value[1] if isinstance(seen.value, list) else seen.value
    wanted = expected[1] if isinstance(expected, list) else expected
    if isinstance(wanted, dict):
        assert (found["name"], found["count"], found["maker"]) == ("grüße", -(2**40), {"town": "Köln"})
        assert set(found) == set(wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    "name", [*STRUCTURED, "protobuf2", "int32", "string", "separated:string:avro", "inline:int32:json"]
)
def test_both_see_the_same_schema_at_the_broker(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str, name: str
) -> None:
    with pulsar_java.producer(service, topic, schema=name):
        theirs = pulsar_java.schema(service, topic)
    mine = ours.schema(topic)
    kind, _, definition, properties = theirs
    assert mine.type.replace("_", "").upper() == kind.replace("_", "")
    assert mine.definition == definition
    assert dict(mine.properties) == properties
    assert pulsar_java.schema(service, topic, bytes(8)) == theirs
    if name.startswith("protobuf"):
        # What both derive from a class is one version.
        with ours.producer(f"{topic}-ours", schema=case(name)[0]):
            own = ours.schema(f"{topic}-ours")
        mine, theirs = json.loads(own.definition), json.loads(definition)
        if name == "protobuf_native":
            # Generators differ in the options of files.
            del mine["fileDescriptorSet"], theirs["fileDescriptorSet"]
        assert mine == theirs
        assert dict(own.properties) == properties


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_versions_of_both(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str, kind: str
) -> None:
    """Each is read by the schema that it was written with, and becomes a value of the reader's."""

    @dataclass
    class Item:
        name: str | None = None
        count: int | None = None

    few = getattr(Schema, kind)(Item)
    with ours.producer(topic, schema=few) as producer:
        producer.send(Item("ours", 1))
    with pulsar_java.producer(service, topic, schema=kind) as producer:
        producer.send({"value": ITEM})
        producer.send({"value": ITEM})
    with pulsar_java.reader(service, topic, schema=kind) as reader:
        seen = reader.receive(3)
    assert [one.value["name"] for one in seen] == ["ours", "grüße", "grüße"]
    assert [one.value["count"] for one in seen] == [1, -(2**40), -(2**40)]
    assert [one.schema_version[-1] for one in seen if one.schema_version] == [0, 1, 1]
    with ours.reader(topic, schema=few, position="earliest") as reader:
        messages = [reader.receive(timeout=PATIENCE) for _ in range(3)]
    assert [one.value for one in messages] == [Item("ours", 1), *[Item("grüße", -(2**40))] * 2]
    assert [one.schema_version for one in messages] == [one.schema_version for one in seen]


@pytest.mark.parametrize("name", ["json", "avro", "string", "int32", "inline:int32:json"])
def test_a_schema_that_does_not_follow_is_refused(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str, name: str
) -> None:
    other = Schema.avro({"type": "record", "name": "Item", "fields": [{"name": "weight", "type": "double"}]})
    with ours.producer(topic, schema=other) as producer:
        producer.send({"weight": 1.0})
    with pytest.raises(Refused, match="IncompatibleSchema"):
        pulsar_java.producer(service, topic, schema=name)
    if name != "avro":
        # Which can read what is there.
        with pytest.raises(Refused, match="IncompatibleSchema"):
            pulsar_java.consumer(service, topic, schema=name)
    with pulsar_java.producer(service, topic, schema="auto_produce") as producer:
        producer.send({"value": other.encode({"weight": 2.0})})
        with pytest.raises(Refused, match="SchemaSerialization"):
            producer.send({"value": b"\x01"})
    with ours.reader(topic, schema="auto", position="earliest") as reader:
        assert [reader.receive(timeout=PATIENCE).value["weight"] for _ in range(2)] == [1.0, 2.0]


def test_a_producer_of_several_schemas(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, topic: str
) -> None:
    @dataclass
    class Item:
        name: str | None = None

    with ours.producer(topic, schema=Schema.json(Item)) as producer:
        producer.send(Item("first"))
    with pulsar_java.producer(service, topic, schema="auto_produce") as producer:
        producer.send({"value": ITEM, "schema": "json"})
        producer.send({"value": Schema.json(Item).encode(Item("last"))})
    with ours.reader(topic, schema="auto", position="earliest") as reader:
        messages = [reader.receive(timeout=PATIENCE) for _ in range(3)]
    assert [one.value["name"] for one in messages] == ["first", "grüße", "last"]
    assert [one.schema_version[-1] for one in messages] == [0, 1, 0]
