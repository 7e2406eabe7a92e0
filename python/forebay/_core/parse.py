"""Parsers of option values. Each accepts the forms that a keyword, a URL query or the environment may have,
and returns the canonical type or raises ``ValueError`` with the expected form."""

from __future__ import annotations

import codecs
import datetime
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, cast

from forebay.errors import AuthenticationError, InvalidArgument

Parser = Callable[[Any], Any]

_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(ms|s|m|h|d)?\s*\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*\Z", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

T = TypeVar("T")


def duration(value: Any, most: float = 1e9) -> float:
    """Seconds from a number, a ``timedelta`` or text such as ``"250ms"``; at most ``most``."""
    if isinstance(value, datetime.timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str) and (match := _DURATION.match(value)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ValueError('expected a duration: seconds, a timedelta, or text such as "250ms", "30s", "5m"')
    if not 0 <= seconds <= most:
        raise ValueError(f"expected a duration between 0 and {_shown(most)} seconds, not {_shown(seconds)}")
    return seconds


def _shown(seconds: float) -> str:
    """Seconds in an error: 1e9 as that, and all digits of a smaller whole number."""
    if seconds == 1e9:
        return "1e9"
    return f"{seconds:.0f}" if float(seconds).is_integer() and seconds < 1e15 else f"{seconds:g}"


FOREVER = 0xFFFF_FFFF
"""The expiry of an MQTT session that never expires (3.1.2.11.2), and the longest one of a message."""


def whole_seconds(most: int) -> Parser:
    """A duration as :func:`duration`, of at most ``most`` seconds, rounded up to whole seconds, as MQTT has
    them: a fraction never becomes 0."""
    return lambda value: float(math.ceil(duration(value, most)))


expiry = whole_seconds(FOREVER)
"""An expiry of MQTT, from 0 to 4294967295 seconds."""


def session_expiry(value: Any) -> float:
    """As :data:`expiry`; also ``"never"`` and infinity, for a session that does not expire."""
    if value == math.inf or (isinstance(value, str) and value.strip().lower() in ("never", "inf")):
        return float(FOREVER)
    try:
        return expiry(value)
    except ValueError as error:
        raise ValueError(f'{error}. "never" keeps the session for good') from None


def at_least(least: float) -> Parser:
    """A duration as :func:`duration`, of ``least`` seconds or more."""

    def parse(value: Any) -> float:
        seconds = duration(value)
        if seconds < least:
            raise ValueError(f"expected at least {least:g} s, not {seconds:g} s")
        return seconds

    return parse


def size(value: Any) -> int:
    """Bytes from a whole number or text such as ``"64MiB"`` or ``"1 GB"``."""
    if isinstance(value, int) and not isinstance(value, bool):
        count = value
    elif isinstance(value, str) and (match := _SIZE.match(value)):
        count = int(
            float(match[1]) * (1024 if match[3] or not match[2] else 1000) ** _POWER[match[2].lower()]
        )
    else:
        raise ValueError('expected a size: bytes as a whole number, or text such as "64MiB"')
    if not 0 <= count < 1 << 62:
        raise ValueError(f"expected a size between 0 and 4 EiB, not {count}")
    return count


def packet_size(value: Any) -> int:
    """A size within the limits of MQTT's Maximum Packet Size."""
    number = size(value)
    if not 64 <= number <= 268_435_460:
        raise ValueError(f"expected 64 to 268435460 bytes, not {value!r}")
    return number


def whole(low: int, high: int = 2**31 - 1) -> Parser:
    """A whole number between ``low`` and ``high``."""

    def parse(value: Any) -> int:
        try:
            number = value if isinstance(value, int) and not isinstance(value, bool) else int(str(value), 10)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"expected a whole number between {low} and {high}, not {value!r}")
        return number

    return parse


def boolean(value: Any) -> bool:
    """A boolean, or one of its usual spellings."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"expected true or false, not {value!r}")


def boolean_or_duration(value: Any) -> bool | float:
    """A boolean, or a duration as :func:`duration`."""
    if isinstance(value, bool | str):
        try:
            return boolean(value)
        except ValueError:
            pass
    try:
        return duration(value)
    except ValueError:
        raise ValueError(f"expected true, false or a duration, not {value!r}") from None


def text(value: Any) -> str:
    """Text, not empty. A NUL is in no name that a broker or a file system knows."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected text that is not empty")
    if "\0" in value:
        raise ValueError("expected text without NUL characters")
    return _unicode(value)


