"""Connection events of the blocking face. Written by hand, like their twin
``forebay/_aio/event_stream.py``."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from forebay._core import parse
from forebay._core.events import LAST, ConnectionEvent, Counts, made
from forebay._core.types import Duration
from forebay.errors import Error, Timeout

from .callback_runner import CallbackThread

LOOK = 0.25
"""Seconds after which a thread that waits for events looks whether it shall end."""
_alive: weakref.WeakSet[EventCallback] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # A thread must not be in the engine when the interpreter ends.
    for callback in list(_alive):
        callback.stop()
    until = time.monotonic() + 1.0
    for callback in list(_alive):
        callback.join(until - time.monotonic())


class Feed:
    """The connection events of a client, for any number of readers. It does not keep the client open."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.failed_before = 0
        """Attempts that ``retry_first`` made before the client existed."""
        self.callbacks: weakref.WeakSet[EventCallback] = weakref.WeakSet()

    def finish(self) -> None:
        """Waits a moment for callbacks, of which each ends by itself once the client has."""
        until = time.monotonic() + LAST
        for callback in list(self.callbacks):
            callback.join(until - time.monotonic())
            callback.stop()


class ConnectionEvents:
    """An iterator of the connection events of a client, from its first connection on. Made by
    :meth:`forebay.blocking.Client.events`. It ends when the client is closed.

    The client never waits for a reader: it keeps the last 1,000 events, and :attr:`missed` counts those that
    a slow reader has not seen. For one thread at a time.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._native = feed.native
        self._next = 0
        self._missed = 0
        self._due: Any = None

    @property
    def missed(self) -> int:
        """Number of events that were dropped before they were read."""
        return self._missed

    def __iter__(self) -> ConnectionEvents:
        return self

    def __next__(self) -> ConnectionEvent:
        event = self._take(None)
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: Duration | None = None) -> ConnectionEvent | None:
        """The next event; ``None`` once the client is closed.

        Args:
            timeout: longest wait in seconds; no limit by default.

        Raises:
            Timeout: no event came in time. None is lost.
        """
        return self._take(parse.seconds(timeout))

    def _take(self, timeout: float | None) -> ConnectionEvent | None:
        while True:
            # Asked first: nothing follows the end.
            ended = self._native.events_ended
            if found := self._native.event(self._next):
                number, fields = found
                self._missed += number - self._next
                self._next = number + 1
                return made(fields, number, self._feed.failed_before)
            if ended:
                return None
            # Kept when the time runs out: each has a task of the engine until the next event.
            self._due = self._due or self._native.event_due(self._next)
            self._due.wait(timeout)
            self._due = None


class EventCallback:
    """Calls a function with each connection event, in a thread. Made by
    :meth:`forebay.blocking.Client.on_event`."""

    def __init__(self, feed: Feed, callback: Callable[[ConnectionEvent], Any]) -> None:
        self._events = ConnectionEvents(feed)
        self._callback = callback
        self._counts = Counts()
        self._stopping = False
        feed.callbacks.add(self)
        _alive.add(self)
        self._thread = CallbackThread(target=self._run, name="connection events", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> int:
        """Number of events for which the callback raised; each is logged by the logger
        ``forebay.events``."""
        return self._counts.failed

    @property
    def missed(self) -> int:
        """Number of events that were dropped, because the callback was slow."""
        return self._events.missed

    def stop(self) -> None:
        """Calls the function no more; a call under way is not waited for. Closing the client does this, too,
        after its last event."""
        self._stopping = True

    def join(self, seconds: float) -> None:
        """Waits for the thread. One that is called back may close the client: it is not waited for."""
        if self._thread is not threading.current_thread():
            self._thread.join(max(seconds, 0.0))

    def _run(self) -> None:
        while not self._stopping:
            event: ConnectionEvent | None = None
            try:
                event = self._events.next(LOOK)
            except Timeout:
                continue
            except Error:
                # In a process that has forked since.
                return
            if event is None or self._stopping:
                return
            try:
                self._callback(event)
            except BaseException as error:
                # Also one that asks to end the thread, which other events need.
                with contextlib.suppress(Exception):
                    self._counts.failure(event, error)
