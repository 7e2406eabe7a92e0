"""Streams from Pulsar: each message once, across restarts of the query."""

import json
import shutil
import threading

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from forebay import blocking
from forebay.pulsar import MessageId
from forebay.pulsar._ranges import place
from forebay.pulsar.blocking import PulsarConsumer
from forebay.spark._sources.pulsar import read_config
from forebay.spark._sources.pulsar_stream import PulsarStreamReader

from support.queries import Stream, end_of
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def topic(client, service):
    name = service.topic(partitions=2)
    client.consumer(name, "keep", position="earliest").close()
    return name


def fill(client, topic, numbers, **options):
    with client.producer(topic, routing="round_robin", **options) as producer:
        producer.send_many([b"%d" % number for number in numbers])


@pytest.fixture
def stream(spark, service, topic, tmp_path):
    def make(**options):
        return Stream(spark, service.url, options.pop("topic", topic), tmp_path / "checkpoint", **options)

    return make


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
    query = stream(maxOffsetsPerTrigger=60)
    fill(client, topic, range(200), batch_max_messages=5)
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


def test_a_batch_has_about_as_many_messages_as_asked_for(client, topic, stream):
    query = stream(maxOffsetsPerTrigger=50)
    fill(client, topic, range(400), batch_max_messages=5)
    query.run()
    assert query.values == list(range(400))
    assert len(query.batches) >= 6
    assert max(len(values) for _, values in query.batches) <= 75


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": 1000}, {"maxOffsetsPerTrigger": 40}])
def test_a_batch_has_about_as_many_bytes_as_asked_for(client, topic, stream, limits):
    query = stream(maxBytesPerTrigger="50kB", **limits)
    with client.producer(topic, routing="round_robin", batch_max_messages=5) as producer:
        producer.send_many([b"%d" % number + b" " * 996 for number in range(400)])
    query.run()
    assert query.values == list(range(400))
    most = 50 if limits.get("maxOffsetsPerTrigger") != 40 else 40
    assert len(query.batches) >= 400 // most - 1
    assert max(len(values) for _, values in query.batches) <= 1.5 * most


def test_a_batch_of_few_bytes_has_a_message_at_least(client, topic, stream):
    query = stream(maxBytesPerTrigger=1)
    fill(client, topic, range(6), batching=False)
    query.run()
    assert query.values == list(range(6))
    assert len(query.batches) == 3, "one of each partition"


def test_a_live_query_gets_what_is_published_and_new_partitions(client, service, stream):
    topic = service.topic(partitions=2)
    query = stream(topic=topic, startingOffsets="latest")
    fill(client, topic, range(10))
    running = query.start()
    try:
        eventually(lambda: running.lastProgress is not None)
        fill(client, topic, range(10, 30))
        eventually(lambda: query.values == list(range(10, 30)))
        service.grow_topic(topic, 4)
        fill(client, topic, range(30, 70), batching=False)
        eventually(lambda: query.values == list(range(10, 70)))
        # The progress of a batch is told after its rows.
        eventually(lambda: len(end_of(running)["topics"]) == 4)
        assert end_of(running)["v"] == 1
    finally:
        running.stop()


def test_the_offsets_of_a_query_are_where_another_begins(client, spark, service, topic, stream):
    query = stream()
    fill(client, topic, range(20))
    offset = end_of(query.run())
    fill(client, topic, range(20, 30))
    read = spark.read.format("forebay").option("url", service.url).option("subscribe", topic)
    frame = read.option("startingOffsets", json.dumps(offset)).load()
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(20, 30))


def test_what_is_committed_is_acknowledged(client, topic, stream):
    query = stream(subscription="spark")
    fill(client, topic, range(50))
    query.run()
    # A batch is committed with the one behind it.
    fill(client, topic, range(50, 60))
    query.run()
    query.run()
    with client.consumer(topic, "spark", type="failover") as consumer:
        left = consumer.receive_many(100, timeout=2)
    assert len(left) <= 10


def test_a_topic_that_is_gone_ends_the_query_unless_it_may_be(client, service, stream, tmp_path):
    first, second = service.topic(partitions=1), service.topic(partitions=1)
    query = stream(topic=f"{first},{second}")
    fill(client, first, range(10), batching=False)
    fill(client, second, range(10, 20), batching=False)
    query.run()
    service.delete_topic(second, partitioned=True)
    running = query.start(availableNow=True)
    with pytest.raises(Exception, match=r"TopicNotFound|failOnDataLoss=false"):
        running.awaitTermination(240)
    fill(client, first, range(20, 30), batching=False)
    tolerant = stream(topic=f"{first},{second}", failOnDataLoss="false", subscription="spark")
    tolerant.run()
    assert tolerant.values == list(range(20, 30))
    assert not any(second in topic for topic in client.topics()), "nothing has made it again"


