"""What a write promises beyond at least once, and what becomes of rows that cannot be messages."""

import collections
import json
import logging
import os
import signal
import uuid

import pyarrow as pa
import pytest

from forebay import blocking, errors, frames
from forebay.spark import partition_writer, register, write

from support.pulsar.harness import RealPulsar
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]


@pytest.fixture
def topics(service):
    """``topics(partitions)`` creates a topic that drops repetitions, and keeps what is written."""

    def create(partitions=0):
        topic = service.topic(partitions)
        with blocking.connect(service.url) as client:
            client.consumer(topic, "keep", position="earliest").close()
        if isinstance(service, RealPulsar):
            service.drop_repetitions(topic, partitions)
        return topic

    return create


def payloads(url, topic, count):
    """The payloads; fails when there are not ``count``."""
    found = []
    with blocking.connect(url) as client, client.reader(topic, position="earliest") as reader:
        while len(found) < count:
            part = reader.read_frame(count - len(found), timeout=PATIENCE)
            assert part.num_rows, f"{len(found)} of {count} rows came"
            found += part["value"].to_pylist()
        assert reader.read_frame(10, timeout=0.3).num_rows == 0
    return found


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


@pytest.mark.parametrize(
    ("how", "partitions", "keys"),
    [("raises", 0, None), ("killed", 3, None), ("killed", 0, "key"), ("raises", 3, "key")],
)
def test_a_task_that_is_repeated_adds_no_row(spark, service, topics, partitions, how, keys):
    topic = topics(partitions)
    frame = spark.range(0, 12_000, 1, 2).selectExpr("cast(id as string) value", "cast(id % 7 as string) key")
    writer = partition_writer(
        service.url, topic, value="value", key=keys, delivery="idempotent", stable_order=True
    )
    # Two lots of the task have been acknowledged by then.
    frame.rdd.mapPartitionsWithIndex(fails_at_first(how, 5000)).foreachPartition(writer)
    found = payloads(service.url, topic, 12_000)
    assert sorted(map(int, found)) == list(range(12_000))


@pytest.mark.parametrize("door", ["write", "data source"])
def test_a_write_that_is_run_again_adds_no_row(spark, service, topics, door):
    topic = topics(3)
    frame = spark.range(0, 3000, 1, 2).selectExpr("cast(id as string) value")
    for _ in range(2):
        if door == "write":
            report = write(frame, service.url, topic, value="value", delivery="idempotent", write_id="job-7")
            assert report.rows == 3000
        else:
            register(spark)
            options = {"url": service.url, "topic": topic, "value": "value", "writeId": "job-7"}
            options |= {"delivery": "idempotent", "stableOrder": "true", "batchId": "0", "tasks": "2"}
            frame.write.format("forebay").options(**options).mode("append").save()
    assert sorted(map(int, payloads(service.url, topic, 3000))) == list(range(3000))
    # Another write is another write.
    write(frame, service.url, topic, value="value", delivery="idempotent")
    assert len(payloads(service.url, topic, 6000)) == 6000


def test_a_micro_batch_that_is_replayed_adds_no_row(spark, service, topics, tmp_path, forget_the_last_commit):
    register(spark)
    topic = topics()

    def start():
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50)
        rows = source.option("numPartitions", 2).load().selectExpr("cast(value as string) value")
        options = {"url": service.url, "topic": topic, "value": "value", "delivery": "idempotent"}
        writer = rows.writeStream.format("forebay").options(**options, stableOrder="true", tasks="2")
        return writer.option("checkpointLocation", str(tmp_path)).start()

    def run_until(query, batch):
        try:
            eventually(lambda: (query.lastProgress or {}).get("batchId", -1) >= batch, 120)
        finally:
            query.stop()
        assert query.exception() is None

    run_until(start(), 2)
    last = forget_the_last_commit(tmp_path)
    again = start()
    run_until(again, last + 1)
    count = 50 * (1 + max(int(name) for name in os.listdir(tmp_path / "commits") if name.isdigit()))
    found = [int(value) for value in frames.read(service.url, topic)["value"].to_pylist()]
    # The batch behind them may have been stopped half-way.
    assert set(range(count)) <= set(found) <= set(range(count + 50))
    assert len(found) == len(set(found))


