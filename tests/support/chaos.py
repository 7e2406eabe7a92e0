"""A proxy that treats connections badly, by a seed, and logs what it did."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

#: The directions of a connection: from the client, and to it.
OUT, IN = "out", "in"
BOTH = frozenset({OUT, IN})

#: Faults with their weights. What costs the client a time-out is rare.
FAULTS = {"cut": 6, "half-open": 1, "stall": 4, "slices": 4, "latency": 4, "refusal": 2}


def _bare(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Passage:
    """One connection through the proxy. A fault set here holds for both directions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.going = asyncio.Event()
        self.going.set()
        #: The directions in which it reads on and forwards nothing, without closing.
        self.swallows: frozenset[str] = frozenset()
        #: Bytes still to be sent one at a time.
        self.slices = 0
        #: Seconds by which each piece is late.
        self.delay = 0.0
        #: Bytes after which both sides are reset.
        self.cut_after: int | None = None
        self._writers: list[asyncio.StreamWriter] = []

    def reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """Ends every fault but `swallows`: the client has to notice that by itself."""
        self.going.set()
        self.slices, self.delay, self.cut_after = 0, 0.0, None

    async def _forward(self, way: str, data: bytes, target: asyncio.StreamWriter) -> bool:
        """Returns whether the connection goes on."""
        await self.going.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        if way in self.swallows:
            return True
        cut = self.cut_after is not None and self.cut_after <= len(data)
        if self.cut_after is not None:
            data = data[: self.cut_after]
            self.cut_after -= len(data)
        while self.slices > 0 and data:
            self.slices -= 1
            target.write(data[:1])
            await target.drain()
            await asyncio.sleep(0)
            data = data[1:]
        target.write(data)
        await target.drain()
        if cut:
            self.reset()
        return not cut

    async def _pump(
        self,
        way: str,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        rewrite: tuple[bytes, bytes] | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if rewrite is not None:
                    data = data.replace(*rewrite)
                if way not in self.swallows and not await self._forward(way, data, target):
                    return

    async def run(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        linger: float,
        rewrite: tuple[bytes, bytes] | None,
    ) -> None:
        self._writers = [client[1], broker[1]]
        pumps = {
            asyncio.ensure_future(self._pump(OUT, client[0], broker[1], None)): OUT,
            asyncio.ensure_future(self._pump(IN, broker[0], client[1], rewrite)): IN,
        }
        try:
            ended, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if all(pumps[pump] in self.swallows for pump in ended):
                # The end of one side is swallowed, too: the other learns nothing of it.
                await asyncio.wait(pumps, timeout=linger)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for writer in self._writers:
                writer.close()


class ChaosProxy:
    """Forwards a port to another one of 127.0.0.1, with the faults of `weather`.

    ``replaces``: an address that the broker tells its clients, ``host:port``. They are told this proxy's
    instead, or that of the port ``by``; it must be as long.
    """

    def __init__(
        self,
        target: int,
        *,
        seed: int,
        port: int = 0,
        replaces: str | None = None,
        by: int | None = None,
        linger: float = 5.0,
    ) -> None:
        self.target, self.port, self.linger = target, port, linger
        self._replaces, self._by = replaces, by
        self.chance = random.Random(seed)
        #: Seconds since the start, kind, and the number of the connection.
        self.log: list[tuple[float, str, int]] = []
        #: The directions in which connections that begin now forward nothing.
        self._silent: frozenset[str] = frozenset()
        self._holds = False
        self._refuses = False
        self._passages: dict[Passage, asyncio.Task[None]] = {}
        #: Connections so far.
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._started = time.monotonic()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.deafen()
        for passage in list(self._passages):
            passage.reset()
        tasks = list(self._passages.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def listen(self) -> None:
        """Accepts connections, as at the start."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def _rewrite(self) -> tuple[bytes, bytes] | None:
        if self._replaces is None:
            return None
        pair = self._replaces.encode(), b"127.0.0.1:%d" % (self._by or self.port)
        assert len(pair[0]) == len(pair[1]), f"lengths of strings are in the answers: {pair}"
        return pair

    async def deafen(self) -> None:
        """Accepts no connections; those that there are go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _note(self, kind: str, number: int = -1) -> None:
        self.log.append((time.monotonic() - self._started, kind, number))

    @property
    def counts(self) -> Counter[str]:
        return Counter(kind for _, kind, _ in self.log)

    def cut(self) -> None:
        """Resets all connections."""
        self._note("cut")
        for passage in list(self._passages):
            self._note("reset", passage.number)
            passage.reset()

    def silence(self, *ways: str) -> None:
        """Swallows what comes from now on in these directions, and closes nothing."""
        self._silent = frozenset(ways)
        for passage in self._passages:
            passage.swallows |= self._silent

    def hold(self) -> None:
        """Keeps back what comes from now on, the ends of connections as well, until :meth:`heal`."""
        self._holds = True
        for passage in self._passages:
            passage.going.clear()

    def heal(self) -> None:
        """Forwards what new connections say, and all that was kept back. Those that were silent stay so:
        their peers have to notice."""
        self._silent, self._holds = frozenset(), False
        for passage in self._passages:
            passage.going.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refuses:
            writer.transport.abort()
            return
        try:
            broker = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        _bare(writer)
        _bare(broker[1])
        passage = Passage(self.accepted)
        passage.swallows = self._silent
        if self._holds:
            passage.going.clear()
        task = asyncio.current_task()
        assert task is not None
        self._passages[passage] = task
        with contextlib.suppress(asyncio.CancelledError):
            await passage.run((reader, writer), broker, self.linger, self._rewrite)
        del self._passages[passage]

    # -- faults

    async def _refuse(self, seconds: float) -> None:
        """Connections are not accepted, or reset as soon as they are."""
        self._refuses = True
        if listens_not := self.chance.random() < 0.5:
            await self.deafen()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._refuses = False
            if listens_not:
                await self.listen()

    async def _one(self) -> None:
        chance = self.chance
        kind = chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        passages = [passage for passage in self._passages if not passage.swallows]
        # In the order of their numbers: the draw depends on the seed alone.
        passages.sort(key=lambda passage: passage.number)
        if kind == "refusal":
            self._note(kind)
            # Otherwise it would meet no one.
            for passage in passages:
                if chance.random() < 0.5:
                    passage.reset()
            await self._refuse(chance.uniform(0.1, 0.8))
            return
        if not passages:
            return
        passage = chance.choice(passages)
        self._note(kind, passage.number)
        loop = asyncio.get_running_loop()
        if kind == "cut":
            passage.cut_after = chance.randrange(0, 4000)
        elif kind == "half-open":
            passage.swallows = BOTH
        elif kind == "stall":
            passage.going.clear()
            loop.call_later(chance.uniform(0.1, 1.5), passage.going.set)
        elif kind == "slices":
            passage.slices = chance.randrange(10, 3000)
        else:
            passage.delay = chance.uniform(0.005, 0.1)
            loop.call_later(chance.uniform(0.2, 2.0), setattr, passage, "delay", 0.0)

    async def weather(self, seconds: float, *, pause: Callable[[random.Random], float] | None = None) -> None:
        """Draws one fault after the other for so long; then the network is good again."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                await asyncio.sleep(pause(self.chance) if pause else self.chance.uniform(0.05, 0.5))
                await self._one()
        finally:
            for passage in self._passages:
                passage.heal()
