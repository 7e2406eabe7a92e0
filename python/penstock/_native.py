"""The native module, with the package's exceptions and durations plugged in. The package imports it from
here only."""
# pyright: reportPrivateUsage=false

from . import _engine, parse
from ._engine import (
    ArrowBatch,
    FrameRows,
    Loop,
    MessageId,
    MessageIds,
    MqttClient,
    MqttMessage,
    Position,
    PulsarClient,
    PulsarMessage,
    TubeMqClient,
    TubeMqMessage,
    Waiter,
    encode_frame,
    set_reason_codes,
    template_columns,
    topic_matches,
)
from ._missing import missing
from .errors import from_engine

_engine.set_error_factory(from_engine)
_engine.set_missing_factory(missing)
_engine.set_seconds_parser(parse.seconds)
start_broker = _engine.Broker.start

Message = PulsarMessage | MqttMessage | TubeMqMessage
"""A received message of any protocol. All have ``data``, ``topic`` and ``properties``."""

__all__ = [
    "ArrowBatch",
    "FrameRows",
    "Loop",
    "Message",
    "MessageId",
    "MessageIds",
    "MqttClient",
    "MqttMessage",
    "Position",
    "PulsarClient",
    "PulsarMessage",
    "TubeMqClient",
    "TubeMqMessage",
    "Waiter",
    "encode_frame",
    "set_reason_codes",
    "start_broker",
    "template_columns",
    "topic_matches",
]
