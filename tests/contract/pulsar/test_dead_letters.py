"""Dead letter policy, topic of retries and ``reconsume_later``."""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.parse
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.pulsar import DeadLetterPolicy

from support.chaos import ChaosProxy
from support.messages import gather, nothing, numbered, payloads, receive
from support.waiting import PATIENCE

QUICK: dict[str, Any] = {"type": "shared", "nack_delay": 0.05}


async def refuse(consumer: Any, times: int, payload: bytes | None = None) -> list[Any]:
    """Nacks a message each of the ``times`` that it is delivered."""
    got: list[Any] = []
    while len(got) < times:
        message = await consumer.receive(timeout=PATIENCE)
        if payload is None or message.data == payload:
            got.append(message)
            await consumer.nack(message)
        else:
            await consumer.ack(message)
    return got


@contextlib.asynccontextmanager
async def letters(client: Any, topic: str, subscription: str = "dead") -> AsyncGenerator[Any]:
    """A consumer of the dead letters of subscription ``s`` from the first on."""
    async with client.consumer(f"{topic}-s-DLQ", subscription, position="earliest") as consumer:
        yield consumer


async def settled(consumer: Any, **counts: int) -> None:
    """Waits until ``stats()`` has these counts."""
    deadline = time.monotonic() + PATIENCE
    while not counts.items() <= consumer.stats().items():
        assert time.monotonic() < deadline, consumer.stats()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_a_message_that_is_refused_too_often_is_a_dead_letter(
    client: Any, topic: str, kind: str
) -> None:
    options: dict[str, Any] = {**QUICK, "type": kind, "dead_letter": DeadLetterPolicy(2)}
    async with client.consumer(topic, "s", **options) as consumer:
        async with client.producer(topic, batching=False) as producer:
            sent_as = {"a": "b"}
            await producer.send(b"poison", key="k", ordering_key=b"o", properties=sent_as, event_time=123)
        got = await refuse(consumer, 3)
        assert [message.redelivery_count for message in got] == [0, 1, 2]
        async with letters(client, topic) as dead:
            letter = await dead.receive(timeout=PATIENCE)
            assert (bytes(letter.data), letter.key, letter.ordering_key) == (b"poison", "k", b"o")
            assert letter.event_time == 123
            origin = f"{got[0].id.ledger}:{got[0].id.entry}:-1"
            assert letter.properties == {
                "a": "b",
                "REAL_TOPIC": consumer.topic,
                "REAL_SUBSCRIPTION": "s",
                "ORIGIN_MESSAGE_ID": origin,
                "ORIGIN_MESSAGE_IDY_TIME": origin,
            }
            await settled(consumer, dead_letters=1, dead_letters_failed=0, redelivered=2)
            await nothing(consumer)
            await nothing(dead)
    # It is acknowledged.
    async with client.consumer(topic, "s", type=kind) as consumer:
        await nothing(consumer, 0.5)


