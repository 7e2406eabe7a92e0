"""DataFrames: what goes in and what comes out, by the Arrow PyCapsule interface alone."""

from __future__ import annotations

from typing import Any, cast

from .errors import InvalidArgument


def outgoing(frame: Any, value: str | None, encoding: str | None) -> str:
    """Checks a frame that is to be sent; returns the encoding: ``"raw"`` when ``value`` names a column,
    ``"json"`` otherwise.

    Raises:
        InvalidArgument: the frame has no Arrow interface, or encoding and ``value`` do not fit.
    """
    kind = cast("type[object]", type(frame))
    if kind.__module__.startswith("pyspark."):
        # It has the interface too, but that would pull every row through the driver.
        raise InvalidArgument("a Spark DataFrame is written with penstock.spark.write(df, ...)")
    if not hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "__arrow_c_array__"):
        raise InvalidArgument(
            f"{kind.__module__}.{kind.__qualname__} has no Arrow interface (__arrow_c_stream__); "
            "pyarrow, polars, pandas 2.2+ and duckdb have it"
        )
    return check_encoding(value, encoding)


def check_encoding(value: str | None, encoding: str | None) -> str:
    """``encoding``, or what ``value`` implies.

    Raises:
        InvalidArgument: unknown, or raw without a column.
    """
    encoding = encoding or ("json" if value is None else "raw")
    if encoding not in ("raw", "json"):
        raise InvalidArgument(f"encoding is 'raw' or 'json', not {encoding!r}")
    if encoding == "raw" and value is None:
        raise InvalidArgument("encoding='raw' needs value=, the column with the payloads")
    return encoding


def incoming(batch: Any) -> Any:
    """A ``pyarrow.Table`` over the batch, without a copy; the batch itself (it has the Arrow interface)
    where pyarrow is not installed."""
    try:
        import pyarrow
    except ImportError:
        return batch
    return pyarrow.table(batch)  # pyright: ignore
