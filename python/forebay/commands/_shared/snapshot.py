"""The figures of a broker at a moment, and what happened between two of them."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from .prometheus import Samples

_PARTITION = re.compile(r"-partition-\d+$")


@dataclass
class Traffic:
    """Counters of a protocol, and its connections."""

    connections: float = 0
    received: float = 0
    sent: float = 0
    received_bytes: float = 0
    sent_bytes: float = 0


@dataclass
class Topic:
    """A topic with all its partitions."""

    received: float = 0
    producers: float = 0


@dataclass
class Subscription:
    """A subscription, or a group of TubeMQ, in all partitions of its topic."""

    backlog: float = 0
    unacknowledged: float = 0
    consumers: float = 0


@dataclass
class Snapshot:
    """All figures of a moment.

    Attributes:
        at: when, by the monotonic clock.
        broker: version and other figures of the whole broker, those that it tells.
        protocols: by their names.
        topics: by their names.
        subscriptions: by topic and name.
        omitted: topics that the broker has left out.
    """

    at: float
    broker: dict[str, Any] = field(default_factory=dict[str, Any])
    protocols: dict[str, Traffic] = field(default_factory=dict[str, Traffic])
    topics: dict[str, Topic] = field(default_factory=dict[str, Topic])
    subscriptions: dict[tuple[str, str], Subscription] = field(
        default_factory=dict[tuple[str, str], Subscription]
    )
    omitted: int = 0


# Metric -> what it is an attribute of, and which.
_TRAFFIC = {
    "forebay_broker_connections": "connections",
    "forebay_broker_received_messages_total": "received",
    "forebay_broker_sent_messages_total": "sent",
    "forebay_broker_received_bytes_total": "received_bytes",
    "forebay_broker_sent_bytes_total": "sent_bytes",
    "pulsar_active_connections": "connections",
    "pulsar_in_messages_total": "received",
    "pulsar_out_messages_total": "sent",
    "pulsar_in_bytes_total": "received_bytes",
    "pulsar_out_bytes_total": "sent_bytes",
}
_TOPICS = {
    "forebay_topic_received_messages_total": "received",
    "forebay_topic_producers": "producers",
    "pulsar_in_messages_total": "received",
    "pulsar_producers_count": "producers",
}
_SUBSCRIPTIONS = {
    "forebay_subscription_backlog_entries": "backlog",
    "forebay_subscription_unacknowledged_messages": "unacknowledged",
    "forebay_subscription_consumers": "consumers",
    "pulsar_subscription_back_log": "backlog",
    "pulsar_subscription_unacked_messages": "unacknowledged",
    "pulsar_subscription_consumers_count": "consumers",
}
_BROKER = {
    "forebay_broker_uptime_seconds": "uptime",
    "forebay_broker_store_bytes": "store_bytes",
    "forebay_broker_store_limit_bytes": "store_limit_bytes",
    "forebay_broker_store_writable": "store_writable",
    "forebay_broker_disk_free_bytes": "disk_free_bytes",
    "pulsar_broker_storage_size": "store_bytes",
}
_VERSIONS = ("forebay_broker_info", "pulsar_version_info")


def taken(samples: Samples) -> Snapshot:
    """The snapshot of what a broker tells now: an embedded one, or a Pulsar."""
    found = Snapshot(time.monotonic())
    for metric, attribute in _TRAFFIC.items():
        for labels, value in samples.get(metric, ()):
            _add(found.protocols.setdefault(labels.get("protocol", "pulsar"), Traffic()), attribute, value)
    for metric, attribute in _TOPICS.items():
        for labels, value in samples.get(metric, ()):
            _add(found.topics.setdefault(_whole(labels), Topic()), attribute, value)
    for metric, attribute in _SUBSCRIPTIONS.items():
        for labels, value in samples.get(metric, ()):
            key = (_whole(labels), labels.get("subscription", ""))
            _add(found.subscriptions.setdefault(key, Subscription()), attribute, value)
    for metric, name in _BROKER.items():
        if metric in samples:
            found.broker[name] = sum(value for _, value in samples[metric])
    for metric in _VERSIONS:
        for labels, _ in samples.get(metric, ()):
            found.broker["version"] = f"{metric.partition('_')[0]} {labels.get('version', '')}".strip()
    found.omitted = int(sum(value for _, value in samples.get("forebay_broker_topics_omitted", ())))
    return found


def _whole(labels: dict[str, str]) -> str:
    return _PARTITION.sub("", labels.get("topic", ""))


def _add(to: Any, attribute: str, value: float) -> None:
    # Brokers write NaN where they have no figure.
    if value == value:
        setattr(to, attribute, getattr(to, attribute) + value)


def changes(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """The figures for people and ``--json``: rates are those between two snapshots."""
    seconds = max(after.at - before.at, 1e-9)

    def rate(now: float, then: float) -> float:
        # A broker that has started again counts from 0.
        return round((now - then if now >= then else now) / seconds, 1)

    none, no_topic = Traffic(), Topic()
    protocols = [
        {
            "protocol": name,
            "connections": int(now.connections),
            **{
                f"{what}_per_second": rate(
                    getattr(now, what), getattr(before.protocols.get(name, none), what)
                )
                for what in ("received", "sent", "received_bytes", "sent_bytes")
            },
        }
        for name, now in after.protocols.items()
    ]
    subscriptions: dict[str, list[dict[str, Any]]] = {}
    for (topic, name), one in sorted(after.subscriptions.items()):
        figures = {
            "subscription": name,
            "backlog": int(one.backlog),
            "unacknowledged": int(one.unacknowledged),
            "consumers": int(one.consumers),
        }
        subscriptions.setdefault(topic, []).append(figures)
    topics = [
        {
            "topic": name,
            # A topic that is new has been counted from 0.
            "received_per_second": rate(now.received, before.topics.get(name, no_topic).received),
            "producers": int(now.producers),
            "subscriptions": subscriptions.get(name, []),
        }
        for name, now in after.topics.items()
    ]
    topics.sort(key=_importance)
    return {"broker": after.broker, "protocols": protocols, "topics": topics, "omitted": after.omitted}


def _importance(topic: dict[str, Any]) -> tuple[float, float, str]:
    """The order of topics: the busiest first, then those with the most that waits."""
    backlog = max((one["backlog"] for one in topic["subscriptions"]), default=0)
    return -topic["received_per_second"], -backlog, topic["topic"]
