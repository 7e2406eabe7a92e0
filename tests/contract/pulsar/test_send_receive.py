"""Sending and receiving: payloads, keys, properties, times, ids."""

from __future__ import annotations

import asyncio
import pickle
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import forebay

from support.messages import gather, nothing, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


async def round_trip(client: Any, topic: str, *arguments: Any, **options: Any) -> Any:
    async with client.consumer(topic, "s", position="earliest") as consumer:
        async with client.producer(topic) as producer:
            await producer.send(*arguments, **options)
        message = await consumer.receive(timeout=PATIENCE)
        await consumer.ack(message)
        return message


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        bytes(range(256)),
        b"k" * 1024,
        b"h" * 100_000,
        b"M" * 1_000_000,
        bytearray(b"array"),
        memoryview(b"view"),
    ],
    ids=["empty", "byte", "all-bytes", "1KiB", "100KB", "1MB", "bytearray", "memoryview"],
)
async def test_the_payload_comes_as_it_was_sent(client: Any, topic: str, payload: Any) -> None:
    message = await round_trip(client, topic, payload)
    assert bytes(message.data) == bytes(payload)
    assert not message.is_null


async def test_a_thousand_messages_come_in_order(client: Any, topic: str) -> None:
    sent = numbered(1000)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await gather(*[producer.send(payload) for payload in sent])
        assert payloads(await receive(consumer, 1000)) == sent


async def test_one_at_a_time_comes_in_order(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        for payload in numbered(20):
            await producer.send(payload)
            assert bytes((await consumer.receive(timeout=PATIENCE)).data) == payload


@pytest.mark.parametrize("key", ["k", "a longer key, with punctuation!", "schlüssel ☃", "x" * 5000])
async def test_the_key_comes_along(client: Any, topic: str, key: str) -> None:
    assert (await round_trip(client, topic, b"x", key)).key == key


async def test_no_key_is_none(client: Any, topic: str) -> None:
    message = await round_trip(client, topic, b"x")
    assert (message.key, message.ordering_key, message.properties, message.event_time) == (
        None,
        None,
        {},
        None,
    )


async def test_the_ordering_key_comes_along(client: Any, topic: str) -> None:
    message = await round_trip(client, topic, b"x", "key", ordering_key=b"\x00\xff")
    assert (message.key, message.ordering_key) == ("key", b"\x00\xff")


@pytest.mark.parametrize(
    "properties",
    [{"a": "b"}, {"empty": ""}, {"größe": "☃"}, {f"name-{i}": f"value-{i}" for i in range(100)}],
    ids=["one", "empty", "unicode", "hundred"],
)
async def test_properties_come_along(client: Any, topic: str, properties: dict[str, str]) -> None:
    assert (await round_trip(client, topic, b"x", properties=properties)).properties == properties


@pytest.mark.parametrize(
    "when",
    [1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)],
    ids=["ms", "datetime"],
)
async def test_the_event_time_comes_along(client: Any, topic: str, when: Any) -> None:
    assert (await round_trip(client, topic, b"x", event_time=when)).event_time == 1_700_000_000_123


async def test_the_publish_time_is_now(client: Any, topic: str) -> None:
    message = await round_trip(client, topic, b"x")
    assert abs(message.publish_time - time.time() * 1000) < 60_000


async def test_a_tombstone_is_not_an_empty_payload(client: Any, topic: str) -> None:
    message = await round_trip(client, topic, b"", "key", null_value=True)
    assert message.is_null
    assert bytes(message.data) == b""


async def test_sequence_ids_ascend_from_zero(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        assert producer.last_sequence_id == -1
        await gather(*[producer.send(payload) for payload in numbered(10)])
        assert [message.sequence_id for message in await receive(consumer, 10)] == list(range(10))
        assert producer.last_sequence_id == 9


async def test_own_sequence_ids_come_along(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send(b"a", sequence_id=41)
        await producer.send(b"b", sequence_id=100)
        assert [message.sequence_id for message in await receive(consumer, 2)] == [41, 100]
        assert producer.last_sequence_id == 100


async def test_the_initial_sequence_id_counts_as_published(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, initial_sequence_id=1000) as producer,
    ):
        await producer.send(b"a")
        assert (await consumer.receive(timeout=PATIENCE)).sequence_id == 1001


async def test_the_producers_name_comes_along(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, name="till-7") as producer:
        assert producer.name == "till-7"
        await producer.send(b"x")
        assert (await consumer.receive(timeout=PATIENCE)).producer_name == "till-7"


async def test_the_broker_names_a_producer_without_a_name(client: Any, topic: str) -> None:
    async with client.producer(topic) as one, client.producer(topic) as other:
        assert one.name
        assert other.name
        assert one.name != other.name


@pytest.mark.parametrize("batching", [True, False])
async def test_the_id_of_the_receipt_is_the_id_of_the_message(
    client: Any, topic: str, batching: bool
) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=batching) as producer:
        sent = await gather(*[producer.send(payload) for payload in numbered(25)])
        received = [message.id for message in await receive(consumer, 25)]
        assert received == sent
        assert sorted(sent) == sent
        assert len(set(sent)) == 25


