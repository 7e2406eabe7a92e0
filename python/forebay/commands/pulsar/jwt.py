"""JSON Web Tokens as the embedded broker takes them, with `sub` and times as numbers. It signs with HS256."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any, NamedTuple, cast

from forebay.errors import InvalidArgument

ALGORITHM = "HS256"
ALGORITHMS = (ALGORITHM, "RS256", "ES256")
"""Algorithms of the tokens that the broker takes."""
SHORTEST_KEY = 16
"""Bytes of the shortest key that the broker takes."""
LONGEST_TOKEN = 64 << 10
"""Bytes of a token that are read: more is no token, but the wrong file."""


class Token(NamedTuple):
    """The parts of a token. Nothing about it has been verified."""

    header: dict[str, Any]
    claims: dict[str, Any]


def sign(key: bytes, claims: dict[str, Any]) -> str:
    """A token with these claims."""
    parts = ({"alg": ALGORITHM, "typ": "JWT"}, claims)
    signed = b".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
    return b".".join((signed, _encoded(hmac.digest(key, signed, hashlib.sha256)))).decode()


def parse(text: str) -> Token:
    """The parts of a token.

    Raises:
        InvalidArgument: the text is no token.
    """
    parts = text.strip().encode().split(b".")
    if len(parts) != 3:
        raise InvalidArgument(
            f"a token has three parts with dots between them, and this text has {len(parts)}"
        )
    header, claims, signature = parts
    token = Token(_object("header", header), _object("claims", claims))
    _decoded("signature", signature)
    return token


def time_of(claims: dict[str, Any], name: str) -> float | None:
    """A time of the claims in seconds since 1970; ``None`` without one.

    Raises:
        InvalidArgument: it is not a number from 0 on, which the broker refuses.
    """
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InvalidArgument(f"{name} of the token is {value!r}, not a number of seconds since 1970")
    return float(value)


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def _decoded(name: str, part: bytes) -> bytes:
    try:
        content = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        content = b""
    # The library passes over what is no base64; the broker takes one spelling of each content only.
    if _encoded(content) != part:
        raise InvalidArgument(f"the {name} of the token is not base64url")
    return content


def _object(name: str, part: bytes) -> dict[str, Any]:
    content = _decoded(name, part)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"the {name} of the token is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"the {name} of the token is not a JSON object")
    return cast("dict[str, Any]", value)
