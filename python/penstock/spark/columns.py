"""The columns that a write names, and the frame's schema."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from penstock._frames import is_template
from penstock.errors import InvalidArgument

from . import errors
from .config import ROLES, SinkConfig

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

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


def fitted(config: SinkConfig, schema: StructType, owner: str) -> SinkConfig:
    """The configuration with its columns as the schema spells them; like Spark's, names in arguments do not
    depend on case.

    Args:
        config: the configuration.
        schema: of the rows.
        owner: the object that has it, for errors.

    Raises:
        InvalidArgument: a column does not exist, or its type does not fit its role.
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
            raise errors.no_key(f"the key column {config.key!r} is {kind}")
    for role, (families, wanted) in _FITTING.items():
        name = getattr(config, role)
        if name is not None and _family(kind := schema[name].dataType.simpleString()) not in families:
            raise InvalidArgument(f"{role}={name!r} is {kind}, and has to be a column of {wanted}")
    for name in config.columns() if config.encoding == "raw" else schema.names:
        if _has_variant(schema[name].dataType):
            raise InvalidArgument(
                f"column {name!r} is or has a VARIANT, which only Spark can read: make it text with "
                "to_json(), or cast it to its type"
            )
    return config


def _family(kind: str) -> str:
    """A type without its parameters."""
    return re.split(r"[ (<]", kind, maxsplit=1)[0]


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


def _has_variant(kind: DataType) -> bool:
    if kind.typeName() == "variant":
        return True
    inside = [getattr(kind, part, None) for part in ("elementType", "keyType", "valueType")]
    inside += [field.dataType for field in getattr(kind, "fields", [])]
    return any(_has_variant(part) for part in inside if part is not None)
