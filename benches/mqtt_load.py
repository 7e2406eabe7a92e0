"""How MQTT clients are loaded, each the same way: in a window, one at a time, with what they subscribe to.

A publish counts when it is answered; QoS 0 has no answer, so a message of QoS 1 behind the last one ends the
time. Messages that come are acknowledged as the client does it. Each case warms up with WARM messages first.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from clock import Clock

SIZE, WINDOW, WARM = 100, 100, 2_000
BODY = bytes(SIZE)
UNTOLD = 1000
"""Receive Maximum of clients that end the connection for one message more: Mosquitto sends more than it is
told to, and the window is the publisher's."""
Report = dict[str, float]
Publish = Callable[[], Any]


def module(name: str) -> Any:
    """By name: the peers carry no types, or partial ones."""
    return importlib.import_module(name)


class Arrivals:
    """Counts what comes to a callback."""

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
    """Lets messages come: the fake broker sends by itself, others need a publisher."""
    if not name.startswith("blast/"):
        words = ["publish", str(port), name, str(count), str(SIZE), str(qos), str(WINDOW)]
        subprocess.Popen([os.environ["MQTT_PEER"], *words], stdout=subprocess.DEVNULL)


Receive = Callable[[str, int], Any]


async def received(receive: Receive, topic: str, count: int) -> Report:
    """``receive`` subscribes to a name, has it fed, and ends when ``count`` messages are there: all that the
    subscription brings, so that nothing fetched ahead of the time is in it."""
    await receive(f"{topic}/{WARM}/{SIZE}", WARM)
    clock = Clock(count)
    await receive(f"{topic}/{count}/{SIZE}", count)
    return clock.stop()


async def windowed(send: Publish, times: int) -> None:
    """``send`` gives an awaitable; no more than the window of them are open."""
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
