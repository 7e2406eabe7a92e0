"""Frames with schemas: rows are encoded by them, and no topic with one gets rows without it by accident."""

from __future__ import annotations

import enum
import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from forebay import errors
from forebay.pulsar import Avro, Schema

from support.messages import receive
from support.pulsar.avro import container, records
from support.waiting import PATIENCE


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Line:
    article: str
    count: Annotated[int, Avro("int")] = 1


@dataclass
class Order:
    number: int
    price: float
    lines: list[Line]
    at: datetime
    day: date
    clock: time
    id: uuid.UUID
    amount: Annotated[Decimal, Avro({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})]
    tags: dict[str, str] = field(default_factory=dict[str, str])
    colour: Colour = Colour.RED
    note: str | None = None
    raw: bytes = b""
    paid: bool = False


def order(number: int) -> Order:
    return Order(
        number,
        number / 4,
        [Line("nut", number), Line("bolt")],
        datetime(2024, 2, 29, 1, 2, 3, 4567, tzinfo=UTC),
        date(1960, 1, 1),
        time(23, 59, 59, 999_999),
        uuid.UUID(int=number),
        Decimal("-12345.67"),
        {"a": "ü"},
        Colour.BLUE,
        None if number % 2 else f"note {number}",
        b"\0\xff",
        True,
    )


ORDERS = [order(number) for number in range(100)]
LINE = pa.struct([("article", pa.string()), ("count", pa.int64())])
# As data frames have them: wide numbers, other units, dictionaries.
TABLE = pa.table(
    {
        "key": pa.array([f"k{o.number}" for o in ORDERS]),
        "number": pa.array([o.number for o in ORDERS], pa.uint64()),
        "price": pa.array([o.price for o in ORDERS], pa.float64()),
        "lines": pa.array(
            [[{"article": line.article, "count": line.count} for line in o.lines] for o in ORDERS],
            pa.list_(LINE),
        ),
        "at": pa.array([o.at for o in ORDERS], pa.timestamp("ns", "Europe/Berlin")),
        "day": pa.array([o.day for o in ORDERS], pa.date32()),
        "clock": pa.array([o.clock for o in ORDERS], pa.time64("ns")),
        "id": pa.array([str(o.id) for o in ORDERS]),
        "amount": pa.array([o.amount for o in ORDERS], pa.decimal128(20, 4)),
        "tags": pa.array([list(o.tags.items()) for o in ORDERS], pa.map_(pa.string(), pa.string())),
        "colour": pa.array([o.colour.name for o in ORDERS]).dictionary_encode(),
        "note": pa.array([o.note for o in ORDERS], pa.large_string()),
        "raw": pa.array([o.raw for o in ORDERS], pa.binary()),
        "paid": pa.array([o.paid for o in ORDERS]),
    }
)


async def values(client: Any, topic: str, count: int, schema: Any) -> list[Any]:
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        return [(await reader.receive(timeout=PATIENCE)).value for _ in range(count)]


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_rows_are_read_as_objects_of_the_schema(client: Any, topic: str, kind: str) -> None:
    schema = getattr(Schema, kind)(Order)
    async with client.producer(topic, schema=schema) as producer:
        ids = await producer.send_frame(TABLE, key="key")
    assert len(ids) == len(ORDERS)
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        messages = [await reader.receive(timeout=PATIENCE) for _ in ORDERS]
    assert [message.value for message in messages] == ORDERS
    assert [message.key for message in messages] == TABLE["key"].to_pylist()
    assert {message.schema_version for message in messages} == {bytes(8)}
    assert messages[0].data == (schema.encode(ORDERS[0]) if kind == "avro" else messages[0].data)


async def test_rows_of_avro_are_those_that_another_library_writes_and_reads(client: Any, topic: str) -> None:
    import polars

    frame = polars.DataFrame(
        {
            "n": [1, None, -(2**63)],
            "x": [0.5, None, 1e300],
            "s": ["ü", "", None],
            "b": [b"\0", None, b"\xff" * 1000],
            "ok": [True, False, None],
            "l": [[1, None], None, []],
            "r": [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 2, "b": ""}],
            "d": [date(1960, 1, 1), None, date(2024, 2, 29)],
        }
    )
    schema = Schema.avro(frame.to_arrow().schema)
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_frame(frame)
    async with client.reader(topic, position="earliest") as reader:
        payloads = [(await reader.receive(timeout=PATIENCE)).data for _ in range(3)]
    read = polars.read_avro(container(str(schema.definition), payloads))
    assert read.to_dicts() == frame.to_dicts()
    definition, theirs = records(frame)
    assert [Schema.avro(definition).decode(row) for row in theirs] == frame.to_dicts()
    assert [schema.decode(row) for row in payloads] == frame.to_dicts()


