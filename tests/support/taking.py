"""The ways in which an application takes messages from a consumer of the asyncio face."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from support.messages import payloads, receive
from support.waiting import PATIENCE, until

Take = Callable[[Any, int], Awaitable[list[bytes]]]


async def by_receive(consumer: Any, count: int) -> list[bytes]:
    return payloads([await consumer.receive(timeout=PATIENCE) for _ in range(count)])


async def by_iteration(consumer: Any, count: int) -> list[bytes]:
    got: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(got) < count:
            got.append(await anext(aiter(consumer)))
    return payloads(got)


async def by_many(consumer: Any, count: int) -> list[bytes]:
    return payloads(await receive(consumer, count))


async def by_batch(consumer: Any, count: int) -> list[bytes]:
    return payloads(await consumer.receive_batch(count, timeout=PATIENCE)) if count else []


async def by_rows(consumer: Any, count: int) -> list[bytes]:
    return (await consumer.read_frame(count, timeout=PATIENCE))["value"].to_pylist() if count else []


async def by_listener(consumer: Any, count: int) -> list[bytes]:
    got: list[bytes] = []
    if count:
        # It takes one message at a time: those that it has taken are with the application.
        async with consumer.listen(lambda message: got.append(bytes(message.data)), ack="manual", ahead=1):
            await until(lambda: len(got) >= count)
    return got


TAKES: dict[str, Take] = {
    "receive": by_receive,
    "iteration": by_iteration,
    "receive_many": by_many,
    "receive_batch": by_batch,
    "read_frame": by_rows,
    "listener": by_listener,
}


@contextlib.asynccontextmanager
async def gathered(consumer: Any, count: int) -> AsyncGenerator[None]:
    """While ``count`` messages are ready, and a batch waits for one more. Cancels that wait."""
    waiting = asyncio.ensure_future(consumer.receive_batch(count + 1, timeout=None))
    try:
        await until(lambda: consumer.stats()["messages_prefetched"] == count)
        yield
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def cancelled(consumer: Any, take: Take) -> None:
    """Takes messages in one of the ways, and is cancelled before one has arrived."""
    taking = asyncio.ensure_future(take(consumer, 2))
    await asyncio.sleep(0.05)
    taking.cancel()
    await asyncio.wait([taking])
