"""Streams from TubeMQ: each message once, across restarts of the query, on the embedded broker and on a real
one."""

import json

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock import blocking, errors
from penstock.spark.sources.tubemq import read_config
from penstock.spark.sources.tubemq_stream import TubeMqStreamReader
from penstock.tubemq.offsets import UNIT

from support.queries import WAIT, Stream, end_of
from support.tubemq.harness import EmbeddedTubeMq, TubeMqService, group
from support.waiting import eventually

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
def topic(service):
    return service.topic(3)


@pytest.fixture
def stream(spark, service, topic, tmp_path):
    def make(**options):
        return Stream(spark, service.url, options.pop("topic", topic), tmp_path / "checkpoint", **options)

    return make


def fill(client, topic, numbers):
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in numbers])


def test_each_message_is_in_one_batch_across_runs(client, topic, stream):
    query = stream()
    fill(client, topic, range(100))
    query.run()
    assert query.values == list(range(100))
    fill(client, topic, range(100, 250))
    query.run()
    assert query.values == list(range(250))
    query.run()
    assert query.values == list(range(250))


def test_a_batch_that_is_repeated_has_the_same_rows(client, topic, stream):
    query = stream(maxOffsetsPerTrigger=150)
    fill(client, topic, range(200))
    query.run()
    before = dict(query.batches)
    fill(client, topic, range(200, 300))
    query.forget_last_commit()
    query.batches.clear()
    query.run()
    again = dict(query.batches)
    last = max(before)
    assert again[last] == before[last]
    assert sorted(value for number, values in {**before, **again}.items() for value in values) == list(
        range(300)
    )


def test_a_run_that_ends_with_what_is_there_has_several_batches(client, topic, stream):
    query = stream(maxOffsetsPerTrigger=90)
    fill(client, topic, range(300))
    query.run()
    assert query.values == list(range(300))
    assert len(query.batches) >= 4
    assert max(len(values) for _, values in query.batches) <= 90


def test_a_live_query_gets_what_is_published(client, topic, stream):
    query = stream(startingOffsets="latest")
    fill(client, topic, range(10))
    running = query.start()
    try:
        eventually(lambda: running.lastProgress is not None, WAIT)
        fill(client, topic, range(10, 30))
        eventually(lambda: query.values == list(range(10, 30)), WAIT)
        eventually(lambda: list(end_of(running)["topics"][topic]) == ["1:0", "1:1", "1:2"], WAIT)
        assert end_of(running)["v"] == 1
    finally:
        running.stop()


def test_the_offsets_of_a_query_are_where_another_begins(client, spark, service, topic, stream):
    query = stream()
    fill(client, topic, range(20))
    offset = end_of(query.run())
    fill(client, topic, range(20, 30))

    def values(**options):
        frame = spark.read.format("penstock").options(url=service.url, subscribe=topic, **options).load()
        return sorted(int(bytes(row.value)) for row in frame.collect())

    assert values(startingOffsets=json.dumps(offset)) == list(range(20, 30))
    assert values(endingOffsets=json.dumps(offset)) == list(range(20))


def test_what_is_committed_is_confirmed_in_the_group(client, topic, stream):
    mine = group()
    query = stream(subscription=mine)
    fill(client, topic, range(50))
    query.run()
    # A batch is committed with the one behind it.
    fill(client, topic, range(50, 60))
    query.run()
    query.run()
    with client.consumer(topic, mine, position="first", auto_ack=True) as consumer:
        left = consumer.read_frame(100, timeout=2).num_rows
    assert left <= 10


def test_a_group_that_others_use_is_not_moved(client, topic, stream):
    mine = group()
    fill(client, topic, range(30))
    with client.consumer(topic, mine, position="first") as consumer:
        first = consumer.receive(timeout=5)
        query = stream(subscription=mine)
        query.run()
        fill(client, topic, range(30, 40))
        query.run()
        query.run()
        assert query.values == list(range(40))
        consumer.nack(first)
        seen = {int(first.data)} | {int(message.data) for message in consumer.receive_many(100, timeout=3)}
    assert seen & set(range(30)), "what it had not acknowledged comes again"


def test_a_run_ends_where_the_topic_ended_when_it_began(client, topic, stream):
    """Spark prepares such a run before it asks where a new query begins."""
    fill(client, topic, range(5))
    query = stream(startingOffsets="latest")
    query.run()
    fill(client, topic, range(5, 9))
    query.run()
    assert query.values == list(range(5, 9))


def test_some_types_only(client, topic, stream):
    with client.producer(topic) as producer:
        for number in range(60):
            producer.send(b"%d" % number, message_type=("till", "web")[number % 2])
    query = stream(filters="till", maxOffsetsPerTrigger=70)
    query.run()
    assert query.values == list(range(0, 60, 2))


