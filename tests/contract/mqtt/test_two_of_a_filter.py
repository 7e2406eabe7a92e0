"""Consumers of one client whose filters are the same or overlap: each gets each message, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import forebay

from support.messages import gather, nothing, numbered, payloads
from support.mqtt.harness import MqttService, take
from support.mqtt.wire import V5, V311
from support.waiting import until

WORDS = {V311: "3.1.1", V5: "5"}
BOTH = pytest.mark.parametrize("version", WORDS, ids=WORDS.values(), indirect=True)

MOSQUITTO = pytest.param("mosquitto", marks=pytest.mark.real_mqtt)
Connect = Callable[..., Any]


@pytest.fixture
def connect(broker: MqttService, version: int, patience: float) -> Connect:
    def make(**options: Any) -> Any:
        options = {"connect_timeout": patience} | options
        return forebay.connect(broker.url, version=WORDS[version], **options)

    return make


@BOTH
@pytest.mark.parametrize("first_to_close", [0, 1, 2])
async def test_each_consumer_of_a_filter_gets_each_message(
    connect: Connect, topic: str, first_to_close: int
) -> None:
    async with connect() as client:
        consumers = [await client.subscribe(f"{topic}/#", qos=qos) for qos in (1, 0, 2)]
        await client.publish(f"{topic}/a", b"to all", qos=1)
        for consumer in consumers:
            assert payloads(await take(consumer, 1)) == [b"to all"]
        await consumers.pop(first_to_close).close()
        await client.publish(f"{topic}/a", b"to two", qos=1)
        for consumer in consumers:
            assert payloads(await take(consumer, 1)) == [b"to two"]
        # And one that comes later.
        consumers.append(await client.subscribe(f"{topic}/#", qos=1))
        await client.publish(f"{topic}/a", b"to three", qos=1)
        for consumer in consumers:
            assert payloads(await take(consumer, 1)) == [b"to three"]
            await nothing(consumer, 0.05)


@BOTH
async def test_the_highest_qos_that_a_consumer_of_the_filter_asks_for_holds(
    connect: Connect, topic: str
) -> None:
    async with connect() as client:
        async with client.subscribe(topic, qos=1) as exact, client.consumer(topic, qos=0) as loose:
            await client.publish(topic, b"x", qos=1)
            assert [message.qos for message in await take(exact, 1)] == [1]
            # It asked for QoS 0, and acknowledges nothing.
            assert [message.qos for message in await take(loose, 1)] == [0]


@BOTH
async def test_a_consumer_that_acknowledges_nothing_stops_no_other(
    connect: Connect, topic: str, patience: float
) -> None:
    """A broker has one copy for both, or has 20 messages on their way at most."""
    async with connect() as client, connect() as other:
        async with (
            client.consumer(f"{topic}/#", qos=0) as loose,
            client.subscribe(f"{topic}/x", qos=1) as exact,
        ):
            async with other.producer(f"{topic}/x", qos=1) as producer:
                await producer.send_many(numbered(500))
            assert payloads(await take(exact, 500, patience)) == numbered(500)
            assert payloads(await take(loose, 500, patience)) == numbered(500)


# HiveMQ sends MQTT 3 clients some of the copies, and grants shared subscriptions QoS 1 at most.
@pytest.mark.parametrize("broker", ["embedded_mqtt", MOSQUITTO], indirect=True)
@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_shared_subscription_beside_one_of_its_own_gives_each_message_once(
    connect: Connect, topic: str, qos: int
) -> None:
    async with connect() as client, connect() as other:
        consumers = [
            await client.subscribe(pattern, qos=qos)
            for pattern in (f"$share/group/{topic}/+", f"{topic}/#", f"{topic}/+")
        ]
        for payload in numbered(4):
            await other.publish(f"{topic}/x", payload, qos=qos)
        for consumer in consumers:
            assert payloads(await take(consumer, 4)) == numbered(4)
            await nothing(consumer, 0.05)


@BOTH
@pytest.mark.parametrize("kept", [False, True], ids=["clean", "kept"])
async def test_a_neighbour_that_closes_leaves_no_copies(
    connect: Connect, topic: str, patience: float, kept: bool
) -> None:
    session: dict[str, Any] = {"client_id": topic.replace("/", "-"), "clean_start": False} if kept else {}
    async with connect(**session) as client, connect() as other:
        wide = await client.subscribe(f"{topic}/#", qos=2)
        got: list[int] = []
        sent = 0
        stop = asyncio.Event()

        async def read() -> None:
            async for message in wide:
                got.append(int(message.data))

        async def publish() -> None:
            nonlocal sent
            async with other.producer(f"{topic}/x", qos=2) as producer:
                while not stop.is_set():
                    await producer.send_many([b"%d" % number for number in range(sent, sent + 20)])
                    sent += 20

        reading, publishing = asyncio.create_task(read()), asyncio.create_task(publish())
        for _ in range(10):
            narrow = await client.subscribe(f"{topic}/+", qos=2)
            for _ in range(20):
                await narrow.receive(timeout=patience)
            await narrow.close()
        stop.set()
        await publishing
        async with asyncio.timeout(patience):
            while len(set(got)) < sent:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        reading.cancel()
        assert got == list(range(sent)), "each once, in order"
        await wide.unsubscribe()


@BOTH
async def test_a_job_has_one_of_the_workers_of_a_client(
    connect: Connect, topic: str, patience: float
) -> None:
    async with connect() as client, connect() as other:
        workers = [await client.subscribe(f"$share/group/{topic}", qos=1) for _ in range(3)]
        async with other.producer(topic, qos=1) as producer:
            await producer.send_many(numbered(90))
        jobs: list[bytes] = []
        async with asyncio.timeout(patience):
            while len(jobs) < 90:
                for worker in workers:
                    jobs += payloads(await worker.receive_many(100, timeout=0.01))
        for worker in workers:
            await nothing(worker, 0.05)
        assert sorted(jobs) == numbered(90)


# HiveMQ mostly sends fewer than the 20 that the warning waits for.
@pytest.mark.parametrize(
    "broker", ["embedded_mqtt", pytest.param("mosquitto", marks=pytest.mark.real_mqtt)], indirect=True
)
async def test_a_consumer_that_is_not_read_is_named(
    connect: Connect, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def held_up() -> list[str]:
        return [record.message for record in caplog.records if "are not received" in record.message]

    async with connect() as client, connect() as sender:
        slow = await client.subscribe(f"{topic}/slow", qos=1)
        with caplog.at_level("WARNING", "forebay"):
            await gather(*[sender.publish(f"{topic}/slow", b"x", qos=1) for _ in range(150)])
            await asyncio.sleep(1.5)
            assert not held_up(), "there is no other"
            other = await client.subscribe(f"{topic}/other", qos=1)
            await until(lambda: len(held_up()) == 1)
        assert f"'{topic}/slow'" in held_up()[0].replace('"', "'")
        await sender.publish(f"{topic}/other", b"alarm", qos=1)
        assert len(await take(slow, 150)) == 150
        assert payloads(await take(other, 1)) == [b"alarm"]
        assert len(held_up()) == 1
