"""Whether there is something to receive, and the last ids."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.messages import gather, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE

BATCHES = pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])


async def filled(client: Any, topic: str, batching: bool, count: int = 10) -> list[Any]:
    async with client.producer(topic, batching=batching) as producer:
        return await gather(*[producer.send(payload) for payload in numbered(count)])


@BATCHES
async def test_a_reader_reads_until_there_is_nothing(client: Any, topic: str, batching: bool) -> None:
    async with client.reader(topic, position="earliest") as reader:
        assert not await reader.has_message_available()
        await filled(client, topic, batching)
        got: list[bytes] = []
        while await reader.has_message_available():
            got += payloads([await reader.receive(timeout=PATIENCE)])
        assert got == numbered(10)


async def test_at_the_end_there_is_nothing_until_a_message_comes(client: Any, topic: str) -> None:
    await filled(client, topic, True)
    async with client.reader(topic, position="latest") as reader:
        assert not await reader.has_message_available()
        await filled(client, topic, True, 1)
        assert await reader.has_message_available()
        assert payloads(await receive(reader, 1)) == numbered(1)
        assert not await reader.has_message_available()


@BATCHES
async def test_after_a_seek_the_position_counts(client: Any, topic: str, batching: bool) -> None:
    ids = await filled(client, topic, batching)
    async with client.reader(topic, position="latest") as reader:
        for position, inclusive, available in [
            ("earliest", False, True),
            ("latest", False, False),
            (ids[8], False, True),
            (ids[9], False, False),
            (ids[9], True, True),
            (1, False, True),
            (int(time.time() * 1000) + 3_600_000, False, False),
        ]:
            await reader.seek(position, inclusive=inclusive)
            assert await reader.has_message_available() == available, (position, inclusive)


@BATCHES
@pytest.mark.parametrize("inclusive", [True, False])
async def test_a_reader_that_begins_at_the_last_message(
    client: Any, topic: str, batching: bool, inclusive: bool
) -> None:
    ids = await filled(client, topic, batching)
    async with client.reader(topic, position=ids[9], start_inclusive=inclusive) as reader:
        assert await reader.has_message_available() == inclusive
        if inclusive:
            assert payloads(await receive(reader, 1)) == numbered(10)[9:]
            assert not await reader.has_message_available()


@BATCHES
async def test_the_latest_message_is_there_for_a_reader_that_includes_it(
    client: Any, topic: str, batching: bool
) -> None:
    async with client.reader(topic, position="latest", start_inclusive=True) as reader:
        # The topic is empty.
        await filled(client, topic, batching)
        assert payloads(await receive(reader, 10)) == numbered(10)
    async with client.reader(topic, position="latest", start_inclusive=True) as reader:
        assert payloads(await receive(reader, 1)) == numbered(10)[9:]
        await reader.seek("latest", inclusive=True)
        assert payloads(await receive(reader, 1)) == numbered(10)[9:]
        await reader.seek("latest")
        await filled(client, topic, batching, 1)
        assert payloads(await receive(reader, 1)) == numbered(1)


async def test_the_latest_message_of_each_partition(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    for partition in (0, 2):
        await filled(client, f"{topic}-partition-{partition}", False, partition + 1)
    async with client.reader(topic, position="latest", start_inclusive=True) as reader:
        assert sorted(payloads(await receive(reader, 2))) == sorted([numbered(1)[0], numbered(3)[2]])
        assert not await reader.has_message_available()


async def test_a_subscription_that_is_taken_up_again(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", position="earliest", ack_receipt=True) as consumer:
        await filled(client, topic, False)
        await consumer.ack_many((await receive(consumer, 10))[:9])
    async with client.consumer(topic, "s", ack_receipt=True) as consumer:
        assert await consumer.has_message_available()
        await consumer.ack_many(await receive(consumer, 1))
    async with client.consumer(topic, "s") as consumer:
        assert not await consumer.has_message_available()


async def test_one_partition_is_enough(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    async with client.reader(topic, position="earliest") as reader:
        assert not await reader.has_message_available()
        await filled(client, f"{topic}-partition-1", False, 1)
        assert await reader.has_message_available()
        await receive(reader, 1)
        assert not await reader.has_message_available()


async def test_the_last_ids_name_their_topics(client: Any, service: PulsarService) -> None:
    topic, other = service.topic(partitions=2), service.topic()
    async with client.consumer([topic, other], "s") as consumer:
        ids = await filled(client, f"{topic}-partition-1", False, 3)
        last = {each.topic: each for each in await consumer.last_message_ids()}
        assert set(last) == {f"{topic}-partition-0", f"{topic}-partition-1", other}
        assert last[other].entry == last[f"{topic}-partition-0"].entry == -1
        assert (last[f"{topic}-partition-1"].ledger, last[f"{topic}-partition-1"].entry) == (
            ids[2].ledger,
            ids[2].entry,
        )
