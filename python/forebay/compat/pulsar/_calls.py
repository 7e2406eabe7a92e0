"""A thread that calls back the senders of a producer."""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forebay import errors

from ._enums import Result
from ._ids import MessageId, identify
from .exceptions import result_of

if TYPE_CHECKING:
    from forebay._engine import MessageId as NativeId
    from forebay._engine import Waiter

Callback = Callable[[Result, MessageId], Any]
log = logging.getLogger("forebay.compat.pulsar")

NO_ID = MessageId()
"""The id that a callback gets with an error."""
_running: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """A thread that can be asked to end. At exit of the interpreter it is, because a thread must not be in
    the engine by then.

    Args:
        run: what the thread does.
        end: makes ``run`` return when it has done what was asked before.
        abandon: makes ``run`` return at once, at exit.
        name: of the thread.
    """

    def __init__(
        self,
        run: Callable[[], None],
        end: Callable[[], object],
        abandon: Callable[[], object],
        name: str,
    ) -> None:
        self._end, self._abandon = end, abandon
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        _running.add(self)
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Has the thread end, and waits for it unless it is the caller."""
        self.ask()
        self.join(timeout)

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return self._thread is threading.current_thread()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def ask(self, *, abandon: bool = False) -> None:
        """Has the thread end, without waiting for it."""
        with contextlib.suppress(errors.Error):
            (self._abandon if abandon else self._end)()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end of the thread, unless it is the caller."""
        if not self.is_current():
            self._thread.join(timeout)


@atexit.register
def _stop_all() -> None:
    # A second for what is asked of all threads together, and one for what they give up then.
    workers = list(_running)
    for abandon in (False, True):
        workers = [worker for worker in workers if worker.is_alive()]
        for worker in workers:
            worker.ask(abandon=abandon)
        until = time.monotonic() + 1.0
        for worker in workers:
            worker.join(max(until - time.monotonic(), 0.0))


class Callbacks:
    """The callbacks of a producer, called in the order of its messages by one thread.

    Args:
        abandon: fails all messages without an answer.
        name: of the thread.
    """

    def __init__(self, abandon: Callable[[], object], name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Waiter[NativeId] | None, Callback | None]] = queue.SimpleQueue()
        self._room = threading.Event()
        # Number of entries below which blocked senders go on; -1 while there are none.
        self._low = -1
        self.put = self._queue.put
        """Adds a message, ``(waiter, callback)``."""
        self.waiting: Callable[[], int] = self._queue.qsize
        """Number of messages whose callback is to come."""
        self._worker = Worker(self._run, lambda: self.put((None, None)), abandon, name)

    def _run(self) -> None:
        get, size, room = self._queue.get, self._queue.qsize, self._room
        while True:
            waiter, callback = get()
            if callback is None and waiter is None:
                self._low = -1
                room.set()
                return
            result, message_id = Result.Ok, NO_ID
            if waiter is not None:
                try:
                    message_id = identify(waiter.wait())
                except errors.Error as error:
                    result = result_of(error)
            if callback is not None:
                try:
                    callback(result, message_id)
                except BaseException:
                    # Also one that asks to end the thread, which other messages need.
                    log.exception("the callback of send_async failed")
            if self._low >= 0 and size() <= self._low:
                self._low = -1
                room.set()

    def wait_for_room(self, limit: int) -> None:
        """Blocks while ``limit`` messages wait for their callback, then until half of them have had it."""
        while self.waiting() >= limit:
            self._room.clear()
            self._low = limit // 2
            # An event set before it was cleared is not waited for long.
            self._room.wait(0.05)

    def flush(self) -> None:
        """Waits until all callbacks of messages sent before have been called."""
        if self._worker.is_current():
            return
        reached = threading.Event()

        def reach(result: Result, message_id: MessageId) -> None:
            reached.set()

        self.put((None, reach))
        while not reached.wait(0.5) and self._worker.is_alive():
            pass

    def stop(self) -> None:
        """Ends the thread, after the callbacks of the messages sent before."""
        self._worker.stop()
