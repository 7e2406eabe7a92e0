"""Spark into Pulsar, on the embedded broker: every row arrives once, with its key, and the report is
correct."""

import json
import pickle

import pytest

import forebay
from forebay import blocking, errors
from forebay.spark import PartitionReport, WriteReport, _pool, partition_writer, register, write
from forebay.spark._config import write_config

from support.pulsar.harness import EmbeddedPulsar
from support.waiting import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROWS = 25_000  # of the frame


def read(url, topic, count):
    """``count`` rows of the topic; fails when there are more."""
    rows = []
    with blocking.connect(url) as client, client.reader(topic, position="earliest") as reader:
        while len(rows) < count:
            table = reader.read_frame(count - len(rows), timeout=PATIENCE)
            assert table.num_rows, f"{len(rows)} of {count} rows came"
            rows += table.to_pylist()
        assert reader.read_frame(10, timeout=0.2).num_rows == 0
    return rows


def held(embedded, topic):
    """Retains messages that are sent before the first subscription."""
    with blocking.connect(embedded.url) as client:
        client.consumer(topic, "keep", position="earliest").close()
    return topic


@pytest.fixture
def topic(embedded: EmbeddedPulsar):
    return held(embedded, embedded.topic(4))


@pytest.fixture
def plain_topic(embedded: EmbeddedPulsar):
    return held(embedded, embedded.topic())


def test_a_column_is_written_with_keys_properties_and_times(embedded, frame, topic):
    report = write(
        frame, embedded.url, topic, value="value", key="shop", properties="props", event_time="moment"
    )
    assert report.rows == ROWS
    assert report.bytes >= ROWS * len("payload 1")
    assert [part.partition for part in report.partitions] == [0, 1, 2]
    assert sum(part.rows for part in report.partitions) == ROWS
    rows = read(embedded.url, topic, ROWS)
    by_value = {row["value"].decode(): row for row in rows}
    assert set(by_value) == {f"payload {number}" for number in range(ROWS)}
    for number in (0, 1, ROWS - 1):
        row = by_value[f"payload {number}"]
        assert row["key"] == str(number % 7)
        assert dict(row["properties"]) == {"source": "spark"}
        assert row["event_time"].timestamp() == 1_700_000_000
    ids = {row["message_id"] for row in rows}
    for part in report.partitions:
        assert str(part.first) in ids
        assert str(part.last) in ids


def test_rows_as_json_in_the_engine(embedded, frame, topic):
    report = write(frame.select("id", "value"), embedded.url, topic, key="value", compression="zstd")
    assert report.rows == ROWS
    rows = read(embedded.url, topic, ROWS)
    values = [json.loads(row["value"]) for row in rows]
    assert sorted(value["id"] for value in values) == list(range(ROWS))
    assert [value["value"] for value in values] == [row["key"] for row in rows]


def test_rows_of_a_partition_keep_their_order(embedded, frame, plain_topic):
    write(frame.coalesce(1).select("value"), embedded.url, plain_topic, value="value")
    rows = read(embedded.url, plain_topic, ROWS)
    assert [row["value"].decode() for row in rows] == [f"payload {number}" for number in range(ROWS)]


def test_an_empty_frame_and_empty_partitions(embedded, frame, plain_topic):
    report = write(frame.where("id < 0"), embedded.url, plain_topic, value="value")
    assert (report.rows, report.retries) == (0, 0)
    assert all(part.first is None and part.last is None for part in report.partitions)
    report = write(frame.where("id = 3"), embedded.url, plain_topic, value="value")
    assert report.rows == 1


@pytest.mark.parametrize("columns", [{"value": "value", "key": "shop"}, {"key": "value"}])
def test_plain_rows_by_foreach_partition(embedded, frame, topic, columns):
    frame.select("id", "shop", "value").foreachPartition(partition_writer(embedded.url, topic, **columns))
    rows = read(embedded.url, topic, ROWS)
    if "shop" in columns.values():
        assert {row["value"].decode() for row in rows} == {f"payload {number}" for number in range(ROWS)}
        assert {row["key"] for row in rows} == {str(number) for number in range(7)}
    else:
        assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(ROWS))


def test_the_data_source(spark, embedded, frame, topic):
    register(spark)
    writer = frame.select("value").write.format("forebay").option("url", embedded.url).option("topic", topic)
    writer.option("value", "value").option("compression", "lz4").mode("append").save()
    assert len(read(embedded.url, topic, ROWS)) == ROWS
    with pytest.raises(Exception, match="append"):
        writer.mode("overwrite").save()


def test_a_plain_job_writes_what_a_data_source_cannot_be_told(embedded, frame, topic, monkeypatch):
    monkeypatch.setattr("forebay.spark._datasource.write_through", None)
    # No text stands for a function.
    report = write(frame, embedded.url, topic, value="value", key="shop", token=lambda: "token")
    assert report.rows == ROWS
    assert sorted(part.partition for part in report.partitions) == [0, 1, 2]
    assert len(read(embedded.url, topic, ROWS)) == ROWS


