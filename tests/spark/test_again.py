"""Rows that Spark sends again, after a failed task, a killed worker, a replayed micro-batch or a lost broker:
no row is lost, and repetitions have the same id."""

import collections
import os
import signal
import threading
import uuid
from pathlib import Path

import pytest

from forebay import blocking, errors
from forebay.spark import partition_writer, register, write

from support.mqtt.proxy import Proxy
from support.scripts import free_port
from support.service import BrokerProcess
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]


@pytest.fixture
def url(embedded_mqtt):
    return embedded_mqtt.url


@pytest.fixture
def topic():
    return f"t/{uuid.uuid4().hex[:12]}"


def by_id(rows):
    """Values by id; asserts that repetitions of an id have the same value."""
    seen = {}
    for row in rows:
        (name,) = [text for key, text in row["properties"] if key == "row-id"]
        assert seen.setdefault(name, row["value"].decode()) == row["value"].decode()
    return seen


def fails_at_first(how, after):
    """For ``mapPartitionsWithIndex``: the first attempt of partition 1 fails half-way."""

    def rows(partition, iterator):
        from pyspark.taskcontext import TaskContext

        for number, row in enumerate(iterator):
            if partition == 1 and number == after and TaskContext.get().attemptNumber() == 0:
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("first attempt")
            yield row

    return rows


@pytest.mark.parametrize("how", ["raises", "killed"])
def test_a_task_that_fails_in_the_middle_repeats_its_ids(spark, url, topic, how, reading):
    frame = spark.range(0, 20_000, 1, 2).selectExpr("cast(id as string) value")
    named = {"id_property": "row-id", "write_id": "job-7", "tasks": 2}
    writer = partition_writer(url, topic, value="value", qos=1, **named)
    with reading(url, topic) as reader:
        # Two batches have been acknowledged by then, and the third is incomplete.
        frame.rdd.mapPartitionsWithIndex(fails_at_first(how, 5000)).foreachPartition(writer)
        rows = reader.rows_until(lambda rows: len(by_id(rows)) == 20_000)
    assert len(rows) > 20_000, "the first attempt had sent nothing"
    assert by_id(rows) == {
        f"job-7/{partition}-of-2/{row}": str(partition * 10_000 + row)
        for partition in range(2)
        for row in range(10_000)
    }


@pytest.mark.parametrize("door", ["batches", "data source"])
def test_ids_of_a_write_are_its_own(spark, url, topic, door, monkeypatch, reading):
    if door == "batches":
        monkeypatch.setattr("forebay.spark._driver._through_source", lambda config: False)
    frame = spark.range(0, 30_000, 1, 2).selectExpr("cast(id as string) value", "map('a', 'b') props")
    arguments = {"value": "value", "id_property": "row-id", "properties": "props"}
    with reading(url, topic) as reader:
        write(frame, url, topic, **arguments)
        write(frame, url, topic, **arguments)
        write(frame, url, topic, **arguments, write_id="job")
        # The data source does not see the number of tasks.
        write(frame, url, topic, **arguments, write_id="job", tasks=2)
        rows = reader.rows(120_000)
    assert all(("a", "b") in row["properties"] for row in rows)
    writes = collections.Counter(name.split("/")[0] for name in by_id(rows))
    # Two generated names, and one that was used twice for the same rows.
    assert sorted(writes.values()) == [30_000] * 3
    assert "job" in writes
    ends = (0, 9_999, 10_000, 14_999)
    assert {f"job/{part}-of-2/{row}" for part in (0, 1) for row in ends} <= set(by_id(rows))


