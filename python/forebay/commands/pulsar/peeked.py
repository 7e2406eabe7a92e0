"""Messages as the administration over HTTP gives them: an entry with headers, which may be a batch."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from forebay.commands._shared.web import Answer
from forebay.errors import ProtocolError

from .ids import shown


@dataclass(frozen=True)
class Peeked:
    """A message, with the names of :class:`forebay.pulsar.PulsarMessage`."""

    topic: str
    id: str
    data: bytes
    key: str | None = None
    publish_time: int | None = None
    event_time: int | None = None
    properties: dict[str, str] = field(default_factory=dict[str, str])
    redelivery_count: int = 0


def messages(topic: str, answer: Answer) -> Iterator[Peeked]:
    """The messages of an entry.

    Args:
        topic: the partition that it is of.
        answer: of the administration.

    Raises:
        ProtocolError: it is not what the headers say.
    """
    headers = answer.headers
    publish_time = _ms(headers["X-Pulsar-publish-time"])
    ledger, _, entry = (headers["X-Pulsar-Message-ID"] or "").partition(":")
    at = (ledger, entry.partition(":")[0], _partition(topic))
    count = headers["X-Pulsar-num-batch-message"]
    # What is encrypted is one payload, whatever is in it.
    if count is None or headers["X-Pulsar-Is-Encrypted"] == "true":
        yield Peeked(
            topic,
            shown(*at, -1),
            answer.body,
            headers["X-Pulsar-partition-key"],
            publish_time,
            _ms(headers["X-Pulsar-event-time"]),
            _properties(headers),
        )
        return
    for index, (metadata, payload) in enumerate(_split(answer)):
        key = _text(metadata, 2)
        event_time = _number(metadata, 5)
        pairs = [_fields(pair) for pair in metadata.get(1, []) if isinstance(pair, bytes)]
        yield Peeked(
            topic,
            shown(*at, index),
            payload,
            key,
            publish_time,
            event_time or None,
            {_text(pair, 1) or "": _text(pair, 2) or "" for pair in pairs},
        )


def _partition(topic: str) -> int:
    number = topic.rpartition("-partition-")[2]
    return int(number) if "-partition-" in topic and number.isdecimal() else -1


def _ms(text: str | None) -> int | None:
    """A time as Java prints it in milliseconds since 1970."""
    if text:
        with contextlib.suppress(ValueError):
            return round(datetime.fromisoformat(text).timestamp() * 1000)
    return None


def _properties(headers: http.client.HTTPMessage) -> dict[str, str]:
    """The properties: all in one header, or each in one of its own, as older brokers have them."""
    said: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(headers["X-Pulsar-PROPERTY"] or "")
    if isinstance(said, dict):
        pairs = cast("dict[Any, Any]", said)
        return {str(name): str(value) for name, value in pairs.items()}
    start = "x-pulsar-property-"
    return {name[len(start) :]: value for name, value in headers.items() if name.lower().startswith(start)}


# -- batches: a length, the metadata of a message by protobuf, its payload, and so on

Fields = dict[int, list[int | bytes]]


def _split(answer: Answer) -> Iterator[tuple[Fields, bytes]]:
    body, at = answer.body, 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        metadata = _fields(body[at + 4 : at + 4 + size])
        length = _number(metadata, 3)
        at += 4 + size
        if length is None or at + length > len(body):
            raise ProtocolError(f"{answer.url}: the batch is cut short or malformed")
        yield metadata, body[at : at + length]
        at += length


def _fields(data: bytes) -> Fields:
    """The values of a protobuf message by the numbers of their fields."""
    found: Fields = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                size, at = _varint(data, at)
            if size is None or at + size > len(data):
                raise ProtocolError("the metadata of a message in a batch is malformed")
            value, at = data[at : at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ProtocolError("the metadata of a message in a batch is malformed")


def _text(fields: Fields, number: int) -> str | None:
    value = fields.get(number, [None])[-1]
    return value.decode(errors="replace") if isinstance(value, bytes) else None


def _number(fields: Fields, number: int) -> int | None:
    value = fields.get(number, [None])[-1]
    return value if isinstance(value, int) else None
