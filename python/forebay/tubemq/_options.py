# Generated from src/client/tubemq/options.rs by tools/generate_options.py; do not edit.
"""Options of TubeMQ's clients, producers and consumers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from forebay._core import parse
from forebay._core.options import Option, documented
from forebay._core.types import Duration, Pem, Secret, Size

from . import _option_forms as forms

if TYPE_CHECKING:
    from forebay._engine import Position


class TubeMqClientOptions(TypedDict, total=False):
    """Options of :func:`forebay.connect` with a TubeMQ URL."""

    connect_timeout: Annotated[
        Duration, Option(parse.duration, 10.0, "Timeout for the registration at a master, in seconds.")
    ]
    operation_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "Timeout for open, seek and close, in seconds.")
    ]
    request_timeout: Annotated[
        Duration,
        Option(parse.duration, 10.0, "Timeout for one request, in seconds. The server enforces it too."),
    ]
    heartbeat_interval: Annotated[
        Duration,
        Option(
            parse.at_least(0.1),
            10.0,
            "Interval between heartbeats, in seconds. Servers drop a client after 30 s of "
            "silence. At least 0.1 s.",
        ),
    ]
    max_backoff: Annotated[
        Duration,
        Option(parse.at_least(0.1), 2.0, "Longest pause before a reconnect, in seconds. At least 0.1 s."),
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
            "Limit in bytes of fetched messages that wait for the application. A consumer stops "
            "fetching when it is reached.",
        ),
    ]
    username: Annotated[str, Option(parse.text, None, "User name.", common=True)]
    password: Annotated[Secret, Option(parse.secret, None, "Password.", common=True, secret=True)]
    tls_cert: Annotated[
        Pem, Option(parse.pem, None, "Client certificate chain. TubeMQ supports mutual TLS only.")
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


class TubeMqProducerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.tubemq.TubeMqClient.producer`."""

    max_pending: Annotated[
        int, Option(parse.whole(1, 16 << 20), 1000, "Limit of unacknowledged messages (send window).")
    ]
    send_timeout: Annotated[
        Duration,
        Option(parse.duration, 30.0, "Timeout for the answer to a message, in seconds. 0 disables it."),
    ]
    message_type: Annotated[
        str, Option(parse.text, None, "Default message type. Consumers can filter by it.")
    ]


class TubeMqConsumerOptions(TypedDict, total=False):
    """Options of :meth:`forebay.tubemq.TubeMqClient.consumer`."""

    filters: Annotated[
        Sequence[str] | Mapping[str, Sequence[str]],
        Option(forms.filters, None, "Message types to receive, for all topics or by topic.", common=True),
    ]
    balance: Annotated[
        Literal["client", "server"],
        Option(
            parse.one_of("client", "server"),
            "client",
            "Side that assigns partitions to the members of the group.",
        ),
    ]
    auto_ack: Annotated[bool, Option(parse.boolean, False, "Acknowledge each message when it is received.")]
    nack_delay: Annotated[
        Duration, Option(parse.duration, 1.0, "Redelivery delay of the pack of a nacked message, in seconds.")
    ]
    poll_interval: Annotated[
        Duration,
        Option(parse.duration, 0.1, "Longest pause between two fetches from an empty partition, in seconds."),
    ]
    position: Annotated[
        "Position | Sequence[Position] | str",
        Option(
            forms.position,
            "latest",
            'Start of a new group: "first", "latest" or positions. "max" also moves an existing '
            "group to the end.",
            common=True,
        ),
    ]
    source_count: Annotated[
        int,
        Option(
            parse.whole(1),
            None,
            "Number of members of the group. Each member then needs a `node_id` (client balance).",
        ),
    ]
    node_id: Annotated[
        int, Option(parse.whole(0), None, "Number of this member, starting at 0 (client balance).")
    ]


documented(TubeMqClientOptions, TubeMqProducerOptions, TubeMqConsumerOptions)
