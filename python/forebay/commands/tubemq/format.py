"""The format language of ``forebay sub`` for TubeMQ, and ``--json`` of ``pub`` and ``sub``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.commands._shared.format import FIELDS, Fields, compile_fields
from forebay.commands._shared.subscribe import Part, payload_to_json
from forebay.errors import Unsupported

if TYPE_CHECKING:
    from forebay.tubemq import TubeMqMessage


def _no_publish_time(_: TubeMqMessage) -> bytes:
    raise Unsupported("a TubeMQ message has no publish time, so %T is not supported; %e is its event time")


_FIELDS: Fields = {
    **FIELDS,
    "p": lambda message: b"%d" % message.partition,
    "T": _no_publish_time,
    "b": lambda message: b"%d" % message.broker_id,
    "m": lambda message: (message.message_type or "").encode(),
    "o": lambda message: b"%d" % message.offset,
}


def compile_format(text: str) -> list[Part]:
    """A format as constant parts and functions of the message.

    Raises:
        InvalidArgument: an unknown ``%`` or ``\\``.
    """
    return compile_fields(text, _FIELDS)


def to_json(message: TubeMqMessage) -> dict[str, Any]:
    """A message as ``--json`` prints it; a payload that is not text is base64."""
    return {
        "topic": message.topic,
        "broker": message.broker_id,
        "partition": message.partition,
        "offset": message.offset,
        "id": str(message.id),
        "message_id": message.message_id,
        "key": message.key,
        "message_type": message.message_type,
        "event_time": message.event_time,
        "properties": message.properties,
        "redelivery_count": message.redelivery_count,
        **payload_to_json(message.data),
    }


def stored_to_json(topic: str, key: str | None, at: Any) -> dict[str, Any]:
    """A published message and its position, as ``forebay pub --json`` prints it."""
    return {
        "topic": topic,
        "broker": at.broker_id,
        "partition": at.partition,
        "offset": at.offset,
        "time": at.time,
        "id": str(at),
        "message_id": at.message_id,
        "key": key,
    }