def _unicode(value: str) -> str:
    """Text that UTF-8 can hold: Python reads other bytes of the environment as half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("expected text in UTF-8") from None
    return value


def alpn(value: Any) -> str:
    """A protocol of ALPN, which TLS limits to 255 bytes. Empty text offers no protocol."""
    if not isinstance(value, str):
        raise ValueError("expected text")
    if len(_unicode(value).encode()) > 255:
        raise ValueError("expected at most 255 bytes of text")
    return value


def one_of(*words: str) -> Parser:
    """One of ``words``; case and the difference of ``-`` and ``_`` do not matter."""
    known = {word.replace("-", "_"): word for word in words}

    def parse(value: Any) -> str:
        word = str(value).lower().replace("-", "_")
        if word not in known:
            raise ValueError(f"expected one of {', '.join(words)}, not {value!r}{did_you_mean(word, words)}")
        return known[word]

    return parse


def _split(text: str) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name.strip() and equals for name, equals, _ in parts):
        raise ValueError('expected "name=value,name=value"')
    return [(_unicode(name.strip()), _unicode(rest.strip())) for name, _, rest in parts]


def mapping(value: Any) -> dict[str, str]:
    """A mapping of text to text, given as such or as ``"a=1,b=2"``."""
    if isinstance(value, str):
        items: dict[Any, Any] = {}
        for name, rest in _split(value):
            if name in items:
                raise ValueError(f"the name {name!r} is given twice: keep one of them")
            items[name] = rest
        return items
    if isinstance(value, Mapping):
        items = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        if all(isinstance(k, str) and isinstance(v, str) for k, v in items.items()):
            return {_unicode(name): _unicode(rest) for name, rest in items.items()}
    raise ValueError("expected a mapping of text to text")


def pairs(value: Any) -> list[tuple[str, str]]:
    """Names and values, which may repeat a name: a mapping, pairs, or ``"a=1,a=2"``."""
    if isinstance(value, str):
        return _split(value)
    if isinstance(value, Mapping):
        return list(mapping(value).items())
    if isinstance(value, list | tuple):
        given = cast("Sequence[Any]", value)
        items = [tuple(cast("Sequence[Any]", one)) for one in given if isinstance(one, list | tuple)]
        if len(items) == len(given) and all(list(map(type, one)) == [str, str] for one in items):
            return [(_unicode(name), _unicode(rest)) for name, rest in items]
    raise ValueError("expected a mapping of text to text, or pairs of text")


def path(value: Any) -> str:
    """A file system path."""
    return text(os.fspath(value)) if isinstance(value, str | os.PathLike) else text(value)  # pyright: ignore


def mode(value: Any) -> int:
    """Permissions of a file, in octal digits."""
    digits = str(value)
    if not re.fullmatch(r"0?[0-7]{3}", digits):
        raise ValueError(f'expected permissions in octal digits, such as "0660", not {value!r}')
    return int(digits, 8)


_PATH = re.compile(r"/|~|\.{1,2}[/\\]|\\\\|[A-Za-z]:[/\\]|file:")
_OF_FILES = (".key", ".pem", ".txt", ".json")


def not_a_path(value: str, folder: str = "") -> str:
    """The text of a key or token, unless it is what a path looks like: it begins as one, ends as the name of
    a file of keys does, or names a file that exists. Such a text would be the secret, which others can guess.

    Args:
        value: the text.
        folder: where a path that is not absolute begins; the current folder by default.
    """
    if _PATH.match(value) or value.lower().endswith(_OF_FILES) or _is_file(value, folder):
        # The value is not shown: it may be the secret after all.
        raise ValueError(
            "this text looks like the path of a file, and would be the secret itself: write file:PATH to read"
            " the secret from the file. A secret that looks like a path has to be in a file, too"
        )
    return value


def _is_file(value: str, folder: str = "") -> bool:
    try:
        return Path(folder, value).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        # Too long for a name, a NUL in it, or a user without a home: no path.
        return False


def _password(value: str) -> str:
    """Any text may be a password, also ``/x``, so only the path of a file that exists is refused."""
    is_path = "/" in value or "\\" in value
    return not_a_path(value) if is_path and _is_file(value) else value


def _from_env(reference: str) -> str:
    name = reference.removeprefix("env:")
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"the environment variable {name} is not set")
    return value


def _read(name: str) -> bytes:
    try:
        return Path(name.removeprefix("file:")).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from None


def secret(value: Any) -> str | Callable[[], str]:
    """A password as text, or a callable that returns it whenever it is needed. ``env:NAME`` is resolved now.
    ``file:PATH`` is read now, to fail early, and again at each use, so that the file can be replaced. The
    path of a file that exists is refused."""
    return _secret(value, _password)


def binary_secret(value: Any) -> str | bytes | Callable[[], str | bytes]:
    """As :func:`secret`, for passwords that may be any bytes. A file of text is stripped, other bytes are as
    they are."""
    if isinstance(value, bytes) and value:
        return value
    if not isinstance(value, str) or not value.startswith("file:"):
        return secret(value)

    def current() -> str | bytes:
        content = _read(value)
        try:
            content.decode()
        except UnicodeDecodeError:
            return content
        return _secret_in(value)

    current()
    return lambda: _again(current)


def query(value: Any) -> str | Callable[[], str]:
    """As :func:`secret`, for the query of a URL, which is sent as it is."""
    found = secret(value)
    if isinstance(found, str) and not re.fullmatch(r'[!"$-~]+', found):
        raise ValueError("it has a space, a #, or a character that is not ASCII: percent-encode it")
    return found


def token(value: Any) -> str | Callable[[], str]:
    """As :func:`secret`, for tokens: all that looks like a path is refused, and what no token has in it."""
    return _secret(value, lambda text: _one_word(not_a_path(text)), _one_word)


def _one_word(value: str) -> str:
    """The text of a token without the line end of its file, unless spaces or control characters are in it."""
    found = value.strip()
    if not found or " " in found or not found.isprintable():
        raise ValueError("a token has no spaces, line ends or control characters")
    return found


def _secret(
    value: Any, check: Callable[[str], str], check_file: Callable[[str], str] = str
) -> str | Callable[[], str]:
    if callable(value):
        return cast("Callable[[], str]", value)
    if not isinstance(value, str | bytes) or not value:
        raise ValueError('expected a secret: text, "env:NAME", "file:PATH" or a callable that returns text')
    if isinstance(value, bytes):
        return check_file(_decoded(value, "the secret"))
    if value.startswith("file:"):
        check_file(_secret_in(value))
        return lambda: _again(lambda: check_file(_secret_in(value)))
    return check(_unicode(_from_env(value) if value.startswith("env:") else value))


def _decoded(content: bytes, what: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        # Its text would have a byte of the secret in it.
        raise ValueError(f"{what} is not text in UTF-8") from None


def _secret_in(name: str) -> str:
    """The secret in a file, without the space around it."""
    path = name.removeprefix("file:")
    found = _decoded(_read(name), path).strip()
    if not found:
        raise ValueError(f"{path} is empty")
    if found.startswith("\ufeff"):
        raise ValueError(
            f"{path} begins with a byte order mark, which would be part of the secret: remove it"
        )
    return found


def _again(read: Callable[[], T]) -> T:
    """The secret in a file, for a connection: the file may have been replaced."""
    try:
        return read()
    except ValueError as error:
        raise AuthenticationError(str(error)) from None


def key_bytes(value: Any) -> bytes:
    """A symmetric key: bytes, text, ``file:PATH`` or ``env:NAME``. Text that looks like a path is refused."""
    if isinstance(value, bytes) and value:
        return value
    if not isinstance(value, str) or not value:
        raise ValueError('expected a key: bytes, text, "env:NAME" or "file:PATH"')
    if value.startswith("file:"):
        return FromFile.read(value)
    return _unicode(not_a_path(_from_env(value) if value.startswith("env:") else value)).encode()


class FromFile(bytes):
    """Bytes that were read from a file, which may be replaced later."""

    path: str

    @classmethod
    def read(cls, name: str) -> Self:
        """Reads a file, whose name may begin with ``file:``."""
        content = cls(_read(name))
        content.path = str(Path(name.removeprefix("file:")).absolute())
        return content

    def of_same_file(self, content: bytes) -> Self:
        """Another content, which was read from this file as well."""
        other = type(self)(content)
        other.path = self.path
        return other


def again(value: Any) -> Any:
    """The value as its file has it now, if it was read from one.

    Raises:
        ValueError: the file cannot be read.
    """
    return FromFile.read(value.path) if isinstance(value, FromFile) else value


_FINGERPRINT = re.compile(r"(?:[0-9a-f]{2}:?){31}[0-9a-f]{2}\Z", re.IGNORECASE)


def fingerprints(value: Any) -> list[str]:
    """SHA-256 fingerprints of certificates in hexadecimal: one, several, or text with commas."""
    given = cast("list[Any]", value)
    found: list[Any] = list(given) if isinstance(value, list | tuple) else str(value).split(",")
    texts = [str(one).strip() for one in found]
    for text in texts:
        if not _FINGERPRINT.match(text):
            raise ValueError(f"expected SHA-256 fingerprints of 64 hexadecimal digits, not {text!r}")
    if not texts:
        raise ValueError("expected at least one SHA-256 fingerprint")
    return texts


def pem(value: Any) -> bytes:
    """PEM as bytes or text, ``env:NAME``, or the path of a file, with or without ``file:``."""
    content: bytes
    if isinstance(value, bytes):
        content = value
    elif isinstance(value, str) and value.startswith("env:"):
        content = _unicode(_from_env(value)).encode()
    elif isinstance(value, str) and "-----BEGIN" in value:
        content = _unicode(value).encode()
    elif isinstance(value, str | os.PathLike) and value:
        content = FromFile.read(str(value))  # pyright: ignore[reportUnknownArgumentType]
    else:
        content = b""
    if b"-----BEGIN" not in content:
        raise ValueError("expected PEM: its bytes or text, a path, or env:NAME")
    return _without_mark(content)


def _without_mark(content: bytes) -> bytes:
    """PEM without the byte order mark that editors write, which Python's ssl refuses."""
    if not content.startswith(codecs.BOM_UTF8):
        return content
    rest = content.removeprefix(codecs.BOM_UTF8)
    return content.of_same_file(rest) if isinstance(content, FromFile) else rest


