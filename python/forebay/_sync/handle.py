"""Base of the clients, producers and consumers of the blocking face, for all protocols.

Written by hand, like its twin ``forebay/_aio/handle.py``. It never imports asyncio: a call that waits blocks
its thread in the engine, lets other threads run, and handles signals meanwhile. Handles may be shared between
threads.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from forebay._core import parse
from forebay._core.callback_lanes import settings
from forebay._core.protocols import M_co
from forebay._core.unsupported import Answers
from forebay.errors import Closed, ForkError, InvalidArgument

from .callback_runner import CallbackThread
from .callbacks import Listener
from .event_stream import ConnectionEvents, EventCallback, Feed

if TYPE_CHECKING:
    from forebay._core.events import ConnectionEvent
    from forebay._core.protocols import Defaults
    from forebay._core.types import Duration, Pending
    from forebay.broker import Broker

T = TypeVar("T")


def immediate(pending: Pending[T]) -> T:
    """The result of an operation that the engine has completed before it returned."""
    return pending.wait()


_first_close = threading.RLock()
"""Held for a moment to tell who closes a handle first; a signal may come in between."""


class Handle(Answers):
    """A handle of the engine. Warns when it is forgotten open."""

    _open = False
    _owner: ClientHandle | None = None  # a child keeps its client alive
    _closing: tuple[threading.Event, threading.Thread] | None = None
    """The end of the close that was the first, and its thread."""
    _started = False
    """Whether that thread has begun the close, and will finish it by another call."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called, on this handle or on its client."""
        return not self._open

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is closed")

    def close(self) -> None:
        """Closes the handle. Calling it again does nothing, but waits for a close under way in another
        thread; a callback does not wait."""
        self._leave(failed=False)

    def _claim(self) -> bool:
        """Whether the caller is the first that closes the handle, and has to do so."""
        with _first_close:
            if self._closing is not None or not self._open:
                return False
            self._closing = (threading.Event(), threading.current_thread())
            return True

    def _leave(self, failed: bool) -> None:
        caller = threading.current_thread()
        is_first = self._claim()
        if self._closing is None:
            return
        ended, closer = self._closing
        if self._started and caller is closer:
            self._started, is_first = False, True
        if not is_first:
            # The close under way may be waiting for the callback that calls this, or be interrupted
            # by it.
            if caller is not closer and not isinstance(caller, CallbackThread):
                ended.wait()
            return
        try:
            self._shut(failed)
        finally:
            ended.set()

    def _shut(self, failed: bool) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)

    def __del__(self) -> None:
        if self._open:
            self._open = False
            try:
                shown = repr(self)
                self._forget()
            except ForkError:  # The connection is the parent's.
                return
            warnings.warn(f"unclosed {shown}: use with, or close()", ResourceWarning, 2, source=self)

    def _forget(self) -> None:
        """Releases the native side without waiting."""


class ClientHandle(Handle):
    """A connection to a service, with the handles that were opened on it."""

    def __new__(cls, *made: Any) -> Self:
        # What `connect` has for it is no text.
        if not made or isinstance(made[0], str):
            raise TypeError(f"a {cls.__name__} is made by forebay.blocking.connect(url)")
        return super().__new__(cls)

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
        self, native: Any, url: str, defaults: Defaults, broker: Broker | None
    ) -> None:
        self._native = native
        self._url = url
        self._defaults = defaults
        self._broker = broker
        self._children: weakref.WeakSet[ChildHandle] = weakref.WeakSet()
        self._feed = Feed(native)
        self._open = True

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a broker now: not while the client tries to connect again, and not
        after :meth:`close`. A broker that vanishes without a word is noticed by the next keep-alive."""
        return self._open and self._native.connected

    def events(self) -> ConnectionEvents:
        """The events of this client's connections as an iterator: connected, disconnected with the
        reason, subscribed again, given up. It begins with those that have happened, and ends when the client
        is closed; see :class:`forebay.ConnectionEvent`.

        Raises:
            Closed: after :meth:`close`.
        """
        self._check()
        return ConnectionEvents(self._feed)

    def on_event(self, callback: Callable[[ConnectionEvent], object]) -> EventCallback:
        """Calls a function with each event of this client's connections, one after the other, beginning with
        those that have happened. It runs in a
        thread of its own.

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
        return EventCallback(self._feed, callback)

    def abandon(self) -> None:
        """Closes the client without waiting: messages that the broker has not answered may arrive or not. For
        use after an error, before connecting again."""
        if self._open:
            self._open = False
            for child in list(self._children):
                child._give_up()
            self._forget()

    def _shut(self, failed: bool) -> None:
        try:
            children = list(self._children)
            # Producers wait for their last answers side by side, then all handles for the broker's
            # answers to their ends: each wait has a time limit, which would add up.
            for child in children:
                child._prepare()
            with contextlib.ExitStack() as stack:
                for child in children:
                    stack.callback(child._leave, failed)
                # The last callbacks are called first.
                for child in children:
                    stack.callback(child._start_close, failed)
        finally:
            self._open = False
            try:
                self._native.close().wait()
            finally:
                try:
                    self._feed.finish()
                finally:
                    if self._broker:
                        self._broker.stop()

    def _forget(self) -> None:
        for child in self._children:
            child._open = False
        with contextlib.suppress(Exception):
            self._native.close()
        if self._broker:
            self._broker.abandon()