def test_a_topic_that_is_gone_ends_the_query_unless_it_may_be(spark, embedded_tubemq, tmp_path):
    first, second = embedded_tubemq.topic(), embedded_tubemq.topic(2)
    topics, folder = f"{first},{second}", tmp_path / "checkpoint"
    with blocking.connect(embedded_tubemq.url) as client:
        query = Stream(spark, embedded_tubemq.url, topics, folder)
        fill(client, first, range(10))
        fill(client, second, range(10, 20))
        query.run()
        embedded_tubemq.call("delete_topic", f"tubemq:{second}")
        # The embedded broker makes a topic that it is asked for; it is not the one that was read.
        running = query.start(availableNow=True)
        with pytest.raises(Exception, match=r"DataLost|TopicNotFound"):
            running.awaitTermination(60)
        fill(client, first, range(20, 30))
        tolerant = Stream(spark, embedded_tubemq.url, topics, folder, failOnDataLoss="false")
        tolerant.run()
        assert tolerant.values == list(range(20, 30))


def test_another_checkpoint_begins_anew(client, spark, service, topic, stream, tmp_path):
    fill(client, topic, range(10))
    stream().run()
    again = Stream(spark, service.url, topic, tmp_path / "other")
    again.run()
    assert again.values == list(range(10))


def reader_of(service, topic, **options):
    given = {"url": service.url, "subscribe": topic, "startingOffsets": "earliest", **options}
    return TubeMqStreamReader(read_config(given, "stream"), StructType([StructField("value", BinaryType())]))


def entries(offset, topic):
    return sum(offset["topics"][topic].values()) // UNIT


def test_a_query_that_goes_on_before_pyspark_4_2_never_goes_back(client, service, topic):
    """There `latestOffset` is not told where the batch begins."""
    fill(client, topic, range(100))
    first = reader_of(service, topic, maxOffsetsPerTrigger="10")
    again = reader_of(service, topic, maxOffsetsPerTrigger="10")
    try:
        begin = first.initialOffset()
        end = first.latestOffset()
        assert 0 < entries(end, topic) <= 10
        assert first.partitions(end, end) == [] and len(first.partitions(begin, end)) > 0
        resumed = again.latestOffset()
        assert all(offset >= end["topics"][topic][key] for key, offset in resumed["topics"][topic].items())
    finally:
        first.stop()
        again.stop()


def test_a_batch_waits_for_enough_messages(client, service, topic):
    reader = reader_of(service, topic, minOffsetsPerTrigger="1000", maxTriggerDelay="1s")
    try:
        begin = reader.initialOffset()
        fill(client, topic, range(10))
        eventually(lambda: entries(reader.reportLatestOffset(), topic) >= 10 or reader.latestOffset(), WAIT)
        assert reader.latestOffset(begin, None) == begin
        eventually(lambda: reader.latestOffset(begin, None) != begin, WAIT)
    finally:
        reader.stop()


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param("embedded", id="embedded"),
        pytest.param("own_tubemq", marks=pytest.mark.real_tubemq, id="tubemq"),
    ],
)
def test_servers_may_restart_under_a_query(request, spark, tmp_path, cluster):
    service = EmbeddedTubeMq(data=True) if cluster == "embedded" else request.getfixturevalue(cluster)
    try:
        topic = service.topic(3)
        query = Stream(spark, service.url, topic, tmp_path / "checkpoint", maxOffsetsPerTrigger=3_000)
        with blocking.connect(service.url) as client:
            fill(client, topic, range(2_000))
            running = query.start()
            try:
                eventually(lambda: query.values == list(range(2_000)), WAIT)
                service.restart()
                fill(client, topic, range(2_000, 4_000))
                eventually(lambda: query.values == list(range(4_000)), WAIT)
            finally:
                running.stop()
    finally:
        if cluster == "embedded":
            service.stop()


def test_offsets_beyond_the_end_are_lost_messages(client, service, topic):
    fill(client, topic, range(10))
    reader = reader_of(service, topic)
    try:
        end = reader.latestOffset()
        beyond = {
            "v": 1,
            "topics": {topic: {key: offset + 280 for key, offset in end["topics"][topic].items()}},
        }
        with pytest.raises(errors.DataLost, match=f"{topic} 1:0 ends at offset"):
            reader.latestOffset(beyond, None)
        with pytest.raises(errors.InvalidArgument, match="another version"):
            reader.latestOffset({"v": 0, "topics": {}}, None)
    finally:
        reader.stop()
