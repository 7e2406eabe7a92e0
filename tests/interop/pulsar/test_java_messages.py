"""Messages between the official Java client and ours, in both directions, on the embedded broker and a real
Pulsar: each codec, kind of batch, chunks, schemas and keys. Everything that a message has is compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import forebay
from forebay.pulsar import KeyValue, MessageId, Schema

from support.pulsar.harness import PulsarService
from support.pulsar.java import Colour, Item, Maker, PulsarJava, Seen, encoded
from support.waiting import PATIENCE

pytestmark = [pytest.mark.real_pulsar, pytest.mark.timeout(120)]

CODECS = ["none", "lz4", "zlib", "zstd", "snappy"]
BATCHES: Any = {"batch_max_messages": 7, "batching_delay": 1.0}
JAVA_BATCHES: Any = {"batchingMaxMessages": 7, "batchingMaxPublishDelayMicros": 1_000_000}
MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "single": ({"batching": False}, {"batchingEnabled": False}),
    "batches": (BATCHES, JAVA_BATCHES),
    "key batches": ({**BATCHES, "key_based_batching": True}, {**JAVA_BATCHES, "key_based": True}),
    "chunks": (
        {"batching": False, "chunking": True, "chunk_max_size": 1000},
        {"batchingEnabled": False, "chunkingEnabled": True, "chunkMaxMessageSize": 1000},
    ),
}
"""Name -> options of our producer and of Java's."""
SCHEMAS: dict[str, Any] = {
    "bytes": None,
    "json": Schema.json(Item),
    "avro": Schema.avro(Item),
    "inline:int64:avro": Schema.key_value("int64", Schema.avro(Item), "inline"),
    "separated:string:json": Schema.key_value("string", Schema.json(Item), "separated"),
}
"""Name in Java's program -> ours."""
TABLE = pytest.mark.parametrize(
    ("codec", "mode", "schema"),
    [
        (codec, mode, schema)
        for c, codec in enumerate(CODECS)
        for m, mode in enumerate(MODES)
        for schema in (list(SCHEMAS)[1 + (c + m) % 4], "bytes")
        if schema != "bytes" or m == c % 4
    ],
)
"""Each pair of a codec, a mode and a schema."""


@pytest.fixture(scope="module")
def _clients() -> Iterator[dict[str, Any]]:
    clients: dict[str, Any] = {}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def ours(_clients: dict[str, Any], service: PulsarService) -> Any:
    if service.url not in _clients:
        _clients[service.url] = forebay.blocking.connect(service.url, connect_timeout=PATIENCE)
    return _clients[service.url]


@dataclass
class Told:
    """A message as both clients tell of it."""

    value: Any
    key: str | None = None
    ordering_key: bytes | None = None
    properties: dict[str, str] | None = None
    event_time: int = 0
    sequence_id: int = -1


