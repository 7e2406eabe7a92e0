"""The load on MQTT clients, the same for each: publishing in a window or one at a time, and receiving.

A publication counts when it is acknowledged. QoS 0 has no acknowledgement, so a message of QoS 1 behind the
last one ends the time. Received messages are acknowledged in the client's own way. Each case warms up with
WARM messages first.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from benches.clock import Clock

SIZE, WINDOW, WARM = 100, 100, 2_000
BODY = bytes(SIZE)
UNTOLD = 1000
"""Receive Maximum of clients that disconnect when it is exceeded, as Mosquitto exceeds a smaller one. The
publisher's window is the real limit."""
Report = dict[str, float]
Publish = Callable[[], Any]


def module(name: str) -> Any:
    """Imports by name: the peers carry no types, or partial ones."""
    return importlib.import_module(name)


class Arrivals:
    """Counts the messages that reach a callback."""

    def __init__(self) -> None:
        self.left = 0
        self.done = threading.Event()
        self.ring: Callable[[], Any] = self.done.set

    def expect(self, count: int, ring: Callable[[], Any] | None = None) -> None:
        self.left = count
        self.done.clear()
        self.ring = ring or self.done.set

    def one(self, *_: Any) -> int:
        self.left -= 1
        if not self.left:
            self.ring()
        return 0


def feed(port: int, name: str, count: int, qos: int) -> None:
    """Starts the flow of messages: the fake broker sends by itself, others need a publisher."""
    if not name.startswith("blast/"):
        words = ["publish", str(port), name, str(count), str(SIZE), str(qos), str(WINDOW)]
        subprocess.Popen([os.environ["MQTT_PEER"], *words], stdout=subprocess.DEVNULL)


Receive = Callable[[str, int], Any]


async def received(receive: Receive, topic: str, count: int) -> Report:
    """``receive`` subscribes to a name, starts its feed, and returns when ``count`` messages have arrived.

    The subscription brings no more, so that no prefetched message is in the time.
    """
    await receive(f"{topic}/{WARM}/{SIZE}", WARM)
    clock = Clock(count)
    await receive(f"{topic}/{count}/{SIZE}", count)
    return clock.stop()


async def windowed(send: Publish, times: int) -> None:
    """``send`` returns an awaitable; at most WINDOW of them are open."""
    window: deque[Any] = deque()
    for _ in range(times):
        if len(window) == WINDOW:
            await window.popleft()
        window.append(send())
    while window:
        await window.popleft()


async def one_by_one(send: Publish, times: int) -> None:
    for _ in range(times):
        await send()


async def timed(way: Callable[[Publish, int], Any], send: Publish, count: int, marker: Publish) -> Report:
    await way(send, WARM if count > WARM else 10)
    await marker()
    clock = Clock(count)
    await way(send, count)
    await marker()
    return clock.stop()
