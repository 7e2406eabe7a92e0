"""The official Python client on one side, ours on the other, on the real Pulsar and the embedded broker. The
official client alone, and all codecs, are in ``compat``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
import pulsar
from forebay.commands.pulsar import jwt

from support.messages import numbered
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE

EARLIEST = pulsar.InitialPosition.Earliest
MODES = pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])


@pytest.fixture
def official(service: PulsarService) -> Iterator[Any]:
    client = pulsar.Client(
        service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    yield client
    client.close()


@pytest.fixture
def ours(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url, connect_timeout=PATIENCE) as client:
        yield client


def take_official(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(60_000) for _ in range(count)]


def take_ours(consumer: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        got = consumer.receive_many(count - len(messages), timeout=60)
        assert got, f"{len(messages)} of {count}"
        messages += got
    return messages


def position(message_id: Any) -> tuple[int, int, int, int]:
    """Ledger, entry, partition, batch index; of either client's id."""
    if isinstance(message_id, forebay.pulsar.MessageId):
        return message_id.ledger, message_id.entry, message_id.partition, message_id.batch_index
    return message_id.ledger_id(), message_id.entry_id(), message_id.partition(), message_id.batch_index()


@MODES
def test_what_we_send_the_official_client_receives(
    official: Any, ours: Any, topic: str, batching: bool
) -> None:
    consumer = official.subscribe(topic, "s", initial_position=EARLIEST)
    with ours.producer(topic, compression="zstd", batching=batching, name="ours") as producer:
        for i, payload in enumerate(numbered(100, 300)):
            producer.send_nowait(
                payload,
                f"key-{i}",
                ordering_key=b"o%d" % i,
                properties={"n": str(i), "ü": "☃"},
                event_time=1_700_000_000_000 + i,
            )
        producer.flush()
        for i, message in enumerate(take_official(consumer, 100)):
            assert message.data() == numbered(100, 300)[i]
            assert message.partition_key() == f"key-{i}"
            assert message.ordering_key().encode() == b"o%d" % i
            assert message.properties() == {"n": str(i), "ü": "☃"}
            assert message.event_timestamp() == 1_700_000_000_000 + i
            assert message.producer_name() == "ours"
            consumer.acknowledge(message)


@MODES
def test_what_the_official_client_sends_we_receive(
    official: Any, ours: Any, topic: str, batching: bool
) -> None:
    with ours.consumer(topic, "s", position="earliest") as consumer:
        producer = official.create_producer(
            topic,
            producer_name="official",
            compression_type=pulsar.CompressionType.ZSTD,
            batching_enabled=batching,
            block_if_queue_full=True,
        )
        for i, payload in enumerate(numbered(100, 300)):
            producer.send_async(
                payload,
                callback=lambda *_: None,
                partition_key=f"key-{i}",
                ordering_key=f"o{i}",
                properties={"n": str(i), "ü": "☃"},
                event_timestamp=1_700_000_000_000 + i,
            )
        producer.flush()
        messages = take_ours(consumer, 100)
        for i, message in enumerate(messages):
            assert bytes(message.data) == numbered(100, 300)[i]
            assert (message.key, message.ordering_key) == (f"key-{i}", b"o%d" % i)
            assert message.properties == {"n": str(i), "ü": "☃"}
            assert message.event_time == 1_700_000_000_000 + i
            assert message.producer_name == "official"
        consumer.ack_many(messages)


