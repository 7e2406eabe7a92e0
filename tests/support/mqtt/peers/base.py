"""The verbs that all peers share."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import ssl
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.mqtt.wire import V5, V311
from support.waiting import PATIENCE


class Refused(Exception):
    """The broker refused, with the text of the client."""


@dataclass
class Seen:
    """A message as a peer received it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass
class Filter:
    """A topic filter with its options."""

    text: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass
class Target:
    """The port a peer connects to, and the transport."""

    port: int
    websocket: bool = False
    context: ssl.SSLContext | None = None
    ca: Path | None = None


@dataclass
class PeerWill:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: dict[str, Any] = field(default_factory=dict)


class Peer:
    """One client. Each verb returns when the broker has answered, and raises if there is no answer."""

    name: str
    versions: tuple[int, ...] = (V311, V5)
    #: Whether it can keep a session and resume it.
    resumes = True

    def connect(
        self,
        target: Target,
        client_id: str,
        version: int = V5,
        *,
        clean: bool = True,
        keep_alive: int = 60,
        username: str | None = None,
        password: str | None = None,
        will: PeerWill | None = None,
        properties: dict[str, Any] | None = None,
    ) -> bool:
        """Returns whether the broker had the session."""
        raise NotImplementedError

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        """Returns the granted QoS or the reason code of each filter."""
        raise NotImplementedError

    def unsubscribe(self, *filters: str) -> None:
        raise NotImplementedError

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        """Returns the reason code, or 0 if the client does not report it."""
        raise NotImplementedError

    def receive(self, count: int, timeout: float = PATIENCE) -> list[Seen]:
        """Exactly ``count`` messages."""
        messages: list[Seen] = []
        deadline = time.monotonic() + timeout
        while len(messages) < count:
            messages += self._receive(count - len(messages), max(deadline - time.monotonic(), 0.01))
            if len(messages) < count and time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: {len(messages)} of {count} messages: {messages}")
        return messages

    def up_to(self, count: int, timeout: float) -> list[Seen]:
        """The messages that come in that time, ``count`` at most."""
        return self._receive(count, timeout)

    def _receive(self, count: int, timeout: float) -> list[Seen]:
        raise NotImplementedError

    def nothing(self, wait: float = 0.3) -> None:
        got = self._receive(1, wait)
        assert not got, got

    def disconnect(self, **options: Any) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Ends the connection without a DISCONNECT."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases everything, in any state."""
        with contextlib.suppress(Exception):
            self.disconnect()


class QueuedPeer(Peer):
    def __init__(self) -> None:
        self.messages: queue.Queue[Seen] = queue.Queue()

    def _receive(self, count: int, timeout: float) -> list[Seen]:
        got: list[Seen] = []
        deadline = time.monotonic() + timeout
        while len(got) < count:
            try:
                got.append(self.messages.get(timeout=max(deadline - time.monotonic(), 0.001)))
            except queue.Empty:
                break
        return got


class LoopedPeer(QueuedPeer):
    """An asyncio client, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE + 5)

    def close(self) -> None:
        super().close()

        async def finish() -> None:
            rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        with contextlib.suppress(Exception):
            self._run(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


def snake_case(name: str) -> str:
    """``will_delay_interval`` for ``WillDelayInterval``."""
    out = ""
    for letter in name.replace("QoS", "Qos"):
        out += f"_{letter.lower()}" if letter.isupper() and out else letter.lower()
    return out
