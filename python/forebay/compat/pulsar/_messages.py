"""Received messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay._core.native import PulsarMessage

from ._crypto import EncryptionContext
from ._ids import MessageId, identify
from ._refusals import refuse
from .schema.schema import BytesSchema, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTES = BytesSchema()


class Message:
    """A received message.

    It stands for both ``pulsar.Message`` and ``_pulsar.Message`` of the official module, so a schema's
    ``decode_message`` gets it, too.
    """

    __slots__ = ("__dict__", "__weakref__", "_native", "_schema")

    _native: PulsarMessage
    _schema: Schema

    @property
    def _message(self) -> Message:
        return self

    def data(self) -> bytes:
        """The payload."""
        return self._native.data

    def value(self) -> Any:
        """The payload, decoded by the schema of the consumer."""
        return self._schema.decode_message(self)

    def properties(self) -> dict[str, str]:
        """User-defined metadata."""
        return self._native.properties

    def partition_key(self) -> str:
        """The key; empty without one."""
        return self._native.key or ""

    def ordering_key(self) -> str:
        """The ordering key; empty without one."""
        return (self._native.ordering_key or b"").decode()

    def publish_timestamp(self) -> int:
        """When it was sent, in milliseconds since 1970."""
        return self._native.publish_time

    def event_timestamp(self) -> int:
        """When the event happened, in milliseconds since 1970; 0 if it is not known."""
        return self._native.event_time or 0

    def message_id(self) -> MessageId:
        """The position of the message."""
        return identify(self._native.id)

    def topic_name(self) -> str:
        """Full name of the topic, with the partition."""
        return self._native.topic

    def redelivery_count(self) -> int:
        """Number of earlier deliveries."""
        return self._native.redelivery_count

    def schema_version(self) -> str:
        """Version of the schema, its bytes as text; empty without one."""
        return (self._native.schema_version or b"").decode(errors="surrogateescape")

    def int_schema_version(self) -> int:
        """Version of the schema; -1 without one."""
        version = self._native.schema_version
        return int.from_bytes(version, "big", signed=True) if version else -1

    def producer_name(self) -> str:
        """Name of the producer."""
        return self._native.producer_name

    def has_null_value(self) -> bool:
        """Whether it is a tombstone."""
        return self._native.is_null

    def length(self) -> int:
        """Size of the payload in bytes."""
        return len(self._native.data)

    def encryption_context(self) -> EncryptionContext | None:
        """Encryption of the message; ``None`` if it is not encrypted."""
        return None

    @staticmethod
    def _wrap(_message: Message | PulsarMessage) -> Message:
        return _message if isinstance(_message, Message) else receive(_message, _BYTES)


_new = Message.__new__


def receive(native: PulsarMessage, schema: Schema) -> Message:
    """The message of the engine in this module's class."""
    made = _new(Message)
    made._native = native  # pyright: ignore[reportPrivateUsage]
    made._schema = schema  # pyright: ignore[reportPrivateUsage]
    return made


class MessageBatch:
    """The payload of a batch entry, to be taken apart. Not supported yet."""

    def __init__(self) -> None:
        self._id: MessageId | None = None

    def with_message_id(self, msg_id: MessageId) -> MessageBatch:
        """Sets the id of the entry."""
        if not isinstance(msg_id, MessageId):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("unknown message id type")
        self._id = msg_id
        return self

    def parse_from(self, data: bytes, size: int) -> Sequence[Message]:
        """Takes the payload apart.

        Raises:
            OperationNotSupported: always.
        """
        raise refuse("MessageBatch.parse_from")
