"""Configuration files of the embedded broker: TOML with the names of the options, and a ``[[listener]]`` for
each of its listeners."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from forebay.errors import InvalidArgument

from . import broker_endpoints, parse
from .options import Option, Table, hint

LISTENER = "listener"
"""The name of a table that is a listener."""
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=""")
_HEADER = re.compile(r"\s*(\[\[?)\s*[\"']?([A-Za-z0-9_.-]+)[\"']?\s*\]")


def read(path: str | os.PathLike[str], table: Table) -> dict[str, Any]:
    """The options of the broker in a file. A path in it that is not absolute begins at the file's folder.

    Raises:
        InvalidArgument: the file cannot be read, is not TOML, or has an option that does not exist or whose
            value does not parse. The text names the line.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the configuration {os.fspath(path)}: {error}") from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{os.fspath(path)} is not TOML: {error}") from None
    return _File(Path(path), _lines(text), table).options(found)


def literal_secrets(options: Mapping[str, Any], table: Table) -> list[str]:
    """Names of the options in a file whose secret is in the file itself, not in one that it names.

    Args:
        options: those of :func:`read`.
        table: the options that exist.
    """
    tables = [(options, table), *((one, broker_endpoints.OPTIONS) for one in options.get("listeners", ()))]
    return [
        name
        for values, known in tables
        for name, value in values.items()
        if name in known and known[name].secret and _is_literal(value, known[name])
    ]


def _is_literal(value: Any, option: Option) -> bool:
    if not isinstance(value, str) or value.startswith(("file:", "env:")):
        return False
    return option.parse is not parse.pem or "-----BEGIN" in value


def _lines(text: str) -> dict[tuple[str, int, str], int]:
    """Lines of keys by table, number of the table, and name; lines of tables by the empty name."""
    lines: dict[tuple[str, int, str], int] = {}
    section, counts = ("", 0), dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = header[2]
            counts[name] = counts.get(name, 0) + 1
            section = (name, counts[name])
            lines.setdefault((name, counts[name], ""), number)
        elif key := _KEY.match(line):
            lines.setdefault((section[0], section[1], key[1]), number)
    return lines


class _File:
    def __init__(self, path: Path, lines: Mapping[tuple[str, int, str], int], table: Table) -> None:
        self._path, self._lines, self._table = path, lines, table

    def options(self, found: Mapping[str, Any]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name, value in found.items():
            if name == LISTENER:
                options["listeners"] = self._listeners(value)
                continue
            if name == "listeners":
                raise self._error("", 0, name, "a listener is a table of its own: write [[listener]]")
            if name not in self._table:
                near = hint(name, self._table, others=[LISTENER])
                text = f"{self._table.owner} has no option {name!r}{near}"
                raise self._error("", 0, name, text)
            options[name] = self._value("", 0, name, value, self._table[name])
        return options

    def _listeners(self, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not all(
            isinstance(one, Mapping) for one in cast("list[Any]", value)
        ):
            raise self._error("", 0, LISTENER, "a listener is a table: write [[listener]]")
        listeners: list[dict[str, Any]] = []
        for number, one in enumerate(cast("list[dict[str, Any]]", value), 1):
            for name in one:
                if name not in broker_endpoints.OPTIONS:
                    near = parse.did_you_mean(name, list(broker_endpoints.OPTIONS))
                    raise self._error(LISTENER, number, name, f"a listener has no option {name!r}{near}")
            located = {
                name: self._value(LISTENER, number, name, value, broker_endpoints.OPTIONS[name])
                for name, value in one.items()
            }
            try:
                broker_endpoints.check(located)
            except InvalidArgument as error:
                raise self._error(LISTENER, number, "", str(error)) from None
            listeners.append(located)
        return listeners

    def _value(self, section: str, number: int, name: str, value: Any, option: Option) -> Any:
        located = self._located(value, option)
        try:
            if option.parse is parse.key_bytes and _is_literal(value, option):
                parse.not_a_path(value, str(self._path.absolute().parent))
            option.parse(located)
        except ValueError as error:
            raise self._error(section, number, name, f"option {name!r}: {error}") from None
        return located

    def _located(self, value: Any, option: Option) -> Any:
        """The value, with a path that begins at the folder of the file."""
        if not isinstance(value, str):
            return value
        is_file = value.startswith("file:")
        is_path = option.parse is parse.path or (
            option.parse is parse.pem and not value.startswith("env:") and "-----BEGIN" not in value
        )
        if not is_path and not (is_file and option.parse is parse.key_bytes):
            return value
        path = self._path.absolute().parent / value.removeprefix("file:")
        return f"file:{path}" if is_file else str(path)

    def _error(self, section: str, number: int, name: str, text: str) -> InvalidArgument:
        places = [(section, number, name), (name, 1, ""), (section, number, ""), ("", 0, section)]
        line = next((self._lines[place] for place in places if place in self._lines), None)
        where = f"{self._path}, line {line}" if line else str(self._path)
        return InvalidArgument(f"{where}: {text}")
