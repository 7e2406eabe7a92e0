"""Every option in one place: name, type, unit, default, meaning and parser.

The ``TypedDict`` classes below are both the type of the keywords and the table that checks them at run time.
A value comes from, in this order: keyword, URL query (``pulsar://host:6650?compression=zstd``), environment,
default. In a query and in the environment a name stands alone where it is unambiguous
(``PENSTOCK_COMPRESSION``), else it is prefixed (``?producer.name=a``, ``PENSTOCK_PRODUCER_NAME``).

>>> from penstock.options import resolve
>>> resolve("producer", {"batching_delay": "5ms", "batch_max_bytes": "1MiB"})["batch_max_bytes"]
1048576
>>> resolve("producer", {"compresion": "zstd"})
Traceback (most recent call last):
penstock.errors.InvalidArgument: producer has no option 'compresion'; did you mean 'compression'?
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict

from . import parse
from .errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from ._engine import MessageId
    from .mqtt import Will
    from .tubemq import Position

Duration = float | timedelta | str
"""Seconds, a ``timedelta``, or text such as ``"250ms"``."""
Size = int | str
"""Bytes, or text such as ``"64MiB"``."""
Timestamp = datetime | int
"""An aware ``datetime``, or milliseconds since 1970."""
Secret = str | Callable[[], str]
"""The text itself, ``"env:NAME"``, ``"file:PATH"``, or a callable. Never shown in a ``repr``."""
Pem = str | bytes | os.PathLike[str]
"""PEM itself or the path of a file."""
SubscriptionType = Literal["exclusive", "shared", "failover", "key_shared"]
Codec = Literal["none", "lz4", "zlib", "zstd", "snappy"]


class Option(NamedTuple):
    """One option: how its value is read, its default (``None``: not set), and what it means."""

    parse: parse.Parser
    default: Any
    doc: str
    secret: bool = False
    face: bool = False
    """Used on the Python side only, not handed to the engine."""


_flag, _text = parse.boolean, parse.text


class ClientOptions(TypedDict, total=False):
    """Options of :func:`penstock.connect`."""

    connect_timeout: Annotated[Duration, Option(parse.duration, 10.0, "seconds for one connection to be up")]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "seconds for subscribe, seek, close ...")
    ]
    keep_alive: Annotated[Duration, Option(parse.duration, 30.0, "seconds between two PINGs")]
    max_backoff: Annotated[
        Duration, Option(parse.duration, 60.0, "longest pause in seconds before a reconnect")
    ]
    memory_limit: Annotated[Size, Option(parse.size, 64 << 20, "bytes waiting for receipts, all producers")]
    token: Annotated[Secret, Option(parse.secret, None, "token authentication", secret=True)]
    tls_ca: Annotated[Pem, Option(parse.pem, None, "authorities to trust instead of the platform's")]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "own certificate chain")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "own private key", secret=True)]
    tls_skip_hostname_check: Annotated[bool, Option(_flag, False, "accepts any host name; for tests")]
    listener_name: Annotated[str, Option(_text, None, "advertised listener to ask for")]
    connections_per_broker: Annotated[int, Option(parse.whole(1, 64), 1, "connections to each broker")]
    threads: Annotated[
        int, Option(parse.whole(1, 64), 1, "of the engine; the first client of a process decides")
    ]


class ProducerOptions(TypedDict, total=False):
    """Options of :meth:`penstock.Client.producer`."""

    name: Annotated[str, Option(_text, None, "its name; deduplication needs one that stays")]
    batching: Annotated[bool, Option(_flag, True, "several messages in one entry")]
    batch_max_messages: Annotated[int, Option(parse.whole(1, 1 << 20), 1000, "most messages of a batch")]
    batch_max_bytes: Annotated[Size, Option(parse.size, 128 << 10, "most bytes of a batch")]
    batching_delay: Annotated[Duration, Option(parse.duration, 0.001, "longest wait of a batch in seconds")]
    key_based_batching: Annotated[bool, Option(_flag, False, "one key per batch, for Key_Shared consumers")]
    compression: Annotated[
        Codec, Option(parse.one_of("none", "lz4", "zlib", "zstd", "snappy"), "none", "of whole batches")
    ]
    send_timeout: Annotated[Duration, Option(parse.duration, 30.0, "seconds to the receipt; 0: no limit")]
    max_pending: Annotated[
        int, Option(parse.whole(1, 1 << 24), 1000, "messages without receipt per partition")
    ]
    hashing: Annotated[
        Literal["java", "murmur3", "boost"],
        Option(parse.one_of("java", "murmur3", "boost"), "java", "how keys choose partitions"),
    ]
    routing: Annotated[
        Literal["round_robin", "single"],
        Option(parse.one_of("round_robin", "single"), "round_robin", "partition of messages without key"),
    ]
    initial_sequence_id: Annotated[int, Option(parse.whole(0, 2**62), None, "first sequence id")]
    access_mode: Annotated[
        Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"],
        Option(
            parse.one_of("shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"),
            "shared",
            "who else may produce",
        ),
    ]
    chunking: Annotated[bool, Option(_flag, False, "splits messages over the broker's limit")]
    properties: Annotated[Mapping[str, str], Option(parse.mapping, None, "shown in the broker's statistics")]


class ConsumerOptions(TypedDict, total=False):
    """Options of :meth:`penstock.Client.consumer`."""

    type: Annotated[
        SubscriptionType,
        Option(
            parse.one_of("exclusive", "shared", "failover", "key_shared"), "exclusive", "of the subscription"
        ),
    ]
    position: Annotated[
        "MessageId | Position | Sequence[Position] | str",
        Option(parse.position, "latest", '"earliest", "latest" or an id: where a new subscription begins'),
    ]
    start_inclusive: Annotated[bool, Option(_flag, False, "gives the message of `position`, too")]
    durable: Annotated[bool, Option(_flag, True, "the subscription outlives its consumers")]
    receiver_queue: Annotated[
        int, Option(parse.whole(1, 1 << 20), 1000, "messages fetched ahead per partition")
    ]
    ack_receipt: Annotated[bool, Option(_flag, False, "`ack` waits for the broker's answer", face=True)]
    batch_index_ack: Annotated[bool, Option(_flag, True, "acknowledges single messages of a batch")]
    ack_group_time: Annotated[Duration, Option(parse.duration, 0.1, "seconds acknowledgements are gathered")]
    nack_delay: Annotated[
        Duration, Option(parse.duration, 60.0, "seconds until a nacked message comes again")
    ]
    name: Annotated[str, Option(_text, None, "its name in the broker's statistics")]
    read_compacted: Annotated[bool, Option(_flag, False, "only the last message of each key")]
    priority: Annotated[int, Option(parse.whole(0), 0, "lower is served first, Shared and Failover")]
    properties: Annotated[Mapping[str, str], Option(parse.mapping, None, "shown in the broker's statistics")]
    subscription_properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "kept with the subscription")
    ]


def _will(value: Any) -> Any:
    from . import mqtt

    return mqtt.will(value)


def _call(value: Any) -> Any:
    if not callable(value):
        raise ValueError("a callable is expected")
    return value


class MqttClientOptions(TypedDict, total=False):
    """Options of :func:`penstock.connect` with an MQTT URL."""

    connect_timeout: Annotated[Duration, Option(parse.duration, 10.0, "seconds for one connection to be up")]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "seconds for subscribe, unsubscribe, close")
    ]
    keep_alive: Annotated[Duration, Option(parse.duration, 60.0, "longest silence of ours in seconds")]
    max_backoff: Annotated[
        Duration, Option(parse.duration, 60.0, "longest pause in seconds before a reconnect")
    ]
    memory_limit: Annotated[Size, Option(parse.size, 64 << 20, "bytes waiting for answers, all producers")]
    tls_ca: Annotated[Pem, Option(parse.pem, None, "authorities to trust instead of the platform's")]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "own certificate chain")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "own private key", secret=True)]
    tls_skip_hostname_check: Annotated[bool, Option(_flag, False, "accepts any host name; for tests")]
    threads: Annotated[
        int, Option(parse.whole(1, 64), 1, "of the engine; the first client of a process decides")
    ]
    version: Annotated[
        Literal["5", "3.1.1", "3.1", "auto", 5],
        Option(parse.one_of("5", "3.1.1", "3.1", "auto"), "5", "of the protocol; auto: the newest it speaks"),
    ]
    client_id: Annotated[str, Option(_text, None, "name of the session; default: one that nobody has")]
    clean_start: Annotated[
        bool, Option(_flag, True, "begins without what was there before; False needs a client_id")
    ]
    session_expiry: Annotated[
        Duration,
        Option(
            parse.duration,
            None,
            "seconds the session outlives the connection, also after close(); default: 300 while the client"
            " lives, for ever with clean_start=False",
        ),
    ]
    username: Annotated[str, Option(_text, None, "user name")]
    password: Annotated[Secret, Option(parse.secret, None, "password", secret=True)]
    will: Annotated["Will", Option(_will, None, "published when the connection ends without a goodbye")]
    authentication_method: Annotated[str, Option(_text, None, "of extended authentication, 5.0")]
    authenticator: Annotated[
        Callable[[bytes | None], bytes | None],
        Option(_call, None, "its steps: given the broker's data, None at first, gives ours"),
    ]
    connect_properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "user properties of CONNECT, 5.0")
    ]
    request_response_information: Annotated[
        bool, Option(_flag, False, "asks for the start of response topics, see stats()")
    ]
    max_inflight: Annotated[
        int, Option(parse.whole(1, 65535), 1000, "QoS 1 and 2 in flight, if the broker takes as many")
    ]
    receive_maximum: Annotated[
        int, Option(parse.whole(1, 65535), 1000, "QoS 1 and 2 that we take at a time, 5.0")
    ]
    topic_alias_maximum: Annotated[int, Option(parse.whole(0, 65535), 100, "topic aliases that we take, 5.0")]
    max_packet_size: Annotated[
        Size, Option(parse.packet_size, 16 << 20, "bytes of the largest packet we take")
    ]
    receive_buffer: Annotated[
        Size, Option(parse.size, 16 << 20, "bytes that wait to be taken before the socket is left alone")
    ]
    offline: Annotated[
        Literal["reject", "drop_oldest", "spill"],
        Option(
            parse.one_of("reject", "drop_oldest", "spill"),
            "reject",
            "what happens when max_pending is reached without a connection; spill needs an outbox",
        ),
    ]
    outbox: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "file that keeps QoS 1 and 2 until the broker has them, also over a kill of the process; a send"
            " ends when its message is in the file",
        ),
    ]
    outbox_limit: Annotated[Size, Option(parse.size, 1 << 30, "bytes of the outbox; then QueueFull")]
    tls_alpn: Annotated[str, Option(str, "mqtt", 'protocol offered in the TLS handshake; "": none')]
    ws_headers: Annotated[Mapping[str, str], Option(parse.mapping, None, "of the WebSocket handshake")]


class MqttProducerOptions(TypedDict, total=False):
    """Options of :meth:`penstock.Client.producer` with an MQTT URL."""

    max_pending: Annotated[int, Option(parse.whole(1, 1 << 24), 1000, "messages without an answer")]
    qos: Annotated[Literal[0, 1, 2], Option(parse.whole(0, 2), 1, "of messages that say nothing else")]
    retain: Annotated[bool, Option(_flag, False, "whether the broker keeps the last message")]


class MqttConsumerOptions(TypedDict, total=False):
    """Options of :meth:`penstock.Client.consumer` with an MQTT URL."""

    qos: Annotated[Literal[0, 1, 2], Option(parse.whole(0, 2), 1, "highest QoS of what is delivered")]
    auto_ack: Annotated[bool, Option(_flag, False, "messages are acknowledged when they are taken")]
    no_local: Annotated[bool, Option(_flag, False, "not what this client publishes itself, 5.0")]
    retain_as_published: Annotated[bool, Option(_flag, False, "keeps the retain flag of live messages, 5.0")]
    retain_handling: Annotated[
        Literal["always", "if_new", "never"],
        Option(parse.one_of("always", "if_new", "never"), "always", "when retained messages are sent, 5.0"),
    ]


def _tube_position(value: Any) -> Any:
    from . import tubemq

    return tubemq.position(value)


def _tube_filters(value: Any) -> Any:
    from . import tubemq

    return tubemq.filters(value)


class TubeClientOptions(TypedDict, total=False):
    """Options of :func:`penstock.connect` with a TubeMQ URL."""

    connect_timeout: Annotated[Duration, Option(parse.duration, 10.0, "seconds for one connection to be up")]
    operation_timeout: Annotated[Duration, Option(parse.duration, 30.0, "seconds for open, seek, close")]
    request_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "seconds for one call, by the server's clock too")
    ]
    heartbeat_interval: Annotated[
        Duration,
        Option(parse.duration, 10.0, "seconds between signs of life; servers forget who is silent for 30"),
    ]
    max_backoff: Annotated[
        Duration, Option(parse.duration, 2.0, "longest pause in seconds before a reconnect")
    ]
    memory_limit: Annotated[Size, Option(parse.size, 64 << 20, "bytes waiting for answers, all producers")]
    receive_buffer: Annotated[
        Size, Option(parse.size, 16 << 20, "bytes fetched and not taken before a consumer fetches no more")
    ]
    username: Annotated[str, Option(_text, None, "user name")]
    password: Annotated[Secret, Option(parse.secret, None, "password", secret=True)]
    tls_ca: Annotated[Pem, Option(parse.pem, None, "authorities to trust instead of the platform's")]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "own certificate chain; TLS is mutual only")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "own private key", secret=True)]
    tls_skip_hostname_check: Annotated[bool, Option(_flag, False, "accepts any host name; for tests")]
    threads: Annotated[
        int, Option(parse.whole(1, 64), 1, "of the engine; the first client of a process decides")
    ]


class TubeProducerOptions(TypedDict, total=False):
    """Options of :meth:`penstock.Client.producer` with a TubeMQ URL."""

    max_pending: Annotated[int, Option(parse.whole(1, 1 << 24), 1000, "messages without an answer")]
    send_timeout: Annotated[Duration, Option(parse.duration, 30.0, "seconds to the answer; 0: no limit")]
    message_type: Annotated[str, Option(_text, None, "of messages that say nothing else; for filters")]


class TubeConsumerOptions(TypedDict, total=False):
    """Options of :meth:`penstock.Client.consumer` with a TubeMQ URL."""

    position: Annotated[
        "MessageId | Position | Sequence[Position] | str",
        Option(
            _tube_position,
            "latest",
            'where a new group begins: "first" or "latest"; "max": at the end in any case; or positions',
        ),
    ]
    filters: Annotated[
        Sequence[str] | Mapping[str, Sequence[str]],
        Option(_tube_filters, None, "message types that are wanted, or topics with theirs"),
    ]
    balance: Annotated[
        Literal["client", "server"],
        Option(parse.one_of("client", "server"), "client", "who decides which member has which partition"),
    ]
    source_count: Annotated[
        int, Option(parse.whole(1), None, "members of the group; then each has a node_id (client balance)")
    ]
    node_id: Annotated[int, Option(parse.whole(0), None, "own number, from 0 (client balance)")]
    auto_ack: Annotated[bool, Option(_flag, False, "messages are acknowledged when they are taken")]
    nack_delay: Annotated[
        Duration, Option(parse.duration, 1.0, "seconds until the pack of a nacked message comes again")
    ]
    poll_interval: Annotated[
        Duration, Option(parse.duration, 0.1, "longest wait in seconds before a look at an empty partition")
    ]


class AnyClientOptions(ClientOptions, MqttClientOptions, TubeClientOptions, total=False):
    """Options of :func:`penstock.connect`. Those of another protocol than the URL's are refused by name."""


