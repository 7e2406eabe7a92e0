"""Schemas of protobuf, of generated classes."""
# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from forebay import errors
from forebay.pulsar import KeyValue, Schema

from support.waiting import PATIENCE

KINDS: Any = pytest.mark.parametrize("kind", ["protobuf", "protobuf_native"])


def classes(package: str = "shop", more: bool = False) -> dict[str, Any]:
    """Classes as protoc generates them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    common = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/my_common.proto", package=f"{package}.common"
    )
    colour = common.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/the_orders.proto",
        package=package,
        syntax="proto2",
        dependency=[common.name],
    )
    file.options.java_package = "com.example"
    order = file.message_type.add(name="Order")

    def add(to: Any, name: str, number: int, kind: int, label: int = 1, **rest: Any) -> None:
        to.field.add(name=name, number=number, type=kind, label=label, **rest)

    add(order, "number", 1, 3, 2)
    add(order, "note", 2, 9)
    add(order, "lines", 3, 11, 3, type_name=f".{package}.Order.Line")
    add(order, "first", 4, 11, type_name=f".{package}.Order.Line")
    add(order, "colour", 5, 14, type_name=f".{package}.common.Colour")
    add(order, "weight", 6, 1, default_value="1.5")
    add(order, "raw", 7, 12)
    add(order, "paid", 8, 8)
    if more:
        add(order, "more", 9, 5)
    line = order.nested_type.add(name="Line")
    add(line, "article", 1, 9)
    add(line, "parent", 2, 11, type_name=f".{package}.Order")
    other = file.message_type.add(name="Other")
    add(other, "number", 1, 3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(common)
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{package}.{name}")) for name in ("Order", "Other")}


async def received(client: Any, topic: str, count: int, schema: Any) -> list[Any]:
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        return [await reader.receive(timeout=PATIENCE) for _ in range(count)]


@KINDS
async def test_messages_are_read_as_they_were_written(client: Any, topic: str, kind: str) -> None:
    made = classes()
    order = made["Order"](number=7, note="x", lines=[{"article": "nut"}], colour=1)
    schema = getattr(Schema, kind)(made["Order"])
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(order)
        with pytest.raises(errors.SchemaError, match="expected Order, got Other"):
            await producer.send(made["Other"](number=1))
        with pytest.raises(errors.SchemaError, match="number"):
            await producer.send(made["Order"](note="a required field is missing"))
    async with client.producer(topic) as producer:
        await producer.send(b"\xff")
    got = await received(client, topic, 2, schema)
    assert got[0].value == order
    with pytest.raises(errors.SchemaError, match="cannot be decoded"):
        _ = got[1].value
    got = await received(client, topic, 1, "auto")
    with pytest.raises(errors.SchemaError, match="not supported"):
        _ = got[0].value
    assert made["Order"].FromString(got[0].data) == order
    with pytest.raises(errors.Unsupported, match="give the producer the schema"):
        await client.producer(topic, schema="auto")


async def test_the_broker_has_the_descriptors(client: Any, topic: str) -> None:
    from google.protobuf import descriptor_pb2

    async with client.producer(topic, schema=Schema.protobuf_native(classes()["Order"])):
        pass
    stored = await client.schema(topic)
    definition = json.loads(stored.definition)
    assert (definition["rootMessageTypeName"], definition["rootFileDescriptorName"]) == (
        "shop.Order",
        "shop/the_orders.proto",
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(definition["fileDescriptorSet"]))
    assert [file.name for file in files.file] == ["shop/my_common.proto", "shop/the_orders.proto"]
    info = json.loads(dict(stored.properties)["__PARSING_INFO__"])
    assert info[0] == {
        "number": 1,
        "name": "number",
        "type": "INT64",
        "label": "LABEL_REQUIRED",
        "definition": None,
    }


async def test_the_broker_has_the_avro_definition_of_java(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.protobuf(classes()["Order"])):
        pass
    text = {"type": "string", "avro.java.string": "String"}
    line = {
        "type": "record",
        "name": "Line",
        "namespace": "com.example.TheOrders$Order",
        "fields": [
            {"name": "article", "type": text, "default": ""},
            {"name": "parent", "type": ["null", "com.example.TheOrders.Order"], "default": None},
        ],
    }
    colour = {
        "type": "enum",
        "name": "Colour",
        "namespace": "shop.common.MyCommon",
        "symbols": ["RED", "BLUE"],
    }
    assert json.loads((await client.schema(topic)).definition) == {
        "type": "record",
        "name": "Order",
        "namespace": "com.example.TheOrders",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "note", "type": text, "default": ""},
            {"name": "lines", "type": {"type": "array", "items": line}, "default": []},
            {"name": "first", "type": ["null", "com.example.TheOrders$Order.Line"], "default": None},
            {"name": "colour", "type": colour, "default": "RED"},
            {"name": "weight", "type": "double", "default": 1.5},
            {"name": "raw", "type": "bytes", "default": ""},
            {"name": "paid", "type": "boolean", "default": False},
        ],
    }


@KINDS
async def test_a_schema_of_protobuf_may_get_fields(client: Any, topic: str, kind: str) -> None:
    of = getattr(Schema, kind)
    old, new = classes(), classes(more=True)
    async with client.producer(topic, schema=of(old["Order"])) as producer:
        await producer.send(old["Order"](number=1))
        await producer.send(new["Order"](number=2, more=3), schema=of(new["Order"]))
    got = await received(client, topic, 2, of(new["Order"]))
    assert [(message.value.number, message.value.more) for message in got] == [(1, 0), (2, 3)]
    assert [message.schema_version[-1] for message in got] == [0, 1]


async def test_messages_of_protobuf_are_parts_of_pairs(client: Any, topic: str) -> None:
    order = classes()["Order"]
    schema = Schema.key_value("string", Schema.protobuf_native(order))
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(KeyValue("a", order(number=7)))
    assert (await received(client, topic, 1, schema))[0].value == ("a", order(number=7))


def test_other_classes_are_refused() -> None:
    from google.protobuf.message import Message

    for of in (int, "Order", Message):
        with pytest.raises(errors.SchemaError, match="no class that was generated by protobuf"):
            Schema.protobuf_native(of)  # type: ignore[arg-type]
