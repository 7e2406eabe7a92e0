# Generated from src/client/pulsar/options.rs by tools/generate_options.py; do not edit.
"""Options of Pulsar's clients, producers and consumers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from forebay._core import parse
from forebay._core.options import Option, documented
from forebay._core.types import Duration, Pem, Secret, Size

from . import _option_forms as forms
from ._option_forms import SchemaOption

if TYPE_CHECKING:
    from ._interceptors import ConsumerInterceptor, ProducerInterceptor
    from ._option_forms import Start
    from ._policies import Backoff, DeadLetterPolicy, KeySharedPolicy
    from ._routing import Router


class PulsarClientOptions(TypedDict, total=False):
    """Options of :func:`forebay.connect` with a Pulsar or ``embedded:`` URL."""

    connect_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "Timeout for the first connection, in seconds.")
    ]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Timeout for subscribe, seek, close and lookups, in seconds.")
    ]
    keep_alive: Annotated[
        Duration,
        Option(parse.at_least(1.0), 30.0, "Interval between PING commands, in seconds. At least 1 s."),
    ]
    max_backoff: Annotated[
        Duration,
        Option(parse.at_least(0.1), 60.0, "Longest pause before a reconnect, in seconds. At least 0.1 s."),
    ]
    memory_limit: Annotated[
        Size,
        Option(
            parse.size,
            64 << 20,
            "Memory limit in bytes for unacknowledged messages, shared by all producers of the client.",
        ),
    ]
    token: Annotated[
        Secret,
        Option(
            parse.token,
            None,
            "JWT for token authentication, or an `OAuth2` provider.",
            common=True,
            secret=True,
        ),
    ]
    listener_name: Annotated[str, Option(parse.text, None, "Advertised listener to request in lookups.")]
    lookup_properties: Annotated[
        Mapping[str, str],
        Option(
            parse.mapping, None, "Properties sent with each lookup, for broker extensions that read them."
        ),
    ]
    connections_per_broker: Annotated[
        int, Option(parse.whole(1, 64), 1, "Number of connections to each broker.")
    ]
    username: Annotated[str, Option(parse.text, None, "User name for basic authentication.")]
    password: Annotated[Secret, Option(parse.secret, None, "Password for basic authentication.", secret=True)]
    basic_method: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Authentication method under which `username` and `password` are sent. Default: "
            '`"basic"`. Change it for brokers with an authentication method of their own.',
        ),
    ]
    tls_cert: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Client certificate chain for mutual TLS, and for TLS authentication if there is no token.",
        ),
    ]
    retry_first: Annotated[
        bool | Duration,
        Option(
            parse.boolean_or_duration,
            False,
            "Whether to retry the first connect: `True` without limit, or for a number of "
            "seconds. Pauses grow up to `max_backoff`; `connect_timeout` limits each attempt. "
            "Errors that a retry cannot fix, such as wrong credentials, are raised immediately.",
            face=True,
        ),
    ]
    tls_ca: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Certificate authorities to trust instead of the platform's. The client reads this "
            "file, `tls_cert` and `tls_key` again for each connection.",
            common=True,
        ),
    ]
    tls_key: Annotated[Pem, Option(parse.pem, None, "Private key of the client certificate.", secret=True)]
    tls_pin: Annotated[
        "str | Sequence[str]",
        Option(
            parse.fingerprints,
            None,
            "SHA-256 fingerprints, in hexadecimal, of the only certificates to accept. Authority,"
            " host name and validity period are then not checked.",
        ),
    ]
    tls_server_name: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Name of the broker to send (SNI) and to check in its certificate. Default: the host of the URL.",
        ),
    ]
    tls_skip_hostname_check: Annotated[
        bool, Option(parse.boolean, False, "Accept a certificate for any host name. For tests only.")
    ]
    threads: Annotated[
        int,
        Option(
            parse.whole(1, 64),
            1,
            "Number of engine threads. The first client of the process sets it. With 1, sending "
            "one message at a time to a broker on the same machine keeps a second CPU core busy; "
            "2 disables this.",
        ),
    ]


class ProducerOptionsButSchema(TypedDict, total=False):
    """:class:`PulsarProducerOptions` without ``schema``, which the types of values depend on."""

    name: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Producer name. Deduplication requires a name that stays the same after a restart.",
            common=True,
        ),
    ]
    batching: Annotated[bool, Option(parse.boolean, True, "Pack several messages into one entry.")]
    batch_max_messages: Annotated[
        int, Option(parse.whole(1, 1 << 20), 1000, "Maximum number of messages in a batch.")
    ]
    batch_max_bytes: Annotated[Size, Option(parse.size, 128 << 10, "Maximum size of a batch in bytes.")]
    batching_delay: Annotated[
        Duration, Option(parse.duration, 0.001, "Longest wait of a batch for more messages, in seconds.")
    ]
    key_based_batching: Annotated[
        bool,
        Option(parse.boolean, False, "Give each key its own batches, as Key_Shared subscriptions require."),
    ]
    stop_on_refusal: Annotated[
        bool,
        Option(
            parse.boolean,
            False,
            "Send one batch at a time, and nothing after a rejected batch. Without it, "
            "deduplication would drop messages that are resent after a rejection, because later "
            "messages are already stored. Skip messages that the broker already stored for this "
            "producer name (by `sequence_id`), except the last one.",
        ),
    ]
    compression: Annotated[
        Literal["none", "lz4", "zlib", "zstd", "snappy"],
        Option(
            parse.one_of("none", "lz4", "zlib", "zstd", "snappy"),
            "none",
            "Codec that compresses batches.",
            common=True,
        ),
    ]
    compression_min_size: Annotated[
        Size,
        Option(
            parse.size,
            0,
            "Minimum size of a compressed batch or message, in bytes. Smaller ones are sent uncompressed.",
        ),
    ]
    send_timeout: Annotated[
        Duration,
        Option(
            parse.duration,
            30.0,
            "Timeout for the receipt of a message, in seconds. 0 disables it.",
            common=True,
        ),
    ]
    max_pending: Annotated[
        int,
        Option(
            parse.whole(1, 16 << 20), 1000, "Limit of unacknowledged messages per partition (send window)."
        ),
    ]
    hashing: Annotated[
        Literal["java", "murmur3", "boost"],
        Option(parse.one_of("java", "murmur3", "boost"), "java", "Hash function from keys to partitions."),
    ]
    routing: Annotated[
        Literal["round_robin", "single", "partial_round_robin"],
        Option(
            parse.one_of("round_robin", "single", "partial_round_robin"),
            "round_robin",
            "Partition of messages without a key: in turn, always the same, or in turn among "
            "`routing_partitions` randomly chosen partitions, which then also receive messages "
            "with keys.",
        ),
    ]
    initial_sequence_id: Annotated[
        int,
        Option(
            parse.whole(-1, 4 << 60),
            None,
            "Sequence id to continue after: the first message gets the next one. -1 starts at 0. "
            "Default: the last id that the broker stored for this producer name.",
        ),
    ]
    access_mode: Annotated[
        Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"],
        Option(
            parse.one_of("shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"),
            "shared",
            "Whether other producers of the topic are allowed.",
        ),
    ]
    chunking: Annotated[
        bool, Option(parse.boolean, False, "Split messages that are larger than the broker's limit.")
    ]
    chunk_max_size: Annotated[
        Size, Option(forms.chunk_size, None, "Largest chunk in bytes. Default: the broker's limit.")
    ]
    lazy_start: Annotated[
        bool,
        Option(
            parse.boolean,
            False,
            "Open the producer of a partition when its first message is sent. Not available with "
            "exclusive access.",
        ),
    ]
    properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "Metadata shown in the broker's statistics.")
    ]
    partitions_update_interval: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Interval for checking for new partitions, in seconds. 0 disables the check.",
        ),
    ]
    routing_partitions: Annotated[
        int,
        Option(
            parse.whole(1, 64 << 10),
            None,
            'Maximum number of partitions used by `routing="partial_round_robin"`.',
        ),
    ]
    router: Annotated[
        "Router",
        Option(
            parse.callable_,
            None,
            "Function that chooses the partition of each message. It is called with the key or "
            "`None`, the properties, and the number of partitions, and must not block.",
            face=True,
        ),
    ]
    interceptors: Annotated[
        "ProducerInterceptor | Sequence[ProducerInterceptor]",
        Option(
            forms.producer_interceptors,
            None,
            "Interceptors: objects that see each message before it is sent, and its result, in this order.",
            face=True,
        ),
    ]


class PulsarProducerOptions(ProducerOptionsButSchema, total=False):
    """Options of :meth:`forebay.pulsar.PulsarClient.producer`."""

    schema: Annotated[
        SchemaOption,
        Option(
            forms.schema,
            None,
            "Schema of the values to send, which the broker checks: a `Schema`, a dataclass or a "
            'pydantic model (JSON), or a primitive type. "auto" sends bytes that must match the '
            "schema of the topic. Without a schema, payloads are bytes.",
            common=True,
        ),
    ]


class ConsumerOptionsButSchema(TypedDict, total=False):
    """:class:`PulsarConsumerOptions` without ``schema``, which the types of values depend on."""

    type: Annotated[
        Literal["exclusive", "shared", "failover", "key_shared"],
        Option(
            parse.one_of("exclusive", "shared", "failover", "key_shared"),
            "exclusive",
            "Subscription type: how its consumers share the messages.",
            common=True,
        ),
    ]
    position: Annotated[
        "Start",
        Option(
            forms.position,
            "latest",
            'Start of a new subscription: "earliest", "latest" or a message id. An existing '
            "subscription rejects an id. Readers also accept times, durations back from now, and "
            "an id for each partition.",
            common=True,
        ),
    ]
    start_inclusive: Annotated[bool, Option(parse.boolean, False, "Also deliver the message at `position`.")]
    durable: Annotated[
        bool, Option(parse.boolean, True, "Keep the subscription after its consumers are closed.")
    ]
    receiver_queue: Annotated[
        int,
        Option(
            parse.whole(0, 1 << 20),
            1000,
            "Limit of messages fetched ahead, per partition. With 0 the consumer requests a "
            "message or batch only when the application waits for it; this requires one topic "
            "without partitions.",
        ),
    ]
    receive_buffer: Annotated[
        Size,
        Option(
            parse.size,
            16 << 20,
            "Limit in bytes of messages fetched ahead, over all partitions. Each partition may "
            "exceed its share by one message or batch.",
        ),
    ]
    batch_index_ack: Annotated[
        bool, Option(parse.boolean, True, "Acknowledge single messages of a batch instead of whole batches.")
    ]
    max_chunked_message: Annotated[
        Size,
        Option(
            parse.size,
            128 << 20,
            "Largest chunked message to assemble, and largest size to decompress any message to, "
            "in bytes, per partition. A larger message is unreadable.",
        ),
    ]
    max_pending_chunked_messages: Annotated[
        int,
        Option(
            parse.whole(0, 2 << 30),
            10,
            "Limit of incomplete chunked messages, per partition. When it is reached, the oldest "
            "is dropped. 0 sets no limit other than `max_chunked_message`.",
        ),
    ]
    chunked_message_timeout: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Timeout for the next chunk of an incomplete chunked message, in seconds. 0 disables it.",
        ),
    ]
    ack_incomplete_chunks: Annotated[
        bool,
        Option(
            parse.boolean,
            False,
            "Acknowledge the chunks of incomplete messages that are dropped. Otherwise they stay "
            "unacknowledged and are redelivered.",
        ),
    ]
    unreadable: Annotated[
        Literal["skip", "fail", "discard"],
        Option(
            parse.one_of("skip", "fail", "discard"),
            "skip",
            'Handling of encrypted or damaged entries. "skip" leaves them unacknowledged, even by'
            ' `ack_cumulative`; "fail" does the same and closes the consumer with an error; '
            '"discard" acknowledges them.',
        ),
    ]
    ack_group_time: Annotated[
        Duration, Option(parse.duration, 0.1, "Time for which acknowledgements are collected, in seconds.")
    ]
    nack_delay: Annotated[
        "Duration | Backoff",
        Option(
            forms.delay,
            60.0,
            "Redelivery delay of a nacked message, in seconds, or a `Backoff` that grows with "
            "each redelivery.",
        ),
    ]
    ack_timeout: Annotated[
        "Duration | Backoff",
        Option(
            forms.ack_timeout,
            None,
            "Time after which a received message that is neither acknowledged nor nacked is "
            "redelivered, in seconds, at least 1; or a `Backoff` that grows with each redelivery."
            " Default: no limit.",
        ),
    ]
    dead_letter: Annotated[
        "DeadLetterPolicy",
        Option(
            forms.dead_letter,
            None,
            "Dead letter policy (`DeadLetterPolicy`) for messages that are redelivered too often.",
            common=True,
        ),
    ]
    key_shared: Annotated[
        "KeySharedPolicy",
        Option(
            forms.key_shared,
            None,
            "Assignment of keys to the consumers of a Key_Shared subscription, a `KeySharedPolicy`.",
        ),
    ]
    name: Annotated[str, Option(parse.text, None, "Consumer name in the broker's statistics.")]
    priority: Annotated[
        int,
        Option(
            parse.whole(0), 0, "Priority on Shared and Failover subscriptions. Lower values are served first."
        ),
    ]
    read_compacted: Annotated[
        bool, Option(parse.boolean, False, "Read the compacted topic: only the last message of each key.")
    ]
    properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "Metadata shown in the broker's statistics.")
    ]
    subscription_properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "Metadata stored with a new subscription.")
    ]
    partitions_update_interval: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Interval for checking for new partitions, in seconds. 0 disables the check.",
        ),
    ]
    pattern_update_interval: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Interval for polling the topics that match a pattern, in seconds. Brokers that "
            "support it also report changes. 0 disables polling.",
        ),
    ]
    pattern_max_topics: Annotated[
        int,
        Option(
            parse.whole(1, 128 << 10), 10_000, "Maximum number of topics of a pattern. Each partition counts."
        ),
    ]
    ack_receipt: Annotated[
        bool, Option(parse.boolean, False, "Make `ack` wait for the broker's confirmation.", face=True)
    ]
    topics_domain: Annotated[
        Literal["persistent", "non-persistent", "all"],
        Option(
            parse.one_of("persistent", "non-persistent", "all"),
            None,
            "Domain of the topics of a pattern. Default: the pattern's, or persistent.",
        ),
    ]
    interceptors: Annotated[
        "ConsumerInterceptor | Sequence[ConsumerInterceptor]",
        Option(
            forms.consumer_interceptors,
            None,
            "Interceptors: objects that see each message before the application does, and its "
            "acknowledgement, in this order.",
            face=True,
        ),
    ]


class PulsarConsumerOptions(ConsumerOptionsButSchema, total=False):
    """Options of :meth:`forebay.pulsar.PulsarClient.consumer`."""

    schema: Annotated[
        SchemaOption,
        Option(
            forms.schema,
            None,
            'Schema by which `message.value` decodes: as for producers, or "auto" for the schema '
            "of each message. Without a schema, values are bytes.",
            common=True,
        ),
    ]


documented(
    PulsarClientOptions,
    ProducerOptionsButSchema,
    PulsarProducerOptions,
    ConsumerOptionsButSchema,
    PulsarConsumerOptions,
)