class AnyProducerOptions(ProducerOptions, MqttProducerOptions, TubeProducerOptions, total=False):
    """Options of producers of every protocol."""


class AnyConsumerOptions(ConsumerOptions, MqttConsumerOptions, TubeConsumerOptions, total=False):
    """Options of consumers of every protocol."""


class BrokerOptions(TypedDict, total=False):
    """Options of :class:`penstock.Broker`."""

    data: Annotated[str | os.PathLike[str], Option(parse.path, None, "folder of the store; none: in memory")]
    host: Annotated[str, Option(_text, "127.0.0.1", "address to listen on")]
    port: Annotated[int, Option(parse.whole(0, 65535), 0, "port to listen on; 0: any free one")]
    durability: Annotated[
        Literal["fsync", "os", "memory"],
        Option(parse.one_of("fsync", "os", "memory"), None, "fsync with `data`, memory without"),
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "certificate chain: speak TLS")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "private key of the certificate", secret=True)]
    token_key: Annotated[Secret | bytes, Option(parse.key_bytes, None, "HS256 key of tokens", secret=True)]
    allow_insecure_bind: Annotated[
        bool, Option(_flag, False, "other addresses than loopback without TLS and tokens")
    ]
    advertised_url: Annotated[
        str, Option(_text, None, "URL that clients are told; default: made of host and port")
    ]
    max_store: Annotated[
        Size, Option(parse.size, None, "bytes kept; then producers get an error; 10 GiB, 1 GiB in memory")
    ]
    max_connections: Annotated[int, Option(parse.whole(1), 16_384, "most connections")]
    max_topics: Annotated[int, Option(parse.whole(1), 10_000, "most topics and partitions")]
    max_message_size: Annotated[Size, Option(parse.size, 5 << 20, "bytes of the largest message")]
    keep_alive: Annotated[Duration, Option(parse.duration, 30.0, "seconds between two PINGs")]
    retention: Annotated[Duration, Option(parse.duration, 600.0, "seconds that acknowledged messages stay")]
    retention_bytes: Annotated[Size, Option(parse.size, 32 << 20, "bytes of them in each topic, in memory")]
    auto_create: Annotated[bool, Option(_flag, True, "topics come into being on first use")]
    default_partitions: Annotated[
        int, Option(parse.whole(0, 1000), 0, "partitions of those; 0: plain topics")
    ]
    deduplicate: Annotated[bool, Option(_flag, True, "drops what a named producer has sent before")]
    mqtt_port: Annotated[
        int, Option(parse.whole(0, 65535), None, "port for MQTT, 0: any free one; none: no MQTT")
    ]
    mqtt_ws_port: Annotated[
        int, Option(parse.whole(0, 65535), None, "port for MQTT over WebSocket, path /mqtt; 0: any free one")
    ]
    mqtt_password_file: Annotated[
        str | os.PathLike[str], Option(parse.path, None, "users of MQTT, as `mosquitto_passwd` writes them")
    ]
    mqtt_max_packet_size: Annotated[
        Size, Option(parse.packet_size, 2_000_000, "bytes of the largest MQTT packet")
    ]
    mqtt_max_sessions: Annotated[int, Option(parse.whole(1), 100_000, "most MQTT sessions, connected or not")]
    mqtt_max_queue: Annotated[int, Option(parse.whole(1), 10_000, "most messages that wait for one session")]
    mqtt_max_queue_bytes: Annotated[Size, Option(parse.size, 64 << 20, "most bytes of them")]
    mqtt_max_output: Annotated[
        Size, Option(parse.size, 8 << 20, "bytes that wait for a slow connection before QoS 0 is dropped")
    ]
    mqtt_max_inflight: Annotated[
        int, Option(parse.whole(1, 10_000), 100, "messages of QoS 1 and 2 in flight to an MQTT client")
    ]
    mqtt_receive_maximum: Annotated[
        int, Option(parse.whole(1, 65535), 1000, "messages of QoS 1 and 2 in flight from an MQTT client")
    ]
    mqtt_topic_alias_maximum: Annotated[
        int, Option(parse.whole(0, 65535), 100, "highest topic alias of an MQTT client; 0: none")
    ]
    mqtt_max_retained: Annotated[int, Option(parse.whole(0), 100_000, "most retained messages")]
    mqtt_max_session_expiry: Annotated[
        Duration, Option(parse.duration, None, "longest time a session outlives its connection; none: any")
    ]
    tubemq_port: Annotated[
        int,
        Option(parse.whole(0, 65535), None, "port for TubeMQ, 0: any free one; none: no TubeMQ"),
    ]
    tubemq_user_file: Annotated[
        str | os.PathLike[str], Option(parse.path, None, "users of TubeMQ: a line `name:password` for each")
    ]
    tubemq_advertised_host: Annotated[str, Option(_text, None, "host that clients of TubeMQ are told")]
    tubemq_partitions: Annotated[
        int, Option(parse.whole(1, 10_000), 3, "partitions of TubeMQ's topics that come into being")
    ]
    tubemq_retention: Annotated[
        Duration, Option(parse.duration, 604_800.0, "seconds that messages stay, whoever has had them")
    ]
    tubemq_offset_retention: Annotated[
        Duration,
        Option(parse.duration, 1_728_000.0, "seconds that offsets of a group stay that holds no partition"),
    ]
    tubemq_max_message_size: Annotated[
        Size, Option(parse.size, 1 << 20, "bytes of TubeMQ's largest message, attributes included")
    ]
    tubemq_client_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "seconds of silence after which a client of TubeMQ has left")
    ]