def messages(schema: str) -> list[Told]:
    """Messages with and without each of what a message may have."""
    chance = random.Random(schema)
    made: list[Told] = []
    for n in range(24):
        size = (0, 1, 90, 5000)[n % 4]
        # Some of it can be compressed.
        raw = chance.randbytes(size // 2) + bytes(size - size // 2)
        item = Item(f"grüße ☃ {n}", n - 2**40, n / 7, n % 2 == 0, raw, ["a", ""], {"x": n}, Maker("Köln"))
        item.colour = Colour.BLUE if n % 3 else None
        kind = schema.partition(":")[0]
        key = (None, "key-1", "schlüssel ☃", f"key-{n}")[n % 4 if kind == "bytes" else n * 5 % 4]
        value: Any = raw if kind == "bytes" else item if n % 6 else Item()
        if kind == "inline":
            value = KeyValue(n - 3, value)
        elif kind == "separated":
            value, key = KeyValue(f"ü {n % 5}", value), encoded(f"ü {n % 5}".encode())
        elif n == 10:
            value = None
        made.append(
            Told(
                value,
                key,
                (None, b"o-1", b"\x00\xff\x80")[n % 3],
                {"n": str(n), "ü": "☃", "": "empty"} if n % 5 else {"n": str(n)},
                1_700_000_000_000 + n if n % 4 else 0,
                n,
            )
        )
    return made


def in_order(told: list[Told], mode: str) -> list[Told]:
    """With batches by key the order of a key's messages is what counts."""
    if mode != "key batches":
        return told
    numbers: dict[Any, list[int]] = {}
    for one in told:
        numbers.setdefault(one.ordering_key or one.key, []).append(one.sequence_id)
    assert all(of_key == sorted(of_key) for of_key in numbers.values()), numbers
    return sorted(told, key=lambda one: one.sequence_id)


def of_java(seen: Seen) -> Told:
    return Told(seen.value, seen.key, seen.ordering_key, seen.properties, seen.event_time, seen.sequence_id)


def of_ours(message: Any) -> Told:
    return Told(
        message.value,
        message.key,
        message.ordering_key,
        message.properties,
        message.event_time or 0,
        message.sequence_id,
    )


def as_java_has_it(told: Told) -> Told:
    return replace(told, value=encoded(told.value))


def for_java(told: Told, schema: str) -> dict[str, Any]:
    own_key = {} if schema.startswith("separated") else {"key": told.key}
    given = {"ordering_key": told.ordering_key, "event_time": told.event_time or None} | own_key
    given = {name: value for name, value in given.items() if value is not None}
    return {"value": told.value, "properties": told.properties} | given


def send_ours(producer: Any, told: list[Told], schema: str) -> None:
    for one in told:
        producer.send_nowait(
            b"" if one.value is None and schema == "bytes" else one.value,
            None if schema.startswith("separated") else one.key,
            ordering_key=one.ordering_key,
            properties=one.properties,
            event_time=one.event_time or None,
            null_value=one.value is None,
        )
    producer.flush()


def read_ours(ours: Any, topic: str, count: int, schema: str) -> list[Any]:
    with ours.reader(topic, schema=SCHEMAS[schema], position="earliest") as reader:
        return [reader.receive(timeout=PATIENCE) for _ in range(count)]


def same_messages(seen: list[Seen], read: list[Any]) -> None:
    """What both clients read of one topic, byte by byte."""
    for java, own in zip(seen, read, strict=True):
        assert (java.data or b"") == own.data
        assert (java.data is None) == own.is_null
        assert java.schema_version == own.schema_version
        assert (java.producer, java.topic) == (own.producer_name, own.topic)
        place = own.id
        assert java.id == (place.ledger, place.entry, place.partition, place.batch_index)
        assert MessageId.from_bytes(java.id_bytes, java.topic) == place


@TABLE
def test_what_we_send_java_receives(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, codec: str, mode: str, schema: str
) -> None:
    topic, sent = service.topic(), messages(schema)
    with ours.producer(
        topic, schema=SCHEMAS[schema], compression=codec, name="ours", **MODES[mode][0]
    ) as out:
        send_ours(out, sent, schema)
    with pulsar_java.consumer(service, topic, schema=schema) as consumer:
        seen = consumer.receive(len(sent))
    assert in_order([of_java(one) for one in seen], mode) == [as_java_has_it(one) for one in sent]
    assert {one.schema_version for one in seen} == {None if schema == "bytes" else bytes(8)}
    same_messages(seen, read_ours(ours, topic, len(sent), schema))


@TABLE
def test_what_java_sends_we_receive(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, codec: str, mode: str, schema: str
) -> None:
    topic, sent = service.topic(), messages(schema)
    options: Any = {"producerName": "theirs", "compressionType": codec.upper(), **MODES[mode][1]}
    with pulsar_java.producer(service, topic, schema=schema, **options) as out:
        ids = out.send(*(for_java(one, schema) for one in sent))
    read = read_ours(ours, topic, len(sent), schema)
    assert in_order([of_ours(one) for one in read], mode) == sent
    by_number = {int(one.properties["n"]): one.id for one in read}
    places = [by_number[n] for n in range(len(sent))]
    assert ids == [(place.ledger, place.entry, place.partition, place.batch_index) for place in places]
    with pulsar_java.reader(service, topic, schema=schema) as reader:
        same_messages(reader.receive(len(sent)), read)


# ------------------------------------------------------------------------------ chunks of large
# messages

MAX = 5 << 20
"""Largest message of both brokers."""
LARGE = {codec: [MAX - 200, MAX + 1, 11_000_000] if codec == "none" else [6_000_000] for codec in CODECS}
CHUNKS: Any = {"batching": False, "chunking": True}
JAVA_CHUNKS: Any = {"batchingEnabled": False, "chunkingEnabled": True}


@pytest.fixture
def kept(ours: Any, service: PulsarService) -> Iterator[str]:
    """A topic with a subscription: without one, brokers keep only so many bytes of what comes."""
    topic = service.topic()
    with ours.consumer(topic, "kept"):
        pass
    yield topic
    service.delete_topic(topic)


@cache
def large(size: int) -> bytes:
    """It cannot be compressed: what is small enough when it is compressed is not chunked."""
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("codec", CODECS)
def test_large_messages_of_ours_are_put_together_by_java(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, kept: str, codec: str
) -> None:
    with ours.producer(kept, compression=codec, **CHUNKS) as producer:
        sent = [
            producer.send(large(size), f"key-{size}", properties={"n": str(size)}) for size in LARGE[codec]
        ]
        producer.send(b"small")
    with pulsar_java.consumer(service, kept) as consumer:
        for place, size in zip(sent, LARGE[codec], strict=True):
            (seen,) = consumer.receive(1)
            assert seen.data == large(size)
            assert (seen.key, seen.properties) == (f"key-{size}", {"n": str(size)})
            assert seen.id == (place.ledger, place.entry, place.partition, place.batch_index)
        assert consumer.receive(1)[0].data == b"small"


@pytest.mark.parametrize("codec", CODECS)
def test_large_messages_of_java_are_put_together_by_us(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, kept: str, codec: str
) -> None:
    with pulsar_java.producer(service, kept, compressionType=codec.upper(), **JAVA_CHUNKS) as producer:
        sent = [
            producer.send({"value": large(size), "key": f"key-{size}", "properties": {"n": str(size)}})[0]
            for size in LARGE[codec]
        ]
        producer.send_bytes(b"small")
    with ours.reader(kept, position="earliest") as reader:
        for id, size in zip(sent, LARGE[codec], strict=True):
            message = reader.receive(timeout=PATIENCE)
            assert message.data == large(size)
            assert (message.key, message.properties) == (f"key-{size}", {"n": str(size)})
            place = message.id
            assert id == (place.ledger, place.entry, place.partition, place.batch_index)
        assert reader.receive(timeout=PATIENCE).data == b"small"


@pytest.mark.parametrize("chunking", [False, True])
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_what_is_large_until_it_is_compressed_is_one_entry(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, kept: str, codec: str, chunking: bool
) -> None:
    payload = large(MAX // 2) + bytes(MAX)
    java = {"batchingEnabled": False, "chunkingEnabled": chunking, "compressionType": codec.upper()}
    with pulsar_java.producer(service, kept, **java) as producer:
        producer.send({"value": payload, "key": "java", "properties": {}})
    with ours.producer(kept, compression=codec, batching=False, chunking=chunking) as producer:
        producer.send(payload, "ours")
    with ours.reader(kept, position="earliest") as reader:
        got = [reader.receive(timeout=PATIENCE) for _ in range(2)]
    assert [(message.key, message.data == payload) for message in got] == [("java", True), ("ours", True)]
    with pulsar_java.consumer(service, kept) as consumer:
        for key in ("java", "ours"):
            (seen,) = consumer.receive(1)
            assert (seen.key, seen.data == payload) == (key, True)


def test_chunks_of_both_may_be_between_each_other(
    pulsar_java: PulsarJava, ours: Any, service: PulsarService, kept: str
) -> None:
    """Two producers at a time: the chunks of their messages are told apart."""
    options: Any = {**JAVA_CHUNKS, "chunkMaxMessageSize": 500}
    with (
        ours.producer(kept, chunk_max_size=500, **CHUNKS) as mine,
        pulsar_java.producer(service, kept, **options) as theirs,
    ):
        for n in range(20):
            mine.send_nowait(large(20_000 + n), properties={"of": "ours"})
            if n % 5 == 0:
                theirs.send_bytes(*(large(10_000 + n + i) for i in range(5)))
        mine.flush()
    with pulsar_java.reader(service, kept) as reader:
        seen = reader.receive(40)
    read = read_ours(ours, kept, 40, "bytes")
    same_messages(seen, read)
    assert [one.data for one in read if one.properties] == [large(20_000 + n) for n in range(20)]
    assert [one.data for one in read if not one.properties] == [large(10_000 + n) for n in range(20)]