def stream(spark, rows):
    """A source that returns the same rows for a batch each time."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.option("numPartitions", 2).load().selectExpr("cast(value as string) value")


def batch_of(name):
    """The number of the batch in an id."""
    return int(name.rsplit("/", 3)[1])


def run_until(query, batch):
    try:
        eventually(lambda: (query.lastProgress or {}).get("batchId", -1) >= batch, 120)
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.parametrize("door", ["data source", "foreachBatch"])
def test_a_replayed_micro_batch_repeats_its_ids(
    spark, url, topic, tmp_path, door, reading, forget_the_last_commit
):
    register(spark)

    def start():
        writer = stream(spark, 50).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if door == "foreachBatch":
            return writer.foreachBatch(
                lambda df, _: write(df, url, topic, value="value", id_property="row-id") and None
            ).start()
        options = {"url": url, "topic": topic, "value": "value", "id_property": "row-id", "tasks": "2"}
        return writer.format("forebay").options(**options, qos="2").start()

    with reading(url, topic) as reader:
        query = start()
        query_id = query.id
        run_until(query, 2)
        last = forget_the_last_commit(tmp_path / "checkpoint")
        again = start()
        assert again.id == query_id
        run_until(again, last + 1)

        def are_all(rows):
            seen = by_id(rows)
            in_batch = collections.Counter(batch_of(name) for name in seen)
            return all(in_batch[n] == 50 for n in range(last + 2)) and len(rows) >= len(seen) + 50

        rows = reader.rows_until(are_all)
    seen = by_id(rows)
    assert {name.rsplit("/", 3)[0] for name in seen} == {query_id}
    # The batch behind them may have been stopped half-way.
    batches = collections.Counter(batch_of(name) for name in seen)
    assert all(batches[number] == 50 for number in range(last + 2))
    values = sorted(map(int, seen.values()))
    assert values[: 50 * (last + 2)] == list(range(50 * (last + 2)))
    assert len(rows) >= len(seen) + 50, "the replayed batch was not sent"


def test_overwriting_a_topic_is_refused_in_a_stream(spark, url, topic, tmp_path):
    register(spark)
    writer = stream(spark, 5).groupBy("value").count().select("value").writeStream.format("forebay")
    options = {"url": url, "topic": topic, "value": "value", "checkpointLocation": str(tmp_path)}
    query = writer.options(**options).outputMode("complete").start()
    with pytest.raises(Exception, match="cannot be overwritten"):
        query.processAllAvailable()
    query.stop()


def test_a_broker_that_is_killed_in_the_middle_has_every_row_at_last(spark, tmp_path: Path, topic, reading):
    port = free_port()
    broker = BrokerProcess(tmp_path / "data", "--mqtt-port", str(port))
    broker.start()
    url = f"mqtt://127.0.0.1:{port}"
    frame = spark.range(0, 6000, 1, 2).selectExpr("id", "concat('payload ', id) value")
    try:
        seen = threading.Event()

        def kill():
            with blocking.connect(url) as client, client.subscribe(f"{topic}/#") as consumer:
                ready.set()
                for _ in range(500):
                    consumer.receive(60)
                seen.set()
            broker.end()
            broker.start()

        ready = threading.Event()
        killer = threading.Thread(target=kill)
        killer.start()
        assert ready.wait(PATIENCE)
        report = write(frame, url, f"{topic}/{{id}}", value="value", retain=True, qos=1, max_backoff=1)
        killer.join()
        assert seen.is_set()
        assert report.rows == 6000
        with reading(url, f"{topic}/#") as reader:
            rows = reader.rows(6000)
        assert {row["topic"]: row["value"].decode() for row in rows} == {
            f"{topic}/{number}": f"payload {number}" for number in range(6000)
        }
    finally:
        broker.end()


def test_a_broker_that_stops_answering_ends_the_task(embedded_mqtt, topic):
    """The writer without Spark."""
    with Proxy(embedded_mqtt.port) as proxy:
        stuck = threading.Event()

        def verdict(passage, origin, packet):
            # The first PUBACK is delayed, and with it everything behind it.
            if origin == "broker" and packet.kind == 4:
                stuck.wait(30)
            return "pass"

        proxy.verdict = verdict
        writer = partition_writer(
            proxy.url, topic, value="value", ack_timeout=0.5, operation_timeout=0.5, qos=1
        )
        try:
            with pytest.raises(
                errors.Timeout, match=r"within 0\.5 s \[Spark partition 0, attempt 0, after 0 "
            ):
                writer([{"value": "x"}])
        finally:
            stuck.set()
