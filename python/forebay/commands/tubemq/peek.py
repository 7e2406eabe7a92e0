"""``forebay peek`` with a TubeMQ URL: messages by their offsets, for which no group is needed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forebay import frames
from forebay.commands._shared import display
from forebay.commands._shared.options import scopes
from forebay.commands._shared.subscribe import payload_to_json
from forebay.errors import InvalidArgument, Unsupported

from .places import edge, offsets

_COLUMNS = (
    *("value", "key", "topic", "message_type", "event_time"),
    *("broker_id", "partition", "offset", "properties", "message_id"),
)


@dataclass(frozen=True)
class Peeked:
    """A message."""

    data: bytes
    fields: dict[str, Any]


def run(given: argparse.Namespace) -> int:
    """Prints messages; no offset of a group moves."""
    if given.subscription is not None:
        raise Unsupported(
            "TubeMQ's brokers do not show the messages of a group without moving it: peek without -s shows"
            " those of the topic"
        )
    if given.count < 1:
        raise InvalidArgument(f"-n is 1 or more, not {given.count}")
    options = scopes(given.options, "tubemq")
    begin = start([given.topic], given.position or "earliest")
    show = display.printer(given, _to_json)
    left = given.count
    try:
        scan: Any = frames.scan(
            given.url, given.topic, start=begin, columns=_COLUMNS, **options["client"], **options["consumer"]
        )
    except ImportError:
        raise Unsupported("with TubeMQ peek needs pyarrow: pip install 'forebay[frames]'") from None
    with scan:
        for batch in scan:
            for row in batch.slice(0, left).to_pylist():
                show(_peeked(row))
                left -= 1
            if not left:
                break
    return 0


def start(topics: Sequence[str], text: str) -> Any:
    """The position of a bounded read.

    Raises:
        InvalidArgument: the text is something else.
    """
    if (word := edge(text)) is not None:
        return word
    places = offsets(text)
    if places is None:
        raise InvalidArgument(
            f"-o is earliest, latest or BROKER:PARTITION:OFFSET[,...] with TubeMQ, not {text!r}"
        )
    return dict.fromkeys(topics, places)


def _peeked(row: dict[str, Any]) -> Peeked:
    moment: datetime | None = row["event_time"]
    fields: dict[str, Any] = {
        "topic": row["topic"],
        "broker": row["broker_id"],
        "partition": row["partition"],
        "offset": row["offset"],
        "id": f"{row['broker_id']}:{row['partition']}:{row['offset']}",
        "message_id": row["message_id"],
        "key": row["key"],
        "message_type": row["message_type"],
        "event_time": None if moment is None else round(moment.timestamp() * 1000),
        "properties": dict(row["properties"] or ()),
    }
    return Peeked(row["value"] or b"", fields)


def _to_json(message: Peeked) -> dict[str, Any]:
    return {**message.fields, **payload_to_json(message.data)}
