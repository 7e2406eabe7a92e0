"""The part of intercepted handles that depends on the face. Written by hand, like its twin
``forebay/_aio/interception.py``."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from forebay._core import parse
from forebay.errors import Timeout

from .handle import ConsumerHandle, ProducerHandle

if TYPE_CHECKING:
    from forebay._core.types import Duration, Size

Told = Callable[[Any, BaseException | None], None]


def watched(pending: Any, tell: Told) -> Any:
    """The operation; ``tell`` is called with its result or error when it has been waited for."""
    return _Watched(pending, tell)


class _Watched:
    def __init__(self, pending: Any, tell: Told) -> None:
        self._pending, self._tell = pending, tell

    def wait(self, timeout: float | None = None) -> Any:
        """The result."""
        try:
            result = self._pending.wait(timeout)
        except BaseException as error:
            # It can still be waited for after a limit of the caller's.
            if not (timeout is not None and isinstance(error, Timeout)):
                self._tell(None, error)
            raise
        self._tell(result, None)
        return result

    def done(self) -> bool:
        """Whether the result has arrived and has not been taken."""
        return self._pending.done()


class InterceptedProducerHandle(ProducerHandle):
    """A producer with interceptors."""

    _interceptors: Any

    def _shut(self, failed: bool) -> None:
        try:
            super()._shut(failed)
        finally:
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
            self._interceptors.close()
