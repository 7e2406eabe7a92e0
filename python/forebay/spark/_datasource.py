"""The data source ``forebay``: ``df.write.format("forebay")``, streams, and writes with Spark Connect."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from forebay._core import protocols
from forebay.errors import InvalidArgument, Unsupported

from . import _errors
from ._columns import check_rows, fitted
from ._config import (
    ARGUMENTS,
    WriteConfig,
    check_order_is_stated,
    check_tasks_are_given,
    write_config,
)
from ._report import PartitionReport, WriteReport
from ._shipping import Shipped, inherited_for
from ._sink import PartitionWriter
from ._sources import names, pulsar, tubemq
from ._sources.mqtt import MqttStreamReader, source_config, spark_schema
from ._sources.pulsar_stream import PulsarStreamReader
from ._sources.reading import Form, ReadConfig, Source, read_config, row_schema
from ._sources.tubemq_stream import TubeMqStreamReader
from ._spark_options import as_text, of_text, spelled, spellings, without_those_of_spark

if TYPE_CHECKING:
    _StreamBase = DataSourceStreamWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamBase
    except ImportError:
        # PySpark 4.0 passes Rows, which the writer accepts, too.
        _StreamBase = DataSourceStreamWriter

_CONFIG, _REPORT = "_config", "_report"
"""Options with which forebay.spark.write passes its configuration, and the name of a file for the report."""
_REPORT_TO_COME = "the report of a write by forebay.spark\n"
"""Content of the file for a report, until the report is there."""


class ForebayDataSource(DataSource):
    """``df.write.format("forebay").option("url", ...).option("topic", ...).mode("append").save()``, the same
    with ``df.writeStream``, ``spark.read`` for Pulsar and TubeMQ, and ``spark.readStream``."""

    def __init__(self, options: Any) -> None:
        super().__init__(without_those_of_spark(options))
        self._answer: Any = None
        """Of the brokers when the read was planned. It travels with this."""

    @classmethod
    def name(cls) -> str:
        return "forebay"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise Unsupported('a topic cannot be overwritten: use mode("append")')
        options: dict[str, Any] = dict(self.options)
        text, report = options.pop(_CONFIG, None), options.pop(_REPORT, None)
        if text is None:
            return _Writer(PartitionWriter(_config(options, schema), of_data_source=True), report)
        # forebay.spark.write has made and checked it on the driver, which is another process.
        return _Writer(PartitionWriter(of_text(text)), report)

    def schema(self) -> Any:
        """The schema of the rows of the source."""
        source = self._positions().get(self._protocol())
        return spark_schema() if source is None else row_schema(self._read_config(source))

    def reader(self, schema: Any) -> DataSourceReader:
        protocol = self._protocol()
        if protocol == "mqtt":
            raise Unsupported(
                "an MQTT topic cannot be read as a batch, because it has no end: use spark.readStream"
            )
        reader = {"pulsar": pulsar.PulsarReader, "tubemq": tubemq.TubeMqReader}[protocol]
        return reader(self._read_config(self._positions()[protocol], "batch"), schema)

    def _read_config(self, source: Source, form: Form | None = None) -> ReadConfig:
        """The configuration of a read. The brokers are asked once, or Spark would plan with other columns
        than tasks have."""
        config = read_config(source, dict(self.options), form)
        if self._answer is None:
            self._answer = source.ask(config)
        return source.fix(config, self._answer)

    @staticmethod
    def _positions() -> dict[str, Source]:
        """The sources that have positions, by protocol."""
        return {source.protocol: source for source in (pulsar.SOURCE, tubemq.SOURCE)}

    def _protocol(self) -> str:
        """The protocol of the URL."""
        options = dict(self.options)
        return protocols.of(inherited_for(names.split_url(options))[0]).key

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        protocol = self._protocol()
        if protocol != "mqtt":
            reader = {"pulsar": PulsarStreamReader, "tubemq": TubeMqStreamReader}[protocol]
            return reader(self._read_config(self._positions()[protocol], "stream"), schema)
        if schema != spark_schema():
            raise InvalidArgument(
                f"the source has its own schema, {spark_schema().simpleString()}: do not set another"
            )
        return MqttStreamReader(source_config(dict(self.options)))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise Unsupported('a topic cannot be overwritten: use outputMode("append")')
        config = _config(dict(self.options), schema)
        if config.batch_id is not None:
            raise InvalidArgument("batch_id is for foreachBatch: here Spark tells the number of each batch")
        # The schema is for the Rows of PySpark 4.0.
        return _StreamWriter(PartitionWriter(config, row_schema=schema, of_query=True))


def _config(options: dict[str, Any], schema: Any) -> WriteConfig:
    """The configuration of a write by options of Spark."""
    rest = spelled(options, spellings(("url", "topic", *ARGUMENTS)))
    given = {name: rest.pop(name) for name in ("url", "topic", *ARGUMENTS) if name in rest}
    url, topic = given.pop("url", None), given.pop("topic", None)
    if not topic and "topic_column" not in given:
        raise InvalidArgument('option "topic" is missing')
    config = write_config(url, topic, rest, **given)
    check_order_is_stated(config)
    check_tasks_are_given(config)
    check_rows(schema, "DataFrame")
    return fitted(config, schema, "DataFrame")


@dataclass
class _Written(WriterCommitMessage):
    report: PartitionReport


class _Writer(Shipped, DataSourceArrowWriter):
    """Writes a batch: passes each task's rows to the writer of partitions."""

    def __init__(self, writer: PartitionWriter, report: str | None) -> None:
        self._writer = writer
        self._report = report

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Written(self._writer(iterator)[0])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check_tasks(self._writer.config, messages)
        # This runs in another process on the driver's machine, and reports through a file.
        # The file is the one that the driver made for it, and no other.
        if self._report and _is_to_come(Path(self._report)):
            reports = [message.report for message in messages if isinstance(message, _Written)]
            Path(self._report).write_text(json.dumps([_as_json(report) for report in reports]))


