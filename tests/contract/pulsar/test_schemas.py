"""Schemas: what is written is read, the broker keeps and checks them, and what does not fit is refused."""

from __future__ import annotations

import asyncio
import enum
import json
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any

import pytest

import forebay
from forebay import errors
from forebay.pulsar import Avro, DeadLetterPolicy, Schema

from support.pulsar.harness import PulsarService
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
    tags: dict[str, str] = field(default_factory=dict[str, str])
    colour: Colour = Colour.RED
    note: str | None = None
    raw: bytes = b""
    paid: bool = False


@dataclass
class Times:
    day: date
    clock: time
    at: datetime
    id: uuid.UUID
    amount: Annotated[Decimal, Avro({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})]
    millis: Annotated[datetime, Avro({"type": "long", "logicalType": "timestamp-millis"})]


ORDER = Order(2**62 + 1, 1.5, [Line("nut", 3), Line("bolt")], {"a": "ü"}, Colour.BLUE, None, b"\0\xff", True)
TIMES = Times(
    date(2024, 2, 29),
    time(23, 59, 59, 999_999),
    datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    uuid.UUID(int=7),
    Decimal("-12345.67"),
    datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC),
)
MOMENT = datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC)
NAIVE = datetime(1960, 2, 29, 1, 2, 3, 4567)
PRIMITIVES: list[tuple[str, list[Any]]] = [
    ("string", ["", "grüße"]),
    ("boolean", [True, False]),
    ("int8", [-128, 127]),
    ("int16", [-(2**15), 2**15 - 1]),
    ("int32", [-(2**31), 2**31 - 1]),
    ("int64", [-(2**63), 2**63 - 1]),
    ("float", [1.5, math.inf]),
    ("double", [0.1, -math.inf]),
    ("date", [MOMENT]),
    ("time", [time(1, 2, 3, 4000)]),
    ("timestamp", [MOMENT]),
    ("instant", [MOMENT.replace(microsecond=4567), datetime(1960, 1, 1, tzinfo=UTC)]),
    ("local_date", [date(1960, 1, 1), date(2024, 2, 29)]),
    ("local_time", [time(23, 59, 59, 999_999)]),
    ("local_date_time", [NAIVE]),
]


async def exchange(client: Any, topic: str, schema: Any, values: list[Any], reader: Any = None) -> list[Any]:
    """Sends values with a schema, and gives what a reader with a schema gets."""
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_many(values)
    async with client.reader(topic, schema=reader or schema, position="earliest") as consumer:
        return [(await consumer.receive(timeout=PATIENCE)).value for _ in values]


@pytest.mark.parametrize(("name", "values"), PRIMITIVES, ids=[name for name, _ in PRIMITIVES])
async def test_a_primitive_is_read_as_it_was_written(
    client: Any, topic: str, name: str, values: list[Any]
) -> None:
    assert await exchange(client, topic, name, values) == values
    async with client.reader(topic, schema="auto", position="earliest") as consumer:
        assert [(await consumer.receive(timeout=PATIENCE)).value for _ in values] == values
    stored = await client.schema(topic)
    assert (stored.definition, stored.type.lower()[:4]) == (b"", name.replace("_", "")[:4])


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_an_object_is_read_as_it_was_written(client: Any, topic: str, kind: str) -> None:
    schema = getattr(Schema, kind)(Order)
    assert await exchange(client, topic, schema, [ORDER]) == [ORDER]
    async with client.reader(topic, schema="auto", position="earliest") as consumer:
        value = (await consumer.receive(timeout=PATIENCE)).value
    assert (value["number"], value["lines"][1]["article"], value["colour"]) == (2**62 + 1, "bolt", "BLUE")
    stored = await client.schema(topic)
    assert stored.type.lower() == kind
    assert [field["name"] for field in json.loads(stored.definition)["fields"]] == list(Order.__annotations__)


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_dates_decimals_and_ids_are_read_as_they_were_written(
    client: Any, topic: str, kind: str
) -> None:
    assert await exchange(client, topic, getattr(Schema, kind)(Times), [TIMES]) == [TIMES]


