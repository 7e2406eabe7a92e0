"""``penstock passwd``: users of the embedded broker's MQTT, in the file format of ``mosquitto_passwd``."""

from __future__ import annotations

import argparse
import base64
import getpass
import hashlib
import os
import sys
from pathlib import Path

from penstock.errors import InvalidArgument

ITERATIONS = 1000


def line(user: str, password: str) -> str:
    """A user as the file has it."""
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    salted, hashed = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"{user}:$7${ITERATIONS}${salted}${hashed}"


def run(given: argparse.Namespace) -> int:
    """Adds, changes or deletes a user."""
    path, user = Path(given.file), str(given.user)
    if not user or "\n" in user:
        raise InvalidArgument("a user's name is one line of text")
    try:
        lines = path.read_text().splitlines() if path.exists() else []
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}") from None
    kept = [one for one in lines if one.rpartition(":")[0] != user]
    if given.delete:
        if len(kept) == len(lines):
            raise InvalidArgument(f"{path} has no user {user!r}")
    else:
        kept.append(line(user, _password(given.password)))
    _write(path, kept)
    return 0


def _password(given: str | None) -> str:
    if given is not None:
        return given
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise InvalidArgument("the two are not the same")
    return password


def _write(path: Path, lines: list[str]) -> None:
    """In one step, so that nobody reads half of it, and for the owner alone."""
    new = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{one}\n" for one in lines))
        new.replace(path)
    except OSError as error:
        raise InvalidArgument(f"cannot write {path}: {error.strerror}") from None
