"""Interceptors of producers and consumers: what they see and change, and that they lose no message."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.pulsar import ConsumerInterceptor, OutgoingMessage, ProducerInterceptor

from support.messages import nothing, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, eventually, until


class Marks(ProducerInterceptor):
    """Adds its name to a property, and remembers what it was told."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.told: list[tuple[Any, ...]] = []
        self.closed = 0

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage | None:
        message.properties["by"] = message.properties.get("by", "") + self.name
        return message if self.name == "a" else None

    def on_send_acknowledged(
        self, producer: Any, message: OutgoingMessage, message_id: Any, error: BaseException | None
    ) -> None:
        self.told.append((bytes(message.payload), message.properties["by"], message_id, error))

    def close(self) -> None:
        self.closed += 1


class Watches(ConsumerInterceptor):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes]] = []
        self.closed = 0

    def before_consume(self, consumer: Any, message: Any) -> None:
        self.told.append(("consume", bytes(message.data)))

    def on_acknowledge(self, consumer: Any, message: Any, error: BaseException | None) -> None:
        self.told.append(("ack" if error is None else "ack failed", bytes(message.data)))

    def on_acknowledge_cumulative(self, consumer: Any, message: Any, error: BaseException | None) -> None:
        self.told.append(("cumulative" if error is None else "cumulative failed", bytes(message.data)))

    def on_nack(self, consumer: Any, message: Any) -> None:
        self.told.append(("nack", bytes(message.data)))

    def close(self) -> None:
        self.closed += 1


class Raises(ProducerInterceptor, ConsumerInterceptor):
    """Changes what it gets, and raises."""

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage | None:
        message.payload = b"spoilt"
        message.properties["spoilt"] = "yes"
        raise RuntimeError("no ink")

    def before_consume(self, consumer: Any, message: Any) -> None:
        raise RuntimeError("no ink")

    def on_send_acknowledged(self, *arguments: Any) -> None:
        raise RuntimeError("no ink")

    def on_acknowledge(self, *arguments: Any) -> None:
        raise RuntimeError("no ink")

    def close(self) -> None:
        raise RuntimeError("no ink")


async def test_a_chain_changes_messages_and_learns_their_ids(client: Any, topic: str) -> None:
    chain = [Marks("a"), Marks("b")]
    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, interceptors=chain) as producer:
            id = await producer.send(b"x", "k", properties={"given": "yes"}, event_time=5)
            producer.send_nowait(b"y")
            await producer.flush()
        first, second = await receive(consumer, 2)
    assert (first.properties, first.key, first.event_time) == ({"given": "yes", "by": "ab"}, "k", 5)
    assert (bytes(second.data), second.properties) == (b"y", {"by": "ab"})
    for one in chain:
        assert one.told == [(b"x", "ab", id, None)]
        assert one.closed == 1


async def test_another_message_may_be_sent_instead(client: Any, topic: str) -> None:
    class Replaces(ProducerInterceptor):
        def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
            return OutgoingMessage(b"<" + bytes(message.payload) + b">", key=producer.topic)

    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, interceptors=Replaces()) as producer:
            await producer.send(b"x", "k")
        message = await consumer.receive(timeout=PATIENCE)
        assert (bytes(message.data), message.key) == (b"<x>", topic)


async def test_a_failed_send_is_told(client: Any, topic: str) -> None:
    marks = Marks()
    async with client.producer(topic, interceptors=marks) as producer:
        with pytest.raises(errors.MessageTooLarge) as caught:
            await producer.send(bytes(16 << 20))
    assert [(told[2], told[3]) for told in marks.told] == [(None, caught.value)]


