"""TubeMQ into Spark: each message is in one row, however the partitions are split, on the embedded broker and
on a real one, whose partitions share the index of their store."""

import datetime
import itertools
import json
import os
import time

import pyarrow as pa
import pytest

from forebay import blocking, errors
from forebay._core.read_plan import ReadPlan
from forebay.spark import register
from forebay.spark._sources.names import GROUPS
from forebay.spark._sources.tubemq import read_config
from forebay.tubemq._offsets import UNIT
from forebay.tubemq._ranges import Range, plan, rows

from support.tubemq.harness import EmbeddedTubeMq, TubeMqService, group
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]


@pytest.fixture(scope="module")
def embedded_tubemq():
    broker = EmbeddedTubeMq()
    yield broker
    broker.stop()


@pytest.fixture(
    params=[
        pytest.param("embedded_tubemq", id="embedded"),
        pytest.param("real_tubemq", marks=pytest.mark.real_tubemq, id="tubemq"),
    ]
)
def service(request) -> TubeMqService:
    return request.getfixturevalue(request.param)


@pytest.fixture
def source(spark, service):
    register(spark)

    def load(topic, **options):
        given = {"url": service.url, "subscribe": topic, **options}
        return (
            spark.read.format("forebay").options(**{name: str(value) for name, value in given.items()}).load()
        )

    return load


def fill(client, topic, numbers, **options):
    with client.producer(topic, **options) as producer:
        return producer.send_many([b"%d" % number for number in numbers])


def values(frame):
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def planned(client, service, topic, **options):
    config = read_config({"url": service.url, "subscribe": topic, **options})
    return plan(client, config.read)


def read(client, part, **options):
    """The values of a range."""
    given = {"timeout": PATIENCE, "fails_on_loss": True, **options}
    found = rows(client, ReadPlan([part.part.topic], **given), part, [("value", "value")])
    return [int(value) for batch in found for value in pa.record_batch(batch).column("value").to_pylist()]


def test_each_message_is_a_row(client, service, source):
    topic = service.topic(2, 2)
    fill(client, topic, range(3_000))
    frame = source(topic)
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == list(range(3_000))
    # A second look has the same rows.
    assert frame.count() == 3_000
    held = {(row.brokerId, row.partition) for row in frame.select("brokerId", "partition").collect()}
    assert held == {(1, number) for number in service.numbers(2, 2)}


def test_the_columns_are_those_of_kafka_and_the_message_s_own(client, service, source):
    topic = service.topic()
    moment = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)
    with client.producer(topic) as producer:
        producer.send(b"v", key="k", properties={"a": "1"}, event_time=moment, message_type="till")
        producer.send(b"plain")
    frame = source(topic, includeHeaders=True).orderBy("offset")
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        *("brokerId", "messageType", "messageId", "headers"),
    ]
    first, plain = frame.collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"v", topic)
    assert (first.brokerId, first.partition, first.offset, plain.offset) == (1, 0, 0, UNIT)
    assert first.timestamp.replace(tzinfo=datetime.UTC) == moment and first.timestampType == 0
    assert (first.messageType, plain.messageType) == ("till", None)
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("a", b"1")]
    assert (plain.key, plain.timestamp, plain.timestampType, plain.headers) == (None, None, -1, None)
    assert first.messageId != plain.messageId


def test_a_schema_chooses_columns(spark, client, service, source):
    topic = service.topic()
    fill(client, topic, range(10))
    given = spark.read.format("forebay").option("url", service.url).option("subscribe", topic)
    assert given.schema("value binary").load().columns == ["value"]
    assert given.schema("value binary").load().count() == 10
    for wrong, text in (("value string", "is binary, not string"), ("payload binary", "no column 'payload'")):
        with pytest.raises(Exception, match=text):
            given.schema(wrong).load().collect()


def test_partitions_are_split_and_each_message_stays_in_one(client, service, source):
    topic = service.topic(3)
    fill(client, topic, range(3_000))
    for limits in ({"minPartitions": "2"}, {"minPartitions": "40"}, {"maxRecordsPerPartition": "150"}):
        found = [read(client, part) for part in planned(client, service, topic, **limits)]
        assert sorted(itertools.chain.from_iterable(found)) == list(range(3_000))
        assert len(found) >= int(limits.get("minPartitions", 20))
        assert max(map(len, found)) <= int(limits.get("maxRecordsPerPartition", 3_000))
    frame = source(topic, minPartitions=7)
    assert frame.rdd.getNumPartitions() == len(planned(client, service, topic, minPartitions="7")) >= 7
    assert values(frame) == list(range(3_000))


