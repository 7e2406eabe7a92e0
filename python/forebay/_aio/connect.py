"""``connect``, for URLs of any protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from .handle import Opening
from .open_handle import opening

if TYPE_CHECKING:
    from typing import Unpack

    from forebay.mqtt._client import MqttClient
    from forebay.mqtt._options import MqttClientOptions, MqttUrl
    from forebay.pulsar._client import PulsarClient
    from forebay.pulsar._options import PulsarClientOptions, PulsarUrl
    from forebay.tubemq._client import TubeMqClient
    from forebay.tubemq._options import TubeMqClientOptions, TubeMqUrl

    from .base import Client

    class AnyClientOptions(PulsarClientOptions, MqttClientOptions, TubeMqClientOptions, total=False):
        """The options of every protocol."""


@overload
def connect(url: PulsarUrl, **options: Unpack[PulsarClientOptions]) -> Opening[PulsarClient]: ...
@overload
def connect(url: MqttUrl, **options: Unpack[MqttClientOptions]) -> Opening[MqttClient]: ...
@overload
def connect(url: TubeMqUrl, **options: Unpack[TubeMqClientOptions]) -> Opening[TubeMqClient]: ...
@overload
def connect(url: str | None = None, **options: Unpack[AnyClientOptions]) -> Opening[Client]: ...
def connect(url: str | None = None, **options: Any) -> Opening[Client]:
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
        The client of the URL's protocol, with its first connection up (when awaited or entered).

        Type checkers see :class:`forebay.Client`, which has the verbs of every protocol, because a type
        cannot express that a text begins with ``mqtt://``. They see the class of the protocol for the literal
        ``"embedded:"`` and the usual ports of localhost, and always from the ``connect`` of
        :mod:`forebay.pulsar`, :mod:`forebay.mqtt` and :mod:`forebay.tubemq`, which takes no other URLs.

    Raises:
        InvalidArgument: an unknown option or a bad value, at once.
        Unsupported: an option of another protocol, at once.
        ConnectFailed: no address could be connected within ``connect_timeout`` (when awaited).
        AuthenticationError: the broker rejected the credentials (when awaited).
    """
    return opening(url, options)
