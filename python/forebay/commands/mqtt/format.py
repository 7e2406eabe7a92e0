"""The format language of ``mosquitto_sub -F``, and ``--json``."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from forebay.commands._shared.subscribe import Part, payload_to_json
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay.mqtt import MqttMessage


def _time(message: MqttMessage) -> datetime:
    return datetime.fromtimestamp((message.received_time or 0) / 1000, UTC).astimezone()


def _int(value: int | None) -> str | None:
    return None if value is None else str(value)


def _user_properties(message: MqttMessage) -> dict[str, str | list[str]]:
    """User properties as JSON has them: a list of values for a name that repeats, in their order."""
    values: dict[str, list[str]] = {}
    for name, value in message.user_properties:
        values.setdefault(name, []).append(value)
    return {name: of_name if len(of_name) > 1 else of_name[0] for name, of_name in values.items()}


def properties(message: MqttMessage) -> dict[str, Any]:
    """The properties of a message under the names of the standard, as far as JSON can express them."""
    ids = message.subscription_ids
    data = message.correlation_data
    found: dict[str, Any] = {
        "payload-format-indicator": 1 if message.is_text else None,
        "message-expiry-interval": message.message_expiry,
        "content-type": message.content_type,
        "response-topic": message.response_topic,
        "correlation-data": None if data is None else data.decode(errors="replace"),
        "subscription-identifier": ids[0] if ids else None,
        "user-properties": _user_properties(message) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _mosquittos_json(message: MqttMessage, parsed: bool, pretty: bool) -> bytes:
    said: dict[str, Any] = {
        "tst": _time(message).strftime("%Y-%m-%dT%H:%M:%S.%fZ%z"),
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.data),
    }
    if message.packet_id:
        said["mid"] = message.packet_id
    if beside := properties(message):
        said["properties"] = beside
    if not message.data:
        said["payload"] = None
    elif parsed:
        try:
            said["payload"] = json.loads(message.data)
        except ValueError:
            raise InvalidArgument(
                f"a payload on {message.topic!r} is not JSON, which %J needs: use %j"
            ) from None
    else:
        try:
            said["payload"] = message.data.decode()
        except UnicodeDecodeError:
            said["payload"] = list(message.data)
    layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
    return json.dumps(said, **layout).encode()


# Grouped by the effect of a width: numbers and texts are padded, payloads are also cut, the rest
# ignores it.
_NUMBERS: dict[str, Callable[[MqttMessage], str | None]] = {
    "E": lambda message: _int(message.message_expiry),
    "F": lambda message: "1" if message.is_text else None,
    "l": lambda message: str(len(message.data)),
    "m": lambda message: str(message.packet_id or 0),
    "S": lambda message: _int(next(iter(message.subscription_ids), None)),
}
_TEXTS: dict[str, Callable[[MqttMessage], str | None]] = {
    "C": lambda message: message.content_type,
    "I": lambda message: _time(message).strftime("%Y-%m-%dT%H:%M:%S%z"),
    "R": lambda message: message.response_topic,
    "t": lambda message: message.topic,
}
_PAYLOADS: dict[str, Callable[[MqttMessage], bytes]] = {
    "p": lambda message: message.data,
    "x": lambda message: message.data.hex().encode(),
    "X": lambda message: message.data.hex().upper().encode(),
}
_PLAIN: dict[str, Callable[[MqttMessage], bytes]] = {
    "%": lambda message: b"%",
    "D": lambda message: message.correlation_data or b"",
    "P": lambda message: " ".join(f"{name}:{value}" for name, value in message.user_properties).encode(),
    "q": lambda message: b"%d" % (message.qos or 0),
    "r": lambda message: b"%d" % message.retain,
    "U": lambda message: b"%d.%09d" % divmod((message.received_time or 0) * 1_000_000, 1_000_000_000),
}
_JSON = {"j": False, "J": True}
"""Whether the payload is parsed."""
_KNOWN = sorted((*_NUMBERS, *_TEXTS, *_PAYLOADS, *_PLAIN, *_JSON))
_ESCAPES = {
    "\\": b"\\",
    "0": b"\0",
    "a": b"\a",
    "e": b"\x1b",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
}
_TOKEN = re.compile(
    r"%@(?P<clock>.)|%(?P<flag>[-0]?)(?P<width>\d*)(?:\.(?P<cut>\d+))?(?P<letter>[A-Za-z%])|\\(?P<escape>.)"
    r"|(?P<text>[^%\\]+)",
    re.DOTALL,
)


def compile_format(text: str, pretty: bool = False) -> list[Part]:
    """A format as constant parts and functions of the message.

    Args:
        text: the format.
        pretty: whether JSON is indented.

    Raises:
        InvalidArgument: an unknown ``%`` or ``\\``.
    """
    parts: list[Part] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        part = _part(found, pretty) if found else None
        if part is None or found is None:
            wrong = text[at : found.end() if found else None]
            raise InvalidArgument(f"unknown {wrong!r} in the format; known: %@X %{' %'.join(_KNOWN)}")
        parts.append(part)
        at = found.end()
    return parts


def _part(found: re.Match[str], pretty: bool) -> Part | None:
    if found["text"] is not None:
        return found["text"].encode()
    if found["escape"] is not None:
        return _ESCAPES.get(found["escape"])
    if found["clock"] is not None:
        directive = f"%{found['clock']}"
        if found["clock"] == "N":
            return lambda message: b"%09d" % ((message.received_time or 0) % 1000 * 1_000_000)
        return lambda message: _time(message).strftime(directive).encode()
    letter, left, pad = found["letter"], found["flag"] == "-", found["flag"] == "0"
    width = int(found["width"] or 0)
    cut = None if found["cut"] is None else int(found["cut"])
    if letter in _NUMBERS:
        number, zero = _NUMBERS[letter], b"0" if pad else b" "
        return lambda message: _padded((number(message) or "").encode(), width, left, zero)
    if letter in _TEXTS:
        content = _TEXTS[letter]
        return lambda message: _padded((content(message) or "").encode()[:cut], width, left, b" ")
    if letter in _PAYLOADS:
        payload, zero = _PAYLOADS[letter], b"0" if pad else b" "
        # Hexadecimal digits are cut to whole bytes.
        most = width if letter == "p" else width - width % 2
        return lambda message: _padded(payload(message)[: most if width else None], width, left, zero)
    if letter in _JSON:
        parsed = _JSON[letter]
        return lambda message: _mosquittos_json(message, parsed, pretty)
    return _PLAIN.get(letter)


def _padded(value: bytes, width: int, left: bool, pad: bytes) -> bytes:
    return value.ljust(width) if left else value.rjust(width, pad)


def to_json(message: MqttMessage) -> dict[str, Any]:
    """A message as ``--json`` prints it; a payload that is not text is base64."""
    data = message.correlation_data
    fields: dict[str, Any] = {
        "content_type": message.content_type,
        "response_topic": message.response_topic,
        "correlation_data_base64": None if data is None else base64.b64encode(data).decode(),
        "message_expiry": message.message_expiry,
        "is_text": message.is_text or None,
    }
    return {
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "dup": message.dup,
        "received_time": message.received_time,
        **payload_to_json(message.data),
        "properties": _user_properties(message),
        **{name: value for name, value in fields.items() if value is not None},
    }
