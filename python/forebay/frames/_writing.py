"""From tables and streams of batches to topics."""
# The optional libraries are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import collections
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._core import dataframes, protocols
from forebay._core.dataframes import ACK_TIMEOUT
from forebay._core.unsupported import refuse
from forebay.errors import Error, InvalidArgument, Timeout, Unsupported
from forebay.progress import Progress

from ._opening import connected, library, seconds
from ._reading import Scan

if TYPE_CHECKING:
    import pyarrow as pa

    from forebay._core.types import Duration
    from forebay._engine import FrameRoles, Waiter
    from forebay.pulsar import MessageId
    from forebay.pulsar._option_forms import FrameSchema
    from forebay.tubemq import Position

ROWS = 10_000
"""Most rows of a lot, which is encoded and sent at once."""
BYTES = 16 << 20
"""Most bytes of a lot that has more than a few rows."""
FEW = 16
"""Rows of a lot that is not divided further."""
IN_FLIGHT = 2
"""Lots that wait for the broker while the next one is encoded."""
_ARGUMENTS = (
    "value",
    "encoding",
    "key",
    "ordering_key",
    "properties",
    "event_time",
    "deliver_at",
    "message_type",
    "schema",
    "topic_column",
    "ack_timeout",
    "progress",
)


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of :func:`write`. The broker has acknowledged every row."""

    rows: int
    """Messages acknowledged by the broker; with MQTT's QoS 0, messages written to the socket."""
    bytes: int
    """Bytes of the payloads, before compression."""
    seconds: float
    """Wall time, including connecting and closing."""
    first: MessageId | Position | None
    """Id of the first message, or its position with TubeMQ; ``None`` if there were no rows, and with MQTT."""
    last: MessageId | Position | None
    """Id or position of the last message."""


def write(
    frame: Any,
    url: str | None,
    topic: str | None = None,
    *,
    value: str | None = None,
    encoding: str | None = None,
    key: str | None = None,
    ordering_key: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    deliver_at: str | None = None,
    message_type: str | None = None,
    schema: FrameSchema | None = "producer",
    topic_column: str | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    progress: bool = False,
    **options: Any,
) -> WriteReport:
    """Sends each row of a DataFrame as a message, and returns when the broker has acknowledged all of them.

    Rows are sent in lots of up to 10,000 or 16 MiB, in their order. A stream that is larger than memory is
    taken batch by batch: in memory are three lots, two that are sent and one that is encoded, and the batch
    that it comes from. A lot is checked before its first row is sent; the lots before it have been sent by
    then. After ``Timeout`` and Ctrl-C the connection is given up at once, and rows without an answer may
    arrive or not.

    Args:
        frame: anything with the Arrow PyCapsule interface: a table of pyarrow, polars, pandas 2.2+ or duckdb,
            a ``pyarrow.RecordBatchReader``, or a :class:`Scan`.
        url: URL of the broker, as for :func:`forebay.connect`, of any protocol. ``embedded:`` as for
            :func:`read`.
        topic: the topic, or a template that contains columns: ``"shop/{till}/sales"``; literal braces are
            doubled.
        value: column of the payloads, binary or text.
        encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row as an object of all columns.
            Default: ``"raw"`` if ``value`` is given.
        key: column of the keys. Not for MQTT.
        properties: column of maps, text to text.
        event_time: column of timestamps, or of milliseconds since 1970. Not for MQTT.
        ordering_key, deliver_at: Pulsar only: as for :meth:`forebay.pulsar.PulsarProducer.send_frame`.
        message_type: TubeMQ only: column of the types, by which brokers filter.
        schema: Pulsar only: how rows are encoded, as for
            :meth:`forebay.pulsar.PulsarProducer.send_frame`.
        topic_column: column with the topic of each row, in place of ``topic``.
        ack_timeout: longest time in seconds that the broker may take to acknowledge a lot.
        progress: shows a bar on a terminal.
        options: options of the client and of the producer, such as ``compression="zstd"``,
            ``token="env:TOKEN"``, or ``qos=1`` with MQTT.

    Returns:
        What was sent.

    Raises:
        InvalidArgument: an unknown option or column, a type that does not fit, or no Arrow interface.
        InvalidTopic: a topic is not valid, which may be that of a row; the error names it.
        SchemaError: a row does not fit the schema.
        Unsupported: the protocol does not have something that an argument asks for.
        Timeout: the broker has not acknowledged a lot in time.
        ImportError: pyarrow is not installed.
        ConnectFailed, AuthenticationError, TopicNotFound ...: as :func:`forebay.connect` and ``producer``.
    """
    started = time.monotonic()
    frame = dataframes.readable(frame)
    library("pyarrow", "frames")
    dataframes.check_encoding(value, encoding)
    base, _ = protocols.split_url(url)
    protocol = protocols.of(base).key
    scopes = (f"{protocol}.client", f"{protocol}.producer")
    clients, producers = protocols.by_table(options, scopes, "forebay.frames", _ARGUMENTS)
    constant, row_topic = dataframes.topic_of_rows(topic, topic_column)
    roles: FrameRoles = {
        "value": value,
        "key": key,
        "ordering_key": ordering_key,
        "properties": properties,
        "event_time": event_time,
        "deliver_at": deliver_at,
        "message_type": message_type,
    }
    refuse(protocol, roles)
    if schema != "producer":
        refuse(protocol, {"schema": schema})
    if protocol != "mqtt" and row_topic is not None:
        raise Unsupported(
            f"{protocols.PROTOCOLS[protocol].title} has a producer for each topic, and a frame is sent by "
            "one: write the rows of each topic by themselves, or use forebay.spark.write"
        )
    roles["topic"] = row_topic
    given: dict[str, Any] = {"encoding": encoding} | ({"schema": schema} if protocol == "pulsar" else {})
    reader = _reader(frame)
    named = [str(column) for column in roles.values() if column and column != row_topic]
    _check_columns(reader.schema.names, [*named, *dataframes.topic_columns(row_topic)])
    sending = _Sending(roles, given, seconds("ack_timeout", ack_timeout))
    what = topic or topic_column or ""
    with (
        connected(url, clients) as client,
        client.producer(dataframes.placeholder(constant, row_topic), **producers) as producer,
        Progress(what, getattr(frame, "num_rows", None), quiet=not progress) as bar,
    ):
        try:
            for lot in _lots(reader):
                bar.advance(sending.send(producer, lot))
            bar.advance(sending.settle(0))
        except BaseException as error:
            if isinstance(error, Error):
                error.add_note(f"{sending.rows} rows have been acknowledged, and others may have been sent")
            if isinstance(error, Timeout) or not isinstance(error, Exception):
                # The end of the blocks would wait for the broker, which may be gone.
                client.abandon()
            raise
    return WriteReport(sending.rows, sending.bytes, time.monotonic() - started, sending.first, sending.last)


