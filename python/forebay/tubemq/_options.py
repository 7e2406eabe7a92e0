"""Options of TubeMQ's clients, producers and consumers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from forebay._core import parse
from forebay._core.options import RETRY_FIRST, Duration, Option, Pem, Secret, Size, documented

if TYPE_CHECKING:
    from forebay._engine import Position

TubeMqUrl = Literal["tubemq://localhost:8715", "tubemq://127.0.0.1:8715"]
"""URLs by which type checkers tell the protocol in :func:`forebay.connect`. Types cannot express the prefix
of a text, so these are the whole URLs that examples and tests use most."""

_flag, _text = parse.boolean, parse.text


def _position(value: Any) -> Any:
    from ._positions import position

    return position(value)


def _filters(value: Any) -> Any:
    from ._positions import filters

    return filters(value)


class TubeMqClientOptions(TypedDict, total=False):
    """Options of :func:`forebay.connect` with a TubeMQ URL."""

    connect_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "Seconds to wait for the registration at a master.")
    ]
    retry_first: Annotated[bool | Duration, RETRY_FIRST]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Time limit in seconds of open, seek and close.")
    ]
    request_timeout: Annotated[
        Duration,
        Option(parse.duration, 10.0, "Time limit in seconds of one request, which the server enforces too."),
    ]
    heartbeat_interval: Annotated[
        Duration,
        Option(
            parse.duration, 10.0, "Seconds between heartbeats; servers drop a client that is silent for 30."
        ),
    ]
    max_backoff: Annotated[
        Duration, Option(parse.duration, 2.0, "Longest pause in seconds before a reconnect.")
    ]
    memory_limit: Annotated[
        Size,
        Option(
            parse.size, 64 << 20, "Bytes that all producers together may hold until the broker has answered."
        ),
    ]
    receive_buffer: Annotated[
        Size,
        Option(
            parse.size, 16 << 20, "Bytes of fetched messages that may wait before a consumer stops fetching."
        ),
    ]
    username: Annotated[str, Option(_text, None, "User name.")]
    password: Annotated[Secret, Option(parse.secret, None, "Password.", secret=True)]
    tls_ca: Annotated[
        Pem, Option(parse.pem, None, "Certificate authorities to trust instead of the platform's.")
    ]
    tls_cert: Annotated[
        Pem, Option(parse.pem, None, "Client certificate chain; TubeMQ supports mutual TLS only.")
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
    threads: Annotated[
        int,
        Option(
            parse.whole(1, 64),
            1,
            "Number of engine threads, set for the process by its first client. With 1, sending one message"
            " at a time to a broker on the same machine keeps a second CPU core busy; 2 disables this.",
        ),
    ]


class TubeMqProducerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.tubemq.TubeMqClient.producer`."""

    max_pending: Annotated[
        int, Option(parse.whole(1, 1 << 24), 1000, "Send window: messages that no broker has answered.")
    ]
    send_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Seconds to wait for the answer; 0 waits forever.")
    ]
    message_type: Annotated[str, Option(_text, None, "Default message type, which consumers can filter by.")]


class TubeMqConsumerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.tubemq.TubeMqClient.consumer`."""

    position: Annotated[
        "Position | Sequence[Position] | str",
        Option(
            _position,
            "latest",
            'Where a new group begins: "first", "latest" or positions; "max" moves an existing group'
            " to the end, too.",
        ),
    ]
    filters: Annotated[
        Sequence[str] | Mapping[str, Sequence[str]],
        Option(_filters, None, "Message types to receive, for all topics or by topic."),
    ]
    balance: Annotated[
        Literal["client", "server"],
        Option(
            parse.one_of("client", "server"),
            "client",
            "Which side assigns partitions to the members of the group.",
        ),
    ]
    source_count: Annotated[
        int,
        Option(
            parse.whole(1),
            None,
            "Number of members of the group; each then needs a node_id (client balance).",
        ),
    ]
    node_id: Annotated[
        int, Option(parse.whole(0), None, "Number of this member, counted from 0 (client balance).")
    ]
    auto_ack: Annotated[bool, Option(_flag, False, "Acknowledges each message as soon as it is received.")]
    nack_delay: Annotated[
        Duration,
        Option(parse.duration, 1.0, "Seconds until the pack of a nacked message is delivered again."),
    ]
    poll_interval: Annotated[
        Duration,
        Option(parse.duration, 0.1, "Longest pause in seconds between two fetches from an empty partition."),
    ]


documented(TubeMqClientOptions, TubeMqProducerOptions, TubeMqConsumerOptions)
