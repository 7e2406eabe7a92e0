"""The batch source of Pulsar: ``spark.read.format("penstock").option("url", "pulsar://...")``.

The driver asks for the partitions of the topics and for their ends, and gives each Spark task a range of one
partition. A task reads its range with a reader of its own, and leaves no subscription behind. Ranges meet
between messages, so each message is in one of them; a task that is repeated reads the same messages again.
"""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock import protocols
from penstock.errors import InvalidArgument
from penstock.pulsar.ranges import Plan, Range, rows
from penstock.spark import pool
from penstock.spark.config import digest, inherited_for, refuse_embedded, travelling

from . import names

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_REFUSED = {
    "position": "use startingOffsets",
    "start_inclusive": "reading begins behind the message of startingOffsets",
    "durable": "the source leaves no subscription behind",
    "type": "each task reads a range by itself",
    "dead_letter": "the source acknowledges nothing",
    "retry": "the source acknowledges nothing",
    "ack_timeout": "the source acknowledges nothing",
    "interceptors": "rows are no messages of Python",
    "schema": "payloads are columns of bytes",
}


@dataclass(frozen=True)
class ReadConfig:
    """Configuration of a read. Made by :func:`read_config`."""

    url: str
    protocol: str
    own: dict[str, Any]
    """The source's own options."""
    client: dict[str, Any] = field(repr=False)
    consumer: dict[str, Any]
    pool_key: str = field(repr=False)


def read_config(options: dict[str, Any], form: Literal["batch", "stream"] | None = None) -> ReadConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Args:
        options: as Spark hands them over.
        form: of the read; options of the other one are refused.

    Raises:
        InvalidArgument: an unknown or missing option, a bad value, or a secret as plain text.
    """
    scopes = ("pulsar.client", "pulsar.consumer")
    tables = [protocols.table(scope) for scope in scopes]
    url, own, rest = names.split(options, [*tables[0], *tables[1]], form)
    base, inherited = inherited_for(url)
    refuse_embedded(base)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if own[name] is not None]
    if len(chosen) != 1:
        given = f"not {' and '.join(chosen)}" if chosen else "which say what to read"
        raise InvalidArgument(f"give one of the options subscribe, subscribePattern and assign, {given}")
    client = {name: value for name, value in rest.items() if name in tables[0]}
    consumer = {name: value for name, value in rest.items() if name not in client}
    client = travelling(scopes[0], {**inherited["client"], **client})
    for name in {**inherited["consumer"], **consumer}:
        if name in _REFUSED:
            raise InvalidArgument(f"the source has no option {name!r}: {_REFUSED[name]}")
    # An entry that cannot be read would be a row that is missing.
    consumer = {"unreadable": "fail", **travelling(scopes[1], {**inherited["consumer"], **consumer})}
    return ReadConfig(base, "pulsar", own, client, consumer, digest(base, client))


_COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "kafka": (
        ("key", "key", "binary"),
        ("value", "value", "binary"),
        ("topic", "topic", "string"),
        ("partition", "partition", "int"),
        ("offset", "index", "bigint"),
        ("timestamp", "publish_time", "timestamp"),
        ("timestampType", "timestamp_type", "int"),
        ("messageId", "message_id", "string"),
        ("eventTime", "event_time", "timestamp"),
        ("orderingKey", "ordering_key", "binary"),
        ("producerName", "producer_name", "string"),
        ("sequenceId", "sequence_id", "bigint"),
        ("schemaVersion", "schema_version", "binary"),
    ),
    "pulsar": (
        ("value", "value", "binary"),
        ("__key", "key", "binary"),
        ("__topic", "partition_topic", "string"),
        ("__messageId", "message_id_bytes", "binary"),
        ("__publishTime", "publish_time", "timestamp"),
        ("__eventTime", "event_time", "timestamp"),
        ("__messageProperties", "properties", "map<string,string>"),
    ),
}
"""Name, content for the engine, and type of the columns."""
_HEADERS = ("headers", "headers", "array<struct<key:string,value:binary>>")


def _all_columns(config: ReadConfig) -> dict[str, tuple[str, str]]:
    columns = _COLUMNS[config.own["columns"]]
    if config.own["includeHeaders"]:
        columns = (*columns, _HEADERS)
    return {name: (content, kind) for name, content, kind in columns}


def schema_text(config: ReadConfig) -> str:
    """The schema of the rows, as DDL."""
    return ", ".join(f"`{name}` {kind}" for name, (_, kind) in _all_columns(config).items())


def wanted(config: ReadConfig, schema: StructType) -> list[tuple[str, str]]:
    """The content and the name of each column of ``schema``; columns may be left out.

    Raises:
        InvalidArgument: a column that the source does not have, or with another type.
    """
    known = _all_columns(config)
    columns: list[tuple[str, str]] = []
    for part in schema.fields:
        if part.name not in known:
            raise InvalidArgument(f"the source has no column {part.name!r}, only {', '.join(known)}")
        content, kind = known[part.name]
        if _text(part.dataType) != kind:
            raise InvalidArgument(f"column {part.name!r} is {kind}, not {_text(part.dataType)}")
        columns.append((content, part.name))
    return columns


def _text(kind: DataType) -> str:
    return kind.simpleString()


class PulsarReader(DataSourceReader):
    """Reads a batch. On the driver it plans, on executors it reads ranges."""

    def __init__(self, config: ReadConfig, schema: StructType) -> None:
        self._config = config
        self._columns = wanted(config, schema)

    def partitions(self) -> list[InputPartition]:
        with pool.client(self._config) as client:
            return [
                InputPartition(part)
                for part in Plan(client, self._config.own, self._config.consumer).ranges()
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark has a task even if there is nothing to read.
        if partition.value is not None:
            yield from batches(self._config, partition.value, self._columns)


def batches(config: ReadConfig, part: Range, columns: list[tuple[str, str]]) -> Iterator[Any]:
    """The rows of a range, as batches with the columns that Spark expects."""
    import pyarrow as pa

    own = config.own
    with pool.client(config) as client:
        for batch in rows(client, part, columns, config.consumer, own["readTimeout"], own["failOnDataLoss"]):
            yield pa.record_batch(batch)
