"""Consumers of the official module, and of ours in its place."""

from __future__ import annotations

import contextlib
import importlib
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.messages import numbered
from support.pulsar.harness import PulsarService

MS = 60_000
"""Milliseconds to wait for a message that comes."""
NONE = 300
"""Milliseconds to wait for one that does not."""


def send(client: Any, topic: str, count: int, **options: Any) -> list[Any]:
    """Sends ``count`` numbered messages, and returns their ids."""
    producer = client.create_producer(topic, **options)
    ids = [producer.send(payload) for payload in numbered(count)]
    producer.close()
    return ids


def take(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(MS) for _ in range(count)]


def data(messages: list[Any]) -> list[bytes]:
    return [message.data() for message in messages]


def none_left(pulsar: Any, consumer: Any) -> bool:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(NONE)
    return True


def test_a_timeout(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    for milliseconds in (0, 20):
        with pytest.raises(pulsar.Timeout) as caught:
            consumer.receive(milliseconds)
        assert str(caught.value) == "Pulsar error: TimeOut"
        assert isinstance(caught.value, pulsar.PulsarException)
    for wrong in ("1", 1.5):
        with pytest.raises(ValueError, match="Argument timeout_millis is expected to be of type 'int'"):
            consumer.receive(wrong)


def test_a_message_takes_attributes(client: Any, topic: str, earliest: Any) -> None:
    send(client, topic, 1)
    (message,) = take(client.subscribe(topic, "s", initial_position=earliest), 1)
    message.job = "a job"
    assert message.job == "a job"


def test_the_last_id_acknowledges_its_whole_batch(
    pulsar: Any, client: Any, service: PulsarService, topic: str, earliest: Any
) -> None:
    send(client, topic, 1)
    # It fills a batch, without regard to what is in flight.
    sender = importlib.import_module("pulsar").Client(service.url)
    producer = sender.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=MS)
    for payload in numbered(4):
        producer.send_async(payload, None)
    producer.flush()
    sender.close()
    for verb, left in (("acknowledge", 1), ("acknowledge_cumulative", 0)):
        consumer = client.subscribe(topic, verb, initial_position=earliest)
        take(consumer, 5)
        last = consumer.get_last_message_id()
        assert last.batch_index() == 3
        getattr(consumer, verb)(last)
        consumer.close()
        consumer = client.subscribe(topic, verb)
        take(consumer, left)
        assert none_left(pulsar, consumer)