def test_ranges_meet_at_every_offset(client, service):
    """On a real broker only a second look tells which messages of an answer lie before the end."""
    topic = service.topic(3)
    fill(client, topic, range(60))
    for whole in planned(client, service, topic):
        expected = read(client, whole)
        offsets = range(whole.start, whole.end + UNIT, UNIT)
        for cut in offsets:
            halves = [Range(whole.part, whole.start, cut), Range(whole.part, cut, whole.end)]
            assert [value for half in halves for value in read(client, half)] == expected, cut
        each = [read(client, Range(whole.part, *pair)) for pair in itertools.pairwise(offsets)]
        assert max(map(len, each)) == 1, "an entry is one message"
        assert [value for one in each for value in one] == expected


def test_large_messages_come_in_several_answers(client, service):
    topic = service.topic(3)
    payloads = [b"%d" % number + b" " * 200_000 for number in range(40)]
    with client.producer(topic) as producer:
        producer.send_many(payloads)
    for pieces in ("1", "9"):
        parts = planned(client, service, topic, minPartitions=pieces)
        assert sorted(value for part in parts for value in read(client, part)) == list(range(40))


def test_from_one_offset_to_another(client, service, source):
    topic = service.topic()
    fill(client, topic, range(100))

    def between(first, last):
        return source(
            topic,
            startingOffsets=json.dumps({topic: {"1:0": first * UNIT}}),
            endingOffsets=json.dumps({topic: {"1:0": last * UNIT}}),
        )

    for first, last in ((3, 40), (0, 9999)):
        assert values(between(first, last)) == list(range(100)[first:last])
    assert [row.offset for row in between(7, 9).collect()] == [7 * UNIT, 8 * UNIT]
    assert values(source(topic, startingOffsets=json.dumps({topic: {"1:0": -2}}))) == list(range(100))
    assert values(source(topic, startingOffsets=json.dumps({topic: {"1:0": -1}}))) == []
    assert values(source(topic, startingOffsets=json.dumps({topic: "latest"}))) == []
    assert values(source(topic, startingOffsets="latest")) == []
    with pytest.raises(Exception, match=rf"DataLost.*{topic} 1:0 ends at offset 2800, before 5600"):
        source(topic, startingOffsets=json.dumps({topic: {"1:0": 5600}})).collect()


def test_several_topics_and_single_partitions(spark, client, service, source):
    first, second = service.topic(), service.topic(3)
    fill(client, first, range(10))
    fill(client, second, range(30))
    assert source(f"{first}, {second},{second}").count() == 40

    def assigned(value):
        given = spark.read.format("forebay").option("url", service.url)
        return given.option("assign", json.dumps(value)).load()

    frame = assigned({second: ["1:0", "1:2", "1:2"]})
    assert {row.partition for row in frame.select("partition").collect()} == {0, 2}
    assert frame.count() == 20
    with pytest.raises(Exception, match=r"TopicNotFound.*has no partition 1:7, only 1:0, 1:1, 1:2"):
        assigned({second: ["1:7"]}).collect()


def test_messages_of_some_types(client, service, source):
    topic = service.topic(3)
    with client.producer(topic) as producer:
        for number in range(30):
            # Brokers compare hashes, and the first two have the same.
            producer.send(b"%d" % number, message_type=("Aa", "BB", "other")[number % 3])
    assert values(source(topic, filters="Aa")) == list(range(0, 30, 3))
    assert values(source(topic, filters="Aa,other", minPartitions=11)) == [
        number for number in range(30) if number % 3 != 1
    ]


def test_nothing_to_read(service, source):
    assert source(service.topic(2)).collect() == []


@pytest.mark.real_tubemq
def test_a_topic_that_does_not_exist(spark, real_tubemq):
    register(spark)
    given = spark.read.format("forebay").option("url", real_tubemq.url)
    with pytest.raises(Exception, match=r"TopicNotFound.*nowhere"):
        given.option("subscribe", "nowhere").load().collect()


def test_offsets_that_the_partition_has_not_are_an_error(client, service):
    topic = service.topic()
    fill(client, topic, range(10))
    (whole,) = planned(client, service, topic)
    beyond = Range(whole.part, whole.start, whole.end + 10 * UNIT)
    with pytest.raises(errors.DataLost, match=rf"it ends at offset {whole.end}, before {beyond.end}") as lost:
        read(client, beyond)
    assert topic in str(lost.value) and "1:0" in str(lost.value)
    assert read(client, beyond, fails_on_loss=False) == list(range(10))
    assert read(client, Range(whole.part, whole.end + UNIT, beyond.end), fails_on_loss=False) == []


