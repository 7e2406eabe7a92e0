"""The batch source of Pulsar: ``spark.read.format("forebay").option("url", "pulsar://...")``.

The driver asks for the partitions of the topics and for their ends, and gives each Spark task a range of one
partition. A task reads its range with a reader of its own, and leaves no subscription behind. Ranges meet
between messages, so each message is in one of them; a task that is repeated reads the same messages again.
"""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from forebay.pulsar._columns import KAFKA, PULSAR_SPARK
from forebay.pulsar._decoding import Decoding, decoding_of
from forebay.pulsar._ranges import DEFAULTS, REFUSED, Planner, Range, plan, rows
from forebay.spark import _pool
from forebay.spark._shipping import Shipped

from . import names, reading
from .reading import Form, ReadConfig, Source, wanted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_COLUMNS = {"kafka": KAFKA, "pulsar": PULSAR_SPARK}


def _decoding(config: ReadConfig) -> Decoding | None:
    """Returns the schema by which payloads become values, if the options ask for them."""
    own = config.own
    decodes = own["columns"] == "pulsar" if own["decode"] is None else own["decode"]
    if not decodes:
        return None
    with _pool.client(config) as client:
        topics = Planner(client, config.read).topics()
        return decoding_of(client, topics, spark=True, on_error=own["onError"])


def _decoded(config: ReadConfig, decoding: Decoding | None) -> ReadConfig:
    """The configuration with the columns of the values."""
    if decoding is None:
        return config
    columns = decoding.columns(config.columns, flat=config.own["columns"] == "pulsar")
    return dataclasses.replace(config, columns=columns, decoding=decoding)


SOURCE = Source(
    protocol="pulsar",
    names=names.PULSAR,
    choices=("subscribe", "subscribePattern", "assign"),
    refused={**REFUSED, "position": "use startingOffsets"},
    consumer=DEFAULTS,
    columns=lambda own: _COLUMNS[own["columns"]],
    ask=_decoding,
    fix=_decoded,
)


def read_config(options: dict[str, Any], form: Form | None = None) -> ReadConfig:
    """The configuration of a read; arguments and errors as those of :func:`.reading.read_config`."""
    return reading.read_config(SOURCE, options, form)


class PulsarReader(Shipped, DataSourceReader):
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
        for batch in rows(client, config.read, part, columns, config.decoding):
            yield pa.record_batch(batch)
