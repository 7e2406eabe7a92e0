"""What ends a Pulsar producer or consumer, what does not, and how long an end takes."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay
import forebay.blocking
from forebay import errors
from forebay.pulsar import ProducerInterceptor

from support.pulsar import wire
from support.waiting import PATIENCE, eventually


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():
            await asyncio.sleep(0.01)


async def test_a_consumer_of_several_topics_goes_on_when_one_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with forebay.Broker(auto_create=False) as broker:
        for topic in "abc":
            broker.create_topic(topic)
        async with (
            forebay.connect(broker.url) as client,
            client.consumer(["a", "b", "c"], "s", position="earliest") as consumer,
            client.producer("b") as producer,
        ):
            broker.delete_topic("a")
            await until(lambda: client.stats()["ended_topics"] == 1)
            await producer.send(b"from b")
            message = await consumer.receive(timeout=PATIENCE)
            assert message.data == b"from b"
            await consumer.seek("earliest")
            assert (await consumer.receive(timeout=PATIENCE)).data == b"from b"
            assert [topic.rsplit("/", 1)[1] for topic, _ in await last_ids(consumer)] == ["b", "c"]
            await until(lambda: any("one of its topics" in record.message for record in caplog.records))
            await producer.close()
            broker.delete_topic("b")
            broker.delete_topic("c")
            # With the last topic the consumer ends.
            with pytest.raises(errors.TopicNotFound):
                await consumer.receive(timeout=PATIENCE)
            assert client.stats()["ended_topics"] == 2


async def test_a_chunked_message_above_the_limit_is_told_and_kept() -> None:
    body = bytes(12 << 20)
    async with forebay.connect("embedded:") as client:
        async with (
            client.consumer("t", "s", max_chunked_message="8MiB") as consumer,
            client.producer("t", chunking=True) as producer,
        ):
            await producer.send(body)
            await producer.send(b"behind")
            assert (await consumer.receive(timeout=PATIENCE)).data == b"behind"
            assert client.stats()["unreadable_entries"] == 3
        async with client.consumer("t", "s", max_chunked_message="12MiB") as consumer:
            assert len((await consumer.receive(timeout=PATIENCE)).data) == len(body)


async def test_a_position_that_another_consumer_moves_back_is_not_acknowledged_again() -> None:
    async with (
        forebay.connect("embedded:") as client,
        client.consumer("t", "s", type="failover", ack_group_time=0) as consumer,
        client.producer("t", batching=False) as producer,
    ):
        for i in range(10):
            await producer.send(b"%d" % i)
        for _ in range(10):
            message = await consumer.receive(timeout=PATIENCE)
        await consumer.ack_cumulative(message)
        broker: Any = client.broker
        await until(lambda: broker.topic_stats("t")["subscriptions"][0]["backlog"] == 0)
        async with client.consumer("t", "s", type="failover", priority=1) as other:
            await other.seek("earliest")
        again = [bytes((await consumer.receive(timeout=PATIENCE)).data) for _ in range(10)]
        assert again == [b"%d" % i for i in range(10)]


async def test_close_ends_without_a_broker_and_without_a_send_timeout() -> None:
    with forebay.Broker() as broker:
        client = await forebay.connect(broker.url, operation_timeout=3)
        producer = await client.producer("t", send_timeout=0)
        broker.stop()
        lost = producer.send(b"x")
        with pytest.raises(errors.Timeout, match="1 messages had no answer"):
            await asyncio.wait_for(producer.close(), PATIENCE)
        with pytest.raises(errors.Closed):
            await lost
        await client.close()


class Counting(wire.FakeBroker):
    """Topics of three partitions. A close is answered once all ``count`` of its kind have been asked for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.answered: set[int] = set()
        self.answers[wire.PARTITIONS] = lambda peer, fields, rest: peer.send(
            wire.frame(wire.PARTITIONS_RESPONSE, {1: 3, 2: fields[2][0], 3: 0})
        )
        for kind in (wire.CLOSE_PRODUCER, wire.CLOSE_CONSUMER):
            self.answers[kind] = self._all_at_once(kind, count)

    def _all_at_once(self, kind: int, count: int) -> wire.Answer:
        asked: list[int] = []

        def answer(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
            asked.append(fields[2][0])
            if len(asked) == count:
                self.answered.add(kind)
                peer.send(*[wire.frame(wire.SUCCESS, {1: request}) for request in asked])

        return answer


async def test_the_partitions_of_a_handle_are_closed_side_by_side() -> None:
    broker = Counting(3)
    try:
        async with forebay.connect(broker.url) as client:
            producer, consumer = await client.producer("t"), await client.consumer("t", "s")
            await asyncio.wait_for(producer.close(), PATIENCE)
            await asyncio.wait_for(consumer.close(), PATIENCE)
            assert broker.answered == {wire.CLOSE_PRODUCER, wire.CLOSE_CONSUMER}
    finally:
        broker.close()


def test_the_handles_of_a_client_are_closed_side_by_side() -> None:
    broker = Counting(9)
    try:
        client = forebay.blocking.connect(broker.url)
        handles = [(client.producer(topic), client.consumer(topic, "s")) for topic in "abc"]
        # The engine alone closes them.
        client.abandon()
        eventually(lambda: broker.answered == {wire.CLOSE_PRODUCER, wire.CLOSE_CONSUMER})
        assert all(handle.closed for pair in handles for handle in pair)
    finally:
        broker.close()


async def test_a_close_that_is_cancelled_gives_up() -> None:
    with forebay.Broker() as broker:
        client = await forebay.connect(broker.url)
        producer = await client.producer("t", send_timeout=0)
        broker.stop()
        lost = producer.send(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.2)
        with pytest.raises(errors.Closed):
            await asyncio.wait_for(lost, PATIENCE)
        assert producer.closed
        await client.close()


async def test_a_timeout_names_why_there_is_no_connection() -> None:
    with forebay.Broker() as broker:
        client = await forebay.connect(broker.url)
        producer = await client.producer("t", send_timeout=5)
        broker.stop()
        with pytest.raises(errors.Timeout, match="there is no connection: cannot connect to"):
            await producer.send(b"x")
        await client.close()


async def test_the_default_name_of_a_consumer_is_its_own_and_the_same_on_all_partitions() -> None:
    async with forebay.connect("embedded:") as one, forebay.connect(one.url) as other:
        broker: Any = one.broker
        broker.create_topic("t", 2)
        async with one.consumer("t", "s", type="shared"), other.consumer("t", "s", type="shared"):
            names = [
                sorted(each["name"] for each in stats["subscriptions"][0]["consumers"])
                for stats in (broker.topic_stats(f"t-partition-{i}") for i in range(2))
            ]
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


async def test_properties_of_a_subscription_are_in_the_statistics_after_a_restart_too(tmp_path: Path) -> None:
    properties = {"owner": "billing", "n\u00e4me": ""}

    def listed(broker: Any) -> dict[str, str]:
        (subscription,) = broker.topic_stats("t")["subscriptions"]
        return subscription["properties"]

    with forebay.Broker(data=tmp_path) as broker:
        async with forebay.connect(broker.url) as client:
            consumer = await client.consumer("t", "s", subscription_properties=properties)
            assert listed(broker) == properties
            await consumer.close()
    with forebay.Broker(data=tmp_path) as broker:
        assert listed(broker) == properties
        async with forebay.connect(broker.url) as client:
            other = {"owner": "other"}
            async with client.consumer("t", "s", subscription_properties=other) as consumer:
                assert listed(broker) == properties, "they are those that it was made with"


async def test_a_seek_that_is_refused_keeps_what_was_taken_ahead() -> None:
    async with (
        forebay.connect("embedded:") as client,
        client.consumer("t", "s") as consumer,
        client.producer("t") as producer,
    ):
        await producer.send_many([b"1", b"2", b"3"])
        first = await anext(aiter(consumer))
        assert first.data == b"1"
        with pytest.raises(errors.InvalidArgument):
            await consumer.seek(forebay.pulsar.MessageId.parse("(7,7,5,-1)"))
        rest = [bytes((await consumer.receive(timeout=PATIENCE)).data) for _ in range(2)]
        assert rest == [b"2", b"3"]


async def last_ids(consumer: Any) -> list[tuple[str, Any]]:
    return [(at.topic, at) for at in await consumer.last_message_ids()]


def test_a_terminated_topic_stays_so_after_a_restart(tmp_path: Path) -> None:
    with forebay.Broker(data=str(tmp_path)) as broker, forebay.blocking.connect(broker.url) as client:
        with client.producer("t") as producer:
            producer.send(b"x")
        broker.terminate_topic("t")
        assert broker.topic_stats("t")["terminated"]
        with pytest.raises(errors.TopicNotFound):
            broker.terminate_topic("nothing")
    with forebay.Broker(data=str(tmp_path)) as broker, forebay.blocking.connect(broker.url) as client:
        with pytest.raises(errors.TopicTerminated):
            client.producer("t")
        with client.consumer("t", "s", position="earliest") as consumer:
            for message in consumer:
                assert message.data == b"x"
                consumer.ack(message)
            assert consumer.reached_end
            with pytest.raises(errors.EndOfTopic):
                consumer.receive()


def test_the_handles_of_a_blocking_client_are_closed_side_by_side() -> None:
    silent: dict[int, Any] = {wire.CLOSE_PRODUCER: lambda *_: None, wire.CLOSE_CONSUMER: lambda *_: None}
    broker = wire.FakeBroker(silent)
    client = forebay.blocking.connect(broker.url, operation_timeout=4)
    consumers = [client.consumer("t", f"s-{number}") for number in range(3)]
    consumers[0].listen(lambda _: None)
    producers = [client.producer("t") for _ in range(2)]
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < 12, "one after another they take 20 s"
    assert all(handle.closed for handle in (*consumers, *producers))
    broker.close()


def test_interceptors_are_told_what_an_interrupted_close_gives_up() -> None:
    told: list[tuple[bytes, BaseException | None]] = []

    class Watches(ProducerInterceptor):
        def on_send_acknowledged(self, producer: Any, message: Any, message_id: Any, error: Any) -> None:
            told.append((bytes(message.payload), error))

    class Interrupted:
        def wait(self) -> None:
            raise KeyboardInterrupt

    with forebay.Broker() as broker, forebay.blocking.connect(broker.url, operation_timeout=1) as client:
        producer: Any = client.producer("t", interceptors=Watches())
        broker.stop()
        producer.submit_many([b"a", b"b"])
        producer._draining = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            producer.close()
    assert [payload for payload, _ in told] == [b"a", b"b"]
    assert all(isinstance(error, errors.Closed) for _, error in told)
