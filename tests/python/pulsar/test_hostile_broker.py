"""Pulsar brokers that lie to the client: each operation ends in time, with a typed error or with success.

Each lie by itself is a test in Rust, in `src/pulsar`, and of the fuzz targets.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any

import pytest

import forebay
from forebay import errors

from support.protobuf import parse
from support.pulsar import wire
from support.pulsar.wire import Answer, FakeBroker, Fields, Huge, Peer, entry, frame
from support.waiting import until

PATIENCE = 90.0


def always(*frames: bytes) -> Answer:
    return lambda peer, fields, rest: peer.send(*frames)


def closing(*frames: bytes) -> Answer:
    def answer(peer: Peer, fields: Fields, rest: bytes) -> None:
        peer.send(*frames)
        peer.close()

    return answer


def silent(peer: Peer, fields: Fields, rest: bytes) -> None:
    pass


def reply(kind: int, request: int, more: Fields, *, into: int = 1) -> Answer:
    """An answer with the request's id, taken from field ``request`` and put into field ``into``."""
    return lambda peer, fields, rest: peer.send(frame(kind, {into: fields[request][0]} | more))


#: The answers, and the error of a program that opens a producer and sends a message.
LIES: dict[str, tuple[dict[int, Answer], type[errors.Error] | UnionType]] = {
    "says nothing": ({wire.CONNECT: silent}, errors.Timeout),
    "announces four gigabytes": (
        {wire.CONNECT: always(struct.pack(">II", 0xFFFFFFFF, 4))},
        errors.ProtocolError,
    ),
    "refuses in a mebibyte of control characters": (
        {wire.CONNECT: closing(frame(wire.ERROR, {1: Huge, 2: 3, 3: "\x1b[2J\0\n" * 170_000}))},
        errors.AuthenticationError,
    ),
    "has four billion partitions": (
        {wire.PARTITIONS: reply(wire.PARTITIONS_RESPONSE, 2, {1: 2**32 - 1, 3: 0}, into=2)},
        errors.ProtocolError,
    ),
    "knows no partitions": (
        {wire.PARTITIONS: reply(wire.PARTITIONS_RESPONSE, 2, {3: 1, 4: 11, 5: "no"}, into=2)},
        errors.TopicNotFound,
    ),
    "redirects to itself for ever": ({}, errors.ProtocolError),  # filled below: it needs its own address
    "redirects to what is no address": (
        {wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {1: "::::", 3: 1}, into=4)},
        errors.ProtocolError,
    ),
    "refuses the producer": ({wire.PRODUCER: reply(wire.ERROR, 3, {2: 16, 3: "busy"})}, errors.ProducerBusy),
    "never gives a receipt": ({wire.SEND: silent}, errors.Timeout),
    # The reference client retries after such an error until the send timeout.
    "fails each SEND": (
        {
            wire.SEND: lambda peer, fields, rest: peer.send(
                frame(wire.SEND_ERROR, {1: fields[1][0], 2: fields[2][0], 3: 2, 4: "disk full"})
            )
        },
        errors.PersistenceError | errors.Timeout,
    ),
}


@contextmanager
def lying(answers: dict[int, Answer]) -> Iterator[FakeBroker]:
    broker = FakeBroker(answers)
    try:
        yield broker
    finally:
        broker.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def connect(url: str, limit: float = 2) -> Any:
    return forebay.connect(url, connect_timeout=limit, operation_timeout=limit, max_backoff=0.1)


async def in_time(work: Any) -> forebay.Error | None:
    """The typed error of an operation that must end, or None."""
    started, before = time.monotonic(), resident()
    try:
        await asyncio.wait_for(work, PATIENCE)
        error = None
    except forebay.Error as caught:
        error = caught
        assert len(str(caught)) < 5000
        assert "\x1b" not in str(caught)
    assert time.monotonic() - started < PATIENCE - 5
    assert resident() - before < 100 << 20
    return error


