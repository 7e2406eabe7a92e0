"""The text format of Prometheus for the counters of a client, for both faces and every protocol.

The number of lines is that of the counters, whatever the number of topics: there is no label for a topic or a
consumer. Names are those of Pulsar's Go client where it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forebay.errors import InvalidArgument

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the text, for an HTTP response."""


class Metric(NamedTuple):
    """One metric: its name behind the prefix, its type, the key in ``stats()``, and its help."""

    name: str
    type: str
    key: str
    help: str


METRICS = (
    Metric("messages_published", "counter", "messages_sent", "Messages that the broker has acknowledged."),
    Metric("bytes_published", "counter", "bytes_sent", "Bytes of acknowledged messages."),
    Metric("producer_errors", "counter", "messages_failed", "Messages that failed."),
    Metric("producer_pending_messages", "gauge", "messages_pending", "Messages without an answer."),
    Metric("memory_used_bytes", "gauge", "memory_used_bytes", "Bytes of messages without an answer."),
    Metric("messages_received", "counter", "messages_received", "Messages taken for the application."),
    Metric("bytes_received", "counter", "bytes_received", "Bytes of the payloads of received messages."),
    Metric(
        "consumer_prefetched_messages",
        "gauge",
        "messages_prefetched",
        "Messages taken for the application that wait for it.",
    ),
    Metric("consumer_acks", "counter", "messages_acknowledged", "Acknowledgements by the application."),
    Metric("consumer_nacks", "counter", "messages_refused", "Negative acknowledgements by the application."),
    Metric("redeliveries", "counter", "redelivered", "Messages that the broker marked as delivered before."),
    Metric("connected", "gauge", "connected", "Whether there is a connection."),
    Metric("connections_opened", "counter", "connections_opened", "Connections that a broker accepted."),
    Metric("connections_closed", "counter", "connections_closed", "Connections that ended."),
    Metric(
        "connections_establishment_errors", "counter", "connect_failures", "Attempts to connect that failed."
    ),
    Metric("reconnects", "counter", "reconnects", "Connections that followed a lost one."),
    Metric("resubscriptions", "counter", "resubscribed", "Subscriptions that were made again."),
    Metric("producers", "gauge", "producers", "Open producers."),
    Metric("consumers", "gauge", "consumers", "Open consumers."),
    Metric(
        "log_records_dropped",
        "counter",
        "log_records_dropped",
        "Log records of this process that were dropped, because handlers were too slow.",
    ),
    # Of one protocol.
    Metric("consumer_dlq_messages", "counter", "dead_letters", "Messages sent to a dead letter topic."),
    Metric(
        "consumer_dlq_errors", "counter", "dead_letters_failed", "Attempts to send a dead letter that failed."
    ),
    Metric("consumer_retried_messages", "counter", "retried", "Messages sent to a topic of retries."),
    Metric("lookup_count", "counter", "lookups", "Lookups: brokers, partitions, schemas, lists of topics."),
    Metric("lookup_errors", "counter", "lookups_failed", "Lookups that failed."),
    Metric("unreadable_entries", "counter", "unreadable_entries", "Entries that could not be read."),
    Metric("ended_topics", "counter", "ended_topics", "Topics that ended while their consumer went on."),
    Metric("damaged_messages", "counter", "damaged_messages", "Messages whose checksum did not match."),
    Metric("unclaimed_messages", "gauge", "unclaimed_messages", "Messages that no open consumer claims."),
    Metric("unclaimed_dropped", "counter", "unclaimed_dropped", "Unclaimed messages that were dropped."),
    Metric(
        "copies_dropped",
        "counter",
        "copies_dropped",
        "Copies of messages that their consumers got by another of their filters.",
    ),
    Metric("births", "counter", "births", "Birth messages that were published."),
    Metric("births_refused", "counter", "births_refused", "Birth messages that were refused."),
    Metric("outbox_messages", "gauge", "outbox_messages", "Messages in the outbox."),
    Metric("outbox_bytes", "gauge", "outbox_bytes", "Bytes of the messages in the outbox."),
    Metric("outbox_refused", "counter", "outbox_refused", "Messages of the outbox that the broker refused."),
    Metric("outbox_expired", "counter", "outbox_expired", "Messages of the outbox that expired."),
)

LATENCIES = {
    "send_latency": (
        "producer_latency_seconds",
        "Seconds from a send to the broker's answer, one message at a time.",
    ),
    "lookup_latency": ("lookup_duration_seconds", "Seconds of lookups that succeeded."),
}
QUANTILES = {"0.5": "p50", "0.9": "p90", "0.99": "p99", "0.999": "p999"}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


def label_text(labels: Mapping[str, object]) -> str:
    """Labels as they stand between braces.

    Raises:
        InvalidArgument: a name of a label that Prometheus does not take.
    """
    for name in labels:
        if not _NAME.match(name) or name.startswith("__") or name == "quantile":
            raise InvalidArgument(
                f"metrics: {name!r} cannot be the name of a label: use letters, digits and _"
            )
    # The order in which the format wants them escaped: the backslash first.
    escaped = (
        (name, str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in labels.items()
    )
    return ",".join(f'{name}="{value}"' for name, value in escaped)


def _lines(prefix: str, stats: Mapping[str, Any], labels: str) -> Iterator[str]:
    braces = f"{{{labels}}}" if labels else ""
    for metric in METRICS:
        value = stats.get(metric.key)
        if value is not None:
            name = f"{prefix}_{metric.name}"
            yield f"# HELP {name} {metric.help}"
            yield f"# TYPE {name} {metric.type}"
            yield f"{name}{braces} {int(value)}"
    for key, (metric_name, text) in LATENCIES.items():
        if f"{key}_count" not in stats:
            continue
        name = f"{prefix}_{metric_name}"
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} summary"
        for quantile, share in QUANTILES.items():
            value = stats[f"{key}_{share}"]
            both = ",".join(filter(None, (labels, f'quantile="{quantile}"')))
            yield f"{name}{{{both}}} {'NaN' if value is None else value}"
        yield f"{name}_sum{braces} {stats[f'{key}_sum']}"
        yield f"{name}_count{braces} {stats[f'{key}_count']}"


def text(key: str, stats: Mapping[str, Any], labels: Mapping[str, object]) -> str:
    """The metrics of a client.

    Args:
        key: the protocol's key, the beginning of the names.
        stats: the client's counters, with the sums over its open handles.
        labels: labels of every line.

    Raises:
        InvalidArgument: a name of a label that Prometheus does not take.
    """
    return "\n".join(_lines(f"{key}_client", stats, label_text(labels))) + "\n"
