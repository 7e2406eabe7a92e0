"""The official module on one side and ours in its place on the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import forebay.compat.pulsar
import pulsar as official

from support.messages import numbered
from support.pulsar.harness import PulsarService

MS = 60_000
"""Milliseconds to wait for a message that comes."""


@pytest.fixture(params=["official-ours", "ours-official"])
def pair(request: pytest.FixtureRequest, service: PulsarService) -> Iterator[list[tuple[Any, Any]]]:
    """Module and client of the sender, then of the receiver."""
    modules: dict[str, Any] = {"official": official, "ours": forebay.compat.pulsar}
    made: list[tuple[Any, Any]] = []
    for name in request.param.split("-"):
        module = modules[name]
        made.append((module, module.Client(service.url, operation_timeout_seconds=60)))
    yield made
    for _, client in made:
        client.shutdown()


def test_every_field_arrives(pair: list[tuple[Any, Any]], topic: str) -> None:
    (_, sender), (_, receiver) = pair
    consumer = receiver.subscribe(topic, "s")
    producer = sender.create_producer(topic, producer_name="who")
    sent = producer.send(b"x", {"a": "ü"}, partition_key="k", ordering_key="o", event_timestamp=7)
    producer.send(None, partition_key="gone")
    message, tombstone = consumer.receive(MS), consumer.receive(MS)
    assert (message.data(), message.properties(), message.event_timestamp()) == (b"x", {"a": "ü"}, 7)
    assert (message.partition_key(), message.ordering_key(), message.producer_name()) == ("k", "o", "who")
    assert message.message_id().serialize() == sent.serialize()
    assert (tombstone.has_null_value(), tombstone.data(), tombstone.partition_key()) == (True, b"", "gone")


@pytest.mark.parametrize(
    ("codec", "batching"),
    list(itertools.product(["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"], [False, True])),
)
def test_codecs_and_batches(pair: list[tuple[Any, Any]], topic: str, codec: str, batching: bool) -> None:
    (module, sender), (_, receiver) = pair
    consumer = receiver.subscribe(topic, "s")
    producer = sender.create_producer(
        topic,
        compression_type=getattr(module.CompressionType, codec),
        batching_enabled=batching,
        batching_max_publish_delay_ms=20,
    )
    ids: list[bytes] = []
    for payload in numbered(100, 300):
        producer.send_async(payload, lambda _, message_id: ids.append(message_id.serialize()))
    producer.flush()
    got = [consumer.receive(MS) for _ in range(100)]
    assert [message.data() for message in got] == numbered(100, 300)
    assert [message.message_id().serialize() for message in got] == ids


def test_chunks(pair: list[tuple[Any, Any]], topic: str) -> None:
    (_, sender), (_, receiver) = pair
    consumer = receiver.subscribe(topic, "s")
    payload = bytes(range(256)) * 48 * 1024
    sender.create_producer(topic, chunking_enabled=True).send(payload)
    message = consumer.receive(60_000)
    assert message.data() == payload
    consumer.acknowledge(message)


def test_ids_are_exchanged_as_bytes(pair: list[tuple[Any, Any]], topic: str) -> None:
    (_, sender), (module, receiver) = pair
    producer = sender.create_producer(topic)
    ids = [producer.send(payload) for payload in numbered(5)]
    start = module.MessageId.deserialize(ids[2].serialize())
    reader = receiver.create_reader(topic, start)
    assert reader.read_next(MS).data() == numbered(5)[3]


def test_a_subscription_is_taken_over(pair: list[tuple[Any, Any]], topic: str) -> None:
    (_, first), (_, second) = pair
    consumer = first.subscribe(topic, "s")
    producer = second.create_producer(topic)
    for payload in numbered(6):
        producer.send(payload)
    for _ in range(4):
        consumer.acknowledge(consumer.receive(MS))
    consumer.close()
    consumer = second.subscribe(topic, "s")
    assert [consumer.receive(MS).data() for _ in range(2)] == numbered(6)[4:]


def test_sequence_ids_go_on(pair: list[tuple[Any, Any]], topic: str) -> None:
    (_, first), (_, second) = pair
    producer = first.create_producer(topic, producer_name="n", initial_sequence_id=9)
    producer.send(b"x")
    assert producer.last_sequence_id() == 10
    producer.close()
    producer = second.create_producer(topic, producer_name="n", initial_sequence_id=10)
    producer.send(b"x")
    assert producer.last_sequence_id() == 11


def test_a_key_stays_on_its_partition(pair: list[tuple[Any, Any]], service: PulsarService) -> None:
    topic = service.topic(partitions=4)
    placed = [
        [client.create_producer(topic).send(b"x", partition_key=f"k{n}").partition() for n in range(12)]
        for _, client in pair
    ]
    assert placed[0] == placed[1]


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_records(pair: list[tuple[Any, Any]], topic: str, kind: str) -> None:
    (sending, sender), (receiving, receiver) = pair

    def record(schema: Any) -> Any:
        class Order(schema.Record):
            number = schema.Integer(required=True)
            price = schema.Double()
            items = schema.Array(schema.String())
            counts = schema.Map(schema.Long())

        return Order

    ours, theirs = record(sending.schema), record(receiving.schema)
    consumer = receiver.subscribe(topic, "s", schema=getattr(receiving.schema, kind)(theirs))
    producer = sender.create_producer(topic, schema=getattr(sending.schema, kind)(ours))
    for number in range(100):
        producer.send_async(
            ours(number=number, price=number / 8, items=["ü"] * (number % 3), counts={"k": -number}), None
        )
    producer.flush()
    got = [consumer.receive(MS).value() for _ in range(100)]
    assert got == [
        theirs(number=number, price=number / 8, items=["ü"] * (number % 3), counts={"k": -number})
        for number in range(100)
    ]
