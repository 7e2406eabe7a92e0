"""Rows that cannot be messages, and their dead letters, without Spark around the writer."""

import datetime
import decimal
import json
import math
import threading
import time
import uuid

import pyarrow as pa
import pytest

from forebay import blocking, errors
from forebay.spark import _pool, partition_writer

from support.mqtt.proxy import Proxy
from support.waiting import PATIENCE

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("own_pool")]
TOO_LARGE = "x" * (6 << 20)


def kept(url, *topics):
    with blocking.connect(url) as client:
        for topic in topics:
            client.consumer(topic, "keep", position="earliest").close()


def messages(url, topic, count):
    with blocking.connect(url) as client, client.reader(topic, position="earliest") as reader:
        found = [reader.receive(PATIENCE) for _ in range(count)]
        assert not reader.receive_many(timeout=0.3)
    return found


def batches(columns):
    return iter(pa.table(columns).to_batches())


@pytest.mark.parametrize("mode", ["fail", "skip"])
def test_a_topic_that_pulsar_does_not_accept_is_bad(embedded, topic, mode):
    good = f"{topic}-good"
    rows = {"v": list("abcd"), "t": [good, "a/b", good, ""]}
    writer = partition_writer(embedded.url, topic_column="t", value="v", on_bad_row=mode)
    if mode == "skip":
        (report,) = writer(batches(rows))
        assert (report.rows, report.bad_rows) == (2, 2)
        return
    with pytest.raises(errors.InvalidTopic, match=r'row 1 has no valid topic in column "t": "a/b" is not'):
        writer(batches(rows))
    with blocking.connect(embedded.url) as client:
        assert good not in client.topics("public/default"), "rows before it had been sent"


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
def test_a_record_that_is_too_large_is_left_out_of_the_first_lot(embedded, delivery, partitions):
    """The first rows wait for the version of their schema, and failed when they were sent."""
    topic = embedded.topic(partitions)
    kept(embedded.url, topic)
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("v", StringType())])
    values = [TOO_LARGE if number in (0, 3, 9) else str(number) for number in range(10)]
    writer = partition_writer(
        embedded.url,
        topic,
        encoding="avro",
        schema=schema,
        delivery=delivery,
        stable_order=True,
        on_bad_row="skip",
        lazy_start=True,
    )
    (report,) = writer(batches({"v": values}))
    assert (report.rows, report.bad_rows) == (7, 3)


def test_a_dead_letter_is_the_json_that_the_row_would_be(embedded, topic):
    kept(embedded.url, topic, f"{topic}-dead")
    columns = {
        "b": [b"\x00\xff"] * 2,
        "f": [math.nan] * 2,
        "d": [decimal.Decimal("1.10")] * 2,
        "m": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
        "ts": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 2,
        "at": pa.array([-1, None], pa.int64()),
    }
    writer = partition_writer(
        embedded.url, topic, event_time="at", on_bad_row="dead_letter", dead_letter_topic=f"{topic}-dead"
    )
    writer(batches(columns))
    (sent,), (dead,) = messages(embedded.url, topic, 1), messages(embedded.url, f"{topic}-dead", 1)
    assert json.loads(dead.data) == {**json.loads(sent.data), "at": -1}


def test_a_dead_letter_names_the_topic_of_its_row(embedded, topic):
    dead = f"{topic}-dead"
    kept(embedded.url, dead)
    rows = {"v": ["a", "b", TOO_LARGE], "n": ["1", None, "2"], "at": [-1, 0, 0]}
    rows["t"] = [n and f"{topic}-{n}" for n in rows["n"]]
    for where in ({"topic_column": "t"}, {"topic": f"{topic}-{{n}}"}):
        writer = partition_writer(
            embedded.url,
            **where,
            value="v",
            event_time="at",
            on_bad_row="dead_letter",
            dead_letter_topic=dead,
        )
        (report,) = writer(batches(rows))
        assert (report.rows, report.bad_rows) == (0, 3)
    found = [dict(message.properties).get("forebay-topic") for message in messages(embedded.url, dead, 6)]
    assert found == [f"{topic}-1", None, f"{topic}-2"] * 2


def test_a_row_of_which_not_even_a_letter_can_be_sent_is_an_error(embedded, topic):
    writer = partition_writer(
        embedded.url,
        topic,
        value="v",
        event_time="at",
        id_property="row-id",
        write_id=TOO_LARGE,
        tasks=1,
        on_bad_row="dead_letter",
        dead_letter_topic=f"{topic}-dead",
    )
    with pytest.raises(errors.MessageTooLarge):
        writer(batches({"v": ["a"], "at": [-1]}))


def test_dead_letters_of_mqtt_and_tubemq(embedded_mqtt, embedded_tubemq, reading):
    name = f"t/{uuid.uuid4().hex[:8]}"
    rows = {"v": list("abc"), "t": [name, None, name]}
    with reading(embedded_mqtt.url, f"{name}/dead") as reader:
        writer = partition_writer(
            embedded_mqtt.url,
            topic_column="t",
            value="v",
            qos=1,
            on_bad_row="dead_letter",
            dead_letter_topic=f"{name}/dead",
        )
        assert writer(batches(rows))[0].bad_rows == 1
        (row,) = reader.rows(1)
    properties = dict(row["properties"])
    assert (row["value"], properties["forebay-row"]) == (b"b", "1")
    assert "has no topic" in properties["forebay-error"]
    topic, dead = embedded_tubemq.topic(), embedded_tubemq.topic()
    with blocking.connect(embedded_tubemq.url) as client:
        with client.consumer(dead, f"g{uuid.uuid4().hex[:8]}", position="first") as consumer:
            writer = partition_writer(
                embedded_tubemq.url,
                topic,
                value="v",
                event_time="at",
                on_bad_row="dead_letter",
                dead_letter_topic=dead,
            )
            assert writer(batches({"v": ["a", "b"], "at": [0, -1]}))[0].bad_rows == 1
            message = consumer.receive(PATIENCE)
    assert message.data == b"b"
    assert dict(message.properties)["forebay-topic"] == topic


