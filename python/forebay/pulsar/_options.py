"""Options of Pulsar's clients, producers and consumers."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict

from forebay._core import parse
from forebay._core.options import RETRY_FIRST, Duration, Option, Pem, Secret, Size, Timestamp, documented

if TYPE_CHECKING:
    from forebay._engine import MessageId

    from ._interceptors import ConsumerInterceptor, ProducerInterceptor
    from ._policies import Backoff, DeadLetterPolicy, KeySharedPolicy
    from ._routing import Router
    from ._schema import Schema

PulsarUrl = Literal["embedded:", "pulsar://localhost:6650", "pulsar://127.0.0.1:6650"]
"""URLs by which type checkers tell the protocol in :func:`forebay.connect`. Types cannot express the prefix
of a text, so these are the whole URLs that examples and tests use most."""
Start: TypeAlias = (
    "MessageId | str | Timestamp | timedelta | Mapping[str, MessageId | str] | Sequence[MessageId | str]"
)
"""Beginning of a consumer or a reader. All but the first two are of readers."""
SchemaOption: TypeAlias = "Schema[Any] | type[Any] | str"
"""A schema, or what stands for one: a class, the name of a primitive type, or ``"auto"``."""
FrameSchema: TypeAlias = "Schema[Any] | type[Any] | str"
"""The schema of the rows of a frame: ``"producer"``, ``"avro"``, ``"json"``, or a schema."""
SubscriptionType = Literal["exclusive", "shared", "failover", "key_shared"]
Codec = Literal["none", "lz4", "zlib", "zstd", "snappy"]

_flag, _text = parse.boolean, parse.text


def _chunk_size(value: Any) -> int:
    if (size := parse.size(value)) < 1:
        raise ValueError("expected at least 1 byte")
    return size


def _position(value: Any) -> Any:
    from ._positions import position

    return position(value)


def _delay(value: Any) -> Any:
    from ._policies import delay

    return delay(value)


def _ack_timeout(value: Any) -> Any:
    from ._policies import ack_timeout

    return ack_timeout(value)


def _dead_letter(value: Any) -> Any:
    from ._policies import dead_letter

    return dead_letter(value)


def _producer_interceptors(value: Any) -> Any:
    from ._interceptors import interceptors

    return interceptors("before_send", "on_send_acknowledged", "close")(value)


def _consumer_interceptors(value: Any) -> Any:
    from ._interceptors import interceptors

    methods = ("before_consume", "on_acknowledge", "on_acknowledge_cumulative", "on_nack", "close")
    return interceptors(*methods)(value)


def _schema(value: Any) -> Any:
    from ._schema import schema_of

    return schema_of(value)


def _key_shared(value: Any) -> Any:
    from ._policies import key_shared

    return key_shared(value)


class PulsarClientOptions(TypedDict, total=False):
    """Options of :func:`forebay.connect` with a Pulsar or ``embedded:`` URL."""

    connect_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "Seconds to wait for the first connection.")
    ]
    retry_first: Annotated[bool | Duration, RETRY_FIRST]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Time limit in seconds of subscribe, seek, close and lookups.")
    ]
    keep_alive: Annotated[Duration, Option(parse.duration, 30.0, "Seconds between two PING commands.")]
    max_backoff: Annotated[
        Duration, Option(parse.duration, 60.0, "Longest pause in seconds before a reconnect.")
    ]
    memory_limit: Annotated[
        Size,
        Option(parse.size, 64 << 20, "Bytes that all producers together may hold until their receipts come."),
    ]
    token: Annotated[
        Secret,
        Option(
            parse.token,
            None,
            "Token for token authentication (JWT), or an `OAuth2`, which gets tokens.",
            secret=True,
        ),
    ]
    username: Annotated[str, Option(_text, None, "Name for basic authentication.")]
    password: Annotated[Secret, Option(parse.secret, None, "Password for basic authentication.", secret=True)]
    basic_method: Annotated[
        str,
        Option(
            _text,
            None,
            'Method under which `username` and `password` are sent, `"basic"` by default; for brokers with a'
            " method of their own.",
        ),
    ]
    tls_ca: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Certificate authorities to trust instead of the platform's. This file and the next two are read"
            " again at each connection.",
        ),
    ]
    tls_cert: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Client certificate chain, for mutual TLS, and for TLS authentication if there is no token.",
        ),
    ]
    tls_key: Annotated[Pem, Option(parse.pem, None, "Private key of the client certificate.", secret=True)]
    tls_pin: Annotated[
        "str | Sequence[str]",
        Option(
            parse.fingerprints,
            None,
            "SHA-256 fingerprints of the only certificates to accept, in hexadecimal: of any authority, for"
            " any name and time.",
        ),
    ]
    tls_skip_hostname_check: Annotated[
        bool, Option(_flag, False, "Accepts a certificate for any host name. For tests only.")
    ]
    listener_name: Annotated[str, Option(_text, None, "Advertised listener to ask for in lookups.")]
    lookup_properties: Annotated[
        Mapping[str, str],
        Option(parse.mapping, None, "Metadata of each lookup, for extensions of brokers that look at it."),
    ]
    connections_per_broker: Annotated[
        int, Option(parse.whole(1, 64), 1, "Number of connections to each broker.")
    ]
    threads: Annotated[
        int,
        Option(
            parse.whole(1, 64),
            1,
            "Number of engine threads, set for the process by its first client. With 1, sending one message"
            " at a time to a broker on the same machine keeps a second CPU core busy; 2 disables this.",
        ),
    ]


class ProducerOptionsButSchema(TypedDict, total=False):
    """:class:`PulsarProducerOptions` without ``schema``, which the types of values depend on."""

    name: Annotated[
        str, Option(_text, None, "Producer name. Deduplication needs one that survives restarts.")
    ]
    batching: Annotated[bool, Option(_flag, True, "Packs several messages into one entry.")]
    batch_max_messages: Annotated[
        int, Option(parse.whole(1, 1 << 20), 1000, "Maximum number of messages in a batch.")
    ]
    batch_max_bytes: Annotated[Size, Option(parse.size, 128 << 10, "Maximum size of a batch in bytes.")]
    batching_delay: Annotated[
        Duration,
        Option(parse.duration, 0.001, "Longest time in seconds that a batch waits for more messages."),
    ]
    key_based_batching: Annotated[
        bool, Option(_flag, False, "Gives each key batches of its own, as Key_Shared subscriptions need.")
    ]
    stop_on_refusal: Annotated[
        bool,
        Option(
            _flag,
            False,
            "Sends a batch at a time, and nothing behind one that the broker has refused. With deduplication,"
            " messages that are sent again after a refusal would otherwise be dropped, since later ones were"
            " stored. Messages that the broker has of an earlier producer of the same name, by their"
            " sequence_id, are not sent, but for the last one.",
        ),
    ]
    compression: Annotated[
        Codec,
        Option(
            parse.one_of("none", "lz4", "zlib", "zstd", "snappy"), "none", "Codec that compresses batches."
        ),
    ]
    compression_min_size: Annotated[
        Size, Option(parse.size, 0, "Batches and messages with fewer bytes than this are not compressed.")
    ]
    send_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Seconds to wait for a receipt; 0 waits forever.")
    ]
    max_pending: Annotated[
        int,
        Option(parse.whole(1, 1 << 24), 1000, "Send window: messages without a receipt, per partition."),
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
            "Partition of messages without a key: in turn, always the same, or in turn among"
            " `routing_partitions` chosen at random, to which keys are sent as well.",
        ),
    ]
    routing_partitions: Annotated[
        int,
        Option(
            parse.whole(1, 1 << 16),
            None,
            'Number of partitions that `routing="partial_round_robin"` uses at most.',
        ),
    ]
    router: Annotated[
        "Router",
        Option(
            parse.callable_,
            None,
            "Function that chooses the partition of each message, called with its key or `None`, its"
            " properties, and the number of partitions. It must not block.",
            face=True,
        ),
    ]
    lazy_start: Annotated[
        bool,
        Option(
            _flag,
            False,
            "Opens the producer of a partition when it gets its first message. Not with exclusive access.",
        ),
    ]
    initial_sequence_id: Annotated[
        int,
        Option(
            parse.whole(-1, 2**62),
            None,
            "Sequence id that counts as published last: the first message gets the next one. -1 for none; by"
            " default the broker's last.",
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
        bool, Option(_flag, False, "Splits messages that are larger than the broker's limit.")
    ]
    chunk_max_size: Annotated[
        Size,
        Option(
            _chunk_size, None, "Largest chunk in bytes; by default as large as the broker's limit allows."
        ),
    ]
    partitions_update_interval: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Seconds between two looks at whether the topic has got more partitions; 0 never looks.",
        ),
    ]
    properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "Metadata shown in the broker's statistics.")
    ]
    interceptors: Annotated[
        "ProducerInterceptor | Sequence[ProducerInterceptor]",
        Option(
            _producer_interceptors,
            None,
            "Objects that see each message before it is sent, and its result, in this order.",
            face=True,
        ),
    ]


class PulsarProducerOptions(ProducerOptionsButSchema, total=False):
    """Options of :meth:`forebay.pulsar.PulsarClient.producer`."""

    schema: Annotated[
        SchemaOption,
        Option(
            _schema,
            None,
            "Schema of the values that are sent, which the broker checks: a `Schema`, a dataclass or a"
            ' pydantic model (JSON), or a primitive type; or "auto" for bytes, which must fit the schema of'
            " the topic. Without it, payloads are bytes.",
        ),
    ]


class ConsumerOptionsButSchema(TypedDict, total=False):
    """:class:`PulsarConsumerOptions` without ``schema``, which the types of values depend on."""

    type: Annotated[
        SubscriptionType,
        Option(
            parse.one_of("exclusive", "shared", "failover", "key_shared"),
            "exclusive",
            "Subscription type: how its consumers share the messages.",
        ),
    ]
    position: Annotated[
        "Start",
        Option(
            _position,
            "latest",
            'Where a new subscription begins: "earliest", "latest" or a message id; a subscription that'
            " exists refuses an id. Readers also take times, durations back and an id for each partition.",
        ),
    ]
    start_inclusive: Annotated[bool, Option(_flag, False, "Delivers the message of `position` as well.")]
    durable: Annotated[bool, Option(_flag, True, "Keeps the subscription when its consumers are gone.")]
    receiver_queue: Annotated[
        int,
        Option(
            parse.whole(0, 1 << 20),
            1000,
            "Maximum number of messages fetched ahead, per partition. With 0 a message, or a batch, is asked"
            " for when the application waits for it; for one topic without partitions.",
        ),
    ]
    receive_buffer: Annotated[
        Size,
        Option(
            parse.size,
            16 << 20,
            "Maximum size of the messages fetched ahead in bytes, over all partitions; each may exceed its"
            " share by a message or batch.",
        ),
    ]
    ack_receipt: Annotated[
        bool, Option(_flag, False, "Makes `ack` wait for the broker's confirmation.", face=True)
    ]
    max_chunked_message: Annotated[
        Size,
        Option(
            parse.size,
            128 << 20,
            "Largest chunked message that is assembled, and largest size that any message may expand to, in"
            " bytes, per partition; a larger one is unreadable.",
        ),
    ]
    max_pending_chunked_messages: Annotated[
        int,
        Option(
            parse.whole(0, 1 << 31),
            10,
            "Maximum number of incomplete chunked messages, per partition; the oldest makes room for others."
            " 0 for no limit other than on bytes.",
        ),
    ]
    chunked_message_timeout: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Seconds that an incomplete chunked message waits for its next chunk before it is given up; 0 for"
            " no limit.",
        ),
    ]
    ack_incomplete_chunks: Annotated[
        bool,
        Option(
            _flag,
            False,
            "Acknowledges the chunks of chunked messages that are given up incomplete. Otherwise they stay"
            " unacknowledged and are delivered again.",
        ),
    ]
    unreadable: Annotated[
        Literal["skip", "fail", "discard"],
        Option(
            parse.one_of("skip", "fail", "discard"),
            "skip",
            'What happens to encrypted or damaged entries. "skip": they stay unacknowledged, also by'
            ' ack_cumulative; "fail": as "skip", and the consumer ends with an error; "discard": they are'
            " acknowledged.",
        ),
    ]
    batch_index_ack: Annotated[
        bool, Option(_flag, True, "Acknowledges single messages of a batch rather than whole batches.")
    ]
    ack_group_time: Annotated[
        Duration, Option(parse.duration, 0.1, "Seconds for which acknowledgements are gathered.")
    ]
    nack_delay: Annotated[
        "Duration | Backoff",
        Option(
            _delay,
            60.0,
            "Seconds until a nacked message is delivered again, or a `Backoff`, which grows with its"
            " redeliveries.",
        ),
    ]
    ack_timeout: Annotated[
        "Duration | Backoff",
        Option(
            _ack_timeout,
            None,
            "Seconds after which a received message that is neither acknowledged nor nacked is delivered"
            " again, at least 1; or a `Backoff`, which grows with its redeliveries. No limit by default.",
        ),
    ]
    dead_letter: Annotated[
        "DeadLetterPolicy",
        Option(
            _dead_letter,
            None,
            "A `DeadLetterPolicy`: messages that are redelivered too often are sent to another topic.",
        ),
    ]
    key_shared: Annotated[
        "KeySharedPolicy",
        Option(
            _key_shared,
            None,
            "A `KeySharedPolicy`: how keys are assigned to the consumers of a Key_Shared subscription.",
        ),
    ]
    name: Annotated[str, Option(_text, None, "Consumer name in the broker's statistics.")]
    read_compacted: Annotated[
        bool, Option(_flag, False, "Reads the compacted topic: only the last message of each key.")
    ]
    priority: Annotated[
        int,
        Option(parse.whole(0), 0, "Priority on Shared and Failover subscriptions; lower is served first."),
    ]
    partitions_update_interval: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Seconds between two looks at whether the topics have got more partitions; 0 never looks.",
        ),
    ]
    topics_domain: Annotated[
        Literal["persistent", "non-persistent", "all"],
        Option(
            parse.one_of("persistent", "non-persistent", "all"),
            None,
            "Domain of the topics of a pattern; by default the pattern's, or persistent ones.",
        ),
    ]
    pattern_update_interval: Annotated[
        Duration,
        Option(
            parse.duration,
            60.0,
            "Seconds between two looks at the topics of a pattern, of which brokers tell as well if they can;"
            " 0 never looks.",
        ),
    ]
    pattern_max_topics: Annotated[
        int,
        Option(
            parse.whole(1, 1 << 17), 10_000, "Maximum number of topics of a pattern, each partition counted."
        ),
    ]
    properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "Metadata shown in the broker's statistics.")
    ]
    subscription_properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "Metadata stored with a new subscription.")
    ]
    interceptors: Annotated[
        "ConsumerInterceptor | Sequence[ConsumerInterceptor]",
        Option(
            _consumer_interceptors,
            None,
            "Objects that see each message before the program does, and its acknowledgement, in this order.",
            face=True,
        ),
    ]


class PulsarConsumerOptions(ConsumerOptionsButSchema, total=False):
    """Options of :meth:`forebay.pulsar.PulsarClient.consumer`."""

    schema: Annotated[
        SchemaOption,
        Option(
            _schema,
            None,
            'Schema of the values that `message.value` gives: as for producers, or "auto" for that of each'
            " message. Without it, values are bytes.",
        ),
    ]


documented(
    PulsarClientOptions,
    ProducerOptionsButSchema,
    PulsarProducerOptions,
    ConsumerOptionsButSchema,
    PulsarConsumerOptions,
)
