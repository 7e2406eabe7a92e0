"""The commands of the command line, one file each; :mod:`penstock.cli` says what their arguments are."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidArgument


def pairs(given: list[str], what: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a mapping.

    Raises:
        InvalidArgument: one has no ``=``.
    """
    result: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{what} are NAME=VALUE, not {text!r}")
        result[name] = value
    return result


def scopes(options: list[str], protocol: str = "pulsar") -> dict[str, dict[str, Any]]:
    """``-X`` options by where they belong.

    Raises:
        InvalidArgument: an unknown one.
    """
    from penstock.options import split

    return split(pairs(options, "options"), protocol)
