"""Listeners: order by key, back-pressure, callbacks that raise or hang, and the end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import gather, nothing, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, eventually, until


@pytest.fixture
def blocking(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url) as client:
        yield client


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("form", ["async", "plain"])
async def test_each_message_is_handled_and_acknowledged(
    client: Any, topic: str, concurrency: int, form: str
) -> None:
    got: list[bytes] = []

    def plain(message: Any) -> None:
        got.append(bytes(message.data))

    async def waits(message: Any) -> None:
        await asyncio.sleep(0)
        plain(message)

    callback = plain if form == "plain" else waits
    async with client.consumer(topic, "s", ack_group_time=0.01) as consumer:
        async with consumer.listen(callback, concurrency=concurrency) as listener:
            async with client.producer(topic) as producer:
                await producer.send_many(numbered(2000))
            await until(lambda: listener.stats()["handled"] == 2000)
        assert got == numbered(2000)
        assert listener.stats() == {"handled": 2000, "failed": 0, "running": 0, "waiting": 0}
    async with client.consumer(topic, "s") as consumer:
        await nothing(consumer)


async def test_messages_of_a_key_are_in_order_and_keys_side_by_side(client: Any, topic: str) -> None:
    running: set[str] = set()
    most = 0
    got: dict[str, list[bytes]] = {}

    async def callback(message: Any) -> None:
        nonlocal most
        assert message.key not in running
        running.add(message.key)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        got.setdefault(message.key, []).append(bytes(message.data))
        running.remove(message.key)

    keys = [str(number % 7) for number in range(210)]
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic) as producer,
        consumer.listen(callback, concurrency=4) as listener,
    ):
        await producer.send_many(numbered(210), keys)
        await until(lambda: listener.stats()["handled"] == 210)
    assert listener.stats()["failed"] == 0
    assert got == {str(key): numbered(210)[key::7] for key in range(7)}
    assert 2 <= most <= 4


async def test_partitions_that_are_added_are_heard(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=1)
    got: set[bytes] = set()
    async with client.consumer(topic, "s", partitions_update_interval=0.1) as consumer:
        async with consumer.listen(lambda message: got.add(bytes(message.data)), concurrency=4):
            service.grow_topic(topic, 4)
            async with client.producer(topic) as producer:
                ids = await producer.send_many(numbered(200), [str(number) for number in range(200)])
            assert {id.partition for id in ids} == {0, 1, 2, 3}
            await until(lambda: got == set(numbered(200)))


async def test_what_is_handed_back_comes_before_what_was_fetched_behind_it(client: Any, topic: str) -> None:
    async def waits(message: Any) -> None:
        await asyncio.Event().wait()

    async with client.consumer(topic, "s") as consumer, client.producer(topic, batching=False) as producer:
        await producer.send_many(numbered(30))
        async with consumer.listen(waits, ahead=5, stop_timeout=0) as listener:
            await until(lambda: listener.stats()["running"] == 1)
        order = dict.fromkeys(payloads(await receive(consumer, 30)))
        while len(order) < 30:
            order[bytes((await consumer.receive(timeout=PATIENCE)).data)] = None
        assert list(order) == numbered(30)


async def test_without_order_messages_of_a_key_run_side_by_side(client: Any, topic: str) -> None:
    started = 0
    all_run = asyncio.Event()

    async def callback(message: Any) -> None:
        nonlocal started
        started += 1
        if started == 4:
            all_run.set()
        await all_run.wait()

    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        async with consumer.listen(callback, concurrency=4, ordered=False) as listener:
            await producer.send_many(numbered(4), ["k"] * 4)
            await until(lambda: listener.stats()["handled"] == 4)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_a_message_whose_callback_raises_comes_again_and_the_consumer_lives(
    client: Any, topic: str, concurrency: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    raised = False

    async def callback(message: Any) -> None:
        nonlocal raised
        if message.data == b"m000002" and not raised:
            raised = True
            raise RuntimeError("no stock")
        got.append(bytes(message.data))

    async with (
        client.consumer(topic, "s", type=kind, nack_delay=0.1) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        with caplog.at_level(logging.ERROR, "forebay.listener"):
            async with consumer.listen(callback, concurrency=concurrency) as listener:
                await gather(*[producer.send(payload) for payload in numbered(5)])
                await until(lambda: set(got) == set(numbered(5)))
        assert listener.stats()["failed"] == 1
        assert [record for record in caplog.records if "no stock" in record.getMessage()]
        await nothing(consumer)


async def test_a_callback_that_hangs_keeps_only_its_key_from_going_on(client: Any, topic: str) -> None:
    hangs = asyncio.Event()
    got: list[str] = []

    async def callback(message: Any) -> None:
        if message.key == "hangs":
            await hangs.wait()
        got.append(message.key)

    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        async with consumer.listen(callback, concurrency=2) as listener:
            await producer.send_many(numbered(3), ["hangs"] * 3)
            await producer.send_many(numbered(50), [str(number) for number in range(50)])
            await until(lambda: len(got) == 50)
            assert listener.stats() == {"handled": 50, "failed": 0, "running": 1, "waiting": 2}
            hangs.set()
            await until(lambda: len(got) == 53)


async def test_what_waits_for_a_callback_is_bounded(client: Any, topic: str) -> None:
    goes_on = asyncio.Event()

    async def callback(message: Any) -> None:
        await goes_on.wait()

    async with client.consumer(topic, "s", receiver_queue=10) as consumer, client.producer(topic) as producer:
        async with consumer.listen(callback, concurrency=3, ahead=5) as listener:
            await producer.send_many(numbered(100), [str(number) for number in range(100)])
            await until(lambda: (listener.stats()["running"], listener.stats()["waiting"]) == (3, 5))
            goes_on.set()
            await until(lambda: listener.stats()["handled"] == 100)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_stopping_waits_for_callbacks_and_hands_the_rest_back(
    client: Any, topic: str, concurrency: int, kind: str
) -> None:
    goes_on = asyncio.Event()
    got: list[bytes] = []

    async def callback(message: Any) -> None:
        await goes_on.wait()
        got.append(bytes(message.data))

    async with (
        client.consumer(topic, "s", type=kind) as consumer,
        client.producer(topic, batching=False) as producer,
    ):
        sent = numbered(20)
        await producer.send_many(sent, [str(number) for number in range(20)])
        listener = consumer.listen(callback, concurrency=concurrency)
        await until(lambda: listener.stats()["running"] == concurrency)
        stopping = asyncio.ensure_future(listener.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        goes_on.set()
        await stopping
        await listener.wait()
        assert len(got) == concurrency
        rest: list[bytes] = []
        while set(got + rest) != set(sent):
            rest.append(bytes((await consumer.receive(timeout=PATIENCE)).data))
        # Exclusive consumers have everything delivered again, also what is on its way.
        if kind == "shared":
            assert sorted(got + rest) == sent
            await nothing(consumer)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_callback_that_does_not_end_is_cancelled_and_its_message_handed_back(
    client: Any, topic: str, concurrency: int
) -> None:
    async def callback(message: Any) -> None:
        await asyncio.Event().wait()

    async with client.consumer(topic, "s", type="shared") as consumer, client.producer(topic) as producer:
        listener = consumer.listen(callback, concurrency=concurrency, stop_timeout=0.05)
        await producer.send_many(numbered(5), list("abcde"))
        await until(lambda: listener.stats()["running"] == concurrency)
        await listener.stop()
        assert listener.stats() == {"handled": 0, "failed": 0, "running": 0, "waiting": 0}
        assert sorted(payloads(await receive(consumer, 5))) == numbered(5)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_closing_the_consumer_stops_its_listener(client: Any, topic: str, concurrency: int) -> None:
    ended: list[bytes] = []

    async def callback(message: Any) -> None:
        await asyncio.sleep(0.05)
        ended.append(bytes(message.data))

    async with client.producer(topic) as producer:
        consumer = await client.consumer(topic, "s", type="shared")
        listener = consumer.listen(callback, concurrency=concurrency)
        await producer.send_many(numbered(10), list("abcdefghij"))
        await until(lambda: listener.stats()["running"])
        await consumer.close()
        await listener.wait()
        async with client.consumer(topic, "s", type="shared") as consumer:
            rest = payloads(await receive(consumer, 10 - len(ended)))
            assert sorted(ended + rest) == numbered(10)
            await nothing(consumer)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_callback_may_stop_its_listener(client: Any, topic: str, concurrency: int) -> None:
    async with (
        client.consumer(topic, "s", type="shared") as consumer,
        client.producer(topic, batching=False) as producer,
    ):

        async def callback(message: Any) -> None:
            await listener.stop()

        listener = consumer.listen(callback, concurrency=concurrency)
        await producer.send_many(numbered(3))
        async with asyncio.timeout(PATIENCE):
            await listener.wait()
        await until(lambda: listener.stats()["handled"] == 1)
        assert len(await receive(consumer, 2)) == 2
        await nothing(consumer)


async def test_a_callback_may_close_its_consumer(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        consumer = await client.consumer(topic, "s")

        async def callback(message: Any) -> None:
            await consumer.close()

        listener = consumer.listen(callback)
        await producer.send(b"x")
        async with asyncio.timeout(PATIENCE):
            await listener.wait()
        await until(lambda: consumer.closed)


async def test_a_callback_may_close_its_client(service: PulsarService, topic: str) -> None:
    client = await forebay.connect(service.url)
    consumer = await client.consumer(topic, "s", position="earliest")
    async with client.producer(topic) as producer:
        await producer.send(b"x")

    async def callback(message: Any) -> None:
        await client.close()

    listener = consumer.listen(callback)
    async with asyncio.timeout(PATIENCE):
        await listener.wait()
    await until(lambda: client.closed)


async def test_a_cancelled_wait_within_a_callback_is_a_failure(client: Any, topic: str) -> None:
    got: list[int] = []

    async def callback(message: Any) -> None:
        got.append(message.redelivery_count)
        if len(got) == 1:
            raise asyncio.CancelledError

    async with client.consumer(topic, "s", type="shared", nack_delay=0) as consumer:
        async with client.producer(topic) as producer, consumer.listen(callback) as listener:
            await producer.send(b"x")
            await until(lambda: listener.stats()["handled"] == 1)
            assert (got, listener.stats()["failed"]) == ([0, 1], 1)


async def test_with_manual_acknowledgement_the_callback_decides(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", type="shared", nack_delay=0) as consumer:
        got: list[bytes] = []

        async def callback(message: Any) -> None:
            got.append(bytes(message.data))
            if len(got) == 1:
                await consumer.nack(message)
            else:
                await consumer.ack(message)

        async with consumer.listen(callback, ack="manual"), client.producer(topic) as producer:
            await producer.send(b"x")
            await until(lambda: got == [b"x", b"x"])
        await nothing(consumer)


async def test_receipts_of_acknowledgements_are_waited_for(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s", ack_receipt=True) as consumer, client.producer(topic) as producer:
        async with consumer.listen(lambda message: None) as listener:
            await producer.send_many(numbered(50))
            await until(lambda: listener.stats()["handled"] == 50)
    async with client.consumer(topic, "s") as consumer:
        await nothing(consumer)


async def test_a_listener_of_a_reader(client: Any, topic: str) -> None:
    got: list[bytes] = []
    async with client.producer(topic) as producer:
        await producer.send_many(numbered(10))
        async with client.reader(topic, position="earliest") as reader:
            async with reader.listen(lambda message: got.append(bytes(message.data))):
                await until(lambda: got == numbered(10))


@pytest.mark.parametrize(
    "wrong",
    [{"callback": 3}, {"concurrency": 0}, {"ack": "never"}, {"ahead": 0}, {"stop_timeout": "soon"}],
    ids=str,
)
async def test_a_bad_argument_is_named(client: Any, topic: str, wrong: dict[str, Any]) -> None:
    async with client.consumer(topic, "s") as consumer:
        with pytest.raises(errors.InvalidArgument, match=next(iter(wrong))):
            consumer.listen(**{"callback": print, **wrong})
    with pytest.raises(errors.Closed):
        consumer.listen(print)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_threads_handle_and_acknowledge(blocking: Any, topic: str, concurrency: int) -> None:
    got: dict[str, list[bytes]] = {}
    raised = threading.Event()

    def callback(message: Any) -> None:
        if message.data == b"m000005" and not raised.is_set():
            raised.set()
            raise RuntimeError("no stock")
        got.setdefault(message.key, []).append(bytes(message.data))

    with blocking.producer(topic, batching=False) as producer:
        with blocking.consumer(topic, "s", type="shared", nack_delay=0) as consumer:
            with consumer.listen(callback, concurrency=concurrency) as listener:
                producer.send_many(numbered(400), [str(number % 4) for number in range(400)])
                eventually(lambda: listener.stats()["handled"] == 400)
            assert listener.stats() == {"handled": 400, "failed": 1, "running": 0, "waiting": 0}
        with blocking.consumer(topic, "s", type="shared") as consumer:
            assert consumer.receive_many(10, timeout=0.3) == []
    again = numbered(400)[5]
    assert {key: [data for data in row if data != again] for key, row in got.items()} == {
        str(key): [data for data in numbered(400)[key::4] if data != again] for key in range(4)
    }


@pytest.mark.parametrize("concurrency", [1, 4])
def test_threads_that_are_stopped_hand_the_rest_back(blocking: Any, topic: str, concurrency: int) -> None:
    goes_on = threading.Event()
    got: list[bytes] = []

    def callback(message: Any) -> None:
        goes_on.wait(PATIENCE)
        got.append(bytes(message.data))

    with blocking.producer(topic, batching=False) as producer:
        with blocking.consumer(topic, "s", type="shared") as consumer:
            producer.send_many(numbered(12), list("abcdefghijkl"))
            listener = consumer.listen(callback, concurrency=concurrency)
            eventually(lambda: listener.stats()["running"] == concurrency)
            stopping = threading.Thread(target=listener.stop)
            stopping.start()
            goes_on.set()
            stopping.join(PATIENCE)
            assert listener.wait(timeout=PATIENCE)
            rest = []
            while len(got) + len(rest) < 12:
                rest += payloads(consumer.receive_many(12, timeout=PATIENCE))
            assert sorted(got + rest) == numbered(12)
            assert consumer.receive_many(10, timeout=0.3) == []


def test_closing_does_not_wait_forever_for_a_thread(blocking: Any, topic: str) -> None:
    goes_on = threading.Event()
    with blocking.producer(topic) as producer, blocking.consumer(topic, "s", type="shared") as consumer:
        listener = consumer.listen(lambda message: goes_on.wait(60), stop_timeout=0.1)
        producer.send(b"x")
        eventually(lambda: listener.stats()["running"] == 1)
    assert consumer.closed
    goes_on.set()
    eventually(lambda: listener.stats()["running"] == 0)
