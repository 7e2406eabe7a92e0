"""Clients of each protocol that send noise, announce what never comes and read nothing: over real sockets the
broker serves others meanwhile, and its process does not grow.

Each violation by itself is a test in Rust: `tests/rust/broker` and the fuzz targets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forebay import blocking

from support.mqtt import wire as mqtt
from support.pulsar import wire as pulsar
from support.service import EmbeddedBroker
from support.strangers import Crowd, EveryListener, round_trips
from support.tubemq import wire as tubemq
from support.waiting import PATIENCE, until


class Words(NamedTuple):
    """What a hostile client says."""

    hello: bytes
    """A beginning that is well-formed."""
    announced: bytes
    """The beginning of a large frame."""
    question: bytes
    """What the broker answers, again and again."""


REGISTER: dict[str, Any] = {"clientId": "hostile", "brokerCheckSum": -1, "hostName": "127.0.0.1"}
WORDS = {
    "pulsar": Words(
        pulsar.frame(pulsar.CONNECT, {1: "hostile", 4: 19}),
        struct.pack(">II", 5 << 20, 100),
        pulsar.frame(pulsar.PING),
    ),
    "mqtt": Words(
        mqtt.connect("hostile"),
        b"\x30" + mqtt.varint(1_900_000) + mqtt.binary("t"),
        mqtt.packet(mqtt.PINGREQ),
    ),
    "tubemq": Words(
        tubemq.request(1, "producer_register", **REGISTER),
        struct.pack(">IIII", tubemq.TOKEN, 1, 3584, 8192) + bytes(100),
        tubemq.request(1, "producer_register", **REGISTER),
    ),
}


class Target:
    """The broker as a process of its own."""

    def __init__(self) -> None:
        self._broker = EmbeddedBroker(mqtt_port=0, tubemq_port=0)
        urls = {name: self._broker.call(f"{name}_url") for name in ("mqtt", "tubemq")}
        self.urls: dict[str, str] = {"pulsar": self._broker.url, **urls}
        self.stop = self._broker.stop

    @property
    def resident(self) -> int:
        """Resident memory of the process, in bytes."""
        return int(Path(f"/proc/{self._broker.process.pid}/statm").read_text().split()[1]) * 4096

    def peer(self, protocol: str, buffer: int | None = None) -> socket.socket:
        port = int(self.urls[protocol].rsplit(":", 1)[1])
        peer = socket.socket()
        if buffer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        peer.settimeout(10)
        peer.connect(("127.0.0.1", port))
        return peer

    def serves(self) -> None:
        """Asserts that clients of all protocols are served."""
        for url in self.urls.values():
            with (
                blocking.connect(url, connect_timeout=PATIENCE) as client,
                client.producer("good") as producer,
            ):
                producer.send(b"honest")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()
    target.serves()
    yield target
    target.stop()


@pytest.mark.parametrize("protocol", WORDS)
def test_noise_and_unfinished_frames_take_no_memory(target: Target, protocol: str) -> None:
    hello, announced, _ = WORDS[protocol]
    before = target.resident
    for number in range(200):
        with target.peer(protocol) as peer, contextlib.suppress(ConnectionError):
            peer.sendall(random.Random(number).randbytes(50) if number % 2 else hello)
    for cut in range(1, len(hello), 3):
        with target.peer(protocol) as peer:
            peer.sendall(hello[:cut])
    peers = [target.peer(protocol) for _ in range(100)]
    for peer in peers:
        peer.sendall(hello + announced)
    target.serves()
    assert target.resident - before < 64 << 20
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("protocol", WORDS)
def test_a_client_that_never_reads_is_not_read_either(target: Target, protocol: str) -> None:
    hello, _, question = WORDS[protocol]
    before, sent = target.resident, 0
    lot = question * 10_000
    with target.peer(protocol, buffer=4096) as peer:
        peer.sendall(hello)
        peer.settimeout(2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 1 << 28:
                peer.sendall(lot)
                sent += len(lot)
        assert sent < 1 << 28, "the broker took what it could not answer"
        assert target.resident - before < 64 << 20
        target.serves()


STRANGERS = 500


async def test_five_hundred_strangers_in_sum() -> None:
    """They hold a descriptor each and little else, and well-behaved clients are served meanwhile."""
    broker = EveryListener()
    try:
        clients = broker.clients.values()
        process = Path(f"/proc/{broker.process.pid}")

        def figures() -> dict[str, int]:
            return {
                "memory": int((process / "statm").read_text().split()[1]) * 4096,
                "threads": len(os.listdir(process / "task")),
                "descriptors": len(os.listdir(process / "fd")),
            }

        await asyncio.gather(*(round_trips(url, 20) for url in clients))
        before = figures()
        async with Crowd(broker.ports, STRANGERS).there():
            trips = await asyncio.gather(*(round_trips(url, 200) for url in clients))
            during, status = figures(), broker.call("status")
        assert [len(one) for one in trips] == [200] * len(clients)
        assert status["messages_dropped"] == 0 and status["connections_refused"] == 0
        assert during["memory"] - before["memory"] < 64 << 20
        # Handshakes and passwords have threads of their own.
        assert during["threads"] - before["threads"] <= 16
        assert during["descriptors"] - before["descriptors"] <= STRANGERS + 100
        await until(lambda: figures()["descriptors"] <= before["descriptors"] + 10)
        await until(lambda: broker.call("status")["connections"] == 0)
    finally:
        broker.stop()
