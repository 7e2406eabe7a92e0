"""Messages to send, and consumers that are expected to receive a number of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from support.waiting import PATIENCE


async def receive(consumer: Any, count: int, timeout: float = PATIENCE) -> list[Any]:
    """Exactly ``count`` messages, in order of arrival."""
    messages: list[Any] = []
    deadline = time.monotonic() + timeout
    while len(messages) < count:
        left = deadline - time.monotonic()
        got = await consumer.receive_many(count - len(messages), timeout=max(left, 0.01))
        assert got or left > 0, f"{len(messages)} of {count} messages arrived in {timeout} s"
        messages += got
    return messages


async def nothing(consumer: Any, wait: float = 0.3) -> None:
    """Asserts that no (more) messages arrive."""
    got = await consumer.receive_many(10, timeout=wait)
    assert got == [], [bytes(message.data) for message in got]


def payloads(messages: list[Any]) -> list[bytes]:
    return [bytes(message.data) for message in messages]


def numbered(count: int, size: int = 0) -> list[bytes]:
    """Payloads that tell their position, padded by ``size`` bytes."""
    return [b"m%06d" % number + bytes(size) for number in range(count)]


async def gather(*futures: Any) -> list[Any]:
    return list(await asyncio.gather(*futures))