async def test_auto_gives_the_values_of_json_that_frames_and_avro_have(client: Any, topic: str) -> None:
    fields: list[dict[str, Any]] = [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 20}},
        {"name": "raw", "type": "bytes"},
        {"name": "kept", "type": "bytes", "default": "\u00ff"},
        {"name": "day2", "type": {"type": "int", "logicalType": "date"}, "default": 1},
        {"name": "none", "type": ["null", "string"], "default": None},
    ]
    definition = {"type": "record", "name": "R", "fields": fields}
    digits = Decimal("1234567890.12345678901234567890")
    sent = {"day": date(2024, 2, 29), "at": MOMENT, "id": uuid.UUID(int=7), "d": digits, "raw": b"\0\xff"}
    full = {**sent, "kept": b"\xff", "day2": date(1970, 1, 2), "none": None}
    for kind in ("json", "avro"):
        name, schema = f"{topic}-{kind}", getattr(Schema, kind)(definition)
        assert await exchange(client, name, schema, [sent], "auto") == [full]
        assert await exchange(client, name, schema, [sent]) == [full]
        async with client.reader(name, schema="auto", position="earliest") as reader:
            column = (await reader.read_frame(2, timeout=PATIENCE))["value"].to_pylist()
        assert column == [{**full, "id": str(full["id"])}] * 2
        pairs = Schema.key_value("string", schema)
        assert await exchange(client, f"{name}-pairs", pairs, [("k", sent)], "auto") == [("k", full)]


async def test_auto_leaves_what_does_not_fit_as_json_has_it(client: Any, topic: str) -> None:
    fields: list[dict[str, Any]] = [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "d",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
        },
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED"]}},
        {
            "name": "inner",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "I",
                    "fields": [
                        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                        {"name": "x", "type": "double"},
                    ],
                },
            ],
        },
    ]
    definition = json.dumps({"type": "record", "name": "R", "fields": fields})
    # As Jackson writes dates, with the value of an enum, and with a name that the definition lacks.
    odd = {
        "day": [2026, 1, 31],
        "d": 1.25,
        "colour": "r",
        "inner": {"day": [2026, 1, 31], "x": 0.5, "y": [0.25]},
        "more": {"n": 0.1},
    }
    payloads = [json.dumps(odd).encode(), b"[1.5]", b"{"]
    raw = Schema("json", "R", definition, raw=True)
    async with client.producer(topic, schema=raw) as producer:
        await producer.send_many(payloads)
    async with client.reader(topic, schema="auto", position="earliest") as reader:
        value = (await reader.receive(timeout=PATIENCE)).value
        assert value == {**odd, "d": Decimal("1.25")}
        assert [type(value["d"]), type(value["more"]["n"]), type(value["inner"]["y"][0])] == [
            Decimal,
            float,
            float,
        ]
        assert (await reader.receive(timeout=PATIENCE)).value == [1.5]
        with pytest.raises(errors.SchemaError, match="cannot be decoded"):
            _ = (await reader.receive(timeout=PATIENCE)).value
    async with client.reader(topic, schema=Schema.json(definition), position="earliest") as reader:
        with pytest.raises(errors.SchemaError, match="expected an integer, got list"):
            _ = (await reader.receive(timeout=PATIENCE)).value


async def test_a_definition_of_avro_stands_for_dictionaries(client: Any, topic: str) -> None:
    definition = {
        "type": "record",
        "name": "Node",
        "namespace": "tree",
        "fields": [{"name": "n", "type": "int"}, {"name": "left", "type": ["null", "Node"], "default": None}],
    }
    tree = {"n": 1, "left": {"n": 2, "left": None}}
    values = await exchange(client, topic, Schema.avro(definition), [tree, {"n": 3}])
    assert values == [tree, {"n": 3, "left": None}]


