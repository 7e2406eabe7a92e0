"""Positions in partitions, as options and checkpoints spell them.

A position stands for what was read up to it: reading begins behind it and ends with it. That holds for the
options of a query and for its checkpoint alike, so that the ``endOffset`` of one query is the
``startingOffsets`` of the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from forebay._core import offsets, parse
from forebay._core.offsets import Edge, json_object
from forebay.errors import InvalidArgument
from forebay.pulsar import MessageId

Where: TypeAlias = "Edge | MessageId"
"""A position in a partition."""
_EDGES: dict[MessageId, Where] = {MessageId.earliest: "earliest", MessageId.latest: "latest"}
_EXAMPLE = '{"topic": {"0": "(12,4,0,-1)"}}'


def starting(value: Any) -> Edge | dict[str, dict[int, Where]]:
    """Parser of ``startingOffsets``."""
    return offsets.starting(value, _EXAMPLE, _each)


def ending(value: Any) -> Edge | dict[str, dict[int, Where]]:
    """Parser of ``endingOffsets``."""
    return offsets.ending(value, _EXAMPLE, _each)


def _each(topic: str, of: Any) -> dict[int, Where]:
    """The positions of a topic's partitions; -1 stands for a topic without partitions, or one named whole."""
    if isinstance(of, Mapping):
        each = cast("Mapping[Any, Any]", of)
        return offsets.unique((_number(part), _where(where)) for part, where in each.items())
    if isinstance(of, MessageId):
        return {of.partition if of.partition >= 0 else -1: _where(of)}
    # pulsar-spark has each partition under its full name.
    return {-1: _where(of)}


def _where(value: Any) -> Where:
    if isinstance(value, MessageId):
        # An id may stand for an edge.
        return _EDGES.get(value, value)
    if (edge := offsets.edge(value)) is not None:
        return edge
    try:
        if isinstance(value, str):
            return _where(MessageId.parse(value))
        if isinstance(value, list) and all(isinstance(byte, int) for byte in cast("list[Any]", value)):
            # A serialised id, as signed bytes.
            return MessageId.from_bytes(bytes(byte & 0xFF for byte in cast("list[int]", value)))
    except InvalidArgument as error:
        raise ValueError(str(error)) from None
    raise ValueError(f'{value!r} is no position: expected "earliest", "latest" or the id of a message')


def partitions(value: Any) -> dict[str, list[int]]:
    """Parser of ``assign``."""
    given = json_object(value, 'JSON like {"topic": [0, 1]}')
    for topic, numbers in given.items():
        if not isinstance(numbers, list) or not all(
            type(number) is int for number in cast("list[Any]", numbers)
        ):
            raise ValueError(f"{topic!r} needs a list of the numbers of partitions, not {numbers!r}")
    return given


def timestamp(value: Any) -> int:
    """Parser of a time, as :func:`forebay._core.parse.moment`."""
    if (found := parse.moment(value)) is None:
        raise ValueError(f"{value!r} is no time: expected {parse.A_TIME}")
    return found.ms()


def timestamps(value: Any) -> dict[str, dict[int, int]]:
    """Parser of the times of partitions."""
    given = json_object(value, 'JSON like {"topic": {"0": 1700000000000}}')
    found: dict[str, dict[int, int]] = {}
    for topic, of in given.items():
        times = cast("Mapping[Any, Any]", of) if isinstance(of, Mapping) else {-1: of}
        found[topic] = offsets.unique((_number(part), timestamp(time)) for part, time in times.items())
    return found


def _number(part: Any) -> int:
    try:
        return int(part)
    except (TypeError, ValueError):
        raise ValueError(f"{part!r} is no number of a partition") from None