def test_messages_that_retention_deletes_before_they_are_read_are_an_error():
    broker = EmbeddedTubeMq(tubemq_retention=1.0)
    try:
        with blocking.connect(broker.url) as client:
            topic = broker.topic()
            fill(client, topic, range(100))
            (before,) = planned(client, broker, topic)

            def later():
                # What is old goes when something is written behind it.
                fill(client, topic, range(3))
                return next(iter(planned(client, broker, topic)), None)

            eventually(lambda: (now := later()) is not None and now.start > 0, 60)
            with pytest.raises(errors.DataLost, match=r"the messages from offset 0 to 2800 were deleted"):
                read(client, before)
            assert read(client, before, fails_on_loss=False) == []
    finally:
        broker.stop()


def test_a_topic_that_is_deleted_before_it_is_read_is_an_error(embedded_tubemq):
    with blocking.connect(embedded_tubemq.url) as client:
        topic = embedded_tubemq.topic()
        fill(client, topic, range(10))
        (whole,) = planned(client, embedded_tubemq, topic)
        embedded_tubemq.call("delete_topic", f"tubemq:{topic}")
        with pytest.raises(errors.DataLost, match="does not have the partition any more"):
            read(client, whole)
        assert read(client, whole, fails_on_loss=False) == []


def test_no_group_of_others_is_moved_and_partitions_are_given_back(client, service, source):
    topic = service.topic(3)
    mine = group()
    fill(client, topic, range(300))
    with client.consumer(topic, mine, position="first", auto_ack=True) as consumer:
        assert len(consumer.receive_many(100, timeout=PATIENCE)) > 0
        assert source(topic, minPartitions=12).count() == 300
        assert source(topic).count() == 300
    with client.consumer(topic, mine, position="first", auto_ack=True) as consumer:
        left = consumer.read_frame(1, timeout=PATIENCE).num_rows
        left += consumer.read_frame(1_000, timeout=2).num_rows
    assert 0 < left < 300, "it goes on where it was"
    # Nobody has a partition in the groups of the source: a member takes them all at once.
    with client.consumer(topic, f"{GROUPS}-0", position="first") as consumer:
        assert {state["state"] for state in consumer.partitions()} == {"reading"}


def test_readers_of_one_partition_do_not_wait_for_each_other(client, service):
    topic = service.topic()
    fill(client, topic, range(2_000))
    (whole,) = planned(client, service, topic)
    of = ReadPlan([topic], timeout=PATIENCE)
    readers = [rows(client, of, whole, [("value", "value")]) for _ in range(4)]
    first = [next(reader) for reader in readers]
    rest = [sum(pa.record_batch(batch).num_rows for batch in reader) for reader in readers]
    counts = [pa.record_batch(batch).num_rows for batch in first]
    assert [one + other for one, other in zip(counts, rest, strict=True)] == [2_000] * 4


def test_a_reader_that_is_left_gives_its_partition_back(client, service):
    topic = service.topic()
    with client.producer(topic) as producer:
        producer.send_many([b"x" * 100_000] * 200)
    (whole,) = planned(client, service, topic)
    own = group()
    for _ in range(3):
        reader = rows(client, ReadPlan([topic], timeout=PATIENCE, groups=own), whole, [("value", "value")])
        next(reader)
        reader.close()
    with client.consumer(topic, f"{own}-0", position="first") as consumer:
        assert [state["state"] for state in consumer.partitions()] == ["reading"]


def test_a_task_that_fails_in_the_middle_is_read_again(service, client, source):
    topic = service.topic(3)
    fill(client, topic, range(3_000))

    def fails_at_first(partition, iterator):
        from pyspark.taskcontext import TaskContext

        for number, row in enumerate(iterator):
            if number == 400 and TaskContext.get().attemptNumber() == 0:
                if partition == 1:
                    # Without a word to the broker: another attempt does not wait for the lease.
                    os._exit(1)
                raise RuntimeError("first attempt")
            yield int(bytes(row.value))

    frame = source(topic)
    assert sorted(frame.rdd.mapPartitionsWithIndex(fails_at_first).collect()) == list(range(3_000))


