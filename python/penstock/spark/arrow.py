"""Spark's types as Arrow types, the same way with every PySpark from 4.0 on."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def arrow_type(kind: DataType) -> Any:
    """The ``pyarrow.DataType`` of a Spark type; moments are in UTC.

    Raises:
        PySparkTypeError: Arrow has no such type.
    """
    from pyspark.sql.pandas import types

    return types.to_arrow_type(kind, **_zone(types.to_arrow_type))


def arrow_schema(schema: StructType, *, large: bool = False) -> Any:
    """The ``pyarrow.Schema`` of a Spark schema; moments are in UTC. ``large``: with offsets of 64 bits.

    Raises:
        PySparkTypeError: Arrow has no such type.
    """
    from pyspark.sql.pandas import types

    return types.to_arrow_schema(schema, prefers_large_types=large, **_zone(types.to_arrow_schema))


@functools.cache
def _zone(function: Any) -> dict[str, Any]:
    """The argument for moments in UTC, which is the only zone before PySpark 4.2."""
    return {"timezone": "UTC"} if "timezone" in inspect.signature(function).parameters else {}
