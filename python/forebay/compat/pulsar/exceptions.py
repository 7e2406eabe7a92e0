"""The exceptions: one class for each :class:`~forebay.compat.pulsar.Result` but ``Ok``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar, TypeVar

from forebay import errors

from ._enums import Result

if TYPE_CHECKING:
    from forebay._core.types import Pending
    from forebay._engine import Waiter

T = TypeVar("T")

__all__ = [
    "PulsarException",
    "UnknownError",
    "InvalidConfiguration",
    "Timeout",
    "LookupError",
    "ConnectError",
    "ReadError",
    "AuthenticationError",
    "AuthorizationError",
    "ErrorGettingAuthenticationData",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConsumerBusy",
    "NotConnected",
    "AlreadyClosed",
    "InvalidMessage",
    "ConsumerNotInitialized",
    "ProducerNotInitialized",
    "ProducerBusy",
    "TooManyLookupRequestException",
    "InvalidTopicName",
    "InvalidUrl",
    "ServiceUnitNotReady",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerQueueIsFull",
    "MessageTooBig",
    "TopicNotFound",
    "SubscriptionNotFound",
    "ConsumerNotFound",
    "UnsupportedVersionError",
    "TopicTerminated",
    "CryptoError",
    "IncompatibleSchema",
    "ConsumerAssignError",
    "CumulativeAcknowledgementNotAllowedError",
    "TransactionCoordinatorNotFoundError",
    "InvalidTxnStatusError",
    "NotAllowedError",
    "TransactionConflict",
    "TransactionNotFound",
    "ProducerFenced",
    "MemoryBufferIsFull",
    "Interrupted",
]


class PulsarException(Exception):
    """Base of all exceptions of this module."""

    result: ClassVar[Result] = Result.UnknownError
    """The result that the exception stands for."""


class UnknownError(PulsarException):
    """The broker gave an error that has no other class."""

    result = Result.UnknownError


class InvalidConfiguration(PulsarException):
    """A configuration that is not valid, or a verb that it excludes."""

    result = Result.InvalidConfiguration


class Timeout(PulsarException):
    """The operation did not complete in time."""

    result = Result.Timeout


class LookupError(PulsarException):
    """The topic could not be looked up."""

    result = Result.LookupError


class ConnectError(PulsarException):
    """No connection to the broker."""

    result = Result.ConnectError


class ReadError(PulsarException):
    """Reading from the connection failed."""

    result = Result.ReadError


class AuthenticationError(PulsarException):
    """The broker rejected the credentials."""

    result = Result.AuthenticationError


class AuthorizationError(PulsarException):
    """The client is not authorized for the operation."""

    result = Result.AuthorizationError


class ErrorGettingAuthenticationData(PulsarException):
    """The credentials could not be obtained."""

    result = Result.ErrorGettingAuthenticationData


class BrokerMetadataError(PulsarException):
    """The broker could not read or write its metadata."""

    result = Result.BrokerMetadataError


class BrokerPersistenceError(PulsarException):
    """The broker could not store the data."""

    result = Result.BrokerPersistenceError


class ChecksumError(PulsarException):
    """A checksum did not match."""

    result = Result.ChecksumError


class ConsumerBusy(PulsarException):
    """The subscription has an exclusive consumer."""

    result = Result.ConsumerBusy


class NotConnected(PulsarException):
    """The connection was lost."""

    result = Result.NotConnected


class AlreadyClosed(PulsarException):
    """The handle is closed."""

    result = Result.AlreadyClosed


class InvalidMessage(PulsarException):
    """The message is not valid."""

    result = Result.InvalidMessage


class ConsumerNotInitialized(PulsarException):
    """The consumer is not ready."""

    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(PulsarException):
    """The producer is not ready."""

    result = Result.ProducerNotInitialized


class ProducerBusy(PulsarException):
    """Another producer has the name, or exclusive access."""

    result = Result.ProducerBusy


class TooManyLookupRequestException(PulsarException):
    """Too many lookups at a time."""

    result = Result.TooManyLookupRequestException


class InvalidTopicName(PulsarException):
    """The topic name is not valid."""

    result = Result.InvalidTopicName


class InvalidUrl(PulsarException):
    """The service URL is not valid."""

    result = Result.InvalidUrl


class ServiceUnitNotReady(PulsarException):
    """The broker does not serve the topic yet."""

    result = Result.ServiceUnitNotReady


class OperationNotSupported(PulsarException):
    """The operation is not supported."""

    result = Result.OperationNotSupported


class ProducerBlockedQuotaExceededError(PulsarException):
    """The backlog quota is exceeded; the producer was refused."""

    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(PulsarException):
    """The backlog quota is exceeded."""

    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(PulsarException):
    """The queue of pending messages is full."""

    result = Result.ProducerQueueIsFull


class MessageTooBig(PulsarException):
    """The message exceeds the broker's limit."""

    result = Result.MessageTooBig


