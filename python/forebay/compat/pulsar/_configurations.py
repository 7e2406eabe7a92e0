"""The configurations of ``_pulsar``, which programs and tests make and read. They configure nothing: the
verbs of this package take keywords."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any, ClassVar, Self

from ._checks import check_type
from ._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    Result,
    SchemaType,
)
from ._policies import BatchReceivePolicy, DeadLetterPolicy, KeySharedPolicy
from .exceptions import make
from .schema.schema import SchemaInfo

_UNREADABLE = object()
"""In place of a default: the setting has no getter."""


def _bytes() -> SchemaInfo:
    return SchemaInfo(SchemaType.BYTES, "BYTES", "")


class _Setting:
    """A setting of a configuration: called without arguments it returns the value, and with one it stores
    the value and returns the configuration."""

    def __init__(self, owner: _Configuration, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, *value: Any) -> Any:
        values = self._owner._values  # pyright: ignore[reportPrivateUsage]
        if len(value) > 1 or (not value and values[self._name] is _UNREADABLE):
            raise TypeError(f"{self._name}(): expected one argument, not {len(value)}")
        if not value:
            return values[self._name]
        values[self._name] = value[0]
        return self._owner


class _Configuration:
    _defaults: ClassVar[Mapping[str, Any]]
    _values: dict[str, Any]

    def __init__(self) -> None:
        self._values = {
            name: default() if isinstance(default, FunctionType) else default
            for name, default in self._defaults.items()
        }

    def __getattr__(self, name: str) -> _Setting:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _Setting(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._defaults]


class _WithProperties(_Configuration):
    def property(self, name: str, value: str) -> Self:
        """Adds a property."""
        check_type(str, name, "name")
        check_type(str, value, "value")
        self._values.setdefault("properties", {})[name] = value
        return self


class ClientConfiguration(_Configuration):
    """Configuration of a client; :class:`~forebay.compat.pulsar.Client` takes keywords in its place."""

    _defaults: ClassVar[Mapping[str, Any]] = {
        "authentication": _UNREADABLE,
        "operation_timeout_seconds": 30,
        "connection_timeout": 10000,
        "io_threads": 1,
        "message_listener_threads": 1,
        "concurrent_lookup_requests": 50000,
        "stats_interval_in_seconds": 600,
        "tls_trust_certs_file_path": _UNREADABLE,
        "tls_private_key_file_path": "",
        "tls_certificate_file_path": "",
        "tls_allow_insecure_connection": False,
        "tls_validate_hostname": _UNREADABLE,
        "listener_name": _UNREADABLE,
        "set_logger": _UNREADABLE,
        "set_console_logger": _UNREADABLE,
    }

    def set_file_logger(self, level: Any, log_file: str) -> Self:
        """Names the file of the log."""
        self._values["set_file_logger"] = (level, log_file)
        return self


class ProducerConfiguration(_WithProperties):
    """Configuration of a producer; ``create_producer`` takes keywords in its place."""

    _defaults: ClassVar[Mapping[str, Any]] = {
        "producer_name": "",
        "schema": _bytes,
        "send_timeout_millis": 30000,
        "initial_sequence_id": -1,
        "compression_type": CompressionType.NONE,
        "max_pending_messages": 1000,
        "max_pending_messages_across_partitions": 50000,
        "block_if_queue_full": False,
        "partitions_routing_mode": PartitionsRoutingMode.RoundRobinDistribution,
        "lazy_start_partitioned_producers": False,
        "batching_enabled": True,
        "batching_max_messages": 1000,
        "batching_max_allowed_size_in_bytes": 128 * 1024,
        "batching_max_publish_delay_ms": 10,
        "chunking_enabled": False,
        "batching_type": BatchingType.Default,
        "encryption_key": _UNREADABLE,
        "crypto_key_reader": _UNREADABLE,
        "access_mode": ProducerAccessMode.Shared,
        "message_router": _UNREADABLE,
    }


class ConsumerConfiguration(_WithProperties):
    """Configuration of a consumer; ``subscribe`` takes keywords in its place."""

    _defaults: ClassVar[Mapping[str, Any]] = {
        "key_shared_policy": lambda: KeySharedPolicy(),
        "consumer_type": ConsumerType.Exclusive,
        "schema": _bytes,
        "message_listener": _UNREADABLE,
        "receiver_queue_size": 1000,
        "max_total_receiver_queue_size_across_partitions": 50000,
        "batch_receive_policy": lambda: BatchReceivePolicy(),
        "consumer_name": "",
        "unacked_messages_timeout_ms": 0,
        "negative_ack_redelivery_delay_ms": 60000,
        "broker_consumer_stats_cache_time_ms": 30000,
        "pattern_auto_discovery_period": 60,
        "read_compacted": False,
        "subscription_initial_position": InitialPosition.Latest,
        "regex_subscription_mode": RegexSubscriptionMode.PersistentOnly,
        "crypto_key_reader": _UNREADABLE,
        "crypto_failure_action": ConsumerCryptoFailureAction.FAIL,
        "replicate_subscription_state_enabled": False,
        "max_pending_chunked_message": 10,
        "auto_ack_oldest_chunked_message_on_queue_full": False,
        "start_message_id_inclusive": False,
        "batch_index_ack_enabled": False,
        "dead_letter_policy": lambda: DeadLetterPolicy(2**31 - 1, "", ""),
    }


class ReaderConfiguration(_Configuration):
    """Configuration of a reader; ``create_reader`` takes keywords in its place."""

    _defaults: ClassVar[Mapping[str, Any]] = {
        "reader_listener": _UNREADABLE,
        "schema": _bytes,
        "receiver_queue_size": 1000,
        "reader_name": "",
        "subscription_role_prefix": "",
        "read_compacted": False,
        "crypto_key_reader": _UNREADABLE,
        "start_message_id_inclusive": False,
        "crypto_failure_action": ConsumerCryptoFailureAction.FAIL,
    }


class Client:
    """The native client, which takes configurations.

    Raises:
        OperationNotSupported: always.
    """

    def __init__(self, *_: Any) -> None:
        raise make(
            Result.OperationNotSupported,
            "_pulsar.Client takes configurations, which the engine does not read: use pulsar.Client, whose"
            " verbs take keywords",
        )
