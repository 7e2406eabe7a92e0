"""Pulsar's frames by hand, to send what no client and no broker would send."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any

from support.accepting import Acceptor
from support.protobuf import Fields, Huge, message, parse, varint
from support.waiting import PATIENCE

__all__ = ["Fields", "Huge", "message", "parse", "varint"]

CONNECT, CONNECTED, SUBSCRIBE, PRODUCER, SEND, SEND_RECEIPT, SEND_ERROR, MESSAGE, ACK, FLOW = range(2, 12)
UNSUBSCRIBE, SUCCESS, ERROR, CLOSE_PRODUCER, CLOSE_CONSUMER, PRODUCER_SUCCESS, PING, PONG = range(12, 20)
REDELIVER, PARTITIONS, PARTITIONS_RESPONSE, LOOKUP, LOOKUP_RESPONSE = range(20, 25)
CONSUMER_STATS, SEEK, LAST_ID, TOPICS, GET_SCHEMA = 25, 28, 29, 32, 34
AUTH_CHALLENGE, AUTH_RESPONSE, ACK_RESPONSE = 36, 37, 38
TOPIC_MIGRATED = 68

NO_REQUEST = 2**64 - 1
"""Number of the request of a CLOSE that the broker sends by itself."""


def command(kind: int, fields: Fields | None = None) -> bytes:
    """A ``BaseCommand``."""
    body = message(fields or {})
    return varint(1 << 3) + varint(kind) + varint(kind << 3 | 2) + varint(len(body)) + body


def raw(
    body: bytes, *, command_size: int | None = None, total: int | None = None, rest: bytes = b""
) -> bytes:
    """A frame whose sizes may lie."""
    command_size = len(body) if command_size is None else command_size
    total = 4 + len(body) + len(rest) if total is None else total
    return struct.pack(">II", total, command_size) + body + rest


def frame(kind: int, fields: Fields | None = None, **lies: Any) -> bytes:
    return raw(command(kind, fields), **lies)


CRC = []
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = _crc >> 1 ^ (0x82F63B78 if _crc & 1 else 0)
    CRC.append(_crc)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def entry(
    payload: bytes = b"x",
    metadata: Fields | bytes | None = None,
    *,
    crc: int | None = None,
    metadata_size: int | None = None,
) -> bytes:
    """The part of SEND and MESSAGE behind the command: checksum, metadata, payload."""
    if not isinstance(metadata, bytes):
        metadata = message({1: "p", 2: 0, 3: 1_700_000_000_000} | (metadata or {}))
    size = len(metadata) if metadata_size is None else metadata_size
    covered = struct.pack(">I", size) + metadata + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(covered) if crc is None else crc) + covered


class Peer:
    """One end of a connection that reads whole frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE)

    def send(self, *frames: bytes) -> None:
        # The other side may have closed already, which does not fail the test.
        with contextlib.suppress(OSError):
            self.socket.sendall(b"".join(frames))

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return data

    def read(self) -> tuple[int, dict[int, list[Any]], bytes] | None:
        """Kind, fields and the rest of a frame; ``None`` when the other side has closed."""
        head = self._exactly(8)
        if head is None:
            return None
        total, size = struct.unpack(">II", head)
        body = self._exactly(total - 4)
        if body is None:
            return None
        base = parse(body[:size])
        kind = base[1][0]
        return kind, parse(base.get(kind, [b""])[0]), body[size:]

    def close(self) -> None:
        self.socket.close()


Answer = Callable[[Peer, dict[int, list[Any]], bytes], None]


class FakeBroker:
    """A broker that behaves well, except for the ``answers`` that a test gives it; with ``tls`` over TLS."""

    def __init__(self, answers: dict[int, Answer] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.peers: list[Peer] = []
        self.answers = self._good() | (answers or {})
        # Each connection shakes hands on its own thread.
        self._acceptor = Acceptor(self._take, tls)
        self.url = f"pulsar{'+ssl' if tls else ''}://127.0.0.1:{self._acceptor.port}"

    def _good(self) -> dict[int, Answer]:
        def receipt(peer: Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
            peer.send(frame(SEND_RECEIPT, {1: fields[1][0], 2: fields[2][0], 3: {1: 1, 2: fields[2][0]}}))

        def found(peer: Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
            url = 2 if self.url.startswith("pulsar+ssl:") else 1
            peer.send(frame(LOOKUP_RESPONSE, {url: self.url, 3: 1, 4: fields[2][0], 5: 1}))

        def say(kind: int, request: int, more: Fields | None = None) -> Answer:
            return lambda peer, fields, rest: peer.send(
                frame(kind, {request: fields[number[kind]][0]} | (more or {}))
            )

        number = {PRODUCER_SUCCESS: 3, PARTITIONS_RESPONSE: 2}
        return {
            CONNECT: lambda peer, fields, rest: peer.send(frame(CONNECTED, {1: "fake", 2: 19, 3: 5 << 20})),
            PARTITIONS: say(PARTITIONS_RESPONSE, 2, {1: 0, 3: 0}),
            LOOKUP: found,
            PRODUCER: say(PRODUCER_SUCCESS, 1, {2: "fake-1", 3: -1, 4: b"", 6: 1}),
            SUBSCRIBE: lambda peer, fields, rest: peer.send(frame(SUCCESS, {1: fields[5][0]})),
            SEND: receipt,
            PING: lambda peer, fields, rest: peer.send(frame(PONG)),
            CLOSE_PRODUCER: lambda peer, fields, rest: peer.send(frame(SUCCESS, {1: fields[2][0]})),
            CLOSE_CONSUMER: lambda peer, fields, rest: peer.send(frame(SUCCESS, {1: fields[2][0]})),
        }

    def _take(self, connection: socket.socket) -> None:
        self.connections += 1
        peer = Peer(connection)
        connection.settimeout(60)
        self.peers.append(peer)
        threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            while (got := peer.read()) is not None:
                kind, fields, rest = got
                if answer := self.answers.get(kind):
                    answer(peer, fields, rest)
        peer.close()

    def close(self) -> None:
        self._acceptor.close()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
