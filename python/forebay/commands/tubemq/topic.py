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
NO_END = "{!r} is a TubeMQ topic: only topics of Pulsar can be terminated"
"""The refusal of ``terminate``."""


def run(given: argparse.Namespace) -> int:
    """Inspects."""
    return shared.run(given, _broker)


@contextlib.contextmanager
def _broker(given: argparse.Namespace) -> Generator[shared.Place, None, None]:
    if given.action != "stats":
        # Before connecting, which could fail for another reason.
        _refuse(given)
    options = scopes(given.options, "tubemq")["client"]
    with blocking.connect(given.url, **options) as client:
        yield _Wire(client, given)


def _refuse(given: argparse.Namespace) -> NoReturn:
    if given.action == "terminate":
        raise Unsupported(NO_END.format(given.topic))
    verb = {"ls": "list topics", "create": "create topics", "rm": "delete topics", "grow": "add partitions"}
    name = PREFIX if given.action == "ls" else f"{PREFIX}{given.topic.removeprefix(PREFIX)}"
    command = f"forebay topic {given.action} {name}"
    if given.action in ("create", "grow") and given.partitions:
        command += f" -p {given.partitions}"
    # The topics of a store do not grow.
    store = (
        "" if given.action == "grow" else f", or `{command} --data DIR` (embedded broker that is not running)"
    )
    raise Unsupported(
        f"TubeMQ's protocol cannot {verb[given.action]}: use the web service of the master, or of the"
        f" embedded broker with --http-port, `{command} -u http://HOST:8080`{store}"
    )


class _Wire:
    def __init__(self, client: blocking.TubeMqClient, given: argparse.Namespace) -> None:
        self._client = client
        self._given = given

    def ls(self, namespace: str) -> list[str]:
        _refuse(self._given)

    def create(self, topic: str, partitions: int) -> None:
        _refuse(self._given)

    def rm(self, topic: str) -> None:
        _refuse(self._given)

    def grow(self, topic: str, partitions: int) -> None:
        _refuse(self._given)

    def terminate(self, topic: str) -> None:
        _refuse(self._given)

    def stats(self, topic: str) -> dict[str, Any]:
        name = topic.removeprefix(PREFIX)
        return {"topic": name, "partitions": self._client.partitions(name)}
