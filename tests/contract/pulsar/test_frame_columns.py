"""Frames of consumers with schemas: typed columns of all versions, and nothing is lost that cannot be one."""

from __future__ import annotations

import math
import random
import re
import struct
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay import errors
from forebay.pulsar import Schema

from .test_frame_schemas import ORDERS, TABLE, Line, Order
from support.waiting import PATIENCE

LINES = pa.struct([("article", pa.string()), ("count", pa.int32())])
ORDER = pa.struct(
    [
        ("number", pa.int64()),
        ("price", pa.float64()),
        ("lines", pa.list_(LINES)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("id", pa.string()),
        ("amount", pa.decimal128(38, 2)),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("colour", pa.string()),
        ("note", pa.string()),
        ("raw", pa.binary()),
        ("paid", pa.bool_()),
    ]
)


async def read(client: Any, topic: str, rows: int, schema: Any, **options: Any) -> pa.Table:
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        table = await reader.read_frame(rows, timeout=PATIENCE, **options)
        assert table.num_rows == rows
        return table


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_objects_are_read_as_a_column_of_structs(client: Any, topic: str, kind: str) -> None:
    schema = getattr(Schema, kind)(Order)
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_many(ORDERS)
        await producer.send(None, "k", null_value=True)
        await producer.send_frame(TABLE, key="key")
    count = len(ORDERS)
    for reader in (schema, "auto"):
        got = await read(client, topic, 2 * count + 1, reader)
        assert got["value"].type == ORDER
        values = got["value"].to_pylist()
        assert values[count] is None
        assert values[:count] == values[count + 1 :]
        for value, sent in zip(values, ORDERS, strict=False):
            assert (value["number"], value["at"], value["amount"]) == (sent.number, sent.at, sent.amount)
            assert (value["day"], value["clock"], value["id"]) == (sent.day, sent.clock, str(sent.id))
            assert (dict(value["tags"]), value["colour"], value["note"]) == (sent.tags, "BLUE", sent.note)
            assert value["lines"] == [{"article": o.article, "count": o.count} for o in sent.lines]
            assert (value["raw"], value["paid"], value["price"]) == (sent.raw, True, sent.price)
    raw = await read(client, topic, 1, schema, decode=False)
    assert (raw["value"].type, schema.decode(raw["value"][0].as_py())) == (pa.binary(), ORDERS[0])


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_numbers_are_what_was_written(client: Any, topic: str, kind: str) -> None:
    chance = random.Random(12)
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 20}
    fields = [("n", "double"), ("d", decimal), ("u", ["double", "long"])]
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }
    schema = getattr(Schema, kind)(definition)

    def double() -> float:
        number: float = struct.unpack("<d", chance.randbytes(8))[0]
        return number if math.isfinite(number) else 5e-324

    def digits() -> Decimal:
        return Decimal(chance.randrange(-(10**60), 10**60)).scaleb(-20, Context(prec=76))

    sent = [{"n": double(), "d": digits(), "u": chance.choice((2**53 - 1, double()))} for _ in range(200)]
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_many(sent)
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        values = [(await reader.receive(timeout=PATIENCE)).value for _ in sent]
    assert values == sent
    for how in (schema, "auto"):
        got = await read(client, topic, len(sent), how)
        assert got["value"].type == pa.struct(
            [("n", pa.float64()), ("d", pa.decimal256(76, 20)), ("u", pa.float64())]
        )
        assert got["value"].to_pylist() == sent
    async with client.producer(f"{topic}-far", schema=schema) as producer:
        await producer.send({"n": 1.0, "d": Decimal(1), "u": 2**53 + 1})
    async with client.reader(f"{topic}-far", schema=schema, position="earliest") as reader:
        with pytest.raises(errors.SchemaError, match=r"9007199254740993 has more digits than the column"):
            await reader.read_frame(1, timeout=PATIENCE)
        assert (await reader.receive(timeout=PATIENCE)).value["u"] == 2**53 + 1


