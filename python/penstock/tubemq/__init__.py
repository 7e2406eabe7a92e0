"""What TubeMQ has beside the words of all protocols: positions, message types, partitions that can be paused.

>>> from penstock.tubemq import Position
>>> at = Position.parse("1:10002:560")
>>> at.broker_id, at.partition, at.offset
(1, 10002, 560)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from penstock import _engine  # pyright: ignore[reportPrivateUsage]
from penstock.errors import InvalidArgument, Unsupported

__all__ = ["PartitionState", "Position"]

Position = _engine.Position
"""Where a message is: ``broker_id``, ``partition``, and ``offset`` in the index of the store, 28 for each
message; of one that was sent also ``time``, milliseconds since 1970, and the broker's ``message_id``.
Prints and parses as ``broker:partition:offset``."""


class PartitionState(TypedDict):
    """What a consumer knows of one of its partitions."""

    topic: str
    broker_id: int
    partition: int
    state: str
    """``"registering"``, ``"occupied"`` (by another member), ``"reading"``, ``"paused"``, ``"leaving"``."""
    offset: int | None
    """Where the last pack began, or the next begins, in the index of the store."""
    max_offset: int | None
    """End of that index."""
    lag: int | None
    """Messages from ``offset`` to the end; those of the store's other partitions count too."""
    lag_bytes: int | None
    """Bytes of the store behind the end."""


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
            raise ValueError('"first", "latest", "max" or a position is expected') from None
    if isinstance(value, Iterable):
        positions: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        if positions and all(isinstance(one, Position) for one in positions):
            return positions
    raise ValueError('"first", "latest", "max", a position or several are expected')


def filters(value: Any) -> Any:
    """Parser of the option ``filters``: message types, or topics with theirs."""
    if isinstance(value, Mapping):
        by_topic: dict[Any, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        return {str(topic): _types(types) for topic, types in by_topic.items()}
    return _types(value)


def _types(value: Any) -> set[str]:
    words: list[Any] = value.split(",") if isinstance(value, str) else list(value)
    for word in words:
        if not isinstance(word, str) or not word.strip() or "," in word or "=" in word or len(word) > 256:
            raise ValueError(f"{word!r} is not a message type: text without , and = is expected")
    if len(words) > 500:
        raise ValueError("a topic has at most 500 filters")
    return {word.strip() for word in words}


def partitions_of(value: Any) -> list[tuple[int, int]] | None:
    """Pairs of broker and partition from messages, positions or pairs; ``None`` stays: all.

    Raises:
        InvalidArgument: something else.
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
    raise InvalidArgument(f"{value!r} names no partition: give messages, positions or pairs of numbers")


def seek_target(target: Any) -> Position | _engine.MessageId | int:
    """What the engine takes for ``seek``.

    Raises:
        InvalidArgument: not a position.
        Unsupported: a time.
    """
    from penstock import _native

    if isinstance(target, Position):
        return target
    if isinstance(target, str):
        try:
            parsed = position(target)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        if not isinstance(parsed, str):
            return parsed[0]
        return _native.MessageId.earliest if parsed == "first" else _native.MessageId.latest
    raise Unsupported(
        "TubeMQ's brokers find offsets by time only through their web interface: seek to a Position"
    )


def refuse(fields: Mapping[str, Any]) -> None:
    """Names what a message of TubeMQ has not.

    Raises:
        Unsupported: always.
    """
    raise Unsupported(f"a message of TubeMQ has no {' and no '.join(fields)}")
