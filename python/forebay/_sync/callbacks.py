"""Listeners of the blocking face: threads. Written by hand, like their twin ``forebay/_aio/callbacks.py``."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from forebay._core import parse
from forebay._core.callback_lanes import TAKEN_AT_ONCE, Counts, Lanes, Settings, report
from forebay.errors import Closed, Error

from .callback_runner import CallbackThread

if TYPE_CHECKING:
    from forebay._core.types import Duration

    from .base import Consumer

M = TypeVar("M")
LOOK = 0.25
"""Seconds after which a thread that waits for messages looks whether it shall end."""
_alive: weakref.WeakSet[Listener[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # A thread must not be in the engine when the interpreter ends.
    listeners = list(_alive)
    for listener in listeners:
        listener.prepare(1.0)
    for listener in listeners:
        with contextlib.suppress(Error):
            listener.stop()


class Listener(Generic[M]):
    """Calls a function with each message of a consumer, by threads. Made by
    :meth:`forebay.blocking.Consumer.listen`.

    Leaving ``with``, :meth:`stop`, and closing the consumer end it: the callbacks under way have
    ``stop_timeout`` to end, and are then left alone. Messages without a callback are handed back, as
    :meth:`stop` says.
    """

    def __init__(self, consumer: Consumer[Any], callback: Callable[[M], Any], settings: Settings) -> None:
        self._consumer = consumer
        self._callback = callback
        self._settings = settings
        self._counts = Counts()
        self._lanes: Lanes[M] = Lanes()
        # The messages of the last take that have not begun, with one callback at a time.
        self._taken: deque[M] = deque()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopping = False
        self._until: float | None = None
        """The end of the time of callbacks under way, once it runs."""
        self._error: Exception | None = None
        self._ended = threading.Event()
        _alive.add(self)
        self._start(self._run)

    def _start(self, run: Callable[[], None]) -> None:
        name = f"listener of {self._consumer.topic}"
        thread = CallbackThread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

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
        with self._lock:
            return {
                "handled": counts.handled,
                "failed": counts.failed,
                "running": counts.running,
                "waiting": len(self._lanes) + len(self._taken),
            }

    def wait(self, timeout: Duration | None = None) -> bool:
        """Waits until the listener has ended.

        Args:
            timeout: longest wait in seconds; no limit by default.

        Returns:
            Whether it has ended.

        Raises:
            Error: the error that ended the consumer.
        """
        ended = self._ended.wait(parse.seconds(timeout))
        if self._error:
            raise self._error
        return ended

    def stop(self, timeout: Duration | None = None) -> None:
        """Takes no more messages, and waits for the callbacks under way. A callback may call this: it is not
        waited for, and ends as usual.

        Messages that were taken and have no callback yet are delivered again at once (Pulsar, TubeMQ), or
        when the session reconnects (MQTT).

        Args:
            timeout: seconds for which callbacks are waited for; ``stop_timeout`` by default.
        """
        seconds = parse.seconds(timeout)
        until = self.prepare(seconds)
        self._until = None
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                # The thread that takes messages needs a moment also when there is no time left.
                least = 2 * LOOK if thread is self._threads[0] and not self._counts.running else 0.0
                thread.join(max(until - time.monotonic(), least))
        self._end()

    def prepare(self, seconds: float | None = None) -> float:
        """Begins what :meth:`stop` does, which then waits no longer than from here on; returns the time on
        the monotonic clock until which it waits.

        Args:
            seconds: for which callbacks are waited for; ``stop_timeout`` by default.
        """
        if seconds is not None or self._until is None:
            self._until = time.monotonic() + (self._settings.stop_timeout if seconds is None else seconds)
        self._halt()
        return self._until

    def _end(self) -> None:
        self._hand_back()
        self._consumer._listeners.discard(self)
        self._ended.set()

    def _halt(self) -> None:
        with self._lock:
            self._stopping = True
            self._room.notify_all()
            self._work.notify_all()

    def _hand_back(self) -> None:
        with self._lock:
            messages = [*self._taken, *self._lanes.drain()]
            self._taken.clear()
        if messages and not (self._error or self._consumer._leaving):
            try:
                self._consumer._hand_back(messages)
            except Error as error:
                if not isinstance(error, Closed):
                    report(self._consumer, f"hand back {len(messages)} messages", error)

    def _run(self) -> None:
        """Takes messages, and calls back if there is one callback at a time."""
        alone = self._settings.concurrency == 1
        try:
            while not self._stopping:
                room = self._settings.ahead if alone else self._wait_for_room()
                messages = self._consumer.receive_many(min(room, TAKEN_AT_ONCE), LOOK)
                if not messages:
                    continue
                if alone:
                    self._taken.extend(messages)
                    self._in_turn()
                    continue
                lane, ordered = self._consumer._lane, self._settings.ordered
                with self._lock:
                    for message in messages:
                        self._lanes.put(lane(message) if ordered else object(), message)
                    if not self._stopping:
                        self._share()
        except Exception as error:
            if not self._stopping:
                self._error = error
                report(self._consumer, "go on", error)
        finally:
            if self._error:
                self._halt()
                self._end()
            # Taken while the listener was stopped.
            self._hand_back()

    def _in_turn(self) -> None:
        taken, counts = self._taken, self._counts
        while not self._stopping:
            try:
                message = taken.popleft()
            except IndexError:
                return
            counts.running = 1
            if self._handle(message):
                counts.handled += 1
            counts.running = 0

    def _wait_for_room(self) -> int:
        with self._lock:
            while len(self._lanes) >= self._settings.ahead and not self._stopping:
                self._room.wait()
            return max(self._settings.ahead - len(self._lanes), 1)

    def _share(self) -> None:
        """Wakes threads for what is ready, and starts those that are missing. Called under the lock."""
        ready = self._lanes.ready
        self._work.notify(ready)
        missing = min(ready - self._idle, self._settings.concurrency - (len(self._threads) - 1))
        for _ in range(missing):
            self._start(self._serve)

    def _serve(self) -> None:
        """Calls back, as one of several threads."""
        while not self._stopping:
            self._call_back()
            with self._lock:
                if not self._lanes.ready and not self._stopping:
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1

    def _call_back(self) -> None:
        lanes = self._lanes
        while not self._stopping:
            with self._lock:
                if not lanes.ready or self._stopping:
                    return
                key, message = lanes.take()
                self._counts.running += 1
                if len(lanes) <= self._settings.ahead // 2:
                    self._room.notify()
            handled = self._handle(message)
            with self._lock:
                self._counts.running -= 1
                self._counts.handled += handled
                lanes.done(key)
                if lanes.ready and self._idle:
                    self._work.notify()

    def _handle(self, message: M) -> bool:
        """Calls back, tells the broker, and returns whether the callback ended."""
        try:
            self._callback(message)
        except BaseException as error:
            # Also one that asks to end the thread, which other messages need.
            with self._lock:
                self._counts.failure(self._consumer, message, error)
            if self._settings.ack:
                self._tell(self._consumer._refuse, message, "refuse a message")
            return False
        if self._settings.ack:
            self._tell(self._consumer.ack, message, "acknowledge a message")
        return True

    def _tell(self, verb: Callable[[M], Any], message: M, action: str) -> None:
        try:
            verb(message)
        except Error as error:
            # A callback may close its consumer; the message is delivered again then.
            if not (isinstance(error, Closed) and self._consumer.closed):
                report(self._consumer, action, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Listener of {self._consumer!r}>"


class Changes:
    """Waits for what other code changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiters = 0

    def tell(self) -> None:
        """Has those who wait look again."""
        # Counted before they look, so that no change is missed.
        if self._waiters:
            with self._changed:
                self._changed.notify_all()

    def wait_for(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Waits ``timeout`` seconds at most until ``holds`` does, and returns whether it does."""
        with self._changed:
            self._waiters += 1
            try:
                return self._changed.wait_for(holds, timeout)
            finally:
                self._waiters -= 1
