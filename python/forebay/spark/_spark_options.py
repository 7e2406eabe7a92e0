"""Options as Spark hands them to data sources: as texts, in lower case, beside those of its own builders."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from forebay.errors import InvalidArgument

from ._config import WriteConfig

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


def as_text(config: WriteConfig) -> str:
    """A write as the value of an option, for a data source that is made in another process.

    Raises:
        InvalidArgument: an option has a value that no text stands for.
    """
    if missing := without_text(config):
        raise InvalidArgument(
            f"{', '.join(map(repr, missing))}: Spark hands a data source texts only, and none stands for "
            'this value; for a secret use "env:NAME" or "file:PATH"'
        )
    return json.dumps(dataclasses.asdict(config), default=_tagged)


def of_text(text: str) -> WriteConfig:
    """The write of :func:`as_text`.

    Raises:
        InvalidArgument: the text is from another version of the package.
    """
    values = json.loads(text, object_hook=_untagged)
    known = {each.name for each in dataclasses.fields(WriteConfig)}
    if values.keys() != known:
        raise InvalidArgument(
            "the driver and Spark's Python have different versions of forebay: install the same one in both"
        )
    return WriteConfig(**values)


def without_text(config: WriteConfig) -> list[str]:
    """The options of client and producer whose values are not the same when read from a text, such as
    functions."""
    return [
        name
        for options in (config.client, config.producer)
        for name, value in options.items()
        if _is_lost(value)
    ]


def _is_lost(value: Any) -> bool:
    try:
        again = json.loads(json.dumps(value, default=_tagged), object_hook=_untagged)
    except (TypeError, ValueError):
        return True
    return again != value


_BYTES = "$bytes"


def _tagged(value: Any) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} has no text form")
    return {_BYTES: base64.b64encode(value).decode()}


def _untagged(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_BYTES]) if value.keys() == {_BYTES} else value
