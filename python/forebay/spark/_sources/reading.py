"""The shared part of sources that have positions: configuration of a read, and columns of its rows."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from forebay._core import protocols
from forebay._core.dataframes import HEADERS, Column, arrow_type
from forebay.errors import InvalidArgument
from forebay.spark._shipping import digest, inherited_for, refuse_embedded, travelling

from .names import Names, read_plan

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from forebay._core.read_plan import ReadPlan

Form: TypeAlias = Literal["batch", "stream"]


@dataclass(frozen=True)
class Source:
    """The particulars of a protocol."""

    protocol: str
    names: Names
    choices: tuple[str, ...]
    """Options that say what to read, of which one is given."""
    refused: Mapping[str, str]
    """Options of the engine that the source does not have, and why."""
    consumer: Mapping[str, Any]
    """Defaults of consumers that are not the engine's."""
    columns: Callable[[Mapping[str, Any]], tuple[Column, ...]]
    """The columns, by the source's own options."""
    ask: Callable[[ReadConfig], Any] = lambda config: None
    """Asks the brokers for what is to be the same as long as a query runs."""
    fix: Callable[[ReadConfig, Any], ReadConfig] = lambda config, answer: config
    """The configuration with the answer of :attr:`ask`."""


@dataclass(frozen=True)
class ReadConfig:
    """Configuration of a read. Made by :func:`read_config`."""

    url: str
    protocol: str
    own: dict[str, Any]
    """The source's own options."""
    client: dict[str, Any] = field(repr=False)
    read: ReadPlan
    """What to read, for the protocol."""
    columns: tuple[Column, ...]
    """All that there are."""
    pool_key: str = field(repr=False)
    decoding: Any = None
    """The schema by which payloads become values, if they do."""


def read_config(source: Source, options: dict[str, Any], form: Form | None = None) -> ReadConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Args:
        source: of the protocol of the URL.
        options: as Spark hands them over.
        form: of the read; options of the other one are refused.

    Raises:
        InvalidArgument: an unknown or missing option, a bad value, or a secret as plain text.
    """
    scopes = (f"{source.protocol}.client", f"{source.protocol}.consumer")
    tables = [protocols.table(scope) for scope in scopes]
    url, own, rest = source.names.split(options, {**tables[0], **tables[1]}, form)
    base, inherited = inherited_for(url)
    refuse_embedded(base)
    chosen = [name for name in source.choices if own[name] is not None]
    if len(chosen) != 1:
        given = f"not {' and '.join(chosen)}" if chosen else "which say what to read"
        *others, last = source.choices
        raise InvalidArgument(f"give one of the options {', '.join(others)} and {last}, {given}")
    client = {name: value for name, value in rest.items() if name in tables[0]}
    consumer = {name: value for name, value in rest.items() if name not in client}
    client = travelling(scopes[0], {**inherited["client"], **client})
    for name in {**protocols.of_url(url)["consumer"], **consumer}:
        if name in source.refused:
            raise InvalidArgument(f"the source has no option {name!r}: {source.refused[name]}")
    # Those of the environment may be for other consumers.
    outside = {name: value for name, value in inherited["consumer"].items() if name not in source.refused}
    consumer = {**source.consumer, **travelling(scopes[1], {**outside, **consumer})}
    columns = source.columns(own)
    if own["includeHeaders"]:
        columns = (*columns, HEADERS)
    read = read_plan(own, consumer)
    return ReadConfig(base, source.protocol, own, client, read, columns, digest(base, client))


def row_schema(config: ReadConfig) -> StructType:
    """The schema of the rows."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = pa.schema([(column.name, arrow_type(column)) for column in config.columns])
    return from_arrow_schema(columns, prefer_timestamp_ntz=True)


def wanted(config: ReadConfig, schema: StructType) -> list[tuple[str, str]]:
    """The content and the name of each column of ``schema``; columns may be left out.

    Raises:
        InvalidArgument: a column that the source does not have, or with another type.
    """
    contents = {column.name: column.content for column in config.columns}
    types = {part.name: part.dataType for part in row_schema(config).fields}
    columns: list[tuple[str, str]] = []
    for part in schema.fields:
        if part.name not in contents:
            raise InvalidArgument(f"the source has no column {part.name!r}, only {', '.join(contents)}")
        if difference := _difference(part.name, types[part.name], part.dataType):
            raise InvalidArgument(f"column {difference}")
        columns.append((contents[part.name], part.name))
    return columns


def _difference(path: str, own: DataType, given: DataType) -> str | None:
    """The first difference of two types, if there is one. Rows may have nulls anywhere."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(own, StructType) and isinstance(given, StructType):
        if own.names != given.names:
            return f"{path!r} has the fields {', '.join(own.names)}, and not {', '.join(given.names)}"
        parts = [
            (f"{path}.{one.name}", one.dataType, other.dataType)
            for one, other in zip(own.fields, given.fields, strict=True)
        ]
    elif isinstance(own, ArrayType) and isinstance(given, ArrayType):
        parts = [(f"{path}[]", own.elementType, given.elementType)]
    elif isinstance(own, MapType) and isinstance(given, MapType):
        parts = [
            (f"{path} (keys)", own.keyType, given.keyType),
            (f"{path} (values)", own.valueType, given.valueType),
        ]
    elif own != given:
        return f"{path!r} is {own.simpleString()}, not {given.simpleString()}"
    else:
        return None
    return next(filter(None, (_difference(*part) for part in parts)), None)
