"""The streaming source for MQTT: ``spark.readStream.format("forebay").option("url", "mqtt://...")``.

MQTT has no positions to read from again, so this source makes them. One MQTT session on the driver receives
the messages, writes them to a log (:mod:`forebay.spark._sources.wal`) and acknowledges each only when it is
on disk there. Spark's offsets are rows of the log, and its tasks read the log. With QoS 1 and 2, every
message that the broker keeps for the session is therefore in some batch, at least once, across restarts of
the query and the broker; a batch that Spark repeats has the same rows. Rows that Spark has committed are
deleted. With ``inline`` the rows travel with the tasks, and only the driver reads the log.

The broker must keep the session while the query is down: ``client_id`` names it, and it never starts clean.
Messages that the broker drops in the meantime (QoS 0, a full queue, an expired session) are lost.
"""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import InputPartition

from forebay._core import parse, protocols
from forebay._core.options import Option
from forebay.errors import InvalidArgument, IoError, Unsupported
from forebay.spark._arrow import arrow_schema
from forebay.spark._shipping import inherited_for, travelling
from forebay.spark._spark_options import spelled, spellings

from .stream import StreamReader
from .wal import Log, Slice, spread

if TYPE_CHECKING:
    from forebay.mqtt import MqttMessage
    from forebay.mqtt.blocking import MqttConsumer

log = logging.getLogger("forebay.spark")

ROWS_PER_SEGMENT = 10_000
ROWS_PER_TASK = 10_000
"""Fewest rows for which another task pays off."""
GATHER = 0.1
"""Seconds for which messages are gathered into a segment."""
FEW = 10
"""Messages. With as many unacknowledged, a pause ends the segment: the broker may be waiting for us."""
PAUSE = 0.005
"""Seconds without a message that are such a pause."""
MUCH = 64 << 10
"""Bytes of a segment from which on the broker is not quiet, however few its messages are."""
QUIET = 1.0
"""Seconds with fewer than ``FEW`` messages in a segment, after which the broker has nothing more in store."""

OPTIONS: dict[str, Option] = {
    "wal": Option(str, None, "Folder of the log; executors must be able to read it, unless `inline` is set."),
    "inline": Option(
        parse.size,
        None,
        "Sends the rows of a micro-batch with its tasks, so that only the driver needs the folder `wal`. A"
        " micro-batch then has about so many bytes at most; 64 MiB is the most that can be set.",
    ),
    "wal_limit": Option(parse.size, 1 << 30, "Size of the log above which messages are left on the broker."),
    "max_rows_per_trigger": Option(parse.whole(1), None, "Largest number of rows in a micro-batch."),
    "max_partitions": Option(parse.whole(1, 10_000), 8, "Largest number of tasks in a micro-batch."),
    "available_now_timeout": Option(
        parse.duration,
        60.0,
        "Longest time for which availableNow collects messages of a topic that is never quiet.",
    ),
    "subscription": Option(str, None, "Group of a shared subscription."),
}
_SPELLINGS = {
    **spellings(("topic", *OPTIONS)),
    # As those of Kafka's source.
    "subscribe": "topic",
    "maxoffsetspertrigger": "max_rows_per_trigger",
}
RECEIVE_MAXIMUM = 1000
"""Default of ``receive_maximum``: what is in flight when the query ends is delivered again. Brokers exceed it
behind a burst; from 32,768 unacknowledged messages on the client does not read the socket."""
MOST_INLINE = 64 << 20
"""Highest value of ``inline``: one task may have all of it, and Spark refuses tasks of 128 MiB."""
RECEIVE_BUFFER = 256 << 10
"""Default of ``receive_buffer``. A broker that exceeds the receive maximum sends as long as the client reads.
This bounds what is in flight with such a broker: messages of 20 bytes are 13,000 that wait, and a segment."""


@dataclass(frozen=True)
class SourceConfig:
    """Configuration of the source. Made by :func:`source_config`."""

    url: str
    topic: str
    wal: str
    inline: int | None
    wal_limit: int
    max_rows_per_trigger: int | None
    max_partitions: int
    available_now_timeout: float
    subscription: str | None
    client: dict[str, Any] = field(repr=False)
    consumer: dict[str, Any]


