"""Producers of the official module, and of ours in its place."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from support.pulsar.harness import PulsarService

MS = 60_000
"""Milliseconds to wait for a message that comes."""
KEYS = [f"key-{number}" for number in range(20)]


def test_the_id_of_a_send_is_the_id_of_the_message(client: Any, topic: str) -> None:
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    sent = producer.send(b"x")
    got = consumer.receive(MS).message_id()
    assert (sent.ledger_id(), sent.entry_id()) == (got.ledger_id(), got.entry_id())
    assert (sent.partition(), sent.batch_index()) == (-1, -1)


def test_every_field_arrives(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="who")
    before = int(time.time() * 1000)
    producer.send(
        b"data", {"a": "b", "c": "ü"}, partition_key="key", ordering_key="order", event_timestamp=1234
    )
    message = consumer.receive(MS)
    assert message.data() == message.value() == b"data"
    assert message.properties() == {"a": "b", "c": "ü"}
    assert (message.partition_key(), message.ordering_key()) == ("key", "order")
    assert message.event_timestamp() == 1234
    assert before - 1000 <= message.publish_timestamp() <= time.time() * 1000 + 1000
    assert (message.topic_name(), message.producer_name()) == (topic, "who")
    assert not message.has_null_value()


def test_fields_that_are_absent(client: Any, topic: str) -> None:
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    producer.send(b"")
    message = consumer.receive(MS)
    assert (message.data(), message.properties()) == (b"", {})
    assert (message.partition_key(), message.ordering_key(), message.schema_version()) == ("", "", "")
    assert (message.event_timestamp(), message.redelivery_count()) == (0, 0)
    assert message.encryption_context() is None


@pytest.mark.parametrize("batching", [False, True])
def test_callbacks_come_in_the_order_of_the_messages(
    pulsar: Any, client: Any, topic: str, batching: bool
) -> None:
    producer = client.create_producer(topic, batching_enabled=batching)
    results: list[tuple[Any, Any]] = []
    for number in range(500):
        producer.send_async(b"%d" % number, lambda result, message_id: results.append((result, message_id)))
    producer.flush()
    assert [result for result, _ in results] == [pulsar.Result.Ok] * 500
    ids = [message_id for _, message_id in results]
    assert all(one < two for one, two in itertools.pairwise(ids))


def test_callbacks_are_not_called_by_the_sender(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    threads: list[threading.Thread] = []
    producer.send_async(b"x", lambda *_: threads.append(threading.current_thread()))
    producer.flush()
    assert len(threads) == 1 and threads[0] is not threading.current_thread()


def test_a_message_that_is_too_big(pulsar: Any, client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    with pytest.raises(pulsar.MessageTooBig, match="Pulsar error: MessageTooBig"):
        producer.send(b"x" * 6_000_000)
    producer.send(b"x")


def test_a_message_that_is_too_big_for_send_async(
    pulsar: Any, client: Any, topic: str, until: Callable[..., None]
) -> None:
    producer = client.create_producer(topic)
    results: list[Any] = []
    producer.send_async(b"x" * 6_000_000, lambda result, _: results.append(result))
    until(lambda: results)
    assert results == [pulsar.Result.MessageTooBig]


def test_a_full_queue_is_reported_by_the_callback(pulsar: Any, client: Any, topic: str) -> None:
    producer = client.create_producer(topic, max_pending_messages=2)
    results: list[Any] = []
    for _ in range(2000):
        producer.send_async(b"x", lambda result, _: results.append(result))
    producer.flush()
    assert len(results) == 2000
    assert set(results) == {pulsar.Result.Ok, pulsar.Result.ProducerQueueIsFull}


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_block_if_queue_full_loses_nothing(
    pulsar: Any, client: Any, topic: str, earliest: Any, limit: int
) -> None:
    producer = client.create_producer(topic, max_pending_messages=limit, block_if_queue_full=True)
    results: list[Any] = []
    for number in range(300):
        producer.send_async(b"%d" % number, lambda result, _: results.append(result))
    producer.flush()
    assert results == [pulsar.Result.Ok] * 300
    consumer = client.subscribe(topic, "s", initial_position=earliest)
    assert [int(consumer.receive(MS).data()) for _ in range(300)] == list(range(300))


def test_messages_of_a_batch_share_an_entry(client: Any, topic: str) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    ids: list[Any] = []
    for _ in range(10):
        producer.send_async(b"x", lambda _, message_id: ids.append(message_id))
    producer.flush()
    assert all(message_id.batch_index() >= 0 for message_id in ids)


def test_key_based_batching(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=50,
    )
    for number in range(20):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"k{number % 2}")
    producer.flush()
    found: dict[str, list[int]] = {}
    for _ in range(20):
        message = consumer.receive(MS)
        found.setdefault(message.partition_key(), []).append(int(message.data()))
    assert found == {"k0": list(range(0, 20, 2)), "k1": list(range(1, 20, 2))}


def test_batching_and_chunking_exclude_each_other(client: Any, topic: str) -> None:
    with pytest.raises(ValueError, match="Batching and chunking"):
        client.create_producer(topic, batching_enabled=True, chunking_enabled=True)


def test_sequence_ids_begin_at_zero(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    assert producer.last_sequence_id() == -1
    producer.send(b"x")
    producer.send(b"x")
    assert producer.last_sequence_id() == 1


def test_initial_sequence_id_is_the_one_published_last(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, initial_sequence_id=41)
    producer.send(b"x")
    assert producer.last_sequence_id() == 42


def test_own_sequence_ids(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in (10, 20):
        producer.send(b"x", sequence_id=number)
    assert producer.last_sequence_id() == 20


def test_an_exclusive_producer_is_alone(pulsar: Any, client: Any, topic: str) -> None:
    mode = pulsar.ProducerAccessMode.Exclusive
    client.create_producer(topic, access_mode=mode)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=mode)


def test_fencing_takes_the_topic_over(pulsar: Any, client: Any, topic: str) -> None:
    first = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    second = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
    second.send(b"x")
    with pytest.raises(pulsar.PulsarException):
        first.send(b"x")


def test_a_name_is_used_once(pulsar: Any, client: Any, topic: str) -> None:
    assert client.create_producer(topic, producer_name="n").producer_name() == "n"
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="n")


def test_producers_without_a_name_get_one(client: Any, topic: str) -> None:
    one, two = client.create_producer(topic), client.create_producer(topic)
    assert one.producer_name() and one.producer_name() != two.producer_name()


@pytest.mark.parametrize("by", ["deliver_after", "deliver_at"])
def test_delivery_is_delayed(pulsar: Any, client: Any, topic: str, by: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"warm")
    consumer.acknowledge(consumer.receive(MS))
    start = time.time()
    when = timedelta(seconds=1.5) if by == "deliver_after" else int((start + 1.5) * 1000)
    producer.send(b"late", **{by: when})
    producer.send(b"soon")
    arrived: dict[bytes, float] = {}
    while len(arrived) < 2:
        arrived.setdefault(consumer.receive(MS).data(), time.time() - start)
    # A real broker counts in seconds, and may be early by one.
    assert set(arrived) == {b"late", b"soon"} and arrived[b"late"] > 0.4


def test_a_closed_producer(pulsar: Any, client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    assert producer.is_connected()
    producer.close()
    assert not producer.is_connected()
    for verb in (producer.close, producer.flush, lambda: producer.send(b"x")):
        with pytest.raises(pulsar.AlreadyClosed):
            verb()


def test_content_must_be_bytes(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for content in ("text", 3, bytearray(b"x"), {"a": 1}):
        with pytest.raises(TypeError, match="Invalid record obj"):
            producer.send(content)


WRONG_ARGUMENTS: dict[str, Any] = {
    "properties": [1],
    "partition_key": b"k",
    "ordering_key": 3,
    "sequence_id": "1",
    "replication_clusters": "a",
    "event_timestamp": 1.5,
    "deliver_at": "now",
    "deliver_after": 3,
}


def test_arguments_of_send_have_types(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for name, wrong in WRONG_ARGUMENTS.items():
        with pytest.raises(ValueError, match=f"Argument {name} is expected"):
            producer.send(b"x", **{name: wrong})
    with pytest.raises(ValueError, match="sequenceId needs to be >= 0"):
        producer.send(b"x", sequence_id=-1)
    with pytest.raises(TypeError):
        producer.send(b"x", properties={"a": 1})


def test_a_queue_without_a_limit(pulsar: Any, client: Any, topic: str) -> None:
    producer = client.create_producer(topic, max_pending_messages=0, batching_enabled=True)
    results: list[Any] = []
    for _ in range(5000):
        producer.send_async(b"x", lambda result, _: results.append(result))
    producer.flush()
    assert results == [pulsar.Result.Ok] * 5000


WRONG_OPTIONS: dict[str, Any] = {
    "producer_name": 3,
    "schema": 3,
    "initial_sequence_id": "1",
    "send_timeout_millis": "1",
    "compression_type": 3,
    "max_pending_messages": None,
    "block_if_queue_full": 1,
    "batching_enabled": None,
    "properties": [],
    "access_mode": 0,
    "batching_type": 1,
    "encryption_key": 1,
    "crypto_key_reader": 1,
}


def test_options_of_a_producer_have_types(client: Any, topic: str) -> None:
    for name, wrong in WRONG_OPTIONS.items():
        with pytest.raises(ValueError, match=f"Argument {name} is expected"):
            client.create_producer(topic, **{name: wrong})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        client.create_producer(topic, colour="red")


@pytest.mark.parametrize("name", ["", "a b://c", "persistent://only"])
def test_names_that_are_no_topics(pulsar: Any, client: Any, name: str) -> None:
    with pytest.raises(pulsar.InvalidTopicName):
        client.create_producer(name)


def test_short_names_are_in_the_default_namespace(client: Any, topic: str) -> None:
    short = topic.rpartition("/")[2]
    producer = client.create_producer(short)
    assert producer.topic() == topic
    assert client.subscribe(f"public/default/{short}", "s").topic() == topic


def test_messages_without_a_key_take_turns(client: Any, service: PulsarService) -> None:
    producer = client.create_producer(service.topic(partitions=3))
    partitions = [producer.send(b"x").partition() for _ in range(9)]
    assert sorted(partitions) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_single_partition(pulsar: Any, client: Any, service: PulsarService) -> None:
    mode = pulsar.PartitionsRoutingMode.UseSinglePartition
    producer = client.create_producer(service.topic(partitions=3), message_routing_mode=mode)
    assert len({producer.send(b"x").partition() for _ in range(6)}) == 1


def test_partitions_are_listed(client: Any, service: PulsarService, topic: str) -> None:
    parted = service.topic(partitions=3)
    assert client.get_topic_partitions(parted) == [f"{parted}-partition-{number}" for number in range(3)]
    client.create_producer(topic)
    assert client.get_topic_partitions(topic) == [topic]


def test_several_threads_send(client: Any, topic: str, earliest: Any) -> None:
    producer = client.create_producer(topic, batching_enabled=True)

    def send(name: int) -> None:
        for number in range(50):
            producer.send_async(b"%d:%d" % (name, number), lambda *_: None)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=earliest)
    found: dict[int, list[int]] = {}
    for _ in range(200):
        name, number = map(int, consumer.receive(MS).data().split(b":"))
        found.setdefault(name, []).append(number)
    assert found == {name: list(range(50)) for name in range(4)}


def test_a_router_chooses_the_partition(pulsar: Any, client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    seen: list[tuple[Any, ...]] = []

    def router(message: Any, partitions: int) -> int:
        seen.append((message.data(), message.partition_key(), message.properties(), partitions))
        return int(message.properties()["to"])

    producer = client.create_producer(topic, message_router=router)
    sent = [producer.send(b"x", {"to": str(to)}, partition_key="k") for to in (2, 0, 1)]
    assert [at.partition() for at in sent] == [2, 0, 1]
    assert seen == [(b"x", "k", {"to": str(to)}, 3) for to in (2, 0, 1)]


def test_a_router_beside_callbacks(pulsar: Any, client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    mode = pulsar.PartitionsRoutingMode.UseSinglePartition
    producer = client.create_producer(
        topic, message_router=lambda message, partitions: partitions - 1, message_routing_mode=mode
    )
    places: list[int] = []
    for _ in range(10):
        producer.send_async(b"x", lambda _result, at: places.append(at.partition()))
    producer.flush()
    assert places == [2] * 10


def test_a_router_that_returns_no_partition(pulsar: Any, client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    producer = client.create_producer(
        topic, message_router=lambda message, partitions: int(message.partition_key())
    )
    with pytest.raises(pulsar.UnknownError):
        producer.send(b"x", partition_key="3")
    assert producer.send(b"x", partition_key="1").partition() == 1


def test_a_router_that_raises(pulsar: Any, client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    producer = client.create_producer(
        topic, message_router=lambda message, partitions: {"a": 1}[message.partition_key()]
    )
    with pytest.raises(KeyError):
        producer.send(b"x", partition_key="b")
    assert producer.send(b"x", partition_key="a").partition() == 1


def test_a_router_is_not_asked_for_a_topic_without_partitions(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, message_router=lambda message, partitions: 1 // 0)
    assert producer.send(b"x").partition() == -1


def test_lazy_start(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=4)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, lazy_start_partitioned_producers=True)
    places = {key: producer.send(b"x", partition_key=key).partition() for key in KEYS}
    assert set(places.values()) == {0, 1, 2, 3}
    assert {consumer.receive(MS).partition_key() for _ in KEYS} == set(KEYS)


def test_clusters_of_a_message(client: Any, topic: str) -> None:
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    producer.send(b"few", replication_clusters=["standalone"])
    producer.send(b"none", disable_replication=True)
    assert [consumer.receive(MS).data() for _ in range(2)] == [b"few", b"none"]
