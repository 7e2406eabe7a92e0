"""What runs in a task: rows or Arrow batches of one Spark partition into the engine."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import InvalidArgument

from . import pool
from .config import SinkConfig, sink_config
from .report import PartitionReport

if TYPE_CHECKING:
    from penstock import blocking
    from penstock._engine import MessageId, MessageIds, Waiter

ROWS_PER_CALL = 2000
"""Plain Rows that go over the border in one call."""


class PartitionWriter:
    """Writes the rows of one partition; what :func:`partition_writer` returns. Picklable.

    Takes an iterator of ``Row``, of ``pyarrow.RecordBatch``, or of Arrow IPC messages as bytes (these need
    ``schema``, serialised). Returns a list with one :class:`PartitionReport` when the broker has acknowledged
    every row.
    """

    def __init__(self, config: SinkConfig, schema: bytes | None = None) -> None:
        self.config = config
        self.schema = schema

    def __call__(self, rows: Iterable[Any]) -> list[PartitionReport]:
        partition, attempt = _task()
        started = time.monotonic()
        total = _Total()
        iterator = iter(rows)
        first = next(iterator, None)
        if first is not None:
            # Only now: an empty partition costs no connection.
            lots = self._lots(itertools.chain([first], iterator), first)
            with pool.producer(self.config, partition) as producer:
                # While one lot is on its way the next is fetched from Spark. It is submitted when the one
                # before it is done, so that rows keep their order even when something is sent again.
                pending = None
                for lot in lots:
                    total.settle(pending)
                    pending = self._submit(producer, lot, total)
                total.settle(pending)
        seconds = time.monotonic() - started
        return [
            PartitionReport(partition, total.rows, total.bytes, total.first, total.last, attempt, seconds)
        ]

    def _lots(self, rows: Iterator[Any], first: Any) -> Iterator[Any]:
        """Record batches, or lists of Rows."""
        if isinstance(first, bytes | bytearray | memoryview):
            import pyarrow as pa

            if self.schema is None:
                raise InvalidArgument("Arrow IPC messages need their schema")
            schema: Any = pa.ipc.read_schema(pa.py_buffer(self.schema))
            for message in rows:
                yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        elif hasattr(first, "__arrow_c_array__"):
            yield from rows
        else:
            while chunk := list(itertools.islice(rows, ROWS_PER_CALL)):
                yield chunk

    def _submit(self, producer: blocking.Producer, lot: Any, total: _Total) -> Waiter[MessageIds]:
        config = self.config
        if isinstance(lot, list):
            chunk = cast("list[Any]", lot)
            if config.value and config.encoding == "raw" and not config.properties and not config.event_time:
                payloads = [_payload(row[config.value]) for row in chunk]
                total.bytes += sum(map(len, payloads))
                keys = None if config.key is None else [_key(row[config.key]) for row in chunk]
                return producer.submit_many(payloads, keys)
            import pyarrow as pa

            lot = pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in chunk])
        column = lot.column(config.value) if config.encoding == "raw" else lot
        total.bytes += int(column.nbytes)
        return producer.submit_frame(lot, **config.arrow_arguments())

    def __repr__(self) -> str:
        return f"PartitionWriter({self.config!r})"


class _Total:
    rows = 0
    bytes = 0
    first: MessageId | None = None
    last: MessageId | None = None

    def settle(self, pending: Waiter[MessageIds] | None) -> None:
        ids = pending.wait() if pending else None
        if ids is not None and len(ids):
            self.rows += len(ids)
            self.first = self.first or ids[0]
            self.last = ids[-1]


def _task() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)


def _payload(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"a payload is binary or text, not {type(value).__name__}: use encoding='json'")


def _key(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode() if isinstance(value, bytes | bytearray) else str(value)


def partition_writer(
    url: str | None,
    topic: str,
    *,
    key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    **options: Any,
) -> PartitionWriter:
    """For ``df.foreachPartition(partition_writer(...))``: sends plain Rows, 2,000 per call into the engine,
    and returns when every receipt is there. :func:`penstock.spark.write` is several times faster, because it
    makes no Rows.

    Args:
        url: of the broker, as for :func:`penstock.connect`.
        topic: the topic.
        key: column with the keys.
        value: column with the payloads, binary or text.
        encoding: ``"raw"`` or ``"json"``; default as ``value`` implies.
        properties: column of maps, text to text.
        event_time: column of timestamps.
        options: options of client and producer: ``compression="zstd"``, ``token="env:TOKEN"`` ...

    Raises:
        InvalidArgument: at once, on the driver.
    """
    return PartitionWriter(
        sink_config(
            url,
            topic,
            key=key,
            value=value,
            encoding=encoding,
            properties=properties,
            event_time=event_time,
            options=options,
        )
    )
