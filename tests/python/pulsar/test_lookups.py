"""Lookups: what they ask for, connections through a proxy, and brokers that name other brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import forebay

from support.pulsar import wire
from support.waiting import PATIENCE, until

TOPIC_OF_LOOKUP, LISTENER = 1, 7
URL, KIND, REQUEST, AUTHORITATIVE, THROUGH_PROXY = 1, 3, 4, 5, 8
PROXY_TO = 6
CONNECT_KIND = 1


async def test_lookups_name_their_listener() -> None:
    lookups: list[dict[int, list[Any]]] = []

    def lookup(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
        lookups.append(fields)
        found(peer, fields, rest)

    broker = wire.FakeBroker()
    found, broker.answers[wire.LOOKUP] = broker.answers[wire.LOOKUP], lookup
    try:
        async with forebay.connect(broker.url, listener_name="outside") as client, client.producer("t"):
            pass
        async with forebay.connect(broker.url) as client, client.producer("t"):
            pass
    finally:
        broker.close()
    assert [fields.get(LISTENER) for fields in lookups] == [[b"outside"], None]
    assert lookups[0][TOPIC_OF_LOOKUP] == [b"persistent://public/default/t"]


async def test_the_topics_of_a_consumer_are_asked_for_side_by_side() -> None:
    """The broker answers once it has been asked for all of them."""
    asked: list[int] = []

    def partitions(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
        asked.append(fields[2][0])
        if len(asked) == 3:
            peer.send(*[wire.frame(wire.PARTITIONS_RESPONSE, {1: 0, 2: request, 3: 0}) for request in asked])

    broker = wire.FakeBroker({wire.PARTITIONS: partitions})
    try:
        async with (
            forebay.connect(broker.url, operation_timeout=PATIENCE) as client,
            client.consumer(["a", "b", "c"], "s"),
        ):
            assert len(asked) == 3
    finally:
        broker.close()


async def test_a_proxy_is_told_the_broker_to_connect_to() -> None:
    connects: list[dict[int, list[Any]]] = []

    def lookup(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
        answer = {URL: "pulsar://inside.invalid:6650", KIND: CONNECT_KIND, AUTHORITATIVE: 1, THROUGH_PROXY: 1}
        peer.send(wire.frame(wire.LOOKUP_RESPONSE, answer | {REQUEST: fields[2][0]}))

    def connect(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
        connects.append(fields)
        accept(peer, fields, rest)

    proxy = wire.FakeBroker({wire.LOOKUP: lookup})
    accept, proxy.answers[wire.CONNECT] = proxy.answers[wire.CONNECT], connect
    try:
        async with forebay.connect(proxy.url) as client, client.producer("t") as producer:
            await producer.send(b"x")
    finally:
        proxy.close()
    assert [fields.get(PROXY_TO) for fields in connects] == [None, [b"inside.invalid:6650"]]


# ---------------------------------------------------------------------------- directions of brokers


class Watched(wire.FakeBroker):
    """A broker that notes what it is asked, and the last connection that opened a producer or consumer."""

    def __init__(self, silent: int | None = None) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.opened: tuple[wire.Peer, int] | None = None
        good, self.answers = self.answers, {}
        for kind, answer in good.items():
            self.answers[kind] = self._noted(kind, answer, silent == kind)

    def _noted(self, kind: int, answer: wire.Answer, silent: bool) -> wire.Answer:
        def noted(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
            self.asked.append(kind)
            if kind in (wire.PRODUCER, wire.SUBSCRIBE):
                self.opened = peer, fields[ID[kind]][0]
            if not silent:
                answer(peer, fields, rest)

        return noted

    def tell(self, kind: int, fields: dict[int, Any]) -> None:
        """Sends a command to the producer or consumer that was opened last."""
        assert self.opened is not None
        peer, handle = self.opened
        peer.send(wire.frame(kind, {1: handle} | fields))


ID = {wire.PRODUCER: 2, wire.SUBSCRIBE: 4}
CLOSE = {wire.PRODUCER: wire.CLOSE_PRODUCER, wire.SUBSCRIBE: wire.CLOSE_CONSUMER}
RESOURCE = {wire.PRODUCER: 0, wire.SUBSCRIBE: 1}


@pytest.fixture
def brokers() -> Iterator[tuple[Watched, Watched]]:
    pair = Watched(), Watched()
    yield pair
    for broker in pair:
        broker.close()


def handle(client: Any, kind: int) -> Any:
    return client.producer("t") if kind == wire.PRODUCER else client.consumer("t", "s")


@pytest.mark.parametrize("kind", [wire.PRODUCER, wire.SUBSCRIBE])
async def test_a_broker_that_closes_may_name_the_next_one(
    brokers: tuple[Watched, Watched], kind: int
) -> None:
    first, second = brokers
    async with forebay.connect(first.url) as client, handle(client, kind):
        first.tell(CLOSE[kind], {2: wire.NO_REQUEST, 3: second.url})
        await until(lambda: second.opened)
        # Only the next attempt is without a lookup.
        assert second.opened
        second.tell(CLOSE[kind], {2: wire.NO_REQUEST})
        await until(lambda: first.asked.count(kind) == 2)
    assert first.asked.count(wire.LOOKUP) == 2
    assert wire.LOOKUP not in second.asked


@pytest.mark.parametrize("kind", [wire.PRODUCER, wire.SUBSCRIBE])
@pytest.mark.parametrize("named", ["pulsar://127.0.0.1:1", "pulsar+ssl://127.0.0.1:1", "nonsense", ""])
async def test_a_broker_that_cannot_be_used_is_looked_up(
    brokers: tuple[Watched, Watched], kind: int, named: str
) -> None:
    first, _ = brokers
    async with forebay.connect(first.url) as client, handle(client, kind):
        first.tell(CLOSE[kind], {2: wire.NO_REQUEST, 3: named})
        await until(lambda: first.asked.count(kind) == 2)
        assert first.asked.count(wire.LOOKUP) == 2


async def test_a_broker_that_names_itself_again_and_again_is_not_asked_without_pause(
    brokers: tuple[Watched, Watched],
) -> None:
    first, _ = brokers
    async with forebay.connect(first.url) as client, client.producer("t"):
        seen, began = 0, time.monotonic()
        while time.monotonic() < began + (1 if seen >= 2 else PATIENCE):
            if first.asked.count(wire.PRODUCER) > seen:
                seen = first.asked.count(wire.PRODUCER)
                first.tell(wire.CLOSE_PRODUCER, {2: wire.NO_REQUEST, 3: first.url})
            await asyncio.sleep(0.001)
    assert 2 <= seen <= 40


@pytest.mark.parametrize("kind", [wire.PRODUCER, wire.SUBSCRIBE])
async def test_a_topic_moves_to_another_cluster(brokers: tuple[Watched, Watched], kind: int) -> None:
    first, second = brokers
    async with forebay.connect(first.url) as client, handle(client, kind):
        first.tell(wire.TOPIC_MIGRATED, {2: RESOURCE[kind], 3: second.url})
        first.tell(CLOSE[kind], {2: wire.NO_REQUEST})
        await until(lambda: kind in second.asked)
        # It stays there.
        second.tell(CLOSE[kind], {2: wire.NO_REQUEST})
        await until(lambda: second.asked.count(kind) == 2)
    assert second.asked.count(wire.LOOKUP) == 2
    assert first.asked.count(wire.LOOKUP) == 1


@pytest.mark.parametrize("kind", [wire.PRODUCER, wire.SUBSCRIBE])
async def test_a_topic_has_moved_when_it_is_opened(kind: int) -> None:
    first, second = Watched(silent=kind), Watched()
    try:
        async with forebay.connect(first.url, operation_timeout=120) as client:
            opening = asyncio.ensure_future(asyncio.wait_for(handle(client, kind), PATIENCE))
            await until(lambda: first.opened)
            first.tell(wire.TOPIC_MIGRATED, {2: RESOURCE[kind], 3: second.url})
            first.tell(CLOSE[kind], {2: wire.NO_REQUEST})
            await (await opening).close()
        assert kind in second.asked
    finally:
        first.close()
        second.close()