def test_a_topic_that_has_grown_loses_no_row(spark, service, topics):
    topic = topics(2)
    frame = spark.range(0, 2000, 1, 1).selectExpr("cast(id as string) value")
    arguments = {"value": "value", "delivery": "idempotent", "write_id": "job"}
    write(frame, service.url, topic, **arguments)
    service.grow_topic(topic, 5)
    with blocking.connect(service.url) as client:
        eventually(lambda: client.partitions(topic) == 5)
        client.consumer(topic, "keep").close()
    write(frame, service.url, topic, **arguments)
    # Which partition a row is sent to depends on their number, so that rows come again, and none is
    # missing.
    found = collections.Counter(map(int, payloads(service.url, topic, 4000)))
    assert set(found) == set(range(2000))


@pytest.mark.real_pulsar
def test_a_broker_that_drops_nothing_is_refused(spark, real_pulsar):
    topic = real_pulsar.topic()
    frame = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) value")
    with pytest.raises(errors.Unsupported, match=r"enable deduplication.*brokerDeduplicationEnabled"):
        write(frame, real_pulsar.url, topic, value="value", delivery="idempotent")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"send_timeout": 5}, "no send_timeout"),
        ({"routing": "single"}, "round_robin"),
        ({"key_based_batching": True}, "key_based_batching"),
    ],
)
def test_options_that_are_in_the_way_are_refused(spark, embedded, topic, options, words):
    frame = spark.range(1).selectExpr("cast(id as string) v")
    with pytest.raises(errors.Unsupported, match=words):
        write(frame, embedded.url, topic, value="v", delivery="idempotent", **options)


def test_other_protocols_do_not_drop_rows(spark, embedded_mqtt, embedded_tubemq):
    frame = spark.range(1).selectExpr("cast(id as string) v")
    for broker in (embedded_mqtt, embedded_tubemq):
        with pytest.raises(errors.Unsupported, match="does not remove messages that were sent twice"):
            write(frame, broker.url, "t", value="v", delivery="idempotent")
    with pytest.raises(errors.InvalidArgument, match="expected 'at-least-once', 'idempotent'"):
        write(frame, embedded_mqtt.url, "t", value="v", delivery="exactly-once")


# ---------------------------------------------------------------------------- bad rows


@pytest.fixture
def mixed(spark):
    """Rows of which three are too large, and one has a time that is none."""
    return spark.range(0, 1000, 1, 2).selectExpr(
        "if(id in (3, 500, 999), repeat('x', 6 << 20), cast(id as string)) value",
        "if(id = 7, -1L, id) at",
        "cast(id as string) key",
    )


GOOD = sorted(set(range(1000)) - {3, 7, 500, 999})


@pytest.mark.parametrize("door", ["write", "data source", "rows"])
def test_bad_rows_are_left_out_and_counted(spark, mixed, service, topics, door):
    topic = topics()
    arguments = {"value": "value", "event_time": "at", "key": "key"}
    if door == "write":
        report = write(mixed, service.url, topic, **arguments, on_bad_row="skip")
        assert (report.rows, report.bad_rows) == (996, 4)
        assert [part.bad_rows for part in report.partitions] == [2, 2]
    elif door == "rows":
        mixed.foreachPartition(partition_writer(service.url, topic, **arguments, on_bad_row="skip"))
    else:
        register(spark)
        options = {
            "url": service.url,
            "topic": topic,
            "eventTime": "at",
            "value": "value",
            "onBadRow": "skip",
        }
        mixed.write.format("forebay").options(**options).mode("append").save()
    assert sorted(map(int, payloads(service.url, topic, 996))) == GOOD


