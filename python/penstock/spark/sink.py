"""The part of a write that runs in a task: passing the rows of one Spark partition to the engine."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from penstock import frames
from penstock.errors import Error, InvalidArgument, Timeout

from . import errors, pool
from .columns import fitted
from .config import ACK_TIMEOUT, SinkConfig, sink_config
from .report import PartitionReport
from .rows import to_batch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock import blocking
    from penstock._engine import Waiter
    from penstock._typing import Duration
    from penstock.pulsar import MessageId, MessageIds
    from penstock.tubemq import Position

MESSAGES_PER_LOT = 40
BYTES_PER_LOT = 16 << 20
"""Arrow messages of the JVM, and bytes of them, that are passed to the engine in one call."""
ROWS_PER_CALL = 2000
"""Plain Rows passed to the engine in one call."""


class PartitionWriter:
    """Writes the rows of one partition. Made by :func:`partition_writer`; picklable.

    It is called with an iterator of ``Row``, of ``pyarrow.RecordBatch``, or of Arrow IPC messages as bytes
    (which need the serialised ``arrow_schema``), and returns a list with one :class:`PartitionReport` when
    the broker has acknowledged every row.
    """

    def __init__(
        self, config: SinkConfig, arrow_schema: bytes | None = None, row_schema: StructType | None = None
    ) -> None:
        self.config = config
        self.arrow_schema = arrow_schema
        self.row_schema = row_schema

    def __call__(self, rows: Iterable[Any]) -> list[PartitionReport]:
        task = Task.current()
        started = time.monotonic()
        total = _Total(self.config.ack_timeout)
        iterator = iter(rows)
        first = next(iterator, None)
        if first is not None:
            try:
                # Not earlier: an empty partition opens no connection.
                with pool.producer(self.config, task.partition) as producer:
                    self._write(producer, itertools.chain([first], iterator), first, task, total)
            except Error as error:
                raise errors.in_task(error, task.partition, task.attempt, total.rows) from error
        seconds = time.monotonic() - started
        return [
            PartitionReport(
                task.partition, total.rows, total.bytes, total.first, total.last, task.attempt, seconds
            )
        ]

    def _write(
        self, producer: blocking.Producer, rows: Iterator[Any], first: Any, task: Task, total: _Total
    ) -> None:
        # While one lot is in flight, the next is fetched from Spark and encoded. It is submitted only after
        # the previous one is acknowledged, so that rows keep their order even when some are sent again.
        ids = task.ids(self.config)
        number = 0
        for lot in self._lots(rows, first):
            submit = self._prepare(producer, lot, number, ids, total)
            number += len(lot)
            total.settle()
            total.pending = submit()
        total.settle()

    def _lots(self, rows: Iterator[Any], first: Any) -> Iterator[Any]:
        """The rows as record batches or lists of Rows."""
        if isinstance(first, bytes | bytearray | memoryview):
            if self.arrow_schema is None:
                raise InvalidArgument("Arrow IPC messages need arrow_schema, their serialised schema")
            yield from _larger(rows, self.arrow_schema)
        elif hasattr(first, "__arrow_c_array__"):
            yield from rows
        else:
            while chunk := list(itertools.islice(rows, ROWS_PER_CALL)):
                yield chunk

    def _prepare(
        self,
        producer: Any,
        lot: Any,
        number: int,
        ids: tuple[str, str] | None,
        total: _Total,
    ) -> Callable[[], Waiter[MessageIds]]:
        """Encodes a lot and returns the function that sends it. ``number`` is the position of its first row
        in the partition."""
        config = self.config
        if isinstance(lot, list):
            chunk = cast("list[Any]", lot)
            if _payload_and_key_only(config) and all(row[config.value] is not None for row in chunk):
                payloads = [_payload(row[config.value]) for row in chunk]
                keys = None if config.key is None else [_key(row[config.key]) for row in chunk]
                total.bytes += sum(map(len, payloads))
                return lambda: producer.submit_many(payloads, keys)
            if config.key is not None:
                for row in chunk:
                    _key(row[config.key])
            lot = to_batch(chunk, config.columns() if config.encoding == "raw" else None, self.row_schema)
        rows = frames.outgoing(lot, **config.encoding_arguments(), first_row=number, id=ids)
        total.bytes += rows.payload_bytes
        return lambda: producer.submit_rows(rows)

    def __repr__(self) -> str:
        return f"PartitionWriter({self.config!r})"


def _larger(messages: Iterator[Any], schema: bytes) -> Iterator[Any]:
    """Short Arrow IPC messages as large tables. Each call into the engine has a cost, and so has each
    acknowledgement of a lot; one stream of many messages is read faster than each of them."""
    import pyarrow as pa

    while chunk := _chunk(messages):
        table = pa.ipc.open_stream(pa.py_buffer(b"".join([schema, *chunk]))).read_all()
        yield table.combine_chunks()


def _chunk(messages: Iterator[Any]) -> list[Any]:
    chunk: list[Any] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message)
        if size >= BYTES_PER_LOT or len(chunk) >= MESSAGES_PER_LOT:
            break
    return chunk


def _payload_and_key_only(config: SinkConfig) -> bool:
    """Whether rows can be sent as they are, without pyarrow."""
    others = (config.properties, config.event_time, config.row_topic, config.id_property)
    return config.encoding == "raw" and not any(others)


class _Total:
    rows = 0
    bytes = 0
    first: MessageId | Position | None = None
    last: MessageId | Position | None = None
    pending: Waiter[Any] | None = None

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def settle(self) -> None:
        """Waits for the lot in flight."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        try:
            answers = pending.wait(self._timeout)
        except Timeout:
            raise Timeout(
                f"the broker did not acknowledge a lot of rows within {self._timeout:g} s"
            ) from None
        if len(answers):
            self.rows += len(answers)
            # MQTT answers with reason codes, which are numbers.
            if not isinstance(answers[0], int):
                self.first = self.first or answers[0]
                self.last = answers[-1]


