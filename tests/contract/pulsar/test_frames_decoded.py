"""Topics with schemas read as tables of typed columns: ``forebay.frames.read(..., decode=True)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from forebay import blocking, errors, frames
from forebay.pulsar import KeyValue, Schema

from .test_frame_columns import ORDER
from .test_frame_schemas import ORDERS, Order
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


@pytest.fixture
def door(service: PulsarService) -> Iterator[Any]:
    """A blocking client of ``service``."""
    with blocking.connect(service.url) as client:
        yield client


def kept(door: Any, topic: str) -> str:
    """Retains messages that are sent before the first subscription."""
    door.consumer(topic, "keep", position="earliest").close()
    return topic


def send(door: Any, topic: str, schema: Any, *values: Any, **options: Any) -> list[Any]:
    """Sends values; ``None`` is a tombstone."""
    with door.producer(topic, schema=schema, **options) as producer:
        return [
            producer.send(None, "k", null_value=True) if value is None else producer.send(value)
            for value in values
        ]


@dataclass
class Shop:
    town: str


@dataclass
class Line:
    article: str
    count: int | None = None


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_records_are_structs(door: Any, service: PulsarService, topic: str, kind: str) -> None:
    kept(door, topic)
    send(door, topic, getattr(Schema, kind)(Order), *ORDERS[:20], None, compression="zstd")
    table = frames.read(service.url, topic, decode=True)
    assert table.column_names[:2] == ["value", "key"] and table["value"].type == ORDER
    *values, tombstone = table["value"].to_pylist()
    assert tombstone is None
    for value, sent in zip(values, ORDERS, strict=False):
        assert (value["number"], value["at"], value["amount"]) == (sent.number, sent.at, sent.amount)
        assert (value["day"], value["clock"], value["id"]) == (sent.day, sent.clock, str(sent.id))
        assert (dict(value["tags"]), value["colour"], value["note"]) == (sent.tags, "BLUE", sent.note)
        assert value["lines"] == [{"article": o.article, "count": o.count} for o in sent.lines]
        assert (value["raw"], value["paid"], value["price"]) == (sent.raw, True, sent.price)
    # Without the option, and of a column that is not asked for, nothing is decoded.
    assert frames.read(service.url, topic)["value"].type == pa.binary()
    assert frames.read(service.url, topic, columns=["key"], decode=True).column_names == ["key"]


def test_the_fields_of_records_are_columns(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    send(door, topic, Schema.avro(Line), Line("nut", 3), None, Line("bolt"))
    table = frames.read(service.url, topic, columns="pulsar", decode=True)
    assert table.column_names[:4] == ["article", "count", "__key", "__topic"]
    assert table["article"].to_pylist() == ["nut", None, "bolt"]
    assert table["count"].to_pylist() == [3, None, None]
    scan = frames.scan(service.url, topic, columns="pulsar", decode=True)
    assert scan.schema == table.schema and scan.read_all().equals(table)
    # A column that is wanted alone.
    assert scan.to_polars().select("count").collect()["count"].to_list() == [3, None, None]


def test_values_that_are_no_records_stay_one_column(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    send(door, topic, Schema.avro({"type": "array", "items": "int"}), [1, 2], None, [])
    for columns in (None, "pulsar"):
        column = frames.read(service.url, topic, columns=columns, decode=True)["value"]
        assert column.to_pylist() == [[1, 2], None, []]


def test_a_field_with_the_name_of_a_column_is_an_error(door: Any, service: PulsarService, topic: str) -> None:
    fields = [{"name": "__key", "type": "string"}]
    kept(door, topic)
    send(door, topic, Schema.avro({"type": "record", "name": "R", "fields": fields}), {"__key": "k"})
    with pytest.raises(errors.InvalidArgument, match="'__key'"):
        frames.read(service.url, topic, columns="pulsar", decode=True)
    assert frames.read(service.url, topic, decode=True)["value"].to_pylist() == [{"__key": "k"}]


PRIMITIVES: dict[str, tuple[Any, pa.DataType]] = {
    "bytes": (b"\0\xff", pa.binary()),
    "string": ("ü", pa.string()),
    "boolean": (True, pa.bool_()),
    "int8": (-128, pa.int32()),
    "int16": (-(2**15), pa.int32()),
    "int32": (-(2**31), pa.int32()),
    "int64": (-(2**63), pa.int64()),
    "float": (-0.25, pa.float32()),
    "double": (0.1, pa.float64()),
    "date": (datetime(1960, 1, 1, 1, tzinfo=UTC), pa.timestamp("ms", "UTC")),
    "timestamp": (datetime(1960, 1, 1, 1, tzinfo=UTC), pa.timestamp("ms", "UTC")),
    "instant": (datetime(1960, 1, 1, 0, 0, 0, 1, UTC), pa.timestamp("us", "UTC")),
    "time": (time(1, 2, 3, 4000), pa.time32("ms")),
    "local_date": (date(1960, 1, 1), pa.date32()),
    "local_time": (time(1, 2, 3, 4), pa.time64("us")),
    "local_date_time": (datetime(1960, 1, 1, 0, 0, 0, 1), pa.timestamp("us")),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_single_values_are_columns(door: Any, service: PulsarService, topic: str, name: Any) -> None:
    value, kind = PRIMITIVES[name]
    kept(door, topic)
    send(door, topic, name, value, None)
    for columns in (None, "pulsar"):
        column = frames.read(service.url, topic, columns=columns, decode=True)["value"]
        assert (column.type, column.to_pylist()) == (kind, [value, None])


@pytest.mark.parametrize("encoding", ["inline", "separated"])
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_pairs_are_structs_of_a_key_and_a_value(
    door: Any, service: PulsarService, topic: str, encoding: Any, kind: str
) -> None:
    of = getattr(Schema, kind)
    schema = Schema.key_value(of(Shop), of(Line), encoding)
    pairs: Any = [(Shop("Bonn"), Line("nut", 3)), (Shop("Köln"), None), (None, Line("bolt")), (None, None)]
    kept(door, topic)
    send(door, topic, schema, *(KeyValue(*pair) for pair in pairs))
    expected = [
        {"key": {"town": "Bonn"}, "value": {"article": "nut", "count": 3}},
        {"key": {"town": "Köln"}, "value": None},
        {"key": None, "value": {"article": "bolt", "count": None}},
        {"key": None, "value": None},
    ]
    assert frames.read(service.url, topic, decode=True)["value"].to_pylist() == expected
    # As frames of consumers have them, whether these know the schema or not.
    for known in (schema, "auto"):
        with door.reader(topic, schema=known, position="earliest") as reader:
            assert reader.read_frame(4, timeout=PATIENCE)["value"].to_pylist() == expected


def test_pairs_of_single_values(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    send(door, topic, Schema.key_value("string", "int64", "separated"), KeyValue("a", 1), KeyValue("b", None))
    column = frames.read(service.url, topic, decode=True)["value"]
    assert column.type == pa.struct([("key", pa.string()), ("value", pa.int64())])
    assert column.to_pylist() == [{"key": "a", "value": 1}, {"key": "b", "value": None}]


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_all_versions_are_values_of_the_newest_schema(
    door: Any, service: PulsarService, topic: str, kind: str
) -> None:
    def schema(*more: dict[str, Any]) -> Schema[Any]:
        fields = [{"name": "a", "type": "int"}, *more]
        return getattr(Schema, kind)({"type": "record", "name": "R", "fields": fields})

    kept(door, topic)
    first = schema()
    send(door, topic, first, {"a": 1})
    early = frames.scan(service.url, topic, decode=True)
    send(door, topic, schema({"name": "b", "type": ["null", "string"], "default": None}), {"a": 2, "b": "x"})
    send(door, topic, first, {"a": 3})
    assert frames.read(service.url, topic, decode=True)["value"].to_pylist() == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
        {"a": 3, "b": None},
    ]
    # A read that was planned before has the schema of then.
    assert early.read_all()["value"].to_pylist() == [{"a": 1}]


def test_several_topics_with_one_schema_are_one_table(door: Any, service: PulsarService) -> None:
    topics = [kept(door, service.topic(partitions=count)) for count in (0, 3)]
    for number, topic in enumerate(topics):
        send(door, topic, Schema.json(Line), *(Line(topic[-3:], number * 10 + n) for n in range(6)))
    found = frames.read(service.url, topics, decode=True)["value"].to_pylist()
    assert sorted(value["count"] for value in found) == [*range(6), *range(10, 16)]


def test_topics_with_different_schemas_are_named(door: Any, service: PulsarService) -> None:
    topics = [kept(door, service.topic()) for _ in range(3)]
    send(door, topics[0], Schema.avro(Line), Line("a"))
    send(door, topics[1], Schema.json(Line), Line("a"))
    send(door, topics[2], None, b"a")
    for other in topics[1:]:
        match = f"(?s){re.escape(topics[0])}.*{re.escape(other)}.*decode=false"
        with pytest.raises(errors.InvalidArgument, match=match):
            frames.read(service.url, [topics[0], other], decode=True)
    assert frames.read(service.url, topics)["value"].type == pa.binary()
    # Without the column their schemas do not matter.
    assert frames.read(service.url, topics, columns=["topic"], decode=True).num_rows == 3


def test_a_payload_that_cannot_be_decoded_is_named(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    schema = Schema.avro(Line)
    send(door, topic, schema, Line("a", 1))
    raw = Schema("avro", "Line", schema.definition, raw=True)
    (bad,) = send(door, topic, raw, b"\xff")
    send(door, topic, schema, Line("b", 2))
    match = f"(?s)message {re.escape(str(bad))[:-2]}.*{re.escape(topic)}.*cannot be decoded"
    with pytest.raises(errors.SchemaError, match=match):
        frames.read(service.url, topic, decode=True)
    found = frames.read(service.url, topic, decode=True, on_error="null")["value"].to_pylist()
    assert found == [{"article": "a", "count": 1}, None, {"article": "b", "count": 2}]


def test_messages_without_a_schema_are_read_by_that_of_the_topic(
    door: Any, service: PulsarService, topic: str
) -> None:
    kept(door, topic)
    schema = Schema.json(Line)
    send(door, topic, None, schema.encode(Line("early", 1)))
    send(door, topic, schema, Line("late", 2))
    found = frames.read(service.url, topic, decode=True)["value"].to_pylist()
    assert [value["article"] for value in found] == ["early", "late"]


def test_messages_in_chunks_are_decoded(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    large = Line("x" * 5000, 1)
    send(door, topic, Schema.avro(Line), large, batching=False, chunking=True, chunk_max_size=500)
    assert frames.read(service.url, topic, decode=True)["value"].to_pylist() == [
        {"article": large.article, "count": 1}
    ]


def test_nothing_to_read_has_the_type_of_the_schema(door: Any, service: PulsarService, topic: str) -> None:
    with door.producer(topic, schema=Schema.avro(Line)):
        table = frames.read(service.url, topic, decode=True)
    assert table.num_rows == 0
    assert table["value"].type == pa.struct([("article", pa.string()), ("count", pa.int64())])


def test_what_cannot_be_a_column_is_refused(door: Any, service: PulsarService, topic: str) -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
    }
    with (
        door.producer(topic, schema=Schema.avro(node)),
        pytest.raises(errors.Unsupported, match="contains itself"),
    ):
        frames.read(service.url, topic, decode=True)
    with pytest.raises(errors.InvalidArgument, match="on_error"):
        frames.read(service.url, topic, decode=True, on_error="skip")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="decode is 'json': True"):
        frames.read(service.url, topic, decode="json")  # type: ignore[arg-type]
