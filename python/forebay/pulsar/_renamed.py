"""Options of ``pulsar-client`` that have another name here, or none: what to use instead.

An error about an unknown option ends with the sentence of this table, after "use".
"""

from collections.abc import Mapping

_NO_LOG = "nothing in its place: the engine writes no log"
_NO_ENCRYPTION = "unencrypted messages, or encrypt the payloads: end-to-end encryption is not supported yet"
_POSITION = 'position="earliest", "latest" or a message id'
_PARTITIONS = "{}=, which is for each partition"

RENAMED: Mapping[str, Mapping[str, str]] = {
    "client": {
        "service_url": "url=, the first argument",
        "authentication": "token= (also OAuth 2.0), username= and password=, or tls_cert= and tls_key=",
        "operation_timeout_seconds": "operation_timeout=, in seconds",
        "io_threads": "threads=",
        "message_listener_threads": "concurrency= of listen()",
        "concurrent_lookup_requests": "nothing in its place: lookups have no limit",
        "log_conf_file_path": _NO_LOG,
        "logger": _NO_LOG,
        "stats_interval_in_seconds": "stats() of the client, at any time",
        "use_tls": "a URL that begins with pulsar+ssl://",
        "tls_trust_certs_file_path": "tls_ca=",
        "tls_allow_insecure_connection": "tls_ca= with the authority of the broker's certificate",
        "tls_validate_hostname": "tls_skip_hostname_check=, which is the opposite",
        "tls_private_key_file_path": "tls_key=",
        "tls_certificate_file_path": "tls_cert=",
        "connection_timeout_ms": "connect_timeout=, in seconds",
    },
    "producer": {
        "producer_name": "name=",
        "send_timeout_millis": "send_timeout=, in seconds",
        "compression_type": 'compression="zstd", "lz4", "zlib", "snappy" or "none"',
        "max_pending_messages": "max_pending=",
        "max_pending_messages_across_partitions": _PARTITIONS.format("max_pending"),
        "block_if_queue_full": "send_many, or await the futures of send: a full queue raises QueueFull",
        "batching_enabled": "batching=",
        "batching_max_messages": "batch_max_messages=",
        "batching_max_allowed_size_in_bytes": "batch_max_bytes=",
        "batching_max_publish_delay_ms": "batching_delay=, in seconds",
        "chunking_enabled": "chunking=",
        "message_routing_mode": 'routing="round_robin", "single" or "partial_round_robin"',
        "message_router": "router=, a function of key, properties and number of partitions",
        "lazy_start_partitioned_producers": "lazy_start=",
        "batching_type": "key_based_batching=",
        "encryption_key": _NO_ENCRYPTION,
        "crypto_key_reader": _NO_ENCRYPTION,
    },
    "consumer": {
        "subscription_name": "subscription=, the second argument",
        "consumer_type": 'type="exclusive", "shared", "failover" or "key_shared"',
        "message_listener": "listen() of the consumer",
        "reader_listener": "listen() of the reader",
        "receiver_queue_size": "receiver_queue=",
        "max_total_receiver_queue_size_across_partitions": _PARTITIONS.format("receiver_queue"),
        "consumer_name": "name=",
        "reader_name": "name=",
        "unacked_messages_timeout_ms": "ack_timeout=, in seconds",
        "broker_consumer_stats_cache_time_ms": "nothing in its place: there are no such statistics",
        "negative_ack_redelivery_delay_ms": "nack_delay=, in seconds",
        "is_read_compacted": "read_compacted=",
        "pattern_auto_discovery_period": "pattern_update_interval=, in seconds",
        "initial_position": 'position="earliest" or "latest"',
        "start_message_id": _POSITION,
        "crypto_key_reader": _NO_ENCRYPTION,
        "crypto_failure_action": 'unreadable="skip", "fail" or "discard"',
        "replicate_subscription_state_enabled": "no replicated subscription: there are none yet",
        "max_pending_chunked_message": "max_pending_chunked_messages=",
        "auto_ack_oldest_chunked_message_on_queue_full": "ack_incomplete_chunks=",
        "start_message_id_inclusive": "start_inclusive=, and inclusive= of seek",
        "batch_receive_policy": "receive_batch(max, max_bytes, timeout)",
        "key_shared_policy": "key_shared=, a forebay.pulsar.KeySharedPolicy",
        "batch_index_ack_enabled": "batch_index_ack=",
        "regex_subscription_mode": 'topics_domain="persistent", "non-persistent" or "all"',
        "is_pattern_topic": "re.compile(...) as the topic",
        "dead_letter_policy": "dead_letter=, a forebay.pulsar.DeadLetterPolicy",
        "subscription_role_prefix": "consumer() with a subscription of your choice, and durable=False",
    },
}
"""Scope -> option of ``pulsar-client`` -> what to use."""
