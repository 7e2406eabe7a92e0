"""Positions in TubeMQ's partitions, message types, and the state of partitions.

>>> from forebay.tubemq import Position
>>> at = Position.parse("1:10002:560")
>>> at.broker_id, at.partition, at.offset
(1, 10002, 560)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from forebay._core.native import Position, TubeMqMessage
from forebay.errors import InvalidArgument, Unsupported

__all__ = [
    "PartitionState",
    "Position",
    "TubeMqMessage",
    "filters",
    "partitions_of",
    "position",
    "seek_target",
]


class PartitionState(TypedDict):
    """The state of one partition of a consumer."""

    topic: str
    broker_id: int
    partition: int
    state: str
    """``"registering"``, ``"occupied"`` (by another member), ``"reading"``, ``"paused"``, ``"leaving"``."""
    offset: int | None
    """Start of the last pack, or of the next one, in the index of the store (28 bytes per message)."""
    max_offset: int | None
    """End of the index."""
    lag: int | None
    """Messages from ``offset`` to the end. An upper bound: the store's other partitions count, too."""
    lag_bytes: int | None
    """Bytes of the store from there to the end."""


def position(value: Any) -> Any:
    """Parser of the option ``position``."""
    if isinstance(value, Position):
        return [value]
    if isinstance(value, str):
        word = value.lower()
        if word in ("first", "earliest"):
            return "first"
        if word in ("latest", "max"):
            return word
        try:
            return [Position.parse(value)]
        except Exception:
            raise ValueError('expected "first", "latest", "max" or a position') from None
    if isinstance(value, Iterable):
        positions: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        if positions and all(isinstance(one, Position) for one in positions):
            places = [(one.broker_id, one.partition) for one in positions]
            for at, place in enumerate(places):
                if place in places[:at]:
                    raise ValueError(f"partition {place[0]}:{place[1]} has two positions")
            return positions
    raise ValueError('expected "first", "latest", "max", a position, or several positions')


def filters(value: Any) -> Any:
    """Parser of the option ``filters``: message types, or a mapping from topics to message types."""
    if isinstance(value, Mapping):
        by_topic: dict[Any, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        return {str(topic): _types(types) for topic, types in by_topic.items()}
    return _types(value)


def _types(value: Any) -> set[str]:
    words: list[Any] = value.split(",") if isinstance(value, str) else list(value)
    for word in words:
        if not isinstance(word, str) or not word.strip() or "," in word or "=" in word or len(word) > 256:
            raise ValueError(f"{word!r} is not a message type: expected 1 to 256 characters without , or =")
    if len(words) > 500:
        raise ValueError(f"a topic has at most 500 filters, not {len(words)}")
    return {word.strip() for word in words}


def partitions_of(value: Any) -> list[tuple[int, int]] | None:
    """Pairs of broker and partition from messages, positions or pairs; ``None`` means all.

    Raises:
        InvalidArgument: any other type.
    """
    if value is None:
        return None
    if isinstance(value, Mapping) or hasattr(value, "broker_id") or _is_pair(value):
        value = [value]
    return [_pair(one) for one in value]


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, int) for one in value)  # pyright: ignore


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping):
        named: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        return (named["broker_id"], named["partition"])
    if isinstance(value, tuple):
        broker, partition = value  # pyright: ignore[reportUnknownVariableType]
        return (int(broker), int(partition))  # pyright: ignore[reportUnknownArgumentType]
    if getattr(value, "broker_id", None) is not None:
        return (value.broker_id, value.partition)
    raise InvalidArgument(
        f"{value!r} does not name a partition: pass messages, positions or pairs of broker and partition"
    )


def seek_target(target: Any) -> Position | str:
    """The argument of the engine for :meth:`forebay.tubemq.TubeMqConsumer.seek`.

    Raises:
        InvalidArgument: not a position.
        Unsupported: a time.
    """
    if isinstance(target, Position):
        return target
    if isinstance(target, str):
        try:
            parsed = position(target)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        if not isinstance(parsed, str):
            return parsed[0]
        # A seek is done once, so "max", which is the end at every start, is the end now.
        return "first" if parsed == "first" else "latest"
    raise Unsupported(
        "TubeMQ cannot seek to a time, which its brokers map to offsets in their web interface only: "
        "seek to a Position"
    )
