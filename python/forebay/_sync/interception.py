"""The part of intercepted handles that depends on the face. Written by hand, like its twin
``forebay/_aio/interception.py``."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from forebay._core import parse
from forebay.errors import InvalidArgument, Timeout

from .handle import ConsumerHandle, ProducerHandle

if TYPE_CHECKING:
    from forebay._core.types import Duration, Size

_LAST = 1.0
"""Seconds in which what a close has given up ends."""

Told = Callable[[Any, BaseException | None], None]


def watched(pending: Any, tell: Told, untold: dict[Any, None]) -> Any:
    """The operation; ``tell`` is called once with its result or error: when it has been waited for, or else
    when it has ended and the handle is used again or closed. Until then it is in ``untold``."""
    # Those that the program never waits for do not pile up.
    while (first := next(iter(untold), None)) is not None and first.done() and first.settle(0):
        pass
    return _Watched(pending, tell, untold)


def _settle(untold: dict[Any, None], limit: float = 0) -> None:
    """Tells of all that ends within ``limit`` seconds."""
    ends = time.monotonic() + limit
    for one in list(untold):
        one.settle(max(0, ends - time.monotonic()))


class _Watched:
    def __init__(self, pending: Any, tell: Told, untold: dict[Any, None]) -> None:
        self._pending, self._tell, self._untold = pending, tell, untold
        self._taking = threading.Lock()
        """Held by the thread that waits: it tells."""
        self._outcome: tuple[Any, Exception | None] | None = None
        """The result or error that has been told and not been taken."""
        untold[self] = None

    def wait(self, timeout: float | None = None) -> Any:
        """The result."""
        began = time.monotonic()
        limit = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
        if not self._taking.acquire(timeout=limit):
            raise Timeout("no result in time; it can still be waited for")
        try:
            if self in self._untold:
                self._end(None if timeout is None else timeout - (time.monotonic() - began))
            if self._outcome is None:
                # Says that it has been taken.
                return self._pending.wait(0)
            (result, error), self._outcome = self._outcome, None
        finally:
            self._taking.release()
        if error is not None:
            raise error
        return result

    def _end(self, timeout: float | None) -> None:
        """Waits for the outcome and tells it."""
        self._outcome = outcome = self._waited(timeout)
        self._untold.pop(self)
        self._tell(*outcome)

    def _waited(self, timeout: float | None) -> tuple[Any, Exception | None]:
        try:
            return self._pending.wait(timeout), None
        except Timeout as error:
            if timeout is None:
                return None, error
            # It can still be waited for after a limit of the caller's.
            try:
                return self._pending.wait(0), None
            except InvalidArgument:
                # The limit was that of the operation, whose result has been taken now.
                return None, error
        except Exception as error:
            return None, error

    def settle(self, limit: float) -> bool:
        """Tells, unless a thread waits and will, or it does not end within ``limit`` seconds. The result can
        still be taken."""
        if not self._taking.acquire(blocking=False):
            return False
        try:
            if self in self._untold:
                self._end(limit)
        except Timeout:
            return False
        finally:
            self._taking.release()
        return True

    def done(self) -> bool:
        """Whether the result has arrived and has not been taken."""
        return self._outcome is not None or self._pending.done()


class InterceptedProducerHandle(ProducerHandle):
    """A producer with interceptors."""

    _interceptors: Any

    def flush(self, timeout: Duration | None = None) -> None:
        try:
            super().flush(timeout)
        finally:
            _settle(self._interceptors.untold)

    def _shut(self, failed: bool) -> None:
        try:
            super()._shut(failed)
        finally:
            _settle(self._interceptors.untold, _LAST)
            self._interceptors.close()


class InterceptedConsumerHandle(ConsumerHandle[Any]):
    """A consumer with interceptors."""

    _interceptors: Any

    def _came(self, messages: list[Any]) -> None:
        for message in messages:
            self._interceptors.tell("before_consume", message)

    def __iter__(self) -> Iterator[Any]:
        self._check()
        return self

    def __next__(self) -> Any:
        message = super().__next__()
        self._came([message])
        return message

    def receive(self, timeout: Duration | None = None) -> Any:
        message = super().receive(timeout)
        self._came([message])
        return message

    def receive_many(self, max: int = 1000, timeout: Duration | None = None) -> list[Any]:
        self._check()
        messages = self._native.receive_many(max, parse.seconds(timeout)).wait()
        self._came(messages)
        return messages

    def receive_batch(
        self, max: int = 1000, *, max_bytes: Size | None = None, timeout: Duration | None = 1.0
    ) -> list[Any]:
        self._check()
        size = parse.bytes_of(max_bytes, "max_bytes")
        messages = self._native.receive_batch(max, size, parse.seconds(timeout)).wait()
        self._came(messages)
        return messages

    def _shut(self, failed: bool) -> None:
        try:
            super()._shut(failed)
        finally:
            _settle(self._interceptors.untold, _LAST)
            self._interceptors.close()
