"""The options of the official module: what each accepts, and the option of the engine that it sets.

One row an option, in one table a verb. The tests hold the hints of the native interface
(``forebay.pulsar._renamed``) and the migration guide equal to them.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from forebay import errors
from forebay._core import protocols
from forebay.pulsar._policies import DeadLetterPolicy, KeySharedPolicy
from forebay.pulsar._schema import Schema as NativeSchema

from . import _refusals
from ._authentication import Authentication
from ._checks import check_type, check_type_or_none
from ._crypto import CryptoKeyReader
from ._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from ._ids import MessageId
from ._policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from .schema.schema import Schema


class Row(NamedTuple):
    """One option."""

    kind: type[Any] | None
    """Type of its values; ``None`` if the verb checks it itself."""
    optional: bool = False
    """Whether it may be ``None``."""
    to: str = ""
    """The native option that it sets, if one does."""
    convert: Callable[[Any], Any] | None = None
    """Makes the value of the native option; the value itself by default."""
    note: str = ""
    """Fate of an option that sets no native one, for the guide."""


UNLIMITED = 1 << 24
"""The largest number of messages without an answer that the engine takes."""


def _seconds(milliseconds: int) -> float:
    return max(milliseconds, 0) / 1000


def _word(words: Mapping[Any, str]) -> Callable[[Any], str]:
    return lambda value: words[value]


def _texts(given: dict[Any, Any] | None) -> dict[str, str] | None:
    for name, value in (given or {}).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"properties map text to text, not {name!r} to {value!r}")
    return given or None


def _ack_timeout(milliseconds: int) -> float:
    if milliseconds != 0 and milliseconds < 10_000:
        raise ValueError(
            "Consumer Config Exception: Unacknowledged message timeout should be greater than 10 seconds."
        )
    return milliseconds / 1000


def _dead_letter(policy: ConsumerDeadLetterPolicy) -> DeadLetterPolicy:
    return DeadLetterPolicy(
        policy.max_redeliver_count,
        topic=policy.dead_letter_topic or None,
        subscription=policy.initial_subscription_name or None,
    )


def _key_shared(policy: ConsumerKeySharedPolicy) -> KeySharedPolicy:
    sticky = policy.key_shared_mode == KeySharedMode.Sticky
    return KeySharedPolicy(policy.sticky_ranges if sticky else None, policy.allow_out_of_order_delivery)


def _schema(schema: Schema) -> NativeSchema | None:
    """The schema as the broker is told of it; objects and payloads are converted here."""
    if not schema.declares:
        return None
    info = schema.schema_info()
    kind = info.schema_type().name.lower()
    # Text has no definition.
    definition = None if info.schema() == "null" else info.schema()
    return NativeSchema(kind, info.name(), definition, raw=True)


_NO_STATS = "accepted; no verb shows these statistics"
_ENCRYPTION = "refused: no end-to-end encryption yet"
_ONLY_DEFAULT = "only the default yet"

CLIENT: Mapping[str, Row] = {
    "authentication": Row(Authentication, True, note="as there, without Athenz"),
    "operation_timeout_seconds": Row(int, False, "operation_timeout"),
    "io_threads": Row(int, False, "threads", lambda count: min(max(count, 1), 64)),
    "message_listener_threads": Row(int, note="number of listeners that run at the same time"),
    "concurrent_lookup_requests": Row(int, note="accepted; the engine needs no limit"),
    "log_conf_file_path": Row(str, True, note="accepted, as there: it has no effect"),
    "stats_interval_in_seconds": Row(int, note="accepted; the engine writes no statistics into a log"),
    "use_tls": Row(bool, note="accepted, as there: the URL decides"),
    "tls_trust_certs_file_path": Row(str, True, "tls_ca"),
    "tls_allow_insecure_connection": Row(bool, note=_ONLY_DEFAULT),
    "tls_validate_hostname": Row(bool, False, "tls_skip_hostname_check", lambda validate: not validate),
    "logger": Row(None, True, note="accepted; the engine writes no log"),
    "connection_timeout_ms": Row(int, False, "connect_timeout", _seconds),
    "listener_name": Row(str, True, "listener_name"),
    "tls_private_key_file_path": Row(str, True, "tls_key"),
    "tls_certificate_file_path": Row(str, True, "tls_cert"),
}
"""Keywords of ``Client``."""

PRODUCER: Mapping[str, Row] = {
    "producer_name": Row(str, True, "name"),
    "schema": Row(Schema, False, "schema", _schema),
    "initial_sequence_id": Row(int, True, "initial_sequence_id"),
    "send_timeout_millis": Row(int, False, "send_timeout", _seconds),
    "compression_type": Row(
        CompressionType, False, "compression", lambda codec: cast("CompressionType", codec).name.lower()
    ),
    "max_pending_messages": Row(int, False, "max_pending"),
    "max_pending_messages_across_partitions": Row(
        int, note="max_pending is at most this, divided by the partitions"
    ),
    "block_if_queue_full": Row(bool, note="native: await the futures of send, or use send_many"),
    "batching_enabled": Row(bool, False, "batching"),
    "batching_max_messages": Row(int, False, "batch_max_messages"),
    "batching_max_allowed_size_in_bytes": Row(int, False, "batch_max_bytes"),
    "batching_max_publish_delay_ms": Row(int, False, "batching_delay", _seconds),
    "chunking_enabled": Row(bool, False, "chunking"),
    "message_routing_mode": Row(
        PartitionsRoutingMode,
        False,
        "routing",
        _word(
            {
                PartitionsRoutingMode.UseSinglePartition: "single",
                PartitionsRoutingMode.RoundRobinDistribution: "round_robin",
                # It needs a router, which the producer of this package calls.
                PartitionsRoutingMode.CustomPartition: "round_robin",
            }
        ),
    ),
    "lazy_start_partitioned_producers": Row(bool, False, "lazy_start"),
    "properties": Row(dict, True, "properties", _texts),
    "batching_type": Row(
        BatchingType, False, "key_based_batching", lambda kind: kind == BatchingType.KeyBased
    ),
    "encryption_key": Row(str, True, note=_ENCRYPTION),
    "crypto_key_reader": Row(CryptoKeyReader, True, note=_ENCRYPTION),
    "access_mode": Row(
        ProducerAccessMode,
        False,
        "access_mode",
        _word(
            {
                ProducerAccessMode.Shared: "shared",
                ProducerAccessMode.Exclusive: "exclusive",
                ProducerAccessMode.WaitForExclusive: "wait_for_exclusive",
                ProducerAccessMode.ExclusiveWithFencing: "exclusive_with_fencing",
            }
        ),
    ),
    "message_router": Row(None, True, note="as there; native: `router`, which gets key and properties"),
}
"""Keywords of ``Client.create_producer``."""

_UNREADABLE: Mapping[Any, str] = {
    ConsumerCryptoFailureAction.FAIL: "skip",
    ConsumerCryptoFailureAction.DISCARD: "discard",
}

CONSUMER: Mapping[str, Row] = {
    "consumer_type": Row(
        ConsumerType,
        False,
        "type",
        _word(
            {
                ConsumerType.Exclusive: "exclusive",
                ConsumerType.Shared: "shared",
                ConsumerType.Failover: "failover",
                ConsumerType.KeyShared: "key_shared",
            }
        ),
    ),
    "schema": Row(Schema, False, "schema", _schema),
    "message_listener": Row(None, True, note="as there; native: `listen`"),
    "receiver_queue_size": Row(int, False, "receiver_queue"),
    "max_total_receiver_queue_size_across_partitions": Row(
        int, note="receiver_queue is at most this, divided by the partitions"
    ),
    "consumer_name": Row(str, True, "name"),
    "unacked_messages_timeout_ms": Row(int, True, "ack_timeout", _ack_timeout),
    "broker_consumer_stats_cache_time_ms": Row(int, note=_NO_STATS),
    "negative_ack_redelivery_delay_ms": Row(int, False, "nack_delay", _seconds),
    "is_read_compacted": Row(bool, False, "read_compacted"),
    "properties": Row(dict, True, "properties", _texts),
    "pattern_auto_discovery_period": Row(int, note="accepted, as there: it has no effect"),
    "initial_position": Row(
        InitialPosition,
        False,
        "position",
        _word({InitialPosition.Latest: "latest", InitialPosition.Earliest: "earliest"}),
    ),
    "crypto_key_reader": Row(CryptoKeyReader, True, note=_ENCRYPTION),
    "replicate_subscription_state_enabled": Row(None, note=_ONLY_DEFAULT),
    "max_pending_chunked_message": Row(int, False, "max_pending_chunked_messages"),
    "auto_ack_oldest_chunked_message_on_queue_full": Row(bool, False, "ack_incomplete_chunks"),
    "start_message_id_inclusive": Row(bool, False, "start_inclusive"),
    "batch_receive_policy": Row(
        ConsumerBatchReceivePolicy, True, note="native: receive_batch(max, max_bytes, timeout)"
    ),
    "key_shared_policy": Row(ConsumerKeySharedPolicy, True, "key_shared", _key_shared),
    "batch_index_ack_enabled": Row(bool, False, "batch_index_ack"),
    "regex_subscription_mode": Row(
        RegexSubscriptionMode,
        False,
        "topics_domain",
        _word(
            {
                RegexSubscriptionMode.PersistentOnly: "persistent",
                RegexSubscriptionMode.NonPersistentOnly: "non-persistent",
                RegexSubscriptionMode.AllTopics: "all",
            }
        ),
    ),
    "dead_letter_policy": Row(ConsumerDeadLetterPolicy, True, "dead_letter", _dead_letter),
    "crypto_failure_action": Row(ConsumerCryptoFailureAction, False, "unreadable", _word(_UNREADABLE)),
}
"""Keywords of ``Client.subscribe``."""

READER: Mapping[str, Row] = {
    "start_message_id": Row(MessageId, False, "position", lambda at: cast("MessageId", at)._native),  # pyright: ignore[reportPrivateUsage]
    "schema": Row(Schema, False, "schema", _schema),
    "reader_listener": Row(None, True, note="as there; native: `listen`"),
    "receiver_queue_size": Row(int, False, "receiver_queue"),
    "reader_name": Row(str, True, "name"),
    "subscription_role_prefix": Row(str, True, note="begins the name of the subscription"),
    "is_read_compacted": Row(bool, False, "read_compacted"),
    "crypto_key_reader": Row(CryptoKeyReader, True, note=_ENCRYPTION),
    "start_message_id_inclusive": Row(bool, False, "start_inclusive"),
    "crypto_failure_action": Row(ConsumerCryptoFailureAction, False, "unreadable", _word(_UNREADABLE)),
}
"""Keywords of ``Client.create_reader``."""


def full_name(topic: str) -> str:
    """The topic with domain, tenant and namespace.

    >>> full_name("orders"), full_name("a/b/orders")
    ('persistent://public/default/orders', 'persistent://a/b/orders')
    """
    if "://" in topic:
        return topic
    return f"persistent://{topic if '/' in topic else f'public/default/{topic}'}"


def check(table: Mapping[str, Row], given: Mapping[str, Any]) -> None:
    """Checks the types of options, then refuses what the engine cannot do yet.

    Raises:
        ValueError: a value of another type.
        OperationNotSupported: a value that :data:`~forebay.compat.pulsar._refusals.REFUSALS` names.
    """
    for name, row in table.items():
        if row.kind is not None and name in given:
            (check_type_or_none if row.optional else check_type)(row.kind, given[name], name)
    _refusals.check({name: given[name] for name in table if name in given})


def resolve(scope: str, table: Mapping[str, Row], given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The engine's options.

    Args:
        scope: ``"client"``, ``"producer"`` or ``"consumer"``.
        table: the options of the verb.
        given: their values, checked.
        more: further native options.

    Raises:
        ValueError: a value that the engine does not take.
    """
    native: dict[str, Any] = {}
    for name, row in table.items():
        if row.to and name in given and (value := given[name]) is not None:
            value = row.convert(value) if row.convert else value
            # An empty name is no name there.
            native[row.to] = None if value == "" else value
    native.update(more)
    try:
        return protocols.resolve(f"pulsar.{scope}", native)
    except errors.InvalidArgument as error:
        for name, row in table.items():
            if f" {row.to!r}" in str(error):
                raise ValueError(f"Argument {name}: {error.message.partition(': ')[2]}") from None
        raise


