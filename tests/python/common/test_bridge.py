"""The bridge between the engine and Python: which outcome reaches which caller, on which thread, and what
happens to callers that stopped waiting."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

import forebay

from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.mqtt.proxy import Proxy
from support.waiting import PATIENCE


@pytest.fixture
def topic(embedded: Any) -> str:
    return embedded.topic()


@pytest_asyncio.fixture
async def client(embedded: Any) -> AsyncIterator[forebay.Client]:
    async with forebay.connect(embedded.url) as client:
        yield client


def numbered(count: int) -> list[bytes]:
    return [str(i).encode() for i in range(count)]


async def test_a_cancelled_receive_takes_no_message(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    await producer.send(b"kept")
    assert (await consumer.receive(timeout=PATIENCE)).data == b"kept"


@pytest.mark.parametrize("verb", ["receive", "receive_many", "anext"])
async def test_cancelling_at_any_moment_loses_nothing(client: forebay.Client, topic: str, verb: str):
    """Includes the moment in which the message is between the engine and the future."""
    count = 2000
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)

    async def trickle():
        for body in numbered(count):
            await producer.send(body)

    sending = asyncio.ensure_future(trickle())
    seen: list[bytes] = []
    cancelled = 0
    deadline = time.monotonic() + 60
    while len(seen) < count and time.monotonic() < deadline:
        match verb:
            case "receive":
                future = consumer.receive()
            case "receive_many":
                future = consumer.receive_many(10)
            case _:
                future = consumer.__anext__()
                if not asyncio.isfuture(future):
                    seen.append((await future).data)
                    continue
        for _ in range(cancelled % 4):
            await asyncio.sleep(0)
        if not future.done():
            future.cancel()
            cancelled += 1
            await asyncio.sleep(0)
            continue
        result = future.result()
        seen += [message.data for message in (result if isinstance(result, list) else [result])]
    await sending
    assert seen == numbered(count)
    assert cancelled > 10


async def test_a_receive_whose_time_is_over_loses_nothing(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)

    async def trickle():
        for body in numbered(300):
            await producer.send(body)
            await asyncio.sleep(0.001)

    sending = asyncio.ensure_future(trickle())
    seen: list[bytes] = []
    while len(seen) < 300:
        try:
            seen.append((await consumer.receive(timeout=0.001)).data)
        except forebay.Timeout:
            assert not sending.done() or sending.exception() is None
    assert seen == numbered(300)
    await sending


async def test_the_time_of_one_wait_is_not_that_of_another(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    patient = asyncio.ensure_future(consumer.receive())
    hasty = asyncio.ensure_future(consumer.receive(timeout=0.05))
    many = asyncio.ensure_future(consumer.receive_many(10, timeout=0.05))
    with pytest.raises(forebay.Timeout):
        await hasty
    assert await many == []
    assert not patient.done()
    await producer.send(b"for the patient")
    assert (await patient).data == b"for the patient"


async def test_waits_are_served_in_their_order(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    waits = [asyncio.ensure_future(consumer.receive()) for _ in range(50)]
    await asyncio.sleep(0)
    await producer.send_many(numbered(50))
    assert [message.data for message in await asyncio.gather(*waits)] == numbered(50)


async def test_gather_over_anext_gives_each_message_once(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    await producer.send_many(numbered(600))
    seen: list[bytes] = []
    while len(seen) < 600:
        messages = await asyncio.gather(anext(consumer), anext(consumer), anext(consumer))
        seen += [message.data for message in messages]
    assert seen == numbered(600)


async def test_an_anext_works_wherever_an_awaitable_does(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    await producer.send_many(numbered(4))
    assert (await consumer.receive(timeout=PATIENCE)).data == b"0"  # from here on they are available at once
    assert (await asyncio.wait_for(anext(consumer), PATIENCE)).data == b"1"
    assert (await asyncio.ensure_future(anext(consumer))).data == b"2"  # type: ignore[arg-type]
    by_hand = consumer.__anext__().__await__()
    with pytest.raises(StopIteration) as end:
        next(by_hand)
    assert end.value.value.data == b"3"
    with pytest.raises(RuntimeError, match="awaited already"):
        next(by_hand)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(consumer), 0.02)
    await producer.send(b"4")
    assert (await anext(consumer)).data == b"4"


async def test_an_anext_that_nobody_awaits_gives_its_message_back(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    await producer.send_many(numbered(3))
    assert (await consumer.receive(timeout=PATIENCE)).data == b"0"
    consumer.__anext__()
    assert (await anext(consumer)).data == b"1"
    task = asyncio.ensure_future(anext(consumer))  # type: ignore[arg-type]
    task.cancel()  # before its first step
    await asyncio.wait([task])
    del task
    assert (await consumer.receive(timeout=PATIENCE)).data == b"2"


async def test_a_loop_over_a_full_queue_lets_others_run(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    await producer.send_many(numbered(5000))
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    left = 5000
    async for _ in consumer:
        left -= 1
        if not left:
            break
    task.cancel()
    assert turns >= 5000 // 256


async def test_an_iteration_ends_with_its_consumer(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")

    async def iterate():
        async for _ in consumer:
            pass

    task = asyncio.ensure_future(iterate())
    await asyncio.sleep(0.01)
    await consumer.close()
    done, _ = await asyncio.wait([task], timeout=PATIENCE)
    assert done, "the iteration hangs"
    error = task.exception()
    assert error is None or isinstance(error, forebay.errors.Closed)


async def test_cancelling_a_send_does_not_unsend(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic)
    futures = [producer.send(body) for body in numbered(100)]
    for future in futures[::2]:
        future.cancel()
    ids = await asyncio.gather(*futures[1::2])
    assert ids == sorted(ids)
    await producer.flush()
    messages: list[Any] = []
    while len(messages) < 100:
        messages += await consumer.receive_many(100, timeout=PATIENCE)
    assert [message.data for message in messages] == numbered(100)
    assert [message.id for message in messages[1::2]] == ids


async def test_all_ways_of_sending_keep_one_order(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic, max_pending=10_000)
    bodies = numbered(500)
    done: list[str] = []
    flushes = []
    for i in range(0, 500, 5):
        producer.send(bodies[i]).add_done_callback(lambda _: done.append("send"))
        producer.send_nowait(bodies[i + 1])
        many = asyncio.ensure_future(producer.send_many(bodies[i + 2 : i + 5]))
        many.add_done_callback(lambda _: done.append("many"))
        flushes.append(asyncio.ensure_future(producer.flush()))
    await asyncio.gather(*flushes)
    assert done.count("send") == done.count("many") == 100
    seen: list[bytes] = []
    while len(seen) < 500:
        seen += [message.data for message in await consumer.receive_many(1000, timeout=PATIENCE)]
    assert seen == bodies


async def test_a_message_ends_before_those_behind_it(client: forebay.Client, topic: str):
    """Whichever thread handles their outcomes."""
    producer = await client.producer(topic)
    for number in range(200):
        single = producer.send(b"1")
        many = producer.send_many([b"2", b"3"])
        producer.send_nowait(b"4")
        await (producer.flush() if number % 2 else many)
        assert single.done() and (many.done() or not number % 2)
        await many


async def test_outcomes_without_a_future_do_not_wake_the_loop(
    embedded_mqtt: MqttService, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.get_running_loop()
    add_reader = loop.add_reader
    wakes = 0

    def counted(fd: int, callback: Callable[[], None]) -> None:
        def call() -> None:
            nonlocal wakes
            wakes += 1
            callback()

        add_reader(fd, call)

    def one_by_one(_passage: object, _origin: str, packet: wire.Packet) -> str:
        if packet.kind == wire.PUBACK:
            time.sleep(0.01)
        return "pass"

    monkeypatch.setattr(loop, "add_reader", counted)
    with Proxy(embedded_mqtt.port) as proxy:
        proxy.verdict = one_by_one
        async with forebay.connect(proxy.url) as client:
            async with client.producer(embedded_mqtt.topic(), qos=1) as producer:
                before = wakes
                assert len(await producer.send_many([b"x"] * 30)) == 30
                for _ in range(30):
                    producer.send_nowait(b"x")
                await producer.flush()
                assert 2 <= wakes - before < 10


async def test_a_window_smaller_than_the_call_is_no_limit(client: forebay.Client, topic: str):
    consumer = await client.consumer(topic, "s")
    producer = await client.producer(topic, max_pending=100)
    ids = await producer.send_many(numbered(5000))
    assert len(ids) == 5000
    assert list(ids) == sorted(ids)
    messages: list[Any] = []
    while len(messages) < 5000:
        messages += await consumer.receive_many(1000, timeout=PATIENCE)
    assert [message.id for message in messages] == list(ids)


def test_one_process_may_run_loop_after_loop(embedded: Any):
    topic = embedded.topic()

    async def once(body: bytes) -> bytes:
        async with forebay.connect(embedded.url) as client:
            async with client.consumer(topic, "s", position="earliest") as consumer:
                async with client.producer(topic) as producer:
                    await producer.send(body)
                message = await consumer.receive(timeout=PATIENCE)
                await consumer.ack(message)
                return message.data

    assert [asyncio.run(once(body)) for body in numbered(3)] == numbered(3)


def test_a_loop_that_ends_with_work_open_troubles_no_other(embedded: Any):
    topic = embedded.topic()
    kept: list[Any] = []

    async def leave_things_open():
        client = await forebay.connect(embedded.url)
        consumer = await client.consumer(topic, "left")
        producer = await client.producer(topic)
        kept.extend([client, consumer, producer, consumer.receive(), producer.send(b"late")])

    async def live():
        async with forebay.connect(embedded.url) as client, client.producer(topic) as producer:
            for body in numbered(100):
                await producer.send(body)

    asyncio.run(leave_things_open())
    asyncio.run(live())
    for handle in kept[:3]:
        handle._forget()
        handle._open = False


def test_two_loops_live_beside_each_other(embedded: Any):
    topics = [embedded.topic(), embedded.topic()]
    results: list[list[bytes]] = [[], []]

    async def live(i: int):
        async with forebay.connect(embedded.url) as client:
            async with client.consumer(topics[i], "s") as consumer, client.producer(topics[i]) as producer:
                for body in numbered(300):
                    producer.send(body)
                    results[i].append((await consumer.receive(timeout=PATIENCE)).data)

    threads = [threading.Thread(target=lambda i=i: asyncio.run(live(i))) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [numbered(300)] * 2


def test_threads_that_share_a_full_producer_do_not_lock_each_other(embedded: Any):
    with forebay.blocking.connect(embedded.url) as client:
        producer = client.producer(embedded.topic(), max_pending=10)
        refused = [0] * 4

        def flood(i: int):
            for _ in range(3000):
                try:
                    producer.send_nowait(b"x")
                except forebay.QueueFull:
                    refused[i] += 1

        switch = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            threads = [threading.Thread(target=flood, args=(i,), daemon=True) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive(), "threads wait for each other"
        finally:
            sys.setswitchinterval(switch)
        assert sum(refused) > 0
        producer.flush()


def test_an_interrupted_receive_takes_no_message(embedded: Any):
    topic = embedded.topic()
    with forebay.blocking.connect(embedded.url) as client:
        consumer, producer = client.consumer(topic, "s"), client.producer(topic)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                consumer.receive()
        finally:
            signal.signal(signal.SIGALRM, before)
        producer.send(b"kept")
        assert consumer.receive(timeout=PATIENCE).data == b"kept"


FORKED = """
import os, sys, threading, time
import forebay, forebay.errors
url = sys.argv[1]
client = forebay.blocking.connect(url)
producer = client.producer("fork-" + str(os.getpid()))
consumer = client.consumer("fork-" + str(os.getpid()), "s")
waiter = consumer._native.receive(None)
stop = []
def busy():
    while not stop:
        producer.send_many([b"x" * 100] * 50)
thread = threading.Thread(target=busy)
thread.start()
time.sleep(0.05)
for _ in range(20):
    child = os.fork()
    if child == 0:
        refused = 0
        calls = (
            lambda: producer.send(b"x"), lambda: producer.flush(), lambda: client._native.topics("a/b"),
            lambda: consumer._native.receive(None), lambda: waiter.wait(1), lambda: waiter.done(),
        )
        for call in calls:
            try:
                call()
            except forebay.errors.ForkError:
                refused += 1
        with forebay.blocking.connect(url) as own, own.producer("child") as sender:
            sender.send(b"from the child")
        os._exit(0 if refused == 6 else 10 + refused)
    limit = time.monotonic() + 100
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > limit:
            os.kill(child, 9)
            sys.exit("the child hangs")
        time.sleep(0.005)
    if status:
        stop.append(1)
        sys.exit(f"the child ended with {os.waitstatus_to_exitcode(status)}")
stop.append(1)
thread.join()
producer.send(b"the parent goes on")
client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_handles_of_the_parent_are_refused_in_a_child_at_once(embedded: Any):
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, embedded.url],
        capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