class ChildHandle(Handle):
    """A producer or a consumer."""

    _native: Any
    _ending: Pending[None] | None = None
    """The close of the engine that has been started."""

    def __init__(self, native: Any, client: ClientHandle) -> None:
        self._native = native
        self._owner = client
        self._open = True
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

    def _prepare(self) -> None:
        """Begins what closing is to wait for."""

    def _give_up(self) -> None:
        """Ends what other threads wait for."""

    def _start_close(self, failed: bool) -> None:
        """Does all of closing but the wait for the broker's answer, which :meth:`_leave` does then."""
        if self._ending is None and self._claim():
            self._started = True
            self._begin(failed)

    def _begin(self, failed: bool) -> None:
        """Starts the close of the engine."""

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()


class ProducerHandle(ChildHandle):
    """A producer: leaving it flushes."""

    _draining: Pending[None] | None = None
    _failure: Exception | None = None
    """The error of a message, which closing raises at its end."""

    def flush(self, timeout: Duration | None = None) -> None:
        """Waits until the broker has answered for every message sent before.

        Args:
            timeout: longest wait in seconds; no limit by default.

        Raises:
            Error: the first error of the messages that were sent without waiting, with their number.
            Timeout: not all answers came within ``timeout``; the error says how many are missing. Those
                messages are still pending.
        """
        self._check()
        self._native.flush(parse.seconds(timeout)).wait()

    def _prepare(self) -> None:
        # What goes wrong here goes wrong again, and is told, when it is closed.
        with contextlib.suppress(Exception):
            self._draining = self._native.drain()

    def _give_up(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close(False)

    def _begin(self, failed: bool) -> None:
        try:
            (self._draining or self._native.drain()).wait()
        except Exception as error:
            # After an exception in the block its error matters, not those of the messages.
            self._failure = None if failed else error
        except BaseException:
            # Interrupted: what has no answer yet is given up.
            self._open = False
            self._native.close(False)
            raise
        self._ending = self._native.close()

    def _shut(self, failed: bool) -> None:
        if self._ending is None and self._open:
            self._begin(failed)
        self._open = False
        if self._ending is not None:
            self._ending.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class ConsumerHandle(ChildHandle, Generic[M_co]):
    """A consumer: an iterator of its messages."""

    def __init__(self, native: Any, client: ClientHandle) -> None:
        super().__init__(native, client)
        self._listeners: set[Listener[M_co]] = set()
        # Closing hands back by itself.
        self._leaving = False

    def __iter__(self) -> Iterator[M_co]:
        self._check()
        # Not the native iterator itself, which would not keep this handle open.
        return self

    def __next__(self) -> M_co:
        return next(self._native)

    def receive(self, timeout: Duration | None = None) -> M_co:
        """The next message.

        Args:
            timeout: longest wait in seconds; no limit by default.

        Raises:
            Timeout: no message came in time. No message is lost.
            Closed: after :meth:`close`.
        """
        # Called for each message: no check before it, and the native method reads the timeout.
        try:
            return self._native.receive_blocking(timeout)
        except Closed:
            self._check()
            raise

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
        """Calls a function with each message. It runs in threads until it is stopped or the consumer is
        closed.

        A message is acknowledged when its callback ends, and refused when it raises: Pulsar delivers it again
        after ``nack_delay``, TubeMQ with the rest of its pack; MQTT cannot deliver it again, so it counts as
        failed and is acknowledged. The exception is logged by the logger ``forebay.listener``, and the
        listener goes on.

        Messages with the same key are processed in order, one after the other; those without a key in the
        order of their partition; those of MQTT in the order of their topic. A callback that hangs keeps its
        key and one of ``concurrency`` from going on.

        Args:
            callback: takes a message. With ``concurrency`` above 1 it is called by several threads.
            concurrency: maximum number of callbacks under way. 1 keeps the order of arrival.
            ack: ``"manual"`` leaves it to the callback to acknowledge or refuse messages.
            ordered: false gives up the order of messages with the same key.
            ahead: maximum number of messages that are taken from the consumer and wait for their callback;
                nothing is fetched beyond them and the consumer's own queue.
            stop_timeout: seconds that callbacks have to end when the listener is stopped or the consumer
                closed; after
                it they are left alone.

        Raises:
            InvalidArgument: a value that does not fit.
            Closed: after :meth:`close`.
        """
        self._check()
        checked = settings(callback, concurrency, ack, ordered, ahead, stop_timeout)
        listener: Listener[M_co] = Listener(self, callback, checked)  # type: ignore[arg-type]
        self._listeners.add(listener)
        return listener

    def _prepare(self) -> None:
        self._leaving = True
        # The times of callbacks run side by side.
        for listener in list(self._listeners):
            listener.prepare()

    def _begin(self, failed: bool) -> None:
        try:
            self._prepare()
            for listener in list(self._listeners):
                listener.stop()
        finally:
            if self._open:
                self._ending = self._native.close()

    def _shut(self, failed: bool) -> None:
        try:
            if self._ending is None:
                self._begin(failed)
        finally:
            self._open = False
            if self._ending is not None:
                self._ending.wait()
