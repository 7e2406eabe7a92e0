"""MQTT brokers that lie to the client: each operation ends in time, with a typed error, or on the next
connection with success.

Each lie by itself is a test in Rust, in `src/mqtt/tests`, and of the fuzz targets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import forebay
import forebay.blocking
from forebay import errors

from support.mqtt import wire
from support.mqtt.wire import V5, V311, Packet
from support.waiting import PATIENCE

Answer = Callable[["Peer", Packet], None]


class Peer:
    """One connection of a client to the liar."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def send(self, *packets: bytes) -> None:
        for one in packets:
            self.writer.write(one)

    def close(self) -> None:
        self.writer.close()


def send(*packets: bytes) -> Answer:
    return lambda peer, _: peer.send(*packets)


def send_and_close(*packets: bytes) -> Answer:
    def answer(peer: Peer, _: Packet) -> None:
        peer.send(*packets)
        peer.close()

    return answer


def silent(_peer: Peer, _packet: Packet) -> None:
    pass


def packet_id(packet: Packet) -> int:
    """The packet identifier of SUBSCRIBE, UNSUBSCRIBE and the acknowledgements."""
    return struct.unpack(">H", packet.body[:2])[0]


def publish_id(packet: Packet) -> int:
    topic = struct.unpack(">H", packet.body[:2])[0]
    return struct.unpack(">H", packet.body[2 + topic : 4 + topic])[0]


class Liar:
    """A broker whose first ``times`` connections follow ``lies``; later ones are honest."""

    def __init__(self, version: int, lies: dict[int, Answer], times: int = 1) -> None:
        self.version, self.lies, self.times = version, lies, times
        self.connections = 0
        #: The reasons of the DISCONNECTs that the client sent, None for one without a reason.
        self.goodbyes: list[int | None] = []
        self.broken: list[str] = []

    def connack(self) -> bytes:
        return wire.packet(wire.CONNACK, b"\0\0" + wire.properties(self.version))

    def honest(self, peer: Peer, packet: Packet) -> None:
        version = self.version
        if packet.kind == wire.CONNECT:
            peer.send(self.connack())
        elif packet.kind == wire.SUBSCRIBE:
            body = packet.body[:2] + wire.properties(version) + b"\1"
            peer.send(wire.packet(wire.SUBACK, body))
        elif packet.kind == wire.UNSUBSCRIBE:
            body = packet.body[:2] + wire.properties(version) + (b"\0" if version == V5 else b"")
            peer.send(wire.packet(wire.UNSUBACK, body))
        elif packet.kind == wire.PUBLISH and packet.flags & 6:
            kind = wire.PUBACK if packet.flags & 2 else wire.PUBREC
            peer.send(wire.ack(kind, publish_id(packet)))
        elif packet.kind == wire.PUBREL:
            peer.send(wire.ack(wire.PUBCOMP, packet_id(packet)))
        elif packet.kind == wire.PINGREQ:
            peer.send(wire.packet(wire.PINGRESP))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        lies = self.lies if self.connections <= self.times else {}
        peer, buffer = Peer(writer), bytearray()
        try:
            while data := await reader.read(65536):
                buffer += data
                while (packet := wire.take(buffer)) is not None:
                    if packet.kind == wire.DISCONNECT:
                        self.goodbyes.append(packet.body[0] if packet.body else None)
                    lies.get(packet.kind, self.honest)(peer, packet)
                if writer.is_closing():
                    return
        except (ConnectionError, wire.Malformed) as error:
            self.broken.append(repr(error))
        finally:
            writer.close()

    @asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"mqtt://127.0.0.1:{port}"
        finally:
            server.close()
            server.close_clients() if hasattr(server, "close_clients") else None


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


def options(version: int, limit: float = 30) -> dict[str, Any]:
    return {"version": "5" if version == V5 else "3.1.1", "max_backoff": 0.1, "connect_timeout": limit}


def connack(body: bytes) -> bytes:
    return wire.packet(wire.CONNACK, body)