def test_a_task_that_fails_is_tried_again_and_the_report_says_so(spark, embedded, plain_topic):
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.taskcontext import TaskContext

    @F.udf("string")
    def fails_at_first(number):
        if TaskContext.get().attemptNumber() == 0 and number == 10:
            raise RuntimeError("first attempt")
        return str(number)

    frame = spark.range(0, 20, 1, 1).select(fails_at_first("id").alias("value"))
    report = write(frame, embedded.url, plain_topic, value="value")
    assert (report.rows, report.retries) == (20, 1)


def test_a_key_that_is_not_text_is_refused_and_its_rows_are_not_sent(spark, embedded, plain_topic):
    # Spark casts any binary to a string without a check.
    bad = spark.range(0, 2000, 1, 1).selectExpr(
        "cast(id as string) v",
        "cast(if(id = 500, X'FF00', cast(cast(id as string) as binary)) as string) k",
    )
    with pytest.raises(errors.InvalidArgument, match='row 500 of column "k" is not valid UTF-8'):
        write(bad, embedded.url, plain_topic, value="v", key="k")
    good = bad.where("id <> 500")
    assert write(good, embedded.url, plain_topic, value="v", key="k").rows == 1999
    assert {row["value"] for row in read(embedded.url, plain_topic, 1999)} == {
        b"%d" % i for i in range(2000) if i != 500
    }


@pytest.mark.parametrize("door", ["batches", "data source"])
def test_an_error_of_a_task_is_the_packages_own(embedded, frame, plain_topic, monkeypatch, door):
    if door == "batches":
        monkeypatch.setattr("forebay.spark._driver._through_source", lambda config: False)
    from pyspark.sql import functions as F  # noqa: N812

    large = frame.where("id = 3").select(F.repeat(F.lit("x"), 6 << 20).alias("value"))
    with pytest.raises(errors.MessageTooLarge, match="a Spark task failed"):
        write(large, embedded.url, plain_topic, value="value")


def test_mistakes_show_on_the_driver_before_any_job(embedded, frame, topic):
    for arguments, words in (
        ({"value": "valeu"}, "no column 'valeu'"),
        ({"compresion": "zstd"}, "did you mean 'compression'"),
        ({"encoding": "xml"}, "encoding"),
        ({"encoding": "raw"}, "value="),
        ({"token": "secret-text"}, "env:NAME"),
    ):
        with pytest.raises(errors.InvalidArgument, match=words) as refused:
            write(frame, embedded.url, topic, **arguments)
        assert "secret-text" not in str(refused.value)
    with pytest.raises(errors.InvalidArgument, match="Broker"):
        write(frame, "embedded:", topic)
    with pytest.raises(errors.ConnectFailed):
        write(frame, "pulsar://127.0.0.1:1", topic, connect_timeout=2)


async def test_a_spark_frame_never_goes_through_the_driver(embedded, frame):
    async with forebay.connect(embedded.url) as client, client.producer(embedded.topic()) as producer:
        with pytest.raises(errors.InvalidArgument, match=r"forebay\.spark\.write"):
            producer.send_frame(frame, value="value")


def test_a_writer_pickles_without_secrets(monkeypatch):
    monkeypatch.setenv("TOKEN_OF_TEST", "canary-5e1d")
    writer = partition_writer("pulsar://h:1", "t", value="v", token="env:TOKEN_OF_TEST", compression="zstd")
    pickled = pickle.dumps(writer)
    assert b"canary" not in pickled
    assert b"TOKEN_OF_TEST" not in repr(writer).encode()
    again = pickle.loads(pickled)
    assert again.config == writer.config


def test_a_pool_shares_connections_by_what_they_are(embedded):
    topic = embedded.topic()
    configs = [
        write_config(embedded.url, topic, value="v", options=options)
        for options in ({}, {}, {"compression": "zstd"}, {"keep_alive": 5})
    ]
    try:
        held = []
        for config in configs:
            with _pool.producers(config, None) as producers:
                held.append(producers.of(topic))
                assert producers.of(topic) is held[-1]
            assert held[-1].closed, "a producer ends with its task"
        assert held[0]._owner is held[1]._owner
        assert held[0]._owner is held[2]._owner
        assert held[0]._owner is not held[3]._owner
        with pytest.raises(RuntimeError), _pool.producers(configs[0], None) as producers:
            failed = producers.of(topic)
            raise RuntimeError("the task failed")
        assert failed.closed and failed._owner.closed
        with _pool.producers(configs[0], "sink-3") as producers:
            assert producers.of(topic).name == "sink-3"
    finally:
        _pool.close()


def test_a_report_sums_up():
    parts = [PartitionReport(1, 2, 20, None, None, 1, 0.5), PartitionReport(0, 3, 30, None, None, 0, 0.5)]
    report = WriteReport.of(parts, 1.5)
    assert (report.rows, report.bytes, report.retries, report.seconds) == (5, 50, 1, 1.5)
    assert [part.partition for part in report.partitions] == [0, 1]
    assert pickle.loads(pickle.dumps(report)) == report
