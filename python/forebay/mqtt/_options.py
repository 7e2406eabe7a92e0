# Generated from src/client/mqtt/options.rs by tools/generate_options.py; do not edit.
"""Options of MQTT's clients, producers and consumers."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from forebay._core import parse
from forebay._core.options import Option, documented
from forebay._core.types import Duration, Pem, Secret, Size

from . import _option_forms as forms

if TYPE_CHECKING:
    from ._fields import Birth, Will


class MqttClientOptions(TypedDict, total=False):
    """Options of :func:`forebay.connect` with an MQTT URL."""

    version: Annotated[
        Literal["5", "3.1.1", "3.1", "auto", 5],
        Option(
            parse.one_of("5", "3.1.1", "3.1", "auto"),
            "5",
            "Protocol version. `auto` selects the newest that the broker accepts.",
        ),
    ]
    client_id: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Client identifier, the name of the session. Default: a unique one.",
            common=True,
        ),
    ]
    clean_start: Annotated[
        bool,
        Option(
            parse.boolean,
            True,
            "Discard an earlier session. `False` resumes it and requires a `client_id`.",
            common=True,
        ),
    ]
    session_expiry: Annotated[
        Duration,
        Option(
            parse.session_expiry,
            None,
            "Time for which the session outlives the connection, also after `close()`, in "
            "seconds. Default: 300 while the client lives, unlimited with `clean_start=False`. "
            '"never" for a session that does not expire. Fractions are rounded up.',
        ),
    ]
    keep_alive: Annotated[
        Duration,
        Option(
            parse.whole_seconds(65535),
            60.0,
            "Keep Alive (3.1.2.10), in seconds. 0 disables it. At most 65535 s.",
        ),
    ]
    username: Annotated[str, Option(parse.text, None, "User name.", common=True)]
    password: Annotated[
        Secret, Option(parse.binary_secret, None, "Password. MQTT takes any bytes.", common=True, secret=True)
    ]
    will: Annotated[
        "Will",
        Option(
            forms.will,
            None,
            "Will: message that the broker publishes if the connection ends without DISCONNECT.",
            common=True,
        ),
    ]
    birth: Annotated[
        "Birth",
        Option(
            forms.birth,
            None,
            "Message to publish after each connect, before unsent messages. If the broker rejects"
            " it, the client logs and counts the rejection (`births_refused` in `stats()`) and "
            "continues.",
        ),
    ]
    connect_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "Timeout for the first connection, in seconds.")
    ]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Timeout for subscribe, unsubscribe and close, in seconds.")
    ]
    max_backoff: Annotated[
        Duration,
        Option(parse.at_least(0.1), 60.0, "Longest pause before a reconnect, in seconds. At least 0.1 s."),
    ]
    max_inflight: Annotated[
        int,
        Option(
            parse.whole(1, 65_535),
            1000,
            "Limit of QoS 1 and 2 messages in flight to the broker. The broker's Receive Maximum "
            "lowers it. MQTT 3 brokers cannot announce one; at most 20 QoS 2 messages are then in"
            " flight, because Mosquitto loses more.",
        ),
    ]
    receive_maximum: Annotated[
        int,
        Option(
            parse.whole(1, 65_535),
            1000,
            "Limit of unacknowledged incoming messages (Receive Maximum, MQTT 5). MQTT 3 brokers "
            "cannot be told this limit; the client then reads at least 32,768 messages ahead.",
        ),
    ]
    topic_alias_maximum: Annotated[
        int, Option(parse.whole(0, 65_535), 100, "Number of topic aliases that the broker may use (MQTT 5).")
    ]
    max_packet_size: Annotated[
        Size, Option(parse.packet_size, 16 << 20, "Largest packet to accept, in bytes (Maximum Packet Size).")
    ]
    memory_limit: Annotated[
        Size,
        Option(
            parse.size,
            64 << 20,
            "Memory limit in bytes for unacknowledged messages, shared by all producers of the client.",
        ),
    ]
    receive_buffer: Annotated[
        Size,
        Option(
            parse.size,
            16 << 20,
            "Limit in bytes of received messages that wait for the application. The client stops "
            "reading when it is reached.",
        ),
    ]
    unclaimed: Annotated[
        Literal["keep", "ack", "unsubscribe"],
        Option(
            parse.one_of("keep", "ack", "unsubscribe"),
            "keep",
            'Handling of session messages that no consumer claims within 5 s: "keep" stores them '
            'for a later consumer, "ack" acknowledges and drops them, "unsubscribe" also ends '
            "their subscription.",
        ),
    ]
    offline: Annotated[
        Literal["reject", "drop_oldest", "spill"],
        Option(
            parse.one_of("reject", "drop_oldest", "spill"),
            "reject",
            'Handling of new messages when `max_pending` is reached while disconnected. "spill" '
            "requires an `outbox`.",
        ),
    ]
    outbox: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "File that stores QoS 1 and 2 messages until the broker acknowledges them, even if "
            "the process is killed. A send completes when its message is in the file.",
        ),
    ]
    tls_alpn: Annotated[
        str,
        Option(parse.alpn, "mqtt", 'ALPN protocol of the TLS handshake. "" offers none. At most 255 bytes.'),
    ]
    ws_headers: Annotated[
        Mapping[str, str],
        Option(
            parse.mapping,
            None,
            "Headers of the WebSocket handshake. They replace those of the client.",
            secret=True,
        ),
    ]
    ws_query: Annotated[
        Secret,
        Option(
            parse.query,
            None,
            "Query of the WebSocket URL, such as the signature of a presigned URL. A callable is "
            "called at each connect.",
            secret=True,
        ),
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "Client certificate chain for mutual TLS.")]
    authentication_method: Annotated[
        str, Option(parse.text, None, "Method of extended authentication (MQTT 5, 4.12).")
    ]
    authenticator: Annotated[
        Callable[[bytes | None], bytes | None],
        Option(
            parse.callable_,
            None,
            "Callable for the steps of extended authentication: takes the broker's data (`None` "
            "at first) and returns the client's.",
        ),
    ]
    connect_properties: Annotated[
        Mapping[str, str] | Sequence[tuple[str, str]],
        Option(parse.pairs, None, "User properties of CONNECT (MQTT 5). In pairs a name may repeat."),
    ]
    request_response_information: Annotated[
        bool,
        Option(
            parse.boolean,
            False,
            "Request the broker's prefix for response topics (MQTT 5). `stats()` shows it.",
        ),
    ]
    outbox_limit: Annotated[
        Size,
        Option(
            parse.size, 1 << 30, "Maximum size of the outbox in bytes. A send beyond it raises `QueueFull`."
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


class MqttProducerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.mqtt.MqttClient.producer`."""

    qos: Annotated[
        Literal[0, 1, 2],
        Option(parse.whole(0, 2), 1, "Default QoS for messages that do not set one.", common=True),
    ]
    retain: Annotated[
        bool,
        Option(
            parse.boolean,
            False,
            "Default RETAIN flag: whether the broker stores the message for later subscribers.",
            common=True,
        ),
    ]
    max_pending: Annotated[
        int, Option(parse.whole(1, 16 << 20), 1000, "Limit of unacknowledged messages (send window).")
    ]


class MqttConsumerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.mqtt.MqttClient.consumer`."""

    qos: Annotated[
        Literal[0, 1, 2], Option(parse.whole(0, 2), 1, "Highest QoS of delivered messages.", common=True)
    ]
    auto_ack: Annotated[bool, Option(parse.boolean, False, "Acknowledge each message when it is received.")]
    no_local: Annotated[
        bool, Option(parse.boolean, False, "Skip messages that this client published (MQTT 5).")
    ]
    retain_as_published: Annotated[
        bool, Option(parse.boolean, False, "Keep the RETAIN flag of live messages as published (MQTT 5).")
    ]
    retain_handling: Annotated[
        Literal["always", "if_new", "never"],
        Option(
            parse.one_of("always", "if_new", "never"),
            "always",
            "When the broker sends retained messages: at each subscribe, for a new subscription, "
            "or never (MQTT 5).",
        ),
    ]


documented(MqttClientOptions, MqttProducerOptions, MqttConsumerOptions)