def test_acknowledging_a_position_does_nothing(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    last = consumer.get_last_message_id()
    assert last.entry_id() == -1
    for position in (last, pulsar.MessageId.earliest):
        consumer.acknowledge(position)
        consumer.acknowledge_cumulative(position)
        consumer.negative_acknowledge(position)
    send(client, topic, 2)
    assert data(take(consumer, 2)) == numbered(2)
    consumer.close()
    for verb in (consumer.acknowledge, consumer.acknowledge_cumulative):
        with pytest.raises(pulsar.AlreadyClosed):
            verb(last)


def test_a_pattern_takes_the_topics_that_match(pulsar: Any, client: Any, topic: str, earliest: Any) -> None:
    for rest in ("-a1", "-a2", "-b"):
        send(client, topic + rest, 1)
    pattern = re.compile(f"{topic}-a.*")
    mode = pulsar.RegexSubscriptionMode.PersistentOnly
    consumer = client.subscribe(pattern, "s", initial_position=earliest, regex_subscription_mode=mode)
    assert {message.topic_name() for message in take(consumer, 2)} == {f"{topic}-a1", f"{topic}-a2"}
    assert none_left(pulsar, consumer)


@pytest.mark.parametrize("by", ["message", "id"])
def test_what_is_acknowledged_does_not_come_again(
    pulsar: Any, client: Any, topic: str, earliest: Any, by: str
) -> None:
    consumer = client.subscribe(topic, "s", initial_position=earliest)
    send(client, topic, 10)
    for message in take(consumer, 6):
        consumer.acknowledge(message if by == "message" else message.message_id())
    consumer.close()
    again = client.subscribe(topic, "s")
    assert data(take(again, 4)) == numbered(10)[6:]
    assert none_left(pulsar, again)


def test_cumulative_acknowledgement(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    send(client, topic, 10)
    consumer.acknowledge_cumulative(take(consumer, 7)[-1])
    consumer.close()
    assert data(take(client.subscribe(topic, "s"), 3)) == numbered(10)[7:]


@pytest.mark.parametrize("kind", ["Shared", "KeyShared"])
def test_no_cumulative_acknowledgement(pulsar: Any, client: Any, topic: str, kind: str) -> None:
    consumer = client.subscribe(topic, "s", getattr(pulsar.ConsumerType, kind))
    send(client, topic, 1)
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(consumer.receive(MS))


def test_only_messages_and_ids_are_acknowledged(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    for verb in (consumer.acknowledge, consumer.acknowledge_cumulative, consumer.negative_acknowledge):
        for wrong in (None, "m", 3):
            with pytest.raises(TypeError):
                verb(wrong)


@pytest.mark.parametrize("by", ["message", "id"])
def test_a_nacked_message_comes_again(pulsar: Any, client: Any, topic: str, by: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    send(client, topic, 2)
    first, second = take(consumer, 2)
    consumer.acknowledge(second)
    consumer.negative_acknowledge(first if by == "message" else first.message_id())
    again = consumer.receive(MS)
    assert (again.data(), again.redelivery_count()) == (first.data(), 1)


def test_redelivery_of_all_that_is_unacknowledged(
    pulsar: Any, client: Any, service: PulsarService, topic: str, until: Callable[..., None]
) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send(client, topic, 5)
    got = take(consumer, 5)
    consumer.acknowledge(got[0])
    # The official module gathers acknowledgements for a moment.
    until(lambda: service.backlog(topic, "s") == 4)
    consumer.redeliver_unacknowledged_messages()
    assert sorted(data(take(consumer, 4))) == numbered(5)[1:]


def test_an_acknowledgement_of_part_of_a_batch_waits_for_the_rest(
    pulsar: Any, client: Any, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=4, batching_max_publish_delay_ms=2000
    )
    for payload in numbered(4):
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    got = take(consumer, 4)
    batch = [message for message in got if message.message_id().entry_id() == got[-1].message_id().entry_id()]
    for message in got[:-1]:
        consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s")
    assert data(take(again, len(batch))) == data(batch)
    assert none_left(pulsar, again)


@pytest.mark.parametrize(("position", "count"), [("Earliest", 3), ("Latest", 0)])
def test_a_new_subscription_begins_at(
    pulsar: Any, client: Any, topic: str, position: str, count: int
) -> None:
    send(client, topic, 3)
    consumer = client.subscribe(topic, "s", initial_position=getattr(pulsar.InitialPosition, position))
    assert data(take(consumer, count)) == numbered(3)[:count]
    assert none_left(pulsar, consumer)


def test_a_new_subscription_begins_at_the_end_by_default(pulsar: Any, client: Any, topic: str) -> None:
    send(client, topic, 3)
    assert none_left(pulsar, client.subscribe(topic, "s"))


def test_an_exclusive_subscription_has_one_consumer(pulsar: Any, client: Any, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy, match="Pulsar error: ConsumerBusy"):
        client.subscribe(topic, "s")


def test_shared_consumers_divide_the_messages(pulsar: Any, client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    one, two = (client.subscribe(topic, "s", kind, receiver_queue_size=1) for _ in range(2))
    send(client, topic, 20)
    found: list[bytes] = []
    while len(found) < 20:
        for consumer in (one, two):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            found.append(message.data())
    assert sorted(found) == numbered(20)


def test_a_failover_consumer_takes_over(pulsar: Any, client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Failover
    one = client.subscribe(topic, "s", kind, consumer_name="a")
    two = client.subscribe(topic, "s", kind, consumer_name="b")
    send(client, topic, 2)
    first = None
    while first is None:
        # The broker says which of them is active.
        one, two = two, one
        with contextlib.suppress(pulsar.Timeout):
            first = one.receive(200)
    one.acknowledge(first)
    assert data(take(one, 1)) == numbered(2)[1:]
    one.close()
    assert data(take(two, 1)) == numbered(2)[1:]


def test_a_key_has_one_consumer(pulsar: Any, client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.KeyShared
    consumers = [client.subscribe(topic, "s", kind) for _ in range(2)]
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"x", partition_key=f"k{number % 8}")
    found: dict[str, set[int]] = {}
    count = 0
    while count < 40:
        for place, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            found.setdefault(message.partition_key(), set()).add(place)
            count += 1
    assert len(found) == 8 and all(len(places) == 1 for places in found.values())


def test_several_topics(client: Any, service: PulsarService) -> None:
    topics = [service.topic() for _ in range(3)]
    consumer = client.subscribe(topics, "s")
    for topic in topics:
        send(client, topic, 2)
    got = take(consumer, 6)
    assert sorted(message.topic_name() for message in got) == sorted(topics * 2)
    for message in got:
        consumer.acknowledge(message)


def test_a_topic_that_is_named_twice(client: Any, topic: str) -> None:
    consumer = client.subscribe([topic, topic], "s")
    send(client, topic, 2)
    assert data(take(consumer, 2)) == numbered(2)


def test_the_partitions_of_a_topic(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    consumer = client.subscribe(topic, "s")
    send(client, topic, 9)
    got = take(consumer, 9)
    assert sorted(data(got)) == numbered(9)
    assert {message.topic_name() for message in got} == {f"{topic}-partition-{n}" for n in range(3)}
    for message in got:
        consumer.acknowledge(message)


@pytest.mark.parametrize(("inclusive", "first"), [(False, 4), (True, 3)])
def test_seek_to_an_id(client: Any, topic: str, inclusive: bool, first: int) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=inclusive)
    ids = send(client, topic, 8)
    take(consumer, 8)
    consumer.seek(ids[3])
    assert consumer.receive(MS).data() == numbered(8)[first]


def test_seek_to_the_ends(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    send(client, topic, 3)
    take(consumer, 3)
    consumer.seek(pulsar.MessageId.earliest)
    assert data(take(consumer, 3)) == numbered(3)
    consumer.seek(pulsar.MessageId.earliest)
    consumer.seek(pulsar.MessageId.latest)
    assert none_left(pulsar, consumer)


def test_seek_to_a_time(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"before")
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    producer.send(b"after")
    take(consumer, 2)
    consumer.seek(middle)
    assert consumer.receive(MS).data() == b"after"
    for wrong in (None, "earliest", 1.5):
        with pytest.raises(ValueError, match="invalid seek_arg type"):
            consumer.seek(wrong)


def test_unsubscribe_deletes_the_subscription(pulsar: Any, client: Any, topic: str, earliest: Any) -> None:
    consumer = client.subscribe(topic, "s")
    send(client, topic, 3)
    consumer.acknowledge_cumulative(take(consumer, 2)[-1])
    consumer.unsubscribe()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.unsubscribe()
    assert data(take(client.subscribe(topic, "s", initial_position=earliest), 3)) == numbered(3)


def test_a_closed_consumer(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    send(client, topic, 1)
    message = consumer.receive(MS)
    assert consumer.is_connected()
    consumer.close()
    assert not consumer.is_connected()
    for verb in (lambda: consumer.receive(10), lambda: consumer.acknowledge(message)):
        with pytest.raises(pulsar.AlreadyClosed):
            verb()


def test_what_a_consumer_knows_of_itself(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", consumer_name="me")
    assert (consumer.topic(), consumer.subscription_name()) == (topic, "sub")
    assert consumer.consumer_name() == "me"
    assert len(client.subscribe(topic, "other").consumer_name()) == 10


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [((4, -1, MS), [4, 4]), ((-1, 40, MS), [4, 4]), ((2, 1 << 20, MS), [2, 2, 2, 2])],
    ids=["count", "bytes", "both"],
)
def test_batch_receive(
    pulsar: Any, client: Any, topic: str, policy: tuple[int, int, int], sizes: list[int]
) -> None:
    consumer = client.subscribe(topic, "s", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(*policy))
    producer = client.create_producer(topic)
    for number in range(8):
        producer.send(b"%010d" % number)
    got = [consumer.batch_receive() for _ in sizes]
    assert [len(messages) for messages in got] == sizes
    assert [int(message.data()) for messages in got for message in messages] == list(range(8))


def test_batch_receive_returns_after_its_timeout(pulsar: Any, client: Any, topic: str) -> None:
    policy = pulsar.ConsumerBatchReceivePolicy(100, -1, 200)
    consumer = client.subscribe(topic, "s", batch_receive_policy=policy)
    assert consumer.batch_receive() == []
    send(client, topic, 2)
    found: list[bytes] = []
    while len(found) < 2:
        found += data(consumer.batch_receive())
    assert found == numbered(2)


def test_a_listener_acknowledges(pulsar: Any, client: Any, topic: str, until: Callable[..., None]) -> None:
    got: list[bytes] = []

    def listener(consumer: Any, message: Any) -> None:
        # Counted last: once all are counted the consumer is closed, and acknowledges nothing more.
        consumer.acknowledge(message)
        got.append(message.data())

    consumer = client.subscribe(topic, "s", message_listener=listener)
    send(client, topic, 20)
    until(lambda: len(got) == 20)
    assert got == numbered(20)
    consumer.close()
    assert none_left(pulsar, client.subscribe(topic, "s"))


def test_a_listener_is_paused(client: Any, topic: str, until: Callable[..., None]) -> None:
    got: list[bytes] = []
    consumer = client.subscribe(topic, "s", message_listener=lambda _, message: got.append(message.data()))
    send(client, topic, 3)
    until(lambda: len(got) == 3)
    consumer.pause_message_listener()
    send(client, topic, 3)
    time.sleep(0.2)
    assert len(got) == 3
    consumer.resume_message_listener()
    until(lambda: len(got) == 6)


def test_a_listener_that_raises_is_called_again(
    client: Any, topic: str, until: Callable[..., None], capfd: Any
) -> None:
    got: list[bytes] = []

    def listener(_: Any, message: Any) -> None:
        got.append(message.data())
        raise RuntimeError("not today")

    client.subscribe(topic, "s", message_listener=listener)
    send(client, topic, 3)
    until(lambda: len(got) == 3)


def test_a_consumer_with_a_listener_does_not_receive(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", message_listener=lambda *_: None)
    with pytest.raises(pulsar.InvalidConfiguration):
        consumer.receive(10)


def test_the_last_id(pulsar: Any, client: Any, topic: str, service: PulsarService) -> None:
    consumer = client.subscribe(topic, "s")
    last = send(client, topic, 3)[-1]
    found = consumer.get_last_message_id()
    assert (found.ledger_id(), found.entry_id()) == (last.ledger_id(), last.entry_id())
    with pytest.raises(pulsar.OperationNotSupported):
        client.subscribe(service.topic(partitions=2), "s").get_last_message_id()


def test_ids_survive_as_bytes(pulsar: Any, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    send(client, topic, 2)
    message = consumer.receive(MS)
    copy = pulsar.MessageId.deserialize(message.message_id().serialize(), topic=topic)
    assert copy == message.message_id()
    consumer.acknowledge(copy)
    consumer.seek(copy)
    assert consumer.receive(MS).data() == numbered(2)[1]


WRONG_OPTIONS: dict[str, Any] = {
    "consumer_type": 0,
    "schema": None,
    "receiver_queue_size": "1",
    "consumer_name": 3,
    "unacked_messages_timeout_ms": "1",
    "negative_ack_redelivery_delay_ms": 0.5,
    "is_read_compacted": 1,
    "properties": [],
    "initial_position": "earliest",
    "batch_receive_policy": 3,
    "key_shared_policy": 3,
    "batch_index_ack_enabled": 1,
    "regex_subscription_mode": 0,
    "crypto_failure_action": 0,
    "start_message_id_inclusive": None,
}


def test_options_of_a_consumer_have_types(client: Any, topic: str) -> None:
    for name, wrong in WRONG_OPTIONS.items():
        with pytest.raises(ValueError, match=f"Argument {name} is expected"):
            client.subscribe(topic, "s", **{name: wrong})


def test_a_topic_is_a_name_or_names(client: Any) -> None:
    for wrong in (None, 3, ("a", "b")):
        with pytest.raises(ValueError, match="Argument 'topic' is expected"):
            client.subscribe(wrong, "s")
