"""Lookups: what they ask for, and connections through a proxy."""

from __future__ import annotations

from typing import Any

import penstock

from support.pulsar import wire

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
        async with penstock.connect(broker.url, listener_name="outside") as client, client.producer("t"):
            pass
        async with penstock.connect(broker.url) as client, client.producer("t"):
            pass
    finally:
        broker.close()
    assert [fields.get(LISTENER) for fields in lookups] == [[b"outside"], None]
    assert lookups[0][TOPIC_OF_LOOKUP] == [b"persistent://public/default/t"]


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
        async with penstock.connect(proxy.url) as client, client.producer("t") as producer:
            await producer.send(b"x")
    finally:
        proxy.close()
    assert [fields.get(PROXY_TO) for fields in connects] == [None, [b"inside.invalid:6650"]]
