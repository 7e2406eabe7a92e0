"""Options as Spark hands them to data sources: as texts, in lower case, beside those of its own builders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from forebay.errors import InvalidArgument

from ._config import ARGUMENTS, travelling

if TYPE_CHECKING:
    from ._config import SinkConfig

OF_SPARK = frozenset({"path", "paths", "checkpointlocation", "queryname", "mergeschema"})
"""In lower case: of ``load(path)``, ``save(path)``, ``start(path)``, ``load([path, ...])`` and
``queryName(name)``, and options of streams and of tables."""


def spelled(options: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Options by their names here: Spark hands them over in lower case, and ``onBadRow`` is as usual in Spark
    as ``on_bad_row`` is in Python. Others are in lower case.

    Args:
        options: as Spark hands them over.
        known: names by what is left of their spellings without case and ``_``.

    Raises:
        InvalidArgument: an option is given twice.
    """
    found: dict[str, Any] = {}
    for given, value in options.items():
        name = known.get(_plain(given), given.lower())
        if name in found:
            raise InvalidArgument(f"option {name!r} is given twice, once as {given!r}")
        found[name] = value
    return found


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Names by what is left of their spellings without case and ``_``."""
    return {_plain(name): name for name in names}


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def without_those_of_spark(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are for the data source."""
    return {name: value for name, value in options.items() if name.lower() not in OF_SPARK}


def as_texts(config: SinkConfig) -> dict[str, str]:
    """The options of client and producer for a data source.

    Raises:
        InvalidArgument: one has a value that no text stands for.
    """
    if missing := without_text(config):
        raise InvalidArgument(
            f"{', '.join(map(repr, missing))}: Spark hands a data source texts only, and none stands for "
            'this value; for a secret use "env:NAME" or "file:PATH"'
        )
    return {name: _as_text(value) for name, value in {**config.client, **config.producer}.items()}


def without_text(config: SinkConfig) -> list[str]:
    """The options of client and producer whose values would not be the same when read from a text, and those
    whose names are those of others: ``properties`` of a producer, for one."""
    scopes = {f"{config.protocol}.client": config.client, f"{config.protocol}.producer": config.producer}
    taken = {*ARGUMENTS, *(config.client.keys() & config.producer.keys())}
    return [
        name
        for scope, options in scopes.items()
        for name, value in options.items()
        if name in taken or _is_lost(scope, name, value)
    ]


def _is_lost(scope: str, name: str, value: Any) -> bool:
    try:
        return travelling(scope, {name: _as_text(value)}) != {name: value}
    except InvalidArgument:
        return True


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return ",".join(f"{key}={part}" for key, part in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return ",".join(map(str, cast("list[Any]", value)))
    return str(value)
