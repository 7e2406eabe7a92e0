"""Every answer of a broker to a later connection: it refuses, closes, says what it does not like, speaks
another protocol, or says nothing. The pauses between attempts grow, an event and a record tell why, attempts
go on or end as documented, and the client works again when the broker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import forebay
from forebay import errors

from support.cells import side_by_side
from support.chaos import ChaosProxy
from support.hostile import HostilePulsar
from support.mqtt import wire as mqtt
from support.pulsar import wire as pulsar
from support.scripts import free_port
from support.service import EmbeddedBroker
from support.tubemq import wire as tubemq
from support.waiting import PATIENCE, until

MAX_BACKOFF = 0.8
FAILURES = 4
"""Attempts that a cell waits for."""

Answer = Callable[["Gate", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Gate(ChaosProxy):
    """Forwards connections, or gives them an answer of its own."""

    answer: Answer | None = None
    calls = 0
    """Requests that the gate has refused."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.failing: set[asyncio.StreamWriter] = set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.answer is None:
            return await super()._accept(reader, writer)
        self.accepted += 1
        self.failing.add(writer)
        with contextlib.suppress(OSError):
            await self.answer(self, reader, writer)
        self.failing.discard(writer)
        writer.close()

    async def fail(self, answer: Answer | None) -> None:
        """Ends all connections, and gives later ones the answer; without one they are refused."""
        if answer is None:
            await self.deafen()
        self.answer = answer
        self.cut()

    async def recover(self) -> None:
        if self.answer is None:
            await self.listen()
        self.answer = None
        for writer in self.failing:
            writer.transport.abort()


