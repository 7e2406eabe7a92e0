"""The native module, with the package's errors plugged in. Everything else imports it from here."""
# pyright: reportPrivateUsage=false

from . import _engine
from ._engine import (
    ArrowBatch,
    FrameRows,
    Loop,
    Message,
    MessageId,
    MessageIds,
    Position,
    Waiter,
    connect,
    encode_frame,
    set_reason_codes,
    template_columns,
    topic_matches,
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
    "Position",
    "Waiter",
    "connect",
    "encode_frame",
    "set_reason_codes",
    "start_broker",
    "template_columns",
    "topic_matches",
]
