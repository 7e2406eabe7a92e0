"""Pulsar into Spark: each message is in one row, however the partitions are split, on the embedded broker and
on a real one."""

import datetime
import itertools
import json
import time

import pyarrow as pa
import pytest

import forebay
from forebay import errors
from forebay._core.read_plan import ReadPlan
from forebay.pulsar._ranges import Range, plan, rows
from forebay.spark import register
from forebay.spark._sources.pulsar import read_config

from support.pulsar.chunks import Chunks

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def source(spark, service):
    register(spark)

    def load(topic, **options):
        given = {"url": service.url, "subscribe": topic, **options}
        return (
            spark.read.format("forebay").options(**{name: str(value) for name, value in given.items()}).load()
        )

    return load


def kept(client, topic):
    """Retains messages that are sent before the first subscription."""
    client.consumer(topic, "keep", position="earliest").close()
    return topic


def fill(client, topic, count, **options):
    with client.producer(topic, **options) as producer:
        return producer.send_many([b"%d" % number for number in range(count)])


def values(frame):
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def planned(client, service, topic, **options):
    """The ranges of which each is a partition of Spark."""
    config = read_config({"url": service.url, "subscribe": topic, **options})
    return plan(client, config.read)


def read(client, part, **options):
    """The values of a range."""
    of = ReadPlan([part.topic], timeout=90.0, consumer=options)
    batches = rows(client, of, part, [("value", "value")])
    return [value for batch in batches for value in pa.record_batch(batch).column("value").to_pylist()]


def place(ledger, entry):
    return forebay.pulsar.MessageId.parse(f"({ledger},{entry},-1,-1)")


def pieces(client, service, topic, **options):
    """The numbers in each range."""
    parts = planned(client, service, topic, **options)
    return [[int(value) for value in read(client, part)] for part in parts]


def test_each_message_is_a_row(client, service, source):
    topic = kept(client, service.topic(partitions=3))
    # Without batches each partition gets every third message.
    fill(client, topic, 3_000, batching=False)
    frame = source(topic)
    assert frame.rdd.getNumPartitions() == 3
    assert values(frame) == list(range(3_000))
    # A second look has the same rows.
    assert frame.count() == 3_000
    assert source(topic, minPartitions=7).rdd.getNumPartitions() == len(
        planned(client, service, topic, minPartitions="7")
    )


def test_the_columns_are_those_of_kafka_and_the_message_s_own(client, service, source):
    topic = kept(client, service.topic())
    moment = datetime.datetime(2026, 1, 31, 12, 30, 0, 250_000, tzinfo=datetime.UTC)
    with client.producer(topic, name="p") as producer:
        id = producer.send(b"v", key="k", properties={"a": "1"}, event_time=moment, ordering_key=b"\xff\x00")
        producer.send(b"", null_value=True)
        producer.send(b"")
    frame = source(topic, includeHeaders=True).orderBy("sequenceId")
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        *("messageId", "eventTime", "orderingKey", "producerName", "sequenceId", "schemaVersion", "headers"),
    ]
    first, tombstone, empty = frame.collect()
    assert (bytes(first.key), bytes(first.value), first.partition) == (b"k", b"v", 0)
    assert first.topic == topic and first.producerName == "p" and first.timestampType == 0
    assert bytes(first.orderingKey) == b"\xff\x00"
    assert first.messageId.startswith(f"({id.ledger},{id.entry},")
    assert first.eventTime.astimezone(datetime.UTC) == moment
    assert abs(first.timestamp.timestamp() - time.time()) < 300
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("a", b"1")]
    assert (tombstone.value, tombstone.key, tombstone.headers, tombstone.eventTime) == (
        None,
        None,
        None,
        None,
    )
    assert bytes(empty.value) == b""


def test_the_columns_of_pulsar_spark(client, service, source):
    topic = kept(client, service.topic(partitions=1))
    with client.producer(topic) as producer:
        producer.send(b"v", key="k", properties={"a": "1"})
    (row,) = source(topic, columns="pulsar").collect()
    assert (bytes(row.value), bytes(row["__key"])) == (b"v", b"k")
    assert row["__topic"] == f"{topic}-partition-0" and row["__messageProperties"] == {"a": "1"}
    assert forebay.pulsar.MessageId.from_bytes(bytes(row["__messageId"])).entry >= 0


