"""Message ids, and positions in a topic."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from forebay._core import parse
from forebay._core.native import MessageId, MessageIds, PulsarMessage
from forebay.errors import InvalidArgument

__all__ = [
    "MessageId",
    "MessageIds",
    "PulsarMessage",
    "ReaderStart",
    "position",
    "full_name",
    "reader_name",
    "reader_start",
    "seek_target",
    "seek_targets",
]


def position(value: Any) -> Any:
    """Parser of the option ``position``: ``"earliest"``, ``"latest"``, or a message id (the object or its
    text)."""
    if not isinstance(value, str):
        if hasattr(value, "ledger"):
            return value
    elif value.lower() in ("earliest", "latest"):
        return value.lower()
    else:
        with contextlib.suppress(Exception):
            return MessageId.parse(value)
    raise ValueError('expected "earliest", "latest" or a message id')


def seek_target(position: Any) -> MessageId | int:
    """The argument of the engine for :meth:`forebay.pulsar.PulsarConsumer.seek`.

    Raises:
        InvalidArgument: not a position.
    """
    if position == "earliest":
        return MessageId.earliest
    if position == "latest":
        return MessageId.latest
    if isinstance(position, MessageId):
        return position
    if (id := _id(position)) is not None:
        return id
    return _moment("seek", position).ms()


def _id(value: Any) -> MessageId | None:
    """The id that a text is; ``None`` for others."""
    if isinstance(value, str):
        with contextlib.suppress(InvalidArgument):
            return MessageId.parse(value)
    return None


def _moment(where: str, value: Any) -> parse.Moment:
    """A time, or a duration back.

    Raises:
        InvalidArgument: neither.
    """
    try:
        found = parse.moment(value)
    except ValueError as error:
        raise InvalidArgument(f"{where}: {error}") from None
    if found is None:
        raise InvalidArgument(
            f'{where}: expected "earliest", "latest", a message id, or {parse.A_TIME}, not {value!r}'
        )
    return found


class ReaderStart:
    """Beginning of a reader that is neither an end of the topic nor a single message.

    Args:
        ids: a message of each partition.
        at: a time. A duration back counts from the moment when the reader is opened.
    """

    def __init__(self, ids: Sequence[MessageId] = (), at: parse.Moment | None = None) -> None:
        self._ids, self._at = ids, at

    def targets(self) -> list[MessageId | int]:
        """The arguments for ``seek``, one after the other."""
        return list(self._ids) if self._at is None else [self._at.ms()]


def reader_start(value: Any) -> ReaderStart | None:
    """The position of a reader that the engine does not take: a time, a duration back, or ids of several
    partitions. ``None`` for others.

    Raises:
        InvalidArgument: not a position.
    """
    if isinstance(value, str) and (value.lower() in ("earliest", "latest") or _id(value) is not None):
        return None
    if isinstance(value, str | timedelta | datetime) or type(value) is int:
        return ReaderStart(at=_moment("consumer option 'position'", value))
    if isinstance(value, Mapping):
        return ReaderStart([_id_of(topic, id) for topic, id in value.items()])  # pyright: ignore
    if isinstance(value, Sequence):
        return ReaderStart([_id_of("", id) for id in value])  # pyright: ignore
    return None


def _id_of(topic: Any, value: Any) -> MessageId:
    """A message id with its topic, as the position of one partition."""
    id = MessageId.parse(value) if isinstance(value, str) else value
    if not isinstance(topic, str) or not isinstance(id, MessageId):
        raise InvalidArgument(
            f"consumer option 'position': expected the ids of messages, or topics with the ids of messages,"
            f" not {value!r}"
        )
    if id in (MessageId.earliest, MessageId.latest):
        raise InvalidArgument(
            "consumer option 'position': a position of several partitions holds ids of messages; a partition"
            " without one is read from its beginning"
        )
    if not topic:
        return id
    topic = full_name(topic)
    if id.partition >= 0 and "-partition-" not in topic:
        topic = f"{topic}-partition-{id.partition}"
    if id.topic not in ("", topic):
        raise InvalidArgument(
            f"consumer option 'position': the message {id} is of {id.topic}, not of {topic}"
        )
    return MessageId.from_bytes(id.to_bytes(), topic)


def seek_targets(topics: Iterable[str], position: Callable[[str], Any]) -> list[tuple[str, MessageId | int]]:
    """The arguments of the engine for a seek by function; without the topics that stay where they are.

    Raises:
        InvalidArgument: not a position.
    """
    asked = ((topic, position(topic)) for topic in topics)
    return [(topic, seek_target(given)) for topic, given in asked if given is not None]


def reader_name() -> str:
    """A subscription name that is unique."""
    import secrets

    return f"reader-{secrets.token_hex(5)}"


def full_name(topic: str) -> str:
    """The topic with its domain, tenant and namespace."""
    if "://" in topic:
        return topic
    return f"persistent://{topic if topic.count('/') == 2 else f'public/default/{topic}'}"
