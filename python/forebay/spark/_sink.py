"""The part of a write that runs in a task: passing the rows of one Spark partition to the engine."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import collections
import datetime
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from forebay._core import dataframes, native
from forebay._core.dataframes import ACK_TIMEOUT
from forebay.errors import Error, InvalidArgument, MessageTooLarge, Unsupported

from . import _batches, _errors, _letters, _pool
from ._columns import check_rows, fitted
from ._config import (
    ROLES,
    SinkConfig,
    check_order_is_stated,
    check_tasks_are_given,
    check_write_is_named,
    sink_config,
)
from ._report import PartitionReport
from ._rows import numbered_batch
from ._shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from forebay._core.types import Duration
    from forebay._engine import FrameRows, Waiter
    from forebay.pulsar import MessageId
    from forebay.tubemq import Position

MESSAGES_PER_LOT = 40
BYTES_PER_LOT = 16 << 20
"""Arrow messages of the JVM, and bytes of them, that are passed to the engine in one call."""
BYTES_TO_GATHER = 1 << 20
"""Bytes of a record batch from which on it is not copied to be put together with others."""
ROWS_PER_CALL = 2000
"""Plain Rows passed to the engine in one call."""
LOTS_IN_FLIGHT = 8
BYTES_IN_FLIGHT = 32 << 20
"""Lots without all receipts, and bytes of their payloads, from which on the next one waits."""
ROWS_PER_TASK = 1 << 32
"""Rows of a task that have numbers for deduplication; the batch of the stream is above them."""
BAD_ROWS_LOGGED = 10
"""Bad rows of a task that are logged one by one."""

log = logging.getLogger("forebay.spark")


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
        of_data_source: bool = False,
    ) -> None:
        self.config = config
        self.arrow_schema = arrow_schema
        self.row_schema = row_schema
        self.of_query = of_query
        """Whether it is the sink of a streaming query, which has one."""
        self.of_data_source = of_data_source
        """Whether nothing on the driver has seen if it is used in ``foreachBatch``."""

    def __call__(self, rows: Iterable[Any]) -> list[PartitionReport]:
        task = Task.current(self.config)
        if not self.of_query:
            # A function of foreachBatch may set a job group of its own, the same one in each run.
            task = replace(task, run=None)
        if task.query and not self.of_query:
            check_write_is_named(self.config)
        if self.of_data_source and task.batch is None:
            _batches.check_is_given(self.config)
        if self.config.tasks is not None and task.partition >= self.config.tasks:
            raise _errors.other_number_of_tasks(self.config.tasks, f"at least {task.partition + 1}")
        started = time.monotonic()
        total = _Total()
        iterator = iter(rows)
        first = next(iterator, None)
        if first is not None:
            try:
                # Not earlier: an empty partition opens no connection.
                name = task.producer_name(self.config)
                with _pool.producers(self.config, name, is_again=task.attempt > 0) as producers:
                    writing = _Writing(self.config, self.row_schema, task, producers, total)
                    for lot in self._lots(itertools.chain([first], iterator), first):
                        writing.add(lot)
                    writing.settle()
            except Error as error:
                raise _errors.in_task(error, task.partition, task.attempt, total.rows) from error
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
                repeated_rows=total.repeated_rows,
            )
        ]

    def _lots(self, rows: Iterator[Any], first: Any) -> Iterator[Any]:
        """The rows as record batches or lists of Rows."""
        if isinstance(first, bytes | bytearray | memoryview):
            if self.arrow_schema is None:
                raise InvalidArgument("Arrow IPC messages need arrow_schema, their serialised schema")
            yield from _larger(rows, self.arrow_schema)
        elif hasattr(first, "__arrow_c_array__"):
            yield from _gathered(rows)
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
        producers: _pool.Producers,
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
        self._checked: set[str] = set()
        """Topics of which the broker is known to drop rows that are sent again."""

    def add(self, lot: Any) -> None:
        """Sends rows, and waits until little enough is in flight."""
        first = self._number
        self._number += len(lot)
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
        frame = self._frame(lot, first)
        rows = self._encoded(frame, first)
        sent: list[tuple[Waiter[Any], FrameRows | None]] = []
        if producer:
            sent.append((producer.submit_rows(rows), rows))
            return _Lot(first, rows.payload_bytes, sent, rows, frame)
        for topic, part in rows.by_topic():
            if not self._producers.has_room(topic):
                # The next one may take the place of one that is in use.
                self._pending.append(_Lot(first, 0, sent, None, frame))
                self.settle()
                sent = []
            sent.append((self._producers.of(topic).submit_rows(part), part))
        return _Lot(first, rows.payload_bytes, sent, rows, frame)

    def _send_numbered(self, lot: Any, first: int) -> None:
        """Sends rows with numbers, and waits for them: rows behind one that was not sent must not be stored,
        as their numbers would hide it from the next attempt. Within a lot the producer sees to that."""
        frame = self._frame(lot, first)
        rows = self._encoded(frame, first)
        one = self._config.placeholder()
        for topic, part in [(one, rows)] if self._has_one_producer else rows.by_topic():
            # Where it is not known whether the broker drops repetitions, a row finds out.
            for some in [part] if self._is_checked(topic) else part.split_first():
                before = self._total.rows
                waiter = self._producers.of(topic).submit_rows(some)
                self._pending.append(_Lot(first, some.payload_bytes, [(waiter, some)], None, frame))
                self.settle()
                if topic not in self._checked and self._total.rows > before:
                    self._check_deduplication(topic)
        # Those that have no topic, or could not be encoded.
        self._pending.append(_Lot(first, 0, [], rows, frame))
        self.settle()

    def _is_checked(self, topic: str) -> bool:
        """Whether the broker is known to drop rows of the topic that are sent again, which it does if it
        knows numbers of an attempt before."""
        if topic not in self._checked and self._producers.of(topic).last_sequence_id >= 0:
            self._checked.add(topic)
        return topic in self._checked

    def _frame(self, lot: Any, first: int) -> Any:
        """The rows as a record batch or table. ``first`` is the number of the first one."""
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
        columns = config.columns() if config.encoding == "raw" else None
        return numbered_batch(chunk, columns, self._row_schema, first)

    def _encoded(self, lot: Any, first: int) -> FrameRows:
        config = self._config
        roles = config.roles()
        roles["first_row"] = first
        roles["id"] = self._ids
        roles["sequence"] = self._sequence
        if config.protocol != "pulsar":
            return dataframes.outgoing(lot, roles, config.encoding)
        if config.encoding == "avro":
            return native.encode_pulsar_frame(lot, roles, schema="avro")
        return native.encode_pulsar_frame(lot, roles, schema="producer", encoding=config.encoding)

    def _settle_one(self) -> None:
        """Waits for the oldest lot in flight."""
        config, total = self._config, self._total
        lot = self._pending.popleft()
        for waiter, _ in lot.parts:
            answers = dataframes.answers(waiter, config.ack_timeout, "a lot of rows")
            total.add(answers, counts_repeated=self._sequence is not None)
        total.bytes += lot.bytes
        for number, why, size in lot.bad():
            total.bytes -= size
            total.bad(number, why)
            if config.on_bad_row == "dead_letter":
                self._send_dead(lot.rows.slice(number - lot.first, 1), number, why)

    def _send_dead(self, row: Any, number: int, why: str) -> None:
        """Sends a row that could not be sent to the topic for such rows."""
        config = self._config
        properties = {"forebay-error": why, "forebay-row": str(number)}
        if topic := _letters.topic_of(row, config):
            properties["forebay-topic"] = topic
        if self._ids:
            properties[self._ids[0]] = f"{self._ids[1]}/{number}"
        too_large = None
        for payload in _letters.payloads_of(row, config):
            try:
                rows = _letters.encoded(payload, properties, config.protocol)
                dataframes.answers(
                    self._producers.dead().submit_rows(rows),
                    config.ack_timeout,
                    f"row {number}, a dead letter,",
                )
                return
            except MessageTooLarge as error:
                too_large = error
        if too_large is not None:
            raise too_large

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

    while chunk := _chunk(messages, len):
        table = pa.ipc.open_stream(pa.py_buffer(b"".join([schema, *chunk]))).read_all()
        yield table.combine_chunks()


def _gathered(found: Iterator[Any]) -> Iterator[Any]:
    """Short record batches as large tables, for the same reason, and others as they are."""
    import pyarrow as pa

    for first in found:
        if first.num_rows >= ROWS_PER_CALL or first.nbytes >= BYTES_TO_GATHER:
            yield first
            continue
        chunk = _chunk(itertools.chain([first], found), lambda batch: batch.nbytes)
        yield pa.Table.from_batches(chunk).combine_chunks() if len(chunk) > 1 else first


def _chunk(messages: Iterator[Any], size_of: Callable[[Any], int]) -> list[Any]:
    chunk: list[Any] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += size_of(message)
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


class _Total:
    rows = 0
    bytes = 0
    bad_rows = 0
    repeated_rows = 0
    first: MessageId | Position | None = None
    last: MessageId | Position | None = None

    def __init__(self) -> None:
        self._shown: list[str] = []

    def add(self, answers: Any, *, counts_repeated: bool) -> None:
        """Counts rows that are acknowledged.

        Args:
            answers: of the broker, for each row.
            counts_repeated: whether a message without an id is one that the broker had already.
        """
        self.rows += len(answers)
        # MQTT answers with reason codes, which are numbers.
        if not len(answers) or isinstance(answers[0], int):
            return
        if counts_repeated or not (_has_id(answers[0]) and _has_id(answers[-1])):
            with_ids = [answer for answer in answers if _has_id(answer)]
            if counts_repeated:
                self.repeated_rows += len(answers) - len(with_ids)
            answers = with_ids
        if answers:
            self.first = answers[0] if self.first is None else self.first
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


def _has_id(answer: Any) -> bool:
    """Whether a message was stored now. The broker has dropped the others."""
    return getattr(answer, "ledger", 0) >= 0


@dataclass(frozen=True)
class Task:
    """The Spark task that runs this code."""

    partition: int
    attempt: int
    stage: int
    query: str | None
    """Id of the streaming query. It and ``batch`` stay the same when a batch is replayed."""
    batch: int | None
    run: str | None = None
    """Id of the query since its last start."""

    @classmethod
    def current(cls, config: SinkConfig) -> Task:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls(0, 0, 0, None, config.batch_id)
        names = (_batches.QUERY, _batches.BATCH, _batches.RUN)
        query, batch, run = (context.getLocalProperty(name) for name in names)
        if query is None or batch is None:
            query, batch = None, config.batch_id
        elif config.batch_id is not None:
            batch = config.batch_id
        number = None if batch is None else int(batch)
        return cls(context.partitionId(), context.attemptNumber(), context.stageId(), query, number, run)

    def ids(self, config: SinkConfig) -> tuple[str, str] | None:
        """Name of the property with ids, and the beginning of the ids. The attempt is not part of them,
        because it repeats the same rows."""
        if config.id_property is None:
            return None
        write, part = self._identity(config)
        if self.batch is not None:
            write = f"{write}/{self.batch}"
        return config.id_property, f"{write}/{part}"

    def producer_name(self, config: SinkConfig) -> str | None:
        """Name of the task's producers, if they have one: the same for each attempt, and for each batch of a
        stream that has as many tasks."""
        name = config.producer.get("name")
        if config.delivery == "idempotent":
            write, part = self._identity(config)
            return f"{name or 'forebay'}-{write}-{part}"
        return f"{name}-{self.partition}" if name else None

    def sequence(self, config: SinkConfig) -> int | None:
        """Sequence id of the first row, if the broker is to drop rows that are sent again."""
        if config.delivery != "idempotent":
            return None
        return (self.batch or 0) * ROWS_PER_TASK

    def _identity(self, config: SinkConfig) -> tuple[str, str]:
        """Names of the write and of its part that this task has. With its batch and its number, they tell a
        row from all others, also when another job repeats the write.

        Row 5 of task 1 of 4 is not row 5 of task 1 of 2. So a name that outlives the job contains the number
        of tasks. If the number is unknown, the name does not outlive the run of the query.
        """
        lasting = config.write_id or self.query
        if lasting is None:
            # One writer may be used for several frames, which differ in their stages.
            return f"{config.run_id}-{self.stage}", str(self.partition)
        if config.tasks is None:
            return f"{lasting}-{self.run or config.run_id}", str(self.partition)
        return lasting, f"{self.partition}-of-{config.tasks}"


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
    raise _errors.no_key(f"a key is of type {type(value).__name__}")


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
        qos_column=qos_column,
        retain_column=retain_column,
        id_property=id_property,
        write_id=write_id,
        batch_id=batch_id,
        tasks=tasks,
        ack_timeout=ack_timeout,
        delivery=delivery,
        stable_order=stable_order,
        on_bad_row=on_bad_row,
        dead_letter_topic=dead_letter_topic,
    )
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
