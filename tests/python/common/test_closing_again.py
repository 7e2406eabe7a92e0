"""Closing a client: twice, from several threads, and cancelled."""
# pyright: reportPrivateUsage=false

import asyncio
import json
import signal
import threading
import time
from typing import Any

import pytest

import forebay
import forebay.blocking

from support.commands import start
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


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
@pytest.mark.parametrize("what", ["client", "consumer"])
def test_the_times_of_callbacks_run_side_by_side(protocol: str, what: str) -> None:
    """Each callback ends when the other listener is told to stop, and may take an hour until then."""
    with forebay.Broker(mqtt_port=0, tubemq_port=0) as broker:
        client: Any = forebay.blocking.connect(broker.urls[protocol])
        failed = threading.Event()
        begun = threading.Barrier(3)
        listeners: list[Any] = []

        def handle(other: int) -> None:
            begun.wait(PATIENCE)
            eventually(lambda: failed.is_set() or listeners[other]._stopping)

        more = {"type": "shared"} if protocol == "pulsar" else {}
        consumers = [client.consumer("one", "s", **more)]
        if what == "client":
            consumers.append(client.consumer("two", "s2"))
        for at, other in ((0, 1), (1, 0)):
            listeners.append(
                consumers[at % len(consumers)].listen(
                    lambda _, other=other: handle(other), ahead=1, stop_timeout=3600
                )
            )
        for topic in ("one", "two"):
            with client.producer(topic) as producer:
                producer.send_many([b"x"] * 20)
        begun.wait(PATIENCE)
        closing = threading.Thread(target=(client if what == "client" else consumers[0]).close)
        closing.start()
        closing.join(PATIENCE / 2)
        ended = not closing.is_alive()
        failed.set()
        closing.join()
        client.close()
        assert ended


def test_giving_a_blocking_client_up_ends_what_other_threads_wait_for() -> None:
    broker = start("broker", "--port", "0", "--json")
    try:
        url = json.loads(broker.stdout.readline())["url"]  # type: ignore[union-attr]
        client = forebay.blocking.connect(url, operation_timeout=1)
        producer: Any = client.producer("orders", send_timeout=3600)
        producer.send(b"x")
        broker.send_signal(signal.SIGSTOP)
        outcome: list[BaseException] = []

        def send() -> None:
            try:
                producer.send(b"x")
            except forebay.Error as error:
                outcome.append(error)

        sending = threading.Thread(target=send)
        sending.start()
        eventually(lambda: producer.pending == 1)
        client.abandon()
        sending.join(PATIENCE)
        assert [type(error) for error in outcome] == [forebay.errors.Closed]
    finally:
        broker.kill()
        broker.communicate()