@pytest.mark.parametrize("receipt", [False, True])
async def test_a_consumer_tells_what_becomes_of_messages(client: Any, topic: str, receipt: bool) -> None:
    watches = Watches()
    options = {"interceptors": [watches], "ack_receipt": receipt, "nack_delay": 0}
    async with client.producer(topic, batching=False) as producer:
        async with client.consumer(topic, "s", **options) as consumer:
            await producer.send_many(numbered(4))
            first = await consumer.receive(timeout=PATIENCE)
            second = await anext(aiter(consumer))
            third, fourth = await receive(consumer, 2)
            seen = [("consume", payload) for payload in numbered(4)]
            assert watches.told == seen
            watches.told.clear()
            await consumer.ack(first)
            await consumer.ack_many([second])
            await consumer.ack_cumulative(third)
            await consumer.nack(fourth)
            again = await consumer.receive(timeout=PATIENCE)
            assert again.id == fourth.id
            m = numbered(4)
            assert watches.told == [
                *[("ack", m[0]), ("ack", m[1]), ("cumulative", m[2]), ("nack", m[3])],
                ("consume", m[3]),
            ]
            await consumer.ack(again)
            assert consumer.interceptor_errors == 0
        assert watches.closed == 1


async def test_a_listener_tells_its_interceptors(client: Any, topic: str) -> None:
    watches = Watches()
    failed = False

    def callback(message: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError("no stock")

    async with client.producer(topic) as producer:
        async with client.consumer(topic, "s", interceptors=watches, nack_delay=0) as consumer:
            async with consumer.listen(callback):
                await producer.send(b"x")
                await until(lambda: ("ack", b"x") in watches.told)
    assert [what for what, _ in watches.told] == ["consume", "nack", "consume", "ack"]


async def test_an_interceptor_that_raises_loses_no_message(
    client: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    marks, watches = Marks(), Watches()
    with caplog.at_level(logging.ERROR, "forebay.interceptors"):
        async with client.consumer(topic, "s", interceptors=[Raises(), watches]) as consumer:
            async with client.producer(topic, interceptors=[Raises(), marks]) as producer:
                await producer.send(b"x", properties={"given": "yes"})
                assert producer.interceptor_errors == 2
            message = await consumer.receive(timeout=PATIENCE)
            await consumer.ack(message)
            assert (bytes(message.data), message.properties) == (b"x", {"given": "yes", "by": "a"})
            assert consumer.interceptor_errors == 2
    assert watches.told == [("consume", b"x"), ("ack", b"x")]
    assert (len(marks.told), marks.closed, watches.closed) == (1, 1, 1)
    assert caplog.text.count("no ink") >= 6
    async with client.consumer(topic, "s") as consumer:
        await nothing(consumer)


class Counts(Marks):
    """Has one call for all messages of a call."""

    def before_send_many(self, producer: Any, messages: list[OutgoingMessage]) -> None:
        for message in messages:
            message.properties["of"] = str(len(messages))
        messages.clear()

    def on_send_many_acknowledged(
        self, producer: Any, messages: list[OutgoingMessage], ids: Any, error: BaseException | None
    ) -> None:
        self.told.append(([bytes(message.payload) for message in messages], list(ids or []), error))


async def test_each_message_of_many_is_seen(client: Any, topic: str) -> None:
    """Also beyond the window."""
    count = 300
    marks, counts = Marks(), Counts("c")
    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, interceptors=[marks, counts], max_pending=7) as producer:
            ids = await producer.send_many(numbered(count), [f"k{at}" for at in range(count)])
            assert producer.interceptor_errors == 0
        messages = await receive(consumer, count)
    assert payloads(messages) == numbered(count)
    assert [message.key for message in messages] == [f"k{at}" for at in range(count)]
    assert all(message.properties == {"by": "a", "of": str(count)} for message in messages)
    assert [message.id for message in messages] == list(ids)
    assert marks.told == [(payload, "a", id, None) for payload, id in zip(numbered(count), ids, strict=True)]
    assert counts.told == [(numbered(count), list(ids), None)]


async def test_payloads_and_keys_of_many_may_be_iterators(client: Any, topic: str) -> None:
    """With interceptors as without."""
    async with client.consumer(topic, "s") as consumer:
        for options in ({}, {"interceptors": Marks()}):
            async with client.producer(topic, **options) as producer:
                await producer.send_many(iter(numbered(2)), iter(["k", None]))
            assert [message.key for message in await receive(consumer, 2)] == ["k", None]


async def test_every_field_of_many_can_be_changed(client: Any, topic: str) -> None:
    class Fields(ProducerInterceptor):
        def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage | None:
            number = int(bytes(message.payload))
            if number == 1:
                return OutgoingMessage(b"one", "k", b"o", {"a": "b"}, 5, 70, None, False, ["__local__"])
            message.null_value = number == 2
            return None

    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, interceptors=Fields()) as producer:
            await producer.send_many([b"0", b"1", b"2"])
            assert producer.last_sequence_id == 71
        first, second, third = await receive(consumer, 3)
    assert (bytes(first.data), first.key, first.properties) == (b"0", None, {})
    assert (bytes(second.data), second.key, second.ordering_key) == (b"one", "k", b"o")
    assert (second.properties, second.event_time) == ({"a": "b"}, 5)
    assert third.is_null and not second.is_null


