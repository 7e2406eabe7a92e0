"""Message ids, and positions in a topic."""

from __future__ import annotations

import contextlib
from typing import Any

from penstock import parse
from penstock._native import MessageId, MessageIds, PulsarMessage

__all__ = ["MessageId", "MessageIds", "PulsarMessage", "position", "reader_name", "seek_target"]


def position(value: Any) -> Any:
    """Parser of the option ``position``: ``"earliest"``, ``"latest"``, or a message id (the object or its
    text)."""
    if not isinstance(value, str):
        if hasattr(value, "ledger"):
            return value
    elif value.lower() in ("earliest", "latest"):
        return value.lower()
    else:
        with contextlib.suppress(Exception):
            return MessageId.parse(value)
    raise ValueError('expected "earliest", "latest" or a message id')


def seek_target(position: Any) -> MessageId | int:
    """The argument of the engine for :meth:`penstock.pulsar.PulsarConsumer.seek`.

    Raises:
        InvalidArgument: not a position.
    """
    if position == "earliest":
        return MessageId.earliest
    if position == "latest":
        return MessageId.latest
    if isinstance(position, str):
        return MessageId.parse(position)
    if isinstance(position, MessageId):
        return position
    return parse.epoch_ms(position)


def reader_name() -> str:
    """A subscription name that is unique."""
    import secrets

    return f"reader-{secrets.token_hex(5)}"
