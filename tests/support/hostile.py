"""Servers that attack their clients: they flood, answer without a question, and stop reading."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from support.mqtt import wire as mqtt
from support.protobuf import parse
from support.pulsar import wire as pulsar
from support.tubemq import wire as tubemq
from support.tubemq.liar import Liar

Handler = Callable[["Connection", Any], None]


class Connection:
    """One client at a hostile server."""

    def __init__(self, server: Hostile, writer: asyncio.StreamWriter) -> None:
        self.server, self.writer = server, writer
        #: Whether it reads no more.
        self.is_deaf = False
        self._floods: list[asyncio.Task[None]] = []

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        self.server.sent += sum(map(len, frames))

    def flood(self, make: bytes | Callable[[], bytes], *, deaf: bool = False) -> None:
        """Says this again and again, until all has been sent that the server may send."""
        self.is_deaf = self.is_deaf or deaf
        self._floods.append(asyncio.ensure_future(self._flood(make)))

    async def _flood(self, make: bytes | Callable[[], bytes]) -> None:
        with contextlib.suppress(OSError):
            while self.server.sent < self.server.budget:
                self.send(make if isinstance(make, bytes) else make())
                await self.writer.drain()
                await asyncio.sleep(0)

    def end(self) -> None:
        for flood in self._floods:
            flood.cancel()
        self.writer.transport.abort()


class Hostile:
    """A server that is well-behaved but for its ``answers``, by the kind of what a client says."""

    scheme: str

    def __init__(self, answers: dict[Any, Handler], budget: int) -> None:
        self.answers, self.budget = answers, budget
        self.sent = self.port = 0
        #: Connections so far, and at the same time at most.
        self.connections = self.most = 0
        self.asked: Counter[Any] = Counter()
        #: Errors of its own.
        self.broken: list[str] = []
        self._open: set[Connection] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @staticmethod
    def take(buffer: bytearray) -> tuple[Any, Any] | None:
        """The kind of the first frame, and the frame."""
        raise NotImplementedError

    def behave(self, connection: Connection, kind: Any, said: Any) -> None:
        """The answer of an honest server."""
        raise NotImplementedError

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, writer)
        self._open.add(connection)
        self.connections += 1
        self.most = max(self.most, len(self._open))
        buffer = bytearray()
        try:
            while not connection.is_deaf and (data := await reader.read(1 << 16)):
                buffer += data
                while not connection.is_deaf and (one := self.take(buffer)) is not None:
                    kind, said = one
                    self.asked[kind] += 1
                    if kind in self.answers:
                        self.answers[kind](connection, said)
                    else:
                        self.behave(connection, kind, said)
                    await asyncio.sleep(0)
            if connection.is_deaf:
                await writer.wait_closed()
        except OSError:
            pass
        except Exception as error:
            self.broken.append(repr(error))
        finally:
            self._open.discard(connection)
            connection.end()

    @asynccontextmanager
    async def up(self, host: str = "127.0.0.1") -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, host, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for connection in list(self._open):
                connection.end()


class HostilePulsar(Hostile):
    scheme = "pulsar"

    @staticmethod
    def take(buffer: bytearray) -> tuple[int, tuple[dict[int, list[Any]], bytes]] | None:
        if len(buffer) < 8:
            return None
        total, size = struct.unpack_from(">II", buffer)
        if len(buffer) < 4 + total:
            return None
        body = bytes(buffer[8 : 4 + total])
        del buffer[: 4 + total]
        base = parse(body[:size])
        kind = base[1][0]
        return kind, (parse(base.get(kind, [b""])[0]), body[size:])

    def behave(self, connection: Connection, kind: int, said: tuple[dict[int, list[Any]], bytes]) -> None:
        fields, _ = said
        frame = pulsar.frame
        if kind == pulsar.CONNECT:
            connection.send(frame(pulsar.CONNECTED, {1: "hostile", 2: 21, 3: 5 << 20}))
        elif kind == pulsar.PARTITIONS:
            connection.send(frame(pulsar.PARTITIONS_RESPONSE, {1: 0, 2: fields[2][0], 3: 0}))
        elif kind == pulsar.LOOKUP:
            connection.send(frame(pulsar.LOOKUP_RESPONSE, {1: self.url, 3: 1, 4: fields[2][0], 5: 1}))
        elif kind == pulsar.PRODUCER:
            connection.send(
                frame(pulsar.PRODUCER_SUCCESS, {1: fields[3][0], 2: "hostile", 3: -1, 4: b"", 6: 1})
            )
        elif kind == pulsar.SUBSCRIBE:
            connection.send(frame(pulsar.SUCCESS, {1: fields[5][0]}))
        elif kind == pulsar.PING:
            connection.send(frame(pulsar.PONG))
        elif kind in (pulsar.CLOSE_PRODUCER, pulsar.CLOSE_CONSUMER):
            connection.send(frame(pulsar.SUCCESS, {1: fields[2][0]}))


class HostileMqtt(Hostile):
    scheme = "mqtt"

    @staticmethod
    def take(buffer: bytearray) -> tuple[int, mqtt.Packet] | None:
        packet = mqtt.take(buffer)
        return None if packet is None else (packet.kind, packet)

    def behave(self, connection: Connection, kind: int, said: mqtt.Packet) -> None:
        if kind == mqtt.CONNECT:
            connection.send(mqtt.packet(mqtt.CONNACK, b"\0\0" + mqtt.properties(mqtt.V5)))
        elif kind in (mqtt.SUBSCRIBE, mqtt.UNSUBSCRIBE):
            kind, code = (mqtt.SUBACK, b"\2") if kind == mqtt.SUBSCRIBE else (mqtt.UNSUBACK, b"\0")
            connection.send(mqtt.packet(kind, said.body[:2] + mqtt.properties(mqtt.V5) + code))
        elif kind == mqtt.PINGREQ:
            connection.send(mqtt.packet(mqtt.PINGRESP))


class HostileTubeMq(Hostile):
    """Its honest answers are those of :class:`Liar`."""

    scheme = "tubemq"

    def __init__(self, answers: dict[Any, Handler], budget: int) -> None:
        super().__init__(answers, budget)
        self.liar = Liar()

    @staticmethod
    def take(buffer: bytearray) -> tuple[str, tubemq.Request] | None:
        one = tubemq.take(buffer)
        if one is None:
            return None
        asked = tubemq.read_request(one)
        return asked.name, asked

    def behave(self, connection: Connection, kind: str, said: tubemq.Request) -> None:
        self.liar.port = self.port
        connection.send(self.liar.honest(said))
