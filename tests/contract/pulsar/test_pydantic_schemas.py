"""Schemas of pydantic models: what is written is read as a model, and what does not fit is refused."""

from __future__ import annotations

import enum
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from forebay import errors
from forebay.pulsar import Avro, Schema

from support.waiting import PATIENCE

KINDS: Any = pytest.mark.parametrize("kind", ["json", "avro"])
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Line(BaseModel):
    article: str
    count: Annotated[int, Avro("int")] = Field(default=1, gt=0)
    price: Annotated[Decimal, Avro({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})]
    inside: Line | None = None


class Order(BaseModel):
    number: int
    lines: list[Line] = Field(default_factory=list)
    gift: Line | None = None
    tags: dict[str, str] = {}
    colour: Colour = Colour.RED
    note: str | None = None
    placed: datetime
    due: date | None = None
    id: UUID

    @field_validator("lines")
    @classmethod
    def few(cls, lines: list[Line]) -> list[Line]:
        if len(lines) > 2:
            raise ValueError("too many lines")
        return lines


class Box(BaseModel, Generic[T]):
    model_config = ConfigDict(frozen=True)
    item: T = Field(alias="content")
    id: str = Field(default_factory=lambda: str(uuid4()))


NUT = Line(
    article="nut", count=3, price=Decimal("0.25"), inside=Line(article="grain", price=Decimal("-1.00"))
)
ORDER = Order(
    number=2**62 + 1,
    lines=[NUT, Line(article="bolt", price=Decimal("12.50"))],
    gift=NUT,
    tags={"a": "ü"},
    colour=Colour.BLUE,
    placed=datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    due=date(2024, 2, 29),
    id=UUID(int=7),
)
EMPTY = Order(number=0, placed=datetime(2024, 1, 1, tzinfo=UTC), id=UUID(int=8))


async def values(client: Any, topic: str, count: int, schema: Any) -> list[Any]:
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        return [(await reader.receive(timeout=PATIENCE)).value for _ in range(count)]


@KINDS
async def test_models_are_read_as_they_were_written(client: Any, topic: str, kind: str) -> None:
    schema = getattr(Schema, kind)(Order)
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_many([ORDER, EMPTY])
    assert await values(client, topic, 2, schema) == [ORDER, EMPTY]
    first, second = await values(client, topic, 2, "auto")
    assert (first["lines"][0]["inside"]["article"], first["colour"]) == ("grain", "BLUE")
    assert (second["lines"], second["gift"], second["tags"]) == ([], None, {})
    stored = await client.schema(topic)
    assert stored.type.lower() == kind
    fields = {field["name"]: field for field in json.loads(stored.definition)["fields"]}
    assert list(fields) == list(Order.model_fields)
    assert fields["lines"]["default"] == [] and fields["note"]["type"] == ["null", "string"]
    assert "default" not in fields["number"]


@KINDS
async def test_a_model_that_does_not_fit_is_refused_and_nothing_is_lost(
    client: Any, topic: str, kind: str
) -> None:
    schema = getattr(Schema, kind)(Order)
    line = Line.model_construct(article="nut", count="three", price=Decimal("0.25"), inside=None)
    bad = [
        (ORDER.model_copy(update={"number": "seven"}), "number: expected an integer of 64 bits, got str"),
        (
            ORDER.model_copy(update={"lines": [NUT, line]}),
            r"lines\[1\].count: expected an integer of 32 bits",
        ),
        (ORDER.model_copy(update={"gift": {"article": "nut"}}), "gift: expected .*Line"),
        (ORDER.model_copy(update={"placed": datetime(2024, 1, 1)}), "placed: expected .* time zone"),
        (Order.model_construct(number=1), "no attribute 'placed'"),
        (NUT, "expected Order, got Line"),
        ({"number": 1}, "expected Order, got dict"),
    ]
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(EMPTY)
        for value, reason in bad:
            with pytest.raises(errors.SchemaError, match=reason):
                await producer.send(value)
            with pytest.raises(errors.SchemaError, match=reason):
                await producer.send_many([ORDER, value])
        await producer.send(ORDER)
        assert producer.pending == 0
    assert await values(client, topic, 2, schema) == [EMPTY, ORDER]


@KINDS
async def test_what_a_model_does_not_take_can_be_received_and_has_its_bytes(
    client: Any, topic: str, kind: str
) -> None:
    schema = getattr(Schema, kind)(Order)
    many = ORDER.model_copy(update={"lines": [NUT] * 3})
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_many([ORDER, many, EMPTY])
    async with client.consumer(topic, "s", schema=schema, position="earliest") as consumer:
        got = [await consumer.receive(timeout=PATIENCE) for _ in range(3)]
        with pytest.raises(errors.SchemaError, match="too many lines") as raised:
            _ = got[1].value
        assert isinstance(raised.value.__cause__, ValidationError)
        assert got[1].data == schema.encode(many)
        assert [got[0].value, got[2].value] == [ORDER, EMPTY]
        await consumer.ack_many(got)


@KINDS
async def test_aliases_and_parameters_of_models(client: Any, topic: str, kind: str) -> None:
    schema = getattr(Schema, kind)(Box[Order])
    assert schema.definition == getattr(Schema, kind)(Box[Order]).definition, "ids are not in it"
    box = Box[Order](content=ORDER)
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(box)
        with pytest.raises(errors.SchemaError, match="expected Box"):
            await producer.send(ORDER)
    [got] = await values(client, topic, 1, schema)
    assert (type(got), got) == (Box[Order], box)
    [record] = await values(client, topic, 1, "auto")
    assert record["item"]["number"] == ORDER.number


async def test_a_model_stands_for_its_schema(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Order) as producer:
        await producer.send(ORDER, "key")
    async with client.table_view(topic, schema=Order) as view:
        assert view["key"] == ORDER
    assert (await client.schema(topic)).type.lower() == "json"


def test_models_that_would_lose_values_are_refused() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        number: int

    class Hidden(BaseModel):
        secret: str = Field(exclude=True)

    class Partly(BaseModel):
        secret: str = Field(default="", exclude=True)
        double: int = Field(default_factory=lambda data: 2)

    with pytest.raises(errors.SchemaError, match='Open has extra="allow"'):
        Schema.json(Open)
    with pytest.raises(errors.SchemaError, match=r"Hidden\.secret is excluded"):
        Schema.avro(Hidden)
    assert Schema.json(Partly).encode(Partly(secret="x")) == b'{"double":2}'