def client(given: Mapping[str, Any], secure: bool) -> dict[str, Any]:
    """The engine's options of a client.

    Args:
        given: the keywords of ``Client``, checked.
        secure: whether the URL is one of TLS; the options of TLS are ignored without it, as there.
    """
    values = {name: value for name, value in given.items() if secure or not name.startswith("tls_")}
    authentication: Authentication | None = values.pop("authentication", None)
    # There is no such limit there, and the number of pending messages has its own.
    more: dict[str, Any] = {"memory_limit": 1 << 60}
    if authentication is not None:
        own = authentication.options(given["tls_trust_certs_file_path"])
        # A certificate needs TLS.
        more |= {name: value for name, value in own.items() if secure or not name.startswith("tls_")}
    return resolve("client", CLIENT, values, **more)


def pending_limits(given: Mapping[str, Any]) -> tuple[int, int]:
    """Largest number of messages without an answer, of each partition and of all; 0 is no limit there."""
    return (
        given["max_pending_messages"] or UNLIMITED,
        given["max_pending_messages_across_partitions"] or UNLIMITED,
    )


def producer(given: Mapping[str, Any], partitions: int) -> dict[str, Any]:
    """The engine's options of a producer of a topic with this number of partitions (0: not partitioned)."""
    limit, all_of_them = pending_limits(given)
    if partitions:
        limit = min(limit, max(all_of_them // partitions, 1))
    if given["access_mode"] != ProducerAccessMode.Shared:
        # It has no effect there.
        given = {**given, "lazy_start_partitioned_producers": False}
    # Keys go to the same partitions as with the official module.
    return resolve("producer", PRODUCER, {**given, "max_pending_messages": limit}, hashing="boost")


def consumer(given: Mapping[str, Any], partitions: int) -> dict[str, Any]:
    """The engine's options of a consumer of a topic with this number of partitions (0: not partitioned)."""
    limit = given["receiver_queue_size"]
    if partitions:
        limit = min(limit, max(given["max_total_receiver_queue_size_across_partitions"] // partitions, 1))
    given = {**given, "receiver_queue_size": limit}
    if given["consumer_type"] not in (ConsumerType.Shared, ConsumerType.KeyShared):
        # It has no effect there: brokers count no redeliveries.
        given["dead_letter_policy"] = None
    if given["consumer_type"] != ConsumerType.KeyShared:
        # Nor has this.
        given["key_shared_policy"] = None
    return _without_face(resolve("consumer", CONSUMER, given))


def reader(given: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's options of a reader."""
    return _without_face(resolve("consumer", READER, given, durable=False, batch_index_ack=False))


def _without_face(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "ack_receipt"}


def topics(topic: str | list[str] | re.Pattern[str]) -> list[str]:
    """The topics of a consumer, each once; none for a pattern.

    Raises:
        ValueError: neither a name nor a list nor a pattern.
        TypeError: a list of anything but names.
    """
    if not isinstance(topic, str | list | re.Pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("Argument 'topic' is expected to be of a type between (str, list, re.pattern)")
    if isinstance(topic, re.Pattern):
        return []
    if isinstance(topic, str):
        return [topic]
    for name in topic:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Argument 'topic' is expected to be a list of 'str': it has {name!r}")
    return list({full_name(name): name for name in topic}.values())
