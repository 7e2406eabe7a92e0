"""``forebay passwd``: the MQTT users of the embedded broker, in the file format of ``mosquitto_passwd``."""

from __future__ import annotations

import argparse
import base64
import getpass
import hashlib
import json
import os
import sys
from pathlib import Path

from forebay._core.native import hash_password
from forebay.commands._shared.failed import Failed
from forebay.errors import InvalidArgument

ITERATIONS = 210_000
"""As OWASP recommends for PBKDF2 with SHA-512. It takes about a tenth of a second."""


def line(user: str, password: str, kind: str) -> str:
    """The line of a user in the file.

    Args:
        user: the name.
        password: the password.
        kind: ``argon2id`` or ``sha512-pbkdf2``.
    """
    if kind == "argon2id":
        return f"{user}:{hash_password(password.encode())}"
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    salted, hashed = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"{user}:$7${ITERATIONS}${salted}${hashed}"


def run(given: argparse.Namespace) -> int:
    """Adds, changes or deletes a user; returns the exit status."""
    path, user = Path(given.file), str(given.user)
    if not user or user != user.strip() or user[0] == "#" or not user.isprintable():
        # The broker would read another name, or a comment.
        raise InvalidArgument(
            f"a user name is one line of printable text that does not begin with #, not {user!r}"
        )
    try:
        # Editors may have put a byte order mark before the first name.
        lines = path.read_text("utf-8-sig").splitlines() if path.exists() else []
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failed(f"{path} is not text in UTF-8") from None
    kept = [one for one in lines if one.rpartition(":")[0].strip() != user]
    is_known = len(kept) < len(lines)
    if given.delete:
        if not is_known:
            raise Failed(f"{path} has no user {user!r}")
        done = "deleted"
    else:
        kept.append(line(user, _password(given.password), given.hash))
        done = "changed" if is_known else "added"
    _write(path, kept)
    if given.json:
        hashed = {} if given.delete else {"hash": given.hash}
        print(json.dumps({"file": str(path), "user": user, "done": done, **hashed}))
    return 0


def _password(given: str | None) -> str:
    if given is not None:
        return given
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Repeat password: ") != password:
        raise Failed("the two passwords differ")
    return password


def _write(path: Path, lines: list[str]) -> None:
    """Replaces the file in one step, so that a reader never sees half of it; only the owner may read it."""
    new = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{one}\n" for one in lines))
        new.replace(path)
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from None
