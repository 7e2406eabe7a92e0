"""``forebay subscriptions`` with the URL of a web service: those of Pulsar, and groups of TubeMQ at the
embedded broker."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence

from forebay.commands._shared import subscriptions as shared
from forebay.commands._shared.options import is_web, protocol_of_topic, scopes
from forebay.commands._shared.subscriptions import Row
from forebay.commands._shared.web import Web
from forebay.errors import TopicNotFound, Unsupported
from forebay.pulsar._positions import full_name

from .administration import Administration


def run(given: argparse.Namespace) -> int:
    """Lists."""
    return shared.run(given, _rows)


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    if not is_web(given.url):
        raise Unsupported(
            "Pulsar's protocol does not list subscriptions: use the web service, -u http://HOST:8080, or"
            " --data DIR (embedded broker that is not running)"
        )
    web = Web(given.url, scopes(given.options, "pulsar")["client"])
    asked = Administration(web)
    groups = [name for name in given.topics if protocol_of_topic(name)]
    names = [full_name(name) for name in given.topics if not protocol_of_topic(name)]
    for topic in names or ([] if groups else _whole(asked.ls(given.namespace))):
        try:
            figures = asked.stats(topic)["subscriptions"]
        except TopicNotFound:
            # It may have been deleted since it was listed.
            if names:
                raise
            continue
        for name, one in sorted(figures.items()):
            yield Row(
                topic,
                name,
                str(one.get("type", "")),
                int(one.get("msgBacklog", 0)),
                int(one.get("unackedMessages", 0)),
                len(one.get("consumers", ())),
            )
    if groups or not names:
        yield from shared.groups(web, groups)


def _whole(names: Sequence[str]) -> list[str]:
    """The topics, with one name for all partitions of each."""
    return sorted({re.sub(r"-partition-\d+$", "", name) for name in names})