async def test_a_message_that_is_late_too_often_is_a_dead_letter(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(1)
    async with (
        client.consumer(topic, "s", type="shared", ack_timeout=1, dead_letter=policy) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"poison")
        assert payloads(await receive(consumer, 2)) == [b"poison", b"poison"]
        async with letters(client, topic) as dead:
            assert bytes((await dead.receive(timeout=PATIENCE)).data) == b"poison"
        await settled(consumer, dead_letters=1, ack_timeouts=2)
        await nothing(consumer, 1.5)


async def test_the_topic_and_its_first_subscription_can_be_named(
    service: Any, client: Any, topic: str
) -> None:
    other = service.topic()
    policy = DeadLetterPolicy(1, topic=other, subscription="first")
    async with (
        client.consumer(topic, "s", dead_letter=policy, **QUICK) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"poison")
        await refuse(consumer, 2)
        await settled(consumer, dead_letters=1)
        # The subscription was there before the message, and a new one begins behind it.
        async with client.consumer(other, "first") as dead, client.consumer(other, "new") as later:
            assert bytes((await dead.receive(timeout=PATIENCE)).data) == b"poison"
            await nothing(later)


async def test_the_other_messages_are_delivered_as_ever(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(1)
    async with client.consumer(topic, "s", dead_letter=policy, **QUICK) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await gather(*[producer.send(payload) for payload in numbered(100)])
        good: set[bytes] = set()
        deadline = time.monotonic() + 30
        while len(good) < 90 or consumer.stats()["dead_letters"] < 10:
            assert time.monotonic() < deadline, (len(good), consumer.stats())
            for message in await consumer.receive_many(100, timeout=0.2):
                if message.data.endswith(b"7"):
                    await consumer.nack(message)
                else:
                    await consumer.ack(message)
                    good.add(message.data)
        async with letters(client, topic) as dead:
            got = payloads(await receive(dead, 10))
        assert sorted(got) == [payload for payload in numbered(100) if payload.endswith(b"7")]
        assert sorted([*good, *got]) == numbered(100)


async def test_of_a_batch_what_is_not_acknowledged_dies(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(1)
    options = {**QUICK, "dead_letter": policy, "ack_receipt": True}
    async with client.consumer(topic, "s", **options) as consumer:
        async with client.producer(topic, batching_delay=1) as producer:
            await producer.send_many(numbered(200))
        messages = await receive(consumer, 200)
        largest = max(messages, key=lambda message: message.id.batch_size).id.entry
        batch = [message for message in messages if message.id.entry == largest]
        assert len(batch) > 3
        poison = batch[1:3]
        await consumer.ack_many([message for message in messages if message not in poison])
        await consumer.nack_many(poison)
        again = await receive(consumer, 2)
        assert payloads(again) == payloads(poison)
        await consumer.nack_many(again)
        async with letters(client, topic) as dead:
            got = await receive(dead, 2)
        assert sorted(payloads(got)) == sorted(payloads(poison))
        origins = {f"{m.id.ledger}:{m.id.entry}:-1:{m.id.batch_index}" for m in poison}
        assert {letter.properties["ORIGIN_MESSAGE_ID"] for letter in got} == origins
        await settled(consumer, dead_letters=2)
        await nothing(consumer)


async def test_each_partition_has_a_topic_of_dead_letters(service: Any, client: Any) -> None:
    topic = service.topic(partitions=2)
    async with client.consumer(topic, "s", dead_letter=DeadLetterPolicy(1), **QUICK) as consumer:
        async with client.producer(topic, batching=False) as producer:
            await gather(*[producer.send(b"%d" % i, key=str(i)) for i in range(8)])
        got = await refuse(consumer, 16)
        await settled(consumer, dead_letters=8)
        for partition in {message.partition for message in got}:
            here = {bytes(m.data) for m in got if m.partition == partition}
            async with letters(client, f"{topic}-partition-{partition}") as dead:
                letters_here = await receive(dead, len(here))
            assert set(payloads(letters_here)) == here
            assert letters_here[0].properties["REAL_TOPIC"].endswith(f"-partition-{partition}")


async def test_a_chunked_message_can_die(client: Any, topic: str) -> None:
    body = bytes(range(256)) * (24 << 10)
    options = {**QUICK, "dead_letter": DeadLetterPolicy(1), "nack_delay": 0.2}
    async with client.consumer(topic, "s", **options) as consumer:
        async with client.producer(topic, chunking=True, batching=False) as producer:
            await producer.send(body)
        got = await refuse(consumer, 2)
        async with letters(client, topic) as dead:
            letter = await dead.receive(timeout=PATIENCE)
            assert bytes(letter.data) == body
        first, last = letter.properties["ORIGIN_MESSAGE_ID"].split(";")
        assert last == f"{got[0].id.ledger}:{got[0].id.entry}:-1"
        assert int(first.split(":")[1]) < got[0].id.entry
        await settled(consumer, dead_letters=1)
    async with client.consumer(topic, "s", type="shared") as consumer:
        await nothing(consumer, 0.5)


async def test_a_message_that_cannot_be_sent_is_not_delivered_and_tried_again(
    service: Any, client: Any, topic: str
) -> None:
    other = service.topic()
    # An exclusive producer keeps the policy's out.
    policy = DeadLetterPolicy(1, topic=other)
    async with (
        client.producer(other, access_mode="exclusive") as guard,
        client.consumer(topic, "s", dead_letter=policy, **QUICK) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"poison")
        await refuse(consumer, 2)
        deadline = time.monotonic() + PATIENCE
        while not consumer.stats()["dead_letters_failed"] >= 2:
            assert time.monotonic() < deadline, consumer.stats()
            await asyncio.sleep(0.05)
        # The application has had its chances.
        await nothing(consumer)
        async with client.consumer(other, "dead", position="earliest") as dead:
            await guard.close()
            assert bytes((await dead.receive(timeout=PATIENCE)).data) == b"poison"
            await settled(consumer, dead_letters=1)
        stats = consumer.stats()
        await consumer.close()
        for name in ("dead_letters", "dead_letters_failed", "retried"):
            assert client.stats()[name] == stats[name], "also of consumers that are closed"
        metrics = client.metrics()
        assert "pulsar_client_consumer_dlq_messages 1\n" in metrics
        assert f"pulsar_client_consumer_dlq_errors {stats['dead_letters_failed']}\n" in metrics


async def test_a_seek_gives_the_dead_another_life(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(1)
    async with (
        client.consumer(topic, "s", dead_letter=policy, **QUICK) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        await refuse(consumer, 2)
        await settled(consumer, dead_letters=1)
        await consumer.seek("earliest")
        again = await consumer.receive(timeout=PATIENCE)
        assert bytes(again.data) == b"x"
        await consumer.ack(again)


async def test_a_message_can_be_consumed_later(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(2, subscription="dead", retry=True)
    async with (
        client.consumer(topic, "s", type="shared", dead_letter=policy, position="earliest") as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        assert consumer.topic.endswith(topic.rpartition("/")[2])
        await producer.send(b"x", key="k", ordering_key=b"o", properties={"a": "b"}, event_time=123)
        first = await consumer.receive(timeout=PATIENCE)
        started = time.monotonic()
        await consumer.reconsume_later(first, 0.5, {"why": "busy"})
        second = await consumer.receive(timeout=PATIENCE)
        assert time.monotonic() - started > 0.4
        origin = f"{first.id.ledger}:{first.id.entry}:-1"
        common = {
            "a": "b",
            "why": "busy",
            "REAL_TOPIC": first.topic,
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": origin,
            "ORIGIN_MESSAGE_IDY_TIME": origin,
        }
        assert second.topic == f"{first.topic}-s-RETRY"
        assert (bytes(second.data), second.key, second.ordering_key) == (b"x", "k", b"o")
        assert second.event_time == 123
        assert second.properties == {**common, "RECONSUMETIMES": "1", "DELAY_TIME": "500"}
        await consumer.reconsume_later(second, "10ms")
        third = await consumer.receive(timeout=PATIENCE)
        assert third.properties == {**common, "RECONSUMETIMES": "2", "DELAY_TIME": "10"}
        assert consumer.stats()["retried"] == 2
        # It has been there as often as the policy allows.
        await consumer.reconsume_later(third, 0)
        async with client.consumer(f"{topic}-s-DLQ", "dead") as dead:
            letter = await dead.receive(timeout=PATIENCE)
        assert letter.properties == {**common, "RECONSUMETIMES": "3", "DELAY_TIME": "0"}
        assert (letter.key, letter.ordering_key, letter.event_time) == ("k", b"o", 123)
        await settled(consumer, retried=2, dead_letters=1)
        await nothing(consumer)
        sums = {name: client.stats()[name] for name in ("retried", "dead_letters", "dead_letters_failed")}
        assert sums == {"retried": 2, "dead_letters": 1, "dead_letters_failed": 0}
    async with client.consumer(topic, "s", type="shared", dead_letter=policy) as consumer:
        await nothing(consumer, 0.5)


async def test_a_retried_message_that_is_refused_too_often_dies_too(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(1, retry=True)
    async with (
        client.consumer(topic, "s", dead_letter=policy, **QUICK) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"x")
        await consumer.reconsume_later(await consumer.receive(timeout=PATIENCE), 0)
        again = await refuse(consumer, 2)
        assert again[0].topic.endswith("-s-RETRY")
        async with letters(client, topic) as dead:
            letter = await dead.receive(timeout=PATIENCE)
        assert letter.properties["RECONSUMETIMES"] == "1"
        assert not letter.properties["REAL_TOPIC"].endswith("-RETRY")


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_later_is_at_once_where_one_consumer_gets_all(client: Any, topic: str, kind: str) -> None:
    policy = DeadLetterPolicy(3, retry=True)
    options: dict[str, Any] = {"type": kind, "dead_letter": policy, "ack_receipt": True}
    async with client.consumer(topic, "s", **options) as consumer, client.producer(topic) as producer:
        await producer.send(b"x")
        await consumer.reconsume_later(await consumer.receive(timeout=PATIENCE), 0.1)
        again = await consumer.receive(timeout=PATIENCE)
        assert again.properties["RECONSUMETIMES"] == "1"
        await consumer.ack(again)


async def test_several_topics_and_partitions_share_the_topics_of_the_first(
    service: Any, client: Any, topic: str
) -> None:
    other = service.topic(partitions=2)
    first = min(topic, other)
    policy = DeadLetterPolicy(1, retry=True)
    async with (
        client.consumer([topic, other], "s", type="shared", dead_letter=policy) as consumer,
        client.producer(other, batching=False) as producer,
    ):
        await producer.send(b"x", key="k")
        message = await consumer.receive(timeout=PATIENCE)
        await consumer.reconsume_later(message, 0)
        again = await consumer.receive(timeout=PATIENCE)
        assert again.topic.endswith(f"{first.rpartition('/')[2]}-s-RETRY")
        # The topic, not the partition.
        assert again.properties["REAL_TOPIC"] == message.topic.rpartition("-partition-")[0]
        await consumer.reconsume_later(again, 0)
        async with letters(client, first) as dead:
            assert bytes((await dead.receive(timeout=PATIENCE)).data) == b"x"


async def test_retries_without_a_topic_for_them_are_refused(client: Any, topic: str) -> None:
    for options in ({}, {"dead_letter": DeadLetterPolicy(1), "type": "shared"}):
        async with client.consumer(topic, "s", **options) as consumer, client.producer(topic) as producer:
            await producer.send(b"x")
            message = await consumer.receive(timeout=PATIENCE)
            with pytest.raises(errors.NotAllowed, match="retry=True"):
                await consumer.reconsume_later(message, 1)
            await consumer.ack(message)


async def test_a_topic_that_cannot_be_opened_does_not_hold_up_the_others(
    service: Any, client: Any, topic: str
) -> None:
    # The tenant does not exist, which a cluster takes its time to say.
    policy = DeadLetterPolicy(1, topic="absent/absent/dead", retry=True)
    async with (
        client.consumer(topic, "s", dead_letter=policy, **QUICK) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        await producer.send(b"poison")
        await refuse(consumer, 2, b"poison")
        await producer.send(b"later")
        # Half of the time for which the client may try to open that topic.
        message = await consumer.receive(timeout=PATIENCE / 2)
        await asyncio.wait_for(consumer.reconsume_later(message, 0), PATIENCE / 2)
        again = await consumer.receive(timeout=PATIENCE / 2)
        assert again.properties["RECONSUMETIMES"] == "1"
        await consumer.ack(again)
        started = time.monotonic()
    assert time.monotonic() - started < 40


async def test_an_id_without_a_topic_is_of_the_topic_that_was_asked_for(client: Any, topic: str) -> None:
    policy = DeadLetterPolicy(1, retry=True)
    async with (
        client.consumer(topic, "s", type="shared", dead_letter=policy, ack_receipt=True) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        sent = await producer.send(b"x")
        await consumer.receive(timeout=PATIENCE)
        await consumer.ack(sent)
        await consumer.seek(sent, inclusive=True)
        assert (await consumer.receive(timeout=PATIENCE)).id == sent


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "shared or key_shared"),
        ({"type": "failover"}, "shared or key_shared"),
        ({"type": "shared", "durable": False}, "durable"),
        ({"type": "shared", "to": "{topic}"}, "reads itself"),
        ({"type": "shared", "subscription": "a\nb"}, "cannot name its topic"),
        ({"type": "shared", "subscription": "a/b"}, "cannot name its topic"),
    ],
    ids=str,
)
async def test_policies_that_cannot_be_are_refused(
    client: Any, topic: str, options: dict[str, Any], said: str
) -> None:
    options = dict(options)
    to = options.pop("to", None)
    policy = DeadLetterPolicy(1, topic=to and topic)
    name = options.pop("subscription", "s")
    with pytest.raises(errors.InvalidArgument, match=said):
        await client.consumer(topic, name, dead_letter=policy, **options)


async def test_a_consumer_that_is_closed_leaves_no_producer_behind(
    service: Any, client: Any, topic: str
) -> None:
    other = service.topic()
    policy = DeadLetterPolicy(1, topic=other)
    async with client.producer(topic, batching=False) as producer:
        consumer = await client.consumer(topic, "s", dead_letter=policy, **QUICK)
        await producer.send(b"poison")
        await refuse(consumer, 2)
        await settled(consumer, dead_letters=1)
        await consumer.close()
    async with client.producer(other, access_mode="exclusive") as alone:
        await alone.send(b"x")
    assert client.stats()["memory_used_bytes"] == 0


async def test_no_message_is_lost_when_connections_are_cut(service: Any, topic: str) -> None:
    """A copy whose receipt is lost is sent again, so there may be several of one message."""
    host = urllib.parse.urlsplit(service.url)
    policy = DeadLetterPolicy(1, retry=True)
    options: dict[str, Any] = {**QUICK, "dead_letter": policy, "ack_timeout": 5, "position": "earliest"}
    poison = {payload for payload in numbered(200) if payload.endswith(b"7")}
    later = {payload for payload in numbered(200) if payload.endswith(b"3")}
    good: set[bytes] = set()
    retried: set[bytes] = set()
    async with (
        forebay.connect(service.url) as direct,
        ChaosProxy(host.port or 0, seed=1) as proxy,
        forebay.connect(f"pulsar://127.0.0.1:{proxy.port}", max_backoff=0.5) as client,
        client.consumer(topic, "s", **options) as consumer,
        letters(direct, topic) as dead,
    ):
        async with direct.producer(topic, batching=False) as producer:
            await gather(*[producer.send(payload) for payload in numbered(200)])
        got: set[bytes] = set()
        deadline = time.monotonic() + 60
        cuts = 0
        while not (got >= poison and retried >= later and got | retried | good == set(numbered(200))):
            assert time.monotonic() < deadline, (len(got), len(retried), len(good), consumer.stats())
            if cuts < 8:
                cuts += 1
                proxy.cut()
            for message in await consumer.receive_many(20, timeout=0.1):
                if message.data in poison:
                    await consumer.nack(message)
                elif message.data in later and "RECONSUMETIMES" not in message.properties:
                    with contextlib.suppress(errors.Error):
                        await consumer.reconsume_later(message, 0)
                else:
                    await consumer.ack(message)
                    (retried if message.data in later else good).add(message.data)
            got |= set(payloads(await dead.receive_many(100, timeout=0.01)))
        assert cuts == 8
