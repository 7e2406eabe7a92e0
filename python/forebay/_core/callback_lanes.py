"""The part of the listeners that both faces share: their options, and messages in order of their keys."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from forebay.errors import InvalidArgument

from . import parse

M = TypeVar("M")

log = logging.getLogger("forebay.listener")

TAKEN_AT_ONCE = 1000
"""Maximum number of messages that a listener takes from the engine at a time."""
TURN = 0.01
"""Seconds for which a listener of callbacks that do not wait keeps the event loop."""


class Settings(NamedTuple):
    """The checked arguments of a listener."""

    concurrency: int
    ack: bool
    ordered: bool
    ahead: int
    stop_timeout: float


def settings(
    callback: Any, concurrency: Any, ack: Any, ordered: Any, ahead: Any, stop_timeout: Any
) -> Settings:
    """Checks the arguments of ``listen``.

    Raises:
        InvalidArgument: a value that does not fit.
    """

    def checked(name: str, parser: parse.Parser, value: Any) -> Any:
        try:
            return parser(value)
        except ValueError as error:
            raise InvalidArgument(f"listen: {name!r}: {error}") from None

    checked("callback", parse.callable_, callback)
    return Settings(
        checked("concurrency", parse.whole(1, 10_000), concurrency),
        checked("ack", parse.one_of("auto", "manual"), ack) == "auto",
        checked("ordered", parse.boolean, ordered),
        checked("ahead", parse.whole(1, 1 << 20), ahead),
        checked("stop_timeout", parse.duration, stop_timeout),
    )


class Lanes(Generic[M]):
    """Messages that wait for their callback. Those of a key form a lane; while one of them has its callback
    the others of its lane wait. Lanes take turns."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, deque[M]] = {}
        # The lanes with messages, of which none has its callback.
        self._ready: deque[Hashable] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        """Number of messages that wait."""
        return self._waiting

    @property
    def ready(self) -> int:
        """Number of messages that may have their callback now."""
        return len(self._ready)

    def put(self, key: Hashable, message: M) -> None:
        """Adds a message at the end of its lane."""
        self._waiting += 1
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque((message,))
            self._ready.append(key)
        else:
            lane.append(message)

    def take(self) -> tuple[Hashable, M]:
        """The next message and its key, which is busy until it is passed to :meth:`done`. One must be
        ready."""
        key = self._ready.popleft()
        self._waiting -= 1
        return key, self._lanes[key].popleft()

    def done(self, key: Hashable) -> None:
        """Lets the next message of the lane have its callback."""
        if self._lanes[key]:
            self._ready.append(key)
        else:
            del self._lanes[key]

    def drain(self) -> list[M]:
        """Removes and returns all messages that wait."""
        messages = [message for lane in self._lanes.values() for message in lane]
        for lane in self._lanes.values():
            lane.clear()
        self._ready.clear()
        self._waiting = 0
        return messages


class Counts:
    """Counters of a listener."""

    def __init__(self) -> None:
        self.handled = self.failed = self.running = 0

    def failure(self, consumer: object, message: Any, error: BaseException) -> None:
        """Counts and logs a callback that raised."""
        self.failed += 1
        message_id = getattr(message, "id", None)
        of = "" if message_id is None else f" {message_id}"
        log.error(
            "the callback of %r raised %s: %s, for the message%s of %s",
            consumer,
            type(error).__name__,
            error,
            of,
            message.topic,
            exc_info=error,
        )


def report(consumer: object, action: str, error: BaseException) -> None:
    """Logs what a listener could not tell the broker."""
    log.warning("the listener of %r could not %s: %s", consumer, action, error)
