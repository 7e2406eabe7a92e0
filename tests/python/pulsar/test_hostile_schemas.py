"""Pulsar brokers that lie about schemas: what they say is an error of the messages, not of the consumer."""

from __future__ import annotations

import json
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.pulsar import Schema

from support.pulsar import wire
from support.pulsar.wire import Answer, FakeBroker, Fields, Peer, entry, frame
from support.waiting import PATIENCE

AVRO, JSON = 4, 2
GET_SCHEMA_RESPONSE = 35
INT = Schema.avro('"int"')


def silent(peer: Peer, fields: Fields, rest: bytes) -> None:
    pass


def answers(more: Fields, kind: int = GET_SCHEMA_RESPONSE) -> Answer:
    return lambda peer, fields, rest: peer.send(frame(kind, {1: fields[1][0]} | more))


def has(definition: Any, kind: int = AVRO) -> Answer:
    text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    return answers({4: {1: "n", 3: text, 4: kind}, 5: bytes(8)})


LIES: dict[str, Answer] = {
    "does not have it": answers({2: 11, 3: "no"}),
    "never answers": silent,
    "has a definition that is none": has(b"\xff\xfe"),
    "has another definition": has({"type": "map", "values": "bytes"}),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("schema", ["auto", INT], ids=["auto", "avro"])
async def test_a_schema_that_cannot_be_used_is_an_error_of_its_messages(name: str, schema: Any) -> None:
    payload = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"

    def deliver(peer: Peer, fields: Fields, rest: bytes) -> None:
        if fields[2][0] == 10:
            for number, (data, version) in enumerate(((payload, {16: bytes(8)}), (b"\x02", {}))):
                peer.send(frame(wire.MESSAGE, {1: 0, 2: {1: 1, 2: number}}, rest=entry(data, version)))

    broker = FakeBroker({wire.FLOW: deliver, wire.GET_SCHEMA: LIES[name]})
    try:
        async with (
            forebay.connect(broker.url, operation_timeout=1, max_backoff=0.1) as client,
            client.consumer("t", "s", receiver_queue=10, schema=schema) as consumer,
        ):
            first, second = [await consumer.receive(timeout=PATIENCE) for _ in range(2)]
            assert first.data == payload, "the message is there, and in its order"
            with pytest.raises((errors.SchemaError, errors.IncompatibleSchema)):
                _ = first.value
            assert second.value == (1 if schema is INT else b"\x02")
    finally:
        broker.close()


async def test_a_version_is_asked_for_once_and_again_after_an_error() -> None:
    asked: list[bytes] = []
    peers: list[Peer] = []

    def message(number: int) -> bytes:
        return frame(wire.MESSAGE, {1: 0, 2: {1: 1, 2: number}}, rest=entry(b"\x02", {16: bytes(8)}))

    def deliver(peer: Peer, fields: Fields, rest: bytes) -> None:
        if fields[2][0] == 10:
            peers.append(peer)
            peer.send(*[message(number) for number in range(5)])

    def tell(peer: Peer, fields: Fields, rest: bytes) -> None:
        asked.append(fields[3][0])
        answer = has(b'"int"') if len(asked) > 1 else answers({2: 11, 3: "no"})
        answer(peer, fields, rest)

    broker = FakeBroker({wire.FLOW: deliver, wire.GET_SCHEMA: tell})
    try:
        async with (
            forebay.connect(broker.url, operation_timeout=5) as client,
            client.consumer("t", "s", receiver_queue=10, schema="auto") as consumer,
        ):
            for _ in range(5):
                with pytest.raises(errors.SchemaError, match="version 0"):
                    _ = (await consumer.receive(timeout=PATIENCE)).value
            assert asked == [bytes(8)]
            peers[0].send(message(5), message(6))
            assert [(await consumer.receive(timeout=PATIENCE)).value for _ in range(2)] == [1, 1]
            assert asked == [bytes(8)] * 2
    finally:
        broker.close()
