"""The part of a write that runs in a task: passing the rows of one Spark partition to the engine."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import collections
import contextlib
import datetime
import itertools
import json
import logging
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from penstock import _frames, _native
from penstock._frames import ACK_TIMEOUT
from penstock.errors import Error, InvalidArgument, MessageTooLarge, Timeout, Unsupported

from . import errors, pool
from .columns import check_rows, fitted
from .config import ROLES, SinkConfig, check_order_is_stated, check_write_is_named, sink_config
from .report import PartitionReport
from .rows import to_batch
from .shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock._engine import FrameRows, Waiter
    from penstock._typing import Duration
    from penstock.pulsar import MessageId
    from penstock.tubemq import Position

MESSAGES_PER_LOT = 40
BYTES_PER_LOT = 16 << 20
"""Arrow messages of the JVM, and bytes of them, that are passed to the engine in one call."""
ROWS_PER_CALL = 2000
"""Plain Rows passed to the engine in one call."""
LOTS_IN_FLIGHT = 8
BYTES_IN_FLIGHT = 32 << 20
"""Lots without all receipts, and bytes of their payloads, from which on the next one waits."""
ROWS_PER_TASK = 1 << 32
"""Rows of a task that have numbers for deduplication; the batch of the stream is above them."""
BAD_ROWS_LOGGED = 10
"""Bad rows of a task that are logged one by one."""

log = logging.getLogger("penstock.spark")


class PartitionWriter(Shipped):
    """Writes the rows of one partition. Made by :func:`partition_writer`; picklable.

    It is called with an iterator of ``Row``, of ``pyarrow.RecordBatch``, or of Arrow IPC messages as bytes
    (which need the serialised ``arrow_schema``), and returns a list with one :class:`PartitionReport` when
    the broker has acknowledged every row.
    """

    def __init__(
        self,
        config: SinkConfig,
        arrow_schema: bytes | None = None,
        row_schema: StructType | None = None,
        *,
        of_query: bool = False,
    ) -> None:
        self.config = config
        self.arrow_schema = arrow_schema
        self.row_schema = row_schema
        self.of_query = of_query
        """Whether it is the sink of a streaming query, which has one."""

    def __call__(self, rows: Iterable[Any]) -> list[PartitionReport]:
        task = Task.current()
        if task.query and task.batch and not self.of_query:
            check_write_is_named(self.config)
        started = time.monotonic()
        total = _Total()
        iterator = iter(rows)
        first = next(iterator, None)
        if first is not None:
            try:
                # Not earlier: an empty partition opens no connection.
                with pool.producers(self.config, task.producer_name(self.config)) as producers:
                    writing = _Writing(self.config, self.row_schema, task, producers, total)
                    for lot in self._lots(itertools.chain([first], iterator), first):
                        writing.add(lot)
                    writing.settle()
            except Error as error:
                raise errors.in_task(error, task.partition, task.attempt, total.rows) from error
        total.tell_bad(task.partition)
        return [
            PartitionReport(
                partition=task.partition,
                rows=total.rows,
                bytes=total.bytes,
                first=total.first,
                last=total.last,
                attempt=task.attempt,
                seconds=time.monotonic() - started,
                bad_rows=total.bad_rows,
            )
        ]

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

    def __repr__(self) -> str:
        return f"PartitionWriter({self.config!r})"


@dataclass
class _Lot:
    """Rows that have been passed to the engine."""

    first: int
    """Number of the first one in the partition."""
    bytes: int
    """Of their payloads."""
    parts: list[tuple[Waiter[Any], FrameRows | None]]
    """For each topic: the receipts that are waited for, and the rows."""
    encoded: FrameRows | None = None
    """The rows of all topics; ``None`` if they were sent as they are."""
    rows: Any = None
    """The frame."""

    def bad(self) -> list[tuple[int, str, int]]:
        """Numbers of the rows that were left out, why, and the bytes that were not sent."""
        found = [] if self.encoded is None else self.encoded.bad_rows()
        for _, part in self.parts:
            if part is not None and part is not self.encoded:
                found += part.bad_rows()
        return sorted(found)


class _Writing:
    """The write of a task. While lots are in flight, the next is fetched from Spark and encoded."""

    def __init__(
        self,
        config: SinkConfig,
        row_schema: StructType | None,
        task: Task,
        producers: pool.Producers,
        total: _Total,
    ) -> None:
        self._config = config
        self._row_schema = row_schema
        self._ids = task.ids(config)
        self._sequence = task.sequence(config)
        self._producers = producers
        self._total = total
        self._number = 0
        self._pending: collections.deque[_Lot] = collections.deque()
        # A message of MQTT carries its topic.
        self._has_one_producer = config.row_topic is None or config.protocol == "mqtt"
        self._stored = self._stored_before()
        self._checked: set[str] = set()
        """Topics of which the broker is known to drop rows that are sent again."""

    def add(self, lot: Any) -> None:
        """Sends rows, and waits until little enough is in flight."""
        first, count = self._number, len(lot)
        self._number += count
        if self._sequence is None:
            while self._is_full():
                self._settle_one()
            self._pending.append(self._send(lot, first))
            return
        if self._number > ROWS_PER_TASK:
            raise InvalidArgument(
                f"a Spark partition has more than {ROWS_PER_TASK} rows, which is the most with "
                'delivery="idempotent": repartition the frame'
            )
        if first < self._stored:
            # The broker has them from an attempt before, and would drop them.
            known = min(self._stored - first, count)
            self._total.rows += known
            lot, first = (lot[known:] if isinstance(lot, list) else lot.slice(known)), first + known
        if len(lot):
            self._send_numbered(lot, first)

    def settle(self) -> None:
        """Waits for everything in flight."""
        while self._pending:
            self._settle_one()

    def _is_full(self) -> bool:
        lots = self._pending
        return len(lots) >= LOTS_IN_FLIGHT or sum(lot.bytes for lot in lots) >= BYTES_IN_FLIGHT

    def _send(self, lot: Any, first: int) -> _Lot:
        """Encodes rows and sends them. ``first`` is the number of the first one in the partition."""
        config = self._config
        producer = self._producers.of(config.placeholder()) if self._has_one_producer else None
        if producer and isinstance(lot, list):
            chunk = cast("list[Any]", lot)
            if _payload_and_key_only(config, chunk):
                payloads = [_payload(row[config.value]) for row in chunk]
                keys = None if config.key is None else [_key(row[config.key]) for row in chunk]
                size = sum(map(len, payloads))
                return _Lot(first, size, [(producer.submit_many(payloads, keys), None)])
        frame = self._frame(lot)
        rows = self._encoded(frame, first)
        sent: list[tuple[Waiter[Any], FrameRows | None]] = []
        if producer:
            sent.append((producer.submit_rows(rows), rows))
            return _Lot(first, rows.payload_bytes, sent, rows, frame)
        for topic, part in rows.by_topic():
            if not self._producers.has_room():
                # The next one may take the place of one that is in use.
                self._pending.append(_Lot(first, 0, sent, None, frame))
                self.settle()
                sent = []
            sent.append((self._producers.of(topic).submit_rows(part), part))
        return _Lot(first, rows.payload_bytes, sent, rows, frame)

    def _send_numbered(self, lot: Any, first: int) -> None:
        """Sends rows with numbers, and waits for them: rows behind one that was not sent must not be stored,
        as their numbers would hide it from the next attempt. Within a lot the producer sees to that."""
        frame = self._frame(lot)
        rows = self._encoded(frame, first)
        one = self._config.placeholder()
        for topic, part in [(one, rows)] if self._has_one_producer else rows.by_topic():
            before = self._total.rows
            waiter = self._producers.of(topic).submit_rows(part)
            self._pending.append(_Lot(first, part.payload_bytes, [(waiter, part)], None, frame))
            self.settle()
            if topic not in self._checked and self._total.rows > before:
                self._check_deduplication(topic)
        if not self._has_one_producer:
            # Those that have no topic, or could not be encoded.
            self._pending.append(_Lot(first, 0, [], rows, frame))
            self.settle()

    def _frame(self, lot: Any) -> Any:
        """The rows as a record batch or table."""
        config = self._config
        if not isinstance(lot, list):
            return lot
        chunk = cast("list[Any]", lot)
        if config.key is not None:
            for row in chunk:
                key = row[config.key]
                # Arrow would make a text of its own of others. Bytes are looked at by the engine.
                if not isinstance(key, bytes | bytearray):
                    _key(key)
        return to_batch(chunk, config.columns() if config.encoding == "raw" else None, self._row_schema)

    def _encoded(self, lot: Any, first: int) -> FrameRows:
        config = self._config
        roles = config.roles()
        roles["first_row"] = first
        roles["id"] = self._ids
        roles["sequence"] = self._sequence
        if config.protocol != "pulsar":
            return _frames.outgoing(lot, roles, config.encoding)
        if config.encoding == "avro":
            return _native.encode_pulsar_frame(lot, roles, schema="avro")
        return _native.encode_pulsar_frame(lot, roles, schema="producer", encoding=config.encoding)

    def _settle_one(self) -> None:
        """Waits for the oldest lot in flight."""
        config, total = self._config, self._total
        lot = self._pending.popleft()
        for waiter, _ in lot.parts:
            started = time.monotonic()
            try:
                total.add(waiter.wait(config.ack_timeout))
            except Timeout as error:
                if time.monotonic() - started < config.ack_timeout:
                    # The producer's own.
                    raise
                raise Timeout(
                    f"the broker did not acknowledge a lot of rows within {config.ack_timeout:g} s"
                ) from error
        total.bytes += lot.bytes
        for number, why, size in lot.bad():
            total.bytes -= size
            total.bad(number, why)
            if config.on_bad_row == "dead_letter":
                self._send_dead(lot.rows.slice(number - lot.first, 1), number, why)

    def _send_dead(self, row: Any, number: int, why: str) -> None:
        """Sends a row that could not be sent to the topic for such rows."""
        config = self._config
        properties = {"penstock-error": why, "penstock-row": str(number)}
        if config.topic:
            properties["penstock-topic"] = config.topic
        if self._ids:
            properties[self._ids[0]] = f"{self._ids[1]}/{number}"
        if config.protocol == "tubemq":
            # Its attributes have no escapes.
            properties = {name: re.sub("[,=]", " ", text) for name, text in properties.items()}
        for payload in _payloads_of(row, config):
            try:
                self._producers.dead().send(payload, properties=properties)
                return
            except MessageTooLarge:
                continue

    def _stored_before(self) -> int:
        """Number of rows that the broker has of an attempt before. With several topics, or several partitions
        of one, it is not one number, and the broker drops the rows itself; bad rows among them are wanted
        again."""
        if self._sequence is None or not self._has_one_producer or self._config.on_bad_row != "fail":
            return 0
        last = self._producers.last_sequence_id(self._config.placeholder())
        return max(last - self._sequence + 1, 0)

    def _check_deduplication(self, topic: str) -> None:
        """
        Raises:
            Unsupported: the broker does not drop messages of the topic that are sent again.
        """
        if not self._producers.drops_repetitions(topic):
            raise Unsupported(
                f"the broker does not drop messages of {topic!r} that are sent again: enable "
                "deduplication for the topic, its namespace or the broker (brokerDeduplicationEnabled), "
                'or use delivery="at-least-once"',
                topic=topic,
            )
        self._checked.add(topic)


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


def _payload_and_key_only(config: SinkConfig, chunk: list[Any]) -> bool:
    """Whether rows can be sent as they are, without pyarrow."""
    others = [getattr(config, role) for role in ROLES if role not in ("value", "key")]
    if config.encoding != "raw" or config.delivery != "at-least-once" or config.on_bad_row != "fail":
        return False
    if config.row_topic or config.id_property or any(others):
        return False
    key = config.key
    if config.protocol == "pulsar" and key and any(isinstance(row[key], bytes | bytearray) for row in chunk):
        # Keys of bytes have a mark.
        return False
    return all(row[config.value] is not None for row in chunk)


def _payloads_of(row: Any, config: SinkConfig) -> Iterator[bytes]:
    """What to send of a bad row: its payload, or all of it as JSON, or an empty object."""
    # What is wrong with a row may be a text that is not UTF-8, or a date that Python does not have.
    with contextlib.suppress(ValueError, TypeError, ArithmeticError):
        if config.encoding == "raw" and (value := row.column(config.value).cast("binary")[0].as_py()):
            yield value
    with contextlib.suppress(ValueError, TypeError, ArithmeticError):
        yield json.dumps(row.to_pylist()[0], default=str).encode()
    yield b"{}"


class _Total:
    rows = 0
    bytes = 0
    bad_rows = 0
    first: MessageId | Position | None = None
    last: MessageId | Position | None = None

    def __init__(self) -> None:
        self._shown: list[str] = []

    def add(self, answers: Any) -> None:
        """Counts rows that are acknowledged."""
        if len(answers):
            self.rows += len(answers)
            # MQTT answers with reason codes, which are numbers, and a message that was dropped has no id.
            if not isinstance(answers[0], int) and getattr(answers[-1], "ledger", 0) >= 0:
                if self.first is None and getattr(answers[0], "ledger", 0) >= 0:
                    self.first = answers[0]
                self.last = answers[-1]

    def bad(self, number: int, why: str) -> None:
        """Counts a row that was left out."""
        self.bad_rows += 1
        if len(self._shown) < BAD_ROWS_LOGGED:
            self._shown.append(f"row {number}: {why}")

    def tell_bad(self, partition: int) -> None:
        """Logs the rows that were left out."""
        if self.bad_rows:
            shown = "; ".join(self._shown)
            log.warning("Spark partition %d: %d rows were left out: %s", partition, self.bad_rows, shown)


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
        write = self._write(config)
        if self.query and self.batch:
            write = f"{write}/{self.batch}"
        return config.id_property, f"{write}/{self.partition}"

    def producer_name(self, config: SinkConfig) -> str | None:
        """Name of the task's producers, if they have one: the same for each attempt, and for each batch of a
        stream."""
        name = config.producer.get("name")
        if config.delivery == "idempotent":
            return f"{name or 'penstock'}-{self._write(config)}-{self.partition}"
        return f"{name}-{self.partition}" if name else None

    def sequence(self, config: SinkConfig) -> int | None:
        """Sequence id of the first row, if the broker is to drop rows that are sent again."""
        if config.delivery != "idempotent":
            return None
        return int(self.batch) * ROWS_PER_TASK if self.query and self.batch else 0

    def _write(self, config: SinkConfig) -> str:
        """Name of the write: the query's in a stream."""
        if self.query and self.batch:
            return config.write_id or self.query
        # One writer may be used for several frames, which differ in their stages.
        return config.write_id or f"{config.run_id}-{self.stage}"


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
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidArgument(f"a key of bytes is not UTF-8: {bytes(value[:40])!r}") from None
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
    ordering_key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    deliver_at: str | None = None,
    message_type: str | None = None,
    id_property: str | None = None,
    write_id: str | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    delivery: str = "at-least-once",
    stable_order: bool = False,
    on_bad_row: str = "fail",
    dead_letter_topic: str | None = None,
    schema: StructType | None = None,
    **options: Any,
) -> PartitionWriter:
    """A function for ``df.foreachPartition(partition_writer(...))`` that sends plain Rows, 2,000 in each call
    to the engine, and returns when all of them are acknowledged. :func:`penstock.spark.write` is several
    times faster, because it makes no Rows.

    Args:
        url, topic, topic_column, key, ordering_key, value, encoding: as for :func:`penstock.spark.write`.
        properties, event_time, deliver_at, message_type, id_property, write_id, ack_timeout: as there.
        on_bad_row, dead_letter_topic, options: as there.
        delivery: as there. The plan of the rows is not known here, so that ``"idempotent"`` needs
            ``stable_order=True``.
        stable_order: states that a task that is repeated gets the same rows in the same order.
        schema: ``df.schema``. Rows do not carry it. Without it a ``TIMESTAMP_NTZ`` is read as a moment in the
            workers' time zone, and maps are encoded as objects without their nulls.

    Raises:
        InvalidArgument: an unknown option or column, a bad value, or a secret as plain text; raised on the
            driver.
    """
    config = sink_config(
        url,
        topic,
        options,
        topic_column=topic_column,
        key=key,
        ordering_key=ordering_key,
        value=value,
        encoding=encoding,
        properties=properties,
        event_time=event_time,
        deliver_at=deliver_at,
        message_type=message_type,
        id_property=id_property,
        write_id=write_id,
        ack_timeout=ack_timeout,
        delivery=delivery,
        stable_order=stable_order,
        on_bad_row=on_bad_row,
        dead_letter_topic=dead_letter_topic,
    )
    check_order_is_stated(config)
    if schema is not None:
        check_rows(schema, "schema")
        config = fitted(config, schema, "schema")
    return PartitionWriter(config, row_schema=schema)
