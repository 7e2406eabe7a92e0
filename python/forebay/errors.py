"""The errors of forebay: one hierarchy under :class:`Error`, one class per code of the engine.

Each error has a ``code`` (stable text), the ``topic`` concerned, ``retriable`` (the same call may succeed
later without a change by the caller) and ``broker_text`` (the broker's own words, made safe to log). Errors
can be pickled, so that they travel from a Spark worker to the driver.

>>> from forebay.errors import Error, QueueFull
>>> error = QueueFull("the window is full", topic="orders")
>>> error.code, error.retriable, isinstance(error, Error)
('queue_full', True, True)
>>> str(error)
'the window is full (topic orders)'
"""

from __future__ import annotations

import builtins
from typing import Any, ClassVar

__all__ = [
    "BY_CODE",
    "AuthenticationError",
    "AuthorizationError",
    "Cancelled",
    "ChecksumError",
    "Closed",
    "CompressionError",
    "ConnectFailed",
    "ConsumerAssign",
    "ConsumerBusy",
    "ConsumerNotFound",
    "DataLost",
    "Disconnected",
    "EndOfTopic",
    "Error",
    "ForkError",
    "FrameTooLarge",
    "IncompatibleSchema",
    "InvalidArgument",
    "InvalidTopic",
    "InvalidTransaction",
    "IoError",
    "MemoryLimit",
    "MessageTooLarge",
    "MetadataError",
    "NotAllowed",
    "PersistenceError",
    "ProducerBusy",
    "ProducerFenced",
    "ProtocolError",
    "QueueFull",
    "QuotaExceeded",
    "SchemaError",
    "ServiceNotReady",
    "SessionTakenOver",
    "SubscriptionNotFound",
    "Timeout",
    "TlsError",
    "TooManyRequests",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionNotFound",
    "TruncatedError",
    "UnknownError",
    "Unsupported",
    "UnsupportedVersion",
    "from_engine",
]


BY_CODE: dict[str, type[Error]] = {}
"""Error code of the engine -> class."""


class Error(Exception):
    """Base of all errors of this package.

    Args:
        message: what happened and what to do, without the topic and the broker's words.
        topic: the topic concerned.
        retriable: overrides the default of the class.
        broker_text: the broker's own words.
    """

    code: str = "unknown"
    retriable: bool = False
    _usually_retriable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str | None = None, retriable: bool = False, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if code is not None:
            cls.code = code
            cls._usually_retriable = retriable
            BY_CODE[code] = cls

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        retriable: bool | None = None,
        broker_text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.broker_text = broker_text
        self.retriable = self._usually_retriable if retriable is None else retriable

    def __str__(self) -> str:
        text = self.message
        if self.topic:
            text += f" (topic {self.topic})"
        if self.broker_text:
            text += f": the broker says {self.broker_text!r}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.code, self.message, self.topic, self.retriable, self.broker_text)
        return (_rebuild, (type(self), *state))


def _rebuild(
    kind: type[Error], code: str, message: str, topic: str | None, retriable: bool, broker_text: str | None
) -> Error:
    error = kind(message, topic=topic, retriable=retriable, broker_text=broker_text)
    error.code = code
    return error


class AuthenticationError(Error, builtins.PermissionError, code="authentication"):
    """The broker rejected the credentials, or requires some."""


class AuthorizationError(Error, builtins.PermissionError, code="authorization"):
    """The client is not authorized for this operation."""


class Cancelled(Error, code="cancelled"):
    """The operation was cancelled by the caller. It may still take effect."""


class ChecksumError(Error, code="checksum", retriable=True):
    """A CRC-32C checksum did not match."""


class Closed(Error, code="closed"):
    """The handle was used after it had been closed."""


class CompressionError(Error, code="compression"):
    """Compressed data is corrupt, or exceeds the size limit when decompressed."""


class ConnectFailed(Error, builtins.ConnectionError, code="connect_failed", retriable=True):
    """No address of the service accepted a connection."""


class ConsumerBusy(Error, code="consumer_busy", retriable=True):
    """The subscription already has an exclusive consumer."""


class ConsumerAssign(Error, code="consumer_assign", retriable=True):
    """The broker could not assign the consumer."""


class ConsumerNotFound(Error, code="consumer_not_found", retriable=True):
    """The broker does not know the consumer."""


