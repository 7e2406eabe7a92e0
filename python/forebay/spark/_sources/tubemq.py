"""The batch source of TubeMQ: ``spark.read.format("forebay").option("url", "tubemq://...")``.

The driver asks the master for the partitions of the topics and the brokers for their ends, and gives each
Spark task the entries between two offsets of one partition. A task that is repeated reads the same messages
again. Tasks take partitions in groups that are made for that, and give them back; no other group is moved.
"""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from forebay.spark import _pool
from forebay.spark._shipping import Shipped
from forebay.tubemq._columns import KAFKA
from forebay.tubemq._ranges import REFUSED, Range, plan, rows

from . import names, reading
from .reading import Form, ReadConfig, Source, wanted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SOURCE = Source(
    protocol="tubemq",
    names=names.TUBEMQ,
    choices=("subscribe", "assign"),
    refused={**REFUSED, "position": "use startingOffsets"},
    consumer={},
    columns=lambda own: KAFKA,
)


def read_config(options: dict[str, Any], form: Form | None = None) -> ReadConfig:
    """The configuration of a read; arguments and errors as those of :func:`.reading.read_config`."""
    return reading.read_config(SOURCE, options, form)


class TubeMqReader(Shipped, DataSourceReader):
    """Reads a batch. On the driver it plans, on executors it reads ranges."""

    def __init__(self, config: ReadConfig, schema: StructType) -> None:
        self._config = config
        self._columns = wanted(config, schema)

    def partitions(self) -> list[InputPartition]:
        with _pool.client(self._config) as client:
            return [InputPartition(part) for part in plan(client, self._config.read)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark has a task even if there is nothing to read; its partition is None itself with
        # PySpark 4.0.
        part: Range | None = getattr(partition, "value", None)
        if part is not None:
            yield from batches(self._config, part, self._columns)


def batches(config: ReadConfig, part: Range, columns: list[tuple[str, str]]) -> Iterator[Any]:
    """The rows of a range, as batches with the columns that Spark expects."""
    import pyarrow as pa

    with _pool.client(config) as client:
        for batch in rows(client, config.read, part, columns):
            yield pa.record_batch(batch)