async def test_the_versions_of_a_topic_are_read_by_the_schema_that_each_was_written_with(
    client: Any, topic: str
) -> None:
    def fields(*more: dict[str, Any]) -> Schema:
        at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
        return Schema.avro({"type": "record", "name": "R", "fields": [at, *more]})

    one = fields()
    two = fields({"name": "b", "type": "string", "default": "none"})
    three = fields(
        {"name": "c", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "b", "type": "string", "default": "other"},
    )
    versions: set[bytes] = set()
    for schema, value in ((one, {}), (two, {"b": "x"}), (three, {"b": "y", "c": [1]}), (one, {})):
        async with client.producer(topic, schema=schema) as producer:
            await producer.send({"at": MOMENT, **value})
    async with client.reader(topic, schema=two, position="earliest") as consumer:
        got = [await consumer.receive(timeout=PATIENCE) for _ in range(4)]
    assert [message.value["b"] for message in got] == ["none", "x", "y", "none"]
    assert {message.value["at"] for message in got} == {MOMENT}
    versions = {message.schema_version for message in got}
    assert len(versions) == 3
    for message in got:
        stored = await client.schema(topic, message.schema_version)
        assert json.loads(stored.definition)["name"] == "R"
    with pytest.raises(errors.TopicNotFound):
        await client.schema(topic, (99).to_bytes(8, "big"))


async def test_a_schema_that_does_not_follow_is_refused_with_both(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.avro(Line)):
        pass
    other = {"type": "record", "name": "Line", "fields": [{"name": "weight", "type": "double"}]}
    with pytest.raises(
        errors.IncompatibleSchema, match=r"the schema given is Avro .*weight.* latest .*article"
    ):
        await client.producer(topic, schema=Schema.avro(other))
    with pytest.raises(errors.IncompatibleSchema, match=r"weight.*article"):
        await client.consumer(topic, "s", schema=Schema.avro(other))
    with pytest.raises(errors.IncompatibleSchema):
        await client.producer(topic, schema=Schema.json(Line))
    with pytest.raises(errors.IncompatibleSchema):
        await client.consumer(topic, "s", schema="string")


async def test_a_producer_without_a_schema_may_send_to_a_topic_that_has_one(client: Any, topic: str) -> None:
    schema = Schema.avro(Line)
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(Line("nut"))
    async with client.producer(topic) as producer:
        await producer.send(schema.encode(Line("bolt", 2)))
        await producer.send(b"\x7f")
    async with client.consumer(topic, "s", schema=schema, position="earliest") as consumer:
        got = [await consumer.receive(timeout=PATIENCE) for _ in range(3)]
        assert [message.value for message in got[:2]] == [Line("nut"), Line("bolt", 2)]
        with pytest.raises(errors.SchemaError, match="does not fit"):
            _ = got[2].value
        assert got[2].data == b"\x7f", "the message can be handled, whatever it is"
        await consumer.ack_cumulative(got[-1])