class Defaults(NamedTuple):
    """What a URL's query and the environment say about handles that are opened later."""

    producer: dict[str, str]
    consumer: dict[str, str]


def _table(kind: Any) -> dict[str, Option]:
    return {name: hint.__metadata__[0] for name, hint in kind.__annotations__.items()}


TABLES: dict[str, dict[str, Option]] = {
    "client": _table(ClientOptions),
    "producer": _table(ProducerOptions),
    "consumer": _table(ConsumerOptions),
    "mqtt.client": _table(MqttClientOptions),
    "mqtt.producer": _table(MqttProducerOptions),
    "mqtt.consumer": _table(MqttConsumerOptions),
    "tubemq.client": _table(TubeClientOptions),
    "tubemq.producer": _table(TubeProducerOptions),
    "tubemq.consumer": _table(TubeConsumerOptions),
    "broker": _table(BrokerOptions),
}
_WIRE = ("client", "producer", "consumer")
_SCHEMES = {
    "pulsar": "pulsar",
    "pulsar+ssl": "pulsar",
    "embedded": "pulsar",
    "mqtt": "mqtt",
    "mqtts": "mqtt",
    "ws": "mqtt",
    "wss": "mqtt",
    "mqtt+unix": "mqtt",
    "tubemq": "tubemq",
    "tubemq+ssl": "tubemq",
}
_NAMES = {"": "Pulsar", "mqtt": "MQTT", "tubemq": "TubeMQ"}


