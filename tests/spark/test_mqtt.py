"""Spark into MQTT: every row arrives on its topic, with each way to write. What brokers may do in their own
way is tested on Mosquitto, too."""

import collections
import json
import pickle
import uuid

import pytest

from forebay import errors
from forebay.spark import _pool, partition_writer, register, write
from forebay.spark._config import write_config

from support.mqtt.harness import Mosquitto

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]
ROWS = 25_000  # of the frame
PAYLOADS = {f"payload {number}" for number in range(ROWS)}


@pytest.fixture(scope="module")
def wide_mosquitto():
    """A Mosquitto that drops no message of a slow subscriber."""
    broker = Mosquitto(extra="max_queued_messages 0\nmax_inflight_messages 1000\n")
    yield broker
    broker.stop()


@pytest.fixture(
    params=[
        pytest.param("embedded_mqtt", id="embedded"),
        pytest.param("wide_mosquitto", marks=pytest.mark.real_mqtt, id="mosquitto"),
    ]
)
def any_url(request):
    """The embedded broker, and then Mosquitto."""
    return request.getfixturevalue(request.param).url


@pytest.fixture
def url(embedded_mqtt):
    return embedded_mqtt.url


@pytest.fixture
def topic():
    return f"t/{uuid.uuid4().hex[:12]}"


def texts(rows):
    return [row["value"].decode() for row in rows]


@pytest.fixture(params=["batches", "data source"])
def door(request, monkeypatch):
    if request.param == "batches":
        monkeypatch.setattr("forebay.spark._driver._through_source", lambda config: False)
    return request.param


@pytest.mark.parametrize(
    ("door", "qos"), [("batches", 1), *(("data source", qos) for qos in (0, 1, 2))], indirect=["door"]
)
def test_a_column_is_written_at_each_qos(any_url, frame, topic, door, qos, reading):
    with reading(any_url, topic) as reader:
        report = write(frame, any_url, topic, value="value", properties="props", qos=qos)
        rows = reader.rows(ROWS)
    assert (report.rows, report.retries) == (ROWS, 0)
    assert report.bytes == sum(map(len, PAYLOADS))
    assert [part.partition for part in report.partitions] == [0, 1, 2]
    assert all(part.first is None and part.last is None for part in report.partitions)
    assert sorted(texts(rows)) == sorted(PAYLOADS)
    assert {row["qos"] for row in rows} == {qos}
    assert {row["topic"] for row in rows} == {topic}
    assert all(dict(row["properties"]) == {"source": "spark"} for row in rows)


def test_topics_by_template(url, frame, topic, door, reading):
    with reading(url, f"{topic}/#") as reader:
        report = write(frame, url, f"{topic}/{{shop}}/sales", value="value", qos=1)
        rows = reader.rows(ROWS)
    assert report.rows == ROWS
    for row in rows:
        number = int(row["value"].decode().split()[1])
        assert row["topic"] == f"{topic}/{number % 7}/sales"
    assert sorted(texts(rows)) == sorted(PAYLOADS)


def test_topics_by_column_and_rows_as_json(url, frame, topic, door, reading):
    from pyspark.sql import functions as F  # noqa: N812

    named = frame.select("id", F.concat(F.lit(f"{topic}/"), F.col("shop")).alias("where"))
    with reading(url, f"{topic}/+") as reader:
        report = write(named, url, topic_column="where", encoding="json")
        rows = reader.rows(ROWS)
    assert report.rows == ROWS
    values = [json.loads(row["value"]) for row in rows]
    assert report.bytes == sum(len(row["value"]) for row in rows)
    assert sorted(value["id"] for value in values) == list(range(ROWS))
    assert [value["where"] for value in values] == [row["topic"] for row in rows]


def test_rows_of_a_partition_keep_their_order(url, frame, topic, reading):
    with reading(url, topic) as reader:
        write(frame.coalesce(1).select("value"), url, topic, value="value", qos=1)
        assert texts(reader.rows(ROWS)) == [f"payload {number}" for number in range(ROWS)]