async def test_a_tombstone_has_no_value(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.json(Line)) as producer:
        await producer.send(Line("nut"), key="k")
        await producer.send(None, key="k", null_value=True)
    async with client.reader(topic, schema=Schema.json(Line), position="earliest") as consumer:
        first, second = [await consumer.receive(timeout=PATIENCE) for _ in range(2)]
    assert (first.value, second.value, second.is_null) == (Line("nut"), None, True)


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_values_that_do_not_fit_are_not_sent(client: Any, topic: str, kind: str) -> None:
    bad: list[tuple[Any, str]] = [
        (b"raw", "expected Order, got bytes"),
        ({"number": 1}, "expected Order, got dict"),
        (Order("7", 1.0, []), "number: expected an integer of 64 bits, got str"),  # type: ignore[arg-type]
        (Order(2**63, 1.0, []), "number: expected an integer of 64 bits, got one that does not fit"),
        (Order(True, 1.0, []), "number: expected an integer of 64 bits, got bool"),
        (Order(1, "1", []), "price: expected a float, got str"),  # type: ignore[arg-type]
        (Order(1, 1.0, [Line("a"), Line("b", 2**31)]), r"lines\[1\].count: expected an integer of 32 bits"),
        (Order(1, 1.0, [None]), r"lines\[0\]: expected Line, got NoneType"),  # type: ignore[list-item]
        (Order(1, 1.0, [], {"a": 1}), r'tags\["a"\]: expected str, got int'),  # type: ignore[dict-item]
        (Order(1, 1.0, [], {}, "GREEN"), "colour: Colour has no symbol"),  # type: ignore[arg-type]
        (Order(1, 1.0, [], note=5), "note: expected str, got int"),  # type: ignore[arg-type]
        (Order(1, 1.0, [Line("\ud800")]), r"lines\[0\].article: the str has surrogates"),
    ]
    if kind == "json":
        bad += [
            (Order(1, math.nan, []), "price: JSON has no NaN"),
            (Order(1, math.inf, []), "JSON has no inf"),
        ]
    async with client.producer(topic, schema=getattr(Schema, kind)(Order)) as producer:
        for value, text in bad:
            with pytest.raises(errors.SchemaError, match=text):
                await producer.send(value)
        with pytest.raises(errors.SchemaError):
            await producer.send_many([ORDER, b"raw"])
        with pytest.raises(errors.SchemaError):
            producer.send_nowait(None)
        await producer.send(ORDER)
    async with client.reader(topic, schema="auto", position="earliest") as consumer:
        assert (await consumer.receive(timeout=PATIENCE)).value["number"] == ORDER.number
        assert not await consumer.has_message_available()


async def test_numbers_that_are_too_large_are_refused_and_do_not_become_infinite(
    client: Any, topic: str
) -> None:
    kept = 1.5
    definition = '{"type": "record", "name": "Weight", "fields": [{"name": "kilos", "type": "float"}]}'
    async with client.producer(f"{topic}-a", schema=Schema.avro(definition)) as producer:
        with pytest.raises(errors.SchemaError, match="kilos: expected a float of 32 bits"):
            await producer.send({"kilos": 1e39})
        await producer.send({"kilos": kept})
        await producer.send({"kilos": math.inf})
    async with client.producer(f"{topic}-p", schema="float") as producer:
        with pytest.raises(errors.SchemaError, match="expected a float of 32 bits"):
            await producer.send(-1e39)
        await producer.send(kept)
    async with client.reader(f"{topic}-a", schema="auto", position="earliest") as consumer:
        kilos = [(await consumer.receive(timeout=PATIENCE)).value["kilos"] for _ in range(2)]
        assert kilos == [kept, math.inf]


@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_decimals_that_take_long_to_make_are_refused(client: Any, topic: str, kind: str) -> None:
    number = {"type": "bytes", "logicalType": "decimal", "precision": 10_000, "scale": 2}
    field_ = {"name": "sum", "type": number}
    definition = json.dumps({"type": "record", "name": "Bill", "fields": [field_]})
    most = Decimal("9" * 9998 + ".25")
    async with client.producer(topic, schema=getattr(Schema, kind)(definition)) as producer:
        for value in (Decimal("1E+9999"), Decimal("1E+99999999"), 10**20_000):
            with pytest.raises(errors.SchemaError, match="more than 10000 digits"):
                await producer.send({"sum": value})
        await producer.send({"sum": most})
        if kind == "avro":
            # Two bytes of length, then the number.
            size = 5000
            async with client.producer(topic) as other:
                await other.send(bytes([size * 2 & 127 | 128, size * 2 >> 7]) + b"\1" * size)
    async with client.reader(
        topic, schema=getattr(Schema, kind)(definition), position="earliest"
    ) as consumer:
        assert (await consumer.receive(timeout=PATIENCE)).value == {"sum": most}
        if kind == "avro":
            message = await consumer.receive(timeout=PATIENCE)
            with pytest.raises(errors.SchemaError, match="a decimal of 5000 bytes"):
                _ = message.value


