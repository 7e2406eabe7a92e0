"""The streaming source for MQTT: ``spark.readStream.format("penstock").option("url", "mqtt://...")``.

MQTT has no positions to read from again, so this source makes them. One MQTT session on the driver receives
the messages, writes them to a log (:mod:`penstock.spark.wal`) and acknowledges each only when it is on disk
there. Spark's offsets are rows of the log, and its tasks read the log. With QoS 1 and 2, every message that
the broker keeps for the session is therefore in some batch, at least once, across restarts of the query and
the broker; a batch that Spark repeats has the same rows. Rows that Spark has committed are deleted.

The broker must keep the session while the query is down: ``client_id`` names it, and it never starts clean.
Messages that the broker drops in the meantime (QoS 0, a full queue, an expired session) are lost.
"""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock import parse, protocols
from penstock.errors import InvalidArgument, IoError, Unsupported
from penstock.options import Option

from .config import travelling
from .wal import Log, Slice, spread

if TYPE_CHECKING:
    from penstock.mqtt import MqttMessage
    from penstock.mqtt.blocking import MqttConsumer

    _AvailableNow = object
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
    except ImportError:
        # Before PySpark 4.2.
        _AvailableNow = object

ROWS_PER_SEGMENT = 10_000
ROWS_PER_TASK = 10_000
"""Fewest rows for which another task pays off."""
GATHER = 0.1
"""Seconds for which messages are gathered into a segment."""
QUIET = 1.0
"""Seconds without a message after which ``availableNow`` considers everything received."""

_OWN: dict[str, Option] = {
    "wal": Option(str, None, "Folder of the log; executors must be able to read it."),
    "wal_limit": Option(parse.size, 1 << 30, "Size of the log above which messages are left on the broker."),
    "max_rows_per_trigger": Option(parse.whole(1), None, "Largest number of rows in a micro-batch."),
    "max_partitions": Option(parse.whole(1, 10_000), 8, "Largest number of tasks in a micro-batch."),
    "subscription": Option(str, None, "Group of a shared subscription."),
}


@dataclass(frozen=True)
class SourceConfig:
    """Configuration of the source. Made by :func:`source_config`."""

    url: str
    topic: str
    wal: str
    wal_limit: int
    max_rows_per_trigger: int | None
    max_partitions: int
    subscription: str | None
    client: dict[str, Any] = field(repr=False)
    consumer: dict[str, Any]


