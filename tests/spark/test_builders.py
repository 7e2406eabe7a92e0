"""Spark's builders: each of their methods works, or fails with one clear error before any job."""

import pytest

from forebay import blocking, frames
from forebay.spark._spark_options import without_those_of_spark

from support.queries import started

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]

ROWS = 5


@pytest.fixture(scope="module")
def filled(embedded):
    """A topic with a few messages."""
    topic = embedded.topic()
    with blocking.connect(embedded.url) as client:
        client.consumer(topic, "keep", position="earliest").close()
        with client.producer(topic) as producer:
            producer.send_many([b"%d" % number for number in range(ROWS)])
    return topic


@pytest.fixture
def numbers(spark):
    return spark.range(ROWS).selectExpr("cast(id as string) value")


def count(url, topic):
    """The number of messages that the topic has, however long it takes to read them."""
    return frames.read(url, topic).num_rows


READS = {
    "load": lambda reader: reader.load(),
    "load of a path": lambda reader: reader.load("ignored"),
    "load of paths": lambda reader: reader.load(["one", "two"]),
    "load with all": lambda reader: reader.load("ignored", "forebay", "value binary", mergeSchema="true"),
    "schema": lambda reader: reader.schema("value binary, topic string").load(),
    "option": lambda reader: reader.option("path", "ignored").option("mergeSchema", True).load(),
    "options": lambda reader: reader.options(checkpointLocation="ignored", queryName="ignored").load(),
}


@pytest.mark.parametrize("how", READS)
def test_a_batch_is_read_however_it_is_asked_for(spark, embedded, filled, how):
    reader = spark.read.format("forebay").option("url", embedded.url).option("subscribe", filled)
    assert READS[how](reader).count() == ROWS


def test_a_view_of_sql_is_read(spark, embedded, filled):
    spark.sql(
        f"create or replace temporary view flights using forebay options "
        f"(url '{embedded.url}', subscribe '{filled}', path 'ignored')"
    )
    assert spark.sql("select value from flights").count() == ROWS


