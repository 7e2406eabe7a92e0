"""Two of everything: two handles of one name are opened and closed in every order while another client sends,
and each is asked for what it must have received."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from support.waiting import PATIENCE, until

ORDERS = [
    "".join(order)
    for order in itertools.permutations("ABab")
    if order.index("A") < order.index("a") and order.index("B") < order.index("b")
]
"""The orders in which ``A`` and ``B`` are opened and, as ``a`` and ``b``, closed."""


class Load:
    """Numbers that a producer sends without end."""

    def __init__(self, producer: Any, **fields: Any) -> None:
        self._producer, self._fields = producer, fields
        self.begun = 0
        """How many have been sent."""
        self.stored = 0
        """How many the broker has."""

    async def run(self) -> None:
        while True:
            self.begun = self.stored + 5
            numbers = range(self.stored, self.begun)
            await asyncio.gather(*[self._producer.send(b"%d" % one, **self._fields) for one in numbers])
            self.stored = self.begun
            await asyncio.sleep(0.002)

    async def more(self, count: int = 20) -> None:
        """Waits until some more have been sent."""
        aim = self.stored + count
        await until(lambda: self.stored >= aim)


@contextlib.asynccontextmanager
async def loaded(producer: Any, **fields: Any) -> AsyncGenerator[Load]:
    """A load for the time of the block."""
    load = Load(producer, **fields)
    running = asyncio.create_task(load.run())
    try:
        yield load
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.wait([running])


class Side:
    """A consumer that acknowledges what it receives.

    Args:
        load: what it receives.
        open: opens it.
        close: closes it in another way than by ``close()``.
    """

    def __init__(
        self,
        load: Load,
        open: Callable[[], Awaitable[Any]],
        close: Callable[[Any], Awaitable[None]] | None = None,
    ) -> None:
        self._load, self._open, self._close = load, open, close
        self.got: list[int] = []
        self.first = self.last = 0
        self.consumer: Any = None

    async def open(self) -> None:
        self.consumer = await self._open()
        self.first = self._load.begun
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.consumer:
            self.got.append(int(message.data))
            await self.consumer.ack(message)

    async def close(self, *, all: bool = True) -> None:
        """Closes it when it has received all that the broker has, which is more meanwhile.

        Args:
            all: false does not wait for that.
        """
        self.last = self._load.stored
        if all:
            await until(lambda: self._reading.done() or (self.got and self.got[-1] + 1 >= self.last))
        assert not self._reading.done(), self._reading.exception()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        async with asyncio.timeout(PATIENCE):
            await (self._close(self.consumer) if self._close else self.consumer.close())

    def check(self) -> None:
        """Each number between the opening and the closing came once, and in order.

        One that was sent before may be missing between others: a broker that still had the subscription of an
        earlier consumer has forgotten it meanwhile.
        """
        assert self.got == sorted(set(self.got)), self.got
        missing = set(range(self.first, self.last)) - set(self.got)
        assert not missing, (self.first, self.last, self.got)


async def played(order: str, load: Load, sides: dict[str, Side], *, all: bool = True) -> None:
    """Opens and closes the sides ``"A"`` and ``"B"`` in an order."""
    for step in order:
        side = sides[step.upper()]
        await (side.open() if step.isupper() else side.close(all=all))
        await load.more()
