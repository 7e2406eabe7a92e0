"""Reason codes, message fields, wills and topic matching of MQTT.

>>> from forebay.mqtt import ReasonCode, matches
>>> matches("shop/+/till", "shop/7/till"), matches("shop/#", "shop"), matches("#", "$SYS/broker")
(True, True, False)
>>> ReasonCode(0x10).name
'NO_MATCHING_SUBSCRIBERS'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from forebay._core import native, parse  # pyright: ignore[reportPrivateUsage]
from forebay._core.native import MqttMessage
from forebay.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from forebay._core.types import Duration

__all__ = [
    "Fields",
    "MqttMessage",
    "PublishFields",
    "QoS",
    "ReasonCode",
    "Will",
    "fields_to_engine",
    "check_version",
    "filters_of",
    "matches",
    "will",
]

QoS = Literal[0, 1, 2]


class ReasonCode(IntEnum):
    """Reason codes of MQTT 5 (section 2.4). Codes below 0x80 mean success. Return codes of MQTT 3.x are
    mapped to them."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

    @property
    def is_error(self) -> bool:
        """Whether the code reports a failure."""
        return self >= 0x80


native.set_reason_codes(ReasonCode)


class PublishFields(TypedDict, total=False):
    """Fields of a message beside topic and payload. All but ``qos`` and ``retain`` need MQTT 5 (3.3.2.3)."""

    qos: QoS
    """0 at most once, 1 at least once, 2 exactly once. Default: the producer's; 0 for ``publish``."""
    retain: bool
    """Makes the broker keep the message for later subscribers; an empty payload removes the kept one."""
    content_type: str
    """Content type of the payload, by your convention."""
    response_topic: str
    """Topic for the response to a request."""
    correlation_data: bytes
    """Identifies the request in the response."""
    message_expiry: Duration
    """Seconds after which the message is dropped if it has not been delivered. Time spent waiting here
    counts."""
    is_text: bool
    """Payload Format Indicator: the payload is UTF-8."""
    properties: Mapping[str, str] | Sequence[tuple[str, str]] | None
    """User properties. As pairs a name may repeat."""


class Fields(PublishFields, total=False):
    """Fields of a message that a producer sends."""

    topic: str
    """Topic of this message, if not the producer's."""


class Will(TypedDict, total=False):
    """Message that the broker publishes when the connection ends without DISCONNECT (3.1.2.5)."""

    topic: str
    payload: bytes | str
    qos: QoS
    retain: bool
    delay: Duration
    """Seconds that the broker waits for the client to reconnect (MQTT 5)."""
    properties: Mapping[str, str] | Sequence[tuple[str, str]]
    content_type: str
    response_topic: str
    correlation_data: bytes
    message_expiry: Duration
    is_text: bool


class Birth(TypedDict, total=False):
    """Message that the client publishes after each connect."""

    topic: str
    payload: bytes | str
    qos: QoS
    retain: bool
    properties: Mapping[str, str] | Sequence[tuple[str, str]]
    content_type: str
    response_topic: str
    correlation_data: bytes
    message_expiry: Duration
    is_text: bool


_FIELDS = frozenset(Fields.__annotations__)
_WILL = frozenset(Will.__annotations__)
_BIRTH = frozenset(Birth.__annotations__)


def fields_to_engine(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Checked fields of a message.

    Raises:
        InvalidArgument: an unknown field or a bad value.
    """
    for name in fields:
        if name not in _FIELDS:
            hint = parse.did_you_mean(name, sorted(_FIELDS))
            raise InvalidArgument(f"an MQTT message has no field {name!r}{hint}")
    expiry = fields.get("message_expiry")
    if expiry is None or (type(expiry) is int and 0 <= expiry <= parse.FOREVER):
        return fields  # pyright: ignore[reportReturnType]
    try:
        return {**fields, "message_expiry": parse.expiry(expiry)}
    except ValueError as error:
        raise InvalidArgument(f"message_expiry: {error}") from None


def will(value: Any) -> dict[str, Any]:
    """Parser of the option ``will``."""
    return _message("will", _WILL, value)


def birth(value: Any) -> dict[str, Any]:
    """Parser of the option ``birth``."""
    return _message("birth message", _BIRTH, value)


def _message(what: str, fields: frozenset[str], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or "topic" not in value:
        raise ValueError("expected a mapping with topic and payload")
    values: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    for name in values:
        if name not in fields:
            raise ValueError(f"a {what} has no field {name!r}{parse.did_you_mean(name, sorted(fields))}")
    if isinstance(values.get("payload"), str):
        values["payload"] = values["payload"].encode()
    for name in ("delay", "message_expiry"):
        if values.get(name) is not None:
            try:
                values[name] = parse.expiry(values[name])
            except ValueError as error:
                raise ValueError(f"{name} of the {what}: {error}") from None
    return values


def filters_of(topic: str | Sequence[str]) -> list[str]:
    """One topic filter or several, as a list.

    Raises:
        InvalidArgument: an empty sequence, or no text.
    """
    filters = parse.topic_names(topic)
    if not filters:
        raise InvalidArgument("a consumer needs at least one topic filter")
    return filters


def check_version(version: str, values: Mapping[str, Any]) -> None:
    """Refuses options of a subscription that the version of the connection does not have.

    Args:
        version: ``"5"``, ``"3.1.1"`` or ``"3.1"``.
        values: options of a consumer.

    Raises:
        Unsupported: one of them needs MQTT 5.
    """
    if version == "5":
        return
    for name, plain in _OF_5.items():
        if values.get(name, plain) != plain:
            raise Unsupported(
                f"{name} needs MQTT 5, and this connection uses MQTT {version}: connect with version=5"
            )


_OF_5 = {"no_local": False, "retain_as_published": False, "retain_handling": "always"}
"""Options of a subscription that only MQTT 5 has, and their values for MQTT 3."""


def matches(filter: str, topic: str) -> bool:
    """Whether ``topic`` matches the topic filter ``filter`` (section 4.7), which may be
    ``$share/group/filter``.

    Raises:
        InvalidTopic: ``filter`` or ``topic`` is not valid.
    """
    return native.topic_matches(filter, topic)