def test_a_run_ends_where_the_topic_ended_when_it_began(client, topic, stream):
    """Spark prepares such a run before it asks where a new query begins."""
    fill(client, topic, range(5))
    query = stream(startingOffsets="latest")
    query.run()
    fill(client, topic, range(5, 9))
    query.run()
    assert query.values == list(range(5, 9))


@pytest.mark.real_pulsar
def test_several_ledgers_are_read_a_batch_at_a_time(spark, real_pulsar, tmp_path):
    topic = real_pulsar.topic()
    with blocking.connect(real_pulsar.url) as client:
        client.consumer(topic, "keep", position="earliest").close()
        for start in (0, 50, 100):
            fill(client, topic, range(start, start + 50), batching=False)
            # The next messages are in another ledger.
            real_pulsar.unload(topic)
    query = Stream(spark, real_pulsar.url, topic, tmp_path / "checkpoint", maxOffsetsPerTrigger=20)
    query.run()
    assert query.values == list(range(150))
    assert max(len(values) for _, values in query.batches) <= 20
    assert len(query.batches) >= 8


def test_messages_in_chunks_are_in_one_batch_each(client, topic, stream):
    query = stream(maxOffsetsPerTrigger=2)
    payloads = [b"%d" % number * 2000 for number in (1, 2, 3)]
    with client.producer(topic, batching=False, chunking=True, chunk_max_size=700) as producer:
        for payload in payloads:
            producer.send(payload)
    query.run()
    assert query.values == sorted(int(payload) for payload in payloads)
    assert len(query.batches) > 1


def test_the_only_batch_of_a_run_does_not_wait(client, topic, stream):
    query = stream(minOffsetsPerTrigger=10_000, maxTriggerDelay="1h")
    fill(client, topic, range(10))
    query.start(once=True).awaitTermination(120)
    assert query.values == list(range(10))


def test_another_checkpoint_begins_anew(client, topic, stream, tmp_path):
    query = stream()
    fill(client, topic, range(10))
    query.run()
    shutil.rmtree(tmp_path / "checkpoint")
    query.run()
    assert query.values == sorted([*range(10), *range(10)])


def test_partitions_are_asked_side_by_side_for_a_time(client, service, monkeypatch):
    topic = service.topic(partitions=8)
    client.consumer(topic, "keep", position="earliest").close()
    fill(client, topic, range(80), batching=False)
    receive = PulsarConsumer.receive
    asked = threading.Barrier(8)

    def late(consumer, timeout):
        # Each message comes when all have been asked for.
        asked.wait(PATIENCE)
        return receive(consumer, timeout)

    monkeypatch.setattr(PulsarConsumer, "receive", late)
    config = read_config({"url": service.url, "subscribe": topic, "startingTimestamp": "1"})
    reader = PulsarStreamReader(config, StructType([StructField("value", BinaryType())]))
    try:
        positions = reader.initialOffset()["topics"]
    finally:
        reader.stop()
    assert len(positions) == 8
    # Right before the first entry of a ledger.
    assert all(place_of(text)[1] == -1 for text in positions.values())


def test_a_query_that_goes_on_before_pyspark_4_2_never_goes_back(client, service, topic):
    """There `latestOffset` is not told where the batch begins."""
    fill(client, topic, range(100), batching=False)
    config = read_config(
        {"url": service.url, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    )
    schema = StructType([StructField("value", BinaryType())])
    first, again = PulsarStreamReader(config, schema), PulsarStreamReader(config, schema)
    try:
        begin = first.initialOffset()
        end = first.latestOffset()
        assert 0 < sum(place_of(text)[1] + 1 for text in end["topics"].values() if text != "earliest") <= 12
        first.partitions(begin, end)
        # After a restart that has nothing to repeat.
        resumed = again.latestOffset()
        assert all(
            place_of(resumed["topics"][name]) >= place_of(text) for name, text in end["topics"].items()
        )
        assert sum(place_of(text)[1] + 1 for text in resumed["topics"].values()) == 100
    finally:
        first.stop()
        again.stop()


def place_of(text):
    return (-1, -1) if text == "earliest" else place(MessageId.parse(text))
