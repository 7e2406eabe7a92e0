"""DataFrames in and out, by the Arrow PyCapsule interface alone."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from forebay.errors import InvalidArgument, Timeout

from . import native

if TYPE_CHECKING:
    from forebay._engine import ArrowBatch, FrameRoles, FrameRows, Waiter

ACK_TIMEOUT = 120.0
"""Default of ``ack_timeout``, the seconds to wait for the broker to acknowledge a lot of rows."""


class Column(NamedTuple):
    """A column of messages that are read as a table."""

    name: str
    content: str
    """Its content, in the engine's words."""
    kind: str
    """Its type, in Spark's words; empty for one that is only known when a read is planned."""
    type: Any = None
    """That type, of pyarrow."""


HEADERS = Column("headers", "headers", "array<struct<key:string,value:binary>>")
"""The properties, as Kafka's headers."""


def arrow_type(column: Column) -> Any:
    """The type of a column of messages, of pyarrow."""
    import pyarrow as pa  # pyright: ignore

    types: Any = pa
    text, binary = types.string(), types.binary()
    if column.type is not None:
        return column.type
    if column.kind == HEADERS.kind:
        return types.list_(types.field("element", types.struct([("key", text), ("value", binary)])))
    return {
        "binary": binary,
        "string": text,
        "int": types.int32(),
        "bigint": types.int64(),
        "timestamp": types.timestamp("us", "UTC"),
        "map<string,string>": types.map_(text, text),
    }[column.kind]


def outgoing(frame: Any, roles: FrameRoles, encoding: str | None) -> FrameRows:
    """The rows of a frame, encoded in the engine. Every row is checked before any is sent.

    Args:
        frame: anything with the Arrow PyCapsule interface.
        roles: of its columns.
        encoding: ``"raw"`` or ``"json"``. Default: ``"raw"`` if there is a ``value``.

    Raises:
        InvalidArgument: no Arrow interface, no such column, or a type that does not fit.
        InvalidTopic: the topic of a row is not valid. The error names the row and the column.
    """
    frame = readable(frame)
    return native.encode_frame(frame, roles, encoding=check_encoding(roles["value"], encoding))


def is_template(text: str) -> bool:
    """Whether a topic is a template, which it is if it contains braces."""
    return "{" in text or "}" in text


def topic_of_rows(topic: str | None, topic_column: str | None) -> tuple[str, str | None]:
    """The topic of all rows, or the column or template that gives each row its own."""
    if topic and topic_column:
        raise InvalidArgument("give either topic or topic_column, not both")
    if topic_column:
        if is_template(topic_column):
            raise InvalidArgument("topic_column is the name of a column; a template goes into topic")
        return "", topic_column
    if not topic:
        raise InvalidArgument(
            "a topic is needed: a name, a template like 'shop/{till}/sales', or topic_column"
        )
    if not is_template(topic):
        return topic, None
    native.template_columns(topic)
    return "", topic


def topic_columns(row_topic: str | None) -> list[str]:
    """The columns from which the topics of rows are made."""
    if row_topic is None:
        return []
    return native.template_columns(row_topic) if is_template(row_topic) else [row_topic]


def placeholder(topic: str, row_topic: str | None) -> str:
    """The topic to open a producer with. If each row has its own, it is a name that shows its origin."""
    if row_topic is None:
        return topic
    text = row_topic if is_template(row_topic) else f"{{{row_topic}}}"
    # Column names may contain characters that are not allowed in topic names.
    return text.translate(str.maketrans("+#\0", "___"))