async def test_a_schema_of_arrow_stands_for_dictionaries(client: Any, topic: str) -> None:
    table = pa.table({"n": [1, 2], "s": ["a", None]})
    schema = Schema.json(table.schema, name="shop.Sale")
    async with client.producer(topic, schema=schema) as producer:
        await producer.send({"n": 0})
        await producer.send_frame(table)
    assert await values(client, topic, 3, schema) == [{"n": 0, "s": None}, *table.to_pylist()]
    stored = await client.schema(topic)
    assert (stored.type.lower(), json.loads(stored.definition)["name"]) == ("json", "shop.Sale")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("string", pa.array(["ü", "", None])),
        ("int8", pa.array([-128, 127, None])),
        ("int32", pa.array([-(2**31), 2**31 - 1, None])),
        ("double", pa.array([0.5, -1e300, None])),
        ("boolean", pa.array([True, False, None])),
        ("timestamp", pa.array([datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), None])),
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
async def test_a_column_of_single_values(client: Any, topic: str, name: Any, column: Any) -> None:
    async with client.producer(topic, schema=name) as producer:
        await producer.send_frame(pa.table({"v": column}), value="v")
    async with client.reader(topic, schema=name, position="earliest") as reader:
        messages = [await reader.receive(timeout=PATIENCE) for _ in range(3)]
    assert [message.value for message in messages] == column.to_pylist()
    assert messages[2].is_null


@pytest.mark.parametrize(
    ("columns", "arguments", "reason"),
    [
        ({"article": ["a", "b"], "count": [1, 2**31]}, {}, r'row 1 of column "count".*2147483648'),
        ({"article": ["a", None]}, {}, r'row 1 of column "article".*null'),
        ({"article": ["a"], "colour": ["r"]}, {}, r'column "colour".*no such field: it has article, count'),
        ({"count": [1]}, {}, r'column "article".*no default'),
        ({"article": ["a"], "count": ["1"]}, {}, r'column "count".*no int'),
        ({"v": [b"\0"]}, {"value": "v"}, r'column "v".*schema=None'),
    ],
)
async def test_a_frame_that_does_not_fit_is_refused_whole(
    client: Any, topic: str, columns: dict[str, Any], arguments: dict[str, Any], reason: str
) -> None:
    async with client.producer(topic, schema=Schema.avro(Line)) as producer:
        with pytest.raises(errors.SchemaError, match=reason):
            await producer.send_frame(pa.table(columns), **arguments)
        await producer.send(Line("after"))
    assert await values(client, topic, 1, Schema.avro(Line)) == [Line("after")]


async def test_rows_do_not_get_to_a_topic_with_a_schema_without_one_by_accident(
    client: Any, topic: str
) -> None:
    schema = Schema.avro(Line)
    table = pa.table({"article": ["nut"], "payload": [schema.encode(Line("bolt", 2))]})
    async with client.producer(topic) as early:
        await early.send_frame(table, value="payload")
    async with client.producer(topic, schema=schema) as producer, client.producer(topic) as plain:
        for arguments in ({}, {"value": "payload"}, {"value": "payload", "encoding": "raw"}):
            with pytest.raises(errors.SchemaError, match=r"schema=None.*the latest of the topic is Avro"):
                await plain.send_frame(table, **arguments)
        with pytest.raises(errors.InvalidArgument, match='encoding="json"'):
            await producer.send_frame(table, encoding="json")
        await plain.send_frame(table, value="payload", schema=None)
        await producer.send_frame(table, value="payload", schema=None)
        await producer.send_frame(table.select(["article"]))
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        messages = [await reader.receive(timeout=PATIENCE) for _ in range(4)]
    assert [bool(message.schema_version) for message in messages] == [False, False, False, True]
    assert [message.value for message in messages] == [Line("bolt", 2)] * 3 + [Line("nut")]


async def test_a_column_of_structs_is_a_column_of_records(client: Any, topic: str) -> None:
    structs = pa.array([{"article": "nut", "count": 3}, None], LINE)
    async with client.producer(topic, schema=Schema.avro(Line)) as producer:
        await producer.send_frame(pa.table({"value": structs, "key": ["a", "b"]}), value="value", key="key")
    assert await values(client, topic, 2, Schema.avro(Line)) == [Line("nut", 3), None]


