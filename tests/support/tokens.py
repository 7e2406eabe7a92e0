"""Tokens that the embedded broker accepts with ``token_key=KEY``."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

KEY = b"0123456789abcdef0123456789abcdef"


def token(subject: str) -> str:
    """A token signed with `KEY`."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    header, claims = b'{"alg":"HS256"}', json.dumps({"sub": subject}).encode()
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{part(hmac.digest(KEY, signed.encode(), hashlib.sha256))}"
