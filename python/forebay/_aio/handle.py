"""Base of the clients, producers and consumers of the asyncio face, for all protocols.

``handle``, ``open_handle``, ``callbacks``, ``callback_runner``, ``event_stream`` and ``interception`` are
written by hand for each face, here and in ``forebay/_sync``. ``tools/generate_blocking.py`` generates the
blocking face of everything above them.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar

from forebay._core import parse
from forebay._core.callback_lanes import settings
from forebay._core.protocols import M_co
from forebay._core.unsupported import Answers
from forebay.errors import Closed, ForkError, InvalidArgument

from .callback_runner import caller as calling
from .callback_runner import is_gone, of_another_loop
from .callbacks import Listener
from .event_stream import ConnectionEvents, EventCallback, Feed

if TYPE_CHECKING:
    from forebay._core.events import ConnectionEvent
    from forebay._core.native import Loop
    from forebay._core.protocols import Defaults
    from forebay._core.types import Duration, Pending
    from forebay.broker import Broker

H_co = TypeVar("H_co", bound="Handle", covariant=True)
T = TypeVar("T")


def _retrieve(ended: asyncio.Future[Any]) -> None:
    """Takes the error of what is not waited for."""
    if not ended.cancelled():
        ended.exception()


class Opening(Generic[H_co]):
    """A handle that is about to be opened: ``await`` it, or enter it with ``async with``."""

    _used = False

    def __init__(self, start: Callable[[], Coroutine[Any, Any, H_co]]) -> None:
        self._open = start

    def _verb(self) -> str:
        """The call that made it."""
        outer = self._open.__qualname__.partition(".<locals>")[0]
        return "forebay.connect" if outer == "opening" else f"client.{outer.rpartition('.')[2]}"

    def __repr__(self) -> str:
        return f"<{self._verb()}(...), not opened yet: await it>"

    def _misused(self, how: str) -> str:
        name = self._verb().rpartition(".")[2]
        name = "client" if name == "connect" else name
        return f"{how} before it is opened; await it first: {name} = await {self._verb()}(...)"

    def _start(self) -> Coroutine[Any, Any, H_co]:
        self._used = True
        return self._open()

    def __await__(self) -> Generator[Any, Any, H_co]:
        return self._start().__await__()

    async def __aenter__(self) -> H_co:
        self._handle = await self._start()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._handle.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # A type checker says so as well.

        def __enter__(self) -> NoReturn:
            self._used = True
            raise TypeError("a handle of asyncio needs `async with`; forebay.blocking has those for `with`")

        def __exit__(self, *_: object) -> None: ...

        def __aiter__(self) -> NoReturn:
            raise TypeError(self._misused("async for"))

        def __getattr__(self, name: str) -> NoReturn:
            # What begins with an underscore is asked for by copy, pickle, asyncio and shells.
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(self._misused(f"{name!r} is used"))

    def __del__(self) -> None:
        if not self._used:
            text = "a client, producer or consumer was never opened: use `async with`, or await it"
            warnings.warn(text, RuntimeWarning, 2, source=self)


def immediate(pending: Pending[T]) -> T:
    """The result of an operation that the engine has completed before it returned."""
    return pending.result()  # type: ignore[attr-defined]


class _Runner:
    """The thread that runs an event loop, for loops that do not have asyncio's own ``_thread_id``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def _thread_id(self) -> int | None:
        return get_ident() if asyncio._get_running_loop() is self._loop else None


