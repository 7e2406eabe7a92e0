"""The part of intercepted handles that depends on the face. Written by hand, like its twin
``forebay/_sync/interception.py``."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from forebay._core import parse
from forebay.errors import Closed, EndOfTopic

from .handle import ConsumerHandle, ProducerHandle

if TYPE_CHECKING:
    from forebay._core.types import Duration, Size

Told = Callable[[Any, BaseException | None], None]


def watched(pending: Any, tell: Told, _untold: object = None) -> Any:
    """The operation itself; ``tell`` is called with its result or error, before the code that awaits it
    goes on, and also if none does."""

    def ended(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            tell(None, asyncio.CancelledError())
        elif error := future.exception():
            tell(None, error)
        else:
            tell(future.result(), None)

    future = cast("asyncio.Future[Any]", pending)
    if future.done():
        ended(future)
    else:
        future.add_done_callback(ended)
    return future


class InterceptedProducerHandle(ProducerHandle):
    """A producer with interceptors."""

    _interceptors: Any

    async def _leave(self, failed: bool) -> None:
        was_open = self._open
        try:
            await super()._leave(failed)
        finally:
            if was_open:
                self._interceptors.close()


class InterceptedConsumerHandle(ConsumerHandle[Any]):
    """A consumer with interceptors."""

    _interceptors: Any

    def _came(self, message: Any, error: BaseException | None) -> None:
        if not error:
            self._interceptors.tell("before_consume", message)

    def _many_came(self, messages: Any, error: BaseException | None) -> None:
        for message in () if error else messages:
            self._came(message, None)

    def __aiter__(self) -> AsyncIterator[Any]:
        self._check()
        return cast("AsyncIterator[Any]", self)

    async def __anext__(self) -> Any:
        try:
            return await watched(self._native.receive(None), self._came)
        except (Closed, EndOfTopic):
            # As without interceptors.
            raise StopAsyncIteration from None

    def receive(self, timeout: Duration | None = None) -> Awaitable[Any]:
        return watched(super().receive(timeout), self._came)

    def receive_many(self, max: int = 1000, timeout: Duration | None = None) -> Awaitable[list[Any]]:
        self._check()
        pending = self._native.receive_many(max, parse.seconds(timeout))
        return watched(pending, self._many_came)

    def receive_batch(
        self, max: int = 1000, *, max_bytes: Size | None = None, timeout: Duration | None = 1.0
    ) -> Awaitable[list[Any]]:
        self._check()
        size = parse.bytes_of(max_bytes, "max_bytes")
        pending = self._native.receive_batch(max, size, parse.seconds(timeout))
        return watched(pending, self._many_came)

    async def _leave(self, failed: bool) -> None:
        was_open = self._open
        try:
            await super()._leave(failed)
        finally:
            if was_open:
                self._interceptors.close()