@MODES
def test_both_give_a_message_the_same_id(official: Any, ours: Any, topic: str, batching: bool) -> None:
    theirs = official.subscribe(topic, "theirs", initial_position=EARLIEST)
    with (
        ours.consumer(topic, "ours", position="earliest") as mine,
        ours.producer(topic, batching=batching) as out,
    ):
        sent = [position(message_id) for message_id in out.send_many(numbered(20))]
        received = [message.id for message in take_ours(mine, 20)]
        official_ids = [message.message_id() for message in take_official(theirs, 20)]
        assert [position(message_id) for message_id in received] == sent
        assert [position(message_id)[:2] for message_id in official_ids] == [place[:2] for place in sent]
        assert [position(message_id)[3] for message_id in official_ids] == [place[3] for place in sent]
        for mine_id, their_id in zip(received, official_ids, strict=True):
            again = forebay.pulsar.MessageId.from_bytes(their_id.serialize())
            assert (again.ledger, again.entry, again.batch_index) == (
                mine_id.ledger,
                mine_id.entry,
                mine_id.batch_index,
            )
            back = pulsar.MessageId.deserialize(mine_id.to_bytes())
            assert (back.ledger_id(), back.entry_id()) == (mine_id.ledger, mine_id.entry)


def test_boost_hashing_puts_keys_where_the_official_client_puts_them(
    official: Any, ours: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=7)
    theirs = official.create_producer(topic)
    keys = [f"key-{i}" for i in range(40)] + ["", "a", "schlüssel", "x" * 100]
    keys = [key for key in keys if key]
    with ours.producer(topic, hashing="boost") as mine:
        expected = [theirs.send(b"x", partition_key=key).partition() for key in keys]
        assert [mine.send(b"x", key).partition for key in keys] == expected


def test_one_shared_subscription_of_both(official: Any, ours: Any, topic: str) -> None:
    theirs = official.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=10)
    with (
        ours.consumer(topic, "s", type="shared", receiver_queue=10) as mine,
        ours.producer(topic, batching=False) as producer,
    ):
        producer.send_many(numbered(100))
        got: list[bytes] = []
        counts = [0, 0]
        deadline = time.monotonic() + PATIENCE
        while len(got) < 100:
            assert time.monotonic() < deadline, counts
            for message in mine.receive_many(10, timeout=0.2):
                mine.ack(message)
                got.append(bytes(message.data))
                counts[0] += 1
            try:
                while True:
                    message = theirs.receive(50)
                    theirs.acknowledge(message)
                    got.append(message.data())
                    counts[1] += 1
            except pulsar.Timeout:
                pass
        assert sorted(got) == numbered(100)
        assert all(counts)


def test_what_we_acknowledge_the_official_client_does_not_see_again(
    official: Any, ours: Any, topic: str
) -> None:
    with ours.producer(topic, batching_delay="5s") as producer:
        with ours.consumer(topic, "s", type="shared", ack_receipt=True) as consumer:
            for payload in numbered(10):
                producer.send_nowait(payload)
            producer.flush()
            consumer.ack_many(take_ours(consumer, 10)[::2])
        theirs = official.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
        )
        assert sorted(message.data() for message in take_official(theirs, 5)) == numbered(10)[1::2]
        with pytest.raises(pulsar.Timeout):
            theirs.receive(300)


def test_an_exclusive_subscription_is_busy_for_the_other(official: Any, ours: Any, topic: str) -> None:
    theirs = official.subscribe(topic, "s")
    with pytest.raises(forebay.errors.ConsumerBusy):
        ours.consumer(topic, "s")
    theirs.close()
    with ours.consumer(topic, "s"), pytest.raises(pulsar.ConsumerBusy):
        official.subscribe(topic, "s")


def test_our_chunks_are_put_together_by_the_official_client(official: Any, ours: Any, topic: str) -> None:
    consumer = official.subscribe(topic, "s")
    large, small = os.urandom(60_000), b"small"
    with ours.producer(
        topic, compression="zstd", batching=False, chunking=True, chunk_max_size="10KiB"
    ) as producer:
        sent = producer.send(large, "k", properties={"a": "b"})
        producer.send(small)
    message = consumer.receive(60_000)
    assert (message.data(), message.partition_key(), message.properties()) == (large, "k", {"a": "b"})
    assert (message.message_id().ledger_id(), message.message_id().entry_id()) == (sent.ledger, sent.entry)
    assert sent.entry >= 5, "there were several chunks"
    assert consumer.receive(60_000).data() == small


