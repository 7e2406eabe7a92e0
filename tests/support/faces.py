"""The blocking face with the calls of the asyncio face, so that one test serves both."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threaded:
    """A blocking handle whose methods run on threads and are awaited. Handles that they return are too."""

    def __init__(self, handle: Any, pool: ThreadPoolExecutor) -> None:
        self._handle, self._pool = handle, pool

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._handle, name)
        if not inspect.ismethod(value) and not inspect.isbuiltin(value):
            return value

        async def call(*arguments: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._pool, lambda: value(*arguments, **options))
            return Threaded(result, self._pool) if hasattr(result, "close") else result

        return call