async def close(_gate: Gate, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Says nothing and closes."""


async def silence(_gate: Gate, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while await reader.read(4096):
        pass


def saying(words: bytes) -> Answer:
    """Answers what the client says first, and closes."""

    async def answer(_gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(words)
        await writer.drain()

    return answer


def connack(code: int) -> Answer:
    return saying(mqtt.packet(mqtt.CONNACK, bytes((0, code, 0))))


def connack_3(code: int) -> Answer:
    return saying(mqtt.packet(mqtt.CONNACK, bytes((0, code))))


def pulsar_error(code: int) -> Answer:
    return saying(pulsar.frame(pulsar.ERROR, {1: pulsar.NO_REQUEST, 2: code, 3: "not now"}))


def pulsar_request_error(code: int) -> Answer:
    """The handshake succeeds, and each request fails."""

    async def answer(gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = bytearray()
        while data := await reader.read(1 << 16):
            buffer += data
            while (one := HostilePulsar.take(buffer)) is not None:
                kind, (fields, _) = one
                if kind == pulsar.CONNECT:
                    writer.write(pulsar.frame(pulsar.CONNECTED, {1: "failing", 2: 21, 3: 5 << 20}))
                elif kind == pulsar.LOOKUP:
                    gate.calls += 1
                    said = {3: 2, 4: fields[2][0], 6: code, 7: "not now"}
                    writer.write(pulsar.frame(pulsar.LOOKUP_RESPONSE, said))
                elif kind == pulsar.PING:
                    writer.write(pulsar.frame(pulsar.PONG))
            await writer.drain()

    return answer


def tubemq_error(code: int) -> Answer:
    """Every call is answered so."""

    async def answer(gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = bytearray()
        while data := await reader.read(1 << 16):
            buffer += data
            while (one := tubemq.take(buffer)) is not None:
                asked = tubemq.read_request(one)
                fields: dict[str, Any] = {"errCode": code, "errMsg": "not now"}
                if not asked.name.startswith("balance"):
                    fields["success"] = False
                gate.calls += 1
                writer.write(tubemq.response(asked.serial, asked.name, **fields))
            await writer.drain()

    return answer


@dataclass(frozen=True)
class Fault:
    """An answer, and what comes of it."""

    answer: Answer | None
    ends: type[errors.Error] | None = None
    """The error with which the producer ends. By default the client tries again."""
    warning: str = ""
    """What a warning says, once."""
    call: bool = False
    """Whether it is the answer to requests, and the connection stays."""
    options: dict[str, Any] = field(default_factory=dict)


COMMON = {
    "refused": Fault(None),
    "closed": Fault(close),
    "silence": Fault(silence, options={"connect_timeout": 0.5, "request_timeout": 0.5}),
}
STRANGE = {
    "HTTP": Fault(saying(b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\n\r\nbusy\n")),
    "a TLS alert": Fault(saying(b"\x15\x03\x01\x00\x02\x02\x28")),
}
FAULTS: dict[str, dict[str, Fault]] = {
    "mqtt 3.1.1": {
        **COMMON,
        **STRANGE,
        "server unavailable": Fault(connack_3(3)),
        "wrong password": Fault(connack_3(4), warning="0x86"),
        "not authorized": Fault(connack_3(5), warning="0x87"),
    },
    "mqtt 5": {
        **COMMON,
        **STRANGE,
        "server unavailable": Fault(connack(0x88)),
        "busy": Fault(connack(0x89)),
        "quota": Fault(connack(0x97)),
        "wrong password": Fault(connack(0x86), warning="0x86"),
        "not authorized": Fault(connack(0x87), warning="0x87"),
        "banned": Fault(connack(0x8A), warning="0x8A"),
        "use another server": Fault(connack(0x9C)),
        "connection rate": Fault(connack(0x9F)),
    },
    "pulsar": {
        **COMMON,
        **STRANGE,
        "no frame": Fault(saying(b"\xff" * 64)),
        "not ready": Fault(pulsar_error(6)),
        "too many requests": Fault(pulsar_error(14)),
        "wrong credentials": Fault(pulsar_error(3), warning="cannot be opened again, and is tried on"),
        "lookups that are not ready": Fault(pulsar_request_error(6), call=True),
        "lookups that fail": Fault(pulsar_request_error(1), call=True),
        "lookups without authorization": Fault(pulsar_request_error(4), ends=errors.AuthorizationError),
        "not authorized": Fault(pulsar_error(4), ends=errors.AuthorizationError),
        "another version": Fault(pulsar_error(10), ends=errors.UnsupportedVersion),
    },
    "tubemq": {
        **COMMON,
        **STRANGE,
        "unavailable": Fault(tubemq_error(503), call=True),
        "moved": Fault(tubemq_error(301), call=True),
        "wrong credentials": Fault(tubemq_error(415), call=True),
        "an internal error": Fault(tubemq_error(500), call=True),
    },
}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Those of an embedded broker with all protocols."""
    broker = EmbeddedBroker(mqtt_port=0, tubemq_port=0)
    yield broker.call("urls")
    broker.stop()


class Cell:
    """A client whose broker fails."""

    def __init__(
        self, urls: dict[str, str], dialect: str, name: str, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.name, self.fault, self.kind = f"{dialect}, {name}, {kind}", FAULTS[dialect][name], kind
        self.protocol, _, version = dialect.partition(" ")
        self.url = urls[self.protocol]
        self.before = self.records_before = 0
        """Events and records of the time before."""
        self.topic = "".join(letter if letter.isalnum() else "_" for letter in self.name)
        limits = {"max_backoff": MAX_BACKOFF, "connect_timeout": 5, "retry_first": True}
        limits |= self.fault.options
        if self.protocol == "tubemq":
            limits["heartbeat_interval"] = 0.5
        else:
            limits.pop("request_timeout", None)
        if version:
            limits["version"] = version
        self.options = limits
        self.qos = {"qos": 1} if self.protocol == "mqtt" else {}
        self.reading: dict[str, Any] = dict(self.qos)
        if self.protocol != "mqtt":
            self.reading["subscription"] = self.topic
        self.seen: list[forebay.ConnectionEvent] = []
        self.caplog = caplog

    def failures(self) -> list[forebay.ConnectionEvent]:
        """The failed attempts."""
        return [event for event in self.seen[self.before :] if event.kind == "connect_failed"]

    def records(self, level: int, text: str, before: int = 0) -> list[str]:
        """The texts of records, without the first ones of all."""
        records = self.caplog.records[before:]
        said = (record.getMessage() for record in records if record.levelno == level)
        return [one for one in said if text in one]

    def is_told(self) -> bool:
        """Whether a warning says that the connection was lost, and records say why each attempt failed."""
        address = f"127.0.0.1:{self.gate.port}"
        lost = self.records(logging.WARNING, f"the connection to {address} ended: ", self.records_before)
        tried = self.records(logging.DEBUG, address, self.records_before)
        causes = [(event.attempts, event.error.message) for event in self.failures() if event.error]
        return bool(lost) and all(
            any(one.startswith(f"attempt {number} ") and cause in one for one in tried)
            for number, cause in causes
        )

    async def run(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        assert parts.port
        replaces = None if self.protocol == "mqtt" else parts.netloc
        async with (
            Gate(parts.port, seed=1, port=free_port(), replaces=replaces) as self.gate,
            forebay.connect(self.url, connect_timeout=PATIENCE) as witness,
            witness.producer(self.topic) as self.witness,
        ):
            # TubeMQ's broker makes a topic for its first message.
            await self.witness.send(b"before", **self.qos)
            url = f"{parts.scheme}://127.0.0.1:{self.gate.port}"
            async with forebay.connect(url, **self.options) as client:
                client.on_event(self.seen.append)
                self.handle = await self.opened(client)
                await self.works()
                self.before, self.records_before = len(self.seen), len(self.caplog.records)
                await self.gate.fail(self.fault.answer)
                await (self.ended(client) if self.fault.ends else self.tried_again(client))

    async def opened(self, client: Any) -> Any:
        """Another handle."""
        if self.kind == "producer":
            return await client.producer(self.topic)
        return await client.consumer(self.topic, **self.reading)

    async def works(self) -> None:
        """The handle sends or receives."""
        async with asyncio.timeout(PATIENCE):
            if self.kind == "producer":
                await self.handle.send(b"x", **self.qos)
                return
            while True:
                await self.witness.send(b"x", **self.qos)
                with contextlib.suppress(errors.Timeout):
                    message = await self.handle.receive(timeout=0.5)
                    return await self.handle.ack(message)

    async def tried_again(self, client: Any) -> None:
        if self.fault.call:
            await until(lambda: self.gate.calls >= FAILURES)
        else:
            working = asyncio.create_task(self.works())
            await until(lambda: len(self.failures()) >= FAILURES)
            self.check_pauses()
            await until(self.is_told)
            await until(lambda: not self.handle.connected)
        if self.fault.warning:
            await until(lambda: self.records(logging.WARNING, self.fault.warning))
        await self.gate.recover()
        await (self.works() if self.fault.call else working)
        await until(lambda: client.connected and self.handle.connected)

    def check_pauses(self) -> None:
        """They double from 0.1 s to the limit, and half of each may be left out by chance."""
        times = [event.time.timestamp() for event in self.failures()]
        if self.protocol == "tubemq":
            # The master is asked every 0.5 s as well: for all producers, and for each consumer.
            assert len(times) <= 7 + (times[-1] - times[0]) * (2 / MAX_BACKOFF + 2 / 0.5)
            return
        assert [event.attempts for event in self.failures()] == list(range(1, len(times) + 1))
        for number, (one, two) in enumerate(itertools.pairwise(times), 1):
            least = min(0.1 * 2**number, MAX_BACKOFF) / 2
            # Events have whole milliseconds.
            assert two - one >= least - 0.002, f"pause {number} of {two - one:.3f} s is below {least} s"

    async def ended(self, client: Any) -> None:
        assert self.fault.ends
        await until(lambda: any(event.kind == "gave_up" for event in self.seen))
        (gone,) = (event for event in self.seen if event.kind == "gave_up")
        assert isinstance(gone.error, self.fault.ends)
        with pytest.raises(self.fault.ends):
            await self.works()
        await self.gate.recover()
        self.handle = await self.opened(client)
        await self.works()


KINDS = ("producer", "consumer")


@pytest.mark.parametrize("dialect", FAULTS)
async def test_an_answer_at_a_reconnect(
    urls: dict[str, str], dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "forebay")
    cells = [Cell(urls, dialect, name, kind, caplog) for name in FAULTS[dialect] for kind in KINDS]
    await side_by_side([(cell, cell.run()) for cell in cells])
    # One for each cell and outage.
    for warning in filter(None, (fault.warning for fault in FAULTS[dialect].values())):
        said = [
            one for one in caplog.records if one.levelno == logging.WARNING and warning in one.getMessage()
        ]
        assert len(said) == len(KINDS), said
