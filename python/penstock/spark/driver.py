"""The driver's side of a write."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidArgument, Unsupported

from .config import ACK_TIMEOUT, SinkConfig, sink_config
from .pool import client_options
from .report import PartitionReport, WriteReport
from .sink import PartitionWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.options import Duration

log = logging.getLogger("penstock.spark")


def write(
    df: DataFrame,
    url: str | None,
    topic: str | None = None,
    *,
    topic_column: str | None = None,
    key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    id_property: str | None = None,
    write_id: str | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    **options: Any,
) -> WriteReport:
    """Writes a DataFrame to a topic, now, from all executors; returns when the broker has acknowledged every
    row. Rows of one Spark partition keep their order. May be called in ``foreachBatch``.

    Args:
        df: any DataFrame, of classic PySpark or of Spark Connect.
        url: of the broker, as for :func:`penstock.connect`; reachable from driver and workers.
        topic: the topic. With MQTT it may be a template with columns in it: ``"shop/{till}/sales"``; braces
            that are meant are written twice.
        topic_column: MQTT: the column with the topics, in place of ``topic``.
        key: column with the keys; rows with the same key go to the same partition of the topic. Not MQTT.
        value: column with the payloads, binary or text.
        encoding: ``"raw"`` sends ``value``; ``"json"`` makes an object of each row, of all columns, in the
            engine. Default: what ``value`` implies.
        properties: column of maps, text to text, or of a struct of texts. MQTT: user properties; TubeMQ:
            attributes.
        event_time: column of timestamps. Not MQTT.
        id_property: adds a property of this name with an id that a row keeps when Spark sends it again, so
            that readers can drop what they have seen: ``write/partition/row``, in a stream
            ``query/batch/partition/row``. It holds as long as the plan gives the same rows in the same order.
        write_id: what these ids begin with, in place of a random name or the query's: give the same one to a
            job that is run again, and different ones to several writes in one ``foreachBatch``.
        ack_timeout: seconds that a lot of rows may wait for the broker; then the task fails, and Spark tries
            it again.
        options: options of client and producer: ``compression="zstd"``, ``token="env:TOKEN"``; with MQTT
            ``qos=``, ``retain=``, ``password="env:PASSWORD"`` ... MQTT's ``client_id`` is a prefix: each
            worker adds to it. With ``qos=0`` nothing is acknowledged: a row has been written to the socket,
            and what is on its way when a connection breaks is lost.

    Returns:
        Rows, bytes, seconds, retries, and for each Spark partition the ids of its first and last message
        (which MQTT has not).

    Raises:
        InvalidArgument: an option, a column or a secret as plain text; before any job starts.
        InvalidTopic: a topic or template that is none; or, naming row and column, a row's topic: nothing of
            its batch has been sent then.
        Unsupported: the protocol has not got what an argument asks for, or the broker does not take it.
        ConnectFailed, AuthenticationError, TopicNotFound ...: the driver asks the broker first.
    """
    started = time.monotonic()
    config = sink_config(
        url,
        topic,
        topic_column=topic_column,
        key=key,
        value=value,
        encoding=encoding,
        properties=properties,
        event_time=event_time,
        id_property=id_property,
        write_id=write_id,
        ack_timeout=ack_timeout,
        options=options,
    )
    for column in config.columns():
        if column not in df.columns:
            raise InvalidArgument(f"the DataFrame has no column {column!r}, only {', '.join(df.columns)}")
    _ask_broker(config)
    df = _shape(df, config)
    session = df.sparkSession
    with _job_description(session, f"penstock: write to {topic or topic_column}"):
        batches = _arrow_batches(df)
        if batches is None:
            log.debug("no Arrow batches from the JVM here: writing through the data source")
            from .datasource import write_through

            return write_through(df, config, started)
        rdd, schema = batches
        try:
            partitions: list[PartitionReport] = rdd.mapPartitions(PartitionWriter(config, schema)).collect()
        except Exception as error:
            raise typed(error) from error
    return WriteReport.of(partitions, time.monotonic() - started)


def register(spark: SparkSession) -> None:
    """Adds the data source ``penstock``; its options have the names of :func:`write`'s arguments.

    * ``df.write.format("penstock").option("url", ...).option("topic", ...).mode("append").save()``
    * ``df.writeStream.format("penstock").option(...).option("checkpointLocation", ...).start()``
    * MQTT: ``spark.readStream.format("penstock").option(...).load()``, see :mod:`penstock.spark.source`
    """
    from .datasource import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)


def typed(error: Exception) -> Exception:
    """The package's error of a failed task: Spark hands over its text only. Other errors stay as they are."""
    from penstock import errors

    # The last one is that of the task; the others are its causes.
    found = re.findall(r"^penstock\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    name, text = found[-1] if found else ("", "")
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.Error)):
        return error
    return kind(f"a Spark task failed: {text}")


def _ask_broker(config: SinkConfig) -> None:
    """A wrong address, token or topic shows here as one typed error instead of four failed tasks."""
    from penstock import blocking

    # Opening a producer asks for all three at once, and lets the topic come into being.
    with blocking.connect(config.url, **client_options(config)) as client:
        client.producer(config.placeholder()).close()
        if config.protocol == "mqtt":
            _ask_limits(client.stats(), config.producer)


def _ask_limits(broker: dict[str, Any], producer: dict[str, Any]) -> None:
    """What an MQTT broker said at the connection that it does not take."""
    qos = producer.get("qos", 1)
    if qos > broker["maximum_qos"]:
        raise Unsupported(f"the broker takes QoS {broker['maximum_qos']} at most, not {qos}")
    if producer.get("retain") and not broker["retain_available"]:
        raise Unsupported("the broker has no retained messages")


def _shape(df: DataFrame, config: SinkConfig) -> DataFrame:
    """Only the columns that are needed leave the JVM, in types that the engine takes."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType

    if config.encoding == "json":
        return df
    columns = [
        F.col(f"`{name}`").cast(StringType()).alias(name) if name == config.key else F.col(f"`{name}`")
        for name in config.columns()
    ]
    return df.select(*columns)


def _arrow_batches(df: Any) -> tuple[Any, bytes] | None:
    """An RDD of Arrow IPC messages and their schema; ``None`` where that door is closed (Spark Connect).

    A real ``foreachPartition`` with Arrow: no UDF in the plan, nothing is pickled row by row. The method is
    not public, so whatever goes wrong here opens the other door.
    """
    try:
        from pyspark import RDD
        from pyspark.serializers import NoOpSerializer
        from pyspark.sql.pandas.types import to_arrow_schema

        session = df.sparkSession
        conf = session.conf
        schema: Any = to_arrow_schema(
            df.schema,
            timezone=conf.get("spark.sql.session.timeZone"),
            prefers_large_types=conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true",
        )
        batches = df._jdf.toArrowBatchRdd().toJavaRDD()
        return RDD(batches, session.sparkContext, NoOpSerializer()), schema.serialize().to_pybytes()
    except Exception as error:
        log.debug("toArrowBatchRdd: %s", error)
        return None


@contextlib.contextmanager
def _job_description(session: Any, text: str) -> Generator[None, None, None]:
    """What the Spark UI shows, where there is a SparkContext to tell."""
    try:
        context: Any = session.sparkContext
        before = context.getLocalProperty("spark.job.description")
    except Exception:
        yield
        return
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)
