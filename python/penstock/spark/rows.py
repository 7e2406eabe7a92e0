"""Converting plain Rows to Arrow for the engine to encode."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .arrow import arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def to_batch(rows: Sequence[Any], columns: Sequence[str] | None, schema: StructType | None) -> Any:
    """A ``pyarrow.RecordBatch`` of ``columns``, or of all columns if ``None``.

    PySpark turns both ``TIMESTAMP``, a moment, and ``TIMESTAMP_NTZ``, which is not one, into naive local
    times. With the frame's ``schema`` each is converted back to its own type; without it, all are read as
    moments.
    """
    import pyarrow as pa

    names = list(rows[0].__fields__) if columns is None else list(columns)
    if schema is None:
        return pa.RecordBatch.from_arrays([pa.array([_plain(row[n]) for row in rows]) for n in names], names)
    arrays = [
        pa.array([_typed(row[name], schema[name].dataType) for row in rows], type=kind)
        for name in names
        for kind in [arrow_type(schema[name].dataType)]
    ]
    return pa.RecordBatch.from_arrays(arrays, names)


def _moment(value: datetime.datetime) -> datetime.datetime:
    # PySpark made it a naive time in the time zone of this process.
    return value.astimezone(datetime.UTC)


def _plain(value: Any) -> Any:
    """A value whose type pyarrow infers: dictionaries and Rows become structs."""
    if isinstance(value, datetime.datetime):
        return _moment(value)
    if hasattr(value, "__fields__"):
        value = value.asDict()
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value


def _typed(value: Any, kind: Any) -> Any:
    """A value in the form that pyarrow expects for its Spark type."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return _moment(value)
    if isinstance(kind, StructType):
        return {field.name: _typed(value[field.name], field.dataType) for field in kind.fields}
    if isinstance(kind, MapType):
        return [(_typed(key, kind.keyType), _typed(part, kind.valueType)) for key, part in value.items()]
    if isinstance(kind, ArrayType):
        return [_typed(part, kind.elementType) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value
