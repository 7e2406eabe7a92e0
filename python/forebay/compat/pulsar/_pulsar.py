"""The names that programs import from ``_pulsar``, the native module of pulsar-client.

Its configurations and builders are not among them: the verbs of this package take keywords.
"""

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
from ._messages import Message
from ._policies import BatchReceivePolicy, DeadLetterPolicy, DeadLetterPolicyBuilder, KeySharedPolicy
from .exceptions import *  # noqa: F403
from .schema.schema import SchemaInfo

__all__ = [
    "BatchReceivePolicy",
    "BatchingType",
    "CompressionType",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "DeadLetterPolicy",
    "DeadLetterPolicyBuilder",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "ProducerAccessMode",
    "RegexSubscriptionMode",
    "Result",
    "SchemaInfo",
    "SchemaType",
]
