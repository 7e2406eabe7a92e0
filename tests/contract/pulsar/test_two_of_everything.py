"""Two consumers, readers, producers and loops of one name, opened and closed in every order while another
client sends."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import receive
from support.pulsar.harness import PulsarService, RealPulsar
from support.two import ORDERS, Load, Side, loaded, played
from support.waiting import PATIENCE, until

Open = Callable[[Any, str], Awaitable[Any]]


def consumer(subscription: str, *others: str, **options: Any) -> Open:
    """Opens a consumer of a topic, and of others with its name and an ending."""

    async def open(client: Any, topic: str) -> Any:
        topics = [topic, *(topic + other for other in others)] if others else topic
        return await client.consumer(topics, subscription, **options)

    return open


async def reader(client: Any, topic: str) -> Any:
    return Acknowledging(await client.reader(topic))


def pattern(subscription: str) -> Open:
    """Opens a consumer of all topics whose names begin as that of a topic."""
    return lambda client, topic: client.consumer(re.compile(f"{topic}.*"), subscription)


class Acknowledging:
    """A reader in place of a consumer."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.close = reader.close

    def __aiter__(self) -> Any:
        return aiter(self._reader)

    async def ack(self, message: Any) -> None:
        """Readers acknowledge nothing."""


EACH: dict[str, tuple[Open, Open]] = {
    "two subscriptions": (consumer("one"), consumer("two")),
    "two types": (consumer("one", type="shared"), consumer("two", type="failover")),
    "one topic and two": (consumer("one"), consumer("two", "-other")),
    "two and two": (consumer("one", "-this"), consumer("two", "-that")),
    "two readers": (reader, reader),
    "a reader and a consumer": (reader, consumer("one")),
    "a pattern and a topic": (pattern("one"), consumer("two")),
    "two patterns": (pattern("one"), pattern("two")),
}


def connect(service: PulsarService) -> Any:
    return forebay.connect(service.url, connect_timeout=PATIENCE, operation_timeout=PATIENCE)


@pytest.mark.parametrize("pair", EACH.values(), ids=EACH)
async def test_each_of_two_gets_everything(service: PulsarService, pair: tuple[Open, Open]) -> None:
    """All orders at once: each pair has a topic of its own, and all are of one client."""
    async with connect(service) as client, connect(service) as other:

        async def one(order: str) -> list[Side]:
            topic = service.topic()
            async with other.producer(topic) as producer, loaded(producer) as load:
                sides = {
                    name: Side(load, lambda make=make: make(client, topic))
                    for name, make in zip("AB", pair, strict=True)
                }
                await played(order, load, sides)
                return list(sides.values())

        for sides in await asyncio.gather(*[one(order) for order in ORDERS]):
            for side in sides:
                side.check()


@pytest.mark.parametrize("kind", ["shared", "key_shared", "failover"])
@pytest.mark.parametrize("clients", [1, 2])
async def test_two_of_a_subscription_share_its_messages(
    service: PulsarService, kind: str, clients: int
) -> None:
    """Whichever closes first: each message comes once, and the last consumer gets what is left."""
    async with connect(service) as first, connect(service) as other, connect(service) as sender:

        async def one(order: str) -> list[int]:
            topic = service.topic()
            options: dict[str, Any] = {"type": kind, "position": "earliest"}
            async with sender.producer(topic, key_based_batching=True) as producer:
                async with loaded(producer, key=order) as load:
                    sides = {
                        name: Side(load, lambda client=client: client.consumer(topic, "s", **options))
                        for name, client in zip("AB", (first, other if clients == 2 else first), strict=True)
                    }
                    await played(order, load, sides, all=False)
                last = Side(load, lambda: first.consumer(topic, "s", **options))
                await last.open()
                every = [*sides.values(), last]
                # Not their count: what came to both would stand for what has not come yet.
                await until(lambda: set(range(load.stored)) <= set(together(every)))
                await last.close(all=False)
                return together(every)

        every_order = await asyncio.gather(*[one(order) for order in ORDERS])
        if kind == "failover" and isinstance(service, RealPulsar):
            # What the former one has not acknowledged when the next one takes over comes to both.
            return
        for got in every_order:
            assert len(got) == len(set(got)), sorted(one for one in set(got) if got.count(one) > 1)


def together(sides: list[Side]) -> list[int]:
    return [number for side in sides for number in side.got]


async def test_two_exclusive_consumers_of_a_subscription(service: PulsarService) -> None:
    """The second one is refused as long as the first is open, which goes on."""
    async with connect(service) as client, connect(service) as other, connect(service) as sender:

        async def one(second: Any) -> None:
            topic = service.topic()
            async with sender.producer(topic) as producer, loaded(producer) as load:
                sides = [
                    Side(load, lambda client=each: client.consumer(topic, "s")) for each in (client, second)
                ]
                await sides[0].open()
                for _ in range(3):
                    with pytest.raises(errors.ConsumerBusy):
                        await sides[1].open()
                await load.more()
                await sides[0].close()
                await sides[1].open()
                await load.more()
                await sides[1].close()
            both = together(sides)
            assert both == list(range(both[0], both[-1] + 1)), "the second goes on where the first has ended"

        await asyncio.gather(one(client), one(other))


@pytest.mark.parametrize("clients", [1, 2])
async def test_two_producers_of_a_name(service: PulsarService, clients: int) -> None:
    """The second one is refused as long as the first is open, and no message is lost or doubled."""
    async with connect(service) as first, connect(service) as other:
        by_name = {"A": first, "B": other if clients == 2 else first}

        async def one(order: str) -> None:
            topic, open, sent = service.topic(), dict[str, Any](), list[bytes]()

            async def send() -> None:
                for name, producer in open.items():
                    payloads = [f"{len(sent)} {name} {number}".encode() for number in range(7)]
                    await asyncio.gather(*[producer.send(payload) for payload in payloads])
                    sent.extend(payloads)

            async with first.consumer(topic, "s") as reading:
                for step in order:
                    name = step.upper()
                    if step == name and open:
                        with pytest.raises(errors.ProducerBusy):
                            await by_name[name].producer(topic, name="p")
                    elif step == name:
                        open[name] = await by_name[name].producer(topic, name="p")
                    elif name in open:
                        await open.pop(name).close()
                    else:
                        # It was refused before; now the name is free, or the other one has it.
                        if not open:
                            open[name] = await by_name[name].producer(topic, name="p")
                        await send()
                        if name in open:
                            await open.pop(name).close()
                    await send()
                got = [bytes(message.data) for message in await receive(reading, len(sent))]
                assert got == sent

        await asyncio.gather(*[one(order) for order in ORDERS])


async def test_two_loops(service: PulsarService) -> None:
    """Clients of two loops have consumers of one topic, and each gets everything once."""
    found: dict[str, Side] = {}
    topic = service.topic()

    async def one(order: str, load: Load) -> None:
        async with connect(service) as client:
            sides = {
                name: Side(load, lambda name=name: client.consumer(topic, f"{order}-{name}")) for name in "AB"
            }
            await played(order, load, sides)
            found.update({f"{order} {name}": each for name, each in sides.items()})

    async with connect(service) as sender, sender.producer(topic) as producer, loaded(producer) as load:
        threads = [
            threading.Thread(target=lambda order=order: asyncio.run(one(order, load))) for order in ORDERS[:3]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join, PATIENCE)
    assert len(found) == 6
    for each in found.values():
        each.check()
