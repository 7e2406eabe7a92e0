"""Opening, closing, limits and errors: a specific error for each, at once."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import gather, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.scripts import free_port
from support.waiting import PATIENCE


async def test_awaited_and_entered_are_the_same(service: PulsarService) -> None:
    client = await forebay.connect(service.url)
    assert not client.closed
    await client.close()
    async with forebay.connect(service.url) as client:
        assert not client.closed
    assert client.closed


async def test_closing_twice_does_no_harm(client: Any, topic: str) -> None:
    producer, consumer = await client.producer(topic), await client.consumer(topic, "s")
    for _ in range(2):
        await producer.close()
        await consumer.close()


async def test_use_after_close_is_an_error_of_its_own(client: Any, topic: str) -> None:
    producer, consumer = await client.producer(topic), await client.consumer(topic, "s")
    await producer.close()
    await consumer.close()
    with pytest.raises(errors.Closed):
        await producer.send(b"x")
    with pytest.raises(errors.Closed):
        producer.send_nowait(b"x")
    with pytest.raises(errors.Closed):
        await producer.send_many([b"x"])
    with pytest.raises(errors.Closed):
        await producer.flush()
    with pytest.raises(errors.Closed):
        await consumer.receive(timeout=1)
    with pytest.raises(errors.Closed):
        await consumer.receive_many(1, timeout=1)
    with pytest.raises(errors.Closed):
        await consumer.seek("earliest")


async def test_closing_the_client_closes_what_hangs_on_it(service: PulsarService) -> None:
    client = await forebay.connect(service.url)
    topic = service.topic()
    producer, consumer = await client.producer(topic), await client.consumer(topic, "s")
    await client.close()
    assert producer.closed
    assert consumer.closed
    with pytest.raises(errors.Closed):
        await client.producer(topic)
    with pytest.raises(errors.Closed):
        await producer.send(b"x")


async def test_closing_a_consumer_ends_who_waits_for_it(client: Any, topic: str) -> None:
    consumer = await client.consumer(topic, "s")
    waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
    many = asyncio.ensure_future(consumer.receive_many(10))
    await asyncio.sleep(0.05)
    await consumer.close()
    results = await asyncio.wait_for(asyncio.gather(*waiting, many, return_exceptions=True), PATIENCE)
    assert all(isinstance(result, errors.Closed) for result in results[:3]), results
    assert isinstance(results[3], errors.Closed) or results[3] == []


async def test_async_for_ends_when_the_consumer_closes(client: Any, topic: str) -> None:
    consumer = await client.consumer(topic, "s")

    async def walk() -> None:
        async for _ in consumer:
            pass

    walking = asyncio.ensure_future(walk())
    await asyncio.sleep(0.05)
    await consumer.close()
    result = (await asyncio.wait_for(asyncio.gather(walking, return_exceptions=True), PATIENCE))[0]
    assert result is None or isinstance(result, errors.Closed)


async def test_closing_a_producer_waits_for_its_receipts(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer:
        producer = await client.producer(topic, batching_delay="10s")
        sent = [producer.send(payload) for payload in numbered(20)]
        await producer.close()
        assert all(future.done() for future in sent)
        assert [message.id for message in await receive(consumer, 20)] == await gather(*sent)


async def test_many_handles_on_one_client(client: Any, service: PulsarService) -> None:
    topics = [service.topic() for _ in range(30)]
    consumers = await gather(*[asyncio.ensure_future(open_consumer(client, topic)) for topic in topics])
    producers = await gather(*[asyncio.ensure_future(open_producer(client, topic)) for topic in topics])
    await gather(*[producer.send(topic.encode()) for producer, topic in zip(producers, topics, strict=True)])
    for consumer, topic in zip(consumers, topics, strict=True):
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == topic.encode()
    for handle in (*consumers, *producers):
        await handle.close()


async def open_consumer(client: Any, topic: str) -> Any:
    return await client.consumer(topic, "s")


async def open_producer(client: Any, topic: str) -> Any:
    return await client.producer(topic)


async def test_nobody_there_is_a_quick_error() -> None:
    started = time.monotonic()
    with pytest.raises(errors.ConnectFailed):
        await forebay.connect(f"pulsar://127.0.0.1:{free_port()}", connect_timeout=2)
    assert time.monotonic() - started < 30


async def test_one_of_several_hosts_is_enough(service: PulsarService) -> None:
    url = service.url.replace("pulsar://", f"pulsar://127.0.0.1:{free_port()},")
    async with forebay.connect(url) as client, client.producer(service.topic()) as producer:
        await producer.send(b"x")


@pytest.mark.parametrize(
    "name",
    [
        "bad://public/default/x",
        "persistent://public/x",
        "persistent://public/default/",
        "persistent:///default/x",
        "a/b",
        "",
    ],
)
async def test_a_bad_topic_name_is_refused_by_its_own_error(client: Any, name: str) -> None:
    with pytest.raises(errors.InvalidTopic):
        await client.producer(name)
    with pytest.raises(errors.InvalidTopic):
        await client.consumer(name, "s")


async def test_a_namespace_must_exist_on_a_cluster_and_is_there_on_the_embedded_broker(
    client: Any, service: PulsarService
) -> None:
    topic = "persistent://no-tenant/no-namespace/x"
    if not service.is_real:
        async with client.producer(topic) as producer:
            await producer.send(b"nobody has to make namespaces on a developer's machine")
        return
    started = time.monotonic()
    with pytest.raises(forebay.Error):
        await client.producer(topic)
    assert time.monotonic() - started < 50


async def test_a_message_over_the_limit_is_refused_and_the_producer_lives(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(errors.MessageTooLarge) as refused:
            await producer.send(bytes(6 << 20))
        assert not refused.value.retriable
        await producer.send(b"small")


async def test_a_large_message_within_the_limit_passes(client: Any, topic: str) -> None:
    payload = bytes(range(256)) * (5000 * 4)
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send(payload)
        assert bytes((await consumer.receive(timeout=PATIENCE)).data) == payload


async def test_send_nowait_says_when_the_window_is_full(client: Any, topic: str) -> None:
    async with client.producer(
        topic, max_pending=10, batching_delay="10s", batch_max_messages=1000
    ) as producer:
        with pytest.raises(errors.QueueFull) as refused:
            for payload in numbered(1000):
                producer.send_nowait(payload)
        assert refused.value.retriable
        await producer.flush()
        producer.send_nowait(b"room again")
        await producer.flush()


async def test_send_parks_as_many_as_the_window_and_then_says_so(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, max_pending=10) as producer:
        accepted = []
        with pytest.raises(errors.QueueFull):
            for payload in numbered(1000):
                accepted.append(producer.send(payload))
        assert 20 <= len(accepted) < 1000
        await gather(*accepted)
        assert payloads(await receive(consumer, len(accepted))) == numbered(1000)[: len(accepted)]


async def test_a_window_of_one(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic, max_pending=1) as producer:
        for payload in numbered(20):
            await producer.send(payload)
        await producer.send_many(numbered(50))
        assert payloads(await receive(consumer, 70)) == numbered(20) + numbered(50)


async def test_two_producers_cannot_have_one_name(client: Any, topic: str) -> None:
    async with client.producer(topic, name="the-one"):
        with pytest.raises(errors.ProducerBusy) as refused:
            await client.producer(topic, name="the-one")
        assert refused.value.topic == topic
        assert refused.value.broker_text


async def test_a_name_is_free_again_after_close(client: Any, topic: str) -> None:
    for _ in range(3):
        async with client.producer(topic, name="the-one") as producer:
            await producer.send(b"x")


async def test_an_exclusive_producer_keeps_others_out(client: Any, topic: str) -> None:
    async with client.producer(topic, access_mode="exclusive") as producer:
        for mode in ("exclusive", "shared"):
            with pytest.raises((errors.ProducerBusy, errors.ProducerFenced)):
                await client.producer(topic, access_mode=mode)
        await producer.send(b"x")
    async with client.producer(topic, access_mode="shared") as producer:
        await producer.send(b"x")


async def test_waiting_for_exclusive_access(client: Any, topic: str) -> None:
    first = await client.producer(topic, access_mode="exclusive")
    waiting = asyncio.ensure_future(wait_for_exclusive(client, topic))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await first.close()
    second = await asyncio.wait_for(waiting, PATIENCE)
    await second.send(b"x")
    await second.close()


async def wait_for_exclusive(client: Any, topic: str) -> Any:
    return await client.producer(topic, access_mode="wait_for_exclusive")


async def test_fencing_takes_exclusive_access_away(client: Any, topic: str) -> None:
    first = await client.producer(topic, access_mode="exclusive", name="old")
    await first.send(b"x")
    async with client.producer(topic, access_mode="exclusive_with_fencing", name="new") as second:
        await second.send(b"y")
        with pytest.raises((errors.ProducerFenced, errors.Closed)):
            for _ in range(100):
                await asyncio.wait_for(first.send(b"z"), PATIENCE)
                await asyncio.sleep(0.05)
    with contextlib.suppress(forebay.Error):
        await first.close()


async def test_an_error_names_code_topic_and_the_brokers_words_and_pickles(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s"):
        with pytest.raises(errors.ConsumerBusy) as refused:
            await client.consumer(topic, "s")
    error = refused.value
    assert (error.code, error.topic, error.retriable) == ("consumer_busy", topic, True)
    assert error.broker_text
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.topic, str(again)) == (type(error), error.code, topic, str(error))


async def test_unknown_options_name_the_nearest(client: Any, topic: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="compression"):
        client.producer(topic, compresion="zstd")
    with pytest.raises(errors.InvalidArgument, match="receiver_queue"):
        client.consumer(topic, "s", reciever_queue=10)


async def test_another_loop_is_refused(service: PulsarService, topic: str) -> None:
    async with forebay.connect(service.url) as client, client.producer(topic) as producer:

        def elsewhere() -> None:
            async def send() -> None:
                await producer.send(b"x")

            asyncio.run(send())

        with pytest.raises(errors.InvalidArgument, match="loop"):
            await asyncio.to_thread(elsewhere)


async def test_several_loops_have_a_client_each(service: PulsarService, topic: str) -> None:
    def work(number: int) -> int:
        async def main() -> int:
            async with forebay.connect(service.url) as client, client.producer(topic) as producer:
                return len(await producer.send_many(numbered(100)))

        return asyncio.run(main())

    assert await gather(*[asyncio.to_thread(work, number) for number in range(4)]) == [100] * 4


async def test_wrong_types_are_type_errors(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(TypeError):
            producer.send("text is not bytes")
        with pytest.raises(TypeError):
            producer.send(None)
        with pytest.raises(TypeError):
            producer.send(b"x", 5)
        with pytest.raises((TypeError, errors.InvalidArgument)):
            producer.send(b"x", properties={"a": 5})
        await producer.send(b"still fine")


async def test_statistics_are_there(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"x")
        assert isinstance(client.stats(), dict)


@pytest.mark.parametrize("subscription_type", ["failover", "shared"])
async def test_an_unsubscribe_that_is_refused_loses_nothing(
    client: Any, topic: str, subscription_type: str
) -> None:
    consumer = await client.consumer(topic, "s", type=subscription_type)
    async with client.producer(topic) as producer:
        await producer.send_many([b"%d" % number for number in range(10)])
    # Iteration takes messages from the engine ahead.
    got = []
    async for message in consumer:
        got.append(bytes(message.data))
        await consumer.ack(message)
        if len(got) == 2:
            break
    async with client.consumer(topic, "s", type=subscription_type):
        with pytest.raises(forebay.Error):
            await consumer.unsubscribe()
        while len(got) < 10:
            message = await consumer.receive(timeout=PATIENCE)
            got.append(bytes(message.data))
            await consumer.ack(message)
    assert sorted(got) == [b"%d" % number for number in range(10)]
    await consumer.unsubscribe()


async def test_a_client_holds_several_connections_to_a_broker(service: PulsarService) -> None:
    async with forebay.connect(service.url, connections_per_broker=3) as client:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(12):
                producer = await stack.enter_async_context(client.producer(service.topic()))
                await producer.send(b"x")
            assert client.stats()["connections_opened"] == 3


async def test_messages_without_a_receipt_are_limited_in_bytes(service: PulsarService, topic: str) -> None:
    async with (
        forebay.connect(service.url, memory_limit=10_000) as client,
        client.producer(topic) as producer,
    ):
        with pytest.raises(errors.MemoryLimit):
            for _ in range(1000):
                producer.send_nowait(b"x" * 4000)
        await producer.flush()
        assert client.stats()["memory_used_bytes"] == 0
        await producer.send(b"there is room again")
