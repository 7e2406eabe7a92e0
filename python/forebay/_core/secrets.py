"""Functions that supply secrets, as the engine calls them: on a thread of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from forebay.errors import AuthenticationError, Timeout

from .options import Table

if TYPE_CHECKING:
    import asyncio


def prepared(
    table: Table, values: Mapping[str, Any], loop: asyncio.AbstractEventLoop | None
) -> dict[str, Any]:
    """The values, with coroutine functions among the suppliers of secrets as plain functions.

    Args:
        table: the options of the client.
        values: their values.
        loop: runs the coroutines; ``None`` refuses them.
    """
    limit = values.get("connect_timeout", 10.0)
    return {
        name: _supplier(name, value, loop, limit) if table[name].secret and callable(value) else value
        for name, value in values.items()
    }


def _supplier(
    name: str, supply: Callable[[], Any], loop: asyncio.AbstractEventLoop | None, limit: float
) -> Callable[[], Any]:
    def supplied() -> Any:
        value = supply()
        if not inspect.isawaitable(value):
            return value
        if loop is None or loop.is_closed():
            if inspect.iscoroutine(value):
                value.close()
            if loop is None:
                raise AuthenticationError(
                    f"{name} is a coroutine function: use the asyncio client, or a plain one"
                )
            raise AuthenticationError(f"{name} is a coroutine function, and its event loop is closed")

        # Not for the blocking face, which does without it.
        import asyncio

        async def awaited() -> Any:
            return await value

        future = asyncio.run_coroutine_threadsafe(awaited(), loop)
        try:
            return future.result(limit)
        except TimeoutError:
            if not future.cancel():
                raise
            raise Timeout(f"the coroutine function {name} has not ended within {limit:g} seconds") from None

    refused = getattr(supply, "refused", None)
    if callable(refused):
        supplied.refused = refused  # type: ignore[attr-defined]  # The engine calls it.
    return supplied