def test_bad_rows_get_to_a_topic_of_their_own(mixed, service, topics):
    topic, dead = topics(), topics()
    report = write(
        mixed,
        service.url,
        topic,
        value="value",
        event_time="at",
        on_bad_row="dead_letter",
        dead_letter_topic=dead,
        id_property="row-id",
        write_id="job",
    )
    assert (report.rows, report.bad_rows) == (996, 4)
    with blocking.connect(service.url) as client, client.reader(dead, position="earliest") as reader:
        messages = [reader.receive(PATIENCE) for _ in range(4)]
        found = {message.properties["row-id"]: message for message in messages}
    assert set(found) == {"job/0-of-2/3", "job/0-of-2/7", "job/1-of-2/0", "job/1-of-2/499"}
    assert found["job/0-of-2/7"].value == b"7"
    assert "event_time of row 7 is -1" in found["job/0-of-2/7"].properties["forebay-error"]
    # It fits nowhere, so that only what is known of it is there.
    assert found["job/0-of-2/3"].value == b"{}"
    assert "bytes" in found["job/0-of-2/3"].properties["forebay-error"]
    assert found["job/0-of-2/3"].properties["forebay-topic"] == topic


def test_bad_rows_are_logged(embedded, topic, caplog):
    rows = pa.table({"v": ["a", "b"], "t": [1, -1]}).to_batches()
    writer = partition_writer(embedded.url, topic, value="v", event_time="t", on_bad_row="skip")
    with caplog.at_level(logging.WARNING, "forebay.spark"):
        (report,) = writer(rows)
    assert (report.rows, report.bad_rows) == (1, 1)
    assert "1 rows were left out: row 1: event_time of row 1 is -1" in caplog.text


def test_all_rows_may_be_bad(embedded, topic):
    rows = pa.table({"v": ["a"] * 5000, "t": [-1] * 5000}).to_batches()
    writer = partition_writer(embedded.url, topic, value="v", event_time="t", on_bad_row="skip")
    (report,) = writer(rows)
    assert (report.rows, report.bad_rows) == (0, 5000)


@pytest.mark.parametrize(
    ("role", "column", "wanted"),
    [
        ("event_time", "1.5D", "timestamps, dates or whole milliseconds"),
        ("deliver_at", "'now'", "timestamps, dates or whole milliseconds"),
        ("ordering_key", "array(1)", "text, binary, whole numbers"),
        ("properties", "'a=b'", "maps of text to text"),
        ("message_type", "array(1)", "text"),
        ("qos_column", "'1'", "whole numbers, 0, 1 or 2"),
        ("retain_column", "1", "booleans"),
    ],
)
def test_a_column_that_fits_no_row_is_an_error(
    spark, embedded, embedded_mqtt, embedded_tubemq, role, column, wanted
):
    brokers = {"message_type": embedded_tubemq, "qos_column": embedded_mqtt, "retain_column": embedded_mqtt}
    frame = spark.range(3).selectExpr("cast(id as string) v", f"{column} c")
    with pytest.raises(errors.InvalidArgument, match=f"{role}='c' is .* a column of {wanted}"):
        write(frame, brokers.get(role, embedded).url, "t", value="v", **{role: "c"}, on_bad_row="skip")


