"""Pulsar brokers that lie to the client.

Each operation ends in time, with a typed error or with success. The process survives, does not grow by sizes
that were only claimed, and afterwards works with an honest broker.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import errors

from support.protobuf import parse
from support.pulsar import wire
from support.pulsar.wire import Answer, FakeBroker, Fields, Huge, Peer, command, entry, frame, message, raw
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


def then(good: Answer | None, *frames: bytes) -> Answer:
    """The honest answer, followed by these frames."""

    def answer(peer: Peer, fields: Fields, rest: bytes) -> None:
        if good is None:
            peer.send(frame(wire.SUCCESS, {1: fields[5][0]}))
        else:
            good(peer, fields, rest)
        peer.send(*frames)

    return answer


HELLO = frame(wire.CONNECTED, {1: "fake", 2: 19, 3: 5 << 20})
HUGE_FRAME = struct.pack(">II", 0xFFFFFFFF, 4)


def delivery(rest: bytes, **more: Any) -> bytes:
    return frame(wire.MESSAGE, {1: 0, 2: {1: 1, 2: 0, 3: -1}}, rest=rest)


def batch(count: int, body: bytes) -> bytes:
    return entry(body, {11: count})


def single(payload: bytes, size: int | None = None) -> bytes:
    metadata = message({3: len(payload) if size is None else size})
    return struct.pack(">I", len(metadata)) + metadata + payload


# Lies about the handshake, lookups and the opening of producers.
OPENING: dict[str, dict[int, Answer]] = {
    "closes at once": {wire.CONNECT: closing()},
    "says nothing": {wire.CONNECT: silent},
    "speaks HTTP": {wire.CONNECT: closing(b"HTTP/1.1 400 Bad Request\r\n\r\n")},
    "sends random bytes": {wire.CONNECT: always(bytes(range(256)) * 8)},
    "announces four gigabytes": {wire.CONNECT: always(HUGE_FRAME)},
    "sends an empty frame": {wire.CONNECT: always(struct.pack(">I", 0))},
    "sends a command longer than its frame": {
        wire.CONNECT: always(frame(wire.CONNECTED, {1: "x"}, command_size=999))
    },
    "sends a varint without an end": {wire.CONNECT: always(raw(b"\x08" + b"\xff" * 20))},
    "answers CONNECT with CONNECT": {wire.CONNECT: always(frame(wire.CONNECT, {1: "x"}))},
    "answers CONNECT with a receipt": {wire.CONNECT: always(frame(wire.SEND_RECEIPT, {1: 0, 2: 0}))},
    "leaves out what CONNECTED requires": {wire.CONNECT: always(frame(wire.CONNECTED, {}))},
    "has a message limit below zero": {wire.CONNECT: always(frame(wire.CONNECTED, {1: "x", 2: 19, 3: -1}))},
    "has a message limit of zero": {wire.CONNECT: always(frame(wire.CONNECTED, {1: "x", 2: 19, 3: 0}))},
    "greets for ever": {wire.CONNECT: always(HELLO * 1000)},
    "challenges for ever": {
        wire.CONNECT: always(*[frame(wire.AUTH_CHALLENGE, {1: "x", 2: {1: "token", 2: b"?"}})] * 50)
    },
    "refuses the handshake": {wire.CONNECT: closing(frame(wire.ERROR, {1: Huge, 2: 3, 3: "no"}))},
    "refuses with an unknown code": {
        wire.CONNECT: closing(frame(wire.ERROR, {1: Huge, 2: 999, 3: "new words"}))
    },
    "refuses in a mebibyte of control characters": {
        wire.CONNECT: closing(frame(wire.ERROR, {1: Huge, 2: 3, 3: "\x1b[2J\0\n" * 170_000}))
    },
    "knows no partitions": {
        wire.PARTITIONS: reply(wire.PARTITIONS_RESPONSE, 2, {3: 1, 4: 11, 5: "no"}, into=2)
    },
    "has four billion partitions": {
        wire.PARTITIONS: reply(wire.PARTITIONS_RESPONSE, 2, {1: 2**32 - 1, 3: 0}, into=2)
    },
    "answers with another request's id": {
        wire.PARTITIONS: always(frame(wire.PARTITIONS_RESPONSE, {1: 0, 2: 77, 3: 0}))
    },
    "answers with another kind": {wire.PARTITIONS: reply(wire.PRODUCER_SUCCESS, 2, {2: "x"})},
    "never answers": {wire.PARTITIONS: silent},
    "closes on a lookup": {wire.LOOKUP: closing()},
    "redirects to itself for ever": {},  # filled below: it needs its own address
    "redirects to nowhere": {
        wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {1: "pulsar://127.0.0.1:1", 3: 0}, into=4)
    },
    "redirects to what is no address": {
        wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {1: "::::", 3: 1}, into=4)
    },
    "redirects to no address at all": {wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {3: 1}, into=4)},
    "redirects to another protocol": {
        wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {1: "http://127.0.0.1/", 3: 1}, into=4)
    },
    "fails the lookup": {wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {3: 2, 6: 4, 7: "no"}, into=4)},
    "answers the lookup in an unknown way": {
        wire.LOOKUP: reply(wire.LOOKUP_RESPONSE, 2, {1: "x", 3: 9}, into=4)
    },
    "refuses the producer": {wire.PRODUCER: reply(wire.ERROR, 3, {2: 16, 3: "busy"})},
    "closes the producer that it makes": {
        wire.PRODUCER: lambda peer, fields, rest: peer.send(
            frame(wire.CLOSE_PRODUCER, {1: fields[2][0], 2: 9})
        )
    },
    "gives the producer a name of a mebibyte": {
        wire.PRODUCER: reply(wire.PRODUCER_SUCCESS, 3, {2: "x" * (1 << 20), 6: 1})
    },
}


HARMLESS = {
    "leaves out what CONNECTED requires",  # the default of protobuf will do
    "greets for ever",
    "has a message limit below zero",
    "has a message limit of zero",
    "gives the producer a name of a mebibyte",
}


# Lies about messages that are sent.
def receipts(*fields: Fields) -> dict[int, Answer]:
    return {wire.SEND: always(*[frame(wire.SEND_RECEIPT, one) for one in fields])}


SENDING: dict[str, dict[int, Answer]] = {
    "closes on each SEND": {wire.SEND: closing()},
    "never gives a receipt": {wire.SEND: silent},
    "gives a receipt for what was not sent": receipts({1: 0, 2: 1000, 3: {1: 1, 2: 1}}),
    "gives a receipt for another producer": receipts({1: 77, 2: 0, 3: {1: 1, 2: 1}}),
    "gives a receipt without an id": receipts({1: 0, 2: 0}),
    "gives a receipt twice": receipts({1: 0, 2: 0, 3: {1: 1, 2: 1}}, {1: 0, 2: 0, 3: {1: 1, 2: 1}}),
    "fails each SEND": {
        wire.SEND: lambda peer, fields, rest: peer.send(
            frame(wire.SEND_ERROR, {1: fields[1][0], 2: fields[2][0], 3: 2, 4: "disk full"})
        )
    },
    "finds each checksum wrong": {
        wire.SEND: lambda peer, fields, rest: peer.send(
            frame(wire.SEND_ERROR, {1: fields[1][0], 2: fields[2][0], 3: 9, 4: "checksum"})
        )
    },
    "announces four gigabytes after a SEND": {wire.SEND: always(HUGE_FRAME)},
    "closes the producer on each SEND": {wire.SEND: always(frame(wire.CLOSE_PRODUCER, {1: 0, 2: Huge}))},
}

# Lies about delivered messages.
LYING: dict[str, bytes] = {
    "a wrong checksum": delivery(entry(crc=1)),
    "metadata longer than the frame": delivery(entry(metadata_size=1 << 30)),
    "garbage as metadata": delivery(entry(metadata=b"\xff" * 20)),
    "no entry": delivery(b""),
    "an entry cut in its magic": delivery(b"\x0e"),
    "broker metadata without an end": delivery(b"\x0e\x02\xff\xff\xff\xff"),
    "broker metadata that is garbage": delivery(b"\x0e\x02\x00\x00\x00\x02\xff\xff" + entry()),
    "a batch of a billion": delivery(batch(10**9, single(b"x"))),
    "a batch of less than none": delivery(batch(-3, single(b"x"))),
    "a batch that holds fewer": delivery(batch(5, single(b"x"))),
    "a batch that holds more": delivery(batch(1, single(b"x") * 3)),
    "a batch with a size that lies": delivery(batch(1, single(b"x", 1 << 30))),
    "a batch with a size below zero": delivery(batch(1, single(b"x", -1))),
    "a batch with metadata longer than itself": delivery(batch(1, struct.pack(">I", 1 << 30) + b"x")),
    "an unknown codec": delivery(entry(b"x" * 20, {8: 77, 9: 100})),
    "a gigabyte under LZ4": delivery(entry(b"x" * 20, {8: 1, 9: 1 << 30})),
    "a gigabyte under ZLIB": delivery(entry(b"x\x9c" + b"x" * 20, {8: 2, 9: 1 << 30})),
    "a gigabyte under ZSTD": delivery(entry(b"\x28\xb5\x2f\xfd\x00\x88" + b"x" * 20, {8: 3, 9: 1 << 30})),
    "a gigabyte under SNAPPY": delivery(entry(b"\xff\xff\xff\xff\x03" + b"x" * 20, {8: 4, 9: 1 << 30})),
    "garbage under each codec": b"".join(
        delivery(entry(b"garbage" * 5, {8: kind, 9: 100})) for kind in (1, 2, 3, 4)
    ),
    "encrypted by a key we have not": delivery(
        entry(b"x" * 30, {13: {1: "key", 2: b"x" * 100}, 15: b"y" * 12})
    ),
    "for a consumer that is none": frame(wire.MESSAGE, {1: 99, 2: {1: 1, 2: 0}}, rest=entry()),
    "more than was asked for": b"".join(
        frame(wire.MESSAGE, {1: 0, 2: {1: 1, 2: number}}, rest=entry(b"x")) for number in range(5000)
    ),
    "the same again and again": delivery(entry(b"x")) * 500,
    "an ack set of a megabit": frame(
        wire.MESSAGE, {1: 0, 2: {1: 1, 2: 0}, 4: [0] * 16_000}, rest=batch(1, single(b"x"))
    ),
    "a chunk of a billion": delivery(entry(b"x", {26: "u", 27: 10**9, 28: 2**31 - 1, 29: 0})),
    "a chunk without a beginning": delivery(entry(b"x", {26: "u", 27: 3, 28: 30, 29: 2})),
    "a chunk out of range": delivery(entry(b"x", {26: "u", 27: 3, 28: 30, 29: 7})),
    "a receipt for an acknowledgement that was not asked": frame(wire.ACK_RESPONSE, {1: 0, 4: 1234}),
    "an active consumer change for nobody": raw(command(31, {1: 99, 2: 1})),
    "the end of the topic": raw(command(27, {1: 0})),
    "a topic that moved": raw(command(68, {1: 0, 2: 1, 3: "pulsar://127.0.0.1:1"})),
    "an unknown command": raw(command(99, {})),
    "a producer closed that is none": frame(wire.CLOSE_PRODUCER, {1: 99, 2: Huge}),
    "a message that was sent by us": frame(wire.SEND, {1: 0, 2: 0}, rest=entry()),
    "half a frame": delivery(entry(b"x" * 100))[:40],
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


@pytest.mark.parametrize("name", OPENING)
async def test_a_broker_that_lies_while_a_producer_opens(name: str) -> None:
    with lying(OPENING[name]) as broker:
        if name == "redirects to itself for ever":
            broker.answers[wire.LOOKUP] = reply(wire.LOOKUP_RESPONSE, 2, {1: broker.url, 3: 0}, into=4)
        error = await in_time(produce(broker.url))
        assert error is not None or name in HARMLESS
        assert broker.connections < 500
    with lying({}) as honest:
        assert await in_time(produce(honest.url, limit=60)) is None


@pytest.mark.parametrize("name", SENDING)
async def test_a_broker_that_lies_about_what_it_was_sent(name: str) -> None:
    with lying(SENDING[name]) as broker:
        error = await in_time(produce(broker.url))
        harmless = ("gives a receipt without an id", "gives a receipt twice")
        assert error is not None or name in harmless
        if name == "fails each SEND":
            # The reference client retries after such an error until the send timeout.
            assert isinstance(error, errors.PersistenceError | errors.Timeout)


@pytest.mark.parametrize("name", LYING)
async def test_a_broker_that_delivers_lies(name: str) -> None:
    good = frame(wire.MESSAGE, {1: 0, 2: {1: 9, 2: 9}}, rest=entry(b"good"))

    def deliver(peer: Peer, fields: Fields, rest: bytes) -> None:
        peer.send(LYING[name], good)

    async def consume(url: str) -> None:
        async with connect(url) as client, client.consumer("t", "s", receiver_queue=10) as consumer:
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                for got in await consumer.receive_many(1000, timeout=0.5):
                    if bytes(got.data) == b"good":
                        return

    with lying({wire.FLOW: deliver}) as broker:
        await in_time(consume(broker.url))
        assert broker.connections < 500


UNREADABLE = {
    "encrypted": (entry(b"x" * 30, {13: {1: "key", 2: b"x" * 100}, 15: b"y" * 12}), errors.Unsupported),
    "damaged": (entry(crc=1), errors.ChecksumError),
    "compressed in an unknown way": (entry(b"x", {8: 9, 9: 1}), errors.CompressionError),
}


@pytest.mark.parametrize("policy", ["skip", "fail", "discard"])
@pytest.mark.parametrize("name", UNREADABLE)
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


async def test_a_silent_broker_is_noticed_by_keep_alive() -> None:
    with lying({wire.PING: silent}) as broker:
        async with forebay.connect(broker.url, keep_alive=0.3, max_backoff=0.1) as client:
            async with client.producer("t"):
                deadline = time.monotonic() + 60
                while broker.connections < 2:
                    assert time.monotonic() < deadline, "the lie went unnoticed"
                    await asyncio.sleep(0.02)


async def test_a_broker_that_answers_byte_by_byte_is_a_broker() -> None:
    def slowly(peer: Peer, fields: Fields, rest: bytes) -> None:
        for byte in HELLO:
            peer.send(bytes([byte]))

    with lying({wire.CONNECT: slowly}) as broker:
        assert await in_time(produce(broker.url, 3, 60)) is None
