"""Streams from TubeMQ: each message once, across restarts of the query, on the embedded broker and on a real
one."""

import asyncio
import contextlib
import json
import logging
import threading
import time

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from forebay import blocking, errors
from forebay.spark._sources.tubemq import read_config
from forebay.spark._sources.tubemq_stream import TubeMqStreamReader
from forebay.tubemq._offsets import UNIT

from support.queries import Stream, end_of
from support.tubemq import wire
from support.tubemq.harness import EmbeddedTubeMq, TubeMqService, group
from support.tubemq.liar import Liar
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
        eventually(lambda: running.lastProgress is not None)
        fill(client, topic, range(10, 30))
        eventually(lambda: query.values == list(range(10, 30)))
        eventually(lambda: list(end_of(running)["topics"][topic]) == ["1:0", "1:1", "1:2"])
        assert end_of(running)["v"] == 1
    finally:
        running.stop()


def test_the_offsets_of_a_query_are_where_another_begins(client, spark, service, topic, stream):
    query = stream()
    fill(client, topic, range(20))
    offset = end_of(query.run())
    fill(client, topic, range(20, 30))

    def values(**options):
        frame = spark.read.format("forebay").options(url=service.url, subscribe=topic, **options).load()
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
        left = consumer.read_frame(10, timeout=PATIENCE).num_rows
        left += consumer.read_frame(100, timeout=1).num_rows
    assert left == 10, "those of the last batch"


def test_a_group_that_others_use_is_not_moved(client, topic, stream):
    mine = group()
    fill(client, topic, range(30))
    with client.consumer(topic, mine, position="first") as consumer:
        first = consumer.receive(timeout=PATIENCE)
        query = stream(subscription=mine)
        query.run()
        fill(client, topic, range(30, 40))
        query.run()
        query.run()
        assert query.values == list(range(40))
        consumer.nack(first)
        again = []
        # What it had not acknowledged comes again.
        eventually(lambda: again.append(consumer.receive(timeout=PATIENCE).data) or first.data in again)


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
            running.awaitTermination(240)
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
    """There `latestOffset` is not told where the batch begins, and one that ends there is planned before."""
    fill(client, topic, range(100))
    first = reader_of(service, topic, maxOffsetsPerTrigger="10")
    primed = reader_of(service, topic, maxOffsetsPerTrigger="10")
    again = reader_of(service, topic, maxOffsetsPerTrigger="10")
    try:
        begin = first.initialOffset()
        end = first.latestOffset()
        assert 0 < entries(end, topic) <= 10
        assert first.partitions(end, end) == [] and len(first.partitions(begin, end)) > 0
        assert primed.partitions(end, end) == []
        assert entries(end, topic) < entries(primed.latestOffset(), topic) <= entries(end, topic) + 10
        resumed = again.latestOffset()
        assert resumed == again.reportLatestOffset(), "nothing was planned: where it begins is not known"
        assert all(offset >= end["topics"][topic][key] for key, offset in resumed["topics"][topic].items())
    finally:
        for reader in (first, primed, again):
            reader.stop()


def test_a_batch_waits_for_enough_messages(client, service, topic):
    reader = reader_of(service, topic, minOffsetsPerTrigger="1000", maxTriggerDelay="3s")
    try:
        begin = reader.initialOffset()
        fill(client, topic, range(10))
        began = time.monotonic()
        assert reader.latestOffset(begin, None) == begin
        eventually(lambda: reader.latestOffset(begin, None) != begin)
        assert time.monotonic() - began > 3
    finally:
        reader.stop()


def test_the_only_batch_of_a_run_does_not_wait(client, topic, stream):
    query = stream(minOffsetsPerTrigger=10_000, maxTriggerDelay="1h")
    fill(client, topic, range(10))
    for trigger in ({"once": True}, {"availableNow": True}):
        query.start(**trigger).awaitTermination(120)
        assert query.values == list(range(10))


def test_a_live_query_does_not_wait_for_ever(client, topic, stream):
    query = stream(minOffsetsPerTrigger=10_000, maxTriggerDelay="4s")
    fill(client, topic, range(10))
    running = query.start()
    try:
        eventually(lambda: query.values == list(range(10)))
    finally:
        running.stop()


def test_a_report_does_not_ask_the_broker(service, topic):
    reader = reader_of(service, topic)
    try:
        assert reader.reportLatestOffset() is None
        reader._on_driver()
        assert reader.reportLatestOffset() is None
        assert reader.initialOffset() == reader.reportLatestOffset()
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
                eventually(lambda: query.values == list(range(2_000)))
                service.restart()
                fill(client, topic, range(2_000, 4_000))
                eventually(lambda: query.values == list(range(4_000)))
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


def moved(offset, topic, entries):
    """The offset, so many entries further in each partition."""
    parts = offset["topics"][topic].items()
    return {"v": 1, "topics": {topic: {key: place + entries * UNIT for key, place in parts}}}