def test_a_row_without_a_topic_is_bad(spark, embedded_mqtt, reading):
    name = f"t/{uuid.uuid4().hex[:8]}"
    frame = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) v", f"if(id = 4, null, '{name}') topic")
    with reading(embedded_mqtt.url, name) as reader:
        report = write(frame, embedded_mqtt.url, value="v", topic_column="topic", on_bad_row="skip")
        assert (report.rows, report.bad_rows) == (9, 1)
        assert sorted(int(row["value"]) for row in reader.rows(9)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_a_topic_is_not_the_one_for_its_own_bad_rows(spark, embedded, topic):
    frame = spark.range(1).selectExpr("cast(id as string) v")
    with pytest.raises(errors.InvalidArgument, match="name another one"):
        write(
            frame,
            embedded.url,
            topic,
            value="v",
            on_bad_row="dead_letter",
            dead_letter_topic=topic.rpartition("/")[2],
        )


@pytest.mark.parametrize("how", ["raises", "killed"])
def test_bad_rows_of_an_attempt_that_failed_come_again(spark, service, topics, how):
    topic, dead = topics(), topics()
    frame = spark.range(0, 12_000, 1, 2).selectExpr(
        "cast(id as string) value", "if(id in (7, 6100), -1L, id) at"
    )
    writer = partition_writer(
        service.url,
        topic,
        value="value",
        event_time="at",
        delivery="idempotent",
        stable_order=True,
        on_bad_row="dead_letter",
        dead_letter_topic=dead,
    )
    frame.rdd.mapPartitionsWithIndex(fails_at_first(how, 5000)).foreachPartition(writer)
    found = payloads(service.url, topic, 11_998)
    assert sorted(map(int, found)) == sorted(set(range(12_000)) - {7, 6100})
    rows = frames.read(service.url, dead)["value"].to_pylist()
    assert set(rows) == {b"7", b"6100"}


def test_a_row_that_python_cannot_read_is_sent_dead(embedded, topic):
    dead = f"{topic}-dead"
    with blocking.connect(embedded.url) as client:
        client.consumer(dead, "keep", position="earliest").close()
    days = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    table = pa.table({"day": days})
    writer = partition_writer(embedded.url, topic, on_bad_row="dead_letter", dead_letter_topic=dead)
    (report,) = writer(iter(table.to_batches()))
    assert (report.rows, report.bad_rows) == (1, 1)
    with blocking.connect(embedded.url) as client, client.reader(dead, position="earliest") as reader:
        message = reader.receive(PATIENCE)
    assert message.value == b"{}" and "no form as text" in message.properties["forebay-error"]


def test_a_topic_for_bad_rows_needs_its_mode(spark, embedded, topic):
    frame = spark.range(1).selectExpr("cast(id as string) v")
    for arguments in ({"on_bad_row": "dead_letter"}, {"dead_letter_topic": "dead"}):
        with pytest.raises(errors.InvalidArgument, match="belong together"):
            write(frame, embedded.url, topic, value="v", **arguments)


# ---------------------------------------------------------------------------- what a row becomes


@pytest.mark.parametrize("how", ["column", "template"])
def test_each_row_has_its_topic(spark, service, topics, how):
    prefix = topics()
    names = [f"{prefix}-{number}" for number in range(3)]
    with blocking.connect(service.url) as client:
        for name in names:
            client.consumer(name, "keep", position="earliest").close()
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        "cast(id as string) value", "id % 3 n", f"concat('{prefix}-', id % 3) topic", "cast(id as string) key"
    )
    where = {"topic_column": "topic"} if how == "column" else {"topic": f"{prefix}-{{n}}"}
    report = write(
        frame, service.url, **where, value="value", key="key", id_property="row-id", write_id="job"
    )
    assert report.rows == 3000
    for number, name in enumerate(names):
        with blocking.connect(service.url) as client, client.reader(name, position="earliest") as reader:
            rows = []
            while len(rows) < 1000:
                rows += reader.read_frame(1000 - len(rows), timeout=PATIENCE).to_pylist()
        assert sorted(int(row["value"]) for row in rows) == list(range(number, 3000, 3))
        # The ids are those of the rows in their partition, not in their topic.
        for row in rows:
            value = int(row["value"])
            assert dict(row["properties"])["row-id"] == f"job/{value // 1500}-of-2/{value % 1500}"
            assert row["key"] == str(value)


def test_keys_of_bytes_and_ordering_keys(spark, service, topics):
    topic = topics()
    frame = spark.sql("select 'x' v, X'FF00' k, X'0102' o union all select 'y', null, null")
    write(frame, service.url, topic, value="v", key="k", ordering_key="o")
    with blocking.connect(service.url) as client, client.reader(topic, position="earliest") as reader:
        messages = [reader.receive(PATIENCE) for _ in range(2)]
    by_value = {message.value: message for message in messages}
    one, other = by_value[b"x"], by_value[b"y"]
    assert (one.key_bytes, one.ordering_key) == (b"\xff\x00", b"\x01\x02")
    assert (other.key, other.key_bytes, other.ordering_key) == (None, None, None)


