"""How a consumer fetches: pause and resume, a queue of size 0, and batches."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from forebay import errors

from support.messages import nothing, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


async def send(client: Any, topic: str, count: int, **options: Any) -> None:
    async with client.producer(topic, **options) as producer:
        await producer.send_many([b"%d" % i for i in range(count)])


@pytest.mark.parametrize("partitions", [0, 3])
async def test_a_paused_consumer_fetches_nothing_until_it_resumes(
    client: Any, service: PulsarService, partitions: int
) -> None:
    topic = service.topic(partitions=partitions)
    async with (
        client.consumer(topic, "s", receiver_queue=50) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"before")
        assert payloads(await receive(consumer, 1)) == [b"before"]
        consumer.pause()
        sent = [b"%d" % i for i in range(600)]
        await producer.send_many(sent)
        # What was asked for before comes.
        got = []
        while more := await consumer.receive_many(1000, timeout=1):
            got += more
        assert len(got) <= 50 * max(partitions, 1)
        consumer.resume()
        got += await receive(consumer, len(sent) - len(got))
        assert sorted(payloads(got)) == sorted(sent)
        await consumer.ack_many(got)
    with pytest.raises(errors.Closed):
        consumer.pause()


async def test_others_get_what_a_paused_consumer_does_not_ask_for(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared", receiver_queue=50) as paused:
        paused.pause()
        async with client.consumer(topic, "s", type="shared") as other:
            await send(client, topic, 400, batching=False)
            # The first of them had asked for some before it was paused.
            got = await receive(other, 300)
            paused.resume()
            async with asyncio.timeout(PATIENCE):
                while len(got) < 400:
                    for consumer in (other, paused):
                        got += await consumer.receive_many(400, timeout=0.05)
        assert len(set(payloads(got))) == 400


async def test_partitions_that_come_later_are_paused_too(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=1)
    async with client.consumer(topic, "s", partitions_update_interval=0.1) as consumer:
        consumer.pause()
        service.grow_topic(topic, 2)
        async with asyncio.timeout(PATIENCE):
            while len(await consumer.last_message_ids()) < 2:
                await asyncio.sleep(0.05)
        await send(client, f"{topic}-partition-1", 10)
        await nothing(consumer)
        consumer.resume()
        await receive(consumer, 10)


async def test_a_consumer_without_a_queue_leaves_messages_to_the_others(client: Any, topic: str) -> None:
    options: dict[str, Any] = {"type": "shared", "receiver_queue": 0}
    async with (
        client.consumer(topic, "s", **options) as idle,
        client.consumer(topic, "s", **options) as busy,
    ):
        await send(client, topic, 20, batching=False)
        got = [await busy.receive(timeout=PATIENCE) for _ in range(19)]
        assert payloads(got) == [b"%d" % i for i in range(19)]
        # A slow consumer delays no message that it has not asked for.
        assert payloads([await idle.receive(timeout=PATIENCE)]) == [b"19"]
        await nothing(busy)


async def test_a_wait_without_a_queue_is_served_by_the_next_message(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", receiver_queue=0) as consumer:
        waits = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
        with pytest.raises(errors.Timeout):
            await consumer.receive(timeout=0.05)
        await send(client, topic, 5, batching=False)
        assert payloads(await asyncio.gather(*waits)) == [b"0", b"1", b"2"]
        assert payloads(await receive(consumer, 2)) == [b"3", b"4"]


async def test_a_batch_is_handed_out_one_by_one_without_a_queue(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", receiver_queue=0) as consumer:
        await send(client, topic, 10)
        assert payloads([await consumer.receive(timeout=PATIENCE) for _ in range(10)]) == [
            b"%d" % i for i in range(10)
        ]
        await send(client, topic, 3)
        iterated = []
        async for message in consumer:
            iterated.append(message)
            if len(iterated) == 3:
                break
        assert payloads(iterated) == [b"0", b"1", b"2"]


async def test_a_queue_of_size_0_is_for_one_topic_without_partitions(
    client: Any, service: PulsarService
) -> None:
    topic, partitioned = service.topic(), service.topic(partitions=2)
    for topics in [partitioned, [topic, f"{topic}-b"], re.compile(f"{topic}.*")]:
        with pytest.raises(errors.InvalidArgument, match="receiver_queue=0"):
            await client.consumer(topics, "s", receiver_queue=0)
    async with client.consumer(f"{partitioned}-partition-1", "s", receiver_queue=0) as consumer:
        await send(client, f"{partitioned}-partition-1", 1)
        await receive(consumer, 1)


async def test_a_batch_is_full_by_number_by_size_or_in_time(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        waiting = asyncio.ensure_future(consumer.receive_batch(6, timeout=None))
        await producer.send_many([b"0", b"1"])
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await producer.send_many([b"%d" % i for i in range(2, 10)])
        assert payloads(await asyncio.wait_for(waiting, PATIENCE)) == [b"%d" % i for i in range(6)]
        # The others are fewer than a batch.
        assert payloads(await consumer.receive_batch(100, timeout=3)) == [b"%d" % i for i in range(6, 10)]
        assert await consumer.receive_batch(timeout=0.1) == []
        sizes = [400, 400, 400, 2000, 100]
        await producer.send_many([bytes(size) for size in sizes])
        batches = [await consumer.receive_batch(max_bytes=1000, timeout=PATIENCE) for _ in range(3)]
        assert [[len(message.data) for message in batch] for batch in batches] == [[400, 400], [400], [2000]]
        assert [len(message.data) for message in await consumer.receive_many(timeout=PATIENCE)] == [100]
    for wrong in [{"max": 0}, {"max_bytes": 0}]:
        async with client.consumer(topic, "s") as consumer:
            with pytest.raises(ValueError, match="at least 1"):
                await consumer.receive_batch(**wrong)


async def test_a_batch_that_is_cancelled_loses_nothing(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        waiting = asyncio.ensure_future(consumer.receive_batch(100, timeout=None))
        await producer.send_many([b"0", b"1", b"2"])
        await asyncio.sleep(0.2)
        waiting.cancel()
        assert payloads(await receive(consumer, 3)) == [b"0", b"1", b"2"]


async def test_what_is_fetched_ahead_is_limited_in_bytes(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    payload = bytes(20_000)
    async with (
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "s", type="shared", receive_buffer=200_000) as small,
    ):
        # It learns how large the messages are.
        await producer.send_many([payload] * 40)
        await small.ack_many(await receive(small, 40))
        async with client.consumer(topic, "s", type="shared", receive_buffer=64 << 20) as large:
            await producer.send_many([payload] * 400)
            got = await receive(large, 300)
            while more := await small.receive_many(400, timeout=1):
                got += more
            assert len(got) <= 400
