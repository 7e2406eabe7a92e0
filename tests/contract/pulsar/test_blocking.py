"""The blocking API: the same verbs without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import forebay

from support.messages import numbered, payloads
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


@pytest.fixture
def blocking(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url) as client:
        yield client


def test_there_and_back(blocking: Any, topic: str) -> None:
    with blocking.consumer(topic, "s") as consumer, blocking.producer(topic) as producer:
        message_id = producer.send(b"x", key="k", properties={"a": "b"})
        message = consumer.receive(timeout=PATIENCE)
        assert (message.data, message.key, message.properties, message.id) == (
            b"x",
            "k",
            {"a": "b"},
            message_id,
        )
        consumer.ack(message)
        for payload in numbered(100):
            producer.send_nowait(payload)
        producer.flush()
        assert len(producer.send_many(numbered(200)[100:])) == 100
        got: list[bytes] = []
        while len(got) < 200:
            messages = consumer.receive_many(1000, timeout=PATIENCE)
            assert messages
            consumer.ack_many(messages)
            got += payloads(messages)
        assert got == numbered(200)


def test_a_timeout_loses_nothing(blocking: Any, topic: str) -> None:
    with blocking.consumer(topic, "s") as consumer, blocking.producer(topic) as producer:
        with pytest.raises(forebay.Timeout) as timed_out:
            consumer.receive(timeout=0.05)
        assert timed_out.value.topic == topic
        assert consumer.receive_many(10, timeout=0.05) == []
        producer.send(b"x")
        assert bytes(consumer.receive(timeout=PATIENCE).data) == b"x"


def test_seek_and_unsubscribe(blocking: Any, topic: str) -> None:
    with blocking.producer(topic) as producer:
        consumer = blocking.consumer(topic, "s")
        ids = producer.send_many(numbered(10))
        consumer.seek(ids[4], inclusive=True)
        assert bytes(consumer.receive(timeout=PATIENCE).data) == numbered(10)[4]
        consumer.unsubscribe()
        assert consumer.closed


def test_a_producer_is_shared_between_threads(blocking: Any, topic: str) -> None:
    with blocking.consumer(topic, "s") as consumer, blocking.producer(topic) as producer:

        def work(number: int) -> None:
            for step in range(50):
                producer.send(b"%d-%d" % (number, step))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        got: list[bytes] = []
        while len(got) < 200:
            messages = consumer.receive_many(200, timeout=PATIENCE)
            assert messages
            got += payloads(messages)
        for number in range(4):
            own = [payload for payload in got if payload.startswith(b"%d-" % number)]
            assert own == [b"%d-%d" % (number, step) for step in range(50)]


def test_refused_and_wanted_again(blocking: Any, topic: str) -> None:
    with blocking.consumer(topic, "s", type="shared") as consumer, blocking.producer(topic) as producer:
        producer.send(b"x")
        consumer.nack(consumer.receive(timeout=PATIENCE), delay=0.1)
        message = consumer.receive(timeout=PATIENCE)
        assert bytes(message.data) == b"x"
        consumer.ack(message)