def test_the_official_client_reads_keys_of_bytes(spark, service, topics):
    import pulsar

    topic = topics()
    write(spark.sql("select 'x' v, X'FF00' k"), service.url, topic, value="v", key="k")
    client = pulsar.Client(service.url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(60_000).partition_key() in ("/wA=", b"\xff\x00")
    finally:
        client.close()


def test_a_delayed_row_waits(spark, service, topics):
    topic = topics()
    frame = spark.sql(
        "select 'later' v, current_timestamp() + interval 1 hour at union all select 'now', null"
    ).coalesce(1)
    with blocking.connect(service.url) as client:
        consumer = client.consumer(topic, "shared", type="shared", position="earliest")
        write(frame, service.url, topic, value="v", deliver_at="at")
        assert consumer.receive(PATIENCE).value == b"now"
        assert not consumer.receive_many(timeout=1)


def test_rows_as_avro_records(spark, service, topics):
    topic = topics(2)
    frame = spark.range(0, 500, 1, 2).selectExpr(
        "id", "concat('name ', id) name", "cast(id as double) / 2 half", "if(id % 2 = 0, null, 'x') maybe"
    )
    report = write(frame, service.url, topic, encoding="avro", key="id")
    assert report.rows == 500
    with blocking.connect(service.url) as client:
        with client.reader(topic, schema="auto", position="earliest") as reader:
            found = [reader.receive(PATIENCE).value for _ in range(500)]
    by_id = {row["id"]: row for row in found}
    assert by_id[3] == {"id": 3, "name": "name 3", "half": 1.5, "maybe": "x"}
    assert by_id[4]["maybe"] is None
    assert len(by_id) == 500
    # Rows of other columns clash with the schema that the topic has now.
    with pytest.raises(errors.IncompatibleSchema):
        write(frame.selectExpr("cast(id as string) id", "id other"), service.url, topic, encoding="avro")


def test_what_a_protocol_has_no_place_for_is_refused(spark, embedded, embedded_mqtt, embedded_tubemq):
    frame = spark.sql("select 'x' v, 'k' c")
    for broker, argument in (
        (embedded, "message_type"),
        (embedded_mqtt, "key"),
        (embedded_mqtt, "ordering_key"),
        (embedded_mqtt, "deliver_at"),
        (embedded_mqtt, "message_type"),
        (embedded_tubemq, "ordering_key"),
        (embedded_tubemq, "deliver_at"),
    ):
        with pytest.raises(errors.Unsupported, match="has no"):
            write(frame, broker.url, "t", value="v", **{argument: "c"})
    for broker in (embedded_mqtt, embedded_tubemq):
        with pytest.raises(errors.Unsupported, match="no schemas"):
            write(frame, broker.url, "t", encoding="avro")


def test_nothing_of_a_write_brings_a_deleted_topic_back(spark, service):
    topic = service.topic()
    name = topic.rpartition("/")[2]
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value")
    write(frame, service.url, topic, value="value")
    with blocking.connect(service.url) as client:
        assert topic in client.topics("public/default")
        eventually(lambda: service.delete_topic(topic) is None)
        assert not eventually_there(lambda: name in "".join(client.topics("public/default")), 3)


def eventually_there(condition, seconds):
    try:
        eventually(condition, seconds)
    except AssertionError:
        return False
    return True


def test_json_keeps_numbers_of_rows_in_ids(spark, service, topics):
    topic = topics()
    frame = spark.range(0, 2500, 1, 1).selectExpr("id")
    write(frame, service.url, topic, id_property="row-id", write_id="job", on_bad_row="skip")
    with blocking.connect(service.url) as client, client.reader(topic, position="earliest") as reader:
        rows = []
        while len(rows) < 2500:
            rows += reader.read_frame(2500 - len(rows), timeout=PATIENCE).to_pylist()
    for row in rows:
        assert dict(row["properties"])["row-id"] == f"job/0-of-1/{json.loads(row['value'])['id']}"
