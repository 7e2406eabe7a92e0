"""DataFrames in and out, by the Arrow PyCapsule interface alone."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from . import _native
from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._engine import FrameRows


def outgoing(
    frame: Any,
    *,
    value: str | None,
    encoding: str | None,
    key: str | None = None,
    topic: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    first_row: int = 0,
    id: tuple[str, str] | None = None,
) -> FrameRows:
    """The rows of a frame, encoded in the engine. Every row is checked before any is sent.

    Args:
        frame: anything with the Arrow PyCapsule interface.
        value, key, properties, event_time: columns, as for :meth:`penstock.pulsar.PulsarProducer.send_frame`.
        encoding: ``"raw"`` or ``"json"``. Default: ``"raw"`` if ``value`` is given.
        topic: column of the topics, or a template with columns in it; not together with ``key``.
        first_row: number of the first row, used in errors and ids.
        id: a property to add to each row: its name, and the text before the row's number in its value.

    Raises:
        InvalidArgument: no Arrow interface, no such column, or a type that does not fit.
        InvalidTopic: the topic of a row is not valid. The error names the row and the column.
    """
    check_frame(frame)
    return _native.encode_frame(
        frame,
        value=value,
        encoding=check_encoding(value, encoding),
        key=key,
        topic=topic,
        properties=properties,
        event_time=event_time,
        first_row=first_row,
        id=id,
    )


def check_frame(frame: Any) -> None:
    """
    Raises:
        InvalidArgument: not a frame whose rows can be sent from this process.
    """
    kind = cast("type[object]", type(frame))
    if kind.__module__.startswith("pyspark."):
        # It has the interface, too, but using it would pull every row through the driver.
        raise InvalidArgument(
            "a Spark DataFrame is not sent with send_frame(): use penstock.spark.write(df, ...)"
        )
    if not hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "__arrow_c_array__"):
        raise InvalidArgument(
            f"{kind.__module__}.{kind.__qualname__} has no Arrow interface (__arrow_c_stream__); "
            "use pyarrow, polars, pandas 2.2+ or duckdb"
        )


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