def protocol_of(url: str) -> str:
    """``"pulsar"``, ``"mqtt"`` or ``"tubemq"``: what a URL that :func:`split_url` has passed speaks."""
    return _SCHEMES[url.partition(":")[0]]


def is_url(text: str) -> bool:
    """Whether it begins as a URL of a broker does; names of topics may have ``://``, too."""
    scheme, colon, rest = text.partition(":")
    return bool(colon) and scheme in _SCHEMES and (scheme == "embedded" or rest.startswith("//"))


def scope_of(protocol: str, scope: str) -> str:
    """The table of ``client``, ``producer`` or ``consumer`` of a protocol."""
    return scope if protocol == "pulsar" else f"{protocol}.{scope}"


def resolve(
    scope: str, given: Mapping[str, Any], inherited: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Checked and canonical values of all options of ``scope`` that are set: keywords ``given`` over what is
    ``inherited`` over the defaults. ``None`` means "not given".

    Raises:
        InvalidArgument: an unknown name (the nearest one is named) or a value that does not parse.
    """
    table = TABLES[scope]
    for name in given:
        if name not in table:
            protocol, _, bare = scope.rpartition(".")
            if any(name in TABLES[f"{other}.{bare}".lstrip(".")] for other in _NAMES if bare in _WIRE):
                raise Unsupported(f"{_NAMES[protocol]} has no {bare} option {name!r}")
            hint = parse.did_you_mean(name, list(table))
            raise InvalidArgument(f"{scope} has no option {name!r}{hint}")
    values: dict[str, Any] = {}
    for name, option in table.items():
        value = given.get(name)
        if value is None and inherited:
            value = inherited.get(name)
        if value is None:
            value = option.default
        if value is None:
            continue
        try:
            values[name] = option.parse(value)
        except ValueError as error:
            # The value of a secret never gets into a message, nor into the chain of causes.
            raise InvalidArgument(f"{scope} option {name!r}: {error}") from None
    return values


def to_engine(scope: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``values`` that the engine takes."""
    return {name: value for name, value in values.items() if not TABLES[scope][name].face}


def _place(name: str, protocol: str) -> tuple[str, str] | None:
    """(scope, option) of a bare or prefixed name; ``None`` when there is none or more than one."""
    scope, dot, rest = name.partition(".")
    if dot:
        known = scope in _WIRE and rest in TABLES[scope_of(protocol, scope)]
        return (scope, rest) if known else None
    scopes = [scope for scope in _WIRE if name in TABLES[scope_of(protocol, scope)]]
    return (scopes[0], name) if len(scopes) == 1 else None


def split(options: Mapping[str, Any], protocol: str = "pulsar") -> dict[str, dict[str, Any]]:
    """Sorts options of several scopes by where they belong: ``compression`` to ``producer``, ``token`` to
    ``client``.

    Raises:
        InvalidArgument: a name that is unknown, or ambiguous without its prefix.
    """
    result: dict[str, dict[str, Any]] = {scope: {} for scope in _WIRE}
    for name, value in options.items():
        place = _place(name, protocol)
        if place is None:
            known = [option for scope in _WIRE for option in TABLES[scope_of(protocol, scope)]]
            if name in known:
                raise InvalidArgument(
                    f"option {name!r} needs a prefix: 'producer.{name}' or 'consumer.{name}'"
                )
            raise InvalidArgument(f"there is no option {name!r}{parse.did_you_mean(name, known)}")
        result[place[0]][place[1]] = value
    return result


def _environment(protocol: str) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {scope: {} for scope in _WIRE}
    for variable, value in os.environ.items():
        if variable.startswith("PENSTOCK_") and value:
            name = variable.removeprefix("PENSTOCK_").lower()
            for scope in _WIRE:
                if name.startswith(f"{scope}_"):
                    name = f"{scope}.{name.removeprefix(f'{scope}_')}"
            if place := _place(name, protocol):
                result[place[0]][place[1]] = value
    return result


def split_url(url: str | None) -> tuple[str, dict[str, str]]:
    """The URL without its query, and the query. ``None`` takes ``PENSTOCK_URL``.

    Raises:
        InvalidArgument: no URL, or a scheme that does not exist.
    """
    url = url or os.environ.get("PENSTOCK_URL")
    if not url:
        raise InvalidArgument("a URL is needed: pulsar://host:6650, embedded:, or PENSTOCK_URL")
    base, _, query = url.partition("?")
    scheme, colon, _ = base.partition(":")
    if not colon or scheme not in _SCHEMES:
        hint = parse.did_you_mean(scheme, list(_SCHEMES))
        raise InvalidArgument(f"the URL's scheme is {scheme!r}, not one of {', '.join(_SCHEMES)}{hint}")
    if "@" in base and scheme != "embedded":
        raise InvalidArgument(
            "a URL holds no credentials: use token= or username= and password=, tls_cert= and tls_key="
        )
    pairs: dict[str, str] = {}
    if query:
        from urllib.parse import parse_qsl

        pairs = dict(parse_qsl(query, keep_blank_values=True))
    return base, pairs


def inherited_for(url: str | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """The bare URL, and what its query and the environment say about client, producer and consumer.

    Raises:
        InvalidArgument: as :func:`split` and :func:`split_url`.
    """
    base, query = split_url(url)
    protocol = protocol_of(base)
    environment, queried = _environment(protocol), split(query, protocol)
    return base, {scope: {**environment[scope], **queried[scope]} for scope in _WIRE}


def for_connection(url: str | None, given: Mapping[str, Any]) -> tuple[str, dict[str, Any], Defaults]:
    """Everything :func:`penstock.connect` needs: the bare URL, the client's options, and what URL and
    environment say about producers and consumers.

    Raises:
        InvalidArgument: as :func:`resolve` and :func:`split_url`.
    """
    base, inherited = inherited_for(url)
    protocol = protocol_of(base)
    values = resolve(scope_of(protocol, "client"), given, inherited["client"])
    # A mistake in the URL shows at connect, not at the first producer.
    resolve(scope_of(protocol, "producer"), {}, inherited["producer"])
    resolve(scope_of(protocol, "consumer"), {}, inherited["consumer"])
    return base, values, Defaults(inherited["producer"], inherited["consumer"])
