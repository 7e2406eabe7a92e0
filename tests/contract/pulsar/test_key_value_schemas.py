"""Schemas of pairs, and producers that take the schema of their topic."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow
import pytest

import forebay
from forebay import errors
from forebay.pulsar import KeyValue, Schema

from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


@dataclass
class Line:
    article: str


@dataclass
class Counted:
    article: str
    count: int | None = None


@dataclass
class Shop:
    town: str


ENCODINGS: Any = pytest.mark.parametrize("encoding", ["inline", "separated"])


async def received(client: Any, topic: str, count: int, schema: Any = "auto") -> list[Any]:
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        return [await reader.receive(timeout=PATIENCE) for _ in range(count)]


@ENCODINGS
@pytest.mark.parametrize("kind", ["json", "avro"])
async def test_pairs_are_read_as_they_were_written(client: Any, topic: str, encoding: Any, kind: str) -> None:
    of = getattr(Schema, kind)
    schema = Schema.key_value(of(Shop), of(Counted), encoding)
    pairs = [
        KeyValue(Shop("Bonn"), Counted("nut", 3)),
        KeyValue(Shop("Köln"), None),
        KeyValue(None, Counted("bolt")),
        KeyValue(None, None),
    ]
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_many(pairs)
        await producer.send((Shop("Bonn"), Counted("screw")))
        producer.send_nowait(KeyValue(Shop("Jena"), Counted("tool")))
        await producer.flush()
    got = [message.value for message in await received(client, topic, 6, schema)]
    assert got[:4] == pairs
    assert got[4:] == [(Shop("Bonn"), Counted("screw")), (Shop("Jena"), Counted("tool"))]
    first = (await received(client, topic, 1))[0].value
    assert first == KeyValue({"town": "Bonn"}, {"article": "nut", "count": 3})
    assert isinstance(first, KeyValue)


async def test_the_schema_at_the_broker_is_that_of_java(client: Any, topic: str) -> None:
    schema = Schema.key_value("string", Schema.avro(Line), "separated")
    async with client.producer(topic, schema=schema) as producer:
        await producer.send(KeyValue("Bonn", Line("nut")))
    stored = await client.schema(topic)
    assert stored.type == "KeyValue"
    assert stored.definition[:8] == struct.pack(">ii", 0, len(stored.definition) - 8)
    assert json.loads(stored.definition[8:])["name"] == "Line"
    properties = dict(stored.properties)
    assert properties["key.schema.type"] == "STRING"
    assert properties["value.schema.type"] == "AVRO"
    assert properties["kv.encoding.type"] == "SEPARATED"
    assert json.loads(properties["key.schema.properties"]) == {}
    assert json.loads(properties["value.schema.properties"])["__alwaysAllowNull"] == "true"


async def test_the_bytes_of_pairs_are_those_of_java(client: Any, topic: str) -> None:
    async with client.producer(f"{topic}-i", schema=Schema.key_value("string", "int32")) as producer:
        await producer.send(KeyValue("k", 7), key="of the message")
        await producer.send(KeyValue(None, 7))
    inline = await received(client, f"{topic}-i", 2, None)
    assert inline[0].data == struct.pack(">i1sii", 1, b"k", 4, 7)
    assert inline[1].data == struct.pack(">iii", -1, 4, 7)
    assert inline[0].key == "of the message"
    schema = Schema.key_value("string", "int32", "separated")
    async with client.producer(f"{topic}-s", schema=schema) as producer:
        await producer.send(KeyValue("ü", 7))
        await producer.send(KeyValue("ü", None))
        await producer.send(KeyValue(None, 7))
    separated = await received(client, f"{topic}-s", 3, None)
    assert [(m.key, m.data, m.is_null) for m in separated] == [
        ("w7w=", struct.pack(">i", 7), False),
        ("w7w=", b"", True),
        (None, struct.pack(">i", 7), False),
    ]


async def test_the_key_of_a_separated_pair_is_that_of_the_message(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=3)
    schema = Schema.key_value("string", "int64", "separated")
    async with client.producer(topic, schema=schema) as producer:
        with pytest.raises(errors.InvalidArgument, match="leave key out"):
            await producer.send(KeyValue("a", 1), key="b")
        with pytest.raises(errors.InvalidArgument, match="leave keys out"):
            await producer.send_many([KeyValue("a", 1)], keys=["b"])
        await producer.send_many([KeyValue(str(n % 5), n) for n in range(50)])
    got = await received(client, topic, 50, schema)
    partitions: dict[str, set[int]] = {}
    for message in got:
        partitions.setdefault(message.value.key, set()).add(message.partition)
    assert all(len(used) == 1 for used in partitions.values()), "by the key"
    assert len(set().union(*partitions.values())) > 1


async def test_more_pairs_than_the_window_holds_are_sent(client: Any, topic: str) -> None:
    schema = Schema.key_value("int32", "string", "separated")
    async with client.producer(topic, schema=schema, max_pending=10) as producer:
        await producer.send_many([KeyValue(n, str(n)) for n in range(200)])
    got = await received(client, topic, 200, schema)
    assert [message.value for message in got] == [KeyValue(n, str(n)) for n in range(200)]


async def test_pairs_that_do_not_fit_are_not_sent(client: Any, topic: str) -> None:
    schema = Schema.key_value("string", Schema.avro(Counted))
    async with client.producer(topic, schema=schema) as producer:
        for value, text in (
            ("pair", "expected KeyValue or a tuple of two, got str"),
            (("a", Counted("b"), 1), "expected KeyValue or a tuple of two, got tuple"),
            ((1, Counted("b")), "key: expected str, got int"),
            (("a", Counted("b", "c")), "value.count: expected an integer"),  # type: ignore[arg-type]
        ):
            with pytest.raises(errors.SchemaError, match=text):
                await producer.send(value)
        await producer.send(("a", Counted("b")))
    async with client.producer(topic) as producer:
        await producer.send(b"\0\0\0")
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        assert (await reader.receive(timeout=PATIENCE)).value == ("a", Counted("b"))
        message = await reader.receive(timeout=PATIENCE)
        with pytest.raises(errors.SchemaError, match="cut off"):
            _ = message.value
    for part in (Schema.key_value("string", "string"), "auto"):
        with pytest.raises(errors.InvalidArgument, match="a schema of its own"):
            Schema.key_value("string", part)
    with pytest.raises(errors.InvalidArgument, match="no encoding"):
        Schema.key_value("string", "string", "odd")  # type: ignore[arg-type]


async def test_keys_and_values_have_versions_and_are_checked_apart(client: Any, topic: str) -> None:
    def pair(key: Any, value: Any) -> Schema:
        return Schema.key_value(Schema.avro(key), Schema.avro(value))

    weight = {"type": "record", "name": "Line", "fields": [{"name": "weight", "type": "double"}]}
    async with client.producer(topic, schema=pair(Shop, Line)) as producer:
        await producer.send((Shop("Bonn"), Line("nut")))
    async with client.producer(topic, schema=pair(Shop, Counted)) as producer:
        await producer.send((Shop("Bonn"), Counted("nut", 3)))
    got = await received(client, topic, 2, pair(Shop, Counted))
    assert [message.value.value for message in got] == [Counted("nut"), Counted("nut", 3)]
    assert [message.schema_version[-1] for message in got] == [0, 1]
    for key, value in ((Shop, weight), (weight, Counted)):
        with pytest.raises(errors.IncompatibleSchema):
            await client.producer(topic, schema=pair(key, value))
    for schema in (Schema.key_value("string", Schema.avro(Counted)), Schema.avro(Counted)):
        with pytest.raises(errors.IncompatibleSchema):
            await client.producer(topic, schema=schema)


async def test_a_message_may_have_a_pair_of_its_own(client: Any, topic: str) -> None:
    schema = Schema.key_value("string", "int64", "separated")
    async with client.producer(topic) as producer:
        await producer.send(KeyValue("a", 1), schema=schema)
    assert [message.value for message in await received(client, topic, 1)] == [KeyValue("a", 1)]


@ENCODINGS
async def test_a_table_view_and_dead_letters_hold_pairs(client: Any, topic: str, encoding: Any) -> None:
    schema = Schema.key_value("string", "int64", encoding)
    policy = forebay.pulsar.DeadLetterPolicy(1, subscription="dead")
    options: dict[str, Any] = {"type": "shared", "nack_delay": 0.05, "dead_letter": policy}
    async with client.consumer(topic, "s", schema=schema, **options) as consumer:
        async with client.producer(topic, schema=schema) as producer:
            await producer.send(("a", 1))
        for _ in range(2):
            await consumer.nack(await consumer.receive(timeout=PATIENCE))
        async with client.consumer(f"{topic}-s-DLQ", "dead", schema="auto", position="earliest") as letters:
            assert (await letters.receive(timeout=PATIENCE)).value == ("a", 1)
    if encoding == "separated":
        async with client.table_view(topic, schema=schema) as view:
            assert [view[key] for key in view] == [("a", 1)]


def test_the_blocking_face_has_pairs(service: PulsarService, topic: str) -> None:
    schema = Schema.key_value("string", Line, "separated")
    with forebay.blocking.connect(service.url) as client:
        with client.producer(topic, schema=schema) as producer:
            producer.send(KeyValue("a", Line("nut")))
        with client.reader(topic, schema=schema, position="earliest") as reader:
            assert reader.receive(timeout=PATIENCE).value == ("a", Line("nut"))


@pytest.mark.parametrize("of", ["json", "avro", "int32", "pair"])
async def test_a_producer_takes_the_schema_of_its_topic(client: Any, topic: str, of: str) -> None:
    schema, value, bad = {
        "json": (Schema.json(Counted), Counted("nut", 3), b'{"count": "x"}'),
        "avro": (Schema.avro(Counted), Counted("nut", 3), b"\x7f"),
        "int32": (Schema.primitive("int32"), 7, b"\0"),
        "pair": (Schema.key_value("string", Schema.avro(Counted)), KeyValue("a", Counted("nut", 3)), b"ab"),
    }[of]
    async with client.producer(topic, schema=schema):
        pass
    async with client.producer(topic, schema="auto") as producer:
        await producer.send(schema.encode(value))
        await producer.send_many([bytearray(schema.encode(value))])
        for payload in (bad, b""):
            with pytest.raises(errors.SchemaError, match="does not fit the schema of the topic"):
                await producer.send(payload)
        with pytest.raises(TypeError, match="bytes-like"):
            await producer.send(value)
        await producer.send(None, key="k", null_value=True)
    got = await received(client, topic, 3, schema)
    assert [message.value for message in got] == [value, value, None]
    assert {message.schema_version for message in got} == {bytes(8)}


async def test_a_producer_may_find_no_schema(client: Any, topic: str) -> None:
    async with client.producer(topic, schema="auto") as producer:
        await producer.send(b"anything")
    message = (await received(client, topic, 1))[0]
    assert (message.value, message.schema_version) == (b"anything", None)


async def test_payloads_of_separated_pairs_cannot_be_checked(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.key_value("string", "string", "separated")):
        pass
    with pytest.raises(errors.Unsupported, match="give the producer the schema"):
        await client.producer(topic, schema="auto")


async def test_rows_of_frames_are_neither_pairs_nor_checked(client: Any, topic: str) -> None:
    frame = pyarrow.table({"article": ["nut"]})
    async with client.producer(topic, schema=Schema.key_value("string", "string", "separated")) as producer:
        with pytest.raises(errors.Unsupported, match="KeyValue"):
            await producer.send_frame(frame)
    async with client.producer(f"{topic}-a", schema=Line):
        pass
    async with client.producer(f"{topic}-a", schema="auto") as producer:
        with pytest.raises(errors.Unsupported, match='schema="auto"'):
            await producer.send_frame(frame)