#: The answer to CONNECT, and the error that connecting ends with. The other refusals are tested in
#: `src/mqtt/tests/connection.rs`.
HANDSHAKES: dict[str, tuple[int, Answer, type[errors.Error]]] = {
    "silence": (V5, silent, errors.Timeout),
    "close": (V5, send_and_close(), errors.Disconnected),
    "256 MB that are only claimed": (V5, send(b"\x20\xff\xff\xff\x7f"), errors.FrameTooLarge),
    "bad user or password": (V5, send(connack(b"\0\x86\0")), errors.AuthenticationError),
    "return code 6 of 3.x": (V311, send(connack(b"\0\6")), errors.ProtocolError),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_handshake_that_lies(name: str):
    version, answer, kind = HANDSHAKES[name]
    # Connecting is tried again until then.
    limit = 2 if kind in (errors.Timeout, errors.Disconnected, errors.FrameTooLarge) else 30
    before = resident()
    async with Liar(version, {wire.CONNECT: answer}, times=1000).up() as url:
        with pytest.raises(kind):
            await within(forebay.connect(url, **options(version, limit))._start())  # pyright: ignore
    assert resident() - before < 64 << 20


async def test_a_lie_ends_the_connection_and_the_next_one_works():
    liar = Liar(V5, {})

    def subscribed(peer: Peer, packet: Packet) -> None:
        liar.honest(peer, packet)
        peer.send(wire.publish("t/#", b""))

    liar.lies = {wire.SUBSCRIBE: subscribed}
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        async with client.consumer("t"):
            async with asyncio.timeout(PATIENCE):
                while liar.connections < 2:
                    await asyncio.sleep(0.01)
            assert not (await within(client.publish("t", b"x", qos=2))).is_error
    assert liar.goodbyes[:1] == [0x90], "the topic has a wildcard"


async def test_a_broker_that_sends_more_than_our_receive_maximum_is_put_up_with():
    # As Mosquitto 2.0 does to a slow client: the messages are accepted, and the session continues.
    liar = Liar(V5, {})

    def subscribed(peer: Peer, packet: Packet) -> None:
        liar.honest(peer, packet)
        peer.send(*(wire.publish("t", b"%d" % i, 1 + i % 2, i + 1) for i in range(60)))

    liar.lies = {wire.SUBSCRIBE: subscribed}
    async with liar.up() as url, forebay.connect(url, receive_maximum=5, **options(V5)) as client:
        async with client.consumer("t") as consumer:
            got = [await within(consumer.receive()) for _ in range(60)]
            assert [message.data for message in got] == [b"%d" % i for i in range(60)]
            consumer.ack_many(got)
            assert not (await within(client.publish("t", b"x", qos=2))).is_error
    assert liar.connections == 1


async def test_the_outcome_of_a_message_of_qos_2_is_unknown_when_its_session_is_lost():
    # The liar keeps no sessions.
    liar = Liar(V5, {wire.PUBREL: lambda peer, packet: peer.close()})
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        with pytest.raises(errors.Disconnected, match="may or may not"):
            await within(client.publish("t", b"x", qos=2))
        assert not (await within(client.publish("t", b"y", qos=2))).is_error
    assert liar.connections == 2


async def test_a_refusal_is_told_with_its_reason_and_the_brokers_words():
    words = [("reason_string", "no\x1b[31m more")]

    def refuse(peer: Peer, packet: Packet) -> None:
        peer.send(wire.ack(wire.PUBREC, publish_id(packet), 0x97, words))

    liar = Liar(V5, {wire.PUBLISH: refuse})
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        with pytest.raises(errors.QuotaExceeded, match="0x97") as caught:
            await within(client.publish("t", b"x", qos=2))
        assert "\x1b" not in str(caught.value)
        assert caught.value.topic == "t"
    assert liar.connections == 1


async def test_a_refused_filter_is_named():
    def refuse(peer: Peer, packet: Packet) -> None:
        peer.send(wire.packet(wire.SUBACK, packet.body[:2] + b"\0\1\x87"))

    async with Liar(V5, {wire.SUBSCRIBE: refuse}).up() as url:
        async with forebay.connect(url, **options(V5)) as client:
            with pytest.raises(errors.AuthorizationError) as caught:
                await within(client.consumer(["a", "b"])._start())  # pyright: ignore
            assert caught.value.topic == "b"


@pytest.mark.parametrize(("maximum", "awaits"), [(1000, False), (65_535, True)])
async def test_a_broker_that_exceeds_the_receive_maximum_is_read_as_it_is_acknowledged(
    maximum: int, awaits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """More than a session can hold would end the connection, and all would come again."""
    total = 80_000
    acked = 0

    peers: list[Peer] = []

    def subscribed(peer: Peer, packet: Packet) -> None:
        peers.append(peer)
        peer.send(wire.packet(wire.SUBACK, packet.body[:2] + wire.properties(V5) + b"\1"))
        for i in range(total):
            peer.send(wire.publish("t", b"%d" % i, 1, i % 65_535 + 1))

    def ack(_peer: Peer, _packet: Packet) -> None:
        nonlocal acked
        acked += 1

    liar = Liar(V5, {wire.SUBSCRIBE: subscribed, wire.PUBACK: ack}, times=9)
    async with (
        liar.up() as url,
        forebay.connect(url, receive_maximum=maximum, **options(V5)) as client,
    ):
        async with client.consumer("t") as consumer:
            answer = asyncio.ensure_future(client.publish("a", b"x", qos=1)) if awaits else None
            # The client reads as much as it wants before the first acknowledgement.
            with caplog.at_level("WARNING", "forebay"):
                async with asyncio.timeout(PATIENCE):
                    while not any("receive_maximum" in record.message for record in caplog.records):
                        await asyncio.sleep(0.05)
            received = 0
            while received < total:
                messages = await consumer.receive_many(10_000, timeout=PATIENCE)
                assert messages, received
                assert bytes(messages[0].data) == b"%d" % received
                received += len(messages)
                for message in messages:
                    consumer.ack(message)
            async with asyncio.timeout(PATIENCE):
                while acked < total:
                    await asyncio.sleep(0.01)
            if answer is not None:
                assert not (await within(answer)).is_error
    assert liar.connections == 1
    assert sum("receive_maximum" in record.message for record in caplog.records) == 1


async def test_a_whole_receive_maximum_can_be_collected_before_the_first_acknowledgement() -> None:
    total, acked = 65_535, 0

    def subscribed(peer: Peer, packet: Packet) -> None:
        liar.honest(peer, packet)
        for i in range(total):
            peer.send(wire.publish("t", b"%d" % i, 1, i + 1))

    def ack(_peer: Peer, _packet: Packet) -> None:
        nonlocal acked
        acked += 1

    liar = Liar(V5, {wire.SUBSCRIBE: subscribed, wire.PUBACK: ack}, times=9)
    async with liar.up() as url, forebay.connect(url, receive_maximum=65_535, **options(V5)) as client:
        async with client.consumer("t") as consumer:
            collected: list[Any] = []
            while len(collected) < total:
                more = await consumer.receive_many(total - len(collected), timeout=PATIENCE)
                assert more, len(collected)
                collected += more
            assert bytes(collected[-1].data) == b"%d" % (total - 1)
            # PUBACK belongs to the test, so that a publication of QoS 2 shows that answers arrive.
            assert not (await within(client.publish("a", b"x", qos=2))).is_error
            consumer.ack_many(collected)
            async with asyncio.timeout(PATIENCE):
                while acked < total:
                    await asyncio.sleep(0.01)
    assert liar.connections == 1


async def test_the_handles_of_a_blocking_client_are_closed_side_by_side() -> None:
    silent: dict[int, Answer] = {wire.UNSUBSCRIBE: lambda *_: None, wire.PUBLISH: lambda *_: None}

    def seconds(url: str) -> float:
        client = forebay.blocking.connect(url, operation_timeout=4)
        consumers = [client.consumer(f"t/{number}") for number in range(3)]
        producers = [client.producer(f"t/{number}", qos=1) for number in range(3)]
        for producer in producers:
            producer.send_nowait(b"x")
        began = time.monotonic()
        with contextlib.suppress(errors.Error):
            client.close()
        took = time.monotonic() - began
        assert all(handle.closed for handle in (*consumers, *producers))
        return took

    async with Liar(V5, silent).up() as url:
        assert await asyncio.to_thread(seconds, url) < 16, "one after another they take 24 s"
