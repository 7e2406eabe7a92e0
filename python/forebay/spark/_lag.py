"""The distance of a stream from the ends of its topics, from the offsets that Spark reports."""

# The parts of a topic are not for users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from forebay.errors import InvalidArgument
from forebay.pulsar import MessageId
from forebay.pulsar._ranges import place
from forebay.tubemq._offsets import UNIT


@dataclass(frozen=True, slots=True)
class Lag:
    """The part of a partition that a source had not read when the last batch was planned."""

    source: int
    """Number of the source in the query."""
    topic: str | None
    """Name of the topic, without its partition; ``None`` for MQTT, whose offsets do not name it."""
    partition: int | str | None
    """Number of the partition, with TubeMQ ``"broker:partition"``; ``None`` if the topic has none."""
    amount: int | None
    """Number of ``unit``; ``None`` if the offsets do not tell it."""
    unit: Literal["entries", "messages"]
    """With Pulsar the entries of the broker, each a batch of one or more messages; with TubeMQ those of the
    index, each a message of one of the partitions that share it; with MQTT messages."""


def lags(source: int, end: Any, latest: Any) -> list[Lag]:
    """The lags of a source.

    Args:
        source: its number in the query.
        end: offset behind the last batch, as JSON or as an object.
        latest: offset of what there is.

    Returns:
        One for each partition; none for sources of others.
    """
    ends, ahead = _object(end), _object(latest)
    if "v" in ends and isinstance(ends.get("topics"), dict):
        by_topic: dict[str, Any] = ends["topics"]
        last: dict[str, Any] | None = ahead.get("topics")
        of_tubemq = any(isinstance(of, dict) for of in (*by_topic.values(), *(last or {}).values()))
        return list((_of_tubemq if of_tubemq else _of_pulsar)(source, by_topic, last))
    if isinstance(ends.get("row"), int) and "log" in ends:
        return [Lag(source, None, None, _rows(ends, ahead), "messages")]
    return []


def _object(offset: Any) -> dict[str, Any]:
    """An offset. Classic Spark has text, and Connect may have objects."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return cast("dict[str, Any]", offset) if isinstance(offset, dict) else {}


def _rows(end: dict[str, Any], latest: dict[str, Any]) -> int | None:
    """Rows of the log of an MQTT source."""
    if latest.get("log") != end["log"] or not isinstance(latest.get("row"), int):
        return None
    return max(0, latest["row"] - end["row"])


def _of_pulsar(source: int, ends: dict[str, str], last: dict[str, str] | None) -> Iterator[Lag]:
    for topic in sorted({*ends, *(last or ())}):
        base, is_partition, number = topic.rpartition("-partition-")
        partition = int(number) if is_partition and number.isdecimal() else None
        if last is None:
            amount = None
        elif topic not in last:
            # It has no message.
            amount = 0
        else:
            amount = _entries(ends.get(topic), last[topic])
        yield Lag(source, topic if partition is None else base, partition, amount, "entries")


def _of_tubemq(source: int, ends: dict[str, Any], last: dict[str, Any] | None) -> Iterator[Lag]:
    for topic in sorted({*ends, *(last or ())}):
        read: dict[str, int] = ends.get(topic, {})
        there: dict[str, int] = (last or {}).get(topic, {})
        for partition in sorted({*read, *there}, key=lambda key: [int(part) for part in key.split(":")]):
            begin, end = read.get(partition), there.get(partition)
            amount = None if begin is None or end is None else max(0, end - begin) // UNIT
            yield Lag(source, topic, partition, amount, "entries")


def _entries(end: str | None, latest: str) -> int | None:
    """Entries behind ``end``. How many a ledger has is not known, so both have to be in one."""
    try:
        last = MessageId.parse(latest)
        read = MessageId.parse(end or "")
    except InvalidArgument:
        # Nothing was read: the first entry that there is may be in any ledger.
        return None
    if place(read) == place(last):
        return 0
    # Within an entry it is not known whether there is more of it.
    if read.ledger != last.ledger or read.batch_index >= 0 or read.entry > last.entry:
        return None
    return last.entry - read.entry
