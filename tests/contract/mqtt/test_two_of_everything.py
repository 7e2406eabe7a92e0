"""Two consumers, producers, clients, loops and processes of one name, opened and closed in every order while
another client sends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import forebay

from support.messages import nothing
from support.mqtt.harness import MqttService, take
from support.mqtt.wire import V5, V311
from support.two import ORDERS, Load, Side, loaded, played
from support.waiting import PATIENCE

WORDS = {V311: "3.1.1", V5: "5"}
Connect = Callable[..., Any]

FILTERS = {
    "same topic": ("{}/x", "{}/x"),
    "same filter": ("{}/#", "{}/#"),
    "topic and filter": ("{}/x", "{}/#"),
    "two filters": ("{}/+", "{}/#"),
}


@pytest.fixture
def connect(broker: MqttService, version: int) -> Connect:
    def make(**options: Any) -> Any:
        return forebay.connect(broker.url, version=WORDS[version], connect_timeout=PATIENCE, **options)

    return make


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("qos", [1, 2])
async def test_two_consumers_of_a_client(
    connect: Connect, topic: str, filters: tuple[str, str], qos: int
) -> None:
    """All orders at once: each pair has a topic of its own, and all are of one client."""
    async with connect() as client, connect() as other:

        async def one(number: int, order: str) -> list[Side]:
            where = f"{topic}/{number}"
            async with other.producer(f"{where}/x", qos=qos) as producer, loaded(producer) as load:
                sides = {
                    name: Side(load, lambda to=to: client.consumer(to.format(where), qos=qos))
                    for name, to in zip("AB", filters, strict=True)
                }
                await played(order, load, sides)
                return list(sides.values())

        for sides in await asyncio.gather(*[one(number, order) for number, order in enumerate(ORDERS)]):
            for side in sides:
                side.check()


@pytest.mark.parametrize("kept", [False, True], ids=["closed", "unsubscribed"])
async def test_two_clients_and_two_consumers_of_each(connect: Connect, topic: str, kept: bool) -> None:
    close: Any = (lambda consumer: consumer.unsubscribe()) if kept else None
    async with connect() as one, connect() as other, connect() as third:
        async with third.producer(f"{topic}/x", qos=1) as producer, loaded(producer) as load:
            pairs = [
                (
                    order,
                    {
                        "A": side(load, first, f"{topic}/x", close),
                        "B": side(load, second, f"{topic}/#", close),
                    },
                )
                for first, second in ((one, other), (one, one), (other, one))
                for order in ORDERS[:3]
            ]
            await asyncio.gather(*[played(order, load, sides) for order, sides in pairs])
            for _, sides in pairs:
                for each in sides.values():
                    each.check()


def side(load: Load, client: Any, where: str, close: Any = None) -> Side:
    return Side(load, lambda: client.consumer(where, qos=1), close)


async def test_two_producers_of_a_topic(connect: Connect, topic: str) -> None:
    """One closes while the other sends: neither loses anything."""
    async with connect() as client, connect() as other, other.subscribe(topic, qos=1) as consumer:
        sent: set[bytes] = set()

        async def one(order: str) -> None:
            open: dict[str, Any] = {}
            for number, step in enumerate(order):
                if step.isupper():
                    open[step] = await client.producer(topic, qos=1)
                for name, producer in open.items():
                    payloads = [f"{order} {number} {name} {at}".encode() for at in range(5)]
                    await asyncio.gather(*[producer.send(payload) for payload in payloads])
                    sent.update(payloads)
                if step.islower():
                    await open.pop(step.upper()).close()

        await asyncio.gather(*[one(order) for order in ORDERS])
        got = [bytes(message.data) for message in await take(consumer, len(sent))]
        assert len(got) == len(set(got))
        assert set(got) == sent
        await nothing(consumer, 0.05)


async def test_the_next_client_of_an_id_goes_on_with_its_session(connect: Connect, topic: str) -> None:
    """Two clients of an id, one after the other, with two consumers each: what came meanwhile waits for the
    next one, and each consumer gets what comes while it is open."""
    session: dict[str, Any] = {
        "client_id": topic.replace("/", "-"),
        "clean_start": False,
    }
    filters = {"one": f"{topic}/one", "other": f"{topic}/+/other"}
    expected: dict[str, list[bytes]] = {name: [] for name in filters}
    got: dict[str, list[bytes]] = {name: [] for name in filters}
    async with connect() as other, other.producer(topic, qos=1) as producer:

        async def send(life: int, when: str) -> None:
            for name, where in (("one", f"{topic}/one"), ("other", f"{topic}/any/other")):
                for number in range(5):
                    expected[name].append(f"{life} {when} {number}".encode())
                    await producer.send(expected[name][-1], topic=where)

        for life in range(4):
            async with connect(**session) as client:
                consumers = {
                    name: await client.subscribe(filters[name], qos=1)
                    for name in (filters if life % 2 else reversed(filters))
                }
                await send(life, "there")
                # Side by side: they share the server's window.
                taking = [
                    take(consumer, len(expected[name]) - len(got[name]))
                    for name, consumer in consumers.items()
                ]
                for (name, consumer), some in zip(
                    consumers.items(), await asyncio.gather(*taking), strict=True
                ):
                    got[name] += [bytes(message.data) for message in some]
                    await nothing(consumer, 0.05)
            await send(life, "away")
    assert got == {name: sent[:-5] for name, sent in expected.items()}


PROCESS = """
import asyncio, sys
import forebay

