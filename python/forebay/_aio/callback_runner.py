"""The task of the asyncio face that runs a callback of the program, and the loop that it belongs to."""

from __future__ import annotations

import asyncio
import contextvars

from forebay.errors import InvalidArgument

__all__ = ["caller", "is_gone", "of_another_loop"]

caller: contextvars.ContextVar[asyncio.Task[None] | None] = contextvars.ContextVar("caller", default=None)
"""The task that has called back. One that a callback has started, as to close a client, knows it, too."""


def of_another_loop(loop: asyncio.AbstractEventLoop, thing: object) -> InvalidArgument:
    """The error for using ``thing`` outside ``loop``, which is its event loop."""
    text = f"{thing!r} belongs to another event loop"
    if loop.is_running():
        # A thread runs one loop at a time.
        return InvalidArgument(
            f"{text}, which runs in another thread: open one handle per loop, or use forebay.blocking, whose"
            " handles threads may share"
        )
    return InvalidArgument(f"{text}: open one handle per loop")


def is_gone(loop: asyncio.AbstractEventLoop, thing: object) -> bool:
    """Whether the loop of ``thing`` has been closed, so that nothing can be awaited there any more.

    Raises:
        InvalidArgument: the loop has not been closed, and another one runs here.
    """
    if asyncio._get_running_loop() is loop:
        return False
    if not loop.is_closed():
        raise of_another_loop(loop, thing)
    return True
