"""Schemas: what the payloads of a topic are, which the broker keeps and checks.

>>> from dataclasses import dataclass
>>> from forebay.pulsar import Schema
>>> @dataclass
... class Order:
...     number: int
...     note: str | None = None
>>> schema = Schema.avro(Order)
>>> schema.decode(schema.encode(Order(7)))
Order(number=7, note=None)
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
import sys
import types
import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from forebay._core.native import PulsarSchema, avro_definition
from forebay.errors import InvalidArgument, SchemaError
from forebay.pulsar import _protobuf, _pydantic
from forebay.pulsar._typing import T

__all__ = ["Avro", "KeyValue", "Primitive", "Schema", "StoredSchema"]

Primitive = Literal[
    "bytes",
    "string",
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "instant",
    "local_date",
    "local_time",
    "local_date_time",
]
"""Types that need no definition, by their names in Pulsar."""

_NAMES = {
    "bytes": "Bytes",
    "string": "String",
    "boolean": "Boolean",
    "float": "Float",
    "double": "Double",
    "date": "Date",
    "time": "Time",
    "timestamp": "Timestamp",
    "instant": "Instant",
    "local_date": "LocalDate",
    "local_time": "LocalTime",
    "local_date_time": "LocalDateTime",
}
# What the Java client states for classes.
_PROPERTIES = (("__alwaysAllowNull", "true"), ("__jsr310ConversionEnabled", "false"))
_MAX_DEPTH = 64


class ArrowSchema(Protocol):
    """An Arrow schema of any library."""

    def __arrow_c_schema__(self) -> object: ...


class Avro:
    """The Avro type of a field, where the Python type leaves a choice: ``Annotated[int, Avro("int")]``,
    ``Annotated[Decimal, Avro({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})]``.

    Args:
        type: an Avro type, by name or as a definition.
    """

    def __init__(self, type: str | Mapping[str, Any]) -> None:
        self.type = type


S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


class KeyValue(NamedTuple, Generic[K, V]):
    """A value of a schema made by :meth:`Schema.key_value`. Either part may be ``None``, which is null."""

    key: K
    """The key."""
    value: V
    """The value."""


class StoredSchema(NamedTuple):
    """A schema as the broker has it."""

    type: str
    """Its type: ``"Avro"``, ``"Json"``, ``"String"`` ..."""
    name: str
    """Its name."""
    definition: bytes
    """Its definition; empty for types that need none."""
    properties: list[tuple[str, str]]
    """Its properties."""


class Schema(Generic[T]):
    """The form of values as payloads. Give one to ``client.producer(..., schema=...)`` and
    ``client.consumer(..., schema=...)``; a dataclass, a pydantic model or the name of a primitive type
    stands for its schema there. Type checkers see the type of its values, ``Schema[Order]``.

    Made by :meth:`avro`, :meth:`json`, :meth:`primitive`, :meth:`protobuf_native`, :meth:`protobuf`,
    :meth:`key_value` and :meth:`auto`.
    ``Schema(type, name, definition, raw=True)`` declares a schema to the broker, also a ``"protobuf_native"``
    one, whose payloads the program encodes and decodes itself: values are bytes.
    """

    @overload
    def __init__(
        self: Schema[bytes],
        type: str,
        name: str,
        definition: str | None = None,
        *,
        properties: Sequence[tuple[str, str]] = (),
        raw: Literal[True],
    ) -> None: ...
    @overload
    def __init__(
        self,
        type: str,
        name: str,
        definition: str | None = None,
        classes: Sequence[tuple[str, type]] = (),
        properties: Sequence[tuple[str, str]] = (),
        *,
        raw: bool = False,
    ) -> None: ...
    def __init__(
        self,
        type: str,
        name: str,
        definition: str | None = None,
        classes: Sequence[tuple[str, type]] = (),
        properties: Sequence[tuple[str, str]] = (),
        *,
        raw: bool = False,
    ) -> None:
        self.type = type
        """Type of the schema, as in Pulsar, in small letters."""
        self.definition = definition
        """The definition, of Avro or of protobuf's descriptors; ``None`` for types that need none."""
        self._parts: tuple[Schema[Any], Schema[Any], str] | None = None
        encoded = None if definition is None else definition.encode()
        self._native: PulsarSchema = PulsarSchema(type, name, encoded, list(properties), list(classes), raw)

    @overload
    @staticmethod
    def avro(of: type[S]) -> Schema[S]: ...
    @overload
    @staticmethod
    def avro(of: Mapping[str, Any] | str) -> Schema[Any]: ...
    @overload
    @staticmethod
    def avro(of: ArrowSchema, *, name: str | None = None) -> Schema[dict[str, Any]]: ...
    @staticmethod
    def avro(
        of: type[Any] | Mapping[str, Any] | str | ArrowSchema, *, name: str | None = None
    ) -> Schema[Any]:
        """A schema whose payloads are Avro data.

        Args:
            of: a dataclass or a pydantic model, whose instances are the values; an Avro definition, as a
                dictionary or JSON text; or an Arrow schema, as of pyarrow or polars. Records of the last two
                are dictionaries.
            name: of the record of an Arrow schema; ``"Row"`` by default.

        Raises:
            SchemaError: the definition cannot be used, or a field has a type without a counterpart in Avro.
            InvalidArgument: ``name`` is given, and ``of`` has a name of its own.
        """
        return _structured("avro", of, name)

    @overload
    @staticmethod
    def json(of: type[S]) -> Schema[S]: ...
    @overload
    @staticmethod
    def json(of: Mapping[str, Any] | str) -> Schema[Any]: ...
    @overload
    @staticmethod
    def json(of: ArrowSchema, *, name: str | None = None) -> Schema[dict[str, Any]]: ...
    @staticmethod
    def json(
        of: type[Any] | Mapping[str, Any] | str | ArrowSchema, *, name: str | None = None
    ) -> Schema[Any]:
        """A schema whose payloads are JSON. Arguments and errors are those of :meth:`avro`."""
        return _structured("json", of, name)

    @overload
    @staticmethod
    def primitive(name: Literal["bytes"]) -> Schema[bytes]: ...
    @overload
    @staticmethod
    def primitive(name: Literal["string"]) -> Schema[str]: ...
    @overload
    @staticmethod
    def primitive(name: Literal["boolean"]) -> Schema[bool]: ...
    @overload
    @staticmethod
    def primitive(name: Literal["int8", "int16", "int32", "int64"]) -> Schema[int]: ...
    @overload
    @staticmethod
    def primitive(name: Literal["float", "double"]) -> Schema[float]: ...
    @overload
    @staticmethod
    def primitive(name: Literal["local_date"]) -> Schema[date]: ...
    @overload
    @staticmethod
    def primitive(name: Literal["time", "local_time"]) -> Schema[time]: ...
    @overload
    @staticmethod
    def primitive(
        name: Literal["date", "timestamp", "instant", "local_date_time"],
    ) -> Schema[datetime]: ...
    @overload
    @staticmethod
    def primitive(name: Primitive) -> Schema[Any]: ...
    @staticmethod
    def primitive(name: Primitive) -> Schema[Any]:
        """A schema of a type that needs no definition.

        Raises:
            InvalidArgument: there is no such type.
        """
        if name not in get_args(Primitive):
            raise InvalidArgument(
                f"no primitive schema {name!r}: use one of {', '.join(get_args(Primitive))}"
            )
        return Schema(name, _NAMES.get(name, name.upper()))

    @staticmethod
    def protobuf_native(of: type[S]) -> Schema[S]:
        """A schema whose payloads are messages of protobuf; the broker has their descriptors.

        Args:
            of: a class that was generated by protobuf, whose instances are the values.

        Raises:
            ImportError: the package ``protobuf`` is not installed.
            SchemaError: it is no such class.
        """
        _protobuf.check(of)
        classes, properties = [(of.__name__, of)], _protobuf.parsing_info(of)
        return Schema("protobuf_native", "", _protobuf.native(of), classes, properties)

    @staticmethod
    def protobuf(of: type[S]) -> Schema[S]:
        """As :meth:`protobuf_native`, for topics whose schema is of the type PROTOBUF: the broker has an Avro
        definition of the messages, as the Java client derives it."""
        _protobuf.check(of)
        classes, properties = [(of.__name__, of)], _protobuf.parsing_info(of)
        return Schema("protobuf", "", _protobuf.avro(of), classes, properties)

    @overload
    @staticmethod
    def key_value(
        key: Schema[K] | type[K],
        value: Schema[V] | type[V],
        encoding: Literal["inline", "separated"] = "inline",
    ) -> Schema[KeyValue[K, V]]: ...
    @overload
    @staticmethod
    def key_value(
        key: str,
        value: Schema[V] | type[V],
        encoding: Literal["inline", "separated"] = "inline",
    ) -> Schema[KeyValue[Any, V]]: ...
    @overload
    @staticmethod
    def key_value(
        key: Schema[Any] | type[Any] | str,
        value: Schema[Any] | type[Any] | str,
        encoding: Literal["inline", "separated"] = "inline",
    ) -> Schema[KeyValue[Any, Any]]: ...
    @staticmethod
    def key_value(
        key: Schema[Any] | type[Any] | str,
        value: Schema[Any] | type[Any] | str,
        encoding: Literal["inline", "separated"] = "inline",
    ) -> Schema[Any]:
        """A schema of pairs, whose values are :class:`KeyValue` or tuples of two.

        Args:
            key: the schema of keys, or what stands for one.
            value: the schema of values, or what stands for one.
            encoding: ``"inline"`` has both in the payload. With ``"separated"`` the payload is the value, and
                the key is that of the message, which chooses the partition and is what compaction goes by:
                ``send`` takes no other key then, and a value of ``None`` is a tombstone.

        Raises:
            InvalidArgument: a part is itself a pair or "auto", or there is no such encoding.
        """
        if encoding not in ("inline", "separated"):
            raise InvalidArgument(f'no encoding {encoding!r} of pairs: use "inline" or "separated"')
        parts = schema_of(key), schema_of(value)
        made = Schema("key_value", "KeyValue", raw=True)
        made._native = PulsarSchema.key_value(parts[0]._native, parts[1]._native, encoding == "separated")
        made._parts = (*parts, encoding)
        return made

    @staticmethod
    def auto() -> Schema[Any]:
        """For consumers of whatever a topic has: values are those of the schema that each message was written
        with. Records are dictionaries. For producers of bytes, which must fit the schema that the topic has
        when they are opened; if it has none then, any do."""
        return Schema("auto", "AutoConsume")

    def encode(self, value: T) -> bytes:
        """The payload of a value; of a pair, whatever its encoding, as if it were inline.

        Raises:
            SchemaError: the value does not fit the schema; names the field, and what was expected.
        """
        return self._native.encode(value)

    def decode(self, payload: bytes) -> T:
        """The value of a payload that was written with this schema.

        Raises:
            SchemaError: the payload does not fit the schema.
        """
        return self._native.decode(payload)

    def __repr__(self) -> str:
        if self._parts:
            key, value, encoding = self._parts
            return f"Schema.key_value({key!r}, {value!r}, {encoding!r})"
        return (
            f"Schema({self.type!r})"
            if self.definition is None
            else f"Schema({self.type!r}, {self.definition})"
        )


