"""``-X help``: the options of a command."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from typing import Any

from forebay._core.options import Option, Table

_TEXT = 4
"""Columns before the text of an option."""


def show(tables: Mapping[str, Table]) -> int:
    """Prints the options of the tables, which are given by the scope; returns the exit status."""
    width = min(shutil.get_terminal_size().columns, 110)
    for scope, table in tables.items():
        print(f"Options of the {scope or 'broker'}, as -X NAME=VALUE:\n")
        for name, option in sorted(table.items()):
            print(f"  {name}{_default(option)}")
            indent = " " * _TEXT
            print(
                textwrap.fill(
                    " ".join(option.doc.split()), width, initial_indent=indent, subsequent_indent=indent
                )
            )
        print()
    return 0


def _default(option: Option) -> str:
    value: Any = option.default
    if value is None or option.secret:
        return ""
    return f" (default: {str(value).lower() if isinstance(value, bool) else value})"
