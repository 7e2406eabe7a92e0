"""Values of Spark's types in JSON are those of Spark's own ``to_json``; payloads, keys and times are of types
that have one meaning."""

import pytest

from forebay import blocking, errors
from forebay.spark import partition_writer, register, write

from support.waiting import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]


def read(url, topic, count=1):
    rows = []
    with blocking.connect(url) as client, client.reader(topic, position="earliest") as reader:
        while len(rows) < count:
            part = reader.read_frame(count - len(rows), timeout=PATIENCE).to_pylist()
            assert part, f"{len(rows)} of {count} rows came"
            rows += part
    return rows


@pytest.fixture(params=["batches", "json", "data source", "rows"])
def send(request, spark, embedded, topic):
    """``send(frame, **arguments)`` writes by each door."""

    def go(frame, **arguments):
        arguments = {"value": "v", **arguments}
        if request.param == "json":
            arguments["encoding"] = "json"
        if request.param == "rows":
            frame.foreachPartition(partition_writer(embedded.url, topic, **arguments))
        elif request.param == "data source":
            register(spark)
            options = {"url": embedded.url, "topic": topic, **arguments}
            frame.write.format("forebay").options(**options).mode("append").save()
        else:
            write(frame, embedded.url, topic, **arguments)

    return go


def test_a_key_has_the_same_text_by_each_door(spark, embedded, topic, send):
    keys = ["'text'", "12", "-3L", "true", "date'2024-01-01'", "cast(null as string)"]
    for key in keys:
        send(spark.sql(f"select 'x' v, {key} k"), key="k")
    rows = read(embedded.url, topic, len(keys))
    assert sorted(row["key"] or "" for row in rows) == ["", "-3", "12", "2024-01-01", "text", "true"]
    for key in ("1.0E10D", "12.50BD", "timestamp'2024-07-01 12:00:00'"):
        with pytest.raises(Exception, match="keys are text, binary, whole numbers, booleans or dates"):
            send(spark.sql(f"select 'x' v, {key} k"), key="k")


def test_a_key_of_bytes_is_one_by_each_door(spark, embedded, topic, send):
    send(spark.sql("select 'x' v, X'FF00' k"), key="k")
    with blocking.connect(embedded.url) as client, client.reader(topic, position="earliest") as reader:
        message = reader.receive(PATIENCE)
        assert (message.key, message.key_bytes) == ("/wA=", b"\xff\x00")


def test_a_null_payload_is_one_by_each_door(spark, embedded, topic, send):
    send(spark.sql("select cast(null as string) v, 'k' k"), key="k")
    (row,) = read(embedded.url, topic)
    assert row["key"] == "k"
    # JSON leaves nulls out, and an object is left.
    assert row["value"] in (None, b"{}")


def test_a_date_is_an_event_time_and_a_fraction_is_not(spark, embedded, topic):
    frame = spark.sql("select 'x' v, date'2024-01-01' day, 1.7e9D seconds")
    write(frame, embedded.url, topic, value="v", event_time="day")
    (row,) = read(embedded.url, topic)
    assert row["event_time"].isoformat() == "2024-01-01T00:00:00+00:00"
    with pytest.raises(errors.InvalidArgument, match="is double, and has to be a column of timestamps"):
        write(frame, embedded.url, topic, value="v", event_time="seconds")
