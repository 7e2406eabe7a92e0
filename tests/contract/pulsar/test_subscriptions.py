"""Subscription types, start positions, and distribution over consumers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import gather, nothing, numbered, payloads, receive
from support.pulsar.harness import PulsarService, RealPulsar
from support.waiting import PATIENCE


async def test_every_subscription_gets_every_message(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "one") as one,
        client.consumer(topic, "two") as two,
        client.producer(topic) as producer,
    ):
        await producer.send_many(numbered(50))
        assert payloads(await receive(one, 50)) == numbered(50)
        assert payloads(await receive(two, 50)) == numbered(50)


async def test_a_topic_that_is_given_twice_is_read_once(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    twice = [f"{topic}-partition-1", topic, topic.rsplit("/", 1)[1], topic]
    async with client.consumer(twice, "s", type="shared") as consumer, client.producer(topic) as producer:
        assert len(await consumer.last_message_ids()) == 2
        await producer.send_many(numbered(20), keys=[str(i) for i in range(20)])
        messages = await receive(consumer, 20)
        assert sorted(payloads(messages)) == sorted(numbered(20))
        await consumer.ack_many(messages)
        await nothing(consumer)
    async with client.consumer(topic, "s", type="shared") as consumer:
        await nothing(consumer)


async def test_latest_begins_after_what_is_there(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"before")
        async with client.consumer(topic, "s", position="latest") as consumer:
            await producer.send(b"after")
            assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"after"


async def test_earliest_begins_with_what_is_there(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send_many(numbered(10))
        async with client.consumer(topic, "s", position="earliest") as consumer:
            assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_the_position_counts_only_for_a_new_subscription(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        async with client.consumer(topic, "s", ack_receipt=True) as consumer:
            await producer.send_many(numbered(10))
            await consumer.ack_many(await receive(consumer, 5))
        async with client.consumer(topic, "s", position="latest") as consumer:
            assert payloads(await receive(consumer, 5)) == numbered(10)[5:]


async def test_a_second_exclusive_consumer_is_refused_at_once(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s"):
        started = time.monotonic()
        with pytest.raises(errors.ConsumerBusy) as refused:
            await client.consumer(topic, "s")
        assert time.monotonic() - started < 25
        assert refused.value.topic == topic


async def test_an_opening_that_failed_may_be_awaited_again(client: Any, topic: str) -> None:
    opening = client.consumer(topic, "s", ack_receipt=True)
    async with client.consumer(topic, "s"):
        with pytest.raises(errors.ConsumerBusy):
            await opening
    async with client.producer(topic) as producer:
        consumer = await opening
        await producer.send(b"x")
        (message,) = await receive(consumer, 1)
        await consumer.ack(message)
        await consumer.close()


async def test_an_exclusive_subscription_is_free_again_after_close(client: Any, topic: str) -> None:
    for _ in range(3):
        async with client.consumer(topic, "s"):
            pass


async def test_another_type_on_a_connected_subscription_is_refused(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared"):
        with pytest.raises(errors.ConsumerBusy):
            await client.consumer(topic, "s", type="failover")


async def test_shared_consumers_share_the_work(client: Any, topic: str) -> None:
    async with (
        client.consumer(topic, "s", type="shared", receiver_queue=10) as one,
        client.consumer(topic, "s", type="shared", receiver_queue=10) as two,
        client.producer(topic, batching=False) as producer,
    ):
        await gather(*[producer.send(payload) for payload in numbered(100)])
        got: dict[str, list[bytes]] = {"one": [], "two": []}
        while sum(map(len, got.values())) < 100:
            for name, consumer in (("one", one), ("two", two)):
                messages = await consumer.receive_many(10, timeout=0.2)
                await consumer.ack_many(messages)
                got[name] += payloads(messages)
        assert sorted(got["one"] + got["two"]) == numbered(100)
        assert got["one"]
        assert got["two"]


async def test_what_a_shared_consumer_leaves_goes_to_the_others(client: Any, topic: str) -> None:
    async with client.producer(topic, batching=False) as producer:
        one = await client.consumer(topic, "s", type="shared")
        async with client.consumer(topic, "s", type="shared") as two:
            await gather(*[producer.send(payload) for payload in numbered(40)])
            mine = await receive(two, 1)
            await one.close()
            mine += await receive(two, 39)
            assert sorted(payloads(mine)) == numbered(40)


async def test_key_shared_gives_each_key_to_one_consumer_in_order(client: Any, topic: str) -> None:
    consumers = [await client.consumer(topic, "s", type="key_shared") for _ in range(3)]
    async with client.producer(topic, key_based_batching=True) as producer:
        await gather(*[producer.send(b"%d" % i, f"key-{i % 20}") for i in range(400)])
        owners, order, count = defaultdict(set), defaultdict(list), 0
        deadline = time.monotonic() + PATIENCE
        while count < 400:
            assert time.monotonic() < deadline, count
            for place, consumer in enumerate(consumers):
                messages = await consumer.receive_many(100, timeout=0.1)
                await consumer.ack_many(messages)
                count += len(messages)
                for message in messages:
                    owners[message.key].add(place)
                    order[message.key].append(int(bytes(message.data)))
    assert all(len(places) == 1 for places in owners.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len(set.union(*owners.values())) > 1
    for consumer in consumers:
        await consumer.close()


async def test_the_ordering_key_goes_before_the_key(client: Any, topic: str) -> None:
    consumers = [await client.consumer(topic, "s", type="key_shared") for _ in range(3)]
    async with client.producer(topic, batching=False) as producer:
        await gather(*[producer.send(b"%d" % i, f"key-{i}", ordering_key=b"the same") for i in range(30)])
        owners: set[int] = set()
        count = 0
        deadline = time.monotonic() + PATIENCE
        while count < 30:
            assert time.monotonic() < deadline, count
            for place, consumer in enumerate(consumers):
                if messages := await consumer.receive_many(30, timeout=0.1):
                    await consumer.ack_many(messages)
                    count += len(messages)
                    owners.add(place)
    assert len(owners) == 1
    for consumer in consumers:
        await consumer.close()


async def test_failover_has_one_active_consumer_and_another_takes_over(client: Any, topic: str) -> None:
    async with client.producer(topic, batching=False) as producer:
        one = await client.consumer(topic, "s", type="failover", name="a", ack_receipt=True)
        async with client.consumer(topic, "s", type="failover", name="b") as two:
            await gather(*[producer.send(payload) for payload in numbered(20)])
            first = asyncio.ensure_future(one.receive(timeout=PATIENCE))
            second = asyncio.ensure_future(two.receive(timeout=PATIENCE))
            done, waiting = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            for future in waiting:
                future.cancel()
                await asyncio.gather(future, return_exceptions=True)
            active, standby = (one, two) if first in done else (two, one)
            message = done.pop().result()
            await active.ack(message)
            got = {bytes(message.data)}
            await active.close()
            while len(got) < 20:
                messages = await standby.receive_many(20, timeout=30)
                assert messages, f"nobody delivers the other {20 - len(got)}"
                got |= set(payloads(messages))
            assert got == set(numbered(20))
        await one.close()


async def test_what_was_not_acknowledged_comes_to_the_next_consumer(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        async with client.consumer(topic, "s") as consumer:
            await producer.send_many(numbered(10))
            await receive(consumer, 10)
        async with client.consumer(topic, "s") as consumer:
            assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_unsubscribe_deletes_the_subscription(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        consumer = await client.consumer(topic, "s")
        await producer.send(b"for nobody")
        await consumer.unsubscribe()
        assert consumer.closed
        async with client.consumer(topic, "s", position="latest") as consumer:
            await producer.send(b"new")
            assert bytes((await consumer.receive(timeout=PATIENCE)).data) == b"new"


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
async def test_a_new_subscription_begins_at_its_position(client: Any, topic: str, kind: Any) -> None:
    async with client.producer(topic, batching=False) as producer:
        ids = await gather(*[producer.send(payload) for payload in numbered(10)])
    async with client.consumer(topic, "behind", type=kind, position=ids[4]) as consumer:
        assert payloads(await receive(consumer, 5)) == numbered(10)[5:]
    async with client.consumer(topic, "at", type=kind, position=ids[4], start_inclusive=True) as consumer:
        assert payloads(await receive(consumer, 6)) == numbered(10)[4:]
    async with client.consumer(topic, "behind", type=kind) as consumer:
        assert payloads(await receive(consumer, 5)) == numbered(10)[5:]


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
async def test_a_position_does_not_move_a_subscription_that_exists(
    client: Any, topic: str, kind: Any
) -> None:
    async with client.producer(topic, batching=False) as producer:
        ids = await gather(*[producer.send(payload) for payload in numbered(10)])
    async with client.consumer(topic, "s", type=kind, position="earliest") as consumer:
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
    with pytest.raises(errors.NotAllowed, match=r"exists already.*seek"):
        await client.consumer(topic, "s", type=kind, position=ids[4])
    async with client.consumer(topic, "s", type=kind) as consumer:
        assert payloads(await receive(consumer, 9)) == numbered(10)[1:]
        await consumer.seek(ids[4])
        assert payloads(await receive(consumer, 5)) == numbered(10)[5:]


async def test_a_reader_begins_where_it_is_told_and_leaves_nothing_behind(client: Any, topic: str) -> None:
    async with client.producer(topic, batching=False) as producer:
        ids = await gather(*[producer.send(payload) for payload in numbered(10)])
        async with client.reader(topic, position=ids[4]) as reader:
            assert payloads(await receive(reader, 5)) == numbered(10)[5:]
        async with client.reader(topic, position=ids[4], start_inclusive=True) as reader:
            assert payloads(await receive(reader, 6)) == numbered(10)[4:]
        async with client.reader(topic, position="earliest") as reader:
            assert payloads(await receive(reader, 10)) == numbered(10)
        async with client.reader(topic) as reader:
            await nothing(reader)


async def test_a_reader_begins_inside_a_batch(client: Any, topic: str) -> None:
    async with client.producer(topic, batching_delay="5s") as producer:
        futures = [producer.send(payload) for payload in numbered(10)]
        await producer.flush()
        ids = await gather(*futures)
        async with client.reader(topic, position=ids[4]) as reader:
            assert payloads(await receive(reader, 5)) == numbered(10)[5:]
        async with client.reader(topic, position=ids[4], start_inclusive=True) as reader:
            assert payloads(await receive(reader, 6)) == numbered(10)[4:]


@pytest.mark.parametrize(
    "name", ["with space", "ünï", "a/b", "x" * 200], ids=["space", "unicode", "slash", "long"]
)
async def test_names_of_subscriptions(client: Any, topic: str, name: str) -> None:
    async with client.consumer(topic, name) as consumer, client.producer(topic) as producer:
        assert consumer.subscription == name
        await producer.send(b"x")
        await consumer.ack(await consumer.receive(timeout=PATIENCE))


async def test_two_clients_see_each_other(service: PulsarService, client: Any, topic: str) -> None:
    async with forebay.connect(service.url) as other:
        async with client.consumer(topic, "s") as consumer, other.producer(topic) as producer:
            await producer.send_many(numbered(10))
            assert payloads(await receive(consumer, 10)) == numbered(10)


async def test_unsubscribing_by_force_disconnects_the_others(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer, client.consumer(topic, "s", type="shared") as other:
        consumer = await client.consumer(topic, "s", type="shared", receiver_queue=1)
        await producer.send(b"before")
        with pytest.raises(errors.MetadataError):
            await consumer.unsubscribe()
        await consumer.unsubscribe(force=True)
        assert consumer.closed
        with pytest.raises(errors.Closed):
            await consumer.receive(timeout=10)
        # The other one makes the subscription again.
        while True:
            await producer.send(b"after")
            with contextlib.suppress(errors.Timeout):
                if bytes((await other.receive(timeout=1)).data) == b"after":
                    break


async def test_a_subscription_that_is_not_durable_ends_with_its_consumer(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        for durable in (True, False):
            name = f"durable-{durable}"
            async with client.consumer(topic, name, durable=durable) as consumer:
                await producer.send(b"seen")
                assert payloads(await receive(consumer, 1)) == [b"seen"]
            await producer.send(b"meanwhile")
            async with client.consumer(topic, name, durable=durable) as consumer:
                if durable:
                    assert payloads(await receive(consumer, 2)) == [b"seen", b"meanwhile"]
                else:
                    await nothing(consumer)


@pytest.mark.real_pulsar
async def test_properties_of_a_subscription_are_in_the_statistics(real_pulsar: RealPulsar) -> None:
    topic, properties = real_pulsar.topic(), {"owner": "billing", "n\u00e4me": "7"}
    async with forebay.connect(real_pulsar.url) as client:
        async with client.consumer(topic, "s", subscription_properties=properties):
            stats = await asyncio.to_thread(real_pulsar.rest, "GET", f"{real_pulsar.path(topic)}/stats")
    assert stats["subscriptions"]["s"]["subscriptionProperties"] == properties
