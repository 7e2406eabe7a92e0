"""Options of the embedded broker; public as :class:`forebay.broker.BrokerOptions`."""

import os
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, get_args

from . import broker_endpoints, parse
from .broker_endpoints import ListenerOptions
from .options import Duration, Option, Pem, Secret, Size, documented

_flag, _text = parse.boolean, parse.text
_port = broker_endpoints.port


SchemaCompatibility = Literal[
    "always_compatible",
    "always_incompatible",
    "backward",
    "forward",
    "full",
    "backward_transitive",
    "forward_transitive",
    "full_transitive",
]


class BrokerOptions(TypedDict, total=False):
    """Options of :class:`forebay.Broker`."""

    data: Annotated[
        str | os.PathLike[str],
        Option(parse.path, None, "Folder of the store. Without it the broker keeps everything in memory."),
    ]
    host: Annotated[str, Option(_text, "127.0.0.1", "Address to listen on.")]
    port: Annotated[
        int | Literal["off"],
        Option(
            _port,
            None,
            "Port for Pulsar; 0 takes any free one, and `off` speaks no Pulsar. Default: 0, or `off` with"
            " `listeners`.",
        ),
    ]
    listeners: Annotated[
        Sequence[ListenerOptions],
        Option(
            broker_endpoints.listeners,
            None,
            "More listeners, each a mapping of the options of a listener: its address,"
            " its certificate, and whom it admits.",
        ),
    ]
    durability: Annotated[
        Literal["fsync", "os", "memory"],
        Option(
            parse.one_of("fsync", "os", "memory"),
            None,
            "When a message counts as stored: on disk, with the operating system, or in memory. Default:"
            " `fsync` with `data`, else `memory`.",
        ),
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "Certificate chain. Makes the broker speak TLS.")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "Private key of the certificate.", secret=True)]
    tls_client_ca: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Authorities of the clients' certificates. Makes the broker require one of each client; the"
            " common name in it is the user.",
        ),
    ]
    token_key: Annotated[
        Secret | bytes,
        Option(
            parse.key_bytes,
            None,
            "Key that tokens must be signed with: a secret (HS256), public keys in PEM or DER (RS256, ES256),"
            " or JSON Web Keys. Makes the broker require tokens. The log names the kinds of the keys.",
            secret=True,
        ),
    ]
    token_audience: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Name of this broker in tokens: their `aud` must have it. Without this option a token that has an"
            " `aud` is refused, as it is meant for somewhere else.",
        ),
    ]
    acl_file: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "File of permissions, in the format of Mosquitto's `acl_file`: what no rule of it allows is"
            " refused, with every protocol.",
        ),
    ]
    subscription_owners: Annotated[
        bool,
        Option(
            _flag,
            True,
            "Durable Pulsar subscriptions and TubeMQ groups belong to the user that made them, where there"
            " are users: other users are refused, unless the file of permissions lets them.",
        ),
    ]
    allow_anonymous: Annotated[
        bool,
        Option(
            _flag,
            False,
            "Admits clients without credentials, also from other machines. Clients that show some are"
            " checked. Without it the broker does not listen for other machines unless they need"
            " credentials.",
        ),
    ]
    advertised_url: Annotated[
        str, Option(_text, None, "URL that lookups return to clients; by default made of host and port.")
    ]
    max_store: Annotated[
        Size,
        Option(
            parse.size,
            None,
            "Size limit of the store in bytes; above it producers get an error. Default: 10 GiB, in memory"
            " 1 GiB.",
            at_limit=(
                "Acknowledged messages that are kept for `retention` are deleted. If that is not"
                " enough, producers get an error: `QuotaExceeded` (Pulsar), 0x97 (MQTT 5.0; an MQTT"
                " 3.x client is disconnected and keeps its message), 419 (TubeMQ). `/readyz` fails."
            ),
        ),
    ]
    min_disk_free: Annotated[
        Size,
        Option(
            parse.size,
            64 << 20,
            "Bytes that the disk of the store keeps free, whatever else fills it; with less left producers"
            " get an error, as at max_store. 0 turns it off.",
            at_limit=(
                "Producers get the errors of `max_store`; free pages of the store are used. `/readyz` fails."
            ),
        ),
    ]
    max_connections: Annotated[
        int,
        Option(
            parse.whole(1),
            16_384,
            "Maximum number of connections, and no more than the process has free descriptors. With several"
            " protocols each has at most three quarters, and one address at most three quarters of a"
            " protocol's.",
            at_limit="A new connection is closed at once, counted and logged.",
        ),
    ]
    max_topics: Annotated[
        int,
        Option(
            parse.whole(1),
            10_000,
            "Maximum number of topics and partitions.",
            at_limit="A new topic is refused with `TooManyRequests`, if no idle one can be removed for it.",
        ),
    ]
    max_message_size: Annotated[
        Size,
        Option(
            parse.size,
            5 << 20,
            "Maximum message size in bytes.",
            at_limit=(
                "Clients are told the limit and refuse a larger message (`MessageTooLarge`). A client"
                " that sends it all the same is disconnected."
            ),
        ),
    ]
    keep_alive: Annotated[
        Duration,
        Option(
            parse.duration,
            30.0,
            "Seconds between two PING commands to a Pulsar client.",
            at_limit="A client that sends nothing after a PING for as long again is disconnected.",
        ),
    ]
    retention: Annotated[
        Duration,
        Option(
            parse.duration,
            600.0,
            "Seconds for which acknowledged messages are kept.",
            at_limit=(
                "Older acknowledged messages are deleted. All of them are once the store has three quarters"
                " of `max_store`, or of what the disk has room for."
            ),
        ),
    ]
    retention_bytes: Annotated[
        Size,
        Option(
            parse.size,
            32 << 20,
            "Bytes of acknowledged messages that each topic keeps in memory.",
            at_limit="The oldest acknowledged messages are deleted. A store on disk has no such limit.",
        ),
    ]
    auto_create: Annotated[bool, Option(_flag, True, "Creates topics on first use.")]
    default_partitions: Annotated[
        int,
        Option(
            parse.whole(0, 1000),
            0,
            "Number of partitions of topics created on first use; 0: not partitioned.",
        ),
    ]
    deduplicate: Annotated[bool, Option(_flag, True, "Drops duplicates of named producers.")]
    schema_compatibility: Annotated[
        SchemaCompatibility,
        Option(
            parse.one_of(*get_args(SchemaCompatibility)),
            "full",
            "Which schema may follow another on a topic, by the names of Pulsar's strategies.",
        ),
    ]
    http_port: Annotated[
        int | Literal["off"],
        Option(
            _port,
            None,
            "Port for HTTP, or HTTPS with a certificate: health checks, metrics, and Pulsar's lookups and"
            " administration; 0 takes any free one. Without it the broker does not speak HTTP.",
        ),
    ]
    mqtt_port: Annotated[
        int | Literal["off"],
        Option(
            _port,
            None,
            "Port for MQTT; 0 takes any free one. Without it the broker does not speak MQTT.",
        ),
    ]
    mqtt_ws_port: Annotated[
        int | Literal["off"],
        Option(_port, None, "Port for MQTT over WebSocket, path /mqtt; 0 takes any free one."),
    ]
    mqtt_password_file: Annotated[
        str | os.PathLike[str],
        Option(parse.path, None, "File of MQTT users, in the format of `mosquitto_passwd`."),
    ]
    mqtt_max_packet_size: Annotated[
        Size,
        Option(
            parse.packet_size,
            2_000_000,
            "Maximum MQTT packet size in bytes.",
            at_limit=(
                "Announced in CONNACK. A client that sends a larger packet is disconnected, in MQTT"
                " 5.0 with 0x95."
            ),
        ),
    ]
    mqtt_max_sessions: Annotated[
        int,
        Option(
            parse.whole(1),
            100_000,
            "Maximum number of MQTT sessions, connected or not.",
            at_limit="A new session is refused with 0x97 (return code 3).",
        ),
    ]
    mqtt_max_subscription_bytes: Annotated[
        Size,
        Option(
            parse.size,
            256 << 20,
            "Limit on the memory of all MQTT subscriptions in bytes: 256 for each, and its filter. One"
            " session may use a sixteenth of it.",
            at_limit="The filter is refused with 0x97 (MQTT 3.x: 0x80).",
        ),
    ]
    mqtt_slow_subscriber: Annotated[
        Literal["drop", "disconnect", "wait"],
        Option(
            parse.one_of("drop", "disconnect", "wait"),
            "drop",
            "What happens to an MQTT subscriber that is behind its publishers and takes fewer than 1,000"
            " messages a second: messages over its limits (`mqtt_max_output`, `mqtt_max_queue`) are dropped"
            " and counted, it is disconnected when it reaches them, or its publishers wait for it, and so do"
            " their other subscribers.",
        ),
    ]
    mqtt_full_queue: Annotated[
        Literal["refuse", "drop"],
        Option(
            parse.one_of("refuse", "drop"),
            "refuse",
            "What happens to a QoS 1 or 2 message of an MQTT 3.x client that no subscriber has room for,"
            " when a session that outlives its connection should have kept it: the client is disconnected"
            " and keeps the message, or it gets its acknowledgement and the message is dropped and counted.",
        ),
    ]
    mqtt_max_queue: Annotated[
        int,
        Option(
            parse.whole(1),
            10_000,
            "Maximum number of messages queued for one MQTT session.",
            at_limit=(
                "`mqtt_slow_subscriber` decides about the subscriber. A publisher whose message no"
                " subscriber has room for gets 0x97; with MQTT 3.x `mqtt_full_queue` decides."
            ),
        ),
    ]
    mqtt_max_queue_bytes: Annotated[
        Size,
        Option(
            parse.size,
            64 << 20,
            "Maximum size in bytes of the messages queued for one MQTT session.",
            at_limit="As with `mqtt_max_queue`.",
        ),
    ]
    mqtt_max_output: Annotated[
        Size,
        Option(
            parse.size,
            8 << 20,
            "Bytes that may wait for a slow MQTT connection before QoS 0 messages are dropped.",
            at_limit=(
                "`mqtt_slow_subscriber` decides: QoS 0 messages are dropped and counted, the"
                " subscriber is disconnected, or its publishers wait."
            ),
        ),
    ]
    mqtt_max_inflight: Annotated[
        int,
        Option(
            parse.whole(1, 10_000),
            100,
            "Maximum number of QoS 1 and 2 messages in flight to an MQTT client.",
            at_limit="Further messages wait in the queue of the session.",
        ),
    ]
    mqtt_receive_maximum: Annotated[
        int,
        Option(
            parse.whole(1, 65535),
            1000,
            "Receive Maximum: QoS 1 and 2 messages in flight from an MQTT client.",
            at_limit=(
                "Announced in CONNACK. An MQTT 5.0 client that sends more is disconnected with 0x93;"
                " MQTT 3.x has no such limit."
            ),
        ),
    ]
    mqtt_topic_alias_maximum: Annotated[
        int,
        Option(
            parse.whole(0, 65535),
            100,
            "Highest topic alias that an MQTT client may use; 0 allows no aliases.",
            at_limit="Announced in CONNACK. A client that uses a higher one is disconnected with 0x94.",
        ),
    ]
    mqtt_max_retained: Annotated[
        int,
        Option(
            parse.whole(0),
            100_000,
            "Maximum number of retained messages.",
            at_limit=(
                "A message on a topic without a retained one is not retained, and counted as dropped."
                " Its publisher gets 0x97 if no subscriber took it either; with MQTT 3.x"
                " `mqtt_full_queue` decides."
            ),
        ),
    ]
    mqtt_max_session_expiry: Annotated[
        Duration,
        Option(
            parse.duration,
            None,
            "Longest time in seconds that an MQTT session outlives its connection; unlimited by default.",
            at_limit="A longer expiry is shortened to it, which CONNACK tells the client.",
        ),
    ]
    tubemq_port: Annotated[
        int | Literal["off"],
        Option(
            _port,
            None,
            "Port for TubeMQ; 0 takes any free one. Without it the broker does not speak TubeMQ.",
        ),
    ]
    tubemq_user_file: Annotated[
        str | os.PathLike[str],
        Option(parse.path, None, "File of TubeMQ users, one line `name:password` for each."),
    ]
    tubemq_advertised_host: Annotated[
        str, Option(_text, None, "Host name that the master returns to TubeMQ clients.")
    ]
    tubemq_partitions: Annotated[
        int, Option(parse.whole(1, 10_000), 3, "Number of partitions of TubeMQ topics created on first use.")
    ]
    tubemq_retention: Annotated[
        Duration,
        Option(
            parse.duration,
            604_800.0,
            "Seconds for which TubeMQ messages are kept, consumed or not; counted while a broker runs on the"
            " store.",
            at_limit="Older messages are deleted, consumed or not.",
        ),
    ]
    tubemq_offset_retention: Annotated[
        Duration,
        Option(
            parse.duration,
            1_728_000.0,
            "Seconds for which the offsets of a TubeMQ group without members are kept.",
            at_limit="The offsets are deleted: the group begins as a new one does.",
        ),
    ]
    tubemq_max_message_size: Annotated[
        Size,
        Option(
            parse.size,
            1 << 20,
            "Maximum TubeMQ message size in bytes, attributes included.",
            at_limit="Clients are told the limit. A larger message is refused with 400.",
        ),
    ]
    tubemq_client_timeout: Annotated[
        Duration,
        Option(
            parse.duration,
            30.0,
            "Seconds of silence after which a TubeMQ client is removed from its groups.",
            at_limit="The client is removed from its groups, and other members get its partitions.",
        ),
    ]


documented(BrokerOptions)