WRITES = {
    "save": lambda writer: writer.mode("append").save(),
    "save to a path": lambda writer: writer.mode("append").save("ignored"),
    "save with all": lambda writer: writer.save("ignored", "forebay", "append", mergeSchema="true"),
    "option": lambda writer: writer.option("path", "ignored").mode("append").save(),
    "options": lambda writer: writer.options(checkpointLocation="x", queryName="y").mode("append").save(),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_batch_is_written_however_it_is_asked_for(embedded, topic, numbers, how):
    WRITES[how](numbers.write.format("forebay").options(url=embedded.url, topic=topic, value="value"))
    assert count(embedded.url, topic) == ROWS


REFUSED_WRITES = {
    "no mode": (lambda writer: writer.save(), 'use either the "Append" or'),
    "ignore": (lambda writer: writer.mode("ignore").save(), 'use either the "Append" or'),
    "overwrite": (lambda writer: writer.mode("overwrite").save(), r'use mode\("append"\)'),
    "partitionBy": (lambda writer: writer.mode("append").partitionBy("value").save(), "partitioning"),
    "clusterBy": (lambda writer: writer.mode("append").clusterBy("value").save(), "clustering"),
    "bucketBy": (lambda writer: writer.mode("append").bucketBy(2, "value").save(), "bucketBy"),
    "sortBy": (lambda writer: writer.mode("append").sortBy("value").save(), "sortBy"),
}


@pytest.mark.parametrize("how", REFUSED_WRITES)
def test_a_batch_that_cannot_be_written_so_is_refused(embedded, topic, numbers, how):
    act, why = REFUSED_WRITES[how]
    with pytest.raises(Exception, match=why):
        act(numbers.write.format("forebay").options(url=embedded.url, topic=topic, value="value"))
    assert count(embedded.url, topic) == 0


@pytest.fixture
def no_table(spark):
    """Leaves no table behind."""
    yield
    spark.sql("drop table if exists of_forebay")


@pytest.fixture
def stream(spark, embedded, filled):
    """A stream of the values of the topic."""
    reader = spark.readStream.format("forebay").options(
        url=embedded.url, subscribe=filled, startingOffsets="earliest"
    )

    def load(act=lambda reader: reader.load()):
        return act(reader).selectExpr("cast(value as string) value")

    return load


STREAM_READS = {
    "load": lambda reader: reader.load(),
    "load of a path": lambda reader: reader.load("ignored"),
    "load with all": lambda reader: reader.load("ignored", "forebay", "value binary", mergeSchema="true"),
    "schema": lambda reader: reader.schema("value binary").load(),
    "options": lambda reader: reader.options(checkpointLocation="x", queryName="y").load(),
}
STREAM_WRITES = {
    "start": lambda writer: writer.start(),
    "start of a path": lambda writer: writer.start("ignored"),
    "start with all": lambda writer: writer.start(
        "ignored", "forebay", "append", queryName="all", mergeSchema="true"
    ),
    "queryName": lambda writer: writer.queryName("named").start(),
    "partitionBy": lambda writer: writer.partitionBy("value").start(),
    "clusterBy": lambda writer: writer.clusterBy("value").start(),
    "outputMode": lambda writer: writer.outputMode("append").start(),
    "toTable": lambda writer: writer.toTable("of_forebay", "forebay"),
}


@pytest.mark.parametrize(
    ("read", "written"),
    [
        *((read, "start") for read in STREAM_READS),
        *(("load", written) for written in STREAM_WRITES if written != "start"),
    ],
)
@pytest.mark.usefixtures("no_table")
def test_a_stream_is_copied_however_it_is_asked_for(embedded, topic, stream, tmp_path, read, written):
    writer = stream(STREAM_READS[read]).writeStream.format("forebay").trigger(availableNow=True)
    writer = writer.options(url=embedded.url, topic=topic, value="value", checkpointLocation=str(tmp_path))
    query = started(lambda: STREAM_WRITES[written](writer))
    assert query.awaitTermination(60)
    assert count(embedded.url, topic) == ROWS


REFUSED_STREAMS = {
    "update": (lambda writer: writer.outputMode("update").start(), "does not support Update mode"),
    "no topic": (lambda writer: writer.option("topic", "").start("orders"), 'option "topic" is missing'),
}


@pytest.mark.parametrize("how", REFUSED_STREAMS)
def test_a_stream_that_cannot_be_written_so_is_refused(embedded, topic, stream, tmp_path, how):
    act, why = REFUSED_STREAMS[how]
    writer = stream().writeStream.format("forebay").trigger(availableNow=True)
    writer = writer.options(url=embedded.url, topic=topic, value="value", checkpointLocation=str(tmp_path))
    with pytest.raises(Exception, match=why):
        started(lambda: act(writer)).awaitTermination(60)
    assert count(embedded.url, topic) == 0


def jobs(spark):
    """The number of jobs that have begun, those of streams included, which have a group for each run."""
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


class Refused:
    """``with Refused(spark, text)``: it fails with that text, and no job has begun."""

    def __init__(self, spark, text):
        self._spark = spark
        self._raises = pytest.raises(Exception, match=text)

    def __enter__(self):
        self._before = jobs(self._spark)
        self._raises.__enter__()

    def __exit__(self, *error):
        assert self._raises.__exit__(*error), "nothing was raised"
        assert jobs(self._spark) == self._before
        return True


def test_jobs_of_batches_and_of_streams_are_counted(spark, embedded, filled, topic, stream, tmp_path):
    before = jobs(spark)
    assert spark.read.format("forebay").options(url=embedded.url, subscribe=filled).load().count() == ROWS
    after = jobs(spark)
    assert after > before
    writer = stream().writeStream.format("forebay").trigger(availableNow=True)
    writer = writer.options(url=embedded.url, topic=topic, value="value", checkpointLocation=str(tmp_path))
    assert started(writer.start).awaitTermination(60)
    assert jobs(spark) > after


def test_an_unknown_option_of_a_batch_is_named_with_the_nearest(spark, embedded, filled, numbers):
    reader = spark.read.format("forebay").options(url=embedded.url, subscribe=filled)
    with Refused(spark, r"no option 'statingoffsets'; did you mean 'startingOffsets'\?"):
        reader.option("statingOffsets", "earliest").load().count()
    for wrong, right in {
        "write_idd": "write_id",
        "compresion": "compression",
        "ackk_timeout": "ack_timeout",
    }.items():
        writer = numbers.write.format("forebay").mode("append").options(url=embedded.url, topic=filled)
        with Refused(spark, rf"no option '{wrong}'; did you mean '{right}'\?"):
            writer.option(wrong, "x").save()


def test_an_unknown_option_of_a_stream_is_named_with_the_nearest(
    spark, embedded, filled, embedded_mqtt, stream, tmp_path
):
    def start(frame, **options):
        writer = frame.writeStream.format("forebay").options(
            url=embedded.url, topic=filled, checkpointLocation=str(tmp_path), **options
        )
        started(writer.start).awaitTermination(60)

    with Refused(spark, r"no option 'idd_property'; did you mean 'id_property'\?"):
        start(stream(), idd_property="x")
    with Refused(spark, r"no option 'failondatalos'; did you mean 'failOnDataLoss'\?"):
        start(stream(lambda reader: reader.option("failOnDataLos", "x").load()))
    mqtt = spark.readStream.format("forebay").options(
        url=embedded_mqtt.url, topic="x/#", wal=str(tmp_path / "wal"), client_id="x"
    )
    with Refused(spark, r"no option 'wallimitt'; did you mean 'wal_limit'\?"):
        start(mqtt.option("walLimitt", "1 GiB").load())


def test_options_of_spark_are_known_by_any_case():
    given = {"checkpointLocation": "a", "PATH": "b", "queryname": "c", "mergeSchema": "d", "Url": "e"}
    assert without_those_of_spark(given) == {"Url": "e"}