async def test_ids_print_parse_pickle_and_serialise(client: Any, topic: str) -> None:
    message_id = (await round_trip(client, topic, b"x")).id
    again = forebay.pulsar.MessageId.parse(str(message_id))
    assert (again.ledger, again.entry, again.partition) == (
        message_id.ledger,
        message_id.entry,
        message_id.partition,
    )
    assert pickle.loads(pickle.dumps(message_id)) == message_id
    assert forebay.pulsar.MessageId.from_bytes(message_id.to_bytes()) == message_id
    assert forebay.pulsar.MessageId.earliest < message_id < forebay.pulsar.MessageId.latest


async def test_a_first_delivery_counts_no_redelivery(client: Any, topic: str) -> None:
    assert (await round_trip(client, topic, b"x")).redelivery_count == 0


async def test_a_short_name_is_the_full_name(client: Any, service: PulsarService) -> None:
    full = service.topic()
    short = full.rsplit("/", 1)[1]
    async with client.consumer(full, "s") as consumer, client.producer(short) as producer:
        assert producer.topic == full
        await producer.send(b"x")
        message = await consumer.receive(timeout=PATIENCE)
        assert message.topic == full


async def test_send_nowait_and_flush(client: Any, topic: str) -> None:
    sent = numbered(100)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        for payload in sent:
            producer.send_nowait(payload, key="k")
        await producer.flush()
        assert producer.pending == 0
        assert payloads(await receive(consumer, 100)) == sent


async def test_flush_with_nothing_to_do_returns(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await asyncio.wait_for(producer.flush(), PATIENCE)


async def test_leaving_a_producer_flushes(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, batching_delay="10s") as producer:
            for payload in numbered(10):
                producer.send_nowait(payload)
        assert payloads(await receive(consumer, 10)) == numbered(10)


@pytest.mark.parametrize("count", [1, 10, 1000, 5000])
async def test_send_many_gives_ids_in_order(client: Any, topic: str, count: int) -> None:
    sent = numbered(count)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        ids = list(await producer.send_many(sent))
        messages = await receive(consumer, count)
        assert payloads(messages) == sent
        assert [message.id for message in messages] == ids


async def test_send_many_with_keys(client: Any, topic: str) -> None:
    keys = ["a", None, "b"]
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_many([b"1", b"2", b"3"], keys)
        assert [message.key for message in await receive(consumer, 3)] == keys


async def test_send_many_of_nothing(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        assert len(await producer.send_many([])) == 0


async def test_two_producers_of_one_topic(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic) as one,
        client.producer(topic) as other,
    ):
        await gather(*[producer.send(b"%d" % i) for i in range(50) for producer in (one, other)])
        messages = await receive(consumer, 100)
        for producer in (one, other):
            own = [bytes(m.data) for m in messages if m.producer_name == producer.name]
            assert own == [b"%d" % i for i in range(50)]


async def test_async_for_can_be_left_and_taken_up_again(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_many(numbered(10))
        got = []
        for stop in (4, 10):
            async for message in consumer:
                got.append(bytes(message.data))
                await consumer.ack(message)
                if len(got) == stop:
                    break
        assert got == numbered(10)


async def test_a_cancelled_receive_loses_nothing(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        for number in range(20):
            waiting = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0)
            if number % 2:
                waiting.cancel()
            await producer.send(b"%d" % number)
            if number % 2:
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                waiting = asyncio.ensure_future(consumer.receive(timeout=PATIENCE))
            assert bytes((await waiting).data) == b"%d" % number


async def test_receive_times_out_and_loses_nothing(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        started = time.monotonic()
        with pytest.raises(forebay.Timeout):
            await consumer.receive(timeout=0.1)
        assert 0.09 < time.monotonic() - started < 30
        await producer.send(b"x")
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"x"


async def test_receive_many_times_out_with_an_empty_list(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer:
        assert await consumer.receive_many(10, timeout=0.05) == []


async def test_receive_many_gives_no_more_than_asked(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_many(numbered(100))
        got = []
        while len(got) < 100:
            some = await consumer.receive_many(7, timeout=PATIENCE)
            assert 1 <= len(some) <= 7
            got += payloads(some)
        assert got == numbered(100)


async def test_more_messages_than_the_receiver_queue(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", receiver_queue=10) as consumer, client.producer(topic) as producer:
        await producer.send_many(numbered(500))
        assert payloads(await receive(consumer, 500)) == numbered(500)


@pytest.mark.parametrize("how", ["after", "at"])
async def test_a_delayed_message_comes_late_on_a_shared_subscription(
    client: Any, topic: str, how: str
) -> None:
    async with client.consumer(topic, "s", type="shared") as consumer, client.producer(topic) as producer:
        started = time.monotonic()
        if how == "after":
            await producer.send(b"late", deliver_after=0.8)
        else:
            await producer.send(b"late", deliver_at=datetime.now(UTC) + timedelta(seconds=0.8))
        await producer.send(b"now")
        assert sorted(payloads(await receive(consumer, 2))) == [b"late", b"now"]
        assert time.monotonic() - started > 0.6


async def test_nothing_comes_that_was_not_sent(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic):
        await nothing(consumer)


async def test_a_topic_that_is_not_persistent(client: Any, service: PulsarService) -> None:
    topic = service.topic().replace("persistent", "non-persistent", 1)
    async with client.producer(topic) as producer:
        async with client.consumer(topic, "s") as consumer:
            await producer.send_many(numbered(10))
            assert payloads(await receive(consumer, 10)) == numbered(10)
        await producer.send(b"dropped")
        async with client.consumer(topic, "s", position="earliest") as consumer:
            await nothing(consumer)