def source_config(options: dict[str, Any]) -> SourceConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Raises:
        InvalidArgument: an unknown or missing option, a bad value, or a secret as plain text.
        Unsupported: a URL of another protocol, or an option that contradicts how the source works.
    """
    base, inherited = protocols.inherited_for(options.pop("url", None))
    if protocols.of(base).key != "mqtt":
        raise Unsupported("the streaming source is for MQTT URLs")
    topic = options.pop("topic", None)
    for name, value in {"topic": topic, "wal": options.get("wal")}.items():
        if not value:
            raise InvalidArgument(f'option "{name}" is missing')
    scopes = ("mqtt.client", "mqtt.consumer")
    tables = [protocols.table(scope) for scope in scopes]
    own = {name: options.pop(name) for name in _OWN if name in options}
    for name in options:
        if name not in tables[0] and name not in tables[1]:
            hint = parse.did_you_mean(name, [*_OWN, *tables[0], *tables[1]])
            raise InvalidArgument(f"the Spark source has no option {name!r}{hint}")
    client = {name: value for name, value in options.items() if name in tables[0]}
    consumer = {name: value for name, value in options.items() if name not in client}
    for name in ("clean_start", "outbox", "auto_ack"):
        if name in options:
            raise Unsupported(
                f"the Spark source does not support {name!r}: it keeps its session and acknowledges itself"
            )
    client = {**inherited["client"], **client}
    if not client.get("client_id"):
        raise InvalidArgument('option "client_id" is missing: it names the session that the broker keeps')
    values = {name: _own(name, own) for name in _OWN}
    return SourceConfig(
        url=base,
        topic=topic,
        # The log has room for all messages in flight; a smaller window would only make segments small.
        client={"receive_maximum": 65_535, **travelling("mqtt.client", client), "clean_start": False},
        consumer=travelling("mqtt.consumer", {**inherited["consumer"], **consumer}),
        **values,
    )


def _own(name: str, given: dict[str, Any]) -> Any:
    option = _OWN[name]
    if name not in given:
        return option.default
    try:
        return option.parse(given[name])
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


@dataclass
class _Rows(InputPartition):
    """The rows of one task."""

    slices: list[Slice]


class MqttStreamReader(DataSourceStreamReader, _AvailableNow):
    """The reader of a query. On the driver it lives as long as the query, and ingests from the first request
    for an offset on; on executors it only reads files."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._ingest: _Ingest | None = None
        self._available: int | None = None
        self._start = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return _offset(self._running().log.first)

    def latestOffset(self, *asked: Any) -> dict[str, int]:  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spark 4.2 and later pass the start and the limit; before, only our own limit applies."""
        ingest = self._running()
        ingest.check()
        start, most = self._start, self._config.max_rows_per_trigger
        if asked:
            start = _row(asked[0])
            most = getattr(asked[1], "max_rows", None)
        end = ingest.log.end if self._available is None else self._available
        if start > ingest.log.end:
            # Raises. An offset before the start would look like new rows to Spark.
            ingest.log.slices(start, start + 1)
        if most is not None:
            end = min(end, start + most)
        return _offset(max(start, end))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        most = self._config.max_rows_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return _offset(self._running().log.end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Waits until the broker has sent nothing for a second; the rows up to then are available."""
        self._available = self._running().wait_until_quiet()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = _row(start), _row(end)
        self._start = last
        slices = self._running().log.slices(first, last)
        groups = spread(slices, self._config.max_partitions, ROWS_PER_TASK)
        return [_Rows(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for piece in cast("_Rows", partition).slices:
            try:
                yield from piece.batches()
            except FileNotFoundError:
                text = 'does not exist here: the folder of option "wal" must be shared by all machines'
                raise IoError(f"{piece.path!r} {text}") from None

    def commit(self, end: dict[str, int]) -> None:
        self._running().trim(_row(end))

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


def _offset(row: int) -> dict[str, int]:
    return {"row": row, "v": 1}


def _row(offset: dict[str, int]) -> int:
    if offset.get("v") != 1:
        raise InvalidArgument(f"the checkpoint was written by another version of this source: {offset}")
    return offset["row"]


class _Ingest:
    """The thread that moves messages from the broker to the log."""

    def __init__(self, config: SourceConfig) -> None:
        from penstock import blocking

        self._config = config
        self.log = Log(config.wal)
        self._changed = threading.Condition()
        self._stopping = False
        self._error: Exception | None = None
        self._silence = 0.0
        """Seconds of waiting without a message since the last ones were stored."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.log.close)
            self._client = stack.enter_context(blocking.connect(config.url, **config.client))
            self._consumer = self._client.consumer(config.topic, config.subscription, **config.consumer)
            stack.pop_all()
        self._thread = threading.Thread(target=self._run, name="penstock-ingest", daemon=True)
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
        """Waits until the broker is quiet or the log is full; returns the end of the log."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or self._stopping or self._silence >= QUIET or not self._fits()
            )
        self.check()
        return self.log.end

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        # The session stays: the broker delivers unacknowledged messages again to the next connection.
        with contextlib.suppress(Exception):
            self._client.close()
        self.log.close()

    def _run(self) -> None:
        try:
            while self._has_room():
                if messages := self._gather():
                    self.log.append(_table(messages))
                    # Not before the messages are on disk.
                    self._consumer.ack_many([message for message in messages if message.qos])
                with self._changed:
                    self._silence = 0.0 if messages else self._silence + GATHER
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
        consumer = cast("MqttConsumer", self._consumer)
        messages = consumer.receive_many(ROWS_PER_SEGMENT, timeout=GATHER)
        if not messages:
            return messages
        deadline = time.monotonic() + GATHER
        while len(messages) < ROWS_PER_SEGMENT and (left := deadline - time.monotonic()) > 0:
            messages += consumer.receive_many(ROWS_PER_SEGMENT - len(messages), timeout=left)
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
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: Any = to_arrow_schema(spark_schema(), timezone="UTC")
    columns: list[list[Any]] = [
        [bytes(message.data) for message in messages],
        [message.topic for message in messages],
        [message.qos for message in messages],
        [message.retain for message in messages],
        [(message.received_time or 0) * 1000 for message in messages],
        [message.content_type for message in messages],
        [list(message.properties.items()) for message in messages],
    ]
    arrays = [pa.array(values, type=kind.type) for values, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
