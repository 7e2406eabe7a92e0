"""Types of arguments, shared by every protocol. For annotations: nothing here has behaviour."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
if TYPE_CHECKING:
    from forebay._engine import Waiter as Waiter

Duration = float | timedelta | str
"""Seconds, a ``timedelta``, or text such as ``"250ms"``."""
Size = int | str
"""Bytes, or text such as ``"64MiB"``."""
Timestamp = datetime | int
"""An aware ``datetime``, or milliseconds since 1970."""
Secret = str | bytes | Callable[[], str] | Callable[[], bytes]
"""The text or bytes, ``"env:NAME"``, ``"file:PATH"``, or a callable. Never shown in a ``repr``."""
Pem = str | bytes | os.PathLike[str]
"""PEM itself or the path of a file."""


class Pending(Protocol[T_co]):
    """The result of an operation of the engine: awaited on the asyncio face, waited for on the blocking
    one."""

    def __await__(self) -> Generator[Any, Any, T_co]: ...
    def wait(self, timeout: float | None = None) -> T_co: ...
