"""Connecting, blocking: :func:`connect` and the part that the protocols' own ``connect`` share."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from penstock import options, protocols

if TYPE_CHECKING:
    from typing import Unpack

    from penstock._typing import MqttUrl, PulsarUrl, TubeMqUrl
    from penstock.broker import Broker
    from penstock.mqtt.blocking import MqttClient
    from penstock.mqtt.options import MqttClientOptions
    from penstock.pulsar.blocking import PulsarClient
    from penstock.pulsar.options import PulsarClientOptions
    from penstock.tubemq.blocking import TubeMqClient
    from penstock.tubemq.options import TubeMqClientOptions

    from ._base import Client

    class AnyClientOptions(PulsarClientOptions, MqttClientOptions, TubeMqClientOptions, total=False):
        """The options of every protocol."""


def opening(url: str | None, given: Mapping[str, Any], only: str | None = None) -> Any:
    """A client, connected.

    Args:
        url, given, only: as :func:`penstock.protocols.for_connection`.

    Raises:
        InvalidArgument, Unsupported: as :func:`penstock.protocols.for_connection`.
    """
    base, values, defaults = protocols.for_connection(url, given, only)
    row = defaults.protocol
    broker: Broker | None = None
    data = protocols.embedded_data(base)
    if data is not None:
        from penstock.broker import Broker

        broker = Broker(data=data) if data else Broker()
    try:
        native = (
            row.native_client_class()
            .connect(broker.url if broker else base, options.to_engine(row.tables["client"], values), None)
            .wait()
        )
    except BaseException:
        if broker:
            broker.stop()
        raise
    return row.blocking_client_class()(native, base, defaults, broker)


@overload
def connect(url: PulsarUrl, **options: Unpack[PulsarClientOptions]) -> PulsarClient: ...
@overload
def connect(url: MqttUrl, **options: Unpack[MqttClientOptions]) -> MqttClient: ...
@overload
def connect(url: TubeMqUrl, **options: Unpack[TubeMqClientOptions]) -> TubeMqClient: ...
@overload
def connect(url: str | None = None, **options: Unpack[AnyClientOptions]) -> Client: ...
def connect(url: str | None = None, **options: Any) -> Client:
    """Connects to a broker; returns when the first connection is up. Arguments, errors and types are those of
    :func:`penstock.connect`."""
    return opening(url, options)
