"""The names that programs import from ``_pulsar``, the native module of pulsar-client.

Its configurations can be made and read, and configure nothing: the verbs of this package take keywords.
"""

from ._authentication import (
    Authentication,
    AuthenticationAthenz,
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
)
from ._configurations import (
    Client,
    ClientConfiguration,
    ConsumerConfiguration,
    ProducerConfiguration,
    ReaderConfiguration,
)
from ._consumer import Consumer
from ._crypto import CryptoKeyReader, EncryptionContext, EncryptionKey
from ._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    LoggerLevel,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    Result,
    SchemaType,
)
from ._ids import MessageId
from ._messages import Message, MessageBatch
from ._policies import BatchReceivePolicy, DeadLetterPolicy, DeadLetterPolicyBuilder, KeySharedPolicy
from ._producer import Producer
from ._reader import Reader
from ._services import ServiceInfo
from .exceptions import *  # noqa: F403
from .schema.schema import SchemaInfo

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "BatchReceivePolicy",
    "BatchingType",
    "Client",
    "ClientConfiguration",
    "CompressionType",
    "Consumer",
    "ConsumerConfiguration",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "CryptoKeyReader",
    "DeadLetterPolicy",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "Message",
    "MessageBatch",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerConfiguration",
    "Reader",
    "ReaderConfiguration",
    "RegexSubscriptionMode",
    "Result",
    "SchemaInfo",
    "SchemaType",
    "ServiceInfo",
]
