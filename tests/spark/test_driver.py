"""The driver's part of a write: one job a write, messages of the JVM that are bounded, and plans that Spark
watches."""

import dataclasses
import inspect
import pickle
import threading

import pytest

from forebay import blocking, errors
from forebay.spark import partition_writer, register, write
from forebay.spark._arrow_messages import ROWS_PER_MESSAGE, arrow_batches, short_messages
from forebay.spark._config import WriteArguments, write_config
from forebay.spark._spark_options import as_text, of_text, without_text

from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]
ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"


def values(url, topic, count):
    """The payloads of the topic; fails when there are not ``count``."""
    rows = []
    with blocking.connect(url) as client, client.reader(topic, position="earliest") as reader:
        while len(rows) < count:
            part = reader.read_frame(count - len(rows), timeout=PATIENCE).to_pylist()
            assert part, f"{len(rows)} of {count} rows came"
            rows += [row["value"].decode() for row in part]
        assert reader.read_frame(10, timeout=0.2).num_rows == 0
    return rows


def test_messages_of_the_jvm_do_not_grow_with_the_rows(spark):
    from pyspark.sql import functions as F  # noqa: N812

    wide = spark.range(0, 2 * ROWS_PER_MESSAGE, 1, 1).select(F.repeat(F.lit("x"), 128 << 10).alias("value"))
    sizes = arrow_batches(wide).map(len).collect()
    assert max(sizes) < ROWS_PER_MESSAGE * 140_000
    assert sum(sizes) > 2 * ROWS_PER_MESSAGE * (128 << 10)


def test_a_token_in_the_drivers_environment_travels_as_a_reference(spark, embedded, topic, monkeypatch):
    monkeypatch.setenv("FOREBAY_TOKEN", "canary-5e1d")
    config = write_config(embedded.url, topic, value="value", options={})
    assert config.client["token"] == "env:FOREBAY_TOKEN"
    assert b"canary" not in pickle.dumps(config)
    # The workers of this session began before, so they have no variable of the test: Spark sets
    # this one.
    monkeypatch.setenv("PYTHONUNBUFFERED", "YES")
    monkeypatch.setenv("FOREBAY_TOKEN", "env:PYTHONUNBUFFERED")
    frame = spark.range(3).selectExpr("cast(id as string) value")
    assert write(frame, embedded.url, topic, value="value").rows == 3


def test_columns_are_found_as_spark_finds_them(spark, embedded, topic):
    frame = spark.sql("select 'x' Value, 'k' `a.b`, 'k' `a``b`, named_struct('f', 'x') s")
    assert write(frame, embedded.url, topic, value="VALUE", key="a.b").rows == 1
    assert write(frame, embedded.url, topic, value="value", key="a`b").rows == 1
    with pytest.raises(errors.InvalidArgument, match=r"select a field of a struct first"):
        write(frame, embedded.url, topic, value="s.f")
    alike = spark.sql("select 'x' v").selectExpr("v a", "v A")
    with pytest.raises(errors.InvalidArgument, match="no column 'V'"):
        write(alike, embedded.url, topic, value="V")


def test_numbers_of_a_first_message_are_refused(spark, embedded, topic):
    frame = spark.range(3).selectExpr("cast(id as string) value")
    for _ in range(2):
        assert write(frame, embedded.url, topic, value="value", name="sink").rows == 3
    with pytest.raises(errors.Unsupported, match="initial_sequence_id"):
        write(frame, embedded.url, topic, value="value", name="sink", initial_sequence_id=0)
    assert len(values(embedded.url, topic, 6)) == 6


def test_the_sessions_setting_is_what_it_was(spark):
    before = spark.conf.get(ROWS_CONF)
    inner, outer = threading.Event(), threading.Event()

    def hold():
        with short_messages(spark):
            inner.set()
            assert outer.wait(PATIENCE)

    other = threading.Thread(target=hold)
    other.start()
    assert inner.wait(PATIENCE)
    # Another object for the same session.
    with short_messages(type(spark).getActiveSession()):
        assert spark.conf.get(ROWS_CONF) == str(ROWS_PER_MESSAGE)
    assert spark.conf.get(ROWS_CONF) == str(ROWS_PER_MESSAGE)
    outer.set()
    other.join()
    assert spark.conf.get(ROWS_CONF) == before


def test_rows_of_many_messages_keep_their_order(spark, embedded, topic):
    frame = spark.range(0, 5000, 1, 1).selectExpr("cast(id as string) value")
    report = write(frame, embedded.url, topic, value="value")
    assert report.rows == 5000
    assert values(embedded.url, topic, 5000) == [str(number) for number in range(5000)]


def test_a_failing_shuffle_below_the_frame_runs_once(spark, embedded, topic, tmp_path):
    from pyspark.sql import functions as F  # noqa: N812

    runs = tmp_path / "runs"

    @F.udf("string")
    def breaks(number):
        from pyspark.taskcontext import TaskContext

        if number == 7:
            with runs.open("a") as file:
                file.write(f"{TaskContext.get().attemptNumber()}\n")
            raise ValueError("broken row")
        return str(number)

    frame = spark.range(0, 20, 1, 1).select(breaks("id").alias("value")).repartition(2)
    with pytest.raises(Exception, match="broken row"):
        write(frame, embedded.url, topic, value="value")
    # The attempts of one task of one job.
    assert runs.read_text().split() == ["0", "1", "2"]


