"""Non-persistent topics: messages go to those who can take them now, and nothing is kept."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import gather, nothing, numbered, payloads, receive
from support.pulsar import wire
from support.pulsar.harness import EmbeddedPulsar, PulsarService
from support.waiting import PATIENCE, until


@pytest.fixture
def topic(service: PulsarService) -> str:
    return service.topic().replace("persistent", "non-persistent", 1)


async def test_messages_go_to_those_who_are_there(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"before")
        async with client.consumer(topic, "s", position="earliest") as consumer:
            ids, messages = await gather(producer.send_many(numbered(100)), receive(consumer, 100))
            assert payloads(messages) == numbered(100)
            assert {(id.ledger, id.entry) for id in ids} == {(0, 0)}
            assert {(message.id.ledger, message.id.entry) for message in messages} == {(0, 0)}
        await producer.send(b"between")
        async with client.consumer(topic, "s", position="earliest") as consumer:
            await nothing(consumer)
            await producer.send(b"after")
            assert payloads(await receive(consumer, 1)) == [b"after"]


async def test_a_new_consumer_gets_all_of_a_burst(client: Any, topic: str) -> None:
    """As many as its queue holds: a broker drops what it has no permits for."""
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        await producer.send_many(numbered(500))
        assert payloads(await receive(consumer, 500)) == numbered(500)


async def test_each_subscription_gets_each_message(client: Any, topic: str) -> None:
    async with (
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "a") as one,
        client.consumer(topic, "b", type="shared") as two,
    ):
        await producer.send_many(numbered(20))
        assert payloads(await receive(one, 20)) == payloads(await receive(two, 20)) == numbered(20)


async def test_shared_consumers_get_them_in_turn(client: Any, topic: str) -> None:
    async with (
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "s", type="shared") as one,
        client.consumer(topic, "s", type="shared") as two,
    ):
        await producer.send_many(numbered(20))
        got = await gather(receive(one, 10), receive(two, 10))
        assert sorted(payloads(got[0] + got[1])) == numbered(20)


async def test_a_key_has_one_consumer(client: Any, topic: str) -> None:
    keys = [f"k{i % 20}" for i in range(100)]
    async with (
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "s", type="key_shared") as one,
        client.consumer(topic, "s", type="key_shared") as two,
    ):
        messages: dict[Any, list[Any]] = {one: [], two: []}

        async def take() -> None:
            while sum(map(len, messages.values())) < 100:
                for consumer, got in messages.items():
                    got += await consumer.receive_many(100, timeout=0.01)

        await asyncio.wait_for(gather(take(), producer.send_many(numbered(100), keys)), PATIENCE)
        owned = [{message.key for message in got} for got in messages.values()]
        assert all(owned) and not owned[0] & owned[1]
        for key in set(keys):
            order = [bytes(m.data) for got in messages.values() for m in got if m.key == key]
            assert order == [p for p, k in zip(numbered(100), keys, strict=True) if k == key]


async def test_an_exclusive_subscription_has_one_consumer(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s"):
        for kind in ("exclusive", "shared"):
            with pytest.raises(errors.ConsumerBusy):
                await client.consumer(topic, "s", type=kind)


async def test_another_takes_over(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        # The name decides, also without partitions.
        async with client.consumer(topic, "s", type="failover", name="b") as standby:
            one = await client.consumer(topic, "s", type="failover", name="a")
            await producer.send(b"1")
            assert payloads(await receive(one, 1)) == [b"1"]
            await one.close()
            # The message was not kept for the next.
            await producer.send(b"2")
            assert payloads(await receive(standby, 1)) == [b"2"]


async def test_acknowledgements_change_nothing(client: Any, topic: str) -> None:
    async with (
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "s", type="shared", nack_delay=0.1, ack_receipt=True) as consumer,
    ):
        await producer.send_many(numbered(4))
        one, two, three, four = await receive(consumer, 4)
        await consumer.ack(one)
        await consumer.ack_many([two, one])
        await consumer.nack(three)
        await consumer.redeliver_unacknowledged()
        await nothing(consumer, 0.6)
        await producer.send(b"next")
        assert payloads(await receive(consumer, 1)) == [b"next"]
        assert four.redelivery_count == 0


async def test_a_batch_goes_to_one_consumer(client: Any, topic: str) -> None:
    async with (
        client.producer(topic, batching_delay=0.5) as producer,
        client.consumer(topic, "s", type="shared") as one,
        client.consumer(topic, "s", type="shared") as two,
    ):
        ids = await producer.send_many(numbered(10))
        batches = sum(id.batch_index == 0 for id in ids)
        assert batches < 10
        got: list[list[bytes]] = [[], []]
        async with asyncio.timeout(PATIENCE):
            while sum(map(len, got)) < 10:
                for mine, consumer in zip(got, (one, two), strict=True):
                    mine += payloads(await consumer.receive_many(10, timeout=0.3))
        assert sorted(got[0] + got[1]) == numbered(10)
        assert batches > 1 or [] in got


async def test_a_delivery_time_does_not_count(client: Any, topic: str) -> None:
    async with (
        client.producer(topic) as producer,
        client.consumer(topic, "s", type="shared") as consumer,
    ):
        await producer.send(b"x", deliver_after=600)
        assert payloads(await receive(consumer, 1)) == [b"x"]


async def test_there_is_no_last_message(client: Any, topic: str) -> None:
    async with client.reader(topic, position="earliest") as reader, client.producer(topic) as producer:
        for ask in (reader.last_message_ids, reader.has_message_available):
            with pytest.raises(errors.Error) as refused:
                await asyncio.wait_for(ask(), 30)
            assert not isinstance(refused.value, errors.Timeout)
        await producer.send(b"x")
        assert payloads(await receive(reader, 1)) == [b"x"]


async def test_a_compacted_view_is_refused(client: Any, topic: str) -> None:
    with pytest.raises(errors.NotAllowed, match="persistent topics"):
        await client.consumer(topic, "s", read_compacted=True)


async def test_a_table_view_shows_what_comes(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"1", key="a")
        async with client.table_view(topic) as view:
            await producer.send(b"2", key="b")
            await until(lambda: view.get("b") == b"2")
            assert "a" not in view


async def test_a_subscription_ends_with_its_last_consumer(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        one = await client.consumer(topic, "s", type="shared")
        await one.close()
        # Otherwise it would still have its type.
        async with client.consumer(topic, "s", type="failover") as consumer:
            await producer.send(b"x")
            assert payloads(await receive(consumer, 1)) == [b"x"]
            await consumer.unsubscribe()
        async with client.consumer(topic, "s", type="key_shared") as consumer:
            await producer.send(b"y")
            assert payloads(await receive(consumer, 1)) == [b"y"]


async def test_partitions(client: Any, service: PulsarService, topic: str) -> None:
    service.create_topic(topic, 3)
    assert await client.partitions(topic) == 3
    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        ids = await producer.send_many(numbered(30), [f"k{i}" for i in range(30)])
        assert {id.partition for id in ids} == {0, 1, 2}
        messages = await receive(consumer, 30)
        assert sorted(payloads(messages)) == numbered(30)
        assert {message.topic for message in messages} == {f"{topic}-partition-{i}" for i in range(3)}


async def test_partitions_are_added(client: Any, service: PulsarService, topic: str) -> None:
    service.create_topic(topic, 1)
    often = {"partitions_update_interval": 0.1}
    async with client.consumer(topic, "s", **often) as consumer, client.producer(topic, **often) as producer:
        service.grow_topic(topic, 3)
        seen: set[str] = set()

        async def spread() -> None:
            while len(seen) < 3:
                await producer.send_many([b"x"] * 30, [f"k{i}" for i in range(30)])
                seen.update(message.topic for message in await consumer.receive_many(1000, timeout=0.2))

        await asyncio.wait_for(spread(), PATIENCE)


async def test_a_pattern_takes_those_that_match(client: Any, service: PulsarService, topic: str) -> None:
    service.create_topic(f"{topic}-parts", 2)
    pattern = re.compile(re.escape(topic.removeprefix("non-persistent://")) + ".*")
    async with client.consumer(
        pattern, "s", topics_domain="non-persistent", pattern_update_interval=0.2
    ) as consumer:
        async with client.producer(topic) as plain, client.producer(f"{topic}-parts") as parts:
            got: set[str] = set()

            async def both() -> None:
                while len(got) < 2:
                    await plain.send(b"plain")
                    await parts.send(b"parts")
                    got.update(payloads(await consumer.receive_many(100, timeout=0.2)))

            await asyncio.wait_for(both(), PATIENCE)


async def test_an_exclusive_producer_is_alone(client: Any, topic: str) -> None:
    async with client.producer(topic, access_mode="exclusive") as producer:
        with pytest.raises(errors.ProducerBusy):
            await client.producer(topic)
        async with client.consumer(topic, "s") as consumer:
            await producer.send(b"x")
            assert payloads(await receive(consumer, 1)) == [b"x"]
    async with client.producer(topic) as producer:
        await producer.send(b"y")


async def test_a_sequence_id_may_come_again(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer:
        for payload in (b"1", b"2"):
            async with client.producer(topic, name="p", batching=False) as producer:
                await producer.send(payload, sequence_id=5)
        assert payloads(await receive(consumer, 2)) == [b"1", b"2"]


async def test_schemas_are_checked(client: Any, topic: str) -> None:
    async with client.producer(topic, schema="string") as producer:
        assert (await client.schema(topic)).type == "String"
        with pytest.raises(errors.IncompatibleSchema):
            await client.producer(topic, schema="int32")
        with pytest.raises(errors.IncompatibleSchema):
            await client.consumer(topic, "s", schema="int32")
        async with client.consumer(topic, "s", schema="string") as consumer:
            await producer.send("text")
            assert (await consumer.receive(timeout=PATIENCE)).value == "text"


async def test_a_deleted_topic_sends_its_users_away_and_they_come_back(
    client: Any, service: PulsarService, topic: str
) -> None:
    async with client.producer(topic) as producer, client.consumer(topic, "s") as consumer:
        await producer.send(b"x")
        assert payloads(await receive(consumer, 1)) == [b"x"]
        service.delete_topic(topic)

        async def again() -> None:
            got: list[Any] = []
            while not got:
                await producer.send(b"y")
                got = await consumer.receive_many(10, timeout=0.2)

        await asyncio.wait_for(again(), PATIENCE)


async def test_it_cannot_be_terminated(client: Any, service: PulsarService, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(Exception, match=r"406|NotAllowed"):
            service.terminate_topic(topic)
        await producer.send(b"x")


async def test_a_consumer_that_does_not_read_misses_messages(client: Any, topic: str) -> None:
    async with (
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "slow", receiver_queue=10) as slow,
        client.consumer(topic, "quick") as quick,
    ):
        taken = asyncio.ensure_future(receive(quick, 200))
        await producer.send_many(numbered(200))
        assert payloads(await taken) == numbered(200)
        got: list[bytes] = []
        while part := payloads(await slow.receive_many(100, timeout=0.5)):
            got += part
        # What it had room for, and nothing of the rest later.
        assert got == numbered(200)[: len(got)] and 10 <= len(got) < 100
        await producer.send(b"next")
        assert payloads(await receive(slow, 1)) == [b"next"]


# -------------------------------------------------------------------------------- frames by hand


@pytest.fixture
def peer(service: PulsarService, topic: str) -> Iterator[wire.Peer]:
    """A connection that has looked the topic up."""
    host, port = service.url.removeprefix("pulsar://").split(":")
    peer = wire.Peer(socket.create_connection((host, int(port))))
    peer.send(wire.frame(wire.CONNECT, {1: "test", 4: 21, 10: {1: 1, 2: 1}}))
    peer.send(wire.frame(wire.LOOKUP, {1: topic, 2: 1, 3: 0}))
    hear(peer, wire.CONNECTED, wire.LOOKUP_RESPONSE)
    yield peer
    peer.close()


def hear(peer: wire.Peer, *kinds: int) -> list[tuple[dict[int, list[Any]], bytes]]:
    """The next commands, which must be of these kinds."""
    heard = []
    for kind in kinds:
        while True:
            frame = peer.read()
            assert frame is not None, "the connection was closed"
            if frame[0] == wire.PING:
                peer.send(wire.frame(wire.PONG))
                continue
            break
        assert frame[0] == kind, frame
        heard.append(frame[1:])
    return heard


def test_permits_are_those_of_now(peer: wire.Peer, topic: str) -> None:
    def send(sequence: int, count: int = 0) -> None:
        payload = b"\0\0\0\2\x18\1x" * count or b"m%d" % sequence
        metadata = {11: count} if count else {}
        peer.send(wire.frame(wire.SEND, {1: 1, 2: sequence}, rest=wire.entry(payload, metadata)))

    def message() -> bytes:
        ((fields, rest),) = hear(peer, wire.MESSAGE)
        # Ledger 0, entry 0, and no metadata of the broker ahead of the entry.
        assert wire.parse(fields[2][0])[1] == wire.parse(fields[2][0])[2] == [0]
        assert rest[:2] == b"\x0e\x01"
        return rest

    peer.send(wire.frame(wire.SUBSCRIBE, {1: topic, 2: "s", 3: 0, 4: 1, 5: 2, 19: 3}))
    peer.send(wire.frame(wire.PRODUCER, {1: topic, 2: 1, 3: 3}))
    hear(peer, wire.SUCCESS, wire.PRODUCER_SUCCESS)
    send(0)
    ((receipt, _),) = hear(peer, wire.SEND_RECEIPT)
    assert wire.parse(receipt[3][0]) == {1: [0], 2: [0]}
    # What came before the permits does not come with them.
    peer.send(wire.frame(wire.FLOW, {1: 1, 2: 1}))
    send(1, count=3)
    hear(peer, wire.SEND_RECEIPT)
    assert message().endswith(b"x")
    # The batch has overdrawn the permits by 2.
    peer.send(wire.frame(wire.FLOW, {1: 1, 2: 2}))
    send(2)
    hear(peer, wire.SEND_RECEIPT)
    peer.send(wire.frame(wire.FLOW, {1: 1, 2: 1}))
    send(3)
    hear(peer, wire.SEND_RECEIPT)
    assert message().endswith(b"m3")
    # Acknowledgements are answered.
    peer.send(wire.frame(wire.ACK, {1: 1, 2: 0, 3: {1: 0, 2: 0}, 8: 9}))
    ((answer, _),) = hear(peer, wire.ACK_RESPONSE)
    assert 4 not in answer
    for target in ({3: {1: 0, 2: 0}}, {4: int(time.time())}):
        peer.send(wire.frame(wire.SEEK, {1: 1, 2: 10} | target))
        hear(peer, wire.SUCCESS)


async def test_what_is_dropped_is_counted(embedded: EmbeddedPulsar) -> None:
    topic = "non-persistent://public/default/counted"
    before = embedded.call("status")["pulsar"]["messages_dropped"]
    async with forebay.connect(embedded.url) as client:
        async with (
            client.producer(topic, batching=False) as producer,
            client.consumer(topic, "s", receiver_queue=1),
        ):
            await producer.send_many(numbered(100))
            (stats,) = embedded.call("topic_stats", topic)["subscriptions"]
            assert stats["dropped"] > 0 and not stats["durable"]
            delivered = sum(consumer["delivered"] for consumer in stats["consumers"])
            assert stats["dropped"] + delivered == 100
            assert embedded.call("status")["pulsar"]["messages_dropped"] - before == stats["dropped"]
            assert topic in embedded.call("topics")
