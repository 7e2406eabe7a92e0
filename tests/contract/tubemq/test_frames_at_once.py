"""Topics of TubeMQ read as tables and as streams of batches in one call: ``forebay.frames``."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from forebay import blocking, errors, frames
from forebay.tubemq._offsets import UNIT

from support.tubemq.harness import TubeMqService

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def door(tube: TubeMqService) -> Iterator[Any]:
    """A blocking client of ``tube``."""
    with blocking.connect(tube.url) as client:
        yield client


def fill(door: Any, topic: str, count: int, start: int = 0, **options: Any) -> Any:
    with door.producer(topic, **options) as producer:
        return producer.send_many([b"%d" % number for number in range(start, start + count)])


def numbers(table: pa.Table) -> list[int]:
    return [int(value) for value in table["value"].to_pylist()]


def test_a_topic_is_a_table(door: Any, tube: TubeMqService) -> None:
    topic = tube.topic()
    moment = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)
    with door.producer(topic) as producer:
        producer.send(b"v", key="k", properties={"a": "1"}, event_time=moment, message_type="till")
        producer.send(b"plain")
    table = frames.read(tube.url, topic)
    assert table.column_names == [
        *("value", "key", "topic", "message_type", "event_time", "broker_id", "partition", "offset"),
        "properties",
    ]
    first, plain = table.to_pylist()
    assert first == {
        "value": b"v",
        "key": "k",
        "topic": topic,
        "message_type": "till",
        "event_time": moment,
        "broker_id": 1,
        "partition": 0,
        "offset": 0,
        "properties": [("a", "1")],
    }
    assert plain == {
        "value": b"plain",
        "key": None,
        "topic": topic,
        "message_type": None,
        "event_time": None,
        "broker_id": 1,
        "partition": 0,
        "offset": UNIT,
        "properties": [],
    }
    more = frames.read(tube.url, topic, columns=["message_id", "key_bytes"])
    assert more.column_names == ["message_id", "key_bytes"]
    assert more["key_bytes"].to_pylist() == [b"k", None]


@pytest.mark.parametrize("columns", [None, "kafka", ["partition", "message_id", "value"]])
def test_an_empty_range_has_the_columns_of_one_with_rows(
    door: Any, tube: TubeMqService, columns: Any
) -> None:
    topic = tube.topic()
    assert frames.read(tube.url, topic, columns=columns).num_rows == 0, "an empty topic"
    fill(door, topic, 3)
    full = frames.read(tube.url, topic, columns=columns)
    empty = frames.read(tube.url, topic, columns=columns, start="latest")
    assert (full.num_rows, empty.num_rows) == (3, 0)
    scanned = frames.scan(tube.url, topic, columns=columns)
    # A batch of the engine, and not what a table makes of it.
    assert next(iter(scanned)).schema == empty.schema == full.schema == scanned.schema


def test_partitions_follow_each_other(door: Any, tube: TubeMqService) -> None:
    topic = tube.topic(3)
    fill(door, topic, 3_000)
    table = frames.read(tube.url, topic)
    assert sorted(numbers(table)) == list(range(3_000))
    partitions = table["partition"].to_pylist()
    assert partitions == sorted(partitions) and set(partitions) == tube.numbers(3)
    for partition in tube.numbers(3):
        part = numbers(table.filter(pc.field("partition") == partition))
        assert part == sorted(part)


def test_from_one_offset_to_another(door: Any, tube: TubeMqService) -> None:
    topic = tube.topic()
    fill(door, topic, 100)
    for first, last in ((0, 100), (3, 40), (41, 41), (41, 42), (0, 9999)):
        start, end = ({topic: {"1:0": place * UNIT}} for place in (first, last))
        assert numbers(frames.read(tube.url, topic, start=start, end=end)) == list(range(100)[first:last])
        assert numbers(frames.read(tube.url, topic, start=json.dumps(start), end=json.dumps(end))) == list(
            range(100)[first:last]
        )
    assert frames.read(tube.url, topic, start="earliest", end="latest").num_rows == 100
    assert frames.read(tube.url, topic, start={topic: "latest"}).num_rows == 0
    beyond = {topic: {"1:0": 200 * UNIT}}
    with pytest.raises(errors.DataLost, match=f"{topic} 1:0 ends at offset 2800, before 5600"):
        frames.read(tube.url, topic, start=beyond)
    assert frames.read(tube.url, topic, start=beyond, fail_on_data_loss=False).num_rows == 0
    for wrong, text in (
        ({topic: {"1:7": "latest"}}, "start: .* has no partition 1:7"),
        ({"other": {"1:0": "latest"}}, "start: 'other' is not read"),
    ):
        with pytest.raises(errors.InvalidArgument, match=text):
            frames.read(tube.url, topic, start=wrong)


def test_several_topics_and_some_types(door: Any, tube: TubeMqService) -> None:
    first, second = tube.topic(), tube.topic(3)
    fill(door, first, 10)
    with door.producer(second) as producer:
        for number in range(10, 40):
            producer.send(b"%d" % number, message_type=("till", "web", "other")[number % 3])
    assert sorted(numbers(frames.read(tube.url, [first, second]))) == list(range(40))
    assert sorted(numbers(frames.read(tube.url, second, filters="web,other"))) == [
        number for number in range(10, 40) if number % 3
    ]


def test_a_topic_that_does_not_exist(tube: TubeMqService) -> None:
    for function in (frames.read, frames.scan):
        with pytest.raises(errors.TopicNotFound, match="nowhere"):
            function(tube.url, "nowhere")


def test_a_scan_has_the_same_rows_each_time(door: Any, tube: TubeMqService) -> None:
    topic = tube.topic(3)
    fill(door, topic, 12_000)
    scanned = frames.scan(tube.url, topic)
    fill(door, topic, 100, start=12_000)
    assert sorted(numbers(scanned.read_all())) == list(range(12_000)), "what is sent later is not read"
    assert duckdb.sql("select count(distinct value) from scanned").fetchall() == [(12_000,)]
    with scanned:
        left = iter(scanned)
        next(left)
    with pytest.raises(errors.Closed):
        list(left)


def test_large_messages(door: Any, tube: TubeMqService) -> None:
    topic = tube.topic()
    with door.producer(topic) as producer:
        producer.send_many([b"x" * 100_000] * 100)
    sizes = [batch.nbytes for batch in frames.scan(tube.url, topic)]
    assert len(sizes) > 1 and max(sizes) < 6 << 20 and sum(sizes) > 10_000_000


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"start": "middle"}, "start: expected"),
        ({"start": 28}, "start: 28 is no position"),
        ({"start": {"a": {"1:0": 27}}}, "multiples of 28"),
        ({"end": "earliest"}, "end: expected"),
        ({"start": "-2h"}, "start: '-2h' is a time. TubeMQ's brokers find"),
        ({"end": datetime.timedelta(hours=1)}, "is a time"),
        ({"topic": re.compile("a.*")}, "do not list topics"),
        ({"topic": []}, "expected the name of a topic"),
        ({"topic": 5}, "expected the name of a topic"),
        ({"decode": True}, "have no schemas"),
        ({"columns": "pulsar"}, "columns='pulsar'"),
        ({"columns": ["redelivery_count"]}, "there is no column"),
        ({"position": "first"}, "has no option 'position': use start"),
        ({"auto_ack": True}, "has no option 'auto_ack'"),
    ],
    ids=str,
)
def test_what_is_wrong_shows_before_anything_is_connected(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        frames.read("tubemq://127.0.0.1:1", **{"topic": "a", **wrong})
