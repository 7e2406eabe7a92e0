"""The options that Spark's builders set, or that Spark reads itself. It hands them to data sources, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import InvalidArgument

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
