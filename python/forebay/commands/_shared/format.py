r"""Formats of ``-F`` made of single letters, such as ``%k=%s\n``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from forebay.errors import InvalidArgument

from .subscribe import Part

Fields = dict[str, Callable[[Any], bytes]]
"""Functions of the message, by the letter that stands for them in a format."""
FIELDS: Fields = {
    "s": lambda message: message.data,
    "S": lambda message: b"%d" % len(message.data),
    "k": lambda message: (message.key or "").encode(),
    "t": lambda message: message.topic.encode(),
    "i": lambda message: str(message.id).encode(),
    "e": lambda message: b"" if message.event_time is None else b"%d" % message.event_time,
    "h": lambda message: ",".join(f"{k}={v}" for k, v in message.properties.items()).encode(),
    "r": lambda message: b"%d" % message.redelivery_count,
    "%": lambda _: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def text_of(given: argparse.Namespace) -> str:
    """The format: ``-F``, or the one that ``-v`` and ``-N`` stand for."""
    if given.format is not None:
        return given.format
    return ("%t %k %s" if given.verbose else "%s") + ("" if given.no_newline else "\\n")


def compile_fields(text: str, fields: Fields) -> list[Part]:
    """A format as constant parts and functions of the message.

    Raises:
        InvalidArgument: an unknown ``%`` or ``\\``.
    """
    parts: list[Part] = []
    for token in re.findall(r"%.?|\\.?|[^%\\]+", text, re.DOTALL):
        table: dict[str, Any] | None = {"%": fields, "\\": _ESCAPES}.get(token[0])
        if table is None:
            parts.append(token.encode())
        elif token[1:] in table:
            parts.append(table[token[1:]])
        else:
            raise InvalidArgument(f"unknown {token!r} in the format; known: %{' %'.join(fields)}")
    return parts