def planned(reader, start, end):
    """The parts of a batch: partition, first and last offset."""
    ranges = [part.value for part in reader.partitions(start, end)]
    return [(each.part.key, each.start, each.end) for each in ranges]


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "3"}])
def test_after_a_loss_the_query_goes_on_at_the_new_end(client, service, topic, options):
    """A broker that crashes loses what was not on disk. What it has was read."""
    fill(client, topic, range(30))
    strict = reader_of(service, topic)
    tolerant = reader_of(service, topic, failOnDataLoss="false", **options)
    try:
        end = strict.latestOffset()
        beyond = moved(end, topic, 3)
        with pytest.raises(errors.DataLost, match=f"{topic} 1:0 ends at offset"):
            strict.partitions(beyond, end)
        assert tolerant.latestOffset(beyond, None) == end
        assert planned(tolerant, beyond, end) == []
        fill(client, topic, range(30, 60))
        eventually(lambda: entries(tolerant.latestOffset(end, None), topic) > entries(end, topic))
        latest = tolerant.latestOffset(end, None)
        begins = {key: start for key, start, _ in planned(tolerant, end, latest)}
        assert begins and all(start == end["topics"][topic][key] for key, start in begins.items())
    finally:
        strict.stop()
        tolerant.stop()


def test_a_new_partition_begins_with_the_batch_after_it_was_seen(client, service, topic):
    fill(client, topic, range(30))
    reader = reader_of(service, topic)
    try:
        whole = reader.latestOffset()
        first = reader.latestOffset({"v": 1, "topics": {}}, None)
        assert list(first["topics"][topic]) == list(whole["topics"][topic])
        assert reader.partitions({"v": 1, "topics": {}}, first) == []
        assert reader.latestOffset(first, None) == whole
        assert {start for _, start, _ in planned(reader, first, whole)} == {0}
    finally:
        reader.stop()


def test_a_run_that_ends_with_what_is_there_reads_new_topics(client, service, topic, stream):
    fill(client, topic, range(10))
    stream().run()
    other = service.topic()
    fill(client, other, range(10, 20))
    query = stream(topic=f"{topic},{other}")
    query.run()
    assert query.values == list(range(10, 20))


def test_a_repeated_batch_of_a_new_partition_does_not_lose_rows_unseen():
    broker = EmbeddedTubeMq(tubemq_retention=1.0)
    try:
        with blocking.connect(broker.url) as client:
            topic = broker.topic()
            fill(client, topic, range(100))
            reader = reader_of(broker, topic)
            begin = reader.latestOffset({"v": 1, "topics": {}}, None)
            end = reader.latestOffset(begin, None)
            assert planned(reader, begin, end) == [("1:0", 0, 100 * UNIT)]
            reader.stop()

            def is_trimmed():
                # What is old goes when something is written behind it.
                fill(client, topic, range(3))
                later = reader_of(broker, topic)
                try:
                    return later.initialOffset()["topics"][topic]["1:0"] >= 100 * UNIT
                finally:
                    later.stop()

            eventually(is_trimmed, 60)
            again = reader_of(broker, topic)
            try:
                (part,) = again.partitions(begin, end)
                with pytest.raises(errors.DataLost, match="the messages from offset 0 to 2800 were deleted"):
                    list(again.read(part))
            finally:
                again.stop()
    finally:
        broker.stop()


# ------------------------------------------------------------------------------ masters that forget


@contextlib.contextmanager
def served(*liars):
    """The URL of the first of several servers, in a thread of their own."""
    ready = threading.Event()
    running = []

    async def serve():
        ends = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(liar.up()) for liar in liars]
            running.extend((asyncio.get_running_loop(), ends, urls[0]))
            ready.set()
            await ends.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(PATIENCE)
    loop, ends, url = running
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(10)


class Forgetful(Liar):
    """A master with a broker 1 of its own, and others; it lists the partitions of ``listed``."""

    def __init__(self, listed, *others, **options):
        super().__init__({"demo": 2}, **options)
        self.listed, self.others = listed, others
        self.stores["demo"].entries = [(number % 2, b"%d" % number, 0, "") for number in range(20)]

    def balance_register(self, asked):
        others = [f"{2 + number}:{other.address}" for number, other in enumerate(self.others)]
        return {**super().balance_register(asked), "brokerConfigList": [f"1:{self.address}", *others]}

    def balance_meta(self, asked):
        said = {**super().balance_meta(asked), "topicMetaInfoList": [f"demo#{self.listed}"]}
        return {**said, "brokerConfigList": self.balance_register({"topicList": []})["brokerConfigList"]}


BOTH, FIRST = "1:1:2:1", "1:1:1:1"
"""Partitions 1:0 and 1:1, and the first of them."""


