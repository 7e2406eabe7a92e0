"""Points of the curves. Each starts an embedded broker of its own and takes the number that grows.

``rss`` is the resident set in MiB of the process that pays: this one, if it is the client.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import forebay

from benches.clock import MIB, Clock, PeakMemory, high_water
from benches.mqtt.load import Report
from benches.mqtt.programs import c_one, c_publish
from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.service import EmbeddedBroker

BODY = bytes(100)
TIMES = 5_000
"""Number of operations that are timed, one at a time."""
LONGEST = 5.0
"""Seconds after which no more are started."""
IDLE = 2.0
TOGETHER = 100
"""Handles that are opened at the same time."""
BULK = 10_000


@contextmanager
def embedded(**options: Any) -> Generator[EmbeddedBroker]:
    """A broker in memory, unless it has a folder."""
    if "data" not in options:
        options["durability"] = "memory"
    max_store = "64GiB" if "data" in options else "8GiB"
    given: dict[str, Any] = {"max_store": max_store, "retention": 0, **options}
    broker = EmbeddedBroker(**given)
    try:
        yield broker
    finally:
        broker.stop()


def connected(url: str, **options: Any) -> Any:
    """A client of any protocol."""
    return forebay.connect(url, **options)


def resident(broker: EmbeddedBroker | None = None) -> float:
    return PeakMemory.now(broker.process.pid if broker else "self") / MIB


def microseconds(began: float, times: int = 1) -> float:
    return (time.perf_counter() - began) * 1e6 / times


def grown(mib: float, count: int) -> Report:
    """Memory for each, where it is more than what a broker needs at its first steps."""
    return {"bytes": mib * MIB / count} if count >= BULK else {}


async def opened(handles: Sequence[Awaitable[Any]]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(handles), TOGETHER):
        found += await asyncio.gather(*handles[start : start + TOGETHER])
    return found


async def idle_cpu() -> float:
    """CPU of this process in milliseconds per second while nothing arrives."""
    await asyncio.sleep(0.5)
    began = time.process_time()
    await asyncio.sleep(IDLE)
    return (time.process_time() - began) * 1e3 / IDLE


# ------------------------------------------------------------------------------------------- a
# client


async def topics(count: int) -> Report:
    """A producer on each topic, and a consumer of all; a message to one topic after the other."""
    names = [f"topic-{number}" for number in range(count)]
    with embedded(max_topics=count + 1) as broker:
        async with connected(broker.url) as client:
            began = time.perf_counter()
            producers = await opened([client.producer(name) for name in names])
            open_us = microseconds(began, count)
            began = time.perf_counter()
            consumer = await client.consumer(names, "all")
            subscribe_us = microseconds(began, count)
            report = await _held(producers, consumer, {"open_us": open_us, "subscribe_us": subscribe_us})
            began = time.perf_counter()
            await client.close()
            return report | {"close_us": microseconds(began, count)}


async def partitions(count: int) -> Report:
    """A producer and a consumer of one topic."""
    with embedded(max_topics=count + 1) as broker:
        broker.call("create_topic", "divided", count)
        async with connected(broker.url) as client:
            began = time.perf_counter()
            producer = await client.producer("divided")
            open_us = microseconds(began, count)
            began = time.perf_counter()
            consumer = await client.consumer("divided", "all")
            subscribe_us = microseconds(began, count)
            report = await _held([producer], consumer, {"open_us": open_us, "subscribe_us": subscribe_us})
            began = time.perf_counter()
            await client.close()
            return report | {"close_us": microseconds(began, count)}


async def _held(producers: list[Any], consumer: Any, report: Report) -> Report:
    report["idle"] = await idle_cpu()
    began, exchanged = time.perf_counter(), 0
    while exchanged < TIMES and time.perf_counter() - began < LONGEST:
        await producers[exchanged % len(producers)].send(BODY)
        await consumer.ack(await consumer.receive(timeout=30))
        exchanged += 1
    return report | {"exchange_us": microseconds(began, exchanged), "rss": resident()}


async def shared(count: int) -> Report:
    """Consumers of one Shared subscription and a producer of single messages, all in this process."""
    messages = 100_000
    with embedded() as broker:
        async with connected(broker.url) as client:
            consumers = await opened(
                [client.consumer("jobs", "workers", type="shared", receiver_queue=100) for _ in range(count)]
            )
            producer = await client.producer("jobs", batching=False)
            left, done = messages, asyncio.Event()

            async def work(consumer: Any) -> None:
                nonlocal left
                async for message in consumer:
                    await consumer.ack(message)
                    left -= 1
                    if not left:
                        done.set()

            tasks = [asyncio.create_task(work(consumer)) for consumer in consumers]
            clock = Clock(messages)
            for _ in range(messages // BULK):
                await producer.send_many([BODY] * BULK)
            await done.wait()
            report = clock.stop()
            for task in tasks:
                task.cancel()
            return {"rate": report["rate"], "cpu": report["cpu"], "rss": resident()}


async def threads(count: int) -> Report:
    """Four producers and four consumers on topics of their own, with so many engine threads."""
    lanes, messages = 4, 100_000
    with embedded(retention="1h", retention_bytes="4GiB") as broker:
        async with connected(broker.url, threads=count) as client:
            producers = await opened([client.producer(f"lane-{lane}") for lane in range(lanes)])
            clock = Clock(lanes * messages)
            for _ in range(messages // BULK):
                await asyncio.gather(*(producer.send_many([BODY] * BULK) for producer in producers))
            sent = clock.stop()

            async def read(lane: int) -> None:
                left = messages
                async with client.consumer(f"lane-{lane}", "sub", position="earliest") as consumer:
                    while left > 0:
                        got = await consumer.receive_many(1000, timeout=30)
                        await consumer.ack_many(got)
                        left -= len(got)

            clock.start()
            await asyncio.gather(*map(read, range(lanes)))
            received = clock.stop()
    return {
        "send_rate": sent["rate"],
        "send_cpu": sent["cpu"],
        "receive_rate": received["rate"],
        "receive_cpu": received["cpu"],
        "rss": resident(),
    }


# ------------------------------------------------------------------------------------- sizes of
# messages


async def _sized(
    connect: Callable[[], Any], size: int, subscription: str | None = "sub", **options: Any
) -> Report:
    """Sends in a window and receives at the same time."""
    body = bytes(size)
    count = min(max((64 << 20) // size, 8), 50_000)
    window = min(max((16 << 20) // size, 1), 1000)
    async with connect() as client, client.consumer("sized", subscription) as consumer:
        async with client.producer("sized", **options) as producer:

            async def read(left: int) -> None:
                async for message in consumer:
                    await consumer.ack(message)
                    left -= 1
                    if not left:
                        return

            async def exchange(times: int) -> None:
                reading = asyncio.create_task(read(times))
                open: deque[Any] = deque()
                for _ in range(times):
                    if len(open) == window:
                        await open.popleft()
                    open.append(producer.send(body))
                while open:
                    await open.popleft()
                await reading

            await exchange(min(count, 100))
            clock = Clock(count)
            await exchange(count)
            report = clock.stop()
    return {
        "rate": report["rate"],
        "megabytes": report["rate"] * size / 1e6,
        "cpu": report["cpu"],
        "rss": report["rss"],
    }


async def size_pulsar(size: int) -> Report:
    """Above 5 MiB by the broker's option ``max_message_size``."""
    with embedded(max_message_size="32MiB") as broker:
        return await _sized(lambda: connected(broker.url, memory_limit="256MiB"), size)


