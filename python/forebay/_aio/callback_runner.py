"""The task of the asyncio face that runs a callback of the program."""

from __future__ import annotations

import asyncio
import contextvars

__all__ = ["caller"]

caller: contextvars.ContextVar[asyncio.Task[None] | None] = contextvars.ContextVar("caller", default=None)
"""The task that has called back. One that a callback has started, as to close a client, knows it, too."""
