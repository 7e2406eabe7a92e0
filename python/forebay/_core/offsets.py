"""Beginnings and ends of bounded reads in partitions, as their options spell them: the shared part.

Kafka's names and numbers: ``"earliest"`` and ``"latest"``, also -2 and -1, for everything or by topic and
partition in JSON. The offset of a query, as its progress and its checkpoint have it, is accepted as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

K = TypeVar("K")
Edge: TypeAlias = Literal["earliest", "latest"]
_KAFKA: dict[int, Edge] = {-2: "earliest", -1: "latest"}


def starting(value: Any, example: str, each: Callable[[str, Any], Mapping[Any, Any]]) -> Any:
    """The value of ``startingOffsets``: an edge, or positions by topic and partition.

    Args:
        value: as the user gives it.
        example: a position as JSON, for errors.
        each: the positions of a topic's partitions, from its name and its part of the JSON.

    Raises:
        ValueError: anything else.
    """
    return _edge_or(value, ("earliest", "latest"), example, each)


def ending(value: Any, example: str, each: Callable[[str, Any], Mapping[Any, Any]]) -> Any:
    """The value of ``endingOffsets``; arguments and errors as :func:`starting`."""
    offsets = _edge_or(value, ("latest",), example, each)
    if isinstance(offsets, dict):
        by_topic = cast("dict[str, dict[Any, Any]]", offsets)
        if any(where == "earliest" for of in by_topic.values() for where in of.values()):
            raise ValueError('a partition cannot end at "earliest"')
    return cast("Any", offsets)


def _edge_or(
    value: Any, edges: tuple[Edge, ...], example: str, each: Callable[[str, Any], Mapping[Any, Any]]
) -> Edge | dict[str, Mapping[Any, Any]]:
    if isinstance(value, str) and value.strip().lower() in edges:
        return cast("Edge", value.strip().lower())
    expected = " or ".join(json.dumps(edge) for edge in edges)
    given = json_object(value, f"{expected} or JSON like {example}")
    if given.keys() == {"v", "topics"}:
        # An offset of a query, as it is.
        given = json_object(given["topics"], "the offset of a query")
    return {topic: each(topic, of) for topic, of in given.items()}


def edge(value: Any) -> Edge | None:
    """The edge that a word or a number of Kafka stands for; ``None`` for anything else."""
    if isinstance(value, str) and value.lower() in ("earliest", "latest"):
        return cast("Edge", value.lower())
    if isinstance(value, int) and not isinstance(value, bool):
        return _KAFKA.get(value)
    return None


def json_object(value: Any, expected: str) -> dict[str, Any]:
    """The object that JSON, or a mapping, is.

    Args:
        value: the text or the mapping.
        expected: what it should be, for errors.

    Raises:
        ValueError: no object.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=unique)
        except ValueError as error:
            raise ValueError(f"expected {expected}, not {value!r}: {error}") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"expected {expected}, not {value!r}")
    return unique((str(name), each) for name, each in cast("Mapping[Any, Any]", value).items())


def unique(pairs: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """The pairs as a mapping.

    Raises:
        ValueError: a name is given twice.
    """
    found: dict[K, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found
