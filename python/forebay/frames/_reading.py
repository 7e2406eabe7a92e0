"""From topics to tables and streams of batches."""
# The optional libraries are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from forebay._core import protocols
from forebay._core.dataframes import arrow_type
from forebay.errors import Closed, InvalidArgument, Unsupported
from forebay.progress import Progress

from ._opening import connected, library, seconds
from ._sources import OnError, Request, Source, Values

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from forebay._core.types import Duration, Timestamp
    from forebay.pulsar import MessageId

    Topic = str | Sequence[str] | re.Pattern[str]
    Position = str | MessageId | Sequence[MessageId | str] | Timestamp | timedelta | Mapping[str, Any]
    Columns = Sequence[str] | Literal["kafka", "pulsar"]

READ_TIMEOUT = 60.0
"""Default of ``read_timeout`` in seconds."""
_ARGUMENTS = (
    "start",
    "end",
    "columns",
    "decode",
    "on_error",
    "read_timeout",
    "fail_on_data_loss",
    "progress",
)


def read(
    url: str | None,
    topic: Topic,
    *,
    start: Position | None = None,
    end: Position | None = None,
    columns: Columns | None = None,
    decode: bool = False,
    on_error: OnError = "raise",
    read_timeout: Duration = READ_TIMEOUT,
    fail_on_data_loss: bool = True,
    progress: bool = False,
    **options: Any,
) -> pa.Table:
    """Reads topics into a table: the messages from one position to another, at most to the end that the
    topics have when this is called. It leaves no subscription behind, and creates no topic. (An embedded
    broker makes a topic of TubeMQ that it is asked for, unless ``auto_create`` is off.)

    Partitions follow each other, in their order; within a partition the order is that of the topic. A message
    in chunks belongs to where its first chunk is.

    Args:
        url: URL of a Pulsar or TubeMQ service, as for :func:`forebay.connect`. ``"embedded:"`` is the broker
            that runs in the memory of this process, ``"embedded:./data"`` the one on that folder, which must
            be there; if none runs on it, one is started for the call. These two are for Pulsar.
        topic: a topic, partitioned or not, or a partition; several of them; or a pattern, as
            :meth:`forebay.pulsar.PulsarClient.consumer` takes it,
            ``re.compile("persistent://public/default/orders-.*")``. With TubeMQ names of topics only.
        start: where reading begins: ``"earliest"`` (the default) or ``"latest"``; *behind* the message of an
            id, or of the ids of several partitions; *with* the first message that was published at a time
            (aware ``datetime``, milliseconds since 1970, or ISO 8601 with a zone), or so long ago
            (``timedelta`` or text such as ``"2h"``); or a mapping or JSON with a position for each partition,
            ``startingOffsets`` of the Spark source: ``{"orders": {"0": "(12,4,0,-1)", "1": "latest"}}``. A
            partition without a position is read from its beginning. TubeMQ has no ids and no times: a word,
            or the first offset to read of each partition, ``{"orders": {"1:0": 2800}}``.
        end: where it ends: ``"latest"`` (the default), *with* the message of an id, *before* the first
            message that was published at a time, or a mapping as for ``start``. With TubeMQ
            *before* an offset.
        columns: names of columns. ``value`` (binary), ``key``, ``topic``, ``message_id``, ``publish_time``,
            ``event_time`` and ``properties`` by default; and ``key_bytes``, ``ordering_key``, ``partition``,
            ``index``, ``broker_time``, ``producer_name``, ``sequence_id`` and ``schema_version``. Columns
            that are not wanted cost nothing. With TubeMQ those of ``read_frame``, and ``key_bytes`` and
            ``message_id``. ``"kafka"`` and ``"pulsar"`` are the columns of Spark's source for Kafka and of
            pulsar-spark (Pulsar).
        decode: makes ``value`` the values by the schema of the topics: structs for records and for pairs of a
            key and a value, and columns of one type for primitives. It is the newest schema that they have
            when this is called; data of other versions become values of it. Types are those of
            :meth:`forebay.pulsar.PulsarConsumer.read_frame`. With ``columns="pulsar"`` the fields of records
            are columns of their own. Topics without a schema keep their payloads.
        on_error: ``"raise"``, or ``"null"`` for the value null where a payload cannot be decoded.
        read_timeout: longest time in seconds without a message while the broker says that there is one.
        fail_on_data_loss: whether messages that were deleted before they were read are an error.
        progress: shows a bar on a terminal.
        options: options of the client and of the reader, such as ``token="env:TOKEN"`` or
            ``unreadable="skip"`` (the default here is ``"fail"``).

    Returns:
        A table, with the same columns and types if there is nothing to read.

    Raises:
        InvalidArgument: an unknown option or column, or a bad value; before anything is connected. Or topics
            that are decoded have different schemas.
        SchemaError, IncompatibleSchema: a payload cannot be decoded; names its message and topic.
        TopicNotFound: a topic does not exist.
        DataLost: messages were deleted before they were read.
        Timeout: a message does not come.
        Unsupported: topics of the protocol cannot be read; or values cannot be columns: unions of several
            types and records inside of themselves.
        ImportError: pyarrow is not installed.
        ConnectFailed, AuthenticationError ...: as :func:`forebay.connect`.
    """
    values = Values(decode, on_error)
    reading = _Reading(url, topic, start, end, columns, values, read_timeout, fail_on_data_loss, options)
    batches: list[pa.RecordBatch] = []
    what = topic if isinstance(topic, str) else "topics"
    with reading.connected() as client, Progress(what, quiet=not progress) as bar:
        for batch in reading.batches(client, reading.source.plan(client)):
            batches.append(batch)
            bar.advance(batch.num_rows)
    return library("pyarrow", "frames").Table.from_batches(batches, reading.schema())


