"""Spark's types as Arrow types, the same way with every PySpark from 3.5 on."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def arrow_type(kind: DataType, *, large: bool = False) -> Any:
    """The ``pyarrow.DataType`` that the JVM uses for a Spark type; moments are in UTC. ``large``: with
    offsets of 64 bits.

    Raises:
        Unsupported: Arrow has no such type.
    """
    import pyarrow as pa

    kind = without_udt(kind)
    name = kind.typeName()
    of: Any = kind
    if name == "array":
        return pa.list_(_field("element", of.elementType, of.containsNull, large))
    if name == "map":
        value = _field("value", of.valueType, of.valueContainsNull, large)
        if of.keyType.typeName() == "void":
            # The JVM has nulls there, which pyarrow refuses: see `has_map_without_entries`.
            return pa.map_(pa.string(), value)
        return pa.map_(_field("key", of.keyType, False, large), value)
    if name == "struct":
        return pa.struct([_field(field.name, field.dataType, field.nullable, large) for field in of.fields])
    if name == "decimal":
        return pa.decimal128(of.precision, of.scale)
    simple: dict[str, Any] = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        **dict.fromkeys(("string", "char", "varchar"), pa.large_string() if large else pa.string()),
        "binary": pa.large_binary() if large else pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("ns"),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "daytimeinterval": pa.duration("us"),
        "void": pa.null(),
    }
    if name not in simple:
        raise Unsupported(f"Arrow has no type for Spark's {kind.simpleString()}")
    return simple[name]


def arrow_schema(schema: StructType, *, large: bool = False) -> Any:
    """The ``pyarrow.Schema`` of a Spark schema; moments are in UTC. ``large``: with offsets of 64 bits.

    Raises:
        Unsupported: Arrow has no such type.
    """
    import pyarrow as pa

    return pa.schema([_field(field.name, field.dataType, field.nullable, large) for field in schema.fields])


def without_udt(kind: DataType) -> DataType:
    """The type that a user-defined one is stored as, and any other type itself."""
    from pyspark.sql.types import UserDefinedType

    return kind.sqlType() if isinstance(kind, UserDefinedType) else kind


def _field(name: str, kind: DataType, nullable: bool, large: bool) -> Any:
    import pyarrow as pa

    of = arrow_type(kind, large=large)
    # Spark says of array() that its items, of which there are none, are not null.
    return pa.field(name, of, nullable=nullable or pa.types.is_null(of))