class Handle(Answers):
    """A handle of the engine that belongs to one event loop, and warns when it is forgotten open."""

    _open = False
    _owner: ClientHandle | None = None  # a child keeps its client alive

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A send asks which thread runs the loop, and not which loop this thread runs: before Python
        # 3.12 the latter is a system call, and takes longer than all else that a send does in
        # Python.
        self._runner: Any = loop if hasattr(loop, "_thread_id") else _Runner(loop)
        self._open = True

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called, on this handle or on its client."""
        return not self._open

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is closed")
        if asyncio._get_running_loop() is not self._loop:
            raise of_another_loop(self._loop, self)

    async def close(self) -> None:
        """Closes the handle. Calling it again does nothing. If the event loop of the handle has been closed,
        it is released at once: messages without an answer may be stored or not."""
        await self._end(failed=False)

    async def _end(self, failed: bool) -> None:
        if asyncio._get_running_loop() is self._loop:
            await self._leave(failed)
        elif self._open and is_gone(self._loop, self):
            self._open = False
            self._forget()

    async def _leave(self, failed: bool) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(failed=kind is not None)

    def __del__(self) -> None:
        if self._open:
            self._open = False
            try:
                shown = repr(self)
                self._forget()
            except ForkError:  # The connection is the parent's.
                return
            warnings.warn(f"unclosed {shown}: use async with, or close()", ResourceWarning, 2, source=self)

    def _forget(self) -> None:
        """Releases the native side without waiting; there may be no loop any more."""


class ClientHandle(Handle):
    """A connection to a service, with the handles that were opened on it."""

    def __new__(cls, *made: Any) -> Self:
        # What `connect` has for it is no text.
        if not made or isinstance(made[0], str):
            raise TypeError(f"a {cls.__name__} is made by forebay.connect(url)")
        return super().__new__(cls)

    _closing: asyncio.Future[None] | None = None
    """Done when the first call of :meth:`close` has ended."""

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
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
        self._feed = Feed(native, loop)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a broker now: not while the client tries to connect again, and not
        after :meth:`close`. A broker that vanishes without a word is noticed by the next keep-alive."""
        return self._open and self._native.connected

    def events(self) -> ConnectionEvents:
        """The events of this client's connections as an asynchronous iterator: connected, disconnected with
        the reason, subscribed again, given up. It begins with those that have happened, and ends when the
        client is closed; see :class:`forebay.ConnectionEvent`.

        Raises:
            Closed: after :meth:`close`.
        """
        self._check()
        return ConnectionEvents(self._feed)

    def on_event(self, callback: Callable[[ConnectionEvent], object]) -> EventCallback:
        """Calls a function with each event of this client's connections, one after the other, beginning with
        those that have happened. A coroutine function is awaited;
        a plain function must not block.

        A callback that raises is logged by the logger ``forebay.events`` and counted, and the next event
        follows. One that is slow misses events, as :meth:`events` does; the client never waits for it.

        Args:
            callback: takes a :class:`forebay.ConnectionEvent`.

        Raises:
            InvalidArgument: not a function.
            Closed: after :meth:`close`.
        """
        self._check()
        try:
            parse.callable_(callback)
        except ValueError as error:
            raise InvalidArgument(f"on_event: {error}") from None
        return EventCallback(self._feed, self._loop, callback)

    async def close(self) -> None:
        """Flushes the producers, closes every handle of this client, and stops the broker of
        ``embedded:``."""
        await self._end(failed=False)

    async def _leave(self, failed: bool) -> None:
        if self._closing is not None:
            # The close under way may be waiting for the callback that calls this.
            caller = calling.get()
            if caller is None or caller.done():
                await asyncio.shield(self._closing)
            return
        if not self._open:
            return
        closing = self._closing = self._loop.create_future()
        try:
            await self._shut(failed)
        finally:
            closing.set_result(None)

    async def _shut(self, failed: bool) -> None:
        try:
            try:
                ends = [child._leave(failed) for child in list(self._children)]
                results = await asyncio.gather(*ends, return_exceptions=True)
            except BaseException:
                # Cancelled: the engine closes by itself what is left.
                self._native.close().add_done_callback(_retrieve)
                raise
            await self._native.close()
        finally:
            self._open = False
            try:
                await self._feed.finish()
            finally:
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
        self._feed.close()
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

    @property
    def connected(self) -> bool:
        """Whether the brokers serve it now: not while it is being opened again, and not after :meth:`close`.

        * Pulsar: all its topics and partitions.
        * MQTT: the session has a connection, and no filter was refused on it.
        * TubeMQ: a producer has a connection to a broker, and a consumer to those of all its partitions;
          before the first send, or without a partition, the master has registered it. Producers connect
          again when they send.
        """
        return self._open and self._native.connected

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()


class ProducerHandle(ChildHandle):
    """A producer: leaving it flushes."""

    def flush(self, timeout: Duration | None = None) -> Awaitable[None]:
        """Waits until the broker has answered for every message sent before.

        Args:
            timeout: longest wait in seconds; no limit by default.

        Raises:
            Error: the first error of the messages whose results were not awaited, with their number.
            Timeout: not all answers came within ``timeout``; the error says how many are missing. Those
                messages are still pending.
        """
        self._check()
        return self._native.flush(parse.seconds(timeout))

    async def close(self) -> None:
        """Flushes and closes."""
        await self._end(failed=False)

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
        self._listeners: set[Listener[M_co]] = set()
        # Closing hands back by itself.
        self._leaving = False

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

    def listen(
        self,
        callback: Callable[[M_co], object],
        *,
        concurrency: int = 1,
        ack: Literal["auto", "manual"] = "auto",
        ordered: bool = True,
        ahead: int = 1000,
        stop_timeout: Duration = 30.0,
    ) -> Listener[M_co]:
        """Calls a function with each message. It runs on the event loop until it is stopped or the
        consumer is closed.

        A message is acknowledged when its callback ends, and refused when it raises: Pulsar delivers it again
        after ``nack_delay``, TubeMQ with the rest of its pack; MQTT cannot deliver it again, so it counts as
        failed and is acknowledged. The exception is logged by the logger ``forebay.listener``, and the
        listener goes on.

        Messages with the same key are processed in order, one after the other; those without a key in the
        order of their partition; those of MQTT in the order of their topic. A callback that hangs keeps its
        key and one of ``concurrency`` from going on.

        Args:
            callback: takes a message. A coroutine function is awaited; a plain function must not block.
            concurrency: maximum number of callbacks under way. 1 keeps the order of arrival.
            ack: ``"manual"`` leaves it to the callback to acknowledge or refuse messages.
            ordered: false gives up the order of messages with the same key.
            ahead: maximum number of messages that are taken from the consumer and wait for their callback;
                nothing is fetched beyond them and the consumer's own queue.
            stop_timeout: seconds that callbacks have to end when the listener is stopped or the consumer
                closed, and are
                cancelled after it.

        Raises:
            InvalidArgument: a value that does not fit.
            Closed: after :meth:`close`.
        """
        self._check()
        checked = settings(callback, concurrency, ack, ordered, ahead, stop_timeout)
        listener: Listener[M_co] = Listener(self, callback, checked)  # type: ignore[arg-type]
        self._listeners.add(listener)
        return listener

    async def close(self) -> None:
        """Stops the listeners, hands over the acknowledgements and closes. Messages without one are delivered
        to other consumers."""
        await self._end(failed=False)

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        self._leaving = True
        try:
            if self._listeners:
                await asyncio.gather(*[listener.stop() for listener in list(self._listeners)])
        finally:
            if self._open:
                self._open = False
                await self._native.close()
