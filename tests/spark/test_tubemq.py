"""Spark into TubeMQ, embedded and real: every row arrives with its key and attributes, with each way to
write, and repetitions have the same id."""

import json
import uuid

import pytest

from forebay import blocking, errors
from forebay.spark import partition_writer, write
from forebay.tubemq import Position

from support.tubemq.harness import EmbeddedTubeMq, TubeMqService, group
from support.waiting import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]
ROWS = 25_000  # of the frame
PAYLOADS = {f"payload {number}" for number in range(ROWS)}


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
    # The embedded broker creates a topic with its first message.
    return service.topic(2) if service.is_real else f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["batches", "data source"])
def door(request, monkeypatch):
    if request.param == "batches":
        monkeypatch.setattr("forebay.spark._driver._through_source", lambda config: False)
    return request.param


def read(url, topic, count, *, id_of=None):
    """``count`` rows; fails when there are more. With ``id_of`` rows of so many ids, and what came again
    until then."""
    rows = []
    with (
        blocking.connect(url) as client,
        client.consumer(topic, group(), position="first", auto_ack=True) as consumer,
    ):
        while (missing := count - len(rows if id_of is None else {id_of(row) for row in rows})) > 0:
            part = consumer.read_frame(missing, timeout=PATIENCE).to_pylist()
            assert part or len(rows), "no rows arrived"
            assert part, f"{len(rows)} of {count} rows came"
            rows += part
        if id_of is None:
            assert not consumer.read_frame(10_000, timeout=1).num_rows, "more rows came"
    return rows


def test_a_column_is_written_with_attributes(service, frame, topic, door):
    report = write(
        frame, service.url, topic, value="value", key="shop", properties="props", event_time="moment"
    )
    assert (report.rows, report.retries) == (ROWS, 0)
    assert report.bytes == sum(map(len, PAYLOADS))
    assert [part.partition for part in report.partitions] == [0, 1, 2]
    assert all(isinstance(end, Position) for part in report.partitions for end in (part.first, part.last))
    rows = read(service.url, topic, ROWS)
    assert sorted(row["value"].decode() for row in rows) == sorted(PAYLOADS)
    assert all(dict(row["properties"])["source"] == "spark" for row in rows)
    assert {row["key"] for row in rows} == {str(number) for number in range(7)}


def test_rows_as_json(service, frame, topic, door):
    report = write(frame.select("id", "value"), service.url, topic)
    rows = read(service.url, topic, ROWS)
    assert report.bytes == sum(len(row["value"]) for row in rows)
    assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(ROWS))


def test_a_task_that_fails_in_the_middle_repeats_its_ids(spark, service, topic):
    def fails_at_first(partition, iterator):
        from pyspark.taskcontext import TaskContext

        for number, row in enumerate(iterator):
            if partition == 1 and number == 5000 and TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("first attempt")
            yield row

    frame = spark.range(0, 20_000, 1, 2).selectExpr("cast(id as string) value")
    named = {"id_property": "row-id", "write_id": "job-7", "tasks": 2}
    writer = partition_writer(service.url, topic, value="value", **named)
    frame.rdd.mapPartitionsWithIndex(fails_at_first).foreachPartition(writer)

    def id_of(row):
        return dict(row["properties"])["row-id"]

    rows = read(service.url, topic, 20_000, id_of=id_of)
    assert len(rows) > 20_000, "the first attempt had sent nothing"
    seen = {}
    for row in rows:
        assert seen.setdefault(id_of(row), row["value"]) == row["value"]
    assert seen == {
        f"job-7/{partition}-of-2/{row}": b"%d" % (partition * 10_000 + row)
        for partition in range(2)
        for row in range(10_000)
    }


def test_rows_have_their_own_topics_and_types(spark, service, topic):
    other = service.topic()
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "cast(id as string) v", f"if(id % 2 = 0, '{topic}', '{other}') t", "if(id % 4 = 0, 'four', null) kind"
    )
    report = write(frame, service.url, value="v", topic_column="t", message_type="kind")
    assert report.rows == 1000
    for name, first in ((topic, 0), (other, 1)):
        rows = read(service.url, name, 500)
        assert sorted(int(row["value"]) for row in rows) == list(range(first, 1000, 2))
        assert all((row["message_type"] == "four") == (int(row["value"]) % 4 == 0) for row in rows)


def test_an_empty_payload_is_a_bad_row(spark, service, topic):
    frame = spark.sql("select 'x' v union all select '' union all select null").coalesce(1)
    report = write(frame, service.url, topic, value="v", on_bad_row="skip")
    assert (report.rows, report.bad_rows) == (1, 2)
    assert [row["value"] for row in read(service.url, topic, 1)] == [b"x"]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"value": "valeu"}, errors.InvalidArgument, "no column 'valeu'"),
        ({"topic_column": "shops"}, errors.InvalidArgument, "not both"),
        ({"compression": "zstd"}, errors.InvalidArgument, "no option 'compression'"),
        ({"password": "secret-text"}, errors.InvalidArgument, "env:NAME"),
        ({"id_property": "a=b"}, errors.InvalidArgument, "neither ',' nor '='"),
        ({"id_property": "a", "write_id": "b,c"}, errors.InvalidArgument, "neither ',' nor '='"),
    ],
)
def test_mistakes_show_on_the_driver_before_any_job(embedded_tubemq, frame, arguments, kind, words):
    with pytest.raises(kind, match=words) as refused:
        write(frame, embedded_tubemq.url, "t", **arguments)
    assert "secret-text" not in str(refused.value)


@pytest.mark.real_tubemq
def test_a_topic_that_is_not_there_is_named_before_any_job(real_tubemq, frame):
    with pytest.raises(errors.TopicNotFound, match="nowhere"):
        write(frame, real_tubemq.url, "nowhere", value="value", operation_timeout=30)