async def size_chunked(size: int) -> Report:
    """Above 5 MiB by chunks."""
    with embedded() as broker:
        return await _sized(
            lambda: connected(broker.url, memory_limit="256MiB"), size, chunking=True, batching=False
        )


async def size_mqtt(size: int) -> Report:
    """QoS 1. Above 2 MB by the broker's option ``mqtt_max_packet_size``, above 16 MiB by the client's."""
    limits = {"mqtt_max_packet_size": "32MiB", "mqtt_max_output": "64MiB", "mqtt_max_queue": 100_000}
    with embedded(mqtt_port=0, **limits) as broker:
        url = broker.call("mqtt_url")
        return await _sized(
            lambda: connected(url, max_packet_size="32MiB", memory_limit="256MiB"), size, None
        )


async def size_tubemq(size: int) -> Report:
    """Above 1 MiB by the broker's option ``tubemq_max_message_size``."""
    with embedded(tubemq_port=0, tubemq_max_message_size="20MiB", tubemq_partitions=1) as broker:
        url = broker.call("tubemq_url")
        broker.call("create_topic", "tubemq:sized", 1)
        return await _sized(lambda: connected(url), size)


# ------------------------------------------------------------------------------------------- the
# broker


async def connections(count: int) -> Report:
    """Idle MQTT connections, and what one more client waits for its messages."""
    with embedded(mqtt_port=0, max_connections=32_768) as broker:
        port = MqttService.port_of(broker.call("mqtt_url"))
        words = [os.environ["MQTT_PEER"], "hold", str(port), str(count)]
        began = time.perf_counter()
        peer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert peer.stdout is not None
        assert peer.stdout.readline() == "held\n", f"{count} connections were not accepted"
        report = {"connect_us": microseconds(began, count), "rss": resident(broker)}
        report["publish_us"] = 1e6 / c_one(port, "alone", TIMES, 1)["rate"]
        peer.communicate(timeout=60)
        return report


