"""The list of ``forebay subscriptions``."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from forebay.broker import Broker
from forebay.errors import Error, TopicNotFound

from . import prometheus
from .display import printable
from .options import protocol_of_topic
from .web import Web


class Row(NamedTuple):
    """A subscription, or a group of TubeMQ; of a partitioned topic the sums."""

    topic: str
    subscription: str
    type: str
    backlog: int
    unacknowledged: int
    consumers: int


def run(given: argparse.Namespace, rows: Callable[[argparse.Namespace], Iterable[Row]]) -> int:
    """Prints the list.

    Args:
        given: the parsed arguments.
        rows: the subscriptions at the URL; not called with ``--data``.
    """
    found = list(_of_store(given) if given.data else rows(given))
    if given.json:
        print(json.dumps([row._asdict() for row in found]))
    elif found:
        print(table(Row._fields, found))
    return 0


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns for people: texts to the left, numbers to the right."""
    texts = [
        list(titles),
        *([f"{cell:,}" if isinstance(cell, int) else printable(cell) for cell in row] for row in rows),
    ]
    widths = [max(len(text) for text in column) for column in zip(*texts, strict=True)]
    right = [isinstance(cell, int) for cell in rows[0]] if rows else []
    lines: list[str] = []
    for row in texts:
        cells = (
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def groups(web: Web, names: Sequence[str]) -> Iterator[Row]:
    """The groups of TubeMQ at an embedded broker; there are none at others.

    Args:
        web: its web service.
        names: of the topics; all if there are none.

    Raises:
        TopicNotFound: a topic has no groups.
    """
    if not names and not _is_ours(web):
        return
    figures = prometheus.scraped(web)
    found = {
        (labels["topic"], labels["subscription"])
        for labels, _ in figures.get("forebay_subscription_backlog_entries", ())
        if labels.get("protocol") == "tubemq"
    }
    for name in names:
        if not any(topic == name for topic, _ in found):
            raise TopicNotFound("the broker shows no group of this topic", topic=name)

    def figure(name: str, topic: str, group: str) -> int:
        wanted = {"topic": topic, "subscription": group}
        return int(sum(value for labels, value in figures.get(name, ()) if labels.items() >= wanted.items()))

    for topic, group in sorted(found):
        if not names or topic in names:
            yield Row(
                topic,
                group,
                "group",
                figure("forebay_subscription_backlog_entries", topic, group),
                figure("forebay_subscription_unacknowledged_messages", topic, group),
                figure("forebay_subscription_consumers", topic, group),
            )


def _is_ours(web: Web) -> bool:
    """Whether the broker is an embedded one."""
    with contextlib.suppress(Error):
        return web.ask("GET", ["admin", "v2", "brokers", "version"]).body.startswith(b"Forebay")
    return False


def _of_store(given: argparse.Namespace) -> Iterator[Row]:
    # A broker loads the topics of a protocol only when it listens for it.
    with Broker(data=given.data, tubemq_port=0) as broker:
        for topic in given.topics or _in_namespace(broker.topics(), given.namespace):
            sums: dict[tuple[str, str], list[int]] = {}
            for one in broker.topic_stats(topic)["subscriptions"]:
                figures = sums.setdefault((one["name"], one["type"]), [0, 0, 0])
                figures[0] += one["backlog"]
                figures[1] += sum(consumer["unacked"] for consumer in one["consumers"])
                figures[2] += len(one["consumers"])
            for (name, type), figures in sorted(sums.items()):
                yield Row(topic, name, type, *figures)


def _in_namespace(names: Iterable[str], namespace: str) -> list[str]:
    start = f"persistent://{namespace}/"
    return [name for name in names if protocol_of_topic(name) or name.startswith(start)]
