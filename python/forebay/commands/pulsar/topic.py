"""``forebay topic`` with a Pulsar URL: by the protocol, which lists and inspects, or, with the URL of a web
service, by the administration over HTTP."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator
from typing import Any

from forebay._core import protocols
from forebay.commands._shared import topic as shared
from forebay.commands._shared.options import is_web, protocol_of_topic, scopes
from forebay.commands._shared.web import Web
from forebay.errors import Unsupported
from forebay.pulsar import blocking
from forebay.pulsar._positions import full_name

from . import existing
from .administration import Administration


def run(given: argparse.Namespace) -> int:
    """Lists, creates, deletes or inspects."""
    return shared.run(given, _broker)


@contextlib.contextmanager
def _broker(given: argparse.Namespace) -> Generator[shared.Place, None, None]:
    options = scopes(given.options, "pulsar")["client"]
    if is_web(given.url):
        name = given.namespace if given.action == "ls" else given.topic
        if protocol := protocol_of_topic(name):
            # Pulsar would make topics of such names.
            protocols.PROTOCOLS[protocol].module("topic").refuse(given)
        yield Administration(Web(given.url, options))
    else:
        with blocking.connect(given.url, **options) as client:
            yield _Wire(client)


class _Wire:
    def __init__(self, client: blocking.PulsarClient) -> None:
        self._client = client

    def ls(self, namespace: str) -> list[str]:
        return self._client.topics(namespace)

    def create(self, topic: str, partitions: int) -> None:
        raise _unsupported(
            "create topics, except plain ones on first use", ", `forebay broker --topic NAME=PARTITIONS`"
        )

    def rm(self, topic: str) -> None:
        raise _unsupported("delete topics")

    def grow(self, topic: str, partitions: int) -> None:
        raise _unsupported("add partitions")

    def terminate(self, topic: str) -> None:
        raise _unsupported("terminate topics")

    def stats(self, topic: str) -> dict[str, Any]:
        partitions = self._client.partitions(topic)
        with existing.reader(self._client, topic, position="latest") as reader:
            last = {str(last.partition): str(last) for last in reader.last_message_ids()}
        return {"topic": full_name(topic), "partitions": partitions, "last_message_ids": last}


def _unsupported(verb: str, more: str = "") -> Unsupported:
    return Unsupported(
        f"Pulsar's protocol cannot {verb}: use the web service, -u http://HOST:8080{more}, or --data DIR"
        " (embedded broker that is not running)"
    )
