"""Clients that are closed by several callers, by their own callbacks, or in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

from support.pulsar.harness import PulsarService

PATIENCE = 30


class Slow:
    """A handle of which the first close takes until it is allowed to end."""

    _open = True

    def __init__(self, client: Any) -> None:
        self.begun = asyncio.Event()
        self.allowed = asyncio.Event()
        client._children.add(self)

    async def _leave(self, failed: bool) -> None:
        if not self.begun.is_set():
            self.begun.set()
            await self.allowed.wait()


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


async def test_a_second_close_waits_for_the_first(embedded: PulsarService) -> None:
    client: Any = await forebay.connect(embedded.url)
    slow = Slow(client)
    first = asyncio.ensure_future(client.close())
    await within(slow.begun.wait())
    second, third = (asyncio.ensure_future(client.close()) for _ in range(2))
    # Time in which a second close that does not wait would end.
    await asyncio.wait({second}, timeout=0.2)
    assert not second.done()
    third.cancel()
    slow.allowed.set()
    await within(first)
    await within(second)
    assert client.closed and third.cancelled()


async def test_a_close_in_a_callback_does_not_wait_for_the_close_under_way(embedded: PulsarService) -> None:
    client: Any = await forebay.connect(embedded.url)
    slow = Slow(client)
    returned = asyncio.Event()

    async def closes(event: forebay.ConnectionEvent) -> None:
        if event.kind == "connected":
            await slow.begun.wait()
            await client.close()
            returned.set()

    client.on_event(closes)
    first = asyncio.ensure_future(client.close())
    await within(returned.wait())
    assert not first.done() and not client.closed
    slow.allowed.set()
    await within(first)


async def test_a_callback_may_close_the_client_within_a_time(embedded: PulsarService) -> None:
    """Whichever task runs the close, it does not wait for the callback that waits for it."""
    client = await forebay.connect(embedded.url)
    returned = asyncio.Event()

    async def closes(event: forebay.ConnectionEvent) -> None:
        if event.kind == "connected":
            await asyncio.create_task(client.close())
            returned.set()

    client.on_event(closes)
    await within(returned.wait())
    assert client.closed


async def test_a_listener_s_callback_may_close_the_client_while_it_is_closing(
    embedded: PulsarService,
) -> None:
    client = await forebay.connect(embedded.url)
    topic = embedded.topic()
    consumer, producer = await client.consumer(topic, "s"), await client.producer(topic)
    called, closing, returned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def closes(_: Any) -> None:
        called.set()
        await closing.wait()
        await client.close()
        returned.set()

    consumer.listen(closes)
    await producer.send(b"x")
    await within(called.wait())
    closing.set()
    await within(client.close())
    assert returned.is_set() and client.closed


async def test_a_callback_that_stops_itself_ends_as_usual(embedded: PulsarService) -> None:
    client = await forebay.connect(embedded.url)
    seen: list[str] = []
    ended = asyncio.Event()

    async def stops(event: forebay.ConnectionEvent) -> None:
        seen.append(event.kind)
        callback.stop()
        await asyncio.sleep(0)
        ended.set()

    callback = client.on_event(stops)
    await within(ended.wait())
    await within(client.close())
    assert seen == ["connected"] and callback.failed == 0


async def test_what_waits_when_the_engine_s_bridge_closes_fails(embedded: PulsarService) -> None:
    client: Any = await forebay.connect(embedded.url)
    pending = client._native.close()
    client._open = False
    client._bridge.close()
    with pytest.raises(errors.Closed):
        await within(pending)


def test_a_blocking_close_that_raises_stops_the_broker_nevertheless(embedded: PulsarService) -> None:
    client: Any = connect_blocking(embedded.url)
    seen: list[str] = []
    client.on_event(lambda event: seen.append(event.kind))

    class Failing:
        def __init__(self, native: Any) -> None:
            self.native = native

        def close(self) -> Failing:
            return self

        def wait(self) -> None:
            self.native.close().wait()
            raise RuntimeError("of the engine")

    class Stopped:
        stopped = False

        def stop(self) -> None:
            self.stopped = True

    client._native, client._broker = Failing(client._native), Stopped()
    with pytest.raises(RuntimeError, match="of the engine"):
        client.close()
    assert client._broker.stopped and seen == ["connected", "disconnected"]
