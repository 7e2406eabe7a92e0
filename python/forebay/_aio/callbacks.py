"""Listeners of the asyncio face. Written by hand, like their twin ``forebay/_sync/callbacks.py``."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from forebay._core import parse
from forebay._core.callback_lanes import TAKEN_AT_ONCE, TURN, Counts, Lanes, Settings, report
from forebay.errors import Closed, Error

from .callback_runner import caller, is_gone

if TYPE_CHECKING:
    from forebay._core.types import Duration

    from .base import Consumer

M = TypeVar("M")
UNWIND = 5.0
"""Seconds that a cancelled callback has to end."""


class Listener(Generic[M]):
    """Calls a function with each message of a consumer. Made by :meth:`forebay.Consumer.listen`.

    Leaving ``async with``, :meth:`stop`, and closing the consumer end it: the callbacks under way have
    ``stop_timeout`` to end, and are then cancelled. Messages without a finished callback are handed back, as
    :meth:`stop` says.
    """

    def __init__(self, consumer: Consumer[Any], callback: Callable[[M], Any], settings: Settings) -> None:
        self._consumer = consumer
        self._loop = consumer._loop
        self._callback = callback
        self._settings = settings
        self._counts = Counts()
        self._lanes: Lanes[M] = Lanes()
        # The messages of the last take that have not begun, with one callback at a time.
        self._taken: deque[M] = deque()
        self._fetching: asyncio.Future[list[M]] | None = None
        self._room: asyncio.Future[None] | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._active = 0
        self._receipts: set[asyncio.Future[None]] = set()
        # Those whose callback ended, and that are not acknowledged yet.
        self._done: list[M] = []
        # Those whose callback was cancelled.
        self._cancelled: list[M] = []
        self._stopping = False
        self._error: Exception | None = None
        self._ended = asyncio.Event()
        run = self._in_turn if settings.concurrency == 1 else self._side_by_side
        self._runner = self._loop.create_task(self._run(run))

    @property
    def error(self) -> Exception | None:
        """The error that ended the consumer, and so this listener."""
        return self._error

    def stats(self) -> dict[str, int]:
        """Counters of this listener:

        * ``handled``: messages whose callback ended.
        * ``failed``: messages whose callback raised.
        * ``running``: callbacks under way.
        * ``waiting``: messages that were taken and wait for their callback.
        """
        counts = self._counts
        return {
            "handled": counts.handled,
            "failed": counts.failed,
            "running": counts.running,
            "waiting": len(self._lanes) + len(self._taken),
        }

    async def wait(self) -> None:
        """Waits until the listener has ended.

        Raises:
            Error: the error that ended the consumer.
        """
        if not is_gone(self._loop, self):
            await self._ended.wait()
        if self._error:
            raise self._error

    async def stop(self, timeout: Duration | None = None) -> None:
        """Takes no more messages, and waits for the callbacks under way. A callback may call this: it is not
        waited for, and ends as usual.

        Messages that were taken and have no finished callback are delivered again at once (Pulsar, TubeMQ),
        or when the session reconnects (MQTT).

        Args:
            timeout: seconds after which callbacks are cancelled; ``stop_timeout`` by default.
        """
        seconds = parse.seconds(timeout)
        if is_gone(self._loop, self):
            return
        self._halt()
        # A callback that stops its own listener, and the task that has called it, go on.
        tasks = {self._runner, *self._workers} - {caller.get()}
        try:
            await self._settle(tasks, self._settings.stop_timeout if seconds is None else seconds)
        finally:
            self._end()

    async def _settle(self, tasks: set[asyncio.Task[None]], seconds: float) -> None:
        pending = tasks
        try:
            if pending:
                _, pending = await asyncio.wait(pending, timeout=seconds)
        finally:
            for task in pending:
                task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=UNWIND)
        self._flush()
        if self._receipts:
            await asyncio.wait(set(self._receipts), timeout=seconds)

    def _halt(self) -> None:
        self._stopping = True
        # What the engine has already handed over comes nevertheless, and is handed back.
        for future in (self._fetching, self._room):
            if future is not None:
                future.cancel()

    def _end(self) -> None:
        self._flush()
        self._hand_back()
        self._consumer._listeners.discard(self)
        self._ended.set()

    def _hand_back(self) -> None:
        messages = [*self._cancelled, *self._taken, *self._lanes.drain()]
        self._cancelled.clear()
        self._taken.clear()
        if messages and not (self._error or self._consumer._leaving):
            try:
                self._consumer._hand_back(messages)
            except Error as error:
                if not isinstance(error, Closed):
                    report(self._consumer, f"hand back {len(messages)} messages", error)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        caller.set(asyncio.current_task())
        try:
            await run()
        except Exception as error:
            if not self._stopping:
                self._error = error
                report(self._consumer, "go on", error)
        except asyncio.CancelledError:
            if not self._stopping:
                # The event loop ends.
                self._halt()
                raise
        finally:
            if self._error:
                self._stopping = True
                self._end()

    async def _take(self, limit: int) -> list[M]:
        self._fetching = self._consumer.receive_many(min(limit, TAKEN_AT_ONCE))  # type: ignore[assignment]
        try:
            return await self._fetching  # type: ignore[misc]
        finally:
            self._fetching = None

    async def _in_turn(self) -> None:
        """One callback at a time, in the order of arrival."""
        taken, counts, clock, callback = self._taken, self._counts, time.monotonic, self._callback
        acknowledges, done = self._settings.ack, self._acknowledge
        until = clock() + TURN
        while not self._stopping:
            taken.extend(await self._take(self._settings.ahead))
            while taken and not self._stopping:
                message = taken.popleft()
                counts.running = 1
                # As `_handle`, without the cost of a coroutine for each message.
                try:
                    result = callback(message)
                    if result is not None and hasattr(result, "__await__"):
                        await result
                except (Exception, asyncio.CancelledError) as error:
                    self._raised(message, error)
                else:
                    counts.handled += 1
                    if acknowledges:
                        done(message)
                finally:
                    counts.running = 0
                if clock() >= until:
                    # Callbacks that never wait would keep the event loop for themselves.
                    await asyncio.sleep(0)
                    until = clock() + TURN

    async def _side_by_side(self) -> None:
        """Several callbacks at a time, those of one key in the order of arrival."""
        lanes, settings, lane = self._lanes, self._settings, self._consumer._lane
        while not self._stopping:
            room = settings.ahead - len(lanes)
            if room <= 0:
                self._room = self._loop.create_future()
                await self._room
                continue
            for message in await self._take(room):
                lanes.put(lane(message) if settings.ordered else object(), message)
            if self._stopping:
                return
            for _ in range(min(lanes.ready, settings.concurrency - self._active)):
                self._active += 1
                worker = self._loop.create_task(self._work())
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        lanes, handle, clock = self._lanes, self._handle, time.monotonic
        until = clock() + TURN
        caller.set(asyncio.current_task())
        try:
            while lanes.ready and not self._stopping:
                key, message = lanes.take()
                if self._room is not None and len(lanes) <= self._settings.ahead // 2:
                    room, self._room = self._room, None
                    if not room.done():
                        room.set_result(None)
                await handle(message)
                lanes.done(key)
                if clock() >= until:
                    await asyncio.sleep(0)
                    until = clock() + TURN
        finally:
            self._active -= 1

    async def _handle(self, message: M) -> None:
        counts = self._counts
        counts.running += 1
        try:
            result = self._callback(message)
            if result is not None and hasattr(result, "__await__"):
                await result
        except (Exception, asyncio.CancelledError) as error:
            self._raised(message, error)
        else:
            counts.handled += 1
            if self._settings.ack:
                self._acknowledge(message)
        finally:
            counts.running -= 1

    def _raised(self, message: M, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._cancelled.append(message)
                raise error
            # Something that the callback waited for was cancelled: a failure like others.
        self._counts.failure(self._consumer, message, error)
        if self._settings.ack:
            try:
                self._consumer._refuse(message)
            except Error as problem:
                self._not_told("refuse a message", problem)

    def _acknowledge(self, message: M) -> None:
        # At the latest when the event loop goes on, so that none waits for a callback that waits.
        if not self._done:
            self._loop.call_soon(self._flush)
        self._done.append(message)

    def _flush(self) -> None:
        if not self._done:
            return
        done, self._done = self._done, []
        try:
            receipt = self._consumer.ack_many(done)
        except Error as error:
            self._not_told("acknowledge messages", error)
        else:
            if receipt is not self._consumer._done:
                self._expect(receipt)

    def _not_told(self, action: str, error: BaseException) -> None:
        # A callback may close its consumer; the message is delivered again then.
        if not (isinstance(error, Closed) and self._consumer.closed):
            report(self._consumer, action, error)

    def _expect(self, receipt: Awaitable[None]) -> None:
        future = asyncio.ensure_future(receipt)
        self._receipts.add(future)

        def arrived(future: asyncio.Future[None]) -> None:
            self._receipts.discard(future)
            if not future.cancelled() and (error := future.exception()):
                self._not_told("acknowledge messages", error)

        future.add_done_callback(arrived)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"<Listener of {self._consumer!r}>"


class Changes:
    """Waits for what other code changes."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """Has those who wait look again."""
        while self._waiters:
            waiter = self._waiters.pop()
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Waits ``timeout`` seconds at most until ``holds`` does, and returns whether it does."""
        until = time.monotonic() + timeout
        while not holds():
            left = until - time.monotonic()
            if left <= 0:
                return False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait({waiter}, timeout=left)
            finally:
                self._waiters.discard(waiter)
        return True
