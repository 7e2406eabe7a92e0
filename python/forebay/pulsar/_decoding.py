"""Payloads as typed columns: the schema by which those of topics become values, and the columns of these."""

# The engine's client is not for users. pyarrow is typed in part only.
# pyright: reportPrivateUsage=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from forebay._core.dataframes import Column
from forebay._core.native import PulsarValues
from forebay.errors import InvalidArgument, TopicNotFound

from ._schema import StoredSchema

if TYPE_CHECKING:
    from forebay.pulsar.blocking import PulsarClient

WHOLE = "decoded"
"""The content of a column that has values; ``decoded.2`` is their third field."""
RECORDS = ("Avro", "Json")
"""Types of schemas whose values may be records."""


@dataclass(frozen=True)
class Decoding:
    """The schema by which payloads become values. It is fixed when a read is planned, and travels with it:
    data of older and of newer versions become values of this one."""

    schema: StoredSchema | None
    """``None``: the topics have none, and values are payloads."""
    spark: bool
    """Whether columns have Spark's types, or else those of Arrow."""
    on_error: Literal["raise", "null"]
    """Whether a payload that cannot be decoded is an error, or null."""

    def native(self) -> PulsarValues | None:
        """The same for the engine.

        Raises:
            Unsupported: such values cannot be columns.
        """
        return self.schema and PulsarValues(self.schema, self.spark, self.on_error == "null")

    def columns(self, columns: Sequence[Column], *, flat: bool) -> tuple[Column, ...]:
        """Columns, with those of the values in the place of the payload's.

        Args:
            columns: columns of messages.
            flat: whether the fields of a record are columns of their own.

        Raises:
            InvalidArgument: a field has the name of another column.
            Unsupported: such values cannot be columns.
        """
        native = self.native()
        if native is None or self.schema is None:
            return tuple(columns)
        kind = _type(native)
        others = {column.name for column in columns if column.content != "value"}
        found: list[Column] = []
        for column in columns:
            if column.content != "value":
                found.append(column)
            elif flat and self.schema.type in RECORDS and _is_struct(kind):
                found += _fields(kind, others)
            else:
                found.append(Column(column.name, WHOLE, "", kind))
        return tuple(found)


def decoding_of(
    client: PulsarClient, topics: Iterable[str], *, spark: bool, on_error: Literal["raise", "null"]
) -> Decoding:
    """The decoding by the newest schema of topics.

    Args:
        client: asks for it.
        topics: their full names.
        spark: whether columns have Spark's types.
        on_error: whether a payload that cannot be decoded is an error, or null.

    Raises:
        InvalidArgument: the topics have different schemas.
    """
    # All of them at once.
    asked = [(topic, client._native.schema(topic, None)) for topic in dict.fromkeys(topics)]
    found: list[tuple[str, StoredSchema | None]] = []
    for topic, answer in asked:
        schema = None
        with contextlib.suppress(TopicNotFound):
            schema = StoredSchema(*answer.wait())
        found.append((topic, schema))
        if _meaning(schema) != _meaning(found[0][1]):
            first = found[0]
            raise InvalidArgument(
                f"the topics {first[0]} and {topic} have different schemas ({_named(first[1])} and"
                f" {_named(schema)}), and a column has one type: read them one by one, or with decode=false"
            )
    return Decoding(found[0][1] if found else None, spark, on_error)


def _meaning(schema: StoredSchema | None) -> Any:
    """The parts of a schema that decide what values are, to be compared."""
    if schema is None:
        return None
    try:
        definition = json.loads(schema.definition)
    except ValueError:
        definition = schema.definition
    # Those of a pair have the types of its parts.
    return schema.type, definition, sorted(schema.properties) if schema.type == "KeyValue" else None


def _named(schema: StoredSchema | None) -> str:
    if schema is None:
        return "none"
    text = schema.definition.decode(errors="replace")
    return f"{schema.type} {text if len(text) <= 200 else text[:200] + '…'}".strip()


def _type(native: PulsarValues) -> Any:
    import pyarrow

    return pyarrow.record_batch(native.table()).schema.field("value").type


def _is_struct(kind: Any) -> bool:
    from pyarrow import types

    return types.is_struct(kind)


def _fields(kind: Any, others: set[str]) -> list[Column]:
    """The fields of records as columns."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    if taken := sorted(field.name for field in fields if field.name in others):
        raise InvalidArgument(
            f"the values have a field {taken[0]!r}, which is the name of another column: use"
            ' columns="kafka", where the values are one column, or decode=false'
        )
    return [Column(field.name, f"{WHOLE}.{number}", "", field.type) for number, field in enumerate(fields)]
