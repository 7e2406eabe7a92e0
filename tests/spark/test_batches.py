"""Batches of streams: a write whose names and numbers depend on its batch knows it, or is refused."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from forebay import errors, frames
from forebay.spark import partition_writer, register, write

from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]
IDEMPOTENT = {"value": "value", "delivery": "idempotent", "stable_order": True}


def in_a_thread(function):
    """Runs a function in a thread that Spark knows nothing of; raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()


def stream(spark, rows=50):
    """A source that returns the same rows for a batch each time."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.option("numPartitions", 2).load().selectExpr("cast(value as string) value")


def run_until(query, batch):
    try:
        eventually(lambda: query.exception() or (query.lastProgress or {}).get("batchId", -1) >= batch, 120)
    finally:
        query.stop()
    if query.exception() is not None:
        raise query.exception()


def payloads(url, topic):
    return sorted(map(int, frames.read(url, topic)["value"].to_pylist()))


def test_a_write_from_a_thread_in_a_batch_is_refused_unless_it_names_the_batch(
    spark, embedded, topic, tmp_path, forget_the_last_commit
):
    def sink(**more):
        def each(frame, number):
            more_of_batch = dict.fromkeys(more, number)
            in_a_thread(
                lambda: write(frame, embedded.url, topic, write_id="w", **IDEMPOTENT, **more_of_batch)
            )

        return (
            stream(spark).writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(each).start()
        )

    with pytest.raises(Exception, match=r"in this thread it cannot be seen.*batch_id=, the number that"):
        run_until(sink(), 0)
    assert payloads(embedded.url, topic) == []
    run_until(sink(batch_id=True), 2)
    last = forget_the_last_commit(tmp_path)
    run_until(sink(batch_id=True), last + 1)
    found = payloads(embedded.url, topic)
    # The batch behind them may have been stopped half-way.
    assert set(found) >= set(range(50 * (last + 2))), "rows of a batch are missing"
    assert len(found) == len(set(found)), "rows of a batch are there twice"


def test_a_data_source_with_the_name_of_a_write_needs_the_batch(spark, embedded, topic, tmp_path):
    register(spark)

    def save(frame, **more):
        options = {"url": embedded.url, "topic": topic, "value": "value", "writeId": "w"}
        options |= {"delivery": "idempotent", "stableOrder": "true", "tasks": "2", **more}
        frame.write.format("forebay").options(**options).mode("append").save()

    frame = spark.range(10).selectExpr("cast(id as string) value")
    with pytest.raises(Exception, match="a data source needs batchId"):
        save(frame)
    with pytest.raises(Exception, match="batch_id: expected a whole number between 0"):
        save(frame, batchId="-1")
    later = spark.range(10, 20).selectExpr("cast(id as string) value")
    for rows, number in ((frame, 0), (frame, 0), (later, 1)):
        save(rows, batchId=number)
    assert payloads(embedded.url, topic) == list(range(20))

    # In the thread of the query its tasks see the batch.
    def each(frame, _):
        save(frame.selectExpr("string(int(value) + 20) value"), writeId="another")

    writer = stream(spark, 10).writeStream.option("checkpointLocation", str(tmp_path))
    run_until(writer.foreachBatch(each).start(), 1)
    found = payloads(embedded.url, topic)
    assert set(found) >= set(range(40)) and len(found) == len(set(found))


def interrupted(rows, is_interrupted):
    """``rows``; if asked for, tasks 2 and 3 fail each time, before their first row."""
    from pyspark.sql import functions as F  # noqa: N812

    @F.udf("string")
    def or_fail(value):
        from pyspark.taskcontext import TaskContext

        if TaskContext.get().partitionId() >= 2:
            raise RuntimeError("this task is interrupted")
        return value

    return rows.select(or_fail("value").alias("value")) if is_interrupted else rows


@pytest.mark.parametrize("door", ["data source", "data source, tasks", "foreachBatch"])
def test_a_batch_that_is_repeated_with_another_number_of_tasks_loses_no_row(
    spark, embedded, topic, tmp_path, door
):
    """Tasks had the same names in both runs, and the broker dropped their rows, which it did not have."""
    register(spark)

    def start(tasks, is_interrupted):
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 400)
        rows = source.option("numPartitions", tasks).load().selectExpr("cast(value as string) value")
        writer = interrupted(rows, is_interrupted).writeStream.option("checkpointLocation", str(tmp_path))
        if door == "foreachBatch":
            return writer.foreachBatch(
                lambda frame, _: write(frame, embedded.url, topic, write_id="w", **IDEMPOTENT) and None
            ).start()
        options = {"url": embedded.url, "topic": topic, "value": "value"}
        options |= {"delivery": "idempotent", "stableOrder": "true"}
        if door == "data source, tasks":
            options["tasks"] = str(tasks)
        return writer.format("forebay").options(**options).start()

    with pytest.raises(Exception, match="this task is interrupted"):
        run_until(start(4, True), 0)
    # Of four tasks, each of which has every fourth row.
    before = payloads(embedded.url, topic)
    assert before and {value % 4 for value in before} <= {0, 1}
    run_until(start(2, False), 0)
    assert set(payloads(embedded.url, topic)) >= set(range(400)), "rows are missing"


def test_a_number_of_tasks_that_is_wrong_fails_before_the_batch_is_committed(
    spark, embedded, topic, tmp_path
):
    register(spark)

    def start(tasks):
        options = {"url": embedded.url, "topic": topic, "value": "value", "tasks": str(tasks)}
        options |= {"delivery": "idempotent", "stableOrder": "true", "checkpointLocation": str(tmp_path)}
        return stream(spark).writeStream.format("forebay").options(**options).start()

    with pytest.raises(Exception, match=r"tasks=1, and the number of tasks that write is at least 2"):
        run_until(start(1), 0)
    with pytest.raises(Exception, match=r"tasks=3, and the number of tasks that write is 2"):
        run_until(start(3), 0)
    assert not list((tmp_path / "commits").glob("[0-9]*"))
    run_until(start(2), 0)
    assert set(payloads(embedded.url, topic)) >= set(range(50))


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_number_of_tasks_that_is_wrong_fails_the_write(spark, embedded, topic, monkeypatch, tasks):
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value")
    with pytest.raises(errors.InvalidArgument, match=f"tasks={tasks}, and the number of tasks"):
        write(frame, embedded.url, topic, **IDEMPOTENT, write_id="w", tasks=tasks)
    # Without the data source it is known before anything is sent.
    before = payloads(embedded.url, topic)
    monkeypatch.setattr("forebay.spark._driver._through_source", lambda config: False)
    with pytest.raises(errors.InvalidArgument, match=f"tasks={tasks}, and .* is 2: repeat the write"):
        write(frame, embedded.url, topic, **IDEMPOTENT, write_id="w", tasks=tasks)
    assert payloads(embedded.url, topic) == before
    assert write(frame.limit(0), embedded.url, topic, **IDEMPOTENT, write_id="w", batch_id=0).rows == 0


def test_a_write_counts_its_tasks(spark, embedded, topic):
    """With a name that outlives the job; the data source has to be told the number, by which it is the same
    write."""
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value")
    named = {**IDEMPOTENT, "write_id": "w"}
    repeated = [
        write(rows, embedded.url, topic, **named, **more).repeated_rows
        for rows, more in ((frame, {}), (frame, {"tasks": 2}), (frame.coalesce(1), {}), (frame, {}))
    ]
    assert repeated == [0, 100, 0, 100]
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = frame.observe(Observation(), F.count("value").alias("count"))
    with pytest.raises(errors.InvalidArgument, match="a write_id needs tasks="):
        write(seen, embedded.url, topic, **named)
    assert write(seen, embedded.url, topic, **named, tasks=2).repeated_rows == 100


def test_ids_of_rows_have_the_number_of_the_batch(spark, embedded_mqtt, reading):
    topic = f"t/{uuid.uuid4().hex[:12]}"
    frame = spark.range(0, 2, 1, 1).selectExpr("cast(id as string) value")
    with reading(embedded_mqtt.url, topic) as reader:
        write(frame, embedded_mqtt.url, topic, value="value", id_property="row-id", write_id="w", batch_id=7)
        rows = reader.rows(2)
    assert {text for row in rows for name, text in row["properties"]} == {"w/7/0-of-1/0", "w/7/0-of-1/1"}


def test_a_batch_is_named_together_with_its_write(spark, embedded, topic, tmp_path):
    frame = spark.range(1).selectExpr("cast(id as string) value")
    with pytest.raises(errors.InvalidArgument, match="batch_id needs write_id"):
        write(frame, embedded.url, topic, **IDEMPOTENT, batch_id=0)
    register(spark)
    options = {"url": embedded.url, "topic": topic, "value": "value", "checkpointLocation": str(tmp_path)}
    options |= {"delivery": "idempotent", "stableOrder": "true", "writeId": "w", "batchId": "3", "tasks": "2"}
    with pytest.raises(Exception, match="here Spark tells the number of each batch"):
        stream(spark).writeStream.format("forebay").options(**options).start().processAllAvailable()


def test_a_write_beside_a_stream_says_that_it_is_not_part_of_it(spark, embedded, topic):
    frame = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) value")
    query = stream(spark).writeStream.format("noop").start()
    try:
        with pytest.raises(errors.InvalidArgument, match="if not, pass write_id= and batch_id=0"):
            write(frame, embedded.url, topic, **IDEMPOTENT, write_id="job")
        with pytest.raises(errors.InvalidArgument, match="batch_id=0"):
            partition_writer(embedded.url, topic, **IDEMPOTENT)
        # Nothing of these depends on a batch.
        assert write(frame, embedded.url, topic, value="value").rows == 10
        assert write(frame, embedded.url, topic, value="value", id_property="row-id").rows == 10
        assert write(frame, embedded.url, topic, **IDEMPOTENT, write_id="job", batch_id=0).rows == 10
    finally:
        query.stop()
    # The same write, which the broker knows.
    report = write(frame, embedded.url, topic, **IDEMPOTENT, write_id="job")
    assert (report.rows, report.repeated_rows) == (10, 10)


def test_a_batch_of_connect_is_named(spark, embedded, topic, monkeypatch):
    class Remote:
        """A frame of Spark Connect, which has no object in a JVM."""

        def __init__(self, frame):
            self.schema = frame.schema

    remote = Remote(spark.range(1).selectExpr("cast(id as string) value"))
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    for arguments in (
        {"value": "value", "id_property": "row-id"},
        {"value": "value", "id_property": "row-id", "write_id": "w"},
        {**IDEMPOTENT, "write_id": "w"},
    ):
        with pytest.raises(errors.InvalidArgument, match=r"foreachBatch of Spark Connect.*batch_id="):
            write(remote, embedded.url, topic, **arguments)
    # The client has no RDD whose partitions could be counted.
    with pytest.raises(errors.InvalidArgument, match="a write_id needs tasks="):
        write(remote, embedded.url, topic, **IDEMPOTENT, write_id="w", batch_id=0)
