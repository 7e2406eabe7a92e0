"""The embedded broker as an object."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import options as _options
from . import parse
from ._broker_options import BrokerOptions
from .errors import Closed, InvalidArgument, Timeout

if TYPE_CHECKING:
    from typing import Self, Unpack

    from . import _engine
    from ._typing import Duration

__all__ = ["OPTIONS", "Broker", "BrokerOptions"]

OPTIONS = _options.Table(BrokerOptions, "The broker")
"""The options of :class:`Broker`."""


class Broker:
    """A broker in this process. It speaks Pulsar's wire protocol, and MQTT and TubeMQ when it is given a port
    for them. It is ready when the call returns, and ends with :meth:`stop` or at the end of its ``with`` or
    ``async with`` block.

    Without ``data`` it keeps everything in memory. With ``data`` a message is acknowledged when it is on
    disk (``durability="fsync"``). Options: :class:`penstock.broker.BrokerOptions`.

    >>> import penstock
    >>> with penstock.Broker(mqtt_port=0) as broker:
    ...     broker.url.startswith("pulsar://127.0.0.1:"), broker.mqtt_url.startswith("mqtt://127.0.0.1:")
    (True, True)

    Raises:
        InvalidArgument: an unknown option, or a public address without TLS and tokens.
        IoError: the port is taken, or the folder is in use or not writable.
    """

    _native: _engine.Broker | None = None

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        values = _options.resolve(OPTIONS, options)
        values.setdefault("durability", "fsync" if "data" in values else "memory")
        from ._native import start_broker

        self._native = start_broker(values)
        self._url = self._native.url
        self._mqtt_url, self._mqtt_ws_url = self._native.mqtt_url, self._native.mqtt_ws_url
        self._tubemq_url = self._native.tubemq_url

    @property
    def url(self) -> str:
        """Where clients of Pulsar connect."""
        return self._url

    @property
    def mqtt_url(self) -> str | None:
        """Where clients of MQTT connect; ``None`` without ``mqtt_port``."""
        return self._mqtt_url

    @property
    def mqtt_ws_url(self) -> str | None:
        """Where clients of MQTT over WebSocket connect; ``None`` without ``mqtt_ws_port``."""
        return self._mqtt_ws_url

    @property
    def tubemq_url(self) -> str | None:
        """Where clients of TubeMQ connect: the master; ``None`` without ``tubemq_port``."""
        return self._tubemq_url

    @property
    def running(self) -> bool:
        """Whether it has not been stopped."""
        return self._native is not None

    def _running(self) -> _engine.Broker:
        if self._native is None:
            raise Closed("the broker has been stopped")
        return self._native

    def status(self) -> dict[str, Any]:
        """What it holds and does: durability, connections, topics, bytes.

        Raises:
            Closed: it has been stopped. So do the methods below.
        """
        return self._running().status()

    def create_topic(self, name: str, partitions: int = 0) -> None:
        """Creates a topic; 0 ``partitions`` make a plain one. A name that begins with ``tubemq:`` is one of
        TubeMQ's topics.

        Raises:
            InvalidTopic: not a topic's name.
            NotAllowed: it exists already.
            InvalidArgument: a topic of TubeMQ, and no ``tubemq_port``.
        """
        if name.startswith("tubemq:") and self._tubemq_url is None:
            raise InvalidArgument(
                f"{name!r} is a topic of TubeMQ, which this broker does not speak: no tubemq_port"
            )
        self._running().create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all that is in it.

        Raises:
            TopicNotFound: there is none.
        """
        self._running().delete_topic(name)

    def topics(self) -> list[str]:
        """Full names of all topics, partitioned ones once."""
        return self._running().topics()

    def topic_stats(self, name: str) -> dict[str, Any]:
        """Entries, messages, bytes and subscriptions of a topic.

        Raises:
            TopicNotFound: there is none.
        """
        return self._running().topic_stats(name)

    def stop(self, timeout: Duration = 5.0) -> None:
        """Stops listening, stores what has been accepted and closes the store. May be called again.

        Args:
            timeout: seconds to wait for connections to end and data to be stored.

        Raises:
            Timeout: it needs longer; it goes on and ends by itself.
        """
        native, self._native = self._native, None
        if native is not None:
            native.stop(parse.seconds(timeout) or 0.0)

    close = stop

    def abandon(self) -> None:
        """Stops it without waiting for the end: it ends by itself."""
        with contextlib.suppress(Timeout):
            self.stop(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        return f"<penstock.Broker {self._url} {'running' if self.running else 'stopped'}>"

    def __del__(self) -> None:
        if self._native is not None:
            shown = repr(self)
            self.abandon()
            warnings.warn(f"unclosed {shown}", ResourceWarning, 2, source=self)