def test_a_dead_letter_waits_no_longer_than_other_rows(embedded_mqtt):
    """MQTT has no time limit of its own."""
    with Proxy(embedded_mqtt.port) as proxy:
        stuck = threading.Event()

        def verdict(passage, origin, packet):
            # The first PUBACK is delayed, and with it everything behind it.
            if origin == "broker" and packet.kind == 4:
                stuck.wait(100)
            return "pass"

        proxy.verdict = verdict
        writer = partition_writer(
            proxy.url,
            topic_column="t",
            value="v",
            qos=1,
            ack_timeout=0.5,
            operation_timeout=0.5,
            on_bad_row="dead_letter",
            dead_letter_topic="dead",
        )
        started = time.monotonic()
        try:
            with pytest.raises(errors.Timeout, match=r"row 0, a dead letter, within 0\.5 s \[Spark part"):
                writer(batches({"v": ["a"], "t": pa.array([None], pa.string())}))
        finally:
            stuck.set()
        assert time.monotonic() - started < 60


def test_a_value_that_python_cannot_convert_is_named_by_its_row(embedded, topic, monkeypatch):
    from pyspark.sql.types import Row

    rows = [Row(v="a", at=datetime.datetime(2024, 1, 1)), Row(v="b", at=datetime.datetime.max)]
    writer = partition_writer(embedded.url, topic, value="v", event_time="at")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        with pytest.raises(errors.InvalidArgument, match=r"row 1 cannot be read: .*\[Spark partition 0"):
            writer(rows)
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(errors.InvalidArgument, match=r"rows 0 to 1 do not make columns.*schema=df\.schema"):
        writer([Row(v="a", at=1), Row(v="b", at="now")])


def test_rows_of_records_need_their_schema(embedded, topic):
    from pyspark.sql.types import LongType, Row, StringType, StructField, StructType

    with pytest.raises(errors.InvalidArgument, match=r"needs schema=df\.schema"):
        partition_writer(embedded.url, topic, encoding="avro")
    # Some of them do not show the type of a column, and none that a column has no nulls.
    schema = StructType([StructField("a", StringType()), StructField("n", LongType(), False)])
    kept(embedded.url, topic)
    writer = partition_writer(embedded.url, topic, encoding="avro", schema=schema)
    (report,) = writer(Row(a=None if number < 2000 else "x", n=number) for number in range(4000))
    assert report.rows == 4000
    with blocking.connect(embedded.url) as client:
        fields = json.loads(client.schema(topic).definition)["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("a", ["null", "string"]), ("n", "long")]


def test_a_topic_with_a_schema_is_told_in_words_of_a_write(embedded, topic):
    with blocking.connect(embedded.url) as client:
        client.producer(topic, schema="string").close()
    writer = partition_writer(embedded.url, topic, event_time="at")
    with pytest.raises(errors.SchemaError, match='use encoding="avro", or write to another topic') as raised:
        writer(batches({"v": ["a"], "at": [1]}))
    assert "schema=" not in str(raised.value)


def test_qos_and_retain_flag_of_each_row(embedded_mqtt, reading):
    topic = f"t/{uuid.uuid4().hex[:8]}"
    rows = {"v": list("abc"), "q": [0, 2, None], "r": [False, True, None]}
    rows["t"] = [f"{topic}/{v}" for v in rows["v"]]
    writer = partition_writer(
        embedded_mqtt.url, topic_column="t", value="v", qos=1, qos_column="q", retain_column="r", retain=True
    )
    with blocking.connect(embedded_mqtt.url) as client:
        with client.consumer(f"{topic}/#", qos=2) as consumer:
            assert writer(batches(rows))[0].rows == 3
            live = {message.data: message.qos for message in (consumer.receive(PATIENCE) for _ in range(3))}
        with client.consumer(f"{topic}/#", qos=2) as consumer:
            retained = {consumer.receive(PATIENCE).data, consumer.receive(PATIENCE).data}
            assert not consumer.receive_many(timeout=0.3)
    assert live == {b"a": 0, b"b": 2, b"c": 1}
    assert retained == {b"b", b"c"}
    with pytest.raises(errors.InvalidArgument, match="the QoS of row 1 is 3"):
        writer(batches({**rows, "q": [0, 3, 0]}))


def test_a_connection_that_takes_long_holds_up_no_other(embedded, monkeypatch):
    from forebay.spark._config import write_config

    slow, quick = (write_config(embedded.url, "t", {"operation_timeout": n}, value="v") for n in (21, 22))
    begun, end = threading.Event(), threading.Event()
    connect = blocking.connect

    def slowly(url, **options):
        if options["operation_timeout"] == 21:
            begun.set()
            assert end.wait(PATIENCE)
        return connect(url, **options)

    monkeypatch.setattr(blocking, "connect", slowly)

    def use():
        with _pool.client(slow) as client:
            seen.append(client)

    seen = []
    threads = [threading.Thread(target=use) for _ in range(2)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    with _pool.client(quick) as client:
        assert client.topics("public/default") is not None
    end.set()
    for thread in threads:
        thread.join()
    assert len(seen) == 2 and seen[0] is seen[1], "both tasks share the connection that was first"