@dataclass(frozen=True)
class Task:
    """The Spark task that runs this code."""

    partition: int
    attempt: int
    stage: int
    query: str | None
    """Id of the streaming query. It and ``batch`` stay the same when a batch is replayed."""
    batch: str | None

    @classmethod
    def current(cls) -> Task:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls(0, 0, 0, None, None)
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            context.stageId(),
            context.getLocalProperty("sql.streaming.queryId"),
            context.getLocalProperty("streaming.sql.batchId"),
        )

    def ids(self, config: SinkConfig) -> tuple[str, str] | None:
        """Name of the property with ids, and the beginning of the ids. The attempt is not part of them,
        because it repeats the same rows."""
        if config.id_property is None:
            return None
        if self.query and self.batch:
            write = f"{config.write_id or self.query}/{self.batch}"
        else:
            # One writer may be used for several frames, which differ in their stages.
            write = config.write_id or f"{config.run_id}-{self.stage}"
        return config.id_property, f"{write}/{self.partition}"


def _payload(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"a payload must be binary or text, not {type(value).__name__}: use encoding='json'"
    )


def _key(value: Any) -> str | None:
    """The text of a key, as the JVM and the engine write it, too."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return value.decode()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    raise errors.no_key(f"a key is of type {type(value).__name__}")


def partition_writer(
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
    schema: StructType | None = None,
    **options: Any,
) -> PartitionWriter:
    """A function for ``df.foreachPartition(partition_writer(...))`` that sends plain Rows, 2,000 in each call
    to the engine, and returns when all of them are acknowledged. :func:`penstock.spark.write` is several
    times faster, because it makes no Rows.

    Args:
        url, topic, topic_column, key, value, encoding: as for :func:`penstock.spark.write`.
        properties, event_time, id_property, write_id, ack_timeout, options: as there.
        schema: ``df.schema``. Rows do not carry it. Without it a ``TIMESTAMP_NTZ`` is read as a moment in the
            workers' time zone, and maps are encoded as objects without their nulls.

    Raises:
        InvalidArgument: an unknown option or column, a bad value, or a secret as plain text; raised on the
            driver.
    """
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
    if schema is not None:
        config = fitted(config, schema, "schema")
    return PartitionWriter(config, row_schema=schema)