async def produce(url: str, count: int = 1, limit: float = 2) -> None:
    async with (
        connect(url, limit) as client,
        client.producer("t", send_timeout=limit, batching=False) as producer,
    ):
        for _ in range(count):
            await producer.send(b"x")


@pytest.mark.parametrize("name", LIES)
async def test_a_broker_that_lies(name: str) -> None:
    answers, kind = LIES[name]
    with lying(answers) as broker:
        if name == "redirects to itself for ever":
            broker.answers[wire.LOOKUP] = reply(wire.LOOKUP_RESPONSE, 2, {1: broker.url, 3: 0}, into=4)
        error = await in_time(produce(broker.url))
        assert isinstance(error, kind), error
        assert broker.connections < 500


UNREADABLE = {
    "encrypted": (entry(b"x" * 30, {13: {1: "key", 2: b"x" * 100}, 15: b"y" * 12}), errors.Unsupported),
    "damaged": (entry(crc=1), errors.ChecksumError),
    "compressed in an unknown way": (entry(b"x", {8: 9, 9: 1}), errors.CompressionError),
}


@pytest.mark.parametrize(
    ("name", "policy"),
    [("damaged", "skip"), ("damaged", "discard"), *((name, "fail") for name in UNREADABLE)],
)
async def test_an_entry_that_cannot_be_read_is_told(
    name: str, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable, kind = UNREADABLE[name]
    acked: list[Fields] = []

    def deliver(peer: Peer, fields: Fields, rest: bytes) -> None:
        if fields[2][0] == 10:
            for number, payload in enumerate((entry(b"before"), unreadable, entry(b"behind"))):
                peer.send(frame(wire.MESSAGE, {1: 0, 2: {1: 1, 2: number}}, rest=payload))

    def ack(peer: Peer, fields: Fields, rest: bytes) -> None:
        acked.append(fields)

    options: Any = {"receiver_queue": 10, "unreadable": policy, "ack_group_time": 0}
    with lying({wire.FLOW: deliver, wire.ACK: ack}) as broker:
        async with connect(broker.url, 60) as client, client.consumer("t", "s", **options) as consumer:
            end = asyncio.ensure_future(consumer.wait_for_end())
            first = await consumer.receive(timeout=PATIENCE)
            assert first.data == b"before"
            if policy == "fail":
                with pytest.raises(kind, match="cannot be read"):
                    await asyncio.wait_for(end, PATIENCE)
                with pytest.raises(kind, match="cannot be read"):
                    await consumer.receive(timeout=PATIENCE)
            else:
                last = await consumer.receive(timeout=PATIENCE)
                assert last.data == b"behind"
                await consumer.ack_cumulative(last)
                await until(lambda: len(acked) == (1 if policy == "skip" else 2))
                end.cancel()
            assert client.stats()["unreadable_entries"] == 1
            await until(lambda: any("cannot be read" in record.message for record in caplog.records))
    entries = [parse(one[3][0])[2][0] for one in acked]
    assert entries == {"skip": [0], "fail": [], "discard": [1, 2]}[policy]


async def test_a_seek_goes_on_behind_an_unreadable_entry_of_a_topic_that_has_ended() -> None:
    topics: dict[int, str] = {}
    peers: list[Peer] = []
    sought: list[str] = []

    def subscribe(peer: Peer, fields: Fields, rest: bytes) -> None:
        topic = fields[1][0].decode().rsplit("/", 1)[1]
        if topic == "damaged" and peers:
            peer.send(frame(wire.ERROR, {1: fields[5][0], 2: 11, 3: "the topic was deleted"}))
            return
        topics[fields[4][0]] = topic
        peer.send(frame(wire.SUCCESS, {1: fields[5][0]}))

    def deliver(peer: Peer, fields: Fields, rest: bytes) -> None:
        number = fields[1][0]
        if topics[number] == "damaged":
            peers.append(peer)
            peer.send(frame(wire.MESSAGE, {1: number, 2: {1: 1, 2: 0}}, rest=entry(crc=1)))
        elif sought:
            peer.send(frame(wire.MESSAGE, {1: number, 2: {1: 2, 2: 0}}, rest=entry(b"behind")))

    def seek(peer: Peer, fields: Fields, rest: bytes) -> None:
        sought.append(topics[fields[1][0]])
        closed = frame(wire.CLOSE_CONSUMER, {1: fields[1][0], 2: Huge})
        peer.send(closed, frame(wire.SUCCESS, {1: fields[2][0]}))

    with lying({wire.SUBSCRIBE: subscribe, wire.FLOW: deliver, wire.SEEK: seek}) as broker:
        async with (
            connect(broker.url, 60) as client,
            client.consumer(["damaged", "whole"], "s", unreadable="fail") as consumer,
        ):
            with pytest.raises(errors.ChecksumError, match="cannot be read"):
                await consumer.receive(timeout=PATIENCE)
            (number,) = (number for number, topic in topics.items() if topic == "damaged")
            peers[0].send(frame(wire.CLOSE_CONSUMER, {1: number, 2: Huge}))
            await until(lambda: client.stats()["ended_topics"] == 1)
            await consumer.seek("earliest")
            assert sought == ["whole"]
            assert (await consumer.receive(timeout=PATIENCE)).data == b"behind"


async def test_a_token_supplier_that_fails_at_a_reconnect_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = 0

    def token() -> str:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise OSError("the token service is down")
        return "token"

    peers: list[Peer] = []

    def subscribed(peer: Peer, fields: Fields, rest: bytes) -> None:
        peers.append(peer)
        peer.send(frame(wire.SUCCESS, {1: fields[5][0]}))

    def deliver(peer: Peer, fields: Fields, rest: bytes) -> None:
        if len(peers) == 1:
            peer.close()
        else:
            peer.send(frame(wire.MESSAGE, {1: 0, 2: {1: 9, 2: 9}}, rest=entry(b"good")))

    with lying({wire.SUBSCRIBE: subscribed, wire.FLOW: deliver}) as broker:
        async with forebay.connect(broker.url, token=token, max_backoff=0.1) as client:
            async with client.consumer("t", "s") as consumer:
                assert (await consumer.receive(timeout=PATIENCE)).data == b"good"
    assert calls >= 4
    await until(lambda: any("tried on" in record.message for record in caplog.records))


async def test_a_token_supplier_that_hangs_does_not_outlast_the_connect_timeout() -> None:
    release = threading.Event()
    with lying({}) as broker:
        try:
            started = time.monotonic()
            with pytest.raises(errors.Timeout, match="has not returned within"):
                await forebay.connect(broker.url, token=lambda: str(release.wait(300)), connect_timeout=0.3)
            # Two of them used to occupy every thread that resolves names.
            with pytest.raises(errors.Timeout):
                await forebay.connect(broker.url, token=lambda: str(release.wait(300)), connect_timeout=0.3)
            url = broker.url.replace("127.0.0.1", "localhost")
            async with forebay.connect(url, token=lambda: "fine"):
                pass
            assert time.monotonic() - started < PATIENCE
        finally:
            release.set()


async def test_the_errors_of_the_handshake_are_the_right_ones() -> None:
    refusals = {3: errors.AuthenticationError, 4: errors.AuthorizationError, 10: errors.UnsupportedVersion}
    for code, kind in refusals.items():
        with lying({wire.CONNECT: closing(frame(wire.ERROR, {1: Huge, 2: code, 3: "the words"}))}) as broker:
            error = await in_time(produce(broker.url))
            assert isinstance(error, kind), (code, error)
            assert error.broker_text == "the words"


async def test_a_producer_that_is_never_ready_can_be_given_up() -> None:
    with lying({wire.PRODUCER: reply(wire.PRODUCER_SUCCESS, 3, {2: "x", 6: 0})}) as broker:
        async with connect(broker.url) as client:
            with pytest.raises((TimeoutError, forebay.Error)):
                async with asyncio.timeout(1):
                    await client.producer("t", access_mode="wait_for_exclusive")
