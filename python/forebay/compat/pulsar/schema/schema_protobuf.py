"""Schemas of Protocol Buffers. They need the package ``protobuf``."""
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import base64
from typing import Any

from forebay.compat.pulsar._enums import SchemaType

from .schema import Schema

try:
    from google.protobuf import descriptor_pb2, message
except ImportError:
    descriptor_pb2 = message = None


def _collect(file: Any, found: dict[str, Any]) -> None:
    """Adds a file after those that it depends on."""
    if file.name not in found:
        for dependency in file.dependencies:
            _collect(dependency, found)
        found[file.name] = file


def _definition(descriptor: Any) -> dict[str, str]:
    files: dict[str, Any] = {}
    _collect(descriptor.file, files)
    everything: Any = descriptor_pb2.FileDescriptorSet()  # pyright: ignore[reportOptionalMemberAccess]
    for file in files.values():
        file.CopyToProto(everything.file.add())
    return {
        "fileDescriptorSet": base64.b64encode(everything.SerializeToString()).decode(),
        "rootMessageTypeName": descriptor.full_name,
        "rootFileDescriptorName": descriptor.file.name,
    }


class ProtobufNativeSchema(Schema):
    """Messages of Protocol Buffers.

    Args:
        record_cls: a generated class of messages.

    Raises:
        ImportError: the package is not installed.
        TypeError: not such a class.
    """

    def __init__(self, record_cls: Any) -> None:
        if message is None:
            raise ImportError("ProtobufNativeSchema needs the package protobuf: pip install protobuf")
        if not (isinstance(record_cls, type) and issubclass(record_cls, message.Message)):
            raise TypeError(f"record_cls must be a protobuf Message subclass, got {record_cls!r}")
        definition = _definition(record_cls.DESCRIPTOR)
        super().__init__(record_cls, SchemaType.PROTOBUF_NATIVE, definition, "PROTOBUF_NATIVE")

    def encode(self, obj: Any) -> bytes:
        """The message as bytes."""
        self._validate_object_type(obj)
        return obj.SerializeToString()

    def decode(self, data: bytes) -> Any:
        """The message of a payload."""
        return self._record_cls.FromString(data)

    def __str__(self) -> str:
        return f"ProtobufNativeSchema({self._record_cls.__name__})"