def test_a_schema_chooses_columns(spark, client, service, source):
    topic = kept(client, service.topic())
    fill(client, topic, 10)
    read = spark.read.format("forebay").option("url", service.url).option("subscribe", topic)
    assert read.schema("value binary").load().columns == ["value"]
    assert read.schema("value binary").load().count() == 10
    for wrong, text in (("value string", "is binary, not string"), ("payload binary", "no column 'payload'")):
        with pytest.raises(Exception, match=text):
            read.schema(wrong).load().collect()


@pytest.mark.parametrize("batching", [True, False])
def test_partitions_are_split_and_each_message_stays_in_one(client, service, batching):
    topic = kept(client, service.topic(partitions=2))
    count = 3_000 if batching else 400
    fill(client, topic, count, batching=batching, batch_max_messages=7)
    for fewest in (2, 7, 64):
        found = pieces(client, service, topic, minPartitions=str(fewest))
        assert len(found) >= fewest
        assert sorted(itertools.chain.from_iterable(found)) == list(range(count))
        assert max(map(len, found)) <= 3 * count / fewest + 7 * 2


def test_a_partition_has_no_more_messages_than_asked_for(client, service):
    topic = kept(client, service.topic())
    fill(client, topic, 1_000, batch_max_messages=10)
    found = pieces(client, service, topic, maxRecordsPerPartition="150")
    assert sorted(itertools.chain.from_iterable(found)) == list(range(1_000))
    assert max(map(len, found)) <= 150


@pytest.mark.parametrize("batching", [True, False])
def test_a_partition_has_about_as_many_bytes_as_asked_for(client, service, batching):
    topic = kept(client, service.topic())
    with client.producer(topic, compression="zstd", batching=batching, batch_max_messages=10) as producer:
        producer.send_many([b"%d" % number + b" " * 997 for number in range(400)])
    found = pieces(client, service, topic, maxBytesPerPartition="100kB")
    assert sorted(itertools.chain.from_iterable(found)) == list(range(400))
    assert len(found) >= 4 and max(map(len, found)) <= 110, "100 messages of 1,000 bytes"
    # The smaller limit counts.
    for size, records in (("100kB", "30"), ("20kB", "100")):
        limits = {"maxBytesPerPartition": size, "maxRecordsPerPartition": records}
        assert max(map(len, pieces(client, service, topic, **limits))) <= 30


def test_messages_in_chunks_are_in_one_partition_each(client, service):
    topic = kept(client, service.topic())
    with client.producer(topic, batching=False, chunking=True, chunk_max_size=1000) as producer:
        for number in range(20):
            producer.send(b"%d" % number + b" " * 5000)
    for options in ({}, {"minPartitions": "5"}, {"minPartitions": "40"}):
        assert sorted(itertools.chain.from_iterable(pieces(client, service, topic, **options))) == list(
            range(20)
        )
    # The bytes of such a message are those of all of its chunks.
    assert 2 <= len(planned(client, service, topic, maxBytesPerPartition="50kB")) <= 4


def test_from_one_id_to_another(client, service, source):
    topic = kept(client, service.topic())
    ids = [str(id) for id in fill(client, topic, 100, batch_max_messages=7)]
    short = topic.rpartition("/")[2]
    for first, last in ((0, 99), (3, 40), (41, 41), (41, 42)):
        frame = source(
            topic,
            startingOffsets=json.dumps({short: {"0": ids[first]}}),
            endingOffsets=json.dumps({topic: {"0": ids[last]}}),
        )
        assert values(frame) == list(range(first + 1, last + 1))
    # As pulsar-spark writes them: the bytes of the id under the full name.
    data = forebay.pulsar.MessageId.parse(ids[50]).to_bytes()
    signed = [byte - 256 if byte > 127 else byte for byte in data]
    assert values(source(topic, startingOffsets=json.dumps({topic: signed}))) == list(range(51, 100))
    assert values(source(topic, startingOffsets=json.dumps({topic: {"0": -2}}))) == list(range(100))
    assert values(source(topic, startingOffsets=json.dumps({topic: {"0": -1}}))) == []
    assert values(source(topic, startingOffsets="latest")) == []