async def test_payloads_of_a_declared_schema_are_the_programs_own(client: Any, topic: str) -> None:
    schema = Schema("avro", "Line", Schema.avro(Line).definition, raw=True)
    table = pa.table({"v": [Schema.avro(Line).encode(Line("nut"))]})
    async with client.producer(topic, schema=schema) as producer:
        with pytest.raises(errors.InvalidArgument, match="value="):
            await producer.send_frame(table)
        await producer.send_frame(table, value="v")
    assert await values(client, topic, 1, Schema.avro(Line)) == [Line("nut")]


async def test_a_frame_of_no_rows_sends_nothing(client: Any, topic: str) -> None:
    empty = TABLE.slice(0, 0)
    async with client.producer(topic, schema=Schema.avro(Order)) as producer:
        assert len(await producer.send_frame(empty, key="key")) == 0


@pytest.mark.parametrize("schema", ["avro", "json", "producer", None])
async def test_a_frame_without_batches_sends_nothing_whatever_the_schema(
    client: Any, topic: str, schema: Any
) -> None:
    table = pa.Table.from_batches([], schema=pa.schema([("article", pa.string())]))
    async with client.producer(topic, schema=Schema.avro(Line)) as producer:
        assert len(await producer.send_frame(table, schema=schema)) == 0


async def test_messages_of_a_frame_keep_their_order(client: Any, topic: str) -> None:
    table = pa.table({"n": range(5000)})
    async with client.producer(topic, schema=Schema.avro(table.schema)) as producer:
        await producer.send_frame(table)
    async with client.consumer(topic, "s", schema="auto", position="earliest") as consumer:
        messages = await receive(consumer, 5000)
    assert [message.value["n"] for message in messages] == list(range(5000))


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_the_columns_define_the_schema_that_the_topic_gets(client: Any, topic: str, kind: str) -> None:
    more = TABLE.select(["key", "price"]).append_column("n", pa.array(range(len(ORDERS)), pa.int64()))
    async with client.producer(topic) as producer:
        await producer.send_frame(TABLE.select(["key", "price"]), schema=kind, key="key")
        await producer.send_frame(more, schema=kind)
        with pytest.raises(errors.SchemaError, match=r'column "number" is UInt64.*cast it to Int64'):
            await producer.send_frame(TABLE, schema=kind)
        with pytest.raises(errors.SchemaError, match="the topic has a schema"):
            await producer.send_frame(TABLE, encoding="json")
        with pytest.raises(errors.IncompatibleSchema, match=r"price.*price"):
            await producer.send_frame(pa.table({"price": ["much"]}), schema=kind)
        assert len(await producer.send_frame(more.slice(0, 0), schema=kind)) == 0
    stored = await client.schema(topic)
    assert (stored.type.lower(), json.loads(stored.definition)["name"]) == (kind, "Row")
    async with client.reader(topic, schema="auto", position="earliest") as reader:
        messages = [await reader.receive(timeout=PATIENCE) for _ in range(2 * len(ORDERS))]
    assert [message.value for message in messages] == TABLE.select(
        ["key", "price"]
    ).to_pylist() + more.to_pylist()
    assert [message.key for message in messages[:2]] == ["k0", "k1"]
    assert len({message.schema_version for message in messages}) == 2


async def test_a_frame_has_another_schema_than_its_producer(client: Any, topic: str) -> None:
    wider = {
        "type": "record",
        "name": "Line",
        "fields": [
            {"name": "article", "type": "string"},
            {"name": "count", "type": "int", "default": 1},
            {"name": "weight", "type": ["null", "double"], "default": None},
        ],
    }
    table = pa.table({"article": ["nut"], "weight": [0.5], "v": pa.array([{"article": "bolt"}])})
    async with client.producer(topic, schema=Schema.avro(Line)) as producer:
        await producer.send(Line("first"))
        await producer.send_frame(table.drop_columns("v"), schema=Schema.avro(wider))
        await producer.send_frame(table, value="v")
    got = await values(client, topic, 3, "auto")
    assert got[1] == {"article": "nut", "count": 1, "weight": 0.5}
    assert got[2] == {"article": "bolt", "count": 1}
    assert await values(client, topic, 3, Schema.avro(Line)) == [Line("first"), Line("nut"), Line("bolt")]