def _lots(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The rows in lots: small batches together, large ones in slices. No row is copied."""
    pyarrow = library("pyarrow", "frames")
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        # Views and dictionaries do not become smaller in slices, so the average row of the batch
        # counts.
        each = max(batch.nbytes // max(batch.num_rows, 1), 1)
        step = max(min(BYTES // each, ROWS), FEW)
        for at in range(0, batch.num_rows, step):
            piece = batch.slice(at, step)
            count = piece.num_rows
            if gathered and (rows + count > ROWS or size + count * each > BYTES):
                yield pyarrow.Table.from_batches(gathered, reader.schema)
                gathered, rows, size = [], 0, 0
            gathered.append(piece)
            rows, size = rows + count, size + count * each
    if gathered:
        yield pyarrow.Table.from_batches(gathered, reader.schema)


def _check_columns(known: list[str], wanted: list[str | None]) -> None:
    """Checks that there are columns, also in a frame without rows.

    Raises:
        InvalidArgument: there is not.
    """
    for name in wanted:
        if name is not None and name not in known:
            raise InvalidArgument(f"the table has no column {name!r}; it has {', '.join(known)}")


def _reader(frame: Any) -> pa.RecordBatchReader:
    """The batches of a frame. The C interface has no types of errors, so it is for what has nothing else."""
    pyarrow = library("pyarrow", "frames")
    if isinstance(frame, pyarrow.RecordBatchReader):
        return frame
    if isinstance(frame, Scan):
        return frame.to_reader()
    if hasattr(frame, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(frame)
    batch = pyarrow.record_batch(frame)
    return pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])


class _Sending:
    """Counts of a write, and the lots that wait for the broker."""

    def __init__(self, roles: FrameRoles, given: dict[str, Any], ack_timeout: float) -> None:
        self._roles = roles
        self._given = given
        self._ack_timeout = ack_timeout
        self._pending: collections.deque[Waiter[Any]] = collections.deque()
        self._encoded = 0
        self.rows = 0
        self.bytes = 0
        self.first: Any = None
        self.last: Any = None

    def send(self, producer: Any, lot: pa.Table) -> int:
        """Encodes a lot, and submits it; returns the number of rows that were acknowledged meanwhile."""
        try:
            rows = producer._encode_frame(lot, {**self._roles, "first_row": self._encoded}, **self._given)
        except Error as error:
            if self._encoded:
                error.add_note(f"this is about the {lot.num_rows} rows from row {self._encoded} on")
            raise
        self._encoded += lot.num_rows
        self.bytes += rows.payload_bytes
        count = self.settle(IN_FLIGHT - 1)
        self._pending.append(producer.submit_rows(rows))
        return count

    def settle(self, left: int) -> int:
        """Waits until at most ``left`` lots are in flight; returns the number of rows that were
        acknowledged."""
        before = self.rows
        while len(self._pending) > left:
            self._settle_one(self._pending.popleft())
        return self.rows - before

    def _settle_one(self, pending: Waiter[Any]) -> None:
        answers = dataframes.answers(pending, self._ack_timeout, "a lot of rows")
        self.rows += len(answers)
        # MQTT answers with reason codes, which are numbers.
        if not isinstance(answers[0], int):
            self.first = self.first or answers[0]
            self.last = answers[-1]
