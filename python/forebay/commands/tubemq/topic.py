"""``forebay topic`` with a TubeMQ URL: the protocol can inspect topics, and nothing else."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator
from typing import Any, NoReturn

from forebay.commands._shared import topic as shared
from forebay.commands._shared.options import scopes
from forebay.errors import Unsupported
from forebay.tubemq import blocking

PREFIX = "tubemq:"
"""The beginning of TubeMQ topic names at the embedded broker and on the command line."""
_VERBS = {"ls": "list topics", "create": "create topics", "rm": "delete topics", "grow": "add partitions"}


def run(given: argparse.Namespace) -> int:
    """Inspects."""
    return shared.run(given, _broker)


@contextlib.contextmanager
def _broker(given: argparse.Namespace) -> Generator[shared.Place, None, None]:
    if given.action != "stats":
        # Before connecting, which could fail for another reason.
        refuse(given)
    options = scopes(given.options, "tubemq")["client"]
    with blocking.connect(given.url, **options) as client:
        yield _Wire(client, given)


def refuse(given: argparse.Namespace) -> NoReturn:
    """Refuses an action that a running server offers neither over the protocol nor over HTTP.

    Raises:
        Unsupported: always; it says what to use.
    """
    if given.action == "terminate":
        raise Unsupported(f"{given.topic!r} is a TubeMQ topic: only topics of Pulsar can be terminated")
    name = PREFIX if given.action == "ls" else f"{PREFIX}{given.topic.removeprefix(PREFIX)}"
    command = f"forebay topic {given.action} {name}"
    count = getattr(given, "partitions", 0)
    if count:
        command += f" -p {count}"
    store = f"`{command} --data DIR` (embedded broker that is not running)"
    if given.action == "stats":
        raise Unsupported(
            f"{name!r} is a TubeMQ topic, and HTTP is for topics of Pulsar: use `{command} -u"
            f" tubemq://HOST:8715` or {store}"
        )
    more = ""
    if given.action == "create":
        more = f", `forebay broker --topic {name}{f'={count}' if count else ''}`"
    raise Unsupported(
        f"TubeMQ's protocol cannot {_VERBS[given.action]}: use {store}{more}, or the web API of a real"
        " server's master"
    )


class _Wire:
    def __init__(self, client: blocking.TubeMqClient, given: argparse.Namespace) -> None:
        self._client = client
        self._given = given

    def ls(self, namespace: str) -> list[str]:
        refuse(self._given)

    def create(self, topic: str, partitions: int) -> None:
        refuse(self._given)

    def rm(self, topic: str) -> None:
        refuse(self._given)

    def grow(self, topic: str, partitions: int) -> None:
        refuse(self._given)

    def terminate(self, topic: str) -> None:
        refuse(self._given)

    def stats(self, topic: str) -> dict[str, Any]:
        name = topic.removeprefix(PREFIX)
        return {"topic": name, "partitions": self._client.partitions(name)}
