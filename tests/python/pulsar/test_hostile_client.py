"""Clients that lie to the embedded Pulsar broker: it closes the connection or keeps answering, serves others,
and does not grow."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.pulsar import wire
from support.pulsar.harness import EmbeddedPulsar
from support.pulsar.wire import Huge, Peer, command, entry, frame, message, raw

HELLO = frame(wire.CONNECT, {1: "hostile", 4: 19})
TOPIC = "persistent://public/default/hostile"
BAD_CODEC = 77


def producing(*frames: bytes) -> list[bytes]:
    return [HELLO, frame(wire.PRODUCER, {1: TOPIC, 2: 1, 3: 1}), *frames]


def consuming(*frames: bytes) -> list[bytes]:
    return [HELLO, frame(wire.SUBSCRIBE, {1: TOPIC, 2: "s", 3: 1, 4: 1, 5: 1}), *frames]


def sending(rest: bytes) -> list[bytes]:
    return producing(frame(wire.SEND, {1: 1, 2: 0, 3: 1}, rest=rest))


def noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(2000)


SCRIPTS: dict[str, list[bytes]] = {
    # before the handshake
    "random bytes": [noise(1)],
    "an HTTP request": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "a TLS hello": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(2)],
    "a command before CONNECT": [frame(wire.LOOKUP, {1: TOPIC, 2: 1})],
    "a SEND before CONNECT": [frame(wire.SEND, {1: 1, 2: 0}, rest=entry())],
    "CONNECT twice": [HELLO, HELLO],
    "CONNECT without its required field": [frame(wire.CONNECT, {})],
    "CONNECT of a version below zero": [frame(wire.CONNECT, {1: "x", 4: -5})],
    "CONNECT of a version to come": [frame(wire.CONNECT, {1: "x", 4: 2**31 - 1})],
    "CONNECT with a name of a mebibyte": [frame(wire.CONNECT, {1: "x" * (1 << 20), 4: 19})],
    # lengths that lie
    "a frame of four gigabytes": [HELLO, struct.pack(">II", 0xFFFFFFFF, 4)],
    "a frame over the limit": [HELLO, struct.pack(">II", 6 << 20, 4)],
    "a frame of no bytes": [HELLO, struct.pack(">I", 0)],
    "a frame of one byte": [HELLO, struct.pack(">IB", 1, 0)],
    "a command longer than its frame": [HELLO, frame(wire.PING, {}, command_size=1000)],
    "a command of four gigabytes": [HELLO, frame(wire.PING, {}, command_size=0xFFFFFFFF)],
    "a command of no bytes": [HELLO, raw(b"")],
    "a command without a type": [HELLO, raw(message({2: b""}))],
    "a command with a string longer than itself": [HELLO, raw(b"\x08\x02\x12\x7f\x0a\x7e")],
    "a varint without an end": [HELLO, raw(b"\x08" + b"\xff" * 20)],
    "a field with an unknown wire type": [HELLO, raw(b"\x08\x02\x17")],
    "a group that never ends": [HELLO, raw(b"\x08\x12\x0b\x0b\x0b\x0b")],
    "nested messages without end": [HELLO, raw(command(wire.SUBSCRIBE, {9: b"\x3a\x7f" * 60}))],
    "bytes after the command": [HELLO, frame(wire.PING, {}, rest=b"leftover")],
    # commands that are unknown, of the other side, or out of place
    "an unknown command": [HELLO, frame(99, {})],
    "a command of the broker": [HELLO, frame(wire.SEND_RECEIPT, {1: 1, 2: 1})],
    "CONNECTED from a client": [HELLO, frame(wire.CONNECTED, {1: "x"})],
    "PONG without PING": [HELLO, frame(wire.PONG)],
    "a thousand PINGs": [HELLO, frame(wire.PING) * 1000],
    "an answer to no challenge": [
        HELLO,
        frame(wire.AUTH_RESPONSE, {1: "x", 2: {1: "token", 2: b"x"}, 3: 19}),
    ],
    # names
    "a topic with a bad domain": [HELLO, frame(wire.LOOKUP, {1: "bad://a/b/c", 2: 1})],
    "a topic of ten thousand letters": [HELLO, frame(wire.PRODUCER, {1: TOPIC + "x" * 10_000, 2: 1, 3: 1})],
    "a topic that climbs out of its folder": [
        HELLO,
        frame(wire.PRODUCER, {1: "../../etc/passwd", 2: 1, 3: 1}),
    ],
    "a topic with a NUL and a quote": [
        HELLO,
        frame(wire.PRODUCER, {1: TOPIC + "\0'; drop table--", 2: 1, 3: 1}),
    ],
    "a topic that is no UTF-8": [HELLO, frame(wire.PRODUCER, {1: b"\xff\xfe\xfd", 2: 1, 3: 1})],
    "a subscription without a name": [HELLO, frame(wire.SUBSCRIBE, {1: TOPIC, 2: "", 3: 0, 4: 1, 5: 1})],
    "partitions of a number that is none": [
        HELLO,
        frame(wire.PARTITIONS, {1: f"{TOPIC}-partition-99999999999", 2: 1}),
    ],
    # producing
    "SEND to a producer that is none": [HELLO, frame(wire.SEND, {1: 7, 2: 0, 3: 1}, rest=entry())],
    "SEND without an entry": producing(frame(wire.SEND, {1: 1, 2: 0, 3: 1})),
    "SEND with a wrong checksum": sending(entry(crc=1)),
    "SEND with metadata longer than the frame": sending(entry(metadata_size=10_000_000)),
    "SEND with garbage as metadata": sending(entry(metadata=b"\xff" * 30)),
    "SEND of an entry cut after the magic": sending(b"\x0e\x01\x00"),
    "SEND with the broker's own metadata": sending(b"\x0e\x02\x00\x00\x00\x04\x08\x01\x10\x01" + entry()),
    "SEND of less than no messages": producing(frame(wire.SEND, {1: 1, 2: 0, 3: -1}, rest=entry())),
    "SEND of two billion messages": producing(
        frame(wire.SEND, {1: 1, 2: 0, 3: 2**31 - 1}, rest=entry(metadata={11: 2**31 - 1}))
    ),
    "SEND of a batch of less than none": sending(entry(metadata={11: -7})),
    "SEND with sequence ids that go back": producing(
        frame(wire.SEND, {1: 1, 2: 100, 3: 1}, rest=entry()),
        frame(wire.SEND, {1: 1, 2: 5, 3: 1}, rest=entry()),
        frame(wire.SEND, {1: 1, 2: 200, 3: 1, 6: 3}, rest=entry()),
        frame(wire.SEND, {1: 1, 2: Huge, 3: 1, 6: Huge}, rest=entry()),
    ),
    "SEND that is compressed by an unknown codec": sending(entry(metadata={8: BAD_CODEC, 9: 2**31 - 1})),
    "SEND of a chunk of a billion": sending(entry(metadata={26: "u", 27: 10**9, 28: 2**31 - 1, 29: 5})),
    "SEND for the year 292277026": sending(entry(metadata={19: 2**62})),
    "a producer twice under one id": producing(frame(wire.PRODUCER, {1: TOPIC + "2", 2: 1, 3: 2})),
    "a thousand producers": [HELLO, *[frame(wire.PRODUCER, {1: TOPIC, 2: i, 3: i}) for i in range(1000)]],
    "closing a producer that is none": [HELLO, frame(wire.CLOSE_PRODUCER, {1: 9, 2: 1})],
    "SEND after close": producing(
        frame(wire.CLOSE_PRODUCER, {1: 1, 2: 2}), frame(wire.SEND, {1: 1, 2: 0, 3: 1}, rest=entry())
    ),
    # consuming
    "FLOW for a consumer that is none": [HELLO, frame(wire.FLOW, {1: 9, 2: 10})],
    "FLOW of nothing": consuming(frame(wire.FLOW, {1: 1, 2: 0})),
    "FLOW of four billion, often": consuming(*[frame(wire.FLOW, {1: 1, 2: 2**32 - 1})] * 50),
    "SUBSCRIBE of an unknown type": [HELLO, frame(wire.SUBSCRIBE, {1: TOPIC, 2: "t", 3: 9, 4: 1, 5: 1})],
    "a consumer twice under one id": consuming(
        frame(wire.SUBSCRIBE, {1: TOPIC, 2: "other", 3: 1, 4: 1, 5: 2})
    ),
    "Key_Shared with ranges upside down": [
        HELLO,
        frame(wire.SUBSCRIBE, {1: TOPIC, 2: "k", 3: 3, 4: 1, 5: 1, 17: {1: 1, 3: {1: 60_000, 2: -5}}}),
    ],
    "an acknowledgement of what never was": consuming(
        frame(wire.ACK, {1: 1, 2: 0, 3: {1: Huge, 2: Huge}, 8: 5})
    ),
    "a cumulative acknowledgement of two": consuming(
        frame(wire.ACK, {1: 1, 2: 1, 3: [{1: 1, 2: 1}, {1: 2, 2: 2}], 8: 5})
    ),
    "an acknowledgement of none": consuming(frame(wire.ACK, {1: 1, 2: 0, 8: 5})),
    "an acknowledgement of ten thousand": consuming(
        frame(wire.ACK, {1: 1, 2: 0, 3: [{1: i, 2: i} for i in range(10_000)], 8: 5})
    ),
    "an acknowledgement with a set of a megabit": consuming(
        frame(wire.ACK, {1: 1, 2: 0, 3: {1: 1, 2: 0, 5: [-1] * 16_000}, 8: 5})
    ),
    "an acknowledgement of an unknown kind": consuming(frame(wire.ACK, {1: 1, 2: 7, 3: {1: 1, 2: 1}})),
    "redelivery of what never was": consuming(frame(wire.REDELIVER, {1: 1, 2: {1: Huge, 2: 5}})),
    "SEEK to nothing": consuming(frame(wire.SEEK, {1: 1, 2: 9})),
    "SEEK to both ends of everything": consuming(
        frame(wire.SEEK, {1: 1, 2: 9, 3: {1: Huge, 2: 0}, 4: Huge}), frame(wire.SEEK, {1: 1, 2: 10, 4: Huge})
    ),
    "UNSUBSCRIBE of a consumer that is none": [HELLO, frame(wire.UNSUBSCRIBE, {1: 9, 2: 1})],
    "the last id for a consumer that is none": [HELLO, frame(wire.LAST_ID, {1: 9, 2: 1})],
    "statistics of a consumer that is none": [HELLO, frame(wire.CONSUMER_STATS, {1: 1, 4: 9})],
    "a pattern that explodes": [
        HELLO,
        frame(wire.TOPICS, {1: 1, 2: "public/default", 4: "(a+)+" * 50 + "b"}),
    ],
    "topics of a namespace that is none": [HELLO, frame(wire.TOPICS, {1: 1, 2: "///"})],
    "a schema of a topic that is none": [HELLO, frame(wire.GET_SCHEMA, {1: 1, 2: "x", 3: b"\0" * 8})],
    "random bytes after the handshake": [HELLO, noise(3)],
}


def resident(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedPulsar]:
    broker = EmbeddedPulsar(durability="memory")
    before = resident(broker.process.pid)
    yield broker
    grown = resident(broker.process.pid) - before
    broker.stop()
    assert grown < 100 << 20, f"hostile clients made the broker grow by {grown >> 20} MiB"


def open_peer(broker: EmbeddedPulsar) -> Peer:
    return Peer(socket.create_connection(("127.0.0.1", int(broker.url.rsplit(":", 1)[1])), 5))


def serves(broker: EmbeddedPulsar) -> None:
    """Asserts that another client is served."""
    peer = open_peer(broker)
    peer.send(HELLO, frame(wire.PRODUCER, {1: f"{TOPIC}-good", 2: 1, 3: 1}))
    read(peer, wire.CONNECTED)
    read(peer, wire.PRODUCER_SUCCESS)
    peer.send(frame(wire.SEND, {1: 1, 2: 0, 3: 1}, rest=entry()))
    read(peer, wire.SEND_RECEIPT)
    peer.close()


def read(peer: Peer, kind: int) -> dict[int, list[Any]]:
    while (got := peer.read()) is not None:
        if got[0] == kind:
            return got[1]
    raise AssertionError(f"closed before {kind}")


def closed_or_alive(peer: Peer) -> None:
    """Asserts that the broker has closed or answers a PING; it must not hang."""
    peer.send(frame(wire.PING))
    try:
        while (got := peer.read()) is not None:
            if got[0] == wire.PONG:
                return
    except TimeoutError:
        pytest.fail("the broker neither closes nor answers")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_broker_closes_or_goes_on(broker: EmbeddedPulsar, name: str) -> None:
    peer = open_peer(broker)
    peer.send(*SCRIPTS[name])
    if name in ("an HTTP request", "a TLS hello", "random bytes", "random bytes after the handshake"):
        # They may announce a frame that is still incomplete.
        peer.socket.shutdown(socket.SHUT_WR)
        while peer.read() is not None:
            pass
    else:
        closed_or_alive(peer)
    peer.close()
    serves(broker)


def test_a_frame_cut_at_every_byte_is_forgotten(broker: EmbeddedPulsar) -> None:
    whole = b"".join(sending(entry(b"payload")))
    for cut in range(1, len(whole), 7):
        peer = open_peer(broker)
        peer.send(whole[:cut])
        peer.close()
    serves(broker)


def test_a_frame_that_comes_byte_by_byte_is_a_frame(broker: EmbeddedPulsar) -> None:
    peer = open_peer(broker)
    peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in b"".join(sending(entry(b"payload"))):
        peer.send(bytes([byte]))
    read(peer, wire.SEND_RECEIPT)
    peer.close()


def test_announced_frames_that_never_come_take_no_memory(broker: EmbeddedPulsar) -> None:
    before = resident(broker.process.pid)
    peers = [open_peer(broker) for _ in range(100)]
    for peer in peers:
        peer.send(HELLO, struct.pack(">II", 5 << 20, 100))
        read(peer, wire.CONNECTED)
    assert resident(broker.process.pid) - before < 64 << 20
    serves(broker)
    for peer in peers:
        peer.close()


def test_a_consumer_that_never_reads_does_not_make_the_broker_grow(broker: EmbeddedPulsar) -> None:
    topic = f"{TOPIC}-unread"
    slow = open_peer(broker)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.send(HELLO, frame(wire.SUBSCRIBE, {1: topic, 2: "s", 3: 1, 4: 1, 5: 1}))
    read(slow, wire.SUCCESS)
    slow.send(frame(wire.FLOW, {1: 1, 2: 1_000_000}))
    producer = open_peer(broker)
    producer.send(HELLO, frame(wire.PRODUCER, {1: topic, 2: 1, 3: 1}))
    read(producer, wire.PRODUCER_SUCCESS)
    payload = entry(bytes(100_000))
    before = resident(broker.process.pid)
    for number in range(300):
        producer.send(frame(wire.SEND, {1: 1, 2: number, 3: 1}, rest=payload))
        read(producer, wire.SEND_RECEIPT)
    # The messages are 30 MB; the queue of the slow consumer must not multiply them.
    assert resident(broker.process.pid) - before < 120 << 20
    slow.close()
    producer.close()
    serves(broker)


def test_many_connections_that_say_nothing(broker: EmbeddedPulsar) -> None:
    peers = [open_peer(broker) for _ in range(200)]
    serves(broker)
    for peer in peers:
        peer.close()


def test_a_storm_of_connections(broker: EmbeddedPulsar) -> None:
    for number in range(300):
        peer = open_peer(broker)
        peer.send(HELLO if number % 2 else noise(number)[:50])
        peer.close()
    serves(broker)
