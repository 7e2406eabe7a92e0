"""Readers of the official module, and of ours in its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from support.messages import numbered

MS = 60_000
"""Milliseconds to wait for a message that comes."""


@pytest.fixture
def ids(client: Any, topic: str) -> list[Any]:
    """Ids of five messages of the topic."""
    producer = client.create_producer(topic)
    return [producer.send(payload) for payload in numbered(5)]


def read(reader: Any) -> list[bytes]:
    """Everything there is."""
    found: list[bytes] = []
    while reader.has_message_available():
        found.append(reader.read_next(MS).data())
    return found


def test_from_the_beginning(pulsar: Any, client: Any, topic: str, ids: list[Any]) -> None:
    assert read(client.create_reader(topic, pulsar.MessageId.earliest)) == numbered(5)


def test_from_the_end(pulsar: Any, client: Any, topic: str, ids: list[Any]) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    client.create_producer(topic).send(b"new")
    assert read(reader) == [b"new"]


@pytest.mark.parametrize(("inclusive", "first"), [(False, 3), (True, 2)])
def test_from_an_id(client: Any, topic: str, ids: list[Any], inclusive: bool, first: int) -> None:
    reader = client.create_reader(topic, ids[2], start_message_id_inclusive=inclusive)
    assert read(reader) == numbered(5)[first:]


def test_an_empty_topic(pulsar: Any, client: Any, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    with pytest.raises(pulsar.Timeout):
        reader.read_next(50)


def test_readers_leave_nothing_behind(pulsar: Any, client: Any, topic: str, ids: list[Any]) -> None:
    for _ in range(2):
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(MS).data() == numbered(1)[0]
        reader.close()


def test_seek_to_an_id(client: Any, pulsar: Any, topic: str, ids: list[Any]) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read(reader) == numbered(5)
    reader.seek(ids[1])
    assert read(reader) == numbered(5)[2:]
    reader.seek(pulsar.MessageId.earliest)
    assert read(reader) == numbered(5)


def test_seek_to_a_time(client: Any, pulsar: Any, topic: str, ids: list[Any]) -> None:
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    client.create_producer(topic).send(b"new")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    reader.read_next(MS)
    reader.seek(middle)
    assert reader.read_next(MS).data() == b"new"
    assert not reader.has_message_available()


def test_whether_there_is_more_after_a_seek_to_a_time(
    client: Any, pulsar: Any, topic: str, ids: list[Any]
) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read(reader) == numbered(5)
    reader.seek(1)
    assert read(reader) == numbered(5)
    reader.seek(int(time.time() * 1000) + 3_600_000)
    assert not reader.has_message_available()


def test_batches(client: Any, pulsar: Any, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for payload in numbered(30):
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    assert read(client.create_reader(topic, pulsar.MessageId.earliest)) == numbered(30)


def test_a_listener(client: Any, pulsar: Any, topic: str, ids: list[Any], until: Callable[..., None]) -> None:
    got: list[bytes] = []
    client.create_reader(
        topic, pulsar.MessageId.earliest, reader_listener=lambda _, message: got.append(message.data())
    )
    until(lambda: len(got) == 5)
    assert got == numbered(5)


def test_a_closed_reader(client: Any, pulsar: Any, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, reader_name="r")
    assert (reader.topic(), reader.is_connected()) == (topic, True)
    reader.close()
    assert not reader.is_connected()
    with pytest.raises(pulsar.AlreadyClosed):
        reader.read_next(10)


@pytest.mark.parametrize("wrong", [{"start_message_id": "earliest"}, {"reader_name": 3}, {"schema": None}])
def test_options_of_a_reader_have_types(client: Any, pulsar: Any, topic: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Argument {next(iter(wrong))} is expected"):
        client.create_reader(**{"topic": topic, "start_message_id": pulsar.MessageId.earliest, **wrong})
