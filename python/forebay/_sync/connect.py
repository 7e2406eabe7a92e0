# Generated from forebay/_aio/connect.py by tools/generate_blocking.py; do not edit.
"""``connect``, for URLs of any protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from forebay._core.options import default, given
from forebay._sync.open_handle import opening

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal, Unpack

    from forebay._core.types import Duration, Pem, Secret, Size
    from forebay._sync.base import Client
    from forebay._sync.mqtt.client import MqttClient
    from forebay._sync.pulsar.client import PulsarClient
    from forebay._sync.tubemq.client import TubeMqClient
    from forebay.mqtt._fields import Birth, Will
    from forebay.mqtt._option_forms import MqttUrl
    from forebay.mqtt._options import MqttClientOptions
    from forebay.pulsar._option_forms import PulsarUrl
    from forebay.pulsar._options import PulsarClientOptions
    from forebay.tubemq._option_forms import TubeMqUrl
    from forebay.tubemq._options import TubeMqClientOptions

    class AnyClientOptions(PulsarClientOptions, MqttClientOptions, TubeMqClientOptions, total=False):
        """The options of every protocol."""


@overload
def connect(url: PulsarUrl, **options: Unpack[PulsarClientOptions]) -> PulsarClient: ...
@overload
def connect(url: MqttUrl, **options: Unpack[MqttClientOptions]) -> MqttClient: ...
@overload
def connect(url: TubeMqUrl, **options: Unpack[TubeMqClientOptions]) -> TubeMqClient: ...
@overload
def connect(url: str | None = None, **options: Unpack[AnyClientOptions]) -> Client: ...
def connect(
    url: str | None = None,
    *,
    # options: pulsar.client, mqtt.client, tubemq.client
    token: Secret = default(None),
    username: str = default(None),
    password: Secret = default(None),
    tls_ca: Pem = default(None),
    client_id: str = default(None),
    clean_start: bool = default(True),
    will: Will = default(None),
    connect_timeout: Duration = default(10.0),
    operation_timeout: Duration = default(30.0),
    keep_alive: Duration = default(30.0, 60.0),
    max_backoff: Duration = default(60.0, 2.0),
    memory_limit: Size = default(64 << 20),
    listener_name: str = default(None),
    lookup_properties: Mapping[str, str] = default(None),
    connections_per_broker: int = default(1),
    basic_method: str = default(None),
    tls_cert: Pem = default(None),
    retry_first: bool | Duration = default(False),
    tls_key: Pem = default(None),
    tls_pin: str | Sequence[str] = default(None),
    tls_server_name: str = default(None),
    tls_skip_hostname_check: bool = default(False),
    threads: int = default(1),
    version: Literal["5", "3.1.1", "3.1", "auto", 5] = default("5"),
    session_expiry: Duration = default(None),
    birth: Birth = default(None),
    max_inflight: int = default(1000),
    receive_maximum: int = default(1000),
    topic_alias_maximum: int = default(100),
    max_packet_size: Size = default(16 << 20),
    receive_buffer: Size = default(16 << 20),
    unclaimed: Literal["keep", "ack", "unsubscribe"] = default("keep"),
    offline: Literal["reject", "drop_oldest", "spill"] = default("reject"),
    outbox: str | os.PathLike[str] = default(None),
    tls_alpn: str = default("mqtt"),
    ws_headers: Mapping[str, str] = default(None),
    ws_query: Secret = default(None),
    authentication_method: str = default(None),
    authenticator: Callable[[bytes | None], bytes | None] = default(None),
    connect_properties: Mapping[str, str] | Sequence[tuple[str, str]] = default(None),
    request_response_information: bool = default(False),
    outbox_limit: Size = default(1 << 30),
    request_timeout: Duration = default(10.0),
    heartbeat_interval: Duration = default(10.0),
    # end of options
    **unknown: Any,
) -> Client:
    """Connects to a broker.

    Args:
        url: ``pulsar://host:6650[,host:6650]``, ``pulsar+ssl://...``, ``http://host:8080``, ``https://...``;
            ``mqtt://host:1883``, ``mqtts://``, ``ws://``, ``wss://``, ``mqtt+unix:///path``;
            ``tubemq://master:8715[,master:8715]``, ``tubemq+ssl://...``; ``embedded:`` or
            ``embedded:./data`` starts a broker in this process and stops it with the client. Default:
            ``FOREBAY_URL``. The query may hold options: ``pulsar://host:6650?compression=zstd``.
        options: :class:`forebay.pulsar.PulsarClientOptions`, :class:`forebay.mqtt.MqttClientOptions` or
            :class:`forebay.tubemq.TubeMqClientOptions`. Durations are in seconds, sizes in bytes.

    Returns:
        The client of the URL's protocol, with its first connection up.

        Type checkers see :class:`forebay.Client`, which has the verbs of every protocol, because a type
        cannot express that a text begins with ``mqtt://``. They see the class of the protocol for the literal
        ``"embedded:"`` and the usual ports of localhost, and always from the ``connect`` of
        :mod:`forebay.pulsar`, :mod:`forebay.mqtt` and :mod:`forebay.tubemq`, which takes no other URLs.

    Raises:
        InvalidArgument: an unknown option or a bad value.
        Unsupported: an option of another protocol.
        ConnectFailed: no address could be connected within ``connect_timeout``.
        AuthenticationError: the broker rejected the credentials.
    """
    return opening(url, given(locals(), "url"))