def test_from_one_time_to_another(client, service, source):
    topic = kept(client, service.topic(partitions=2))
    with client.producer(topic, batching=False, routing="round_robin") as producer:
        bounds = []
        for start in (0, 10, 20):
            bounds.append(int(time.time() * 1000) + 2)
            time.sleep(0.01)
            producer.send_many([b"%d" % number for number in range(start, start + 10)])
            time.sleep(0.01)
    late = int(time.time() * 1000) + 3_600_000
    assert values(source(topic, startingTimestamp=bounds[1])) == list(range(10, 30))
    assert values(source(topic, endingTimestamp=bounds[1])) == list(range(10))
    assert values(source(topic, startingTimestamp=bounds[1], endingTimestamp=bounds[2])) == list(
        range(10, 20)
    )
    text = datetime.datetime.fromtimestamp(bounds[2] / 1000, datetime.UTC).isoformat()
    assert values(source(topic, startingTimestamp=text, minPartitions=6)) == list(range(20, 30))
    with pytest.raises(Exception, match="no message published at"):
        source(topic, startingTimestamp=late).collect()
    assert values(source(topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []
    one = json.dumps({topic: {"0": late, "1": bounds[0]}})
    frame = source(topic, startingOffsetsByTimestamp=one, startingOffsetsByTimestampStrategy="latest")
    assert {row.partition for row in frame.select("partition").collect()} == {1}


def test_several_topics_a_pattern_and_single_partitions(spark, client, service, source):
    first, second = kept(client, service.topic()), kept(client, service.topic(partitions=3))
    fill(client, first, 10)
    fill(client, second, 30, routing="round_robin", batching=False)
    short = [topic.rpartition("/")[2] for topic in (first, second)]
    assert source(f"{short[0]}, {second}").count() == 40

    def read(name, value):
        return spark.read.format("forebay").option("url", service.url).option(name, value).load()

    assert read("subscribePattern", f"({'|'.join(short)})").count() == 40
    assigned = read("assign", json.dumps({short[1]: [0, 2]}))
    assert {row.partition for row in assigned.select("partition").collect()} == {0, 2}
    assert read("subscribe", f"{second}-partition-1").count() == 10


def test_nothing_to_read(client, service, source):
    assert source(kept(client, service.topic(partitions=2))).collect() == []


def test_messages_that_were_deleted_before_they_were_read_are_an_error(client, service):
    topic = kept(client, service.topic())
    fill(client, topic, 10)
    (part,) = planned(client, service, topic)
    service.delete_topic(topic)

    def counts(part, *, fails_on_loss):
        of = ReadPlan([topic], timeout=10.0, fails_on_loss=fails_on_loss)
        return [pa.record_batch(batch).num_rows for batch in rows(client, of, part, [("value", "value")])]

    with pytest.raises(errors.DataLost, match="deleted"):
        counts(part, fails_on_loss=True)
    assert counts(part, fails_on_loss=False) == []
    assert topic not in client.topics(), "reading did not make it again"
    # Made again, it ends before the range does.
    fill(client, kept(client, topic), 3)
    beyond = Range(topic, None, False, place(part.end.ledger + 10**9, 0))
    with pytest.raises(errors.DataLost, match="messages were deleted"):
        counts(beyond, fails_on_loss=True)
    assert sum(counts(beyond, fails_on_loss=False)) == 3


def test_a_range_ends_with_a_chunk_that_is_no_message(client, service):
    topic = kept(client, service.topic())
    with client.producer(topic, batching=False, chunking=True, chunk_max_size=500) as producer:
        id = producer.send(b"x" * 1200)
    assert id.entry == 2, "three chunks"
    part = Range(topic, place(id.ledger, 0), False, place(id.ledger, 2))
    started = time.monotonic()
    assert list(rows(client, ReadPlan([topic], timeout=90.0), part, [("value", "value")])) == []
    assert time.monotonic() - started < 55, "no message was waited for"


def test_messages_in_chunks_that_overlap_are_in_the_range_of_their_first_one(client, service):
    topic = kept(client, service.topic())
    chunks = Chunks(service, topic)
    for uuid, number in (("a", 0), ("b", 0), ("a", 1), ("c", 0), ("b", 1), ("c", 1)):
        chunks.send(uuid, number, 2)
    with client.reader(topic, position="latest") as reader:
        ledger = reader.last_message_ids()[0].ledger
    # Each of a, b and c begins in a range of its own.
    cuts = [None, place(ledger, 0), place(ledger, 2), place(ledger, 5)]
    found = [len(read(client, Range(topic, first, False, last))) for first, last in itertools.pairwise(cuts)]
    assert found == [1, 1, 1]


def test_a_message_that_was_never_completed_is_left_out(client, service):
    topic = kept(client, service.topic())
    fill(client, topic, 5)
    chunks = Chunks(service, topic)
    chunks.send("abandoned", 0, 2, age=3600)
    for options in ({}, {"minPartitions": "3"}):
        started = time.monotonic()
        assert sorted(itertools.chain.from_iterable(pieces(client, service, topic, **options))) == list(
            range(5)
        )
        assert time.monotonic() - started < 55, "its rest was waited for, for a minute"
    # One that is young is waited for.
    chunks.send("young", 0, 2)
    (part,) = planned(client, service, topic)
    started = time.monotonic()
    assert len(read(client, part, chunked_message_timeout=2.0)) == 5
    assert 1 < time.monotonic() - started < 55


def test_a_time_at_a_message_in_chunks_is_that_of_all_of_it(client, service, source):
    topic = kept(client, service.topic())
    with client.producer(topic, batching=False, chunking=True, chunk_max_size=500) as producer:
        producer.send(b"1")
        time.sleep(0.02)
        bound = int(time.time() * 1000)
        time.sleep(0.02)
        producer.send(b"2" * 1200)
    large = int(b"2" * 1200)
    assert values(source(topic, startingTimestamp=bound)) == [large]
    assert values(source(topic, endingTimestamp=bound)) == [1]


def test_partitions_are_read_once_however_often_they_are_named(spark, client, service, source):
    topic = kept(client, service.topic(partitions=2))
    fill(client, topic, 10, routing="round_robin", batching=False)
    assert source(f"{topic},{topic}-partition-0,{topic}").count() == 10

    def count(name, value):
        return spark.read.format("forebay").option("url", service.url).option(name, value).load().count()

    assert count("assign", json.dumps({topic: [1, 1]})) == 5
    # An alternative without a group is one of names.
    assert count("subscribePattern", f"{topic.rpartition('/')[2]}|none") == 10
    assert count("subscribePattern", "no-such-topic-.*") == 0


def test_positions_for_a_whole_topic(client, service, source):
    topic = kept(client, service.topic(partitions=2))
    fill(client, topic, 10, routing="round_robin", batching=False)
    late = int(time.time() * 1000) + 3_600_000
    assert values(source(topic, startingOffsets=json.dumps({topic: "latest"}))) == []
    at = source(
        topic,
        startingOffsetsByTimestamp=json.dumps({topic: late}),
        startingOffsetsByTimestampStrategy="latest",
    )
    assert values(at) == []
    for wrong, text in (
        ({topic: "(1,2,0,-1)"}, "has partitions"),
        ({topic: {"7": "latest"}}, "has no partition 7"),
        ({"other": {"0": "latest"}}, "is not read"),
        ({topic: {"0": "(1,2,1,-1)"}}, "another partition"),
    ):
        with pytest.raises(Exception, match=text):
            source(topic, startingOffsets=json.dumps(wrong)).collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give one of the options"),
        ({"subscribe": "a", "assign": "{}"}, "not subscribe and assign"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "a", "connecttimeoutms": "1000"}, "use connect_timeout=, in seconds"),
        ({"subscribe": "a", "topic": "b"}, "given twice"),
        ({"subscribe": "a", "startingOffsets": "middle"}, "startingOffsets: expected"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": "middle"}}'}, "not a message id"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": "latest"}}'}, "no number of a partition"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets: expected"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "cannot end at"),
        ({"subscribe": "a", "startingTimestamp": "soon"}, "startingTimestamp: 'soon' is no time"),
        ({"subscribe": "a", "startingTimestamp": "-5"}, "startingTimestamp: -5 is no time"),
        ({"subscribe": "a", "startingTimestamp": "1969-01-01T00:00:00Z"}, "1969.* is no time"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": "(-1,-1,-1,-1)"}}'}, "cannot end at"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions"),
        ({"subscribe": "a", "columns": "all"}, "columns"),
        ({"subscribe": "a", "maxBytesPerPartition": "0"}, "at least 1 byte"),
        ({"subscribe": "a", "maxBytesPerTrigger": "much"}, "maxBytesPerTrigger: expected a size"),
        ({"subscribe": "a", "token": "secret"}, "plain text"),
        ({"subscribe": "a", "position": "earliest"}, "use startingOffsets"),
        ({"assign": '{"a": ["x"]}'}, "a list of the numbers"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_said_on_the_driver(options, text):
    with pytest.raises(errors.InvalidArgument, match=text):
        read_config({"url": "pulsar://localhost:1", **options})


def test_options_of_the_other_form_are_refused():
    of = {"url": "pulsar://localhost:1", "subscribe": "a"}
    with pytest.raises(errors.InvalidArgument, match=r"'subscription' is for streams"):
        read_config({**of, "subscription": "s"}, "batch")
    with pytest.raises(errors.InvalidArgument, match=r"'endingOffsets' is for batches"):
        read_config({**of, "endingOffsets": "latest"}, "stream")
    with pytest.raises(errors.InvalidArgument, match="use startingOffsets"):
        read_config({**of, "url": "pulsar://localhost:1?consumer.position=earliest"}, "stream")


def test_the_environment_of_other_consumers_does_not_matter(monkeypatch):
    monkeypatch.setenv("FOREBAY_CONSUMER_TYPE", "shared")
    monkeypatch.setenv("FOREBAY_CONSUMER_RECEIVER_QUEUE", "7")
    of = {"url": "pulsar://localhost:1", "subscribe": "a"}
    assert read_config(of).read.consumer.keys() == {"unreadable", "receiver_queue"}
    for wrong in ({"type": "shared"}, {"url": "pulsar://localhost:1?consumer.type=shared"}):
        with pytest.raises(errors.InvalidArgument, match="no option 'type'"):
            read_config({**of, **wrong})


def test_positions_of_spark_become_those_of_a_plan():
    given = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a": {"0": 7}}',
        "startingOffsets": "earliest",
        "endingOffsets": '{"a": {"0": "(1,2,0,-1)"}}',
    }
    read = read_config({"url": "pulsar://localhost:1", "subscribe": "a, b", **given}).read
    assert read.topics == ["a", "b"]
    assert [each.called for each in read.start] == list(given)[:3], "a time comes before ids"
    assert read.start[0].everywhere.ms == read.start[1].partitions["a"][0].ms - 2 == 5
    assert "startingOffsetsByTimestampStrategy" in read.start[0].everywhere.required
    assert read.start[2].everywhere == "earliest"
    assert [str(each.partitions["a"][0]) for each in read.end] == ["(1,2,0,-1)"]
    lenient = {**given, "startingOffsetsByTimestampStrategy": "latest"}
    read = read_config({"url": "pulsar://localhost:1", "subscribe": "a", **lenient}).read
    assert read.start[0].everywhere.required is None


def test_names_do_not_depend_on_their_case():
    given = {"URL": "pulsar://localhost:1", "Topics": "a", "starting_offsets": "latest", "MINPARTITIONS": "3"}
    own = read_config(given).own
    assert (own["subscribe"], own["startingOffsets"], own["minPartitions"]) == ("a", "latest", 3)
