"""Converting plain Rows to Arrow for the engine to encode."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument

from ._arrow import arrow_type, without_udt

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
        return pa.RecordBatch.from_arrays([_inferred(rows, name) for name in names], names)
    # As `write` has them: a field that is never null has another type in Avro than one that may be.
    fields = [pa.field(name, arrow_type(schema[name].dataType), schema[name].nullable) for name in names]
    arrays = [
        pa.array([_typed(row[field.name], schema[field.name].dataType) for row in rows], type=field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def numbered_batch(
    rows: Sequence[Any], columns: Sequence[str] | None, schema: StructType | None, first: int
) -> Any:
    """As :func:`to_batch`.

    Args:
        rows: the rows.
        columns: of the batch.
        schema: of the rows, if it is known.
        first: number of the first row.

    Raises:
        InvalidArgument: a row has a value that cannot be converted; the error names the row.
    """
    import pyarrow as pa

    unreadable = (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError)
    try:
        return to_batch(rows, columns, schema)
    except unreadable as error:
        for number, row in enumerate(rows, first):
            try:
                to_batch([row], columns, schema)
            except unreadable as why:
                raise InvalidArgument(f"row {number} cannot be read: {why}") from why
        last = first + len(rows) - 1
        raise InvalidArgument(
            f"the values of rows {first} to {last} do not make columns: {error}; pass schema=df.schema"
        ) from error


def _inferred(rows: Sequence[Any], name: str) -> Any:
    """A column whose type pyarrow finds out."""
    import pyarrow as pa

    values = [_plain(row[name]) for row in rows]
    array = pa.array(values)
    if pa.types.is_duration(array.type):
        raise InvalidArgument(f"column {name!r} is an interval: cast it to text")
    return array


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
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType, UserDefinedType

    if value is None:
        return None
    if isinstance(kind, UserDefinedType):
        return _typed(kind.serialize(value), without_udt(kind))
    if isinstance(kind, TimestampType):
        return _moment(value)
    if isinstance(kind, StructType):
        # By their places: what a user-defined type is stored as has no names.
        return {
            field.name: _typed(part, field.dataType) for field, part in zip(kind.fields, value, strict=True)
        }
    if isinstance(kind, MapType):
        return [(_typed(key, kind.keyType), _typed(part, kind.valueType)) for key, part in value.items()]
    if isinstance(kind, ArrayType):
        return [_typed(part, kind.elementType) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value
