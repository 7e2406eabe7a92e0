"""``penstock topic`` with a TubeMQ URL: the protocol can inspect topics, and nothing else."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator
from typing import Any, NoReturn

from penstock.commands._shared import topic as shared
from penstock.commands._shared.options import scopes
from penstock.errors import Unsupported
from penstock.tubemq import blocking

_PREFIX = "tubemq:"
"""The beginning of TubeMQ topic names in the store of the embedded broker."""
_WEB_API = "the master's web API (port 8080, /webapi.htm) lists, adds and deletes topics"


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
    if given.action == "ls":
        verb, embedded = "list", "`penstock topic ls tubemq: --data DIR`"
    else:
        verb = "create" if given.action == "create" else "delete"
        name = given.topic.removeprefix(_PREFIX)
        more = f" -p {given.partitions or 1}" if given.action == "create" else ""
        embedded = f"`penstock topic {given.action} {_PREFIX}{name}{more} --data DIR`"
        if given.action == "create":
            embedded = f"`penstock broker --topic {_PREFIX}{name}={given.partitions or 1}` or {embedded}"
    raise Unsupported(
        f"TubeMQ's protocol cannot {verb} topics. Embedded broker: {embedded} while it is stopped. "
        f"Real server: {_WEB_API}"
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
        raise Unsupported(f"{topic!r} is a TubeMQ topic: only topics of Pulsar can grow")

    def terminate(self, topic: str) -> None:
        raise Unsupported(f"{topic!r} is a TubeMQ topic: only topics of Pulsar can be terminated")

    def stats(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "partitions": self._client.partitions(topic)}