class DataLost(Error, code="data_lost"):
    """Messages that were to be read were deleted before."""


class Disconnected(Error, builtins.ConnectionError, code="disconnected", retriable=True):
    """The connection ended."""


class FrameTooLarge(Error, code="frame_too_large"):
    """A frame exceeds the negotiated size limit."""


class EndOfTopic(Error, code="end_of_topic"):
    """The topic was terminated, and every message of it is acknowledged: no more will come."""


class ForkError(Error, builtins.RuntimeError, code="fork"):
    """The client was created before a fork and used in the child process."""


class IncompatibleSchema(Error, code="incompatible_schema"):
    """The schema is incompatible with the one of the topic."""


class InvalidArgument(Error, builtins.ValueError, code="invalid_argument"):
    """An argument or option is not valid."""


class InvalidTopic(Error, builtins.ValueError, code="invalid_topic"):
    """The topic name is not valid."""


class InvalidTransaction(Error, code="invalid_transaction"):
    """The transaction is not in a state that allows this."""


class IoError(Error, builtins.OSError, code="io", retriable=True):
    """The operating system reported an I/O error."""


class MemoryLimit(Error, code="memory_limit", retriable=True):
    """The memory limit of the client is reached."""


class MessageTooLarge(Error, builtins.ValueError, code="message_too_large"):
    """The message exceeds the broker's size limit."""


class MetadataError(Error, code="metadata", retriable=True):
    """The broker could not read or write its metadata."""


class NotAllowed(Error, code="not_allowed"):
    """The operation is not allowed in this state or for this kind of handle."""


class PersistenceError(Error, code="persistence", retriable=True):
    """The broker could not store the data."""


class ProducerBusy(Error, code="producer_busy", retriable=True):
    """Another producer with this name, or an exclusive one, is connected."""


class ProducerFenced(Error, code="producer_fenced"):
    """Another producer took over. This one cannot be used any more."""


class SessionTakenOver(Error, code="session_taken_over"):
    """Another client took over the MQTT client id. This one does not reconnect."""


class ProtocolError(Error, code="protocol", retriable=True):
    """The peer violated the protocol."""


class QueueFull(Error, code="queue_full", retriable=True):
    """The send window and its overflow queue are full."""


class QuotaExceeded(Error, code="quota_exceeded", retriable=True):
    """The backlog quota or the size limit of the store is reached."""


class SchemaError(Error, builtins.ValueError, code="schema"):
    """A value or a payload does not fit its schema, or a schema cannot be used or got."""


class ServiceNotReady(Error, code="service_not_ready", retriable=True):
    """The broker is not ready for the operation yet."""


class SubscriptionNotFound(Error, builtins.LookupError, code="subscription_not_found"):
    """The subscription does not exist."""


class Timeout(Error, builtins.TimeoutError, code="timeout", retriable=True):
    """The operation did not complete within its time limit."""


class TlsError(Error, builtins.ConnectionError, code="tls"):
    """The TLS handshake failed: certificate, host name or configuration."""


class TooManyRequests(Error, code="too_many_requests", retriable=True):
    """The broker asks the client to slow down."""


class TopicNotFound(Error, builtins.LookupError, code="topic_not_found"):
    """The topic or namespace does not exist."""


class TopicTerminated(Error, code="topic_terminated"):
    """The topic is terminated and accepts no more messages."""


class TransactionConflict(Error, code="transaction_conflict"):
    """Two transactions conflict."""


class TransactionNotFound(Error, code="transaction_not_found", retriable=True):
    """The broker does not know the transaction or its coordinator."""


class TruncatedError(Error, code="truncated"):
    """The data ended in the middle of a value."""


class UnknownError(Error, code="unknown", retriable=True):
    """The broker gave an error code that this version does not know."""


class Unsupported(Error, builtins.NotImplementedError, code="unsupported"):
    """The protocol or this build does not support the operation."""


class UnsupportedVersion(Error, code="unsupported_version"):
    """The broker does not support this protocol version."""


def from_engine(
    code: str, message: str, topic: str | None, retriable: bool, broker_text: str | None
) -> Error:
    """The exception for an error of the engine. An unknown code becomes :class:`UnknownError` and is kept."""
    kind = BY_CODE.get(code, UnknownError)
    return _rebuild(kind, code, message, topic, retriable, broker_text)
