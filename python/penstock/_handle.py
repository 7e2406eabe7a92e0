"""Base of the clients, producers and consumers of the asyncio face, for all protocols.

This file and ``penstock/blocking/_handle.py`` are the two that are written by hand for each face. Everything
above them is written for asyncio and generated for the blocking face by ``tools/generate_blocking.py``.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from . import parse
from ._missing import Answers
from .errors import Closed, InvalidArgument
from .protocols import M_co

if TYPE_CHECKING:
    from ._native import Loop
    from ._typing import Duration, Pending
    from .broker import Broker
    from .protocols import Defaults

H_co = TypeVar("H_co", bound="Handle", covariant=True)
T = TypeVar("T")


class Opening(Generic[H_co]):
    """A handle that is about to be opened: ``await`` it, or enter it with ``async with``."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, H_co]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, Any, H_co]:
        return self._start().__await__()

    async def __aenter__(self) -> H_co:
        self._handle = await self._start()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._handle.__aexit__(kind, error, trace)


def immediate(pending: Pending[T]) -> T:
    """The result of an operation that the engine has completed before it returned."""
    return pending.result()  # type: ignore[attr-defined]


class Handle(Answers):
    """A handle of the engine that belongs to one event loop, and warns when it is forgotten open."""

    _open = False
    _owner: ClientHandle | None = None  # a child keeps its client alive

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open = True

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called, on this handle or on its client."""
        return not self._open

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is closed")
        if asyncio._get_running_loop() is not self._loop:
            raise InvalidArgument(f"{self!r} belongs to another event loop: open one handle per loop")

    async def close(self) -> None:
        """Closes the handle. Calling it again does nothing."""
        await self._leave(failed=False)

    async def _leave(self, failed: bool) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(failed=kind is not None)

    def __del__(self) -> None:
        if self._open:
            self._open = False
            shown = repr(self)
            self._forget()
            warnings.warn(f"unclosed {shown}: use async with, or close()", ResourceWarning, 2, source=self)

    def _forget(self) -> None:
        """Releases the native side without waiting; there may be no loop any more."""


class ClientHandle(Handle):
    """A connection to a service, with the handles that were opened on it."""

    def __init__(
        self,
        native: Any,
        loop: asyncio.AbstractEventLoop,
        bridge: Loop,
        url: str,
        defaults: Defaults,
        broker: Broker | None,
    ) -> None:
        super().__init__(loop)
        self._native = native
        self._bridge = bridge
        self._url = url
        self._defaults = defaults
        self._broker = broker
        self._children: weakref.WeakSet[ChildHandle] = weakref.WeakSet()

    async def close(self) -> None:
        """Flushes the producers, closes every handle of this client, and stops the broker of
        ``embedded:``."""
        await self._leave(failed=False)

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        try:
            ends = [child._leave(failed) for child in list(self._children)]
            results = await asyncio.gather(*ends, return_exceptions=True)
            await self._native.close()
        finally:
            self._open = False
            self._bridge.close()
            if self._broker:
                await asyncio.to_thread(self._broker.stop)
        for result in results:
            if isinstance(result, BaseException) and not failed:
                raise result

    def _forget(self) -> None:
        for child in self._children:
            child._open = False
        with contextlib.suppress(Exception):
            self._native.close()
        self._bridge.close()
        if self._broker:
            self._broker.abandon()


class ChildHandle(Handle):
    """A producer or a consumer."""

    _native: Any

    def __init__(self, native: Any, client: ClientHandle) -> None:
        super().__init__(client._loop)
        self._native = native
        self._owner = client
        client._children.add(self)

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()


class ProducerHandle(ChildHandle):
    """A producer: leaving it flushes."""

    def flush(self) -> Awaitable[None]:
        """Waits until the broker has answered for every message sent before.

        Raises:
            Error: the first error of the messages whose results were not awaited, with their number.
        """
        self._check()
        return self._native.flush()

    async def close(self) -> None:
        """Flushes and closes."""
        await self._leave(failed=False)

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        try:
            # After an exception in the block its error matters, not those of the messages.
            with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
                await self._native.drain()
        except Exception:
            self._open = False
            await self._native.close()
            raise
        except BaseException:
            # Cancelled: what has no answer yet is given up.
            self._open = False
            self._native.close(False)
            raise
        self._open = False
        await self._native.close()


class ConsumerHandle(ChildHandle, Generic[M_co]):
    """A consumer: an asynchronous iterator of its messages."""

    def __init__(self, native: Any, client: ClientHandle) -> None:
        super().__init__(native, client)
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._done.set_result(None)

    def __aiter__(self) -> AsyncIterator[M_co]:
        self._check()
        return self._native.__aiter__()

    def __anext__(self) -> Awaitable[M_co]:
        return self._native.__anext__()

    def receive(self, timeout: Duration | None = None) -> Awaitable[M_co]:
        """The next message.

        Args:
            timeout: longest wait in seconds; no limit by default.

        Raises:
            Timeout: no message came in time. No message is lost.
            Closed: after :meth:`close`.
        """
        self._check()
        return self._native.receive(parse.seconds(timeout))

    async def close(self) -> None:
        """Hands over the acknowledgements and closes. Messages without one are delivered to other
        consumers."""
        await self._leave(failed=False)

    async def _leave(self, failed: bool) -> None:
        if self._open:
            self._open = False
            await self._native.close()
