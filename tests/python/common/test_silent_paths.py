"""Networks that fall silent: from one moment on a proxy forwards nothing, in one or both directions, and
keeps its connections open. What was said meanwhile is lost, or arrives late. Clients notice by their
keep-alive alone, say so, and come back with the path.

Other limits are longer than a test waits. The cells of a protocol run side by side: they wait, and compute
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

import forebay
from forebay import blocking, errors

from support.cells import side_by_side
from support.chaos import IN, OUT, ChaosProxy
from support.faces import Threaded
from support.scripts import free_port
from support.service import EmbeddedBroker
from support.waiting import PATIENCE, until

LONG = 600
"""Seconds of the limits that a test is not about."""
SILENCES: dict[str, Callable[[ChaosProxy], None]] = {
    "both ways": lambda path: path.silence(OUT, IN),
    "from the client": lambda path: path.silence(OUT),
    "to the client": lambda path: path.silence(IN),
    "for a while": ChaosProxy.hold,
}


@dataclass(frozen=True)
class Dialect:
    """A protocol: its options, and those of its consumers and sends."""

    protocol: str
    client: dict[str, Any]
    consumer: dict[str, Any]
    send: dict[str, Any] = field(default_factory=dict)
    listener: str = ""
    """If it is not that of the protocol."""


MQTT: dict[str, Any] = {"keep_alive": 2, "clean_start": False}
DIALECTS = {
    "pulsar": Dialect(
        "pulsar",
        {"keep_alive": 2},
        {"position": "earliest"},
    ),
    "mqtt 3.1.1": Dialect("mqtt", MQTT | {"version": "3.1.1"}, {"qos": 1}, {"qos": 1}),
    "mqtt 5": Dialect("mqtt", MQTT | {"version": "5"}, {"qos": 1}, {"qos": 1}),
    "WebSocket": Dialect("mqtt", MQTT | {"version": "5"}, {"qos": 1}, {"qos": 1}, "mqtt_ws"),
    "tubemq": Dialect(
        "tubemq",
        {"heartbeat_interval": 1, "request_timeout": 2},
        {"position": "first"},
    ),
}


class Target:
    """The embedded broker with all protocols, and clients that reach it without a proxy."""

    def __init__(self) -> None:
        # It notices silent clients as early as they notice it.
        ports = dict.fromkeys(("mqtt_port", "mqtt_ws_port", "tubemq_port"), 0)
        self._broker = EmbeddedBroker(keep_alive=2, tubemq_client_timeout=3, **ports)
        self.urls: dict[str, str] = self._broker.call("urls")
        self.stop = self._broker.stop

    def topic(self, protocol: str, name: str) -> str:
        topic = "".join(letter if letter.isalnum() else "_" for letter in name)
        if protocol == "tubemq":
            self._broker.call("create_topic", f"tubemq:{topic}", 1)
        return topic


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.stop()


class Case:
    """One cell: a client behind a path of its own, and what it said of its connections."""

    def __init__(
        self,
        target: Target,
        dialect: str,
        state: str,
        silence: str = "both ways",
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self.name = f"{dialect}, {state}, silent {silence}, {'blocking' if pool else 'asyncio'}"
        self.dialect, self._silence, self._pool = DIALECTS[dialect], SILENCES[silence], pool
        self.topic = target.topic(self.dialect.protocol, self.name)
        self.reading = dict(self.dialect.consumer)
        if self.dialect.protocol != "mqtt":
            # All members of a group of TubeMQ have the same topics.
            self.reading["subscription"] = self.topic
        self.url = target.urls[self.dialect.listener or self.dialect.protocol]
        self.seen: list[forebay.ConnectionEvent] = []
        self.client: Any = None
        self.path: Any = None

    @contextlib.asynccontextmanager
    async def ahead(self) -> AsyncIterator[None]:
        """The path."""
        parts = urllib.parse.urlsplit(self.url)
        replaces = None if self.dialect.protocol == "mqtt" else parts.netloc
        assert parts.port
        proxy = ChaosProxy(parts.port, seed=1, port=free_port(), replaces=replaces, linger=LONG)
        async with proxy as self.path:
            yield

    @contextlib.asynccontextmanager
    async def connected(self, **options: Any) -> AsyncIterator[None]:
        """The client on the path."""
        async with self.ahead():
            await self.connect(**options)
            try:
                yield
            finally:
                # The operation timeout is long, and a failed test must not wait for it.
                self.path.heal()
                self.path.cut()
                with contextlib.suppress(errors.Error):
                    await self.client.close()

    async def connect(self, **options: Any) -> None:
        if self.dialect.protocol == "mqtt":
            options["client_id"] = self.topic
        limits = {"connect_timeout": 3, "operation_timeout": LONG, "max_backoff": 0.2, "retry_first": True}
        options = self.dialect.client | limits | options
        url = urllib.parse.urlsplit(self.url)._replace(netloc=f"127.0.0.1:{self.path.port}").geturl()
        if self._pool:
            loop, pool = asyncio.get_running_loop(), self._pool
            client = await loop.run_in_executor(pool, lambda: blocking.connect(url, **options))
            client.on_event(self.seen.append)
            self.client = Threaded(client, pool)
        else:
            self.client = await forebay.connect(url, **options)
            self.client.on_event(self.seen.append)

    async def producer(self, send_timeout: float = LONG) -> Any:
        # Those of MQTT have no limit for a send.
        limits = {} if self.dialect.protocol == "mqtt" else {"send_timeout": send_timeout}
        return await self.client.producer(self.topic, **limits)

    async def consumer(self) -> Any:
        return await self.client.consumer(self.topic, **self.reading)

    @contextlib.asynccontextmanager
    async def witness(self) -> AsyncIterator[Any]:
        """A client without the path."""
        async with forebay.connect(self.url, connect_timeout=PATIENCE) as client:
            yield client

    def silence(self) -> None:
        self._silence(self.path)

    async def fall_silent(self, *handles: Any) -> None:
        """Until the client has noticed and said so."""
        before = len(self.seen)
        self.silence()
        await self.said("disconnected", before)
        # TubeMQ has no handshake: for a moment it is connected to the silent path, again and again.
        await until(lambda: not any(handle.connected for handle in handles))
        lost = [event for event in self.seen[before:] if event.kind == "disconnected"]
        assert all(event.error and event.error.code in ("disconnected", "timeout") for event in lost), lost

    async def heal(self, *handles: Any) -> None:
        """Until the client and its handles are back."""
        before = len(self.seen)
        self.path.heal()
        await self.said("connected", before)
        await until(lambda: all(handle.connected for handle in (self.client, *handles)))

    async def said(self, kind: str, before: int) -> None:
        await until(lambda: any(event.kind == kind for event in self.seen[before:]))


class Sending:
    """Numbers that are sent until the end of the block, ten at a time at most."""

    def __init__(self, producer: Any, **fields: Any) -> None:
        self._producer, self._fields = producer, fields
        self.acknowledged: set[int] = set()
        self.failed: list[errors.Error] = []
        self._number = 0
        self._open: set[asyncio.Task[None]] = set()

    async def _send(self, number: int) -> None:
        try:
            await self._producer.send(b"%d" % number, **self._fields)
        except errors.Error as error:
            self.failed.append(error)
        else:
            self.acknowledged.add(number)

    async def _run(self) -> None:
        while True:
            if len(self._open) < 10:
                task = asyncio.create_task(self._send(self._number))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
                self._number += 1
            await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self._run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
        if self._open:
            await asyncio.wait_for(asyncio.gather(*self._open), PATIENCE)

    async def more(self, count: int = 3) -> None:
        """Until some more are acknowledged."""
        aim = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= aim)


async def read(consumer: Any, numbers: set[int], enough: Callable[[], bool]) -> None:
    """Receives and acknowledges, until it is enough."""
    async with asyncio.timeout(PATIENCE):
        while not enough():
            for message in await consumer.receive_many(100, timeout=1):
                numbers.add(int(message.data))
                await consumer.ack(message)


async def idle(case: Case) -> None:
    async with case.connected():
        # A client of Pulsar connects again when a handle needs it.
        producer = await case.producer()
        await case.fall_silent()
        await case.heal()
        await producer.close()


async def publishing(case: Case) -> None:
    async with case.witness() as witness, witness.consumer(case.topic, **case.reading) as consumer:
        async with case.connected():
            producer = await case.producer()
            sending = Sending(producer, **case.dialect.send)
            async with sending.going():
                await sending.more()
                await case.fall_silent(producer)
                await case.heal(producer)
                await sending.more(15)
            assert not sending.failed, "they are sent again"
            await read(consumer, got := set(), lambda: sending.acknowledged <= got)


async def publishing_unheard(case: Case) -> None:
    """With QoS 0 nothing is answered."""
    async with case.witness() as witness, witness.consumer(case.topic, **case.reading) as consumer:
        async with case.connected():
            producer = await case.producer()
            sending = Sending(producer, qos=0)
            async with sending.going():
                await sending.more()
                await case.fall_silent(producer)
                await case.heal(producer)
                last = max(sending.acknowledged)
                await until(lambda: max(sending.acknowledged) > last)
                await read(consumer, got := set(), lambda: any(number > last for number in got))


async def consuming(case: Case) -> None:
    async with case.witness() as witness, case.connected():
        consumer = await case.consumer()
        # Opened later: a broker of MQTT has the subscription by now.
        sending = Sending(await witness.producer(case.topic), **case.dialect.send)
        got: set[int] = set()
        async with sending.going():
            await sending.more()
            await read(consumer, got, lambda: bool(got))
            stop = asyncio.Event()
            reading = asyncio.create_task(read(consumer, got, stop.is_set))
            await case.fall_silent()
            await case.heal(consumer)
            await sending.more()
            stop.set()
            await reading
        await read(consumer, got, lambda: sending.acknowledged <= got)


async def connecting_again(case: Case) -> None:
    """The handshake of a later connection falls on a silent path."""
    async with case.connected():
        producer = await case.producer()
        await producer.send(b"1", **case.dialect.send)
        before = len(case.seen)
        case.silence()
        case.path.cut()
        await case.said("connect_failed", before)
        await case.heal()
        async with asyncio.timeout(PATIENCE):
            await producer.send(b"2", **case.dialect.send)


async def connecting(case: Case) -> None:
    """The first handshake falls on a silent path."""
    async with case.ahead():
        case.silence()
        connecting = asyncio.create_task(case.connect(connect_timeout=1))
        await until(lambda: case.path.accepted >= 2)
        assert not connecting.done()
        case.path.heal()
        await asyncio.wait_for(connecting, PATIENCE)
        await case.client.close()


async def seeking(case: Case) -> None:
    """A seek that is under way when the path falls silent succeeds after it heals."""
    async with case.witness() as witness, case.connected():
        consumer = await case.consumer()
        async with await witness.producer(case.topic) as producer:
            await producer.send(b"1")
        await read(consumer, got := set(), lambda: 1 in got)
        before = len(case.seen)
        case.silence()
        seeking = asyncio.ensure_future(consumer.seek(case.dialect.consumer["position"]))
        # The connections of before have ended, and a later one has no answer, either.
        await case.said("connect_failed", before)
        assert not seeking.done(), seeking
        await case.heal(consumer)
        await asyncio.wait_for(seeking, PATIENCE)
        await read(consumer, got := set(), lambda: 1 in got)


async def closing(case: Case) -> None:
    """The end of a client has its operation timeout."""
    async with case.connected(operation_timeout=2):
        producer, consumer = await case.producer(send_timeout=2), await case.consumer()
        await producer.send(b"1", **case.dialect.send)
        case.silence()
        sending = asyncio.ensure_future(producer.send(b"2", **case.dialect.send))
        await asyncio.sleep(0)
        with contextlib.suppress(errors.Timeout, errors.Disconnected):
            await asyncio.wait_for(case.client.close(), PATIENCE)
        with contextlib.suppress(errors.Error):
            await asyncio.wait_for(sending, PATIENCE)
        assert consumer.closed and producer.closed
        await until(lambda: case.seen[-1].kind == "disconnected")
        assert not case.client.connected
    async with case.witness() as witness, witness.consumer(case.topic, **case.reading) as consumer:
        if case.dialect.protocol != "mqtt":
            await read(consumer, got := set(), lambda: 1 in got)


STATES: dict[str, Callable[[Case], Awaitable[None]]] = {
    "idle": idle,
    "publishing": publishing,
    "consuming": consuming,
    "connecting": connecting,
    "connecting again": connecting_again,
    "closing": closing,
}
BLOCKING = ("publishing", "consuming", "closing")
"""States in which a call of the blocking face waits."""


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_silent_path_is_noticed_and_survived(target: Target, dialect: str) -> None:
    is_mqtt = DIALECTS[dialect].protocol == "mqtt"
    # MQTT has no positions.
    states = STATES if is_mqtt else STATES | {"seeking": seeking}
    cells = [
        (Case(target, dialect, name, silence), state)
        for name, state in states.items()
        for silence in SILENCES
    ]
    if is_mqtt:
        cells += [(Case(target, dialect, "QoS 0", silence), publishing_unheard) for silence in SILENCES]
    await side_by_side([(case, state(case)) for case, state in cells])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_calls_of_the_blocking_face_survive_a_silent_path(target: Target, dialect: str) -> None:
    with ThreadPoolExecutor(64) as pool:
        cases = [Case(target, dialect, name, pool=pool) for name in BLOCKING]
        cells = zip(cases, BLOCKING, strict=True)
        await side_by_side([(case, STATES[name](case)) for case, name in cells])
