"""The part of a write that runs in a task: passing the rows of one Spark partition to the engine."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import collections
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from forebay._core import dataframes, native
from forebay.errors import Error, InvalidArgument, MessageTooLarge, Unsupported

from . import _batches, _errors, _letters, _lots, _pool
from ._config import WriteConfig, check_write_is_named
from ._report import PartitionReport, Total
from ._rows import numbered_batch
from ._shipping import Shipped
from ._task import ROWS_PER_TASK, Task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from forebay._engine import FrameRows, Waiter

LOTS_IN_FLIGHT = 8
BYTES_IN_FLIGHT = 32 << 20
"""Lots without all receipts, and bytes of their payloads, from which on the next one waits."""


class PartitionWriter(Shipped):
    """Writes the rows of one partition. Made by :func:`partition_writer`; picklable.

    It is called with an iterator of ``Row``, of ``pyarrow.RecordBatch``, or of Arrow IPC messages as bytes
    (which need the serialised ``arrow_schema``), and returns a list with one :class:`PartitionReport` when
    the broker has acknowledged every row.
    """

    def __init__(
        self,
        config: WriteConfig,
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
        total = Total()
        iterator = iter(rows)
        first = next(iterator, None)
        if first is not None:
            try:
                # Not earlier: an empty partition opens no connection.
                name = task.producer_name(self.config)
                with _pool.producers(self.config, name, is_again=task.attempt > 0) as producers:
                    writing = _Writing(self.config, self.row_schema, task, producers, total)
                    for lot in _lots.of(first, iterator, self.arrow_schema):
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
        config: WriteConfig,
        row_schema: StructType | None,
        task: Task,
        producers: _pool.Producers,
        total: Total,
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
            if _lots.payload_and_key_only(config, chunk):
                payloads = [_lots.payload(row[config.value]) for row in chunk]
                keys = None if config.key is None else [_lots.key(row[config.key]) for row in chunk]
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
                    _lots.key(key)
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