async def test_rows_of_a_table_are_seen(client: Any, topic: str) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    marks, counts = Marks(), Counts("c")
    table = pyarrow.table({"v": ["x", None], "k": [b"\xff", b"k"], "at": [5, 6]})
    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, interceptors=[marks, counts]) as producer:
            ids = await producer.send_frame(table, value="v", key="k", event_time="at")
            assert len(await producer.send_frame(table[:0], value="v")) == 0
        first, second = await receive(consumer, 2)
    assert (bytes(first.data), first.is_null, second.is_null) == (b"x", False, True)
    assert [message.key_bytes for message in (first, second)] == [b"\xff", b"k"]
    assert [message.event_time for message in (first, second)] == [5, 6]
    assert [message.properties for message in (first, second)] == [{"by": "a", "of": "2"}] * 2
    assert [told[2] for told in marks.told] == list(ids)


async def test_values_of_many_are_seen_and_rows_are_encoded(client: Any, topic: str) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")

    class Sees(ProducerInterceptor):
        seen: list[Any] = []

        def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage | None:
            self.seen.append(message.payload)
            return None

    async with client.consumer(topic, "s", schema="string") as consumer:
        async with client.producer(topic, interceptors=Sees(), schema="string") as producer:
            await producer.send_many(["a", "b"])
            await producer.send_many(["c"], schema="string")
            await producer.send_frame(pyarrow.table({"v": ["d"]}), value="v")
        assert [message.value for message in await receive(consumer, 4)] == ["a", "b", "c", "d"]
    assert Sees.seen == ["a", "b", "c", b"d"]


async def test_many_that_fail_are_told(client: Any, topic: str) -> None:
    marks, counts = Marks(), Counts("c")
    async with client.producer(topic, interceptors=[marks, counts]) as producer:
        with pytest.raises(errors.MessageTooLarge) as large:
            await producer.send_many([b"x", bytes(16 << 20)])
        assert [(told[2], told[3]) for told in marks.told] == [(None, large.value)] * 2
        assert counts.told[-1][1:] == ([], large.value)
        with pytest.raises(TypeError, match="bytes-like") as wrong:
            await producer.send_many([b"y", 3])
        with pytest.raises(ValueError, match="1 keys for 2 payloads"):
            await producer.send_many([b"y", b"z"], ["k"])
    assert counts.told[-1][1:] == ([], wrong.value)


async def test_an_interceptor_that_raises_changes_nothing_of_many(client: Any, topic: str) -> None:
    class RaisesForAll(Counts):
        def before_send_many(self, producer: Any, messages: list[OutgoingMessage]) -> None:
            super().before_send_many(producer, messages)
            raise RuntimeError("no ink")

    chain = [Raises(), RaisesForAll("r"), Marks()]
    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, interceptors=chain) as producer:
            await producer.send_many(numbered(2))
            assert producer.interceptor_errors == 5
        messages = await receive(consumer, 2)
    assert payloads(messages) == numbered(2)
    assert [message.properties for message in messages] == [{"by": "a"}] * 2


