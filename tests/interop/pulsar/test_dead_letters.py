"""Dead letters of the official Python client, of ours and of the drop-in are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import forebay
import forebay.compat.pulsar as drop_in
import pulsar
from forebay.pulsar import DeadLetterPolicy

from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, eventually

SENT: dict[str, Any] = {"properties": {"a": "b"}, "ordering_key": "o"}


@pytest.fixture
def official(service: PulsarService) -> Iterator[Any]:
    client = pulsar.Client(
        service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    yield client
    client.close()


@pytest.fixture
def replaced(service: PulsarService) -> Iterator[Any]:
    client = drop_in.Client(service.url, operation_timeout_seconds=60)
    yield client
    client.close()


@pytest.fixture
def ours(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url, connect_timeout=PATIENCE) as client:
        yield client


def dies_with(pulsar: Any, client: Any, topic: str, died: Callable[[], None]) -> None:
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name="first"),
    )
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(60_000))
    died()
    consumer.close()


def dies_with_ours(client: Any, topic: str, died: Callable[[], None]) -> None:
    policy = DeadLetterPolicy(1, subscription="first")
    options: dict[str, Any] = {"type": "shared", "position": "earliest", "nack_delay": 0.1}
    with client.consumer(topic, "s", dead_letter=policy, **options) as consumer:
        for _ in range(2):
            consumer.nack(consumer.receive(timeout=60))
        died()


@pytest.mark.parametrize("partitions", [0, 2], ids=["plain", "partitioned"])
def test_a_message_dies_alike_with_both_clients(
    service: Any, official: Any, replaced: Any, ours: Any, partitions: int
) -> None:
    letters: list[Any] = []
    clients: list[tuple[Any, Any]] = [
        (partial(dies_with, pulsar), official),
        (partial(dies_with, drop_in), replaced),
        (dies_with_ours, ours),
    ]
    for die, client in clients:
        topic = service.topic(partitions=partitions) if partitions else service.topic()
        producer = official.create_producer(topic, batching_enabled=False)
        at = producer.send(b"poison", partition_key="k", event_timestamp=123, **SENT)
        producer.close()
        origin = f"{topic}-partition-{at.partition()}" if partitions else topic

        # The official consumer crashes its process when it closes between the letter's arrival and
        # the acknowledgement of the message.
        def died(origin: str = origin) -> None:
            with ours.reader(f"{origin}-s-DLQ", position="earliest") as reader:
                reader.receive(timeout=60)
            eventually(lambda: service.backlog(origin, "s") == 0)

        die(client, topic, died)
        # The subscription was created before the letter; a new one begins at the end.
        with ours.consumer(f"{origin}-s-DLQ", "first", type="shared") as dead:
            letter = dead.receive(timeout=60)
        assert (bytes(letter.data), letter.key, letter.ordering_key) == (b"poison", "k", b"o")
        assert letter.properties["a"] == "b"
        assert letter.properties["REAL_TOPIC"] == letter.topic.removesuffix("-s-DLQ")
        letters.append((letter, at))
    (theirs, _), _, (own, at) = letters
    assert letters[1][0].properties.keys() == own.properties.keys()
    # The official client drops the time of the event, and writes ids in a form that is not the Java
    # client's.
    assert (theirs.event_time, own.event_time) == (None, 123)
    assert theirs.properties.keys() == {"a", "REAL_TOPIC", "ORIGIN_MESSAGE_ID"}
    assert own.properties.keys() - theirs.properties.keys() == {
        "ORIGIN_MESSAGE_IDY_TIME",
        "REAL_SUBSCRIPTION",
    }
    assert own.properties["ORIGIN_MESSAGE_ID"] == f"{at.ledger_id()}:{at.entry_id()}:{at.partition()}"