def schema_of(value: Any) -> Schema[Any]:
    """The schema that the option ``schema`` stands for."""
    if isinstance(value, Schema):
        return cast("Schema[Any]", value)
    if value == "auto":
        return Schema.auto()
    if isinstance(value, str) and value in get_args(Primitive):
        return Schema.primitive(cast("Primitive", value))
    simple: dict[Any, Primitive] = {
        bytes: "bytes",
        str: "string",
        bool: "boolean",
        int: "int64",
        float: "double",
    }
    if isinstance(value, type) and value in simple:
        return Schema.primitive(simple[value])
    if isinstance(value, type) and _fields(value) is not None:
        return Schema.json(value)
    wanted = 'a Schema, a dataclass, a pydantic model, "auto" or a primitive type'
    raise InvalidArgument(f"'schema': expected {wanted}, not {value!r}")


def _structured(
    kind: str, of: type[Any] | Mapping[str, Any] | str | ArrowSchema, name: str | None
) -> Schema[Any]:
    if not isinstance(of, type | Mapping | str) and hasattr(of, "__arrow_c_schema__"):
        row = name or "Row"
        return Schema(kind, row, avro_definition(of, row))
    if name is not None:
        raise InvalidArgument("'name' is for Arrow schemas: classes and definitions have names of their own")
    if isinstance(of, str):
        return Schema(kind, "", of)
    if isinstance(of, Mapping):
        try:
            return Schema(kind, "", json.dumps(of))
        except (TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"the Avro definition is no JSON: {error}") from error
    if not isinstance(of, type) or _fields(of) is None:
        raise SchemaError(f"{of!r} is neither a dataclass, a pydantic model nor an Arrow schema")
    maker = _Maker()
    definition = json.dumps(maker.type(of, of.__name__, 0))
    return Schema(kind, of.__name__, definition, maker.classes, _PROPERTIES)


