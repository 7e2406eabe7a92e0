"""``forebay users``: the MQTT users in a file of the embedded broker, and how their passwords are hashed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forebay._native import check_users
from forebay.commands._shared.failed import Failed
from forebay.errors import InvalidArgument


def run(given: argparse.Namespace) -> int:
    """Checks the file as the broker does and lists its users; returns the exit status.

    Raises:
        Failed: the file cannot be read, or the broker would refuse it; the text names the line.
    """
    path = Path(given.file)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    try:
        check_users("mqtt", text)
    except InvalidArgument as error:
        raise Failed(error.message) from None
    users = [_user(line) for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    if given.json:
        print(json.dumps(users))
        return 0
    width = max((len(user["user"]) for user in users), default=0)
    for user in users:
        print(f"{user['user']:{width}}  {user['hash']}  {user['cost']}")
    return 0


def _user(line: str) -> dict[str, str]:
    """Name, hash and cost of a line that the broker accepts."""
    name, _, hashed = line.rpartition(":")
    parts = hashed.split("$")
    if parts[1] == "7":
        return {"user": name, "hash": "sha512-pbkdf2", "cost": f"{int(parts[2]):,} rounds"}
    costs = dict(part.split("=") for part in parts[3].split(","))
    passes = "1 pass" if costs["t"] == "1" else f"{costs['t']} passes"
    return {"user": name, "hash": parts[1], "cost": f"{int(costs['m']) / 1024:g} MiB, {passes}"}
