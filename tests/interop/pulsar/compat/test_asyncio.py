"""The asyncio module of the official package, and ours in its place."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from support.messages import numbered
from support.pulsar.harness import PulsarService


@pytest.fixture
def aio(pulsar: Any) -> Any:
    return importlib.import_module(f"{pulsar.__name__}.asyncio")


@pytest_asyncio.fixture
async def client(pulsar: Any, aio: Any, service: PulsarService) -> AsyncIterator[Any]:
    made = aio.Client(
        service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    yield made
    made.shutdown()


async def take(consumer: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.receive(), 60) for _ in range(count)]


async def test_there_and_back(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    sent = await producer.send(
        b"data", properties={"a": "b"}, partition_key="k", ordering_key="o", event_timestamp=5
    )
    (message,) = await take(consumer, 1)
    assert (message.data(), message.properties()) == (b"data", {"a": "b"})
    assert (message.partition_key(), message.ordering_key(), message.event_timestamp()) == ("k", "o", 5)
    assert (message.message_id().ledger_id(), message.message_id().entry_id()) == (
        sent.ledger_id(),
        sent.entry_id(),
    )
    await consumer.acknowledge(message)


async def test_names_that_are_no_text(pulsar: Any, aio: Any, client: Any, topic: str) -> None:
    for wrong in (None, 3, []):
        with pytest.raises(TypeError):
            await client.create_producer(wrong)
    with pytest.raises(TypeError):
        await client.subscribe([topic, None], "s")
    for wrong in (None, 3):
        with pytest.raises(TypeError):
            await client.subscribe(topic, wrong)
    with pytest.raises(aio.PulsarException, match="empty") as caught:
        await client.subscribe(topic, "")
    assert caught.value.error() == pulsar.Result.InvalidConfiguration


async def test_many_sends_at_a_time(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    ids = await asyncio.gather(*(producer.send(payload) for payload in numbered(300)))
    assert len({str(message_id) for message_id in ids}) == 300
    assert [message.data() for message in await take(consumer, 300)] == numbered(300)
    assert producer.last_sequence_id() == 299


async def test_flush(client: Any, topic: str) -> None:
    producer = await client.create_producer(topic)
    sends = [asyncio.ensure_future(producer.send(payload)) for payload in numbered(10)]
    await asyncio.sleep(0)
    await producer.flush()
    await asyncio.wait_for(asyncio.gather(*sends), 60)


async def test_acknowledgements(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    for payload in numbered(6):
        await producer.send(payload)
    got = await take(consumer, 4)
    await consumer.acknowledge_cumulative(got[2])
    await consumer.acknowledge(got[3].message_id())
    await consumer.close()
    again = await client.subscribe(topic, "s")
    assert [message.data() for message in await take(again, 2)] == numbered(6)[4:]


async def test_no_cumulative_acknowledgement(pulsar: Any, aio: Any, client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    await (await client.create_producer(topic)).send(b"x")
    (message,) = await take(consumer, 1)
    with pytest.raises(aio.PulsarException) as caught:
        await consumer.acknowledge_cumulative(message)
    assert caught.value.error() == pulsar.Result.CumulativeAcknowledgementNotAllowedError


async def test_a_nacked_message_comes_again(pulsar: Any, client: Any, topic: str) -> None:
    consumer = await client.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
    )
    await (await client.create_producer(topic)).send(b"x")
    (message,) = await take(consumer, 1)
    await consumer.negative_acknowledge(message)
    (again,) = await take(consumer, 1)
    assert again.redelivery_count() == 1


async def test_redelivery_of_all_that_is_unacknowledged(pulsar: Any, client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = await client.create_producer(topic)
    for payload in numbered(3):
        await producer.send(payload)
    await take(consumer, 3)
    consumer.redeliver_unacknowledged_messages()
    assert sorted(message.data() for message in await take(consumer, 3)) == numbered(3)


async def test_seek(pulsar: Any, client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    for payload in numbered(3):
        await producer.send(payload)
    got = await take(consumer, 3)
    await consumer.seek(pulsar.MessageId.wrap(got[0].message_id()))
    assert (await take(consumer, 1))[0].data() == numbered(3)[1]
    await consumer.seek(0)
    assert (await take(consumer, 1))[0].data() == numbered(3)[0]
    with pytest.raises(ValueError, match="invalid"):
        await consumer.seek("earliest")


async def test_the_last_id(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    last = await (await client.create_producer(topic)).send(b"x")
    assert (await consumer.get_last_message_id()).entry_id() == last.entry_id()


async def test_several_topics(client: Any, service: PulsarService) -> None:
    topics = [service.topic() for _ in range(2)]
    consumer = await client.subscribe(topics, "s")
    for topic in topics:
        await (await client.create_producer(topic)).send(b"x")
    assert sorted(message.topic_name() for message in await take(consumer, 2)) == sorted(topics)


async def test_a_reader(pulsar: Any, client: Any, topic: str) -> None:
    producer = await client.create_producer(topic)
    ids = [await producer.send(payload) for payload in numbered(4)]
    reader = await client.create_reader(topic, pulsar.MessageId.earliest)
    found: list[bytes] = []
    while await reader.has_message_available():
        found.append((await asyncio.wait_for(reader.read_next(), 60)).data())
    assert found == numbered(4)
    await reader.seek(ids[1])
    assert (await asyncio.wait_for(reader.read_next(), 60)).data() == numbered(4)[2]
    assert (reader.topic(), reader.is_connected()) == (topic, True)
    await reader.close()


async def test_errors_have_a_result(pulsar: Any, aio: Any, client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    with pytest.raises(aio.PulsarException) as caught:
        await client.subscribe(topic, "s")
    assert consumer.topic() == topic
    assert caught.value.error() == pulsar.Result.ConsumerBusy
    assert str(caught.value).startswith("13 ConsumerBusy")


async def test_partitions_are_listed(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    assert await client.get_topic_partitions(topic) == [f"{topic}-partition-{n}" for n in range(2)]


async def test_what_the_handles_know_of_themselves(client: Any, topic: str) -> None:
    producer = await client.create_producer(topic, producer_name="who")
    consumer = await client.subscribe(topic, "sub", consumer_name="me")
    assert (producer.topic(), producer.producer_name(), producer.is_connected()) == (topic, "who", True)
    assert (consumer.topic(), consumer.subscription_name(), consumer.consumer_name()) == (topic, "sub", "me")
    await producer.close()
    assert not producer.is_connected()


async def test_unsubscribe_deletes_the_subscription(client: Any, topic: str, earliest: Any) -> None:
    producer = await client.create_producer(topic)
    consumer = await client.subscribe(topic, "s")
    await producer.send(b"x")
    await consumer.acknowledge((await take(consumer, 1))[0])
    await consumer.unsubscribe()
    again = await client.subscribe(topic, "s", initial_position=earliest)
    assert (await take(again, 1))[0].data() == b"x"


async def test_a_closed_client(pulsar: Any, aio: Any, service: PulsarService, topic: str) -> None:
    client = aio.Client(service.url)
    await client.create_producer(topic)
    await client.close()
    with pytest.raises(aio.PulsarException) as caught:
        await client.create_producer(topic)
    assert caught.value.error() == pulsar.Result.AlreadyClosed


async def test_acknowledging_a_last_id(pulsar: Any, aio: Any, service: PulsarService, topic: str) -> None:
    client = aio.Client(service.url)
    consumer = await client.subscribe(topic, "s")
    empty = await consumer.get_last_message_id()
    await consumer.acknowledge(empty)
    await consumer.acknowledge_cumulative(empty)
    await consumer.negative_acknowledge(empty)
    producer = await client.create_producer(topic)
    await asyncio.gather(*(producer.send(payload) for payload in numbered(3)))
    await take(consumer, 3)
    last = await consumer.get_last_message_id()
    await consumer.acknowledge(last)
    await consumer.acknowledge_cumulative(last)
    await client.close()


async def test_close_after_shutdown(pulsar: Any, aio: Any, service: PulsarService, topic: str) -> None:
    client = aio.Client(service.url)
    await client.create_producer(topic)
    client.shutdown()
    await client.close()
    with pytest.raises(aio.PulsarException) as caught:
        await client.create_producer(topic)
    assert caught.value.error() == pulsar.Result.AlreadyClosed


def test_a_client_in_several_event_loops(pulsar: Any, aio: Any, service: PulsarService, topic: str) -> None:
    client = aio.Client(service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))

    async def once(payload: bytes) -> None:
        producer = await client.create_producer(topic)
        await producer.send(payload)
        consumer = await client.subscribe(topic, f"s-{payload.decode()}")
        await producer.send(payload)
        assert [message.data() for message in await take(consumer, 1)] == [payload]

    for payload in numbered(3):
        asyncio.run(once(payload))
    asyncio.run(client.close())
    with pytest.raises(aio.PulsarException) as caught:
        asyncio.run(client.close())
    assert caught.value.error() == pulsar.Result.AlreadyClosed


@pytest.mark.parametrize("pulsar", ["ours"], indirect=True)
def test_handles_of_an_event_loop_that_ended(
    pulsar: Any, aio: Any, service: PulsarService, topic: str
) -> None:
    client = aio.Client(service.url)

    async def opened() -> list[Any]:
        return [
            await client.create_producer(topic),
            await client.subscribe(topic, "s"),
            await client.create_reader(topic, pulsar.MessageId.earliest),
        ]

    async def used(*steps: Any) -> None:
        for step in steps:
            with pytest.raises(aio.PulsarException, match="belongs to another event loop") as caught:
                await step()
            assert caught.value.error() == pulsar.Result.AlreadyClosed

    producer, consumer, reader = asyncio.run(opened())
    for _ in range(2):
        verbs = (lambda: producer.send(b"x"), producer.flush, consumer.receive, consumer.get_last_message_id)
        asyncio.run(used(*verbs, consumer.unsubscribe, lambda: consumer.seek(0), reader.read_next))
        asyncio.run(used(reader.has_message_available, lambda: reader.seek(0)))
        # Now the client has left the loop as well.
        asyncio.run(client.get_topic_partitions(topic))

    async def end() -> None:
        for handle in (consumer, reader, consumer, reader):
            await handle.close()
        await client.close()

    asyncio.run(end())


@pytest.mark.parametrize("pulsar", ["ours"], indirect=True)
async def test_a_client_of_another_event_loop_that_is_open(
    aio: Any, service: PulsarService, topic: str
) -> None:
    client = aio.Client(service.url)
    producer = await client.create_producer(topic)
    with pytest.raises(aio.PulsarException, match="one client per loop"):
        await asyncio.to_thread(asyncio.run, client.create_producer(topic))
    await producer.send(b"x")
    await client.close()


async def test_batching_and_chunking_exclude_each_other(client: Any, topic: str) -> None:
    with pytest.raises(ValueError, match="Batching and chunking"):
        await client.create_producer(topic, chunking_enabled=True)