async def test_tables_are_not_read_past_interceptors(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", interceptors=Watches()) as consumer:
        with pytest.raises(errors.NotAllowed, match="interceptors"):
            await consumer.read_frame()


@pytest.mark.parametrize(
    "wrong", [3, Marks, [Marks(), None], Watches()], ids=["number", "class", "none", "other"]
)
async def test_what_is_no_interceptor_is_refused(client: Any, topic: str, wrong: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="before_send"):
        client.producer(topic, interceptors=wrong)


async def test_handles_without_interceptors_are_as_before(client: Any, topic: str) -> None:
    async with client.producer(topic, interceptors=[]) as producer, client.consumer(topic, "s") as consumer:
        assert type(producer).__name__ == "PulsarProducer"
        assert (producer.interceptor_errors, consumer.interceptor_errors) == (0, 0)


def test_without_an_event_loop(service: PulsarService, topic: str) -> None:
    marks, watches = Marks(), Watches()
    with forebay.blocking.connect(service.url) as client:
        with client.consumer(topic, "s", interceptors=[watches], ack_receipt=True) as consumer:
            with client.producer(topic, interceptors=[marks]) as producer:
                ids = [producer.send(numbered(1)[0])]
                ids += producer.send_many(numbered(3)[1:])
            assert marks.told == [
                (payload, "a", id, None) for payload, id in zip(numbered(3), ids, strict=True)
            ]
            first = consumer.receive(timeout=PATIENCE)
            second = next(iter(consumer))
            third = consumer.receive_batch(1, timeout=PATIENCE)
            assert payloads([first, second, *third]) == numbered(3)
            consumer.ack(first)
            consumer.ack_many([second])
            consumer.nack(third[0], delay=0)
            with consumer.listen(lambda message: None) as listener:
                eventually(lambda: listener.stats()["handled"] == 1)
            m = numbered(3)
            assert watches.told == [
                *[("consume", payload) for payload in m],
                *[("ack", m[0]), ("ack", m[1]), ("nack", m[2]), ("consume", m[2]), ("ack", m[2])],
            ]
        assert (marks.closed, watches.closed) == (1, 1)


def test_what_is_submitted_and_not_waited_for_is_told_once(service: PulsarService, topic: str) -> None:
    marks = Marks()
    with forebay.blocking.connect(service.url) as client:
        with client.producer(topic, interceptors=[marks]) as producer:
            waited = producer.submit_many(numbered(2))
            ids = list(waited.wait(PATIENCE))
            with pytest.raises(errors.InvalidArgument, match="taken already"):
                waited.wait()
            told = [(payload, "a", id, None) for payload, id in zip(numbered(2), ids, strict=True)]
            assert marks.told == told
            marks.told.clear()

            flushed = producer.submit_many(numbered(2))
            producer.flush()
            assert [(one[0], one[3]) for one in marks.told] == [(payload, None) for payload in numbered(2)]
            assert flushed.done()
            assert list(flushed.wait()) == [one[2] for one in marks.told]
            with pytest.raises(errors.InvalidArgument, match="taken already"):
                flushed.wait(1)
            assert (flushed.done(), len(marks.told)) == (False, 2)
            marks.told.clear()

            # The next call tells of those that have ended.
            first = producer.submit_many(numbered(1))
            eventually(first.done)
            producer.submit_many(numbered(2))
            assert [one[0] for one in marks.told] == numbered(1)
            marks.told.clear()
        # Closing the rest.
        assert [(one[0], one[3]) for one in marks.told] == [(payload, None) for payload in numbered(2)]


def test_a_failed_submission_is_told_once(service: PulsarService, topic: str) -> None:
    marks = Marks()
    with forebay.blocking.connect(service.url) as client:
        with client.producer(topic, interceptors=[marks]) as producer:
            failed = producer.submit_many([bytes(16 << 20)])
            eventually(failed.done)
            with pytest.raises(errors.MessageTooLarge) as caught:
                failed.wait(0)
            assert not failed.done()
            with pytest.raises(errors.InvalidArgument, match="taken already"):
                failed.wait()
    assert [(told[2], told[3]) for told in marks.told] == [(None, caught.value)]
