"""Schemas of bytes, text and JSON."""

from __future__ import annotations

import enum
import json
from abc import abstractmethod
from typing import Any

from forebay.compat.pulsar._enums import SchemaType

RESERVED = ("_default", "_required", "_required_default")
"""Attributes of a record that are no fields."""


class SchemaInfo:
    """A schema as the broker stores it.

    Args:
        schema_type: its type.
        name: its name.
        schema: its definition.
    """

    def __init__(self, schema_type: SchemaType, name: str, schema: str) -> None:
        self._values = schema_type, name, schema

    def schema_type(self) -> SchemaType:
        """Type of the schema."""
        return self._values[0]

    def name(self) -> str:
        """Name of the schema."""
        return self._values[1]

    def schema(self) -> str:
        """Definition of the schema."""
        return self._values[2]


class Schema:
    """Conversion between objects and payloads, and the schema that the broker is told of.

    Args:
        record_cls: the class of the objects.
        schema_type: type of the schema.
        schema_definition: its definition, to be written as JSON.
        schema_name: its name.
    """

    _client: Any = None

    def __init__(
        self, record_cls: Any, schema_type: SchemaType, schema_definition: Any, schema_name: str
    ) -> None:
        self._record_cls = record_cls
        self._schema_info = SchemaInfo(schema_type, schema_name, json.dumps(schema_definition, indent=True))

    @property
    def declares(self) -> bool:
        """Whether the broker has to be told of the schema."""
        return self._schema_info.schema_type() not in (SchemaType.BYTES, SchemaType.NONE)

    @abstractmethod
    def encode(self, obj: Any) -> bytes:
        """The payload of an object."""
        ...

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """The object of a payload."""

    def decode_message(self, msg: Any) -> Any:
        """The object of a message."""
        return self.decode(msg.data())

    def schema_info(self) -> SchemaInfo:
        """The schema as the broker stores it."""
        return self._schema_info

    def attach_client(self, client: Any) -> None:
        """Sets the client that fetches the schemas of writers."""
        self._client = client

    def _validate_object_type(self, obj: Any) -> None:
        if not isinstance(obj, self._record_cls):
            raise TypeError(f"Invalid record obj of type {type(obj)} - expected type is {self._record_cls}")


class BytesSchema(Schema):
    """Payloads as they are."""

    def __init__(self) -> None:
        super().__init__(bytes, SchemaType.BYTES, None, "BYTES")

    def encode(self, data: bytes) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The payload itself."""
        self._validate_object_type(data)
        return data

    def decode(self, data: bytes) -> bytes:
        """The payload itself."""
        return data

    def __str__(self) -> str:
        return "BytesSchema"


class StringSchema(Schema):
    """Text in UTF-8."""

    def __init__(self) -> None:
        super().__init__(str, SchemaType.STRING, None, "STRING")

    def encode(self, obj: str) -> bytes:
        """The text in UTF-8."""
        self._validate_object_type(obj)
        return obj.encode()

    def decode(self, data: bytes) -> str:
        """The text of a payload in UTF-8."""
        return data.decode()

    def __str__(self) -> str:
        return "StringSchema"


def fields_of(record: Any) -> dict[str, Any]:
    """The values of a record's fields."""
    values: dict[str, Any] = dict(record.__dict__)
    for name in RESERVED:
        values.pop(name, None)
    return values


class JsonSchema(Schema):
    """Records as JSON.

    Args:
        record_cls: a subclass of :class:`Record`.
    """

    def __init__(self, record_cls: Any) -> None:
        super().__init__(record_cls, SchemaType.JSON, record_cls.schema(), "JSON")

    def _get_serialized_value(self, o: Any) -> Any:
        if isinstance(o, enum.Enum):
            return o.value
        return o.decode() if isinstance(o, bytes) else fields_of(o)

    def encode(self, obj: Any) -> bytes:
        """The record as JSON."""
        self._validate_object_type(obj)
        return json.dumps(fields_of(obj), default=self._get_serialized_value, indent=True).encode()

    def decode(self, data: bytes) -> Any:
        """The record of a payload."""
        return self._record_cls(**json.loads(data))