def filters(count: int) -> Report:
    """Subscriptions, every second with a wildcard, of sessions that have as many as one may. Publications
    match one of them, or none."""
    with embedded(mqtt_port=0, mqtt_max_subscription_bytes="64GiB") as broker, ExitStack() as sessions:
        port = MqttService.port_of(broker.call("mqtt_url"))
        before = resident(broker)
        began = time.perf_counter()
        for first in range(0, count, BULK):
            session = sessions.enter_context(wire.Raw(port))
            session.connect()
            for start in range(first, min(first + BULK, count), 1000):
                some = range(start, min(start + 1000, count))
                names = [f"site/{number}/{'+' if number % 2 else 'a'}/state" for number in some]
                refused = sum(map(bool, session.subscribe([(name, 0) for name in names])))
                assert not refused, f"{refused} subscriptions of 1,000 were refused"
        subscribe_us = microseconds(began, count)
        rss = resident(broker)
        return {
            "subscribe_us": subscribe_us,
            "publish_us": 1e6 / c_one(port, f"site/{count // 2}/a/state", TIMES, 1)["rate"],
            "unmatched_us": 1e6 / c_one(port, "site/none/a/state", TIMES, 1)["rate"],
            "rate": c_publish(port, f"site/{count // 2}/a/state", 10 * TIMES, 1)["rate"],
            **grown(rss - before, count),
            "rss": rss,
        }


async def retained(count: int) -> Report:
    """Retained messages of 100 B; subscriptions that match one of them, with and without a wildcard."""
    with embedded(mqtt_port=0, mqtt_max_retained=count + 1) as broker:
        url = broker.call("mqtt_url")
        before = resident(broker)
        names = [f"site/{number}/state" for number in range(count - 1)]
        names.insert(count // 2, "site/middle/only")
        async with connected(url) as client:
            began = time.perf_counter()
            window: deque[Any] = deque()
            for name in names:
                if len(window) == 100:
                    await window.popleft()
                window.append(client.publish(name, BODY, qos=1, retain=True))
            while window:
                await window.popleft()
            publish_us = microseconds(began, count)
        rss = resident(broker)
        return {
            "publish_us": publish_us,
            "exact_us": _answered(MqttService.port_of(url), "site/middle/only"),
            "wildcard_us": _answered(MqttService.port_of(url), "site/+/only"),
            **grown(rss - before, count),
            "rss": rss,
        }


def _answered(port: int, name: str) -> float:
    """Microseconds from SUBSCRIBE to the retained message: the median of up to 20 within a few seconds."""
    taken: list[float] = []
    with wire.Raw(port) as session:
        session.connect()
        over = time.monotonic() + LONGEST
        while len(taken) < 20 and (time.monotonic() < over or not taken):
            began = time.perf_counter()
            session.subscribe(name)
            session.message()
            taken.append(microseconds(began))
    return statistics.median(taken)


async def backlog(count: int) -> Report:
    """Entries of one message of 10 B in a store that a subscription has not read: the time to write one, to
    open the store, to seek to an id and to a time, and to drop the topic. The start of the broker's
    interpreter is in the time to open."""
    with tempfile.TemporaryDirectory() as folder:
        # The store is written with the operating system's durability: filling it is not the point.
        options: dict[str, Any] = {"data": folder, "durability": "os", "max_store": "64GiB"}
        with embedded(**options) as broker:
            async with connected(broker.url) as client:
                await (await client.consumer("backlog", "sub")).close()
                producer = await client.producer("backlog", batching=False, max_pending=BULK)

                async def write(entries: int) -> Any:
                    """Returns the id of the last one."""
                    ids: Any = ()
                    for start in range(0, entries, BULK):
                        ids = await producer.send_many([bytes(10)] * min(BULK, entries - start))
                    return ids[-1]

                began = time.perf_counter()
                middle = await write(count // 2)
                moment = int(time.time() * 1e3) + 1
                await asyncio.sleep(0.002)
                await write(count - count // 2)
                entry_us = microseconds(began, count)
        began = time.perf_counter()
        with embedded(**options) as broker:
            report = {"entry_us": entry_us, "open_ms": microseconds(began) / 1e3}
            async with connected(broker.url, operation_timeout=600) as client:
                began = time.perf_counter()
                consumer = await client.consumer("backlog", "sub", receiver_queue=100)
                await consumer.receive(timeout=600)
                report["first_ms"] = microseconds(began) / 1e3
                for name, position in (("seek_ms", middle), ("seek_time_ms", moment)):
                    began = time.perf_counter()
                    await consumer.seek(position)
                    await consumer.receive(timeout=600)
                    report[name] = microseconds(began) / 1e3
                await consumer.close()
            report["rss"] = high_water(broker.process.pid) / MIB
            began = time.perf_counter()
            broker.call("delete_topic", "backlog")
            report["drop_ms"] = microseconds(began) / 1e3
            return report
