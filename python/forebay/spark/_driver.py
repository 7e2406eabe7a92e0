"""The driver's part of a write: checks, the Spark job and the report."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay._core.dataframes import ACK_TIMEOUT
from forebay.errors import Error, InvalidArgument, Unsupported

from . import _batches, _errors, _plans
from ._arrow import arrow_schema
from ._arrow_messages import arrow_batches, short_messages
from ._columns import check_rows, fitted, has_interval, has_map_without_entries, intervals_as_text
from ._config import WriteConfig, arguments_of, check_order_is_stated, check_tasks_are_given, write_config
from ._pool import client_options
from ._report import PartitionReport, WriteReport
from ._shipping import travels_by_value
from ._sink import PartitionWriter
from ._spark_options import without_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from forebay._core.types import Duration

log = logging.getLogger("forebay.spark")

_OBSERVED = re.compile(r"^[\s:+\-!*]*CollectMetrics ", re.MULTILINE)
"""The node of ``df.observe()`` in the text of a plan."""


def write(
    df: DataFrame,
    url: str | None,
    topic: str | None = None,
    *,
    topic_column: str | None = None,
    key: str | None = None,
    ordering_key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    deliver_at: str | None = None,
    message_type: str | None = None,
    qos_column: str | None = None,
    retain_column: str | None = None,
    id_property: str | None = None,
    write_id: str | None = None,
    batch_id: int | None = None,
    tasks: int | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    delivery: str = "at-least-once",
    stable_order: bool = False,
    on_bad_row: str = "fail",
    dead_letter_topic: str | None = None,
    **options: Any,
) -> WriteReport:
    """Writes a DataFrame to a topic from all executors and returns when the broker has acknowledged every
    row. The rows of a Spark partition keep their order. May be called in ``foreachBatch``.

    Args:
        df: any DataFrame, of classic PySpark or Spark Connect.
        url: URL of the broker, as for :func:`forebay.connect`; reachable from the driver and the workers.
        topic: the topic, or a template that contains columns: ``"shop/{till}/sales"``; literal braces are
            doubled.
        topic_column: the column with the topics, in place of ``topic``.
        key: column with the keys; rows with the same key go to the same partition of the topic. Not for MQTT.
            With Pulsar, keys of bytes are sent as Base64 with the mark for it, as the Java client does.
        ordering_key: Pulsar: column with the keys for Key_Shared subscriptions; text or bytes. Key_Shared
            keeps the order of keys only with ``key_based_batching=True``, or ``batching=False`` if the write
            is idempotent: a batch goes to one consumer, that of its first key.
        value: column with the payloads, binary or text.
        encoding: ``"raw"`` sends ``value``; ``"json"`` sends each row as a JSON object with all columns;
            ``"avro"`` sends it as an Avro record, and registers its schema with the topic (Pulsar). The
            engine encodes them. Default: ``"raw"`` with ``value``, ``"json"`` without.
        properties: column of maps from text to text, or of structs of texts. They become user properties with
            MQTT and attributes with TubeMQ.
        event_time: column of timestamps. Not for MQTT.
        deliver_at: Pulsar: column with the times of the earliest delivery to Shared subscriptions.
        message_type: TubeMQ: column with the types, by which brokers filter.
        qos_column, retain_column: MQTT: columns with the QoS (0, 1 or 2) and the retain flag of rows; where
            they are null, that of the options.
        id_property: name of a property to add. Its value is an id that stays the same when Spark sends the
            row again, so that readers can drop duplicates: ``write/partition/row``, or in a stream
            ``query/batch/partition/row``. The partition is ``0-of-4`` where another job may repeat the write.
            Ids are reliable only if the plan yields the same rows in the same partitions and order.
        write_id: beginning of these ids, in place of a random name or the query's. Use the same one when a
            job is run again, and different ones for several writes in one ``foreachBatch``. With
            ``delivery="idempotent"`` it is the name of the write, and needed in every ``foreachBatch``.
        batch_id: the number that ``foreachBatch`` gives. It is needed where a write does not see it: with
            Spark Connect, and in a thread that the function of ``foreachBatch`` has started. Together with
            ``write_id``.
        tasks: number of tasks that write, which is the number of partitions of ``df``. Default: counted by
            the driver of classic Spark. Required together with ``write_id`` for Spark Connect, and for
            columns that have no Arrow type or a DataFrame with ``observe()``. The write fails if the number
            is wrong.
        ack_timeout: seconds to wait for the broker to acknowledge a lot of rows. Then the task fails, and
            Spark repeats it.
        delivery: ``"at-least-once"``, or with Pulsar ``"idempotent"``: rows that Spark sends again are
            dropped by the broker, which has to have deduplication enabled. Each task numbers its rows, so the
            plan has to give a task that is repeated the same rows in the same order; otherwise the write is
            refused. With a ``write_id`` it also has to cut the rows into the same partitions: rows of another
            number of partitions are stored again, and rows that the same number of partitions divides in
            another way can be lost.
        stable_order: states that the plan does so, where that cannot be seen.
        on_bad_row: what happens to a row that cannot be a message, because it is too large, has no topic or
            cannot be encoded: ``"fail"`` ends the write with an error that names it, ``"skip"`` leaves it
            out, ``"dead_letter"`` sends it to ``dead_letter_topic``. The report counts such rows, and the
            workers log them.
        dead_letter_topic: gets the bad rows: the payload, or the row as JSON, or ``{}`` if it is too large
            for that topic as well, with the properties ``forebay-error``, ``forebay-row`` (number of the
            row in its partition) and ``forebay-topic``, if it has one.
        options: options of the client and the producer, such as ``compression="zstd"`` or
            ``token="env:TOKEN"``; with MQTT ``qos=``, ``retain=``, ``password="env:PASSWORD"``. With MQTT,
            ``client_id`` is a prefix to which each worker adds its own suffix. With ``qos=0`` there are no
            acknowledgements: rows count as soon as they are written to the socket, and those in flight when a
            connection breaks are lost.

    Returns:
        The number of rows, bytes, seconds and retries, and for each Spark partition the ids of its first and
        last message (``None`` with MQTT, which has no message ids).

    Raises:
        InvalidArgument: an unknown option or column, a bad value, or a secret as plain text; before any job
            starts. A row that cannot be a message.
        InvalidTopic: the topic or template is not valid, or the topic of a row is not; the error names row
            and column, and no row of its batch has been sent.
        Unsupported: the protocol or the broker does not support something that an argument asks for.
        ConnectFailed, AuthenticationError, TopicNotFound ...: found by the driver, which connects first.
    """
    # The length is that of the arguments and their help.
    started = time.monotonic()
    config = write_config(url, topic, options, **arguments_of(locals()))
    if config.encoding == "json":
        df = _with_intervals_as_text(df)
    config = fitted(config, df.schema, "DataFrame")
    _batches.check(config, df)
    if not hasattr(df, "_jdf"):
        check_tasks_are_given(config)
    if config.delivery == "idempotent":
        _plans.check_order(df, config)
    _ask_broker(config)
    df = _shape(df, config)
    session = df.sparkSession
    with _job_description(session, f"forebay: write to {topic or topic_column}"):
        is_to_count = config.tasks is None and _batches.outlives_job(config, df)
        schema = _batch_schema(df) if is_to_count or not _through_source(config) else None
        if schema is None:
            check_tasks_are_given(config)
            check_rows(df.schema, "DataFrame")
            register(session)
            from ._datasource import write_through

            with short_messages(session, of_data_source=True):
                return write_through(df, config, started)
        return WriteReport.of(_write_by_job(df, config, schema), time.monotonic() - started)


def partition_writer(
    url: str | None,
    topic: str | None = None,
    *,
    topic_column: str | None = None,
    key: str | None = None,
    ordering_key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    deliver_at: str | None = None,
    message_type: str | None = None,
    qos_column: str | None = None,
    retain_column: str | None = None,
    id_property: str | None = None,
    write_id: str | None = None,
    batch_id: int | None = None,
    tasks: int | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    delivery: str = "at-least-once",
    stable_order: bool = False,
    on_bad_row: str = "fail",
    dead_letter_topic: str | None = None,
    schema: StructType | None = None,
    **options: Any,
) -> PartitionWriter:
    """A function for ``df.foreachPartition(partition_writer(...))`` that sends plain Rows, 2,000 in each call
    to the engine, and returns when all of them are acknowledged. :func:`forebay.spark.write` is several
    times faster, because it makes no Rows.

    Args:
        url, topic, topic_column, key, ordering_key, value, encoding: as for :func:`forebay.spark.write`.
        properties, event_time, deliver_at, message_type, qos_column, retain_column: as there.
        id_property, write_id, batch_id, ack_timeout: as there.
        on_bad_row, dead_letter_topic, options: as there.
        tasks: the number of partitions of the DataFrame, ``df.rdd.getNumPartitions()``. Required with
            ``write_id``.
        delivery: as there. The plan of the rows is not known here, so that ``"idempotent"`` needs
            ``stable_order=True``.
        stable_order: states that a task that is repeated gets the same rows in the same order.
        schema: ``df.schema``. Rows do not carry it. Without it a ``TIMESTAMP_NTZ`` is read as a moment in the
            workers' time zone, and maps are encoded as objects without their nulls. ``encoding="avro"`` needs
            it.

    Raises:
        InvalidArgument: an unknown option or column, a bad value, or a secret as plain text; raised on the
            driver.
    """
    config = write_config(url, topic, options, **arguments_of(locals()))
    check_order_is_stated(config)
    _batches.check(config)
    check_tasks_are_given(config)
    if config.encoding == "avro" and schema is None:
        raise InvalidArgument(
            'encoding="avro" needs schema=df.schema here: rows do not carry their types, and what is made of '
            "some of them may be another schema than that of others"
        )
    if schema is not None:
        check_rows(schema, "schema")
        config = fitted(config, schema, "schema")
    return PartitionWriter(config, row_schema=schema)


def register(spark: SparkSession) -> None:
    """Adds the data source ``forebay``, where Spark does not find it by itself: it does if its Python has
    the package when it looks for a source first. Options are named like the arguments of :func:`write`.

    It also makes ``spark`` the active session of the calling thread. Spark looks for data sources in that
    session, and a thread that Python has started has none.

    * ``df.write.format("forebay").option("url", ...).option("topic", ...).mode("append").save()``
    * ``df.writeStream.format("forebay").option(...).option("checkpointLocation", ...).start()``
    * MQTT: ``spark.readStream.format("forebay").option(...).load()``, see :mod:`forebay.spark._sources.mqtt`
    """
    from pyspark.errors import AnalysisException

    import pyspark_forebay

    if not pyspark_forebay.HAS_DATA_SOURCES:
        raise Unsupported(
            "PySpark 3.5 has no data sources in Python, which came with 4.0: it writes with "
            "forebay.spark.write(), but not with Spark Connect, nor frames with observe() or map() without "
            "entries"
        )
    travels_by_value(pyspark_forebay)
    session: Any = spark
    if hasattr(session, "_jsparkSession"):
        # As createDataFrame does.
        session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    try:
        spark.dataSource.register(pyspark_forebay.DefaultSource)
    except AnalysisException as error:
        # PySpark 4.0 refuses it when Spark has found the data source by itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _ask_broker(config: WriteConfig) -> None:
    """Connects once on the driver: a wrong address, token or topic is one typed error here, instead of four
    failed tasks."""
    from forebay import blocking

    with blocking.connect(config.url, **client_options(config)) as client:
        # Opening a producer checks all three at once, and creates the topic where first use creates
        # topics. A topic of MQTT needs no producer of its own.
        if config.row_topic is None or config.protocol == "mqtt":
            client.producer(config.placeholder()).close()
        if config.dead_letter_topic is not None:
            client.producer(config.dead_letter_topic).close()
        if config.protocol == "mqtt":
            _ask_limits(client.stats(), config.producer)


def _ask_limits(broker: dict[str, Any], producer: dict[str, Any]) -> None:
    """Compares the producer's options with the limits from the MQTT broker's CONNACK."""
    qos = producer.get("qos", 1)
    if qos > broker["maximum_qos"]:
        raise Unsupported(f"qos={qos} is not supported: the broker's highest QoS is {broker['maximum_qos']}")
    if producer.get("retain") and not broker["retain_available"]:
        raise Unsupported("retain=True is not supported: the broker does not retain messages")


def _shape(df: DataFrame, config: WriteConfig) -> DataFrame:
    """The columns that have to leave the JVM, in types that the engine reads."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import BinaryType, StringType

    if config.encoding != "raw":
        return df
    # Pulsar marks keys of bytes.
    of_bytes = config.protocol == "pulsar" and config.key and df.schema[config.key].dataType == BinaryType()
    columns = {name: F.col(_quoted(name)) for name in config.columns()}
    return df.select(
        *(
            column.cast(StringType()).alias(name) if name == config.key and not of_bytes else column
            for name, column in columns.items()
        )
    )