class _StreamWriter(Shipped, _StreamBase):
    """Writes micro-batches. When the tasks of a batch have ended, every row is acknowledged, so there is
    nothing to commit. A batch that Spark repeats is sent again. Its rows have the same ids if the number of
    tasks is given, which is checked before Spark commits the batch."""

    def __init__(self, writer: PartitionWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Written(self._writer(iterator)[0])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _check_tasks(self._writer.config, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


def _check_tasks(config: WriteConfig, messages: list[WriterCommitMessage | None]) -> None:
    """
    Raises:
        InvalidArgument: another number of tasks has written than was given.
    """
    if config.tasks in (None, len(messages)):
        return
    # Spark may replace a plan without rows by one of another number of partitions.
    reports = [message.report for message in messages if isinstance(message, _Written)]
    if any(report.rows or report.bad_rows for report in reports):
        raise _errors.other_number_of_tasks(config.tasks, str(len(messages)))


def _is_to_come(path: Path) -> bool:
    try:
        return path.read_text() == _REPORT_TO_COME
    except (OSError, ValueError):
        # On a remote Connect server, for one.
        return False


def _as_json(report: PartitionReport) -> dict[str, Any]:
    return {
        "partition": report.partition,
        "rows": report.rows,
        "bytes": report.bytes,
        "first": report.first and str(report.first),
        "last": report.last and str(report.last),
        "attempt": report.attempt,
        "seconds": report.seconds,
        "bad_rows": report.bad_rows,
        "repeated_rows": report.repeated_rows,
    }


def _from_json(value: dict[str, Any], protocol: str) -> PartitionReport:
    from forebay.pulsar import MessageId
    from forebay.tubemq import Position

    parse: Any = Position.parse if protocol == "tubemq" else MessageId.parse
    ids: dict[str, Any] = {name: value[name] and parse(value[name]) for name in ("first", "last")}
    return PartitionReport(**{**value, **ids})


def write_through(df: Any, config: WriteConfig, started: float) -> WriteReport:
    """Writes through the data source, which the session knows. If the driver runs on another machine (a
    remote Connect server), the report has the number of rows, but no partitions.

    Raises:
        InvalidArgument: an option that only a classic driver can pass to its workers.
    """
    text = as_text(config)
    seen = None
    if not hasattr(df, "_jdf"):
        seen = Observation()
        df = df.observe(seen, F.count(F.lit(1)).alias("rows"))
    with tempfile.NamedTemporaryFile(mode="w+", prefix="forebay-report-") as file:
        file.write(_REPORT_TO_COME)
        file.flush()
        # URL and topic are for those who watch Spark's plans.
        shown = {"url": config.url, "topic": config.topic or config.row_topic}
        options = {**shown, _CONFIG: text, _REPORT: file.name}
        try:
            df.write.format("forebay").mode("append").options(**options).save()
        except Exception as error:
            raise _errors.of_task(error) from error
        written = Path(file.name).read_text()
    seconds = time.monotonic() - started
    if written == _REPORT_TO_COME:
        if seen is None:
            raise RuntimeError(f"all rows are written, and their report did not reach {file.name}")
        return WriteReport(rows=int(seen.get["rows"]), bytes=0, seconds=seconds, retries=0, partitions=())
    return WriteReport.of([_from_json(value, config.protocol) for value in json.loads(written)], seconds)