def callable_(value: Any) -> Callable[..., Any]:
    """A callable, as it is."""
    if not callable(value):
        raise ValueError("expected a callable")
    return value


def epoch_ms(value: datetime.datetime | int) -> int:
    """Milliseconds since 1970, from an aware ``datetime`` or given as such.

    Raises:
        InvalidArgument: a ``datetime`` without a time zone.
    """
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise InvalidArgument("the datetime has no time zone: use one such as datetime.now(timezone.utc)")
        return round(value.timestamp() * 1000)
    return value


class Moment(NamedTuple):
    """A time, in milliseconds since 1970 or as seconds before it is asked for."""

    at: int | None
    back: float = 0.0

    def ms(self) -> int:
        """The time in milliseconds since 1970; counted back from now."""
        return max(int((time.time() - self.back) * 1000), 0) if self.at is None else self.at


A_TIME = (
    "a time with its zone, such as 2026-11-21T12:00:00Z, milliseconds since 1970, or a duration back, such"
    " as 2h"
)
"""The texts that :func:`moment` reads, for errors."""
_MS = re.compile(r"-?[0-9]+\Z")


def moment(value: Any) -> Moment | None:
    """The time that every position in a topic takes: an aware ``datetime``, milliseconds since 1970, a
    ``timedelta`` back, or one of these as text: ISO 8601 with a zone, digits, or ``"2h"``, also ``"-2h"``.
    ``None`` for everything else.

    Raises:
        ValueError: a time without a zone, or out of range.
    """
    if isinstance(value, datetime.timedelta):
        return Moment(None, duration(abs(value)))
    if isinstance(value, str):
        value = value.strip()
        if _DURATION.match(value.removeprefix("-")) and not _MS.match(value):
            return Moment(None, duration(value.removeprefix("-")))
        try:
            value = int(value) if _MS.match(value) else datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime.datetime):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return None
        value = operator.index(value)
    try:
        ms = epoch_ms(value)
    except InvalidArgument as error:
        raise ValueError(str(error)) from None
    if not 0 <= ms < 1 << 63:
        raise ValueError(f"{value} is no time: expected one from 1970 on, as milliseconds from 0 on")
    return Moment(ms)


