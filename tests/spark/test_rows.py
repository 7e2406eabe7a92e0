"""Plain Rows: times are independent of the time zone; maps, structs and nulls are preserved."""

import datetime
import json
import time

import pytest

from forebay import errors
from forebay.spark import partition_writer
from forebay.spark._rows import to_batch

from support.waiting import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_pool")]
UTC = datetime.UTC
NOON = datetime.datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def types():
    from pyspark.sql import types as t

    return t


def fields(**kinds):
    t = types()
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def as_spark_gives(kind, moment):
    """A value as PySpark converts it for Python."""
    micros = int(moment.timestamp()) * 1_000_000 + moment.microsecond
    return kind.fromInternal(micros)


def test_timestamps_are_moments(zone):
    t = types()
    value = as_spark_gives(t.TimestampType(), NOON)
    row = t.Row(at=value, inside=t.Row(at=value), many=[value, None], by={"k": value})
    moment = t.TimestampType()
    whole = fields(
        at=moment,
        inside=fields(at=moment),
        many=t.ArrayType(moment),
        by=t.MapType(t.StringType(), moment),
    )
    for schema in (None, whole):
        (got,) = to_batch([row], None, schema).to_pylist()
        assert got["at"] == NOON
        assert got["inside"] == {"at": NOON}
        assert got["many"] == [NOON, None]
        assert dict(got["by"]) == {"k": NOON}


def test_the_hour_that_comes_twice(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    t = types()
    hour = datetime.datetime(2024, 11, 3, 5, 30, tzinfo=UTC)
    moments = [hour, hour + datetime.timedelta(hours=1)]
    rows = [t.Row(at=as_spark_gives(t.TimestampType(), moment)) for moment in moments]
    assert to_batch(rows, None, None)["at"].to_pylist() == moments
    monkeypatch.undo()
    time.tzset()


def test_timestamps_without_zone_stay_what_they_are_if_the_schema_says_so(zone):
    t = types()
    wall = datetime.datetime(2024, 7, 1, 12, 0)
    row = t.Row(at=wall, date=wall.date())
    schema = fields(at=t.TimestampNTZType(), date=t.DateType())
    assert to_batch([row], None, schema).to_pylist() == [{"at": wall, "date": wall.date()}]


def test_columns_that_are_null_in_a_lot_keep_the_schemas_type():
    import pyarrow as pa

    t = types()
    schema = fields(n=t.IntegerType(), text=t.StringType(), map=t.MapType(t.IntegerType(), t.StringType()))
    rows = [t.Row(n=None, text=None, map=None), t.Row(n=None, text=None, map={1: None})]
    batch = to_batch(rows, None, schema)
    assert [field.type for field in batch.schema] == [
        pa.int32(),
        pa.string(),
        pa.map_(pa.int32(), pa.string()),
    ]
    assert to_batch(rows, ["text"], schema).schema.names == ["text"]
    assert to_batch(rows, None, None).num_rows == 2


@pytest.mark.parametrize("with_schema", [False, True])
def test_rows_arrive_as_json_with_moments_in_utc(zone, embedded_mqtt, reading, with_schema):
    t = types()
    schema = fields(id=t.IntegerType(), at=t.TimestampType(), tags=t.MapType(t.StringType(), t.StringType()))
    rows = [
        t.Row(id=1, at=as_spark_gives(t.TimestampType(), NOON), tags={"a": "b"}),
        t.Row(id=2, at=None, tags=None),
    ]
    topic = embedded_mqtt.topic()
    writer = partition_writer(
        embedded_mqtt.url, topic, properties="tags", qos=1, schema=schema if with_schema else None
    )
    with reading(embedded_mqtt.url, topic) as reader:
        (report,) = writer(rows)
        got = reader.rows(2)
    values = [json.loads(row["value"]) for row in got]
    assert values == [
        {"id": 1, "at": "2024-07-01T12:00:00.123456Z", "tags": {"a": "b"}},
        {"id": 2},
    ]
    assert [dict(row["properties"]) for row in got] == [{"a": "b"}, {}]
    assert (report.rows, report.bytes) == (2, sum(len(row["value"]) for row in got))


def test_event_times_of_plain_rows(zone, embedded):
    from forebay import blocking

    t = types()
    topic = embedded.topic()
    rows = [t.Row(v="x", at=as_spark_gives(t.TimestampType(), NOON))]
    with blocking.connect(embedded.url) as client, client.consumer(topic, "s") as consumer:
        partition_writer(embedded.url, topic, value="v", event_time="at")(rows)
        assert consumer.receive(PATIENCE).event_time == int(NOON.timestamp() * 1000)


def test_a_column_that_the_schema_has_not_is_named(embedded_mqtt):
    schema = fields(id=types().IntegerType())
    with pytest.raises(errors.InvalidArgument, match="no column 'till', only id"):
        partition_writer(embedded_mqtt.url, "a/{till}", schema=schema)