def test_an_observed_frame_has_its_metrics(spark, embedded, topic):
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = Observation("rows")
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value")
    observed = frame.observe(seen, F.count(F.lit(1)).alias("count")).where("value <> '3'")
    report = write(observed, embedded.url, topic, value="value")
    assert (report.rows, len(report.partitions)) == (9, 2)
    metrics = []
    waiting = threading.Thread(target=lambda: metrics.append(seen.get), daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    assert metrics == [{"count": 10}]


def test_a_stream_with_a_name_is_written(spark, embedded, topic, tmp_path):
    register(spark)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    writer = source.selectExpr("cast(value as string) value").writeStream.format("forebay")
    writer = writer.options(url=embedded.url, topic=topic, value="value", checkpointLocation=str(tmp_path))
    query = writer.queryName("named").start()
    try:
        eventually(lambda: query.exception() or (query.lastProgress or {}).get("batchId", -1) >= 1, 240)
        assert query.exception() is None
        assert query.name == "named"
        assert query.lastProgress["sink"]["numOutputRows"] == 20
    finally:
        query.stop()


def test_the_option_for_reports_overwrites_no_file(spark, embedded, topic, tmp_path):
    register(spark)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    writer = spark.range(3).selectExpr("cast(id as string) value").write.format("forebay").mode("append")
    writer.options(url=embedded.url, topic=topic, value="value", _report=str(precious)).save()
    assert precious.read_text() == "precious"
    assert len(values(embedded.url, topic, 3)) == 3


def test_record_batches_are_limited_by_bytes_where_spark_counts_them(spark, embedded, topic, monkeypatch):
    """Spark's default are 64 MiB, which a worker would have several times."""
    from forebay.spark import _arrow_messages

    seen = []
    through = _arrow_messages._lowered

    def noted(session, name, limit):
        seen.append((name, limit))
        return through(session, name, limit)

    monkeypatch.setattr(_arrow_messages, "_lowered", noted)
    before = spark.conf.get(_arrow_messages.BYTES_CONF)
    frame = spark.range(3).selectExpr("cast(id as string) value")
    assert write(frame, embedded.url, topic, value="value").rows == 3
    assert seen == [(_arrow_messages.BYTES_CONF, 8 << 20)]
    assert spark.conf.get(_arrow_messages.BYTES_CONF) == before
    assert [
        _arrow_messages._counts_bytes(version) for version in ("4.0.5", "4.1.0", "4.3.0-SNAPSHOT", "5.0")
    ] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(("before", "during"), [("4m", "4000000"), ("64m", str(8 << 20)), ("9", "9")])
def test_a_lower_limit_of_the_user_is_kept(spark, before, during):
    from forebay.spark import _arrow_messages

    was = spark.conf.get(_arrow_messages.BYTES_CONF)
    spark.conf.set(_arrow_messages.BYTES_CONF, before)
    try:
        with short_messages(spark, of_data_source=True):
            assert spark.conf.get(_arrow_messages.BYTES_CONF) == during
        assert spark.conf.get(_arrow_messages.BYTES_CONF) == before
    finally:
        spark.conf.set(_arrow_messages.BYTES_CONF, was)


def test_options_that_no_text_stands_for_are_known():
    options = {
        "token": lambda: "x",
        "lookup_properties": {"a": "b,c"},
        "connect_timeout": 1e-5,
        "tls_pin": ["ab" * 32, "cd" * 32],
        "properties": None,
        "operation_timeout": "30s",
        "compression": "zstd",
        "batching": False,
    }
    config = write_config("pulsar://h", "t", options, value="v")
    assert without_text(config) == ["token"]
    with pytest.raises(errors.InvalidArgument, match="texts only"):
        as_text(config)
    del options["token"]
    kept = write_config(
        "pulsar://h", "t", options, value="v", properties="p", id_property="id", ack_timeout="90s"
    )
    assert of_text(as_text(kept)) == kept
    with pytest.raises(errors.InvalidArgument, match="different versions of forebay"):
        of_text(as_text(kept).replace('"run_id"', '"run"'))


def test_a_certificate_has_a_text(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    kept = write_config("pulsar+ssl://h", "t", {"tls_ca": str(ca)}, value="v")
    assert of_text(as_text(kept)).client == kept.client


@pytest.mark.parametrize("function", [write, partition_writer])
def test_the_arguments_of_a_write_are_those_of_the_configuration(function):
    """Their names and defaults are written three times: for the help of two functions, and here."""
    known = {each.name: each.default for each in dataclasses.fields(WriteArguments)}
    parameters = inspect.signature(function).parameters.values()
    own = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert {name: own.get(name) for name in known} == known
    assert set(own) - set(known) <= {"schema"}


def test_a_secret_need_not_be_known_to_the_process_that_spark_plans_in(spark, embedded, topic, monkeypatch):
    """It is set after the JVM began, whose processes do not have it."""
    from pyspark.sql import functions as F  # noqa: N812

    monkeypatch.setenv("FOREBAY_LATE", "canary")
    frame = spark.range(3).selectExpr("cast(id as string) value")
    with pytest.raises(errors.InvalidArgument, match=r"a Spark task failed.*FOREBAY_LATE is not set"):
        write(frame, embedded.url, topic, value="value", token="env:FOREBAY_LATE")
    # No task, nothing that needs it.
    empty = frame.where(F.lit(False))
    assert write(empty, embedded.url, topic, value="value", token="env:FOREBAY_LATE").rows == 0


@pytest.mark.parametrize("of_another_session", [False, True])
def test_a_thread_that_spark_knows_nothing_of_can_write(spark, embedded, topic, of_another_session):
    """No session is active in it, where Spark would find the data source."""
    session = spark.newSession() if of_another_session else spark
    frame = session.range(3).selectExpr("cast(id as string) value")
    done = []

    def act():
        done.append(write(frame, embedded.url, topic, value="value").rows)
        writer = frame.write.format("forebay").options(url=embedded.url, topic=topic, value="value")
        writer.mode("append").save()
        done.append(3)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    assert done == [3, 3]
    assert len(values(embedded.url, topic, 6)) == 6
