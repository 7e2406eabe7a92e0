"""Reading ``NAME=VALUE`` arguments and durations."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    import datetime

_PREFIXES = frozenset({"tubemq"})
"""Protocols whose topics have a prefix in the store of the embedded broker. MQTT has no topics there."""
FORMS = ("text", "json", "hex")
"""Forms in which payloads are shown for people."""


def pairs(given: list[str], what: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a mapping. The last value of an option holds, so that a command can override
    those of an alias.

    Raises:
        InvalidArgument: an argument without ``=``, or a name twice that is no option.
    """
    result: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{what} are NAME=VALUE, not {text!r}")
        if name in result and what != "options":
            raise InvalidArgument(f"{what} have unique names, and {name!r} is given twice")
        result[name] = value
    return result


def scopes(options: list[str], protocol: str) -> dict[str, dict[str, Any]]:
    """``-X`` options, sorted into ``client``, ``producer`` and ``consumer``.

    Raises:
        InvalidArgument: an unknown option.
    """
    from forebay._core import protocols

    row, given = protocols.PROTOCOLS[protocol], pairs(options, "options")
    if row.renamed:
        row.module("renamed").refuse(given)
    return row.split(given)


def protocol_of_topic(name: str) -> str | None:
    """The protocol in a topic name of the embedded broker such as ``tubemq:orders``; ``None`` without one."""
    protocol, colon, _ = name.partition(":")
    return protocol if colon and protocol in _PREFIXES else None


def is_web(url: str | None) -> bool:
    """Whether a URL is one of a web service."""
    return bool(url) and str(url).startswith(("http:", "https:"))


def seconds(text: str) -> float:
    """The value of ``-W``.

    Raises:
        InvalidArgument: the text is not a duration.
    """
    from forebay._core import parse

    try:
        found = parse.duration(text)
    except ValueError as error:
        raise InvalidArgument(f"-W: {error}") from None
    if not found:
        raise InvalidArgument(f"-W is longer than 0 seconds, not {text!r}")
    return found


def zoned(text: str) -> datetime.datetime | int | None:
    """A time given in milliseconds since 1970, or as ISO 8601 with a zone; ``None`` for another text."""
    import datetime

    if text.isdecimal():
        return int(text)
    try:
        given = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if given.tzinfo is None else given


def moment(flag: str, text: str) -> int:
    """A time in milliseconds since 1970: given as such, as ISO 8601 with a zone, or as a duration back.

    Raises:
        InvalidArgument: the text is something else.
    """
    from forebay._core import parse

    with contextlib.suppress(ValueError):
        if given := parse.moment(text):
            return given.ms()
    raise InvalidArgument(f"{flag} takes {parse.A_TIME}, not {text!r}")
