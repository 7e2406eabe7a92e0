"""MQTT brokers that lie to the client.

Each operation ends in time, with a typed error, or on the next connection with success. An MQTT 5.0 broker is
told the reason. The process does not grow by sizes that were only claimed.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import forebay
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
    return {"version": "5" if version == V5 else "3.1.1", "max_backoff": 0.05, "connect_timeout": limit}


CONNACK_OK = wire.packet(wire.CONNACK, b"\0\0\0")

#: The answer to CONNECT, in MQTT 5.0, and the error that connecting ends with.
HANDSHAKES: dict[str, tuple[Answer, type[errors.Error]]] = {
    "silence": (silent, errors.Timeout),
    "close": (send_and_close(), errors.Error),
    "half a CONNACK, then close": (send_and_close(CONNACK_OK[:3]), errors.Error),
    "a reserved flag": (send(wire.packet(wire.CONNACK, b"\2\0\0")), errors.ProtocolError),
    "an unknown reason": (send(wire.packet(wire.CONNACK, b"\0\x7f\0")), errors.ProtocolError),
    "a reason of another packet": (send(wire.packet(wire.CONNACK, b"\0\x8e\0")), errors.ProtocolError),
    "a session that was not asked for": (send(wire.packet(wire.CONNACK, b"\1\0\0")), errors.ProtocolError),
    "a refusal with a session": (send(wire.packet(wire.CONNACK, b"\1\x87\0")), errors.ProtocolError),
    "no properties": (send(wire.packet(wire.CONNACK, b"\0\0")), errors.ProtocolError),
    "properties that overrun": (send(wire.packet(wire.CONNACK, b"\0\0\x7f")), errors.ProtocolError),
    "receive maximum 0": (send(wire.packet(wire.CONNACK, b"\0\0\3\x21\0\0")), errors.ProtocolError),
    "maximum QoS 2": (send(wire.packet(wire.CONNACK, b"\0\0\2\x24\2")), errors.ProtocolError),
    "a property of PUBLISH": (send(wire.packet(wire.CONNACK, b"\0\0\2\x01\0")), errors.ProtocolError),
    "a property twice": (send(wire.packet(wire.CONNACK, b"\0\0\4\x25\1\x25\1")), errors.ProtocolError),
    "bytes behind": (send(wire.packet(wire.CONNACK, b"\0\0\0\0")), errors.ProtocolError),
    "PUBLISH first": (send(wire.publish("a", b"x")), errors.ProtocolError),
    "PINGRESP first": (send(wire.packet(wire.PINGRESP)), errors.ProtocolError),
    "AUTH unasked for": (send(wire.auth(0x18, [("authentication_method", "x")])), errors.ProtocolError),
    "a packet of a client": (send(wire.connect("x")), errors.ProtocolError),
    "type 0": (send(b"\0\0"), errors.ProtocolError),
    "an endless length": (send(b"\x20\xff\xff\xff\xff\x01"), errors.ProtocolError),
    "256 MB that are only claimed": (send(b"\x20\xff\xff\xff\x7f"), errors.Error),
    "not MQTT": (send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), errors.Error),
    "bad user or password": (send(wire.packet(wire.CONNACK, b"\0\x86\0")), errors.AuthenticationError),
    "not authorised": (send(wire.packet(wire.CONNACK, b"\0\x87\0")), errors.AuthorizationError),
    "a 3.x broker's no": (send(wire.packet(wire.CONNACK, b"\0\1")), errors.UnsupportedVersion),
    "use another server": (send(wire.packet(wire.CONNACK, b"\0\x9c\0")), errors.ServiceNotReady),
    "DISCONNECT instead": (send(wire.disconnect(0x8B)), errors.Error),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_handshake_that_lies(name: str):
    answer, kind = HANDSHAKES[name]
    # Some of the lies that end with these errors are waited out.
    limit = 2 if kind in (errors.Timeout, errors.Error) else 30
    before = resident()
    async with Liar(V5, {wire.CONNECT: answer}, times=1000).up() as url:
        with pytest.raises(kind):
            await within(forebay.connect(url, **options(V5, limit))._start())  # pyright: ignore
    assert resident() - before < 64 << 20


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.UnsupportedVersion),
        (2, errors.InvalidArgument),
        (3, errors.ServiceNotReady),
        (4, errors.AuthenticationError),
        (5, errors.AuthorizationError),
        (6, errors.ProtocolError),
    ],
)
async def test_each_return_code_of_3_x(code: int, kind: type[errors.Error]):
    answer = send(wire.packet(wire.CONNACK, bytes([0, code])))
    async with Liar(V311, {wire.CONNECT: answer}, times=1000).up() as url:
        with pytest.raises(kind):
            await within(forebay.connect(url, **options(V311))._start())  # pyright: ignore


async def test_a_handshake_that_comes_byte_by_byte_is_no_lie():
    async def drip(peer: Peer) -> None:
        for byte in CONNACK_OK:
            peer.send(bytes([byte]))
            await asyncio.sleep(0.01)

    tasks: list[asyncio.Task[None]] = []
    liar = Liar(V5, {wire.CONNECT: lambda peer, _: tasks.append(asyncio.ensure_future(drip(peer)))})
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        assert not (await within(client.publish("a", b"x", qos=1))).is_error


def alias(number: int, topic: str = "t") -> bytes:
    return wire.publish(topic, b"lie", props=[("topic_alias", number)])


#: The bytes behind an honest SUBACK, in MQTT 5.0, and the reason that the broker is told.
AFTER: dict[str, tuple[list[bytes], int | None]] = {
    "QoS 3": ([wire.packet(wire.PUBLISH, b"\0\1t\0\1\0", 6)], 0x81),
    "DUP with QoS 0": ([wire.packet(wire.PUBLISH, b"\0\1t\0", 8)], 0x81),
    "packet identifier 0": ([wire.publish("t", b"", 1, 0)], 0x82),
    "a topic with a wildcard": ([wire.publish("t/#", b"")], 0x90),
    "no topic": ([wire.publish("", b"")], 0x82),
    "a topic that is not UTF-8": ([wire.publish(b"\xff", b"")], 0x81),
    "a topic with U+0000": ([wire.publish("a\0b", b"")], 0x81),
    "a topic that overruns": ([wire.packet(wire.PUBLISH, b"\0\x09t")], 0x81),
    "alias 0": ([alias(0)], 0x94),
    "an alias above our maximum": ([alias(101)], 0x94),
    "an alias that was never given": ([alias(5, "")], 0x94),
    "subscription identifier 0": ([wire.publish("t", props=[("subscription_identifier", 0)])], 0x82),
    "a property of CONNECT": ([wire.packet(wire.PUBLISH, b"\0\1t\5\x11\0\0\0\1")], 0x82),
    "a property that does not exist": ([wire.packet(wire.PUBLISH, b"\0\1t\2\x7e\0")], 0x81),
    "a response topic with a wildcard": ([wire.publish("t", props=[("response_topic", "#")])], 0x82),
    "a packet above our maximum": ([b"\x30\xff\xff\xff\x7f" + b"x" * 1000], 0x95),
    "a second CONNACK": ([CONNACK_OK], 0x82),
    "SUBSCRIBE": ([wire.subscribe("a")], 0x82),
    "PINGREQ": ([wire.packet(wire.PINGREQ)], 0x82),
    "PINGRESP with a body": ([wire.packet(wire.PINGRESP, b"x")], 0x81),
    "PUBACK with reserved flags": ([wire.packet(wire.PUBACK, b"\0\1", 2)], 0x81),
    "PUBACK cut short": ([wire.packet(wire.PUBACK, b"\0")], 0x81),
    "PUBACK with an unknown reason": ([wire.packet(wire.PUBACK, b"\0\1\x7f")], 0x82),
    "PUBREL with identifier 0": ([wire.packet(wire.PUBREL, b"\0\0")], 0x82),
    "AUTH": ([wire.auth(0x18, [("authentication_method", "x")])], 0x82),
    "an endless length": ([b"\x30\xff\xff\xff\xff\x01"], 0x81),
    "DISCONNECT with a reason of clients": ([wire.disconnect(0x04)], 0x82),
    "DISCONNECT: busy": ([wire.disconnect(0x89)], None),
    "DISCONNECT: shutting down": ([wire.disconnect(0x8B, [("reason_string", "bye")])], None),
    "DISCONNECT: keep alive": ([wire.disconnect(0x8D)], None),
    "random bytes": ([random.Random(7).randbytes(4096)], ...),  # pyright: ignore
}


@pytest.mark.parametrize("name", AFTER)
async def test_a_lie_ends_the_connection_and_the_next_one_works(name: str):
    packets, reason = AFTER[name]
    liar = Liar(V5, {})

    def subscribed(peer: Peer, packet: Packet) -> None:
        liar.honest(peer, packet)
        peer.send(*packets)

    liar.lies = {wire.SUBSCRIBE: subscribed}
    before = resident()
    async with liar.up() as url:
        async with forebay.connect(url, receive_maximum=5, **options(V5)) as client:
            async with client.consumer("t"):
                async with asyncio.timeout(PATIENCE):
                    while liar.connections < 2:
                        await asyncio.sleep(0.01)
                assert not (await within(client.publish("t", b"x", qos=2))).is_error
    if reason is not ...:
        assert liar.goodbyes[:1] == [reason] if reason is not None else liar.goodbyes in ([], [0], [None])
    assert resident() - before < 64 << 20


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


#: Lies that are answers: the request, and the answer.
ANSWERS: dict[str, tuple[int, Answer, str]] = {
    "SUBACK for more filters": (
        wire.SUBSCRIBE,
        lambda peer, packet: peer.send(wire.packet(wire.SUBACK, packet.body[:2] + b"\0\0\0")),
        "consumer",
    ),
    "SUBACK without reasons": (
        wire.SUBSCRIBE,
        lambda peer, packet: peer.send(wire.packet(wire.SUBACK, packet.body[:2] + b"\0")),
        "consumer",
    ),
    "SUBACK and close": (
        wire.SUBSCRIBE,
        lambda peer, packet: peer.close(),
        "consumer",
    ),
    "PUBACK for QoS 2": (
        wire.PUBLISH,
        lambda peer, packet: peer.send(wire.ack(wire.PUBACK, publish_id(packet))),
        "send",
    ),
    "PUBCOMP before PUBREC": (
        wire.PUBLISH,
        lambda peer, packet: peer.send(wire.ack(wire.PUBCOMP, publish_id(packet))),
        "send",
    ),
    "the connection ends before the answer": (wire.PUBREL, lambda peer, packet: peer.close(), "released"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_lies(name: str):
    kind, answer, what = ANSWERS[name]
    liar = Liar(V5, {kind: answer})
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        if what == "consumer":
            async with client.consumer("t"):
                pass
        else:
            # The liar keeps no sessions: the outcome of a QoS 2 message cannot be known.
            with pytest.raises(errors.Disconnected, match="may or may not"):
                await within(client.publish("t", b"x", qos=2))
            assert not (await within(client.publish("t", b"y", qos=2))).is_error
    assert liar.connections == 2


@pytest.mark.parametrize("kind", [wire.PUBACK, wire.PUBREC, wire.PUBCOMP, wire.SUBACK, wire.UNSUBACK])
async def test_an_answer_to_nothing_is_let_be(kind: int):
    body = b"\x12\x34" + (b"\0\0" if kind in {wire.SUBACK, wire.UNSUBACK} else b"")

    def answer(peer: Peer, packet: Packet) -> None:
        peer.send(wire.packet(kind, body))
        liar.honest(peer, packet)

    liar = Liar(V5, {})
    liar.lies = {wire.PUBLISH: answer}
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        assert not (await within(client.publish("t", b"x", qos=1))).is_error
    assert liar.connections == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_refusal_is_told_with_its_reason_and_the_brokers_words(qos: int):
    kind = wire.PUBACK if qos == 1 else wire.PUBREC
    words = [("reason_string", "no\x1b[31m more")]

    def refuse(peer: Peer, packet: Packet) -> None:
        peer.send(wire.ack(kind, publish_id(packet), 0x97, words))

    liar = Liar(V5, {wire.PUBLISH: refuse})
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        with pytest.raises(errors.QuotaExceeded, match="0x97") as caught:
            await within(client.publish("t", b"x", qos=qos))
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


async def test_a_broker_that_does_not_answer_pings_is_left():
    liar = Liar(V5, {wire.PINGREQ: silent})
    async with liar.up() as url:
        async with forebay.connect(url, keep_alive=1, **options(V5)) as client:
            async with asyncio.timeout(PATIENCE):
                while liar.connections < 2:
                    await asyncio.sleep(0.05)
            assert not (await within(client.publish("t", b"x", qos=1))).is_error


async def test_a_broker_that_closes_after_each_packet_does_not_stop_what_gets_through():
    liar = Liar(V5, {}, times=4)

    def closing(peer: Peer, packet: Packet) -> None:
        liar.honest(peer, packet)
        peer.close()

    liar.lies = {wire.CONNECT: closing}
    liar.times = 0
    async with liar.up() as url, forebay.connect(url, **options(V5)) as client:
        liar.lies, liar.times = {wire.PUBLISH: closing}, 4
        codes = await within(asyncio.gather(*(client.publish("t", b"x", qos=1) for _ in range(4))))
        assert not any(code.is_error for code in codes)


@pytest.mark.parametrize(("maximum", "awaits"), [(1000, False), (65_535, False), (65_535, True)])
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


@pytest.mark.parametrize("total", [40_000, 65_535])
async def test_as_many_messages_as_the_receive_maximum_can_be_collected_before_the_first_acknowledgement(
    total: int,
) -> None:
    acked = 0

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
