"""Closing a client: twice, from several threads, and cancelled."""
# pyright: reportPrivateUsage=false

import asyncio
import threading
import time
from typing import Any

import pytest

import forebay
import forebay.blocking

from support.waiting import PATIENCE, eventually, until


class SlowChild:
    """A producer or consumer of the blocking face whose close takes its time."""

    def __init__(self) -> None:
        self.closes = 0
        self.prepared = False
        self.release = threading.Event()

    def _prepare(self) -> None:
        self.prepared = True

    def _start_close(self, failed: bool) -> None:
        assert self.prepared

    def _leave(self, failed: bool) -> None:
        self.closes += 1
        self.release.wait(PATIENCE)


class StuckChild:
    """One of the asyncio face whose close never ends."""

    closing = False

    async def _leave(self, failed: bool) -> None:
        self.closing = True
        await asyncio.sleep(3600)


def test_a_second_blocking_close_waits_for_the_first_and_does_nothing() -> None:
    with forebay.Broker() as broker:
        client: Any = forebay.blocking.connect(broker.url)
        child = SlowChild()
        client._children.add(child)
        closing = [threading.Thread(target=client.close) for _ in range(3)]
        closing[0].start()
        eventually(lambda: child.closes == 1)
        for other in closing[1:]:
            other.start()
        time.sleep(0.1)
        assert all(thread.is_alive() for thread in closing), "a client is closed when close() returns"
        child.release.set()
        for thread in closing:
            thread.join(PATIENCE)
        assert child.closes == 1 and client.closed
        began = time.monotonic()
        client.close()
        assert child.closes == 1 and time.monotonic() - began < 20


def test_the_producers_of_a_blocking_client_wait_side_by_side() -> None:
    with forebay.Broker() as broker:
        client: Any = forebay.blocking.connect(broker.url)
        children = [SlowChild() for _ in range(3)]
        for child in children:
            client._children.add(child)
        closing = threading.Thread(target=client.close)
        closing.start()
        eventually(lambda: any(child.closes for child in children))
        assert all(child.prepared for child in children)
        for child in children:
            child.release.set()
        closing.join(PATIENCE)
        assert [child.closes for child in children] == [1, 1, 1]


def test_a_callback_may_close_a_client_that_is_being_closed() -> None:
    with forebay.Broker() as broker:
        client: Any = forebay.blocking.connect(broker.url)
        consumer = client.consumer("t", "s")
        started, closed = threading.Event(), threading.Event()

        def close(_: Any) -> None:
            started.set()
            eventually(lambda: client._closing is not None)
            client.close()
            closed.set()

        consumer.listen(close)
        with forebay.blocking.connect(broker.url) as other, other.producer("t") as producer:
            producer.send(b"x")
        assert started.wait(PATIENCE)
        began = time.monotonic()
        client.close()
        assert closed.is_set() and time.monotonic() - began < 10


async def test_a_close_that_is_cancelled_ends_the_connections_all_the_same() -> None:
    with forebay.Broker() as broker:
        client: Any = await forebay.connect(broker.url)
        child = StuckChild()
        client._children.add(child)
        closing = asyncio.create_task(client.close())
        await until(lambda: child.closing)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert client.closed
        await until(lambda: client._native.events_ended)
        await client.close()
