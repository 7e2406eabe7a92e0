"""The choice of a partition by a function of the program, and the clusters and the schema of a message."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay._engine import PulsarSchema
    from forebay.pulsar._schema import Schema

__all__ = [
    "Router",
    "check_producer",
    "clusters",
    "frame_schema",
    "keys_of",
    "message_schema",
    "partition_of",
]

Router: TypeAlias = Callable[[str | None, Mapping[str, str], int], int]
"""Chooses a partition: called with the key or ``None``, the properties, and the number of partitions."""

_LOCAL = "__local__"
"""Stands in metadata for no other cluster."""


def check_producer(values: Mapping[str, Any]) -> None:
    """Checks the options of a producer that depend on each other.

    Raises:
        InvalidArgument: an option that has no effect, or that cannot be, beside another.
    """
    router, routing = values.get("router"), values["routing"]
    partial = routing == "partial_round_robin"
    if partial and "routing_partitions" not in values:
        raise InvalidArgument('routing="partial_round_robin" needs routing_partitions: the number to use')
    if not partial and "routing_partitions" in values:
        raise InvalidArgument(
            f'routing_partitions has no effect with routing="{routing}": use "partial_round_robin"'
        )
    if partial and router:
        raise InvalidArgument('router and routing="partial_round_robin" exclude each other: pass one of them')
    if values["lazy_start"] and (mode := values["access_mode"]) != "shared":
        raise InvalidArgument(
            f'lazy_start and access_mode="{mode}" exclude each other: a producer with exclusive access opens'
            " all partitions"
        )
    if "chunk_max_size" in values and not values["chunking"]:
        raise InvalidArgument("chunk_max_size has no effect without chunking=True")


def partition_of(router: Router, key: str | None, properties: Mapping[str, str], partitions: int) -> int:
    """The partition that ``router`` chooses.

    Raises:
        InvalidArgument: the function raised, which is the cause, or returned no number of a partition.
    """
    try:
        chosen: Any = router(key, properties, partitions)
    except Exception as error:
        raise InvalidArgument(f"the message was not sent: its router raised {error!r}") from error
    if type(chosen) is int and 0 <= chosen < partitions:
        return chosen
    if inspect.iscoroutine(chosen):
        chosen.close()
        raise InvalidArgument("the message was not sent: its router is a coroutine function, use a plain one")
    try:
        # Whole numbers of other types, such as those of numpy.
        number = operator.index(chosen)
    except Exception:
        number = -1
    if 0 <= number < partitions and not isinstance(chosen, bool):
        return number
    raise InvalidArgument(
        f"the message was not sent: its router returned {chosen!r}, which is not a partition: return a whole"
        f" number from 0 to {partitions - 1}"
    )


def clusters(replicate_to: Sequence[str] | None, disable_replication: bool) -> list[str] | None:
    """The clusters of a message as the engine takes them; ``None`` for all.

    Raises:
        InvalidArgument: no names of clusters, or both arguments.
    """
    if replicate_to is None:
        return [_LOCAL] if disable_replication else None
    if disable_replication:
        raise InvalidArgument("replicate_to and disable_replication exclude each other: pass one of them")
    names = [] if isinstance(replicate_to, str) else list(replicate_to)
    if not names or not all(isinstance(name, str) and name for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(
            f"replicate_to is {replicate_to!r}: pass the names of clusters, or disable_replication=True for"
            " none"
        )
    return names


def keys_of(payloads: Sequence[Any], keys: Iterable[str | None] | None) -> Sequence[str | None]:
    """A key or ``None`` for each payload.

    Raises:
        TypeError: the keys are a text.
        ValueError: not one for each.
    """
    if keys is None:
        return [None] * len(payloads)
    if isinstance(keys, str):
        raise TypeError("keys is a sequence with one for each payload, not a str")
    keys = list(keys)
    if len(keys) != len(payloads):
        raise ValueError(f"{len(keys)} keys for {len(payloads)} payloads: pass one for each")
    return keys


def message_schema(value: Any) -> PulsarSchema:
    """The engine's schema of a message that has one of its own.

    Raises:
        InvalidArgument: it is no schema, or that of whatever a topic has.
    """
    from forebay.pulsar._schema import schema_of

    schema = _of_class(value) if isinstance(value, type) else schema_of(value)
    if schema.type == "auto":
        raise InvalidArgument(
            "'schema': a message needs its own schema, \"auto\" is for producers and consumers"
        )
    return schema._native  # pyright: ignore[reportPrivateUsage]


@functools.lru_cache(64)
def _of_class(of: type) -> Schema[Any]:
    """Made once: a definition takes longer than a message."""
    from forebay.pulsar._schema import schema_of

    return schema_of(of)


def frame_schema(value: Any) -> PulsarSchema | str | None:
    """The engine's schema of the rows of a frame, or the word for it.

    Raises:
        InvalidArgument: it is no schema.
    """
    if value is None or (isinstance(value, str) and value in ("producer", "avro", "json")):
        return value
    return message_schema(value)