def scan(
    url: str | None,
    topic: Topic,
    *,
    start: Position | None = None,
    end: Position | None = None,
    columns: Columns | None = None,
    decode: bool = False,
    on_error: OnError = "raise",
    read_timeout: Duration = READ_TIMEOUT,
    fail_on_data_loss: bool = True,
    **options: Any,
) -> Scan:
    """As :func:`read`, for topics that are larger than memory: the rows come as they are asked for, batch by
    batch.

    The call connects, finds out what there is to read, and disconnects: what is sent later is not read.

    Args:
        url, topic, start, end, columns, decode, on_error: as for :func:`read`.
        read_timeout, fail_on_data_loss, options: as there.

    Returns:
        An object that pyarrow, polars, duckdb and others take as it is.

    Raises:
        InvalidArgument, TopicNotFound, Unsupported, ImportError ...: as :func:`read`.
    """
    if "progress" in options:
        raise InvalidArgument("scan has no option 'progress': rows come as they are asked for")
    values = Values(decode, on_error)
    reading = _Reading(url, topic, start, end, columns, values, read_timeout, fail_on_data_loss, options)
    with reading.connected() as client:
        parts = reading.source.plan(client)
    return Scan(reading, parts)


class Scan:
    """A bounded read, made by :func:`scan`. It has the Arrow PyCapsule interface (``__arrow_c_stream__``).

    What is read was fixed when it was made. Each iteration, and each use as a stream, connects and reads it
    from its beginning, so all of them have the same rows, as long as the topic keeps them; several at a time
    do not affect each other. An iteration ends its connection with its last batch, with an error, and when
    it is closed or collected as garbage. Until then one of ``embedded:./data`` keeps the folder in use.

    A batch has up to 10,000 rows or 4 MiB of payload. In memory are the batch that the caller has, the one
    that follows, and what the reader fetches ahead (``receiver_queue``, ``receive_buffer``). Partitions are
    read one after the other, in their order.
    """

    def __init__(self, reading: _Reading, parts: Sequence[Any]) -> None:
        self._reading = reading
        self._parts = parts
        # Without a lock: an iteration that is left ends in a finaliser, which may run in between
        # anywhere.
        self._clients: set[Any] = set()
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._reading.schema()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closed

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows as ``pyarrow.RecordBatch`` objects.

        Raises:
            Closed: after :meth:`close`; also in the middle of an iteration.
            DataLost, Timeout ...: as :func:`read`.
        """
        return self._batches()

    def _batches(self, names: Sequence[str] | None = None) -> Generator[pa.RecordBatch, None, None]:
        """The rows, with the columns ``names``; with all of them by default."""
        self._check()
        return self._read(names)

    def _read(self, names: Sequence[str] | None) -> Generator[pa.RecordBatch, None, None]:
        if not self._parts:
            return
        with self._reading.connected() as client:
            self._clients.add(client)
            try:
                # Now: either this sees that it is closed, or `close` sees the client.
                self._check()
                for batch in self._reading.batches(client, self._parts, names):
                    # The one that follows may have been there before `close`.
                    self._check()
                    yield batch
            finally:
                self._clients.discard(client)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a ``pyarrow.RecordBatchReader``. It connects with the first batch.

        Raises:
            Closed: after :meth:`close`.
        """
        reader = library("pyarrow", "frames").RecordBatchReader
        return reader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as a stream of the Arrow C data interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def read_all(self) -> pa.Table:
        """The rows as a table.

        Raises:
            Closed, DataLost, Timeout ...: as iterating.
        """
        return library("pyarrow", "frames").Table.from_batches(list(self), self.schema)

    def to_polars(self) -> pl.LazyFrame:
        """The rows as a ``polars.LazyFrame``, which reads them when it is collected. Only columns that the
        query needs are read, and no more rows than ``head()`` or ``limit()`` asks for. Filters are applied to
        each batch.

        Raises:
            Closed: after :meth:`close`.
            ImportError: polars is not installed.
        """
        polars = library("polars", "polars")
        library("polars.io.plugins", "polars")
        self._check()
        schema = polars.from_arrow(self.schema.empty_table()).schema

        def frames(
            wanted: list[str] | None, predicate: Any, most: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            # Rows without a column are those of a column that is left out again.
            names = list(self.schema.names[:1]) if wanted is not None and not wanted else wanted
            left = most
            with contextlib.closing(self._batches(names)) as batches:
                for batch in batches:
                    frame = polars.from_arrow(batch)
                    if left is not None:
                        frame = frame.head(left)
                        left -= frame.height
                    if predicate is not None:
                        frame = frame.filter(predicate)
                    yield frame if wanted is None else frame.select(wanted)
                    if left == 0:
                        return

        return polars.io.plugins.register_io_source(frames, schema=schema, is_pure=True)

    def close(self) -> None:
        """Ends all iterations; later ones raise :class:`forebay.errors.Closed`. An object that is not
        iterated holds nothing that needs to be closed."""
        self._closed = True
        for client in self._clients.copy():
            client.close()

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"{self!r} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<forebay.frames.Scan {self._reading.name}, {len(self._parts)} ranges>"


class _Reading:
    """Everything that a read needs, checked as far as it can be without a broker.

    Args:
        url, topic, start, end, columns, read_timeout, fail_on_data_loss, options: as for :func:`read`.
        values: ``decode`` and ``on_error``, as there.
    """

    source: Source

    def __init__(
        self,
        url: str | None,
        topic: Any,
        start: Any,
        end: Any,
        columns: Any,
        values: Values,
        read_timeout: Duration,
        fail_on_data_loss: bool,
        options: dict[str, Any],
    ) -> None:
        library("pyarrow", "frames")
        base, inherited = protocols.inherited_for(url)
        key = protocols.of(base).key
        scopes = (f"{key}.client", f"{key}.consumer")
        self._client, consumer = protocols.by_table(options, scopes, "forebay.frames", _ARGUMENTS)
        self._url = url
        # A mistake shows before anything is connected.
        protocols.resolve(scopes[0], {**inherited["client"], **self._client})
        protocols.resolve(scopes[1], {**inherited["consumer"], **consumer})
        queried = protocols.of_url(url)["consumer"]
        outside = {name: value for name, value in inherited["consumer"].items() if name not in queried}
        given = {**queried, **consumer}
        self.name = f"{base} {topic!r}"
        timeout = seconds("read_timeout", read_timeout)
        self.source = _source(
            key,
            Request(topic, start, end, columns, values, timeout, fail_on_data_loss, given, outside),
        )

    def connected(self) -> contextlib.AbstractContextManager[Any]:
        """A client, closed at the end of its ``with`` block."""
        return connected(self._url, self._client, creates=False)

    def schema(self) -> pa.Schema:
        """The columns of the source."""
        pyarrow = library("pyarrow", "frames")
        return pyarrow.schema([(column.name, arrow_type(column)) for column in self.source.columns])

    def batches(
        self, client: Any, parts: Sequence[Any], names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the parts, one part after the other.

        Args:
            client: reads them.
            parts: as the source has planned them.
            names: the columns; all of them by default.
        """
        pyarrow = library("pyarrow", "frames")
        columns = [column for column in self.source.columns if names is None or column.name in names]
        for part in parts:
            for batch in self.source.read(client, part, columns):
                yield pyarrow.record_batch(batch)


def _source(protocol: str, request: Request) -> Source:
    """The source of a protocol.

    Raises:
        Unsupported: its topics cannot be read.
        InvalidArgument: the request has a mistake.
    """
    if protocol == "pulsar":
        from ._pulsar import PulsarSource

        return PulsarSource(request)
    if protocol == "tubemq":
        from ._tubemq import TubeMqSource

        return TubeMqSource(request)
    raise Unsupported(
        "an MQTT topic cannot be read from one position to another, because it has none: subscribe, and"
        " take frames from consumer.read_frame()"
    )
