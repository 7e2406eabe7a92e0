"""``forebay token``: keys and tokens for the embedded broker's ``--token-key``, signed with HS256.

Tokens of other issuers, with RS256 and ES256, are shown as well.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forebay._core import parse
from forebay._core.native import is_secret, is_signed_with
from forebay.commands._shared.failed import Failed
from forebay.errors import InvalidArgument

from . import jwt

KEY_BYTES = 32
"""As RFC 7518 asks for HS256: as long as its hash."""


def run(given: argparse.Namespace) -> int:
    """Runs an action; returns the exit status."""
    if given.action == "create-key":
        return _create_key(given)
    return _create(given) if given.action == "create" else _show(given)


def _create_key(given: argparse.Namespace) -> int:
    path = Path(given.file)
    _write_new(path, secrets.token_bytes(KEY_BYTES))
    if given.json:
        print(json.dumps({"file": str(path), "bytes": KEY_BYTES}))
    else:
        print(f"{path}: a new key of {KEY_BYTES} bytes; use it as --token-key file:{path}", file=sys.stderr)
    return 0


def _create(given: argparse.Namespace) -> int:
    key = _secret(given.key)
    if not given.subject:
        raise InvalidArgument("--subject is empty, and the broker refuses a token without a subject")
    now = time.time()
    claims: dict[str, Any] = {"sub": given.subject, "iat": int(now)}
    if given.audience:
        claims["aud"] = given.audience
    if given.expires is not None:
        claims["exp"] = _from_now("--expires", given.expires, now)
    if given.not_before is not None:
        claims["nbf"] = _from_now("--not-before", given.not_before, now)
    if "exp" in claims and claims["exp"] <= max(claims.get("nbf", 0), int(now)):
        raise InvalidArgument(
            "the token would never be valid: --expires must be later than --not-before and now"
        )
    token = jwt.sign(key, claims)
    if given.output is not None:
        _write_new(Path(given.output), token.encode() + b"\n")
    if given.json:
        said = {"file": given.output} if given.output is not None else {"token": token}
        print(json.dumps({**said, "claims": claims}))
    elif given.output is None:
        print(token)
    return 0


def _show(given: argparse.Namespace) -> int:
    text = _text(given.token)
    try:
        token = jwt.parse(text)
    except InvalidArgument as error:
        raise Failed(error.message) from None
    key = _key(given.key) if given.key is not None else None
    problems = _problems(token, time.time(), given.audience)
    signature = None if key is None else is_signed_with(key, text.strip().encode())
    if signature is False:
        problems.append("it is not signed with this key")
    # The signature, which makes it a credential, is not shown.
    if given.json:
        said = {"header": token.header, "claims": token.claims, "signature": signature, "problems": problems}
        print(json.dumps(said))
    else:
        print(f"algorithm:  {token.header.get('alg')}")
        for name, value in token.claims.items():
            print(f"{TITLES.get(name, name) + ':':<11} {_shown(name, value)}")
        print("signature: ", {None: "not checked: give --key", True: "right", False: "wrong"}[signature])
        print(
            "verdict:   ",
            "; ".join(problems) or ("valid" if signature else "valid, if the signature is right"),
        )
    return 1 if problems else 0


TITLES = {"sub": "subject", "aud": "audience", "iat": "issued", "exp": "expires", "nbf": "not before"}


def _shown(name: str, value: Any) -> str:
    if name in ("iat", "exp", "nbf") and isinstance(value, int | float) and 0 <= value < 253_402_300_800:
        return datetime.fromtimestamp(value, UTC).isoformat(sep=" ", timespec="seconds")
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def _problems(token: jwt.Token, now: float, audience: str | None) -> list[str]:
    """Why the embedded broker would refuse the token, apart from its signature."""
    found: list[str] = []
    if token.header.get("alg") not in jwt.ALGORITHMS:
        found.append(
            f"its algorithm is {token.header.get('alg')!r}, and the embedded broker takes"
            f" {', '.join(jwt.ALGORITHMS)} only"
        )
    subject = token.claims.get("sub")
    if not isinstance(subject, str) or not subject:
        found.append("it has no subject (sub)")
    meant = token.claims.get("aud", [])
    if audience and audience not in (meant if isinstance(meant, list) else [meant]):
        found.append(f"it is not for the audience {audience!r}")
    elif "aud" in token.claims and not audience:
        found.append(
            "it is for an audience (aud), which --audience and the broker's token_audience must name"
        )
    try:
        expires, begins = jwt.time_of(token.claims, "exp"), jwt.time_of(token.claims, "nbf")
    except InvalidArgument as error:
        return [*found, str(error)]
    if expires is not None and expires <= now:
        found.append("it has expired")
    if begins is not None and begins > now:
        found.append("it is not valid yet")
    return found


def _key(text: str) -> bytes:
    """The key, read as the broker reads its ``--token-key``."""
    if not text.startswith(("file:", "env:")):
        raise InvalidArgument(
            "--key does not take the key itself, which every user of this machine can see: use file:PATH or"
            " env:NAME"
        )
    try:
        return parse.key_bytes(text)
    except ValueError as error:
        raise InvalidArgument(f"--key: {error}") from None


def _secret(text: str) -> bytes:
    """The key, which can sign."""
    key = _key(text)
    if not is_secret(key):
        raise InvalidArgument(
            "--key: tokens are signed with a secret, and this has public keys or a set of keys"
        )
    if len(key) < jwt.SHORTEST_KEY:
        raise InvalidArgument(
            f"--key: the key has {len(key)} bytes, and the broker takes no less than {jwt.SHORTEST_KEY}:"
            " `forebay token create-key FILE` makes one"
        )
    return key


def _text(given: str) -> str:
    """The token: the argument itself, ``file:PATH``, ``env:NAME`` or, for ``-``, standard input."""
    if given == "-":
        content = sys.stdin.buffer.read(jwt.LONGEST_TOKEN + 1)
    elif given.startswith("file:"):
        try:
            with Path(given.removeprefix("file:")).open("rb") as file:
                content = file.read(jwt.LONGEST_TOKEN + 1)
        except OSError as error:
            raise Failed(f"cannot read {error.filename}: {error.strerror}") from None
    elif given.startswith("env:"):
        name = given.removeprefix("env:")
        content = os.environ.get(name, "").encode(errors="surrogateescape")
        if not content:
            raise InvalidArgument(f"the environment variable {name} is not set")
    else:
        content = given.encode(errors="surrogateescape")
        if _is_file(given):
            raise InvalidArgument(f"{given!r} is a file, and not a token: file:{given} reads it")
    if len(content) > jwt.LONGEST_TOKEN:
        raise Failed(f"a token has at most {jwt.LONGEST_TOKEN} bytes, and this is longer")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise Failed("a token is ASCII text, and this is not") from None


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        # A token may be longer than a file name.
        return False


def _from_now(flag: str, text: str, now: float) -> int:
    try:
        return int(now + parse.duration(text))
    except ValueError as error:
        raise InvalidArgument(f"{flag}: {error}") from None


def _write_new(path: Path, content: bytes) -> None:
    """Writes a file that only its owner may read. One that exists stays: clients may depend on it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            # A key that is cut short must not be used as one.
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise Failed(f"{path} exists and is not overwritten: name another file, or remove it") from None
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from None