def source_config(options: dict[str, Any]) -> SourceConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Raises:
        InvalidArgument: an unknown or missing option, a bad value, or a secret as plain text.
        Unsupported: a URL of another protocol, or an option that contradicts how the source works.
    """
    options = spelled(options, _SPELLINGS)
    base, inherited = inherited_for(options.pop("url", None))
    if protocols.of(base).key != "mqtt":
        raise Unsupported("the streaming source is for MQTT URLs")
    topic = options.pop("topic", None)
    for name, value in {"topic": topic, "wal": options.get("wal")}.items():
        if not value:
            raise InvalidArgument(f'option "{name}" is missing')
    scopes = ("mqtt.client", "mqtt.consumer")
    own = {name: options.pop(name) for name in OPTIONS if name in options}
    known = ("url", "topic", *OPTIONS)
    client, consumer = protocols.by_table(options, scopes, "the Spark source", known)
    for name in ("clean_start", "outbox", "auto_ack"):
        if name in options:
            raise Unsupported(
                f"the Spark source does not support {name!r}: it keeps its session and acknowledges itself"
            )
    client = {**inherited["client"], **client}
    if not client.get("client_id"):
        raise InvalidArgument('option "client_id" is missing: it names the session that the broker keeps')
    values = {name: _own(name, own) for name in OPTIONS}
    if values["inline"] is not None and not 0 < values["inline"] <= MOST_INLINE:
        raise InvalidArgument(
            f"inline is {values['inline']} bytes: expected 1 to {MOST_INLINE}, since one task may have all "
            "of it, and Spark refuses tasks of 128 MiB"
        )
    defaults = {"receive_maximum": RECEIVE_MAXIMUM, "receive_buffer": RECEIVE_BUFFER}
    client = {**defaults, **travelling("mqtt.client", client), "clean_start": False}
    if client["receive_maximum"] > ROWS_PER_SEGMENT:
        raise InvalidArgument(
            f"receive_maximum is {client['receive_maximum']}, and the Spark source takes {ROWS_PER_SEGMENT} "
            "at most, the rows of a segment: what is in flight when the query ends is delivered again"
        )
    return SourceConfig(
        url=base,
        topic=topic,
        client=client,
        consumer=travelling("mqtt.consumer", {**inherited["consumer"], **consumer}),
        **values,
    )


def _own(name: str, given: dict[str, Any]) -> Any:
    option = OPTIONS[name]
    if name not in given:
        return option.default
    try:
        return option.parse(given[name])
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


@dataclass
class _Rows(InputPartition):
    """The rows of one task, which are in the log."""

    slices: list[Slice]


@dataclass
class _InlineRows(InputPartition):
    """The rows of one task themselves, as a stream of Arrow IPC."""

    stream: bytes


class MqttStreamReader(StreamReader):
    """The reader of a query. On the driver it lives as long as the query, and ingests from the first request
    for an offset on; on executors it only reads files."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._max_rows = config.max_rows_per_trigger
        self._ingest: _Ingest | None = None
        self._available: int | None = None
        self._start = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        wal = self._running().log
        return _offset(wal, wal.first)

    def latestOffset(self, *asked: Any) -> dict[str, Any]:  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spark 4.2 and later pass the start and the limit; before, only our own limit applies."""
        ingest = self._running()
        ingest.check()
        start, most = self._start, self._config.max_rows_per_trigger
        if asked:
            start = _row(ingest.log, asked[0])
            most = getattr(asked[1], "max_rows", None)
        end = ingest.log.end if self._available is None else self._available
        if start > ingest.log.end:
            # Raises. An offset before the start would look like new rows to Spark.
            ingest.log.slices(start, start + 1)
        if most is not None:
            end = min(end, start + most)
        if self._config.inline is not None:
            end = min(end, ingest.log.within(start, self._config.inline))
        return _offset(ingest.log, max(start, end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Begins nothing: a report must not fail a query."""
        return None if self._ingest is None else _offset(self._ingest.log, self._ingest.log.end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Waits until the broker has handed over what it kept; the rows up to then are available. A topic on
        which more is published all the time ends the wait, too: at once if it is slow, else after
        ``available_now_timeout``."""
        self._available = self._running().wait_until_quiet()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        wal = self._running().log
        first, last = _row(wal, start), _row(wal, end)
        self._start = last
        slices = wal.slices(first, last)
        groups = spread(slices, self._config.max_partitions, ROWS_PER_TASK)
        if self._config.inline is not None:
            return [_InlineRows(_stream(group)) for group in groups]
        return [_Rows(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, _InlineRows):
            import pyarrow as pa

            yield from pa.ipc.open_stream(partition.stream)
            return
        for piece in cast("_Rows", partition).slices:
            try:
                yield from piece.batches()
            except FileNotFoundError:
                text = (
                    'does not exist here: the folder of option "wal" must be shared by all machines, or the '
                    'rows must travel with the tasks, as with option("inline", "16MiB")'
                )
                raise IoError(f"{piece.path!r} {text}") from None

    def commit(self, end: dict[str, Any]) -> None:
        ingest = self._running()
        ingest.trim(_row(ingest.log, end))

    def stop(self) -> None:
        ingest, self._ingest = self._ingest, None
        if ingest:
            ingest.stop()

    def _running(self) -> _Ingest:
        if self._ingest is None:
            self._ingest = _Ingest(self._config)
        return self._ingest

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ingest": None}


def _stream(slices: Sequence[Slice]) -> bytes:
    """Rows of the log as a stream of Arrow IPC."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if pa.Codec.is_available("zstd") else None)
    with pa.ipc.new_stream(sink, arrow_schema(spark_schema()), options=options) as writer:
        for piece in slices:
            for batch in piece.batches():
                writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _offset(wal: Log, row: int) -> dict[str, Any]:
    return {"log": wal.identity, "row": row, "v": 1}


def _row(wal: Log, offset: dict[str, Any]) -> int:
    """The row of an offset.

    Raises:
        InvalidArgument: another version of this source made the offset, or another source.
        IoError: it is an offset of another log. Its row number would mean other messages here.
    """
    if offset.get("v") != 1 or "row" not in offset:
        raise InvalidArgument(
            f"the checkpoint was written by another version of this source, or by another source: {offset}"
        )
    # Offsets of earlier versions do not name their log.
    if offset.get("log", wal.identity) != wal.identity:
        raise IoError(
            f"the log in {wal.folder!r} is {wal.identity}, not the one that this checkpoint was made with, "
            f"which is {offset['log']}: restore that log, or begin with a new checkpoint"
        )
    return offset["row"]


class _Ingest:
    """The thread that moves messages from the broker to the log."""

    def __init__(self, config: SourceConfig) -> None:
        from forebay import blocking

        self._config = config
        self._window = int(config.client["receive_maximum"])
        self.log = Log(config.wal)
        self._changed = threading.Condition()
        self._stopping = False
        self._error: Exception | None = None
        self._silence = 0.0
        """Seconds for which the broker has sent no more than a trickle."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.log.close)
            self._client = stack.enter_context(blocking.connect(config.url, **config.client))
            self._consumer = self._client.consumer(config.topic, config.subscription, **config.consumer)
            stack.pop_all()
        self._thread = threading.Thread(target=self._run, name="forebay-ingest", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    def trim(self, row: int) -> None:
        self.log.trim(row)
        with self._changed:
            self._changed.notify_all()

    def wait_until_quiet(self) -> int:
        """Waits until the broker is quiet, the log is full or the time is up; returns the end of the log."""
        limit = self._config.available_now_timeout
        with self._changed:
            in_time = self._changed.wait_for(
                lambda: self._error or self._stopping or self._silence >= QUIET or not self._fits(), limit
            )
        self.check()
        if not in_time:
            log.warning(
                "%r was not quiet for %g s: availableNow ends with the %d messages collected until now; the "
                "broker keeps the rest for the next run",
                self._config.topic,
                limit,
                self.log.end - self.log.first,
            )
        return self.log.end

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        # The session stays: the broker delivers unacknowledged messages again to the next
        # connection.
        with contextlib.suppress(Exception):
            self._client.close()
        self.log.close()

    def _run(self) -> None:
        try:
            while self._has_room():
                started = time.monotonic()
                messages = self._gather()
                waited = time.monotonic() - started
                if messages:
                    self.log.append(_table(messages))
                    # Not before the messages are on disk.
                    self._consumer.ack_many([message for message in messages if message.qos])
                # A broker that has messages in store fills the window at once. Those that are
                # published now and then do not end the silence, or a live topic would never be
                # quiet.
                busy = len(messages) >= min(FEW, self._window) or sum(len(m.data) for m in messages) >= MUCH
                with self._changed:
                    self._silence = 0.0 if busy else self._silence + waited
                    self._changed.notify_all()
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Waits while the log is full; false when the thread must stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._fits())
            return not self._stopping

    def _fits(self) -> bool:
        return self.log.size < self._config.wal_limit

    def _gather(self) -> list[MqttMessage]:
        """The messages of the next segment. It ends with the time, with the in-flight window of the broker,
        which sends nothing more until these are acknowledged, or with a pause that may come from that window:
        brokers do not tell how large theirs is."""
        consumer = cast("MqttConsumer", self._consumer)
        messages = consumer.receive_many(ROWS_PER_SEGMENT, timeout=GATHER)
        if not messages:
            return messages
        deadline = time.monotonic() + GATHER
        unacknowledged = sum(1 for message in messages if message.qos)
        while len(messages) < ROWS_PER_SEGMENT and unacknowledged < self._window:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if unacknowledged >= FEW:
                left = min(left, PAUSE)
            more = consumer.receive_many(ROWS_PER_SEGMENT - len(messages), timeout=left)
            if not more:
                break
            unacknowledged += sum(1 for message in more if message.qos)
            messages += more
        return messages


def spark_schema() -> Any:
    """The schema of the rows."""
    from pyspark.sql.types import (
        BinaryType,
        BooleanType,
        IntegerType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    return StructType(
        [
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("qos", IntegerType()),
            StructField("retain", BooleanType()),
            StructField("received_time", TimestampType()),
            StructField("content_type", StringType()),
            StructField("properties", MapType(StringType(), StringType())),
        ]
    )


def _table(messages: Sequence[MqttMessage]) -> Any:
    """The messages as a table with exactly the types that Spark expects, because it compares them."""
    import pyarrow as pa

    schema = arrow_schema(spark_schema())
    columns: list[list[Any]] = [
        [bytes(message.data) for message in messages],
        [message.topic for message in messages],
        [message.qos for message in messages],
        [message.retain for message in messages],
        [(message.received_time or 0) * 1000 for message in messages],
        [message.content_type for message in messages],
        # As in `read_frame`, with all values of a name that is repeated.
        [message.user_properties for message in messages],
    ]
    arrays = [pa.array(values, type=kind.type) for values, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