async def main(url, version, client_id, topic, count, how):
    client = await forebay.connect(url, version=version, client_id=client_id, clean_start=False,
                                   connect_timeout=60)
    consumer = await client.subscribe(topic, qos=1)
    print("ready", flush=True)
    for _ in range(int(count)):
        message = await consumer.receive(timeout=60)
        await consumer.ack(message)
        print(int(message.data), flush=True)
    if how == "killed":
        # The acknowledgements are with the broker when it answers.
        await client.publish(topic + "/none", b"", qos=1)
        import os
        os._exit(1)
    await client.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_one_after_the_other(
    connect: Connect, broker: MqttService, version: int, topic: str
) -> None:
    """Each goes on where the former one has ended, however it did."""
    words = [broker.url, WORDS[version], topic.replace("/", "-"), topic]
    got: list[int] = []
    async with connect() as other, other.producer(topic, qos=1) as producer:
        for life, (count, how) in enumerate([(5, "killed"), (10, "closed"), (5, "closed")]):
            command = [sys.executable, "-c", PROCESS, *words, str(count), how]
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            assert process.stdout
            async with asyncio.timeout(PATIENCE):
                assert await process.stdout.readline() == b"ready\n"
                for number in range(life * 10, 25 if life == 2 else life * 10 + 10):
                    await producer.send(b"%d" % number)
                got += [int(line) for line in (await process.stdout.read()).split()]
                await process.wait()
    # The last one has what the second has left, and not all of its own.
    assert got == list(range(20))


async def test_two_loops(broker: MqttService, version: int, topic: str) -> None:
    """Clients of two loops have consumers of one filter, and each gets everything once."""
    found: dict[str, Side] = {}

    async def one(order: str) -> None:
        options: dict[str, Any] = {"version": WORDS[version], "connect_timeout": PATIENCE}
        async with forebay.connect(broker.url, **options) as client:
            async with client.producer(f"{topic}/{order}", qos=1) as producer, loaded(producer) as load:
                sides = {name: side(load, client, f"{topic}/{order}") for name in "AB"}
                await played(order, load, sides)
                found.update({f"{order} {name}": each for name, each in sides.items()})

    threads = [threading.Thread(target=lambda order=order: asyncio.run(one(order))) for order in ORDERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, PATIENCE)
    assert len(found) == 2 * len(ORDERS)
    for each in found.values():
        each.check()