def test_our_batches_of_keys_are_read_by_official_key_shared_consumers(
    official: Any, ours: Any, topic: str
) -> None:
    kind = pulsar.ConsumerType.KeyShared
    consumers = [official.subscribe(topic, "s", consumer_type=kind) for _ in range(2)]
    with ours.producer(topic, key_based_batching=True, batching_delay=0.05) as producer:
        for i in range(200):
            producer.send_nowait(
                b"%d" % i, f"k{i % 10}", properties={"n": str(i)}, event_time=1000 + i, null_value=False
            )
        producer.flush()
    owner: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    deadline = time.monotonic() + PATIENCE
    while sum(map(len, numbers.values())) < 200:
        assert time.monotonic() < deadline, numbers
        for place, consumer in enumerate(consumers):
            with contextlib.suppress(pulsar.Timeout):
                while True:
                    message = consumer.receive(100)
                    key, number = message.partition_key(), int(message.data())
                    assert owner.setdefault(key, place) == place
                    assert (message.properties(), message.event_timestamp()) == (
                        {"n": str(number)},
                        1000 + number,
                    )
                    numbers.setdefault(key, []).append(number)
                    consumer.acknowledge(message)
    assert numbers == {f"k{key}": list(range(key, 200, 10)) for key in range(10)}


def test_official_chunks_are_put_together_by_us(official: Any, ours: Any, topic: str) -> None:
    big = bytes(i % 251 for i in range(11_000_000))
    with ours.consumer(topic, "s") as consumer:
        producer = official.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        producer.send(big)
        message = consumer.receive(timeout=60)
        assert bytes(message.data) == big
        consumer.ack(message)


@pytest.mark.parametrize("partitions", [0, 2], ids=["plain", "partitions"])
def test_official_client_on_a_non_persistent_topic(
    official: Any, service: PulsarService, partitions: int
) -> None:
    topic = service.topic().replace("persistent", "non-persistent", 1)
    if partitions:
        service.create_topic(topic, partitions)
    producer = official.create_producer(topic, batching_enabled=False)
    producer.send(b"before")
    kinds = {
        "exclusive": pulsar.ConsumerType.Exclusive,
        "shared": pulsar.ConsumerType.Shared,
        "failover": pulsar.ConsumerType.Failover,
        "key_shared": pulsar.ConsumerType.KeyShared,
    }
    consumers = {
        name: official.subscribe(topic, name, kind, initial_position=EARLIEST) for name, kind in kinds.items()
    }
    ids = [producer.send(payload, partition_key=payload.decode()) for payload in numbered(20)]
    assert {(id.ledger_id(), id.entry_id()) for id in ids} == {(0, 0)}
    for consumer in consumers.values():
        messages = take_official(consumer, 20)
        assert sorted(message.data() for message in messages) == numbered(20)
        for message in messages:
            consumer.acknowledge(message)
        consumer.redeliver_unacknowledged_messages()
        with pytest.raises(pulsar.Timeout):
            consumer.receive(200)
        consumer.close()
    producer.send(b"between")
    again = official.subscribe(topic, "shared", pulsar.ConsumerType.Exclusive, initial_position=EARLIEST)
    producer.send(b"after")
    assert again.receive(60_000).data() == b"after"


def test_the_subscription_of_another_user_is_refused_in_words_of_the_real_broker() -> None:
    key = b"0123456789abcdef0123456789abcdef"
    with forebay.Broker(token_key=key) as broker:

        def client(subject: str) -> Any:
            return pulsar.Client(
                broker.url,
                authentication=pulsar.AuthenticationToken(jwt.sign(key, {"sub": subject})),
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                operation_timeout_seconds=60,
            )

        with contextlib.closing(client("ann")) as ann, contextlib.closing(client("bob")) as bob:
            ann.subscribe("orders", "billing")
            with pytest.raises(pulsar.AuthorizationError):
                bob.subscribe("orders", "billing")
            bob.subscribe("orders", "shipping")
        owners = {one["name"]: one["owner"] for one in broker.topic_stats("orders")["subscriptions"]}
        assert owners == {"billing": "ann", "shipping": "bob"}