def _fields(of: Any) -> dict[str, Any] | None:
    """Fields of a class with their defaults; ``None`` if it is neither a dataclass nor a pydantic model."""
    if dataclasses.is_dataclass(of):
        return {field.name: _default(field) for field in dataclasses.fields(of) if field.init}
    return _pydantic.fields(of) if _pydantic.is_model(of) else None


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is dataclasses.MISSING:
        return _pydantic.MISSING
    return _pydantic.made_by(field.default_factory)


_SIMPLE: dict[Any, Any] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}


class _Maker:
    """Makes a definition of classes."""

    def __init__(self) -> None:
        self.classes: list[tuple[str, type]] = []
        self._names: dict[type, str] = {}

    def type(self, of: Any, path: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise SchemaError(f"{path}: types are nested more than {_MAX_DEPTH} deep")
        origin, arguments = get_origin(of), get_args(of)
        if origin is Annotated:
            for note in arguments[1:]:
                if isinstance(note, Avro):
                    return note.type
            return self.type(arguments[0], path, depth + 1)
        if origin in (Union, types.UnionType):
            return [self.type(branch, path, depth + 1) for branch in _null_first(arguments)]
        if origin in (list, Sequence) and len(arguments) == 1:
            return {"type": "array", "items": self.type(arguments[0], path, depth + 1)}
        if origin in (dict, Mapping) and len(arguments) == 2 and arguments[0] is str:
            return {"type": "map", "values": self.type(arguments[1], path, depth + 1)}
        if of is None:
            return "null"
        if of in _SIMPLE:
            return _SIMPLE[of]
        if of is Decimal:
            raise SchemaError(
                f"{path}: a Decimal needs its precision and scale: Annotated[Decimal, Avro({{'type': 'bytes',"
                " 'logicalType': 'decimal', 'precision': 12, 'scale': 2})]"
            )
        if isinstance(of, type):
            if name := self._names.get(of):
                return name
            if issubclass(of, enum.Enum):
                return {
                    "type": "enum",
                    "name": self._name(of, path),
                    "symbols": [member.name for member in of],
                }
            if (fields := _fields(of)) is not None:
                return self._record(cast("type[Any]", of), fields, path, depth)
        raise SchemaError(f"{path}: {of!r} has no counterpart in Avro: annotate it with Avro(...)")

    def _name(self, of: type, path: str) -> str:
        # Those of generic models have brackets.
        name = re.sub(r"\W+", "_", of.__name__).strip("_")
        if name in self._names.values():
            raise SchemaError(f"{path}: two types are called {name}")
        self._names[of] = name
        self.classes.append((name, _pydantic.maker(of)))
        return name

    def _record(self, of: type, fields: dict[str, Any], path: str, depth: int) -> Any:
        name = self._name(of, path)
        hints = _pydantic.hints(of) if _pydantic.is_model(of) else None
        try:
            hints = hints or get_type_hints(of, localns=_names_around(of), include_extras=True)
        except NameError as error:
            raise SchemaError(
                f"{path}: {error}: define the class where its annotations can be resolved"
            ) from error
        made: list[dict[str, Any]] = []
        for field, default in fields.items():
            kind = self.type(hints[field], f"{path}.{field}", depth + 1)
            made.append({"name": field, "type": kind, **_stated(kind, default)})
        return {"type": "record", "name": name, "fields": made}


def _names_around(of: type) -> dict[str, Any]:
    """Names where the program makes the schema: annotations that are text may name what is in a function. If
    the class is of another module, the names of that one come first."""
    frame = inspect.currentframe()
    while frame and str(frame.f_globals.get("__name__")).split(".")[0] == "forebay":
        frame = frame.f_back
    names = {} if frame is None else {**frame.f_globals, **frame.f_locals}
    if names.get("__name__") != of.__module__ and of.__module__ in sys.modules:
        names |= vars(sys.modules[of.__module__])
    return names


def _null_first(branches: tuple[Any, ...]) -> list[Any]:
    """As in Java's definitions: a default of null has to be that of the first branch."""
    return sorted(branches, key=lambda branch: branch is not type(None))


def _stated(kind: Any, default: Any) -> dict[str, Any]:
    """A default as the definition states it, if it can: what readers use for data without the field."""
    branches = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    first: Any = branches[0]
    if default is None and first == "null":
        return {"default": None}
    if isinstance(kind, list):
        return {}
    if isinstance(default, enum.Enum):
        return {"default": default.name}
    plain = {"boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str}
    if isinstance(first, str) and type(default) is plain.get(first):
        return {} if isinstance(default, float) and default - default != 0 else {"default": default}
    if (
        isinstance(first, dict)
        and cast("dict[str, Any]", first).get("type") in ("array", "map")
        and default in ([], {})
    ):
        return {"default": default}
    return {}