def test_retained_rows_are_the_last_of_each_topic(any_url, frame, topic, reading):
    report = write(frame.coalesce(1), any_url, f"{topic}/{{shop}}", value="value", retain=True, qos=1)
    assert report.rows == ROWS
    last = {number % 7: number for number in range(ROWS)}
    with reading(any_url, f"{topic}/#") as reader:
        rows = reader.rows(7)
    assert all(row["retain"] for row in rows)
    assert {row["topic"]: row["value"].decode() for row in rows} == {
        f"{topic}/{shop}": f"payload {number}" for shop, number in last.items()
    }


@pytest.mark.parametrize("how", ["template", "column", "constant", "json"])
def test_plain_rows_by_foreach_partition(url, frame, topic, how, reading):
    from pyspark.sql import functions as F  # noqa: N812

    frame = frame.select("id", "shop", "value", F.concat(F.lit(f"{topic}/"), F.col("shop")).alias("where"))
    arguments = {
        "template": {"topic": f"{topic}/{{shop}}", "value": "value"},
        "column": {"topic_column": "where", "value": "value"},
        "constant": {"topic": f"{topic}/all", "value": "value"},
        "json": {"topic": f"{topic}/{{shop}}"},
    }[how]
    with reading(url, f"{topic}/#") as reader:
        frame.foreachPartition(partition_writer(url, **arguments, qos=1))
        rows = reader.rows(ROWS)
    counts = collections.Counter(row["topic"] for row in rows)
    if how == "constant":
        assert counts == {f"{topic}/all": ROWS}
    else:
        assert counts == collections.Counter(f"{topic}/{number % 7}" for number in range(ROWS))
    if how == "json":
        assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(ROWS))
    else:
        assert sorted(texts(rows)) == sorted(PAYLOADS)


def test_the_data_source(spark, url, frame, topic, reading):
    register(spark)
    writer = frame.select("value", "shop").write.format("forebay").option("url", url).option("qos", "2")
    writer = writer.option("topic", f"{topic}/{{shop}}").option("value", "value").mode("append")
    with reading(url, f"{topic}/#") as reader:
        writer.save()
        assert sorted(texts(reader.rows(ROWS))) == sorted(PAYLOADS)


def test_an_empty_frame_and_empty_partitions(url, frame, topic, reading):
    assert write(frame.where("id < 0"), url, topic, value="value").rows == 0
    with reading(url, topic) as reader:
        assert write(frame.where("id = 3"), url, topic, value="value").rows == 1
        assert texts(reader.rows(1)) == ["payload 3"]


def test_workers_share_a_client_id_as_a_prefix_only(embedded_mqtt, frame, topic, reading):
    with reading(embedded_mqtt.url, topic) as reader:
        report = write(frame, embedded_mqtt.url, topic, value="value", client_id="sink", qos=1)
        assert report.rows == ROWS
        assert sorted(texts(reader.rows(ROWS))) == sorted(PAYLOADS)
    config = write_config(embedded_mqtt.url, topic, value="v", options={"client_id": "sink"})
    names = {_pool.client_options(config)["client_id"] for _ in range(10)}
    assert len(names) == 10
    assert all(name.startswith("sink-") for name in names)


def test_a_row_without_topic_is_an_error(url, frame, topic, door):
    from pyspark.sql import functions as F  # noqa: N812

    holes = frame.where("id < 5").select("value", F.when(F.col("id") != 3, F.lit(topic)).alias("where"))
    for arguments in ({"topic_column": "where"}, {"topic": "a/{where}"}):
        with pytest.raises(
            errors.InvalidTopic, match=r'row \d+ has no topic: column "where" is null .*partition \d'
        ):
            write(holes, url, value="value", qos=1, **arguments)