def readable(frame: Any) -> Any:
    """The frame as the engine can read it.

    Raises:
        InvalidArgument: not a frame whose rows can be sent from this process.
    """
    kind = cast("type[object]", type(frame))
    if kind.__module__.startswith("pyspark."):
        # It has the interface, too, but using it would pull every row through the driver.
        raise InvalidArgument(
            "a Spark DataFrame is not sent with send_frame(): use forebay.spark.write(df, ...)"
        )
    if kind.__qualname__ == "LazyFrame":
        raise InvalidArgument("a LazyFrame has no rows yet: call .collect() on it first")
    if not hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "__arrow_c_array__"):
        raise InvalidArgument(
            f"{kind.__module__}.{kind.__qualname__} has no Arrow interface (__arrow_c_stream__); "
            "use pyarrow, polars, pandas 2.2+ or duckdb"
        )
    if kind.__module__.startswith("polars."):
        return _typed(frame)
    of_pandas = hasattr(frame, "reset_index") and hasattr(frame, "columns")
    return _with_named_index(frame) if of_pandas else frame


def _with_named_index(frame: Any) -> Any:
    """A pandas DataFrame whose index is a column if it has a name, and is left out otherwise. Pandas itself
    hands over a column ``__index_level_0__`` after a filter, and leaves out a range that has a name."""
    names: list[Any] = frame.index.names
    without = [level for level, name in enumerate(names) if name is None or name in frame.columns]
    if without:
        return frame.reset_index(level=without, drop=True)
    if type(frame.index).__name__ == "RangeIndex":
        return frame.assign(**{str(names[0]): frame.index})
    return frame


def _typed(frame: Any) -> Any:
    """A frame of polars whose columns without a type, of which every value is null, are text. Polars hands
    them over with a buffer that Arrow does not have for them."""
    import polars

    pl: Any = polars

    def of(dtype: Any) -> Any:
        if dtype == pl.Null:
            return pl.String
        if isinstance(dtype, pl.List):
            return pl.List(of(dtype.inner))
        if isinstance(dtype, pl.Array):
            return pl.Array(of(dtype.inner), dtype.size)
        if isinstance(dtype, pl.Struct):
            return pl.Struct([pl.Field(field.name, of(field.dtype)) for field in dtype.fields])
        return dtype

    schema = getattr(frame, "schema", {})
    casts = {name: wanted for name, dtype in schema.items() if (wanted := of(dtype)) != dtype}
    return frame.cast(casts) if casts else frame


def check_encoding(value: str | None, encoding: str | None) -> str:
    """``encoding``, or the default that ``value`` implies.

    Raises:
        InvalidArgument: an unknown encoding, or ``"raw"`` without a column.
    """
    encoding = encoding or ("json" if value is None else "raw")
    if encoding not in ("raw", "json"):
        raise InvalidArgument(f"expected encoding='raw' or 'json', not {encoding!r}")
    if encoding == "raw" and value is None:
        raise InvalidArgument("encoding='raw' needs value=, the column of the payloads")
    return encoding


def incoming(batch: Any) -> Any:
    """A ``pyarrow.Table`` over the batch, without a copy. Without pyarrow the batch itself, which has the
    Arrow interface."""
    try:
        import pyarrow
    except ImportError:
        return batch
    return pyarrow.table(batch)  # pyright: ignore


BLOCK_ROWS = 10_000
"""Most rows of a batch of a range."""
BLOCK_BYTES = 4 << 20
"""Most bytes of payload of a batch that has more than one row: it is several times in memory on its way."""


def blocks(reader: Any) -> Iterator[ArrowBatch]:
    """The batches of a range, from the engine's reader, which is closed at the end."""
    try:
        pending = reader.read(BLOCK_ROWS, BLOCK_BYTES)
        while (batch := pending.wait()) is not None:
            # While the caller works on this one.
            pending = reader.read(BLOCK_ROWS, BLOCK_BYTES)
            yield batch
    finally:
        reader.close().wait()


def answers(pending: Waiter[Any], ack_timeout: float, what: str) -> Any:
    """The broker's answers to rows.

    Args:
        pending: waits for them.
        ack_timeout: longest wait in seconds.
        what: the rows, for the error.

    Raises:
        Timeout: they do not come in time.
    """
    started = time.monotonic()
    try:
        return pending.wait(ack_timeout)
    except Timeout as error:
        if time.monotonic() - started < ack_timeout:
            # The producer's own.
            raise
        raise Timeout(f"the broker did not acknowledge {what} within {ack_timeout:g} s") from error
