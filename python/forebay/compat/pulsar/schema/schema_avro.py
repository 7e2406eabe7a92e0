"""Schemas of Avro. They need the package ``fastavro``."""
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import enum
import io
import json
import logging
from typing import Any, cast

from forebay.compat.pulsar._enums import SchemaType

from .definition import Record
from .schema import Schema

try:
    import fastavro
except ImportError:
    fastavro = None

_log = logging.getLogger("forebay.compat.pulsar")


class AvroSchema(Schema):
    """Records, or dictionaries, as Avro.

    Args:
        record_cls: a subclass of :class:`Record`, or ``None`` for dictionaries.
        schema_definition: the schema of the dictionaries.
    """

    def __init__(self, record_cls: Any, schema_definition: Any = None) -> None:
        if fastavro is None:
            raise ImportError("AvroSchema needs the package fastavro: pip install fastavro")
        if record_cls is None and schema_definition is None:
            raise AssertionError("The param record_cls and schema_definition shouldn't be both None.")
        self._schema = schema_definition if record_cls is None else record_cls.schema()
        self._writers: dict[tuple[str, int], Any] = {}
        super().__init__(record_cls, SchemaType.AVRO, self._schema, "AVRO")

    def _get_serialized_value(self, x: Any) -> Any:
        if isinstance(x, enum.Enum):
            return x.name
        if isinstance(x, Record):
            return self.encode_dict(vars(x))
        if isinstance(x, list):
            return [self._get_serialized_value(item) for item in cast("list[Any]", x)]
        return self.encode_dict(cast("dict[str, Any]", x)) if isinstance(x, dict) else x

    def encode(self, obj: Any) -> bytes:
        """The record as Avro.

        Raises:
            TypeError: not a record of the class.
            ValueError: not a dictionary, of a schema for dictionaries.
        """
        if self._record_cls is not None:
            self._validate_object_type(obj)
            obj = self.encode_dict(vars(obj))
        elif not isinstance(obj, dict):
            raise ValueError("If using the custom schema, the record data should be dict type.")
        buffer = io.BytesIO()
        cast("Any", fastavro).schemaless_writer(buffer, self._schema, obj)
        return buffer.getvalue()

    def encode_dict(self, d: dict[str, Any]) -> dict[str, Any]:
        """The values as Avro knows them."""
        return {name: self._get_serialized_value(value) for name, value in d.items()}

    def decode(self, data: bytes) -> Any:
        """The record of a payload that this schema has written."""
        return self._read(data, self._schema)

    def decode_message(self, msg: Any) -> Any:
        """The record of a message, read by the schema of its writer if the broker has it."""
        version = msg.int_schema_version()
        if self._client is None or version < 0:
            return self.decode(msg.data())
        try:
            return self._read(msg.data(), self._writer(msg.topic_name(), version))
        except Exception as error:
            _log.warning("%s: not read by version %d of the schema: %s", msg.message_id(), version, error)
            return self.decode(msg.data())

    def _writer(self, topic: str, version: int) -> Any:
        if (topic, version) not in self._writers:
            info = self._client.get_schema_info(topic, version)
            if info.schema_type() != SchemaType.AVRO:
                raise RuntimeError(f"the schema is of type {info.schema_type()}")
            self._writers[topic, version] = json.loads(info.schema())
        return self._writers[topic, version]

    def _read(self, data: bytes, writer: Any) -> Any:
        # Avro resolves records of the same name only; the class may have another name than the
        # writer's.
        writer = {**writer, "name": self._schema["name"]}
        value = cast("Any", fastavro).schemaless_reader(io.BytesIO(data), writer, self._schema)
        return value if self._record_cls is None else self._record_cls(**value)
