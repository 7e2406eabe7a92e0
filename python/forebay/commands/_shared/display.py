"""Output for people: messages with their payload as text, JSON or hex; figures."""

from __future__ import annotations

import argparse
import base64
import datetime
import json
from collections.abc import Callable
from typing import Any, cast

_WIDTH = 16
"""Bytes in a line of hex."""


def printer(given: argparse.Namespace, to_json: Callable[[Any], dict[str, Any]]) -> Callable[[Any], None]:
    """A function that prints a message: with ``--json`` as a line of JSON, otherwise for people.

    Args:
        given: the parsed arguments.
        to_json: the message as ``--json`` prints it.
    """

    def show(message: Any) -> None:
        said = to_json(message)
        if given.json:
            print(json.dumps(said), flush=True)
            return
        print(_head(said))
        value = getattr(message, "value", None) if given.form == "json" else None
        print(payload(given.form, message.data, value), flush=True)

    return show


def _head(said: dict[str, Any]) -> str:
    words = [f"--- {said['id']}", time(said.get("publish_time"))]
    # Values are quoted: they are a stranger's, and a terminal takes some characters for commands.
    if said.get("key") is not None:
        words.append(f"key={said['key']!r}")
    if said.get("event_time") is not None:
        words.append(f"event={time(said['event_time'])}")
    words += [f"{name!r}={value!r}" for name, value in said.get("properties", {}).items()]
    return "  ".join(word for word in words if word)


def time(ms: int | None) -> str:
    """Milliseconds since 1970 as ISO 8601; as a number if no calendar has the time."""
    if ms is None:
        return ""
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: float) -> str:
    """Bytes in a few characters."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def payload(form: str, data: bytes, value: Any = None) -> str:
    """A payload as text.

    Args:
        form: ``text`` shows bytes that are no text as hex, as ``json`` does with what is no JSON, or as text.
        data: the payload.
        value: the value that it stands for, if a schema is known.
    """
    if form == "json":
        if value is not None and not isinstance(value, bytes):
            return as_json(value, indent=2)
        try:
            return as_json(json.loads(data), indent=2)
        except (ValueError, RecursionError):
            form = "text"
    if form == "text":
        try:
            return visible(data.decode())
        except UnicodeDecodeError:
            pass
    return "\n".join(_hex_line(at, data[at : at + _WIDTH]) for at in range(0, len(data), _WIDTH))


def visible(text: str) -> str:
    """A text with escapes in place of the characters that a terminal takes for commands; lines stay."""
    return escaped(text, keep="\n\t")


def escaped(text: str, keep: str = "") -> str:
    """A text with escapes in place of all that is not printable, such as control characters and marks that
    turn the direction of a line. Letters of all languages stay, and the characters ``keep``."""
    return "".join(one if one.isprintable() or one in keep else _escaped(one) for one in text)


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON with escapes in place of all that is not printable. Letters of all languages stay."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_as_json)
    # JSON itself has no line ends but those between its values.
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def visible_bytes(data: bytes) -> bytes:
    """As :func:`visible`, for UTF-8. Bytes that are no UTF-8 are escaped, too."""
    return visible(data.decode(errors="backslashreplace")).encode()


def printable(text: str) -> str:
    """A name without what a terminal takes for a command."""
    return "".join(one if one.isprintable() else "?" for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _hex_line(at: int, part: bytes) -> str:
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<{_WIDTH * 3}} {text}"


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def figures(value: Any, indent: str = "") -> None:
    """Prints an object of JSON for people: a line for each value, and what is in it indented."""
    items: list[tuple[str, Any]] = (
        list(cast("dict[str, Any]", value).items())
        if isinstance(value, dict)
        else [(str(at), one) for at, one in enumerate(cast("list[Any]", value))]
    )
    for name, inner in items:
        if isinstance(inner, dict | list) and inner:
            print(f"{indent}{name}:")
            figures(inner, indent + "  ")
        else:
            print(f"{indent}{name}: {_plain(cast('Any', inner))}")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)
