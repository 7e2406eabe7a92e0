"""The enumerations, with the names, values and texts of the official module."""

from __future__ import annotations

import enum


class _Native(enum.IntEnum):
    """A member shows itself as the enumerations of the official module do: ``<Result.Ok: 0>`` and
    ``Result.Ok``."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)


class Result(_Native):
    """Outcome of an operation. All but ``Ok`` have an exception of the same name."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45


class CompressionType(_Native):
    """Codec of a producer."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ConsumerType(_Native):
    """Subscription type."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(_Native):
    """Position at which a new subscription begins."""

    Latest = 0
    Earliest = 1


class PartitionsRoutingMode(_Native):
    """Partition of messages without a key."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class BatchingType(_Native):
    """Composition of batches."""

    Default = 0
    KeyBased = 1


class ProducerAccessMode(_Native):
    """Whether other producers of the topic are allowed."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class RegexSubscriptionMode(_Native):
    """Domains of the topics that a pattern matches."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class KeySharedMode(_Native):
    """Assignment of keys to the consumers of a Key_Shared subscription."""

    AutoSplit = 0
    Sticky = 1


class ConsumerCryptoFailureAction(_Native):
    """Treatment of a message that cannot be decrypted."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class LoggerLevel(_Native):
    """Severity of a line of the log."""

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


class SchemaType(_Native):
    """Type of a schema."""

    NONE = 0
    STRING = 1
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    BYTES = -1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4
    KEY_VALUE = 15
    PROTOBUF_NATIVE = 20
