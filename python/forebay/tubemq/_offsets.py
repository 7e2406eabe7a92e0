"""Offsets in partitions, as options and checkpoints spell them.

Reading begins with the entry at the first offset and ends before that at the last, as with Kafka, so that
the ``endOffset`` of one query is the ``startingOffsets`` of the next. An offset is a place in the index of a
store: a multiple of 28, the bytes of one entry. Partitions are named as brokers do it: ``broker:partition``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from forebay._core import offsets
from forebay._core.offsets import Edge, json_object

UNIT = 28
"""Bytes of an entry."""
WHOLE = ""
"""Stands for all partitions of a topic."""
Where: TypeAlias = "Edge | int"
"""A position in a partition."""
_EXAMPLE = '{"topic": {"1:0": 2800}}'


def starting(value: Any) -> Edge | dict[str, dict[str, Where]]:
    """Parser of ``startingOffsets``."""
    return offsets.starting(value, _EXAMPLE, _each)


def ending(value: Any) -> Edge | dict[str, dict[str, Where]]:
    """Parser of ``endingOffsets``."""
    return offsets.ending(value, _EXAMPLE, _each)


def _each(topic: str, of: Any) -> dict[str, Where]:
    if isinstance(of, Mapping):
        each = cast("Mapping[Any, Any]", of)
        return offsets.unique((_name(part), _where(where)) for part, where in each.items())
    where = _where(of)
    if isinstance(where, int):
        raise ValueError(f'{topic!r} needs an offset for each of its partitions: {{"1:0": {where}}}')
    return {WHOLE: where}


def _where(value: Any) -> Where:
    if (edge := offsets.edge(value)) is not None:
        return edge
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f'{value!r} is no position: expected "earliest", "latest" or an offset')
    if value % UNIT:
        raise ValueError(f"{value} is no offset: offsets are multiples of {UNIT}")
    return value


def partitions(value: Any) -> dict[str, list[str]]:
    """Parser of ``assign``."""
    given = json_object(value, 'JSON like {"topic": ["1:0", "1:1"]}')
    for topic, names in given.items():
        if not isinstance(names, list):
            raise ValueError(f'{topic!r} needs a list of partitions such as "1:0", not {names!r}')
    return {topic: [_name(name) for name in names] for topic, names in given.items()}


def _name(part: Any) -> str:
    broker, colon, number = str(part).partition(":")
    if not colon or not (broker.isdecimal() and number.isdecimal()):
        raise ValueError(f"{part!r} is no partition: expected broker:partition, such as 1:0")
    return f"{int(broker)}:{int(number)}"
