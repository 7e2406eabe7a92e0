"""The counters of clients in the text format of Prometheus."""

from __future__ import annotations

import re
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"(?:\{(?P<labels>(?:[a-z_]+=\"(?:[^\"\\\n]|\\[\\\"n])*\",?)+)\})? (?P<value>\S+)\Z"
)


def parsed(text: str) -> dict[str, float]:
    """The samples by name and labels; each name has been described once, before its samples."""
    assert text.endswith("\n") and not text.endswith("\n\n")
    types: dict[str, str] = {}
    helps: set[str] = set()
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helps and len(line.split(" ", 3)[3]) > 10
            helps.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helps and name not in types and kind in {"counter", "gauge", "summary"}
            types[name] = kind
        else:
            match = LINE.match(line)
            assert match, line
            base = re.sub(r"_(sum|count)\Z", "", match["name"])
            assert match["name"] in types or types.get(base) == "summary", line
            sample = match["name"] + (f"{{{match['labels']}}}" if match["labels"] else "")
            assert sample not in samples
            samples[sample] = float(match["value"])
    return samples


async def test_each_line_is_of_the_format_and_counts(broker: Any) -> None:
    protocol = broker.url.partition(":")[0]
    topic = broker.topic()
    async with forebay.connect(broker.url) as client:
        before = parsed(client.metrics())
        assert before[f"{protocol}_client_messages_published"] == 0
        assert before[f"{protocol}_client_connections_opened"] >= 1
        async with client.producer(topic) as producer:
            await producer.send_many([b"abc"] * 5)
            samples = parsed(client.metrics())
            assert samples[f"{protocol}_client_messages_published"] == 5
            assert samples[f"{protocol}_client_producers"] == 1
            assert samples[f"{protocol}_client_producer_pending_messages"] == 0
            assert samples[f"{protocol}_client_producer_latency_seconds_count"] >= 1
            assert samples[f'{protocol}_client_producer_latency_seconds{{quantile="0.99"}}'] > 0
        assert parsed(client.metrics())[f"{protocol}_client_producers"] == 0
        assert parsed(client.metrics())[f"{protocol}_client_messages_published"] == 5


async def test_more_topics_are_no_more_lines(broker: Any) -> None:
    async with forebay.connect(broker.url) as client:
        before = len(client.metrics())
        producers = [await client.producer(broker.topic()) for _ in range(4)]
        assert len(client.metrics().splitlines()) == len(parsed(client.metrics())) + 2 * (
            len({line.split(" ")[2] for line in client.metrics().splitlines() if line.startswith("# TYPE")})
        )
        assert abs(len(client.metrics()) - before) < 50
        for producer in producers:
            await producer.close()


async def test_labels_are_escaped(broker: Any) -> None:
    protocol = broker.url.partition(":")[0]
    async with forebay.connect(broker.url) as client:
        samples = parsed(client.metrics(client='a "b"\\c\nd', zone=7))
        assert f'{protocol}_client_reconnects{{client="a \\"b\\"\\\\c\\nd",zone="7"}}' in samples
        for name in ("no-dash", "0", "__private", "quantile", "a\n"):
            with pytest.raises(errors.InvalidArgument, match="label"):
                client.metrics(**{name: "x"})


def test_the_blocking_face(broker: Any) -> None:
    protocol = broker.url.partition(":")[0]
    with connect_blocking(broker.url) as client:
        assert parsed(client.metrics())[f"{protocol}_client_connections_opened"] >= 1
