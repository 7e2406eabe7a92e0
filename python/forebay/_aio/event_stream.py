"""Connection events of the asyncio face. Written by hand, like their twin
``forebay/_sync/event_stream.py``.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from forebay._core.events import LAST, ConnectionEvent, Counts, made

from .callback_runner import caller, is_gone


class Feed:
    """The connection events of a client, for any number of readers. It does not keep the client open."""

    def __init__(self, native: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._native = native
        self.loop = loop
        self.failed_before = 0
        """Attempts that ``retry_first`` made before the client existed."""
        self._closed = False
        self._due: asyncio.Future[None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def ended(self) -> bool:
        """Whether no more events follow."""
        return self._closed or self._native.events_ended

    def event(self, number: int) -> tuple[int, ConnectionEvent] | None:
        """The first event that is kept from ``number`` on, with its number."""
        found = self._native.event(number)
        return found and (found[0], made(found[1], found[0], self.failed_before))

    async def changed(self, number: int) -> None:
        """Waits until there may be an event from ``number`` on. All who wait have seen what there is."""
        if self._due is None or self._due.done():
            due: asyncio.Future[None] = self._native.event_due(number)
            due.add_done_callback(self._arrived)
            self._due = due
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _arrived(self, due: asyncio.Future[None]) -> None:
        if not due.cancelled():
            due.exception()
        self._tell()

    def _tell(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Ends the readers once they have read what there is, from any thread."""
        self._closed = True
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._tell)

    async def finish(self) -> None:
        """As :meth:`close`, and waits a moment for callbacks."""
        self._closed = True
        self._tell()
        # A callback may close the client: it is not waited for.
        tasks = self.tasks - {caller.get()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST)
            for task in late:
                task.cancel()


class ConnectionEvents:
    """An asynchronous iterator of the connection events of a client, from its first connection on. Made by
    :meth:`forebay.Client.events`. It ends when the client is closed.

    The client never waits for a reader: it keeps the last 1,000 events, and :attr:`missed` counts those that
    a slow reader has not seen. A wait may be cancelled; no event is lost by it.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._next = 0
        self._missed = 0

    @property
    def missed(self) -> int:
        """Number of events that were dropped before they were read."""
        return self._missed

    def __aiter__(self) -> ConnectionEvents:
        return self

    async def __anext__(self) -> ConnectionEvent:
        while True:
            # Asked first: nothing follows the end.
            ended = self._feed.ended
            if found := self._feed.event(self._next):
                number, event = found
                self._missed += number - self._next
                self._next = number + 1
                return event
            if ended or is_gone(self._feed.loop, self):
                raise StopAsyncIteration
            await self._feed.changed(self._next)


class EventCallback:
    """Calls a function with each connection event. Made by :meth:`forebay.Client.on_event`."""

    def __init__(
        self, feed: Feed, loop: asyncio.AbstractEventLoop, callback: Callable[[ConnectionEvent], Any]
    ) -> None:
        self._events = ConnectionEvents(feed)
        self._loop = loop
        self._callback = callback
        self._counts = Counts()
        self._stopping = False
        self._calling = False
        self._task = loop.create_task(self._run())
        feed.tasks.add(self._task)
        self._task.add_done_callback(feed.tasks.discard)

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
        """Calls the function no more; a call under way is not waited for, and ends as usual. Closing the
        client does this, too, after its last event."""
        # Without any loop this may be between two runs of its own.
        if asyncio._get_running_loop() is not None and is_gone(self._loop, self):
            return
        self._stopping = True
        if not self._calling:
            self._task.cancel()

    async def _run(self) -> None:
        caller.set(self._task)
        async for event in self._events:
            self._calling = True
            try:
                result = self._callback(event)
                if result is not None and hasattr(result, "__await__"):
                    await result
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and self._is_cancelled():
                    raise
                self._counts.failure(event, error)
            finally:
                self._calling = False
            if self._stopping:
                return

    def _is_cancelled(self) -> bool:
        return self._task.cancelling() > 0
