"""What MQTT has beside the words of all protocols: reason codes, wills, message fields, topic matching.

>>> from penstock.mqtt import ReasonCode, matches
>>> matches("shop/+/till", "shop/7/till"), matches("shop/#", "shop"), matches("#", "$SYS/broker")
(True, True, False)
>>> ReasonCode(0x10).name
'NO_MATCHING_SUBSCRIBERS'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from penstock import _engine, parse  # pyright: ignore[reportPrivateUsage]
from penstock.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.options import Duration

__all__ = ["Fields", "PublishFields", "ReasonCode", "Will", "matches"]

QoS = Literal[0, 1, 2]


class ReasonCode(IntEnum):
    """Reason codes of MQTT 5.0 (section 2.4). Below 0x80 they say success; the return codes of 3.x are mapped
    to them."""

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
        """Whether it says that something did not work."""
        return self >= 0x80


_engine.set_reason_codes(ReasonCode)


class _Fields(TypedDict, total=False):
    qos: QoS
    """0 at most once, 1 at least once, 2 exactly once; the producer's by default."""
    retain: bool
    """Kept by the broker for those who subscribe later; an empty payload takes it away."""
    content_type: str
    """What the payload is, by your convention."""
    response_topic: str
    """Where an answer is expected."""
    correlation_data: bytes
    """What tells one answer from another."""
    message_expiry: Duration
    """Seconds after which nobody needs it; counted while it waits here, too."""
    is_text: bool
    """The payload is UTF-8."""


class Fields(_Fields, total=False):
    """What a message of a producer has beside payload and properties. All but ``topic``, ``qos`` and
    ``retain`` need version 5.0 (3.3.2.3)."""

    topic: str
    """Where to, if not to the producer's topic."""


class PublishFields(_Fields, total=False):
    """What ``publish`` takes beside topic and payload."""

    properties: Mapping[str, str] | Sequence[tuple[str, str]]
    """User properties; as pairs a name may be repeated."""


class Will(TypedDict, total=False):
    """What the broker publishes when the connection ends without a goodbye (3.1.2.5)."""

    topic: str
    payload: bytes | str
    qos: QoS
    retain: bool
    delay: Duration
    """Seconds to wait for the client to come back; version 5.0."""
    properties: Mapping[str, str] | Sequence[tuple[str, str]]
    content_type: str
    response_topic: str
    correlation_data: bytes
    message_expiry: Duration
    is_text: bool


_FIELDS = frozenset(Fields.__annotations__) | frozenset(PublishFields.__annotations__)
_WILL = frozenset(Will.__annotations__)


def fields_to_engine(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Checked fields of a message.

    Raises:
        InvalidArgument: an unknown field or a bad value.
    """
    for name in fields:
        if name not in _FIELDS:
            hint = parse.did_you_mean(name, sorted(_FIELDS))
            raise InvalidArgument(f"a message of MQTT has no field {name!r}{hint}")
    expiry = fields.get("message_expiry")
    if expiry is None:
        return fields  # pyright: ignore[reportReturnType]
    return {**fields, "message_expiry": parse.seconds(expiry)}


def will(value: Any) -> dict[str, Any]:
    """Parser of the option ``will``."""
    if not isinstance(value, Mapping) or "topic" not in value:
        raise ValueError("a mapping with topic and payload is expected")
    values: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    for name in values:
        if name not in _WILL:
            raise ValueError(f"a will has no {name!r}{parse.did_you_mean(name, sorted(_WILL))}")
    if isinstance(values.get("payload"), str):
        values["payload"] = values["payload"].encode()
    for name in ("delay", "message_expiry"):
        if values.get(name) is not None:
            values[name] = parse.seconds(values[name])
    return values


def filters_of(topic: str | Sequence[str]) -> list[str]:
    """One filter or several, as a list.

    Raises:
        InvalidArgument: none.
    """
    filters = [topic] if isinstance(topic, str) else list(topic)
    if not filters:
        raise InvalidArgument("a consumer needs at least one topic filter")
    return filters


def matches(filter: str, topic: str) -> bool:
    """Whether a message of ``topic`` is for the topic filter ``filter``, which may be ``$share/group/filter``
    (section 4.7).

    Raises:
        InvalidTopic: one of them is not valid.
    """
    return _engine.topic_matches(filter, topic)