class TopicNotFound(PulsarException):
    """The topic does not exist."""

    result = Result.TopicNotFound


class SubscriptionNotFound(PulsarException):
    """The subscription does not exist."""

    result = Result.SubscriptionNotFound


class ConsumerNotFound(PulsarException):
    """The broker does not know the consumer."""

    result = Result.ConsumerNotFound


class UnsupportedVersionError(PulsarException):
    """The broker does not support this version of the protocol."""

    result = Result.UnsupportedVersionError


class TopicTerminated(PulsarException):
    """The topic accepts no more messages."""

    result = Result.TopicTerminated


class CryptoError(PulsarException):
    """Encryption or decryption failed."""

    result = Result.CryptoError


class IncompatibleSchema(PulsarException):
    """The schema is incompatible with that of the topic."""

    result = Result.IncompatibleSchema


class ConsumerAssignError(PulsarException):
    """The broker could not assign the consumer."""

    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """Shared and Key_Shared subscriptions have no cumulative acknowledgement."""

    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(PulsarException):
    """No coordinator of transactions."""

    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(PulsarException):
    """The transaction is not in a state that allows this."""

    result = Result.InvalidTxnStatusError


class NotAllowedError(PulsarException):
    """The operation is not allowed."""

    result = Result.NotAllowedError


class TransactionConflict(PulsarException):
    """Two transactions conflict."""

    result = Result.TransactionConflict


class TransactionNotFound(PulsarException):
    """The broker does not know the transaction."""

    result = Result.TransactionNotFound


class ProducerFenced(PulsarException):
    """Another producer took over."""

    result = Result.ProducerFenced


class MemoryBufferIsFull(PulsarException):
    """The memory limit of the client is reached."""

    result = Result.MemoryBufferIsFull


class Interrupted(PulsarException):
    """The operation was interrupted."""

    result = Result.Interrupted


