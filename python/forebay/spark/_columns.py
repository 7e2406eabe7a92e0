"""The columns that a write names, and the frame's schema."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay._core.dataframes import is_template
from forebay.errors import InvalidArgument

from . import _errors
from ._arrow import without_udt
from ._config import ROLES, WriteConfig

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_FOR_SPARK_ALONE = ("variant", "geometry", "geography")
_TEXTS = ("string", "char", "varchar")
_INTERVALS = ("daytimeinterval", "yearmonthinterval", "interval")

_KEYS = (
    "string",
    "char",
    "varchar",
    "binary",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "boolean",
    "date",
    "void",
)
_WHOLE = ("tinyint", "smallint", "int", "bigint", "void")
_TIMES = ("timestamp", "timestamp_ntz", "date", *_WHOLE)
_FITTING = {
    "ordering_key": (_KEYS, "text, binary, whole numbers, booleans or dates"),
    "properties": (("map", "struct", "void"), "maps of text to text, or structs of texts"),
    "event_time": (_TIMES, "timestamps, dates or whole milliseconds since 1970"),
    "deliver_at": (_TIMES, "timestamps, dates or whole milliseconds since 1970"),
    "message_type": (_KEYS, "text"),
    "qos_column": (_WHOLE, "whole numbers, 0, 1 or 2"),
    "retain_column": (("boolean", "void"), "booleans"),
}
"""Types for roles beside the key, and how they are called."""


def fitted(config: WriteConfig, schema: StructType, owner: str) -> WriteConfig:
    """The configuration with its columns as the schema spells them; like Spark's, names in arguments do not
    depend on case.

    Args:
        config: the configuration.
        schema: of the rows.
        owner: the object that has it, for errors.

    Raises:
        InvalidArgument: a column does not exist, or its type does not fit its role or the encoding.
    """
    changes: dict[str, Any] = {}
    for name in (*ROLES, "row_topic"):
        given = getattr(config, name)
        if given is None:
            continue
        if name == "row_topic" and is_template(given):
            for column in config.topic_columns():
                if column not in schema.names:
                    raise _missing(column, schema, owner)
        else:
            changes[name] = _spelled(given, schema, owner)
    config = dataclasses.replace(config, **changes)
    if config.key is not None:
        kind = schema[config.key].dataType.simpleString()
        if _family(kind) not in _KEYS:
            raise _errors.no_key(f"the key column {config.key!r} is {kind}")
    for role, (families, wanted) in _FITTING.items():
        name = getattr(config, role)
        if name is not None and _family(kind := schema[name].dataType.simpleString()) not in families:
            raise InvalidArgument(f"{role}={name!r} is {kind}, and has to be a column of {wanted}")
    for field in schema.fields:
        if config.encoding != "raw" or field.name in config.columns():
            for path, kind in _types(field.name, field.dataType):
                why = _unfit(kind, config.encoding)
                if why:
                    raise InvalidArgument(f"column {path!r} is {kind.simpleString()}, {why}")
    if config.encoding == "raw" and config.value is not None:
        kind = schema[config.value].dataType
        if without_udt(kind).typeName() not in (*_TEXTS, "binary", "void"):
            raise InvalidArgument(
                f"column {config.value!r} is {kind.simpleString()}, which is not binary or text: cast "
                "it to text, or use encoding='json'"
            )
    return config


def _family(kind: str) -> str:
    """A type without its parameters."""
    return re.split(r"[ (<]", kind, maxsplit=1)[0]


def check_rows(schema: StructType, owner: str) -> None:
    """For rows that Spark hands to Python whole.

    Raises:
        InvalidArgument: a column has values that PySpark cannot hand over.
    """
    for field in schema.fields:
        for path, kind in _types(field.name, field.dataType):
            if kind.typeName() in ("yearmonthinterval", "interval"):
                raise InvalidArgument(
                    f"column {path!r} of the {owner} is {kind.simpleString()}, which PySpark cannot hand to "
                    "Python: cast it to text, or leave it out with select()"
                )


def has_map_without_entries(kind: DataType) -> bool:
    """Whether values of the type have maps like ``map()``, whose keys have no type."""
    parts = (part for _, part in _types("", kind) if part.typeName() == "map")
    return any(part.keyType.typeName() == "void" for part in parts)  # pyright: ignore


def has_interval(kind: DataType) -> bool:
    """Whether values of the type have intervals."""
    return any(part.typeName() in _INTERVALS for _, part in _types("", kind))


def intervals_as_text(kind: DataType) -> DataType:
    """The type with text instead of intervals."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(intervals_as_text(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        key, value = intervals_as_text(kind.keyType), intervals_as_text(kind.valueType)
        return MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        fields = kind.fields
        return StructType([StructField(f.name, intervals_as_text(f.dataType), f.nullable) for f in fields])
    return StringType() if kind.typeName() in _INTERVALS else kind


def _unfit(kind: DataType, encoding: str) -> str | None:
    """Why values of a type cannot be sent, and what to do instead."""
    name = kind.typeName()
    if name in _FOR_SPARK_ALONE:
        return "which only Spark can read: make it text, such as with to_json(), or cast it to a plain type"
    if encoding == "raw":
        return None
    if name in _INTERVALS:
        known = "Avro" if encoding == "avro" else "JSON"
        return f"and {known} has no intervals: cast it to text"
    if name != "map":
        return None
    key = without_udt(kind.keyType)  # pyright: ignore[reportAttributeAccessIssue]
    if encoding == "avro" and key.typeName() not in _TEXTS:
        return "and the keys of Avro's maps are text: cast the keys to text, or make it a list of structs"
    if encoding == "json" and key.typeName() in ("struct", "array"):
        return "and JSON has keys of text only: make it a list of structs, with map_entries()"
    return None


def _spelled(name: str, schema: StructType, owner: str) -> str:
    if name in schema.names:
        return name
    alike = [known for known in schema.names if known.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise _missing(name, schema, owner)


def _missing(name: str, schema: StructType, owner: str) -> InvalidArgument:
    hint = ""
    if name.split(".")[0] in schema.names:
        hint = f'; select a field of a struct first: df.select("*", "{name}")'
    return InvalidArgument(f"the {owner} has no column {name!r}, only {', '.join(schema.names)}{hint}")


def _types(path: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """A type and those inside of it, each with its place in the row."""
    kind = without_udt(kind)
    yield path, kind
    of: Any = kind
    if kind.typeName() == "array":
        yield from _types(f"{path}[]", of.elementType)
    elif kind.typeName() == "map":
        yield from _types(f"{path}[key]", of.keyType)
        yield from _types(f"{path}[]", of.valueType)
    elif kind.typeName() == "struct":
        for field in of.fields:
            yield from _types(f"{path}.{field.name}", field.dataType)
