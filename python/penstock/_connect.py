"""Connecting, asyncio: :func:`connect` and the part that the protocols' own ``connect`` share."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from . import _native, options, protocols
from ._handle import Opening

if TYPE_CHECKING:
    from typing import Unpack

    from ._base import Client
    from ._typing import MqttUrl, PulsarUrl, TubeMqUrl
    from .broker import Broker
    from .mqtt.client import MqttClient
    from .mqtt.options import MqttClientOptions
    from .pulsar.client import PulsarClient
    from .pulsar.options import PulsarClientOptions
    from .tubemq.client import TubeMqClient
    from .tubemq.options import TubeMqClientOptions

    class AnyClientOptions(PulsarClientOptions, MqttClientOptions, TubeMqClientOptions, total=False):
        """The options of every protocol."""


def opening(url: str | None, given: Mapping[str, Any], only: str | None = None) -> Opening[Any]:
    """A client that is about to connect.

    Args:
        url, given, only: as :func:`penstock.protocols.for_connection`.

    Raises:
        InvalidArgument, Unsupported: as :func:`penstock.protocols.for_connection`.
    """
    base, values, defaults = protocols.for_connection(url, given, only)
    row = defaults.protocol

    async def start() -> Client:
        broker: Broker | None = None
        data = protocols.embedded_data(base)
        if data is not None:
            from .broker import Broker

            broker = await asyncio.to_thread(lambda: Broker(data=data) if data else Broker())
        loop = asyncio.get_running_loop()
        bridge = _native.Loop(loop)
        try:
            native = await row.native_client_class().connect(
                broker.url if broker else base, options.to_engine(row.tables["client"], values), bridge
            )
        except BaseException:
            bridge.close()
            if broker:
                await asyncio.to_thread(broker.stop)
            raise
        return row.client_class()(native, loop, bridge, base, defaults, broker)

    return Opening(start)


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
        url: ``pulsar://host:6650[,host:6650]``, ``pulsar+ssl://...``; ``mqtt://host:1883``, ``mqtts://``,
            ``ws://``, ``wss://``, ``mqtt+unix:///path``; ``tubemq://master:8715[,master:8715]``,
            ``tubemq+ssl://...``; ``embedded:`` or ``embedded:./data`` starts a broker in this process and
            stops it with the client. Default: ``PENSTOCK_URL``. The query may hold options:
            ``pulsar://host:6650?compression=zstd``.
        options: :class:`penstock.pulsar.PulsarClientOptions`, :class:`penstock.mqtt.MqttClientOptions` or
            :class:`penstock.tubemq.TubeMqClientOptions`. Durations are in seconds, sizes in bytes.

    Returns:
        An object to be awaited or entered. Both give the client of the URL's protocol, with its first
        connection up.

        Type checkers see :class:`penstock.Client`, which has the verbs of every protocol, because a type
        cannot express that a text begins with ``mqtt://``. They see the class of the protocol for the literal
        ``"embedded:"`` and the usual ports of localhost, and always from :func:`penstock.pulsar.connect`,
        :func:`penstock.mqtt.connect` and :func:`penstock.tubemq.connect`, which take no other URLs.

    Raises:
        InvalidArgument: an unknown option or a bad value, at once.
        Unsupported: an option of another protocol, at once.
        ConnectFailed: no address could be connected within ``connect_timeout`` (when awaited).
        AuthenticationError: the broker rejected the credentials (when awaited).

    >>> import asyncio, penstock
    >>> async def main():
    ...     async with penstock.connect("embedded:") as client:
    ...         async with client.consumer("orders", "billing") as consumer:
    ...             async with client.producer("orders") as producer:
    ...                 await producer.send(b"a book", key="42")
    ...             message = await consumer.receive(timeout=5)
    ...             await consumer.ack(message)
    ...             return message.key, message.data
    >>> asyncio.run(main())
    ('42', b'a book')
    """
    return opening(url, options)