async def test_a_frame_that_was_read_can_be_sent(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.avro(Order)) as producer:
        await producer.send_many(ORDERS)
        got = await read(client, topic, len(ORDERS), Schema.avro(Order))
        await producer.send_frame(got, value="value")
    async with client.reader(topic, schema=Schema.avro(Order), position="earliest") as reader:
        assert [(await reader.receive(timeout=PATIENCE)).value for _ in range(2 * len(ORDERS))] == ORDERS * 2


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_the_versions_of_a_topic_are_one_type_in_a_frame(client: Any, topic: str, kind: str) -> None:
    def schema(*more: dict[str, Any]) -> Schema:
        at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
        return getattr(Schema, kind)({"type": "record", "name": "R", "fields": [at, *more]})

    at = datetime(2024, 1, 1, 1, 2, 3, 4000, tzinfo=UTC)
    one = schema()
    two = schema({"name": "b", "type": "string", "default": "none"})
    three = schema(
        {"name": "b", "type": "string", "default": "x"},
        {"name": "c", "type": ["null", "long"], "default": None},
    )
    for definition, value in ((one, {}), (two, {"b": "2"}), (three, {"b": "3", "c": 7}), (one, {})):
        async with client.producer(topic, schema=definition) as producer:
            await producer.send({"at": at, **value})
    got = await read(client, topic, 4, two)
    assert got["value"].to_pylist() == [{"at": at, "b": b} for b in ("none", "2", "3", "none")]
    got = await read(client, topic, 4, "auto")
    assert got["value"].to_pylist() == [
        {"at": at, "b": b, "c": c} for b, c in (("x", None), ("2", None), ("3", 7), ("x", None))
    ]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("string", pa.array(["ü", "", None])),
        ("int8", pa.array([-128, 127, None], pa.int32())),
        ("int64", pa.array([-(2**63), 2**63 - 1, None])),
        ("float", pa.array([0.5, float("inf"), None], pa.float32())),
        ("boolean", pa.array([True, False, None])),
        (
            "timestamp",
            pa.array(
                [datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), None],
                pa.timestamp("ms", "UTC"),
            ),
        ),
        (
            "instant",
            pa.array([datetime(1960, 1, 1, 0, 0, 0, 1, UTC), datetime(2024, 1, 1, tzinfo=UTC), None]),
        ),
        ("local_date", pa.array([date(1960, 1, 1), date(2024, 2, 29), None])),
        ("local_time", pa.array([time(1, 2, 3, 4), time(0), None])),
        ("time", pa.array([time(1, 2, 3, 4000), time(0), None], pa.time32("ms"))),
        ("local_date_time", pa.array([datetime(1960, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1), None])),
    ],
)
async def test_single_values_are_typed_columns(client: Any, topic: str, name: Any, column: Any) -> None:
    async with client.producer(topic, schema=name) as producer:
        await producer.send_frame(pa.table({"v": column}), value="v")
    for schema in (name, "auto"):
        got = await read(client, topic, 3, schema)
        assert got["value"].combine_chunks() == column


async def test_the_type_is_that_of_the_schema_without_rows_too(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", schema=Schema.avro(Line)) as consumer:
        assert (await consumer.read_frame(5, timeout=0.05))["value"].type == LINES
    async with client.consumer(topic, "plain") as consumer:
        assert (await consumer.read_frame(5, timeout=0.05))["value"].type == pa.binary()


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_payloads_that_cannot_be_decoded_are_named_and_nothing_is_lost(
    client: Any, topic: str, kind: str
) -> None:
    schema = getattr(Schema, kind)(Line)
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(Line("a", 1))
    async with client.producer(topic) as producer:
        bad = await producer.send(b"\x7f")
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(Line("b", 2))
    async with client.consumer(topic, "s", schema=schema, position="earliest") as consumer:
        for _ in range(2):
            with pytest.raises(errors.SchemaError, match=re.escape(f"message {bad} cannot be decoded")):
                await consumer.read_frame(3, timeout=PATIENCE)
        got = await consumer.read_frame(3, timeout=PATIENCE, on_error="null")
        assert got["value"].to_pylist() == [{"article": "a", "count": 1}, None, {"article": "b", "count": 2}]
        assert got["message_id"][1].as_py() == str(bad)
        with pytest.raises(errors.InvalidArgument, match="on_error"):
            await consumer.read_frame(1, timeout=0.05, on_error="skip")
        with pytest.raises(errors.InvalidArgument, match="decode is 'json': True"):
            await consumer.read_frame(1, timeout=0.05, decode="json")
    async with client.consumer(topic, "t", schema=schema, position="earliest") as consumer:
        with pytest.raises(errors.SchemaError):
            await consumer.read_frame(3, timeout=PATIENCE)
        messages = [await consumer.receive(timeout=PATIENCE) for _ in range(3)]
        assert [message.data for message in messages][1] == b"\x7f"
        await consumer.ack_cumulative(messages[-1])


async def test_types_that_no_column_has_leave_payloads_to_the_program(client: Any, topic: str) -> None:
    tree = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "left", "type": ["null", "T"], "default": None}],
    }
    union = {"type": "record", "name": "U", "fields": [{"name": "u", "type": ["string", "long"]}]}
    for definition, reason in ((tree, 'field "left".*contains itself'), (union, 'field "u".*several types')):
        schema = Schema.avro(definition)
        async with client.consumer(f"{topic}-{definition['name']}", "s", schema=schema) as consumer:
            with pytest.raises(errors.Unsupported, match=reason):
                await consumer.read_frame(1, timeout=0.05)
            assert (await consumer.read_frame(1, timeout=0.05, decode=False)).num_rows == 0


async def test_payloads_that_claim_much_cost_little(client: Any, topic: str) -> None:
    items = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": {"type": "array", "items": "null"}}],
    }
    schema = Schema.avro(items)
    claims = [
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
        b"\x01",
        b"",
    ]
    async with client.producer(topic, schema=schema) as producer:
        await producer.send({"n": [None]})
    async with client.producer(topic) as producer:
        for claim in claims:
            await producer.send(claim)
    got = await read(client, topic, 5, schema, on_error="null")
    assert got["value"].to_pylist() == [{"n": [None]}, None, None, None, None]