def _with_intervals_as_text(df: DataFrame) -> DataFrame:
    """The frame with the text of intervals that ``to_json`` writes. Arrow knows no names of their units, and
    no intervals of months that Python can read."""
    from pyspark.sql import functions as F  # noqa: N812

    kinds = {field.name: field.dataType for field in df.schema.fields}
    if not any(map(has_interval, kinds.values())):
        return df
    columns = [(F.col(_quoted(name)), name, kind) for name, kind in kinds.items()]
    return df.select(
        *(
            column.cast(intervals_as_text(kind)).alias(name) if has_interval(kind) else column
            for column, name, kind in columns
        )
    )


def _quoted(name: str) -> str:
    """A name of a column, which may have points."""
    return "`" + name.replace("`", "``") + "`"


def _through_source(config: WriteConfig) -> bool:
    """Whether the data source can write the frame: it runs as a query of Spark, with the commit coordinator,
    metrics and lineage. It is handed texts only; with other options, and PySpark 3.5, a plain job writes."""
    import pyspark_forebay

    return pyspark_forebay.HAS_DATA_SOURCES and not without_text(config)


def _write_by_job(df: Any, config: WriteConfig, schema: bytes) -> list[PartitionReport]:
    """Writes with a plain job, whose tasks it counts.

    Raises:
        InvalidArgument: the plan has another number of tasks than was given.
    """
    try:
        # The first of these runs the shuffles below the frame. What they raise is the job's
        # failure.
        messages = arrow_batches(df)
        count = messages.getNumPartitions()
        if config.tasks not in (None, count):
            raise _errors.other_number_of_tasks(config.tasks, str(count))
        return messages.mapPartitions(PartitionWriter(replace(config, tasks=count), schema)).collect()
    except Error:
        raise
    except Exception as error:
        raise _errors.of_task(error) from error


def _batch_schema(df: Any) -> bytes | None:
    """The schema of the Arrow batches that the JVM makes of the frame for a plain job, or ``None`` if only
    the data source can write it: with Spark Connect, for types that have no Arrow type, and for an observed
    frame, whose metrics Spark reports for its own writes only. Nothing is computed for the answer."""
    if not hasattr(df, "_jdf") or _OBSERVED.search(df._jdf.queryExecution().analyzed().toString()):
        return None
    if has_map_without_entries(df.schema):
        return None
    large = df.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false")
    try:
        schema = arrow_schema(df.schema, large=large == "true")
    except Unsupported as error:
        log.debug("no Arrow schema: %s", error)
        return None
    return schema.serialize().to_pybytes()


@contextlib.contextmanager
def _job_description(session: Any, text: str) -> Generator[None, None, None]:
    """Sets the description that the Spark UI shows, if there is a SparkContext."""
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
