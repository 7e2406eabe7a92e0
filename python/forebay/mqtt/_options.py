"""Options of MQTT's clients, producers and consumers."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from forebay._core import parse
from forebay._core.options import RETRY_FIRST, Duration, Option, Pem, Secret, Size, documented

if TYPE_CHECKING:
    from ._fields import Birth, Will

MqttUrl = Literal[
    "mqtt://localhost",
    "mqtt://localhost:1883",
    "mqtt://127.0.0.1",
    "mqtt://127.0.0.1:1883",
    "mqtts://localhost:8883",
]
"""URLs by which type checkers tell the protocol in :func:`forebay.connect`. Types cannot express the prefix
of a text, so these are the whole URLs that examples and tests use most."""

_flag, _text = parse.boolean, parse.text


def _will(value: Any) -> Any:
    from ._fields import will

    return will(value)


def _birth(value: Any) -> Any:
    from ._fields import birth

    return birth(value)


class MqttClientOptions(TypedDict, total=False):
    """Options of :func:`forebay.connect` with an MQTT URL."""

    connect_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "Seconds to wait for the first connection.")
    ]
    retry_first: Annotated[bool | Duration, RETRY_FIRST]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Time limit in seconds of subscribe, unsubscribe and close.")
    ]
    keep_alive: Annotated[
        Duration, Option(parse.duration, 60.0, "Keep Alive in seconds (3.1.2.10); 0 disables it.")
    ]
    max_backoff: Annotated[
        Duration, Option(parse.duration, 60.0, "Longest pause in seconds before a reconnect.")
    ]
    memory_limit: Annotated[
        Size,
        Option(
            parse.size, 64 << 20, "Bytes that all producers together may hold until the broker has answered."
        ),
    ]
    tls_ca: Annotated[
        Pem, Option(parse.pem, None, "Certificate authorities to trust instead of the platform's.")
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "Client certificate chain, for mutual TLS.")]
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
    threads: Annotated[
        int,
        Option(
            parse.whole(1, 64),
            1,
            "Number of engine threads, set for the process by its first client. With 1, sending one message"
            " at a time to a broker on the same machine keeps a second CPU core busy; 2 disables this.",
        ),
    ]
    version: Annotated[
        Literal["5", "3.1.1", "3.1", "auto", 5],
        Option(
            parse.one_of("5", "3.1.1", "3.1", "auto"),
            "5",
            "Protocol version; `auto` takes the newest that the broker accepts.",
        ),
    ]
    client_id: Annotated[
        str, Option(_text, None, "Client identifier, which names the session; a unique one by default.")
    ]
    clean_start: Annotated[
        bool, Option(_flag, True, "Discards an earlier session; False resumes it and needs a client_id.")
    ]
    session_expiry: Annotated[
        Duration,
        Option(
            parse.duration,
            None,
            "Seconds for which the session outlives the connection, also after close(). Default: 300 while"
            " the client lives, unlimited with clean_start=False.",
        ),
    ]
    username: Annotated[str, Option(_text, None, "User name.")]
    password: Annotated[Secret, Option(parse.secret, None, "Password.", secret=True)]
    will: Annotated[
        "Will",
        Option(_will, None, "Message that the broker publishes when the connection ends without DISCONNECT."),
    ]
    birth: Annotated[
        "Birth",
        Option(
            _birth,
            None,
            "Message that the client publishes after each connect, before messages that have not been sent. "
            "A refusal is logged and counted (`births_refused` in `stats()`), and the client goes on.",
        ),
    ]
    authentication_method: Annotated[
        str, Option(_text, None, "Method of extended authentication (MQTT 5, 4.12).")
    ]
    authenticator: Annotated[
        Callable[[bytes | None], bytes | None],
        Option(
            parse.callable_,
            None,
            "Steps of extended authentication: takes the broker's data (None at first), returns ours.",
        ),
    ]
    connect_properties: Annotated[
        Mapping[str, str], Option(parse.mapping, None, "User properties of CONNECT (MQTT 5).")
    ]
    request_response_information: Annotated[
        bool,
        Option(_flag, False, "Requests the broker's prefix for response topics (MQTT 5); see stats()."),
    ]
    max_inflight: Annotated[
        int,
        Option(
            parse.whole(1, 65535),
            1000,
            "Limit of QoS 1 and 2 messages in flight to the broker. The broker's Receive Maximum lowers it."
            " MQTT 3 brokers cannot announce one: at most 20 QoS 2 messages are in flight to them, because"
            " Mosquitto loses more than that.",
        ),
    ]
    receive_maximum: Annotated[
        int,
        Option(
            parse.whole(1, 65535),
            1000,
            "Receive Maximum: QoS 1 and 2 messages in flight to this client (MQTT 5). Of a broker that"
            " exceeds it, or has none (MQTT 3), as many are read ahead of acknowledgements, but at least"
            " 32,768.",
        ),
    ]
    topic_alias_maximum: Annotated[
        int, Option(parse.whole(0, 65535), 100, "Topic aliases that the broker may use (MQTT 5).")
    ]
    max_packet_size: Annotated[
        Size, Option(parse.packet_size, 16 << 20, "Maximum Packet Size in bytes that the client accepts.")
    ]
    receive_buffer: Annotated[
        Size,
        Option(
            parse.size, 16 << 20, "Bytes of received messages that may wait before the client stops reading."
        ),
    ]
    unclaimed: Annotated[
        Literal["keep", "ack", "unsubscribe"],
        Option(
            parse.one_of("keep", "ack", "unsubscribe"),
            "keep",
            "What happens, after 5 s, to messages of the session that no open consumer claims: kept for one"
            " that opens, acknowledged and dropped, or dropped and their subscription ended.",
        ),
    ]
    offline: Annotated[
        Literal["reject", "drop_oldest", "spill"],
        Option(
            parse.one_of("reject", "drop_oldest", "spill"),
            "reject",
            "What happens when max_pending is reached without a connection; `spill` needs an outbox.",
        ),
    ]
    outbox: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "File that keeps QoS 1 and 2 messages until the broker has them, even if the process is killed; a"
            " send completes when its message is in the file.",
        ),
    ]
    outbox_limit: Annotated[
        Size, Option(parse.size, 1 << 30, "Maximum size of the outbox in bytes; then sends raise QueueFull.")
    ]
    tls_alpn: Annotated[
        str, Option(str, "mqtt", 'Protocol offered by ALPN in the TLS handshake; "" offers none.')
    ]
    ws_headers: Annotated[
        Mapping[str, str],
        Option(parse.mapping, None, "Extra headers of the WebSocket handshake.", secret=True),
    ]


class MqttProducerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.mqtt.MqttClient.producer`."""

    max_pending: Annotated[
        int, Option(parse.whole(1, 1 << 24), 1000, "Send window: messages that the broker has not answered.")
    ]
    qos: Annotated[
        Literal[0, 1, 2], Option(parse.whole(0, 2), 1, "Default QoS for messages that do not set one.")
    ]
    retain: Annotated[
        bool, Option(_flag, False, "Default RETAIN flag: whether the broker keeps the last message.")
    ]


class MqttConsumerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.mqtt.MqttClient.consumer`."""

    qos: Annotated[
        Literal[0, 1, 2], Option(parse.whole(0, 2), 1, "Highest QoS with which messages are delivered.")
    ]
    auto_ack: Annotated[bool, Option(_flag, False, "Acknowledges each message as soon as it is received.")]
    no_local: Annotated[
        bool, Option(_flag, False, "Leaves out messages that this client publishes itself (MQTT 5).")
    ]
    retain_as_published: Annotated[
        bool, Option(_flag, False, "Keeps the RETAIN flag of live messages as published (MQTT 5).")
    ]
    retain_handling: Annotated[
        Literal["always", "if_new", "never"],
        Option(
            parse.one_of("always", "if_new", "never"),
            "always",
            "When retained messages are sent: at each subscribe, for a new subscription, or never (MQTT 5).",
        ),
    ]


documented(MqttClientOptions, MqttProducerOptions, MqttConsumerOptions)
