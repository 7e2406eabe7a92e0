# Generated from src/broker/options.rs by tools/generate_options.py; do not edit.
"""Options of a listener of the embedded broker; public as :class:`forebay.broker.ListenerOptions`."""

import os
from typing import Annotated, Literal, TypedDict

from . import parse
from .options import Option, documented
from .types import Pem


class ListenerOptions(TypedDict, total=False):
    """Options of a listener of :class:`forebay.Broker`."""

    protocol: Annotated[
        Literal["pulsar", "mqtt", "tubemq", "http"],
        Option(parse.one_of("pulsar", "mqtt", "tubemq", "http"), None, "Protocol. Required.", common=True),
    ]
    host: Annotated[
        str, Option(parse.text, None, "Address to listen on. Default: the option `host` of the broker.")
    ]
    port: Annotated[
        int, Option(parse.whole(0, 65_535), None, "Port. Default: 0, which selects a free port.", common=True)
    ]
    unix: Annotated[
        str | os.PathLike[str],
        Option(
            parse.path,
            None,
            "Unix socket to listen on instead of host and port (MQTT and HTTP). The broker "
            "removes the file when it stops.",
        ),
    ]
    mode: Annotated[
        str,
        Option(
            parse.mode, None, 'Permissions of the Unix socket in octal digits, such as "0660". Default: 0600.'
        ),
    ]
    websocket: Annotated[bool, Option(parse.boolean, None, "Use MQTT over WebSocket, with the path `/mqtt`.")]
    tls: Annotated[
        bool,
        Option(
            parse.boolean,
            None,
            "`false` disables TLS although the broker has a certificate. A Unix socket never uses TLS.",
        ),
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "Certificate chain. Default: the broker's.")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "Private key of the certificate.", secret=True)]
    tls_client_ca: Annotated[
        Pem,
        Option(
            parse.pem,
            None,
            "Authorities of client certificates. Every client then needs a certificate, and its "
            "common name is the user; other credentials are ignored. Default: the broker's.",
        ),
    ]
    anonymous: Annotated[
        bool,
        Option(
            parse.boolean,
            None,
            "Accept clients without credentials, also from other machines. Credentials that a "
            "client sends are still checked. Default: the option `allow_anonymous` of the broker.",
        ),
    ]
    advertised_host: Annotated[
        str,
        Option(
            parse.text,
            None,
            "Host name in the URL and in answers to clients. Default: `host`. If that is "
            "`0.0.0.0` or `::`, a TubeMQ client gets the address that it connected to.",
        ),
    ]


documented(ListenerOptions)