def seconds(value: Any, name: str = "timeout") -> float | None:
    """As :func:`duration`, for the argument ``name`` of a method. ``None`` means no limit.

    Raises:
        InvalidArgument: not a duration.
    """
    if value is None:
        return None
    # Called for each receive: the usual types take the short way.
    if (type(value) is int or type(value) is float) and 0 <= value <= 1e9:
        return float(value)
    try:
        return duration(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


def bytes_of(value: Any, name: str) -> int | None:
    """As :func:`size`, for the argument ``name`` of a method. ``None`` means no limit.

    Raises:
        InvalidArgument: not a size.
    """
    if value is None:
        return None
    try:
        return size(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


def deliver_ms(at: datetime.datetime | int | None, after: Any) -> int | None:
    """Delivery time in milliseconds since 1970; ``None`` delivers immediately.

    Raises:
        InvalidArgument: both arguments are given, or one does not parse.
    """
    if after is None:
        return None if at is None else epoch_ms(at)
    if at is not None:
        raise InvalidArgument("deliver_at and deliver_after exclude each other: pass one of them")
    return round((time.time() + (seconds(after, "deliver_after") or 0.0)) * 1000)


def topic_name(value: Any, what: str = "topic") -> str:
    """A name, checked to be text.

    Raises:
        InvalidArgument: anything else.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {shortened(value)}: pass a name as text")
    return value


def topic_names(value: Any) -> list[str]:
    """One topic or several, as a list.

    Raises:
        InvalidArgument: anything but text or several texts.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(f"topic is {shortened(value)}: pass a name as text, or a list of names")
    return [topic_name(one) for one in cast("Iterable[Any]", value)]


def group_name(value: Any) -> str:
    """The name of a subscription; ``None`` and empty text are the empty name.

    Raises:
        InvalidArgument: not text.
    """
    return topic_name(value, "subscription") if value else ""


def shortened(value: Any) -> str:
    """The representation of a value in an error, at most about 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name of ``known`` that is nearest to ``name``, if one is near."""
    import difflib

    by_letters = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), list(by_letters), n=1, cutoff=0.75)
    return by_letters[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean ...?"``, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