async def test_a_value_is_refused_by_a_producer_without_a_schema(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(TypeError, match="bytes-like"):
            await producer.send(ORDER)


async def test_messages_of_several_batches_and_partitions_are_read(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=3)
    async with client.consumer(topic, "s", schema=Line) as consumer:
        async with client.producer(topic, schema=Line, compression="lz4") as producer:
            await producer.send_many([Line(str(n)) for n in range(300)])
        got = {(await consumer.receive(timeout=PATIENCE)).value.article for _ in range(300)}
    assert got == {str(n) for n in range(300)}


async def test_partitions_that_start_later_have_the_schema_from_their_first_message(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=4)
    async with client.consumer(topic, "s", schema="auto") as consumer:
        async with client.producer(topic, schema=Line, lazy_start=True) as producer:
            await producer.send_many([Line(str(n)) for n in range(40)], keys=[str(n) for n in range(40)])
        got = [await consumer.receive(timeout=PATIENCE) for _ in range(40)]
    assert {message.schema_version for message in got} == {bytes(8)}
    assert {message.value["article"] for message in got} == {str(n) for n in range(40)}


async def test_dead_letters_keep_their_schema(client: Any, topic: str) -> None:
    schema = Schema.avro(Line)
    policy = DeadLetterPolicy(1, subscription="dead")
    options: dict[str, Any] = {"type": "shared", "nack_delay": 0.05, "dead_letter": policy}
    async with client.consumer(topic, "s", schema=schema, **options) as consumer:
        async with client.producer(topic, schema=schema) as producer:
            await producer.send(Line("poison", 9))
        for _ in range(2):
            await consumer.nack(await consumer.receive(timeout=PATIENCE))
        async with client.consumer(f"{topic}-s-DLQ", "dead", schema=schema, position="earliest") as letters:
            letter = await letters.receive(timeout=PATIENCE)
            assert (letter.value, letter.schema_version) == (Line("poison", 9), bytes(8))


@pytest.mark.parametrize("reads", [True, False])
async def test_dead_letters_leave_whatever_schema_their_topic_has(
    client: Any, topic: str, reads: bool
) -> None:
    schema = Schema.avro(Line)
    options: dict[str, Any] = {
        "type": "shared",
        "nack_delay": 0.05,
        "dead_letter": DeadLetterPolicy(1),
        "schema": schema if reads else None,
    }
    # The schema of the letter does not follow from it.
    async with (
        client.consumer(f"{topic}-s-DLQ", "dead", schema="string") as letters,
        client.consumer(topic, "s", **options) as consumer,
    ):
        async with client.producer(topic, schema=schema) as producer:
            sent = Line("poison", 9)
            await producer.send(sent)
        for _ in range(2):
            await consumer.nack(await consumer.receive(timeout=PATIENCE))
        letter = await letters.receive(timeout=PATIENCE)
        assert (letter.properties["REAL_SUBSCRIPTION"], letter.schema_version) == ("s", None)


async def test_retried_messages_keep_their_schema(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(3, retry=True)
    async with client.consumer(topic, "s", schema=Line, type="shared", dead_letter=policy) as consumer:
        async with client.producer(topic, schema=Line) as producer:
            await producer.send(Line("again"))
        await consumer.reconsume_later(await consumer.receive(timeout=PATIENCE), 0)
        again = await consumer.receive(timeout=PATIENCE)
        assert (again.value, again.schema_version) == (Line("again"), bytes(8))
        await consumer.ack(again)


async def test_a_topic_that_was_made_again_has_its_own_versions(
    client: Any, topic: str, service: PulsarService
) -> None:
    async with client.producer(topic, schema=Schema.avro(Line)) as producer:
        await producer.send(Line("old"))
        async with client.reader(topic, schema="auto", position="earliest") as consumer:
            assert (await consumer.receive(timeout=PATIENCE)).value == {"article": "old", "count": 1}
    service.delete_topic(topic)
    async with client.reader(topic, schema="auto", position="earliest") as consumer:
        async with client.producer(topic, schema="string") as producer:
            await producer.send("new")
        assert (await consumer.receive(timeout=PATIENCE)).value == "new"


async def test_a_table_view_holds_values(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Line) as producer:
        await producer.send(Line("nut"), key="a")
    async with client.table_view(topic, schema=Line) as view:
        assert view["a"] == Line("nut")


async def test_definitions_that_are_bombs_are_refused(embedded: PulsarService) -> None:
    """By the embedded broker, and by the client where that does not look. A real Pulsar ends at the first."""
    tower: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int", "default": 0}]}
    for n in range(1, 31):
        a = {"name": "a", "type": tower, "default": {}}
        b = {"name": "b", "type": f"R{n - 1}", "default": {}}
        tower = {"type": "record", "name": f"R{n}", "fields": [a, b]}
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(errors.SchemaError, match="nested"):
        Schema.avro(deep)
    empty: dict[str, Any] = {"type": "record", "name": "E", "fields": []}
    again = {**empty, "fields": [{"name": "again", "type": "E", "default": {}}]}
    with forebay.Broker(schema_compatibility="always_compatible") as careless:
        for bomb in (tower, again):
            topic = embedded.topic()
            async with forebay.connect(embedded.url) as client:
                async with client.producer(topic, schema=Schema.avro(empty)) as producer:
                    await producer.send({})
                with pytest.raises(errors.IncompatibleSchema, match="contains itself"):
                    await client.reader(topic, schema=Schema.avro(bomb), position="earliest")
            async with forebay.connect(careless.url) as client:
                async with client.producer(topic, schema=Schema.avro(empty)) as producer:
                    await producer.send({})
                async with client.reader(topic, schema=Schema.avro(bomb), position="earliest") as reader:
                    message = await reader.receive(timeout=PATIENCE)
                    with pytest.raises(errors.SchemaError, match=r"contains itself|nested"):
                        _ = message.value


def test_the_blocking_face_has_the_same(service: PulsarService, topic: str) -> None:
    with forebay.blocking.connect(service.url) as client:
        with client.producer(topic, schema=Order) as producer:
            producer.send(ORDER)
        with client.reader(topic, schema=Order, position="earliest") as reader:
            assert reader.receive(timeout=PATIENCE).value == ORDER
        assert client.schema(topic).type == "Json"


async def test_strategies_of_the_embedded_broker() -> None:
    def schema(*names: str, default: bool) -> Schema:
        fields: list[dict[str, Any]] = [{"name": name, "type": "int"} for name in names]
        if default:
            fields = [field | {"default": 0} for field in fields]
        return Schema.avro({"type": "record", "name": "R", "fields": fields})

    admitted: dict[str, tuple[bool, bool]] = {
        "always_compatible": (True, True),
        "always_incompatible": (False, False),
        "backward": (False, True),
        "forward": (True, True),
        "full": (False, True),
        "full_transitive": (False, True),
    }
    for strategy, expected in admitted.items():
        async with forebay.Broker(schema_compatibility=strategy) as broker:  # type: ignore[arg-type]
            async with forebay.connect(broker.url) as client:
                for index, is_admitted in enumerate(expected):
                    topic = f"t{index}"
                    new = schema("a", "b", default=index == 1)
                    async with client.producer(topic, schema=schema("a", default=True)):
                        pass
                    if is_admitted:
                        await client.producer(topic, schema=new)
                    else:
                        with pytest.raises(errors.IncompatibleSchema):
                            await client.producer(topic, schema=new)


async def test_schemas_outlive_the_broker(tmp_path: Any) -> None:
    for turn in range(2):
        async with forebay.Broker(data=tmp_path) as broker, forebay.connect(broker.url) as client:
            async with client.producer("t", schema=Schema.avro(Line)) as producer:
                await producer.send(Line(str(turn)))
            assert json.loads((await client.schema("t")).definition)["name"] == "Line"
            async with client.reader("t", schema="auto", position="earliest") as consumer:
                got = [await consumer.receive(timeout=PATIENCE) for _ in range(turn + 1)]
            assert [message.value["article"] for message in got] == ["0", "1"][: turn + 1]
            assert {message.schema_version for message in got} == {bytes(8)}
            await asyncio.sleep(0)
