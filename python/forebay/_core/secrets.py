"""Functions that supply secrets. The engine calls them on a thread of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from forebay.errors import AuthenticationError, Error, Timeout

from .options import Table

if TYPE_CHECKING:
    import asyncio


def supplied(name: str, supply: Callable[[], Any]) -> str:
    """The text that a function supplies for the option ``name``, checked as the engine checks it.

    Raises:
        AuthenticationError: the function failed, or returned an empty secret, bytes that are not UTF-8, or
            something else.
    """
    try:
        secret = supply()
    except Error as error:
        raise AuthenticationError(f"the function for {name} failed: {error.message}") from None
    except Exception as error:
        # The text of the error may have the secret in it.
        raise AuthenticationError(f"the function for {name} failed: {type(error).__name__}") from None
    if isinstance(secret, bytes):
        try:
            secret = secret.decode()
        except UnicodeDecodeError:
            raise AuthenticationError(
                f"the function for {name} returned bytes that are not text in UTF-8"
            ) from None
    if not isinstance(secret, str):
        raise AuthenticationError(
            f"the function for {name} failed: it returned {type(secret).__name__}, not text or bytes"
        )
    if not secret.strip():
        raise AuthenticationError(f"the function for {name} returned an empty secret")
    return secret


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
