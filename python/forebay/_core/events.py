"""Connection events, the same for both faces and every protocol."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from forebay.errors import Error

log = logging.getLogger("forebay.events")

LAST = 5.0
"""Seconds that callbacks have for the last events when their client is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionEvent:
    """A change of a connection of a client. A field that a kind does not have is ``None``, or 0."""

    kind: Literal["connected", "connect_failed", "disconnected", "resubscribed", "gave_up"]
    """* ``connected``: a broker has accepted a connection (``address``, ``attempts``, ``session_present``).
    * ``connect_failed``: an attempt failed (``address``, ``attempts``, ``error``, ``retry_in``).
    * ``disconnected``: a connection ended (``address``, ``error``).
    * ``resubscribed``: a subscription was made again after it was lost (``topic``).
    * ``gave_up``: the producer or consumer of ``topic``, or without a topic the client, has ended, because
      another attempt cannot succeed (``error``).
    """
    time: datetime
    """Time of the event."""
    address: str | None = None
    """Host and port of the broker."""
    attempts: int = 0
    """Number of attempts since there was a connection to this address, this one included."""
    session_present: bool | None = None
    """Whether the server had the session of the client; MQTT only."""
    topic: str | None = None
    """The topic or partition; with MQTT the topic filters, separated by commas."""
    error: Error | None = field(default=None, compare=False)
    """The reason. :class:`forebay.errors.Closed` if the client was closed."""
    retry_in: float | None = None
    """Seconds before the next attempt. ``None`` if the client does not try by itself: a client of Pulsar or
    TubeMQ connects again when one of its producers or consumers needs the broker."""


def made(fields: Mapping[str, Any], number: int, failed_before: int) -> ConnectionEvent:
    """The event of the engine's fields. ``failed_before``: attempts before the client's own."""
    if number == 0 and fields["kind"] == "connected":
        fields = {**fields, "attempts": fields["attempts"] + failed_before}
    at: dict[str, Any] = {"time": datetime.fromtimestamp(fields["time"], UTC)}
    return ConnectionEvent(**{**fields, **at})


class Counts:
    """Counters of a callback for connection events."""

    def __init__(self) -> None:
        self.failed = 0

    def failure(self, event: ConnectionEvent, error: BaseException) -> None:
        """Counts and logs a callback that raised."""
        self.failed += 1
        log.error(
            "a callback for connection events raised %s: %s, for %r",
            type(error).__name__,
            error,
            event.kind,
            exc_info=error,
        )