def test_plain_rows_without_topic_are_an_error(url, frame):
    from pyspark.sql import functions as F  # noqa: N812

    holes = frame.where("id = 3").select("value", F.lit(None).cast("string").alias("where"))
    for arguments in ({"topic_column": "where"}, {"topic": "a/{where}"}):
        with pytest.raises(Exception, match='InvalidTopic: row 0 has no topic: column "where" is null'):
            holes.foreachPartition(partition_writer(url, value="value", **arguments))


def test_a_topic_that_is_none_is_the_packages_own_error(url, frame, door):
    from pyspark.sql import functions as F  # noqa: N812

    wild = frame.where("id = 3").select("value", F.lit("a/#").alias("where"))
    with pytest.raises(errors.InvalidTopic, match="a Spark task failed"):
        write(wild, url, topic_column="where", value="value")


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"topic": "t", "value": "valeu"}, errors.InvalidArgument, "no column 'valeu'"),
        ({"topic": "t/{shp}"}, errors.InvalidArgument, "no column 'shp'"),
        ({"topic": "t/{shop"}, errors.InvalidArgument, "a brace is not closed"),
        ({"topic": "t/shop}/{id}"}, errors.InvalidArgument, "no opening brace"),
        ({"topic": "t/{}"}, errors.InvalidArgument, "name of a column"),
        ({"topic": "t/+/{shop}"}, errors.InvalidTopic, "for filters only"),
        ({"topic": "t", "write_id": "w"}, errors.InvalidArgument, "id_property"),
        ({"topic": "t", "ack_timeout": "soon"}, errors.InvalidArgument, "ack_timeout"),
        ({"topic": "t", "version": "3.1.1", "properties": "props"}, errors.Unsupported, "needs version 5"),
        ({"topic": "t", "version": "3.1.1", "id_property": "i"}, errors.Unsupported, "needs version 5"),
        ({"topic": "t", "topic_column": "shop"}, errors.InvalidArgument, "not both"),
        ({"topic_column": "a/{shop}"}, errors.InvalidArgument, "template goes into topic"),
        ({}, errors.InvalidArgument, "a topic is needed"),
        ({"topic": "t/#"}, errors.InvalidTopic, "not a topic name"),
        ({"topic": "t", "qqos": 1}, errors.InvalidArgument, "did you mean 'qos'"),
        ({"topic": "t", "qos": 3}, errors.InvalidArgument, "qos"),
        ({"topic": "t", "compression": "zstd"}, errors.InvalidArgument, "compression"),
        ({"topic": "t", "key": "shop"}, errors.Unsupported, "MQTT has no message keys"),
        ({"topic": "t", "event_time": "moment"}, errors.Unsupported, "MQTT has no event times"),
        ({"topic": "t", "clean_start": False, "client_id": "x"}, errors.Unsupported, "clean_start"),
        ({"topic": "t", "will": {"topic": "w", "payload": b""}}, errors.Unsupported, "will"),
        ({"topic": "t", "password": "secret-text"}, errors.InvalidArgument, "env:NAME"),
    ],
)
def test_mistakes_show_on_the_driver_before_any_job(url, frame, arguments, kind, words):
    with pytest.raises(kind, match=words) as refused:
        write(frame, url, **arguments)
    assert "secret-text" not in str(refused.value)


def test_a_broker_that_is_not_there_is_named(frame):
    with pytest.raises(errors.ConnectFailed):
        write(frame, "mqtt://127.0.0.1:1", "t", value="value", connect_timeout=2)


def test_a_writer_pickles_without_secrets(monkeypatch):
    monkeypatch.setenv("PASSWORD_OF_TEST", "canary-5e1d")
    writer = partition_writer("mqtt://h:1", "t/{a}", value="v", username="u", password="env:PASSWORD_OF_TEST")
    pickled = pickle.dumps(writer)
    assert b"canary" not in pickled
    assert "PASSWORD_OF_TEST" not in repr(writer)
    assert pickle.loads(pickled).config == writer.config