@pytest.mark.real_tubemq
def test_with_tls_and_credentials(spark, real_tubemq_secure, monkeypatch):
    certificates = real_tubemq_secure.certificates
    monkeypatch.setenv("FOREBAY_PASSWORD", "secret")
    options = {
        "username": "ann",
        "tls_ca": str(certificates.ca),
        "tls_cert": str(certificates.client_crt),
        "tls_key": f"file:{certificates.client_key}",
    }
    topic = real_tubemq_secure.topic(3)
    with blocking.connect(real_tubemq_secure.tls_url, **options) as client:
        fill(client, topic, range(100))
    register(spark)
    given = spark.read.format("forebay").options(url=real_tubemq_secure.tls_url, **options)
    assert values(given.options(subscribe=topic, minPartitions=10).load()) == list(range(100))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give one of the options subscribe and assign"),
        ({"subscribe": "a", "assign": "{}"}, "not subscribe and assign"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "a", "topic": "b"}, "given twice"),
        ({"subscribe": "a", "startingOffsets": "middle"}, "startingOffsets: expected"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"1:0": "middle"}}'}, "is no position"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"1:0": 27}}'}, "multiples of 28"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 28}}'}, "expected broker:partition"),
        ({"subscribe": "a", "startingOffsets": '{"a": 28}'}, "an offset for each of its partitions"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets: expected"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"1:0": -2}}'}, "cannot end at"),
        ({"subscribe": "a", "startingTimestamp": "soon"}, "'startingTimestamp': TubeMQ's brokers find"),
        ({"subscribePattern": "a.*"}, "'subscribePattern': TubeMQ's masters do not list topics"),
        ({"topicsPattern": "a.*"}, "do not list topics"),
        ({"subscribe": "a", "columns": "pulsar"}, "'columns': its columns have Kafka's names"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions"),
        ({"subscribe": "a", "password": "secret"}, "plain text"),
        ({"subscribe": "a", "position": "first"}, "use startingOffsets"),
        ({"subscribe": "a", "balance": "server"}, "takes its partition by itself"),
        ({"assign": '{"a": [0]}'}, "is no partition"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_said_on_the_driver(options, text):
    with pytest.raises(errors.InvalidArgument, match=text):
        read_config({"url": "tubemq://localhost:1", **options})


def test_options_of_the_other_form_are_refused():
    of = {"url": "tubemq://localhost:1", "subscribe": "a"}
    with pytest.raises(errors.InvalidArgument, match=r"'subscription' is for streams"):
        read_config({**of, "subscription": "s"}, "batch")
    with pytest.raises(errors.InvalidArgument, match=r"'endingOffsets' is for batches"):
        read_config({**of, "endingOffsets": "latest"}, "stream")


def test_offsets_of_what_is_not_read_are_refused(client, service, source):
    topic = service.topic()
    for wrong, text in (
        ({topic: {"1:7": "latest"}}, "has no partition 1:7"),
        ({"other": {"1:0": "latest"}}, "is not read"),
    ):
        with pytest.raises(Exception, match=text):
            source(topic, startingOffsets=json.dumps(wrong)).collect()


def long_topic(client, service):
    """A topic of which a reader has only a part ahead, and its values."""
    topic = service.topic(3)
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number + b" " * 40_000 for number in range(900)])
    return topic, list(range(900))


def read_with_a_break(client, ranges, pause):
    """The values of ranges, between whose first and second answer ``pause`` is called."""
    readers = [rows(client, ReadPlan([part.part.topic]), part, [("value", "value")]) for part in ranges]
    tables = [next(reader) for reader in readers]
    pause()
    tables += [table for reader in readers for table in reader]
    return sorted(int(value) for one in tables for value in pa.record_batch(one).column("value").to_pylist())


@pytest.fixture(
    params=[
        pytest.param("embedded", id="embedded"),
        pytest.param("own_tubemq", marks=pytest.mark.real_tubemq, id="tubemq"),
    ]
)
def own_service(request):
    """A service that the test may stop, and that forgets silent clients early."""
    if request.param == "own_tubemq":
        yield request.getfixturevalue("own_tubemq")
        return
    broker = EmbeddedTubeMq(data=True)
    yield broker
    broker.stop()


def test_a_broker_that_restarts_in_the_middle(own_service):
    with blocking.connect(own_service.url) as client:
        topic, expected = long_topic(client, own_service)
        ranges = planned(client, own_service, topic)
        restart = own_service.restart if not own_service.is_real else lambda: own_service.restart("broker")
        assert read_with_a_break(client, ranges, restart) == expected


@pytest.mark.real_tubemq
def test_a_caller_that_takes_longer_than_the_broker_keeps_the_partition(own_tubemq):
    """Another reader has the group of the first meanwhile."""
    with blocking.connect(own_tubemq.url) as client:
        topic, expected = long_topic(client, own_tubemq)
        ranges = planned(client, own_tubemq, topic)

        def wait():
            time.sleep(10)
            assert read_with_a_break(client, ranges, lambda: None) == expected

        assert read_with_a_break(client, ranges, wait) == expected


def test_a_read_keeps_no_message_at_the_embedded_broker(embedded_tubemq):
    """It deletes what every group has read when it is short of space. Those of the source never go on."""
    topic = embedded_tubemq.topic()
    with blocking.connect(embedded_tubemq.url) as client:
        fill(client, topic, range(10))
        (whole,) = planned(client, embedded_tubemq, topic)
        assert read(client, whole) == list(range(10))
        stats = embedded_tubemq.call("topic_stats", f"tubemq:{topic}")
    assert stats["subscriptions"] == []
