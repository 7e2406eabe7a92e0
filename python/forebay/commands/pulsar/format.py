"""The format language of ``forebay sub`` for Pulsar, and ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.commands._shared.format import FIELDS, Fields, compile_fields
from forebay.commands._shared.subscribe import Part, payload_to_json

if TYPE_CHECKING:
    from forebay.pulsar import PulsarMessage

_FIELDS: Fields = {
    **FIELDS,
    "p": lambda message: b"%d" % message.id.partition,
    "T": lambda message: b"%d" % message.publish_time,
}


def compile_format(text: str) -> list[Part]:
    """A format as constant parts and functions of the message.

    Raises:
        InvalidArgument: an unknown ``%`` or ``\\``.
    """
    return compile_fields(text, _FIELDS)


def to_json(message: PulsarMessage) -> dict[str, Any]:
    """A message as ``--json`` prints it; a payload that is not text is base64."""
    return {
        "topic": message.topic,
        "id": str(message.id),
        "key": message.key,
        "publish_time": message.publish_time,
        "event_time": message.event_time,
        "properties": message.properties,
        "redelivery_count": message.redelivery_count,
        **payload_to_json(message.data),
    }
