"""The native module, with the package's errors plugged in. Everything else imports it from here."""
# pyright: reportPrivateUsage=false

from typing import Any

from . import _engine, parse
from ._engine import (
    ArrowBatch,
    FrameRows,
    Loop,
    Message,
    MessageId,
    MessageIds,
    Waiter,
    connect,
    encode_frame,
    template_columns,
)
from .errors import from_engine

_engine.set_error_factory(from_engine)
start_broker = _engine.Broker.start

__all__ = [
    "ArrowBatch",
    "FrameRows",
    "Loop",
    "Message",
    "MessageId",
    "MessageIds",
    "Waiter",
    "connect",
    "encode_frame",
    "reader_name",
    "start_broker",
    "seek_target",
    "template_columns",
]


def reader_name() -> str:
    """A subscription name that nobody else has."""
    import secrets

    return f"reader-{secrets.token_hex(5)}"


def seek_target(position: Any) -> MessageId | int:
    """What the engine takes for :meth:`Consumer.seek`.

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