_RESULTS: dict[type[errors.Error], Result] = {
    errors.AuthenticationError: Result.AuthenticationError,
    errors.AuthorizationError: Result.AuthorizationError,
    errors.Cancelled: Result.Interrupted,
    errors.ChecksumError: Result.ChecksumError,
    errors.Closed: Result.AlreadyClosed,
    errors.CompressionError: Result.InvalidMessage,
    errors.ConnectFailed: Result.ConnectError,
    errors.ConsumerAssign: Result.ConsumerAssignError,
    errors.ConsumerBusy: Result.ConsumerBusy,
    errors.ConsumerNotFound: Result.ConsumerNotFound,
    errors.DataLost: Result.UnknownError,
    errors.Disconnected: Result.NotConnected,
    errors.ForkError: Result.AlreadyClosed,
    errors.FrameTooLarge: Result.MessageTooBig,
    errors.IncompatibleSchema: Result.IncompatibleSchema,
    errors.InvalidArgument: Result.InvalidConfiguration,
    errors.InvalidTopic: Result.InvalidTopicName,
    errors.InvalidTransaction: Result.InvalidTxnStatusError,
    errors.IoError: Result.ConnectError,
    errors.MemoryLimit: Result.MemoryBufferIsFull,
    errors.MessageTooLarge: Result.MessageTooBig,
    errors.MetadataError: Result.BrokerMetadataError,
    errors.NotAllowed: Result.NotAllowedError,
    errors.PersistenceError: Result.BrokerPersistenceError,
    errors.ProducerBusy: Result.ProducerBusy,
    errors.ProducerFenced: Result.ProducerFenced,
    errors.ProtocolError: Result.UnknownError,
    errors.QueueFull: Result.ProducerQueueIsFull,
    errors.QuotaExceeded: Result.ProducerBlockedQuotaExceededException,
    errors.SchemaError: Result.InvalidMessage,
    errors.ServiceNotReady: Result.ServiceUnitNotReady,
    errors.SessionTakenOver: Result.NotConnected,
    errors.SubscriptionNotFound: Result.SubscriptionNotFound,
    errors.Timeout: Result.Timeout,
    errors.TlsError: Result.ConnectError,
    errors.TooManyRequests: Result.TooManyLookupRequestException,
    errors.TopicNotFound: Result.TopicNotFound,
    errors.TopicTerminated: Result.TopicTerminated,
    errors.EndOfTopic: Result.TopicTerminated,
    errors.TransactionConflict: Result.TransactionConflict,
    errors.TransactionNotFound: Result.TransactionNotFound,
    errors.TruncatedError: Result.InvalidMessage,
    errors.UnknownError: Result.UnknownError,
    errors.Unsupported: Result.OperationNotSupported,
    errors.UnsupportedVersion: Result.UnsupportedVersionError,
}
"""Class of the engine's error -> result. A test holds it complete."""


def result_of(error: errors.Error) -> Result:
    """The result that stands for an error of the engine."""
    return _RESULTS.get(type(error), Result.UnknownError)


def make(result: Result, detail: str = "") -> PulsarException:
    """The exception of a result. Its text begins as the official module's, which programs compare.

    >>> str(make(Result.Timeout)), type(make(Result.Timeout)).__name__
    ('Pulsar error: TimeOut', 'Timeout')
    """
    name = "TimeOut" if result is Result.Timeout else result.name
    kind: type[PulsarException] = getattr(sys.modules[__name__], result.name)
    return kind(f"Pulsar error: {name}: {detail}" if detail else f"Pulsar error: {name}")


def translated(error: errors.Error) -> PulsarException:
    """The exception that stands for an error of the engine."""
    return make(result_of(error), str(error))


_OF_SEVERAL = "does not say which of the"
"""The engine's words for an id that lacks the topic, given to a consumer of several topics or partitions."""


def result_of_id(error: errors.Error) -> Result:
    """As :func:`result_of`, for a verb that takes an id: as there, consumers of several topics do not support
    ids without their topic."""
    if isinstance(error, errors.InvalidArgument) and _OF_SEVERAL in str(error):
        return Result.OperationNotSupported
    return result_of(error)


_REFUSED_BY_HTTP = (errors.AuthenticationError, errors.AuthorizationError, errors.ServiceNotReady)


def result_of_lookup(error: errors.Error, url: str) -> Result:
    """As :func:`result_of`, for a lookup: as there, every HTTP status of an error is a ``ConnectError``."""
    if url.startswith("http") and isinstance(error, _REFUSED_BY_HTTP):
        return Result.ConnectError
    return result_of(error)


def waited(pending: Pending[T] | Waiter[T]) -> T:
    """The result of an operation of the engine.

    Raises:
        Interrupted: the user pressed Ctrl-C, as there.
    """
    try:
        return pending.wait()
    except KeyboardInterrupt:
        raise make(Result.Interrupted) from None