def of(url, **options):
    given = {"url": url, "startingOffsets": "earliest", "operation_timeout": "1s", **options}
    if "assign" not in given:
        given["subscribe"] = "demo"
    return TubeMqStreamReader(read_config(given, "stream"), StructType([StructField("value", BinaryType())]))


START = {"v": 1, "topics": {"demo": {"1:0": 0, "1:1": 0}}}
END = {"v": 1, "topics": {"demo": {"1:0": 560, "1:1": 560}}}


@pytest.mark.parametrize("options", [{}, {"assign": '{"demo": ["1:0", "1:1"]}'}])
def test_a_partition_that_is_not_listed_now_is_not_taken_for_lost(caplog, options):
    liar = Forgetful(FIRST)
    with served(liar) as url:
        tolerant = of(url, failOnDataLoss="false", **options)
        try:
            latest = tolerant.latestOffset(START, None)
            assert latest["topics"]["demo"] == {"1:0": 560, "1:1": 0}, "it is read when it is there again"
            assert "no master lists demo 1:1" in caplog.text
        finally:
            tolerant.stop()
        if not options:
            strict = of(url)
            try:
                with pytest.raises(errors.ServiceNotReady, match=r"demo 1:1: its broker may be down"):
                    strict.latestOffset(START, None)
                with pytest.raises(errors.ServiceNotReady, match=r"offsets 0 to 560.*are not read"):
                    strict.partitions(START, END)
            finally:
                strict.stop()


def test_a_planned_batch_waits_for_a_partition_that_is_not_listed_yet(caplog):
    liar = Forgetful(FIRST)
    with served(liar) as url:
        timer = threading.Timer(1, lambda: setattr(liar, "listed", BOTH))
        reader = of(url, failOnDataLoss="false", operation_timeout="20s")
        try:
            timer.start()
            assert planned(reader, START, END) == [("1:0", 0, 560), ("1:1", 0, 560)]
            assert not caplog.records
        finally:
            reader.stop()
            timer.cancel()


def test_a_planned_batch_tells_what_it_leaves_out(caplog):
    caplog.set_level(logging.WARNING)
    with served(Forgetful(FIRST)) as url:
        reader = of(url, failOnDataLoss="false")
        try:
            assert planned(reader, START, END) == [("1:0", 0, 560)]
        finally:
            reader.stop()
    assert "demo 1:1" in caplog.text and "Its offsets 0 to 560" in caplog.text


def test_a_partition_that_its_broker_does_not_have_is_lost(caplog):
    liar = Forgetful(BOTH)
    with served(liar) as url:
        strict, tolerant = of(url), of(url, failOnDataLoss="false")
        try:
            for reader in (strict, tolerant):
                assert reader.latestOffset(START, None) == END
            liar.listed, liar.stores["demo"].partitions = FIRST, 1
            liar._readers.clear()
            time.sleep(0.2)
            with pytest.raises(errors.DataLost, match=r"demo 1:1 does not exist any more"):
                strict.latestOffset(START, None)
            with pytest.raises(errors.DataLost, match=r"demo 1:1 does not exist any more"):
                strict.partitions(START, END)
            assert tolerant.latestOffset(START, None)["topics"]["demo"]["1:0"] == 560
            assert "demo 1:1 does not exist any more" in caplog.text
        finally:
            strict.stop()
            tolerant.stop()


def test_a_partition_that_only_the_master_has_forgotten_is_read_on():
    liar = Forgetful(BOTH)
    with served(liar) as url:
        reader = of(url)
        try:
            assert reader.latestOffset(START, None) == END
            liar.listed = FIRST
            # One call fails, so the master is asked for the partitions.
            refused = {"success": False, "errCode": 400, "errMsg": "not now"}
            liar.lies["commit"] = lambda _, peer, asked: peer.send(
                wire.response(asked.serial, asked.name, **refused)
            )
            liar.lies["partition_register"] = liar.lies["commit"]
            liar.times = liar.asked["partition_register"] + 2
            liar.asked["commit"] = 0
            time.sleep(0.2)
            assert reader.latestOffset(START, None) == END
        finally:
            reader.stop()


def test_a_broker_that_is_down_for_long_is_not_lost_data():
    other = Liar({"demo": 1})
    liar = Forgetful("1:1:1:1,2:1:1:1", other)
    start = {"v": 1, "topics": {"demo": {"1:0": 0, "2:0": 0}}}
    with served(liar) as url:
        with served(other):
            reader = of(url)
            assert list(reader.latestOffset(start, None)["topics"]["demo"]) == ["1:0", "2:0"]
        try:
            liar.listed = FIRST
            time.sleep(0.2)
            with pytest.raises(errors.ServiceNotReady, match=r"demo 2:0: its broker may be down"):
                reader.latestOffset(start, None)
        finally:
            reader.stop()
