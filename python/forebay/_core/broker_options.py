# Generated from src/broker/**/options.rs by tools/generate_options.py; do not edit.
"""Options of the embedded broker; public as :class:`forebay.broker.BrokerOptions`."""

import os
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from . import broker_endpoints, parse
from .listener_options import ListenerOptions
from .options import Option, documented
from .types import Duration, Pem, Secret, Size


class BrokerOptions(TypedDict, total=False):
    """Options of :class:`forebay.Broker`."""

    data: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "Directory of the store. Without it, the broker keeps everything in memory.",
            common=True,
        ),
    ]
    listeners: Annotated[
        Sequence[ListenerOptions],
        Option(
            broker_endpoints.listeners,
            None,
            "Additional listeners, each a mapping of listener options: address, certificate, and "
            "permitted clients.",
        ),
    ]
    durability: Annotated[
        Literal["fsync", "os", "memory"],
        Option(
            parse.one_of("fsync", "os", "memory"),
            None,
            "When a message counts as stored: on disk, in the operating system, or in memory. "
            "Default: `fsync` with `data`, else `memory`.",
        ),
    ]
    token_key: Annotated[
        Secret | bytes,
        Option(
            parse.key_bytes,
            None,
            "Key that verifies tokens: a secret (HS256), public keys in PEM or DER (RS256, "
            "ES256), or JSON Web Keys. Every client then needs a token. The log names the kinds "
            "of the keys.",
            common=True,
            secret=True,
        ),
    ]
    token_audience: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Name of this broker in the `aud` of tokens. Without it, the broker rejects tokens "
            "that have an `aud`.",
        ),
    ]
    subscription_owners: Annotated[
        bool,
        Option(
            parse.boolean,
            True,
            "Reserve durable Pulsar subscriptions, names of Pulsar producers and TubeMQ groups to"
            " the user that created them. Other users are rejected unless the file of permissions"
            " allows them. Has no effect without users.",
        ),
    ]
    max_store: Annotated[
        Size,
        Option(
            parse.size,
            None,
            "Size limit of the store in bytes. Producers get an error above it. Default: 10 GiB, "
            "in memory 1 GiB.",
            at_limit=(
                "Messages that `retention` keeps are deleted: acknowledged ones, then those of topics"
                " without a durable subscription. If that is not enough, producers get an error: "
                "`QuotaExceeded` (Pulsar), 0x97 (MQTT 5.0; an MQTT 3.x client is disconnected and "
                "keeps its message), 419 (TubeMQ). `/readyz` fails."
            ),
        ),
    ]
    min_disk_free: Annotated[
        Size,
        Option(
            parse.size,
            64 << 20,
            "Minimum free space on the disk of the store, in bytes. Producers get an error below "
            "it, as at `max_store`. 0 disables the limit.",
            at_limit=(
                "Producers get the errors of `max_store`; free pages of the store are used. `/readyz` fails."
            ),
        ),
    ]
    max_connections: Annotated[
        int,
        Option(
            parse.whole(1),
            16 << 10,
            "Maximum number of connections, lowered to the free file descriptors of the process. "
            "With several protocols each may use three quarters of it, and one address three "
            "quarters of the share of a protocol.",
            at_limit=("A new connection is closed at once, counted and logged."),
        ),
    ]
    max_topics: Annotated[
        int,
        Option(
            parse.whole(1),
            10_000,
            "Maximum number of topics and partitions.",
            at_limit=("A new topic is refused with `TooManyRequests`, if no idle one can be removed for it."),
        ),
    ]
    auto_create: Annotated[bool, Option(parse.boolean, True, "Create topics on first use.")]
    host: Annotated[str, Option(parse.text, "127.0.0.1", "Address to listen on.")]
    port: Annotated[
        int | Literal["off"],
        Option(
            broker_endpoints.port,
            None,
            "Port for Pulsar. 0 selects a free port, `off` disables Pulsar. Default: 0, or `off` "
            "with `listeners`.",
            common=True,
        ),
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "Certificate chain. Enables TLS.")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "Private key of the certificate.", secret=True)]
    tls_client_ca: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Authorities of client certificates. Every client then needs a certificate, and its "
            "common name is the user.",
        ),
    ]
    acl_file: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "File of permissions in the format of Mosquitto's `acl_file`. The broker rejects "
            "everything that no rule allows, for every protocol.",
        ),
    ]
    allow_anonymous: Annotated[
        bool,
        Option(
            parse.boolean,
            False,
            "Accept clients without credentials, also from other machines. Credentials that a "
            "client sends are still checked. Without it, the broker listens for other machines "
            "only if clients need credentials.",
        ),
    ]
    http_port: Annotated[
        int | Literal["off"],
        Option(
            broker_endpoints.port,
            None,
            "Port for HTTP, or HTTPS with a certificate: health checks, metrics, and Pulsar's "
            "lookups and administration. 0 selects a free port. Without it, HTTP is disabled.",
            common=True,
        ),
    ]
    mqtt_port: Annotated[
        int | Literal["off"],
        Option(
            broker_endpoints.port,
            None,
            "Port for MQTT. 0 selects a free port. Without it, MQTT is disabled.",
            common=True,
        ),
    ]
    mqtt_ws_port: Annotated[
        int | Literal["off"],
        Option(
            broker_endpoints.port, None, "Port for MQTT over WebSocket, path `/mqtt`. 0 selects a free port."
        ),
    ]
    mqtt_password_file: Annotated[
        str | os.PathLike[str],
        Option(parse.path, None, "File of MQTT users in the format of `mosquitto_passwd`."),
    ]
    tubemq_port: Annotated[
        int | Literal["off"],
        Option(
            broker_endpoints.port,
            None,
            "Port for TubeMQ. 0 selects a free port. Without it, TubeMQ is disabled.",
            common=True,
        ),
    ]
    tubemq_user_file: Annotated[
        str | os.PathLike[str],
        Option(parse.path, None, "File of TubeMQ users, one `name:password` per line."),
    ]
    advertised_url: Annotated[
        str, Option(parse.text, None, "URL that lookups return to clients. Default: made of host and port.")
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
            parse.at_least(1.0),
            30.0,
            "Interval between PING commands to a Pulsar client, in seconds. At least 1 s.",
            at_limit=("A client that sends nothing after a PING for as long again is disconnected."),
        ),
    ]
    retention: Annotated[
        Duration,
        Option(
            parse.duration,
            600.0,
            "Retention of acknowledged messages, in seconds. A message is acknowledged once all "
            "durable subscriptions of its topic have acknowledged it. Without a durable "
            "subscription, messages are kept until the store needs room.",
            at_limit=(
                "Older acknowledged messages are deleted, and all of them once three quarters of "
                "`max_store` or of the room on the disk are used. If that is not enough, the oldest "
                "messages of topics without a durable subscription are deleted."
            ),
        ),
    ]
    retention_bytes: Annotated[
        Size,
        Option(
            parse.size,
            32 << 20,
            "Limit in bytes of acknowledged messages that each topic keeps in memory.",
            at_limit=("The oldest acknowledged messages are deleted. A store on disk has no such limit."),
        ),
    ]
    default_partitions: Annotated[
        int,
        Option(
            parse.whole(0, 1000),
            0,
            "Number of partitions of topics created on first use. 0 creates topics without partitions.",
        ),
    ]
    deduplicate: Annotated[bool, Option(parse.boolean, True, "Drop duplicates of named producers.")]
    schema_compatibility: Annotated[
        Literal[
            "always_compatible",
            "always_incompatible",
            "backward",
            "forward",
            "full",
            "backward_transitive",
            "forward_transitive",
            "full_transitive",
        ],
        Option(
            parse.one_of(
                "always_compatible",
                "always_incompatible",
                "backward",
                "forward",
                "full",
                "backward_transitive",
                "forward_transitive",
                "full_transitive",
            ),
            "full",
            "Rule for the next schema of a topic, by the name of Pulsar's strategy.",
        ),
    ]
    mqtt_max_packet_size: Annotated[
        Size,
        Option(
            parse.packet_size,
            2_000_000,
            "Maximum MQTT packet size in bytes.",
            at_limit=(
                "Announced in CONNACK. A client that sends a larger packet is disconnected, in MQTT "
                "5.0 with 0x95."
            ),
        ),
    ]
    mqtt_max_sessions: Annotated[
        int,
        Option(
            parse.whole(1),
            100_000,
            "Maximum number of MQTT sessions, connected or not.",
            at_limit=("A new session is refused with 0x97 (return code 3)."),
        ),
    ]
    mqtt_max_subscription_bytes: Annotated[
        Size,
        Option(
            parse.size,
            256 << 20,
            "Memory limit of all MQTT subscriptions in bytes: 256 for each, plus its filter. One "
            "session may use a sixteenth of it.",
            at_limit=("The filter is refused with 0x97 (MQTT 3.x: 0x80)."),
        ),
    ]
    mqtt_slow_subscriber: Annotated[
        Literal["drop", "disconnect", "wait"],
        Option(
            parse.one_of("drop", "disconnect", "wait"),
            "drop",
            "Handling of an MQTT subscriber that falls behind and takes fewer than 1,000 messages"
            ' per second. "drop" drops and counts messages over its limits (`mqtt_max_output`, '
            '`mqtt_max_queue`); "disconnect" disconnects it at the limits; "wait" makes its '
            "publishers wait, and with them their other subscribers.",
        ),
    ]
    mqtt_full_queue: Annotated[
        Literal["refuse", "drop"],
        Option(
            parse.one_of("refuse", "drop"),
            "refuse",
            "Handling of a QoS 1 or 2 message of an MQTT 3.x client if no subscriber has room for"
            ' it although a session that outlives its connection should store it. "refuse" '
            'disconnects the client, which keeps the message; "drop" acknowledges the message, '
            "drops it and counts it.",
        ),
    ]
    mqtt_max_queue: Annotated[
        int,
        Option(
            parse.whole(1),
            10_000,
            "Maximum number of messages queued for one MQTT session.",
            at_limit=(
                "`mqtt_slow_subscriber` decides about the subscriber. A publisher whose message no "
                "subscriber has room for gets 0x97; with MQTT 3.x `mqtt_full_queue` decides."
            ),
        ),
    ]
    mqtt_max_queue_bytes: Annotated[
        Size,
        Option(
            parse.size,
            64 << 20,
            "Maximum size in bytes of the messages queued for one MQTT session.",
            at_limit=("As with `mqtt_max_queue`."),
        ),
    ]
    mqtt_max_output: Annotated[
        Size,
        Option(
            parse.size,
            8 << 20,
            "Limit in bytes of output that waits for a slow MQTT connection. QoS 0 messages are "
            "dropped above it.",
            at_limit=(
                "`mqtt_slow_subscriber` decides: QoS 0 messages are dropped and counted, the "
                "subscriber is disconnected, or its publishers wait."
            ),
        ),
    ]
    mqtt_max_inflight: Annotated[
        int,
        Option(
            parse.whole(1, 10_000),
            100,
            "Maximum number of QoS 1 and 2 messages in flight to an MQTT client.",
            at_limit=("Further messages wait in the queue of the session."),
        ),
    ]
    mqtt_receive_maximum: Annotated[
        int,
        Option(
            parse.whole(1, 65_535),
            1000,
            "Limit of QoS 1 and 2 messages in flight from an MQTT client (Receive Maximum).",
            at_limit=(
                "Announced in CONNACK. An MQTT 5.0 client that sends more is disconnected with 0x93; "
                "MQTT 3.x has no such limit."
            ),
        ),
    ]
    mqtt_topic_alias_maximum: Annotated[
        int,
        Option(
            parse.whole(0, 65_535),
            100,
            "Highest topic alias that an MQTT client may use. 0 disables aliases.",
            at_limit=("Announced in CONNACK. A client that uses a higher one is disconnected with 0x94."),
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
                " Its publisher gets 0x97 if no subscriber took it either; with MQTT 3.x "
                "`mqtt_full_queue` decides."
            ),
        ),
    ]
    mqtt_max_session_expiry: Annotated[
        Duration,
        Option(
            parse.expiry,
            None,
            "Longest time that an MQTT session outlives its connection, in seconds. Default: unlimited.",
            at_limit=("A longer expiry is shortened to it, which CONNACK tells the client."),
        ),
    ]
    tubemq_advertised_host: Annotated[
        str, Option(parse.text, None, "Host name that the master returns to TubeMQ clients.")
    ]
    tubemq_partitions: Annotated[
        int, Option(parse.whole(1, 10_000), 3, "Number of partitions of TubeMQ topics created on first use.")
    ]
    tubemq_retention: Annotated[
        Duration,
        Option(
            parse.duration,
            604800.0,
            "Retention of TubeMQ messages, consumed or not, in seconds. Only the time during "
            "which a broker runs on the store counts.",
            at_limit=("Older messages are deleted, consumed or not."),
        ),
    ]
    tubemq_offset_retention: Annotated[
        Duration,
        Option(
            parse.duration,
            1728000.0,
            "Retention of the offsets of a TubeMQ group without members, in seconds.",
            at_limit=("The offsets are deleted: the group begins as a new one does."),
        ),
    ]
    tubemq_max_message_size: Annotated[
        Size,
        Option(
            parse.size,
            1 << 20,
            "Maximum TubeMQ message size in bytes, attributes included.",
            at_limit=("Clients are told the limit. A larger message is refused with 400."),
        ),
    ]
    tubemq_client_timeout: Annotated[
        Duration,
        Option(
            parse.duration,
            30.0,
            "Time of silence after which a TubeMQ client is removed from its groups, in seconds.",
            at_limit=("The client is removed from its groups, and other members get its partitions."),
        ),
    ]


documented(BrokerOptions)
