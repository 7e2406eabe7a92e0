"""The embedded broker."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._core import broker_config, broker_endpoints, parse
from ._core import options as _options
from ._core.broker_options import BrokerOptions
from ._core.listener_options import ListenerOptions
from ._core.options import default
from .errors import Closed, ForkError, InvalidArgument, NotAllowed, Timeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, Never, Self

    from . import _engine
    from ._core.types import Duration, Pem, Secret, Size

__all__ = ["OPTIONS", "Broker", "BrokerOptions", "ListenerOptions"]

OPTIONS = _options.Table(BrokerOptions, "The broker")
"""The options of :class:`Broker`."""

_started: weakref.WeakSet[Broker] = weakref.WeakSet()
_starting = threading.RLock()
"""Held while `_started` gets one, and while it is looked through; a finaliser may come in between."""


def running_with(folder: str) -> list[Broker]:
    """The brokers of this process that run on a data folder; with the empty name, those in memory."""
    path = Path(folder).resolve() if folder else None
    with _starting:
        started = list(_started)
    return [broker for broker in started if broker.running and broker._folder == path]


class Broker:
    """A broker in this process. It speaks Pulsar, and also MQTT and TubeMQ when a port for them is given, or
    what ``listeners`` say. Clients can connect when the call returns. The broker ends with :meth:`stop`, or
    at the end of its ``with`` or ``async with`` block.

    Without ``data``, everything is kept in memory. With ``data``, a message is acknowledged once it is on
    disk (``durability="fsync"``). Options: :class:`forebay.broker.BrokerOptions`. ``config`` is a file of
    options in TOML; keywords win over it.

    >>> import forebay
    >>> with forebay.Broker(mqtt_port=0) as broker:
    ...     broker.url.startswith("pulsar://127.0.0.1:"), broker.mqtt_url.startswith("mqtt://127.0.0.1:")
    (True, True)

    Raises:
        InvalidArgument: an unknown option, or a listener that would let other machines in without
            credentials.
        IoError: the port is taken, or the folder is in use or not writable.
    """

    _native: _engine.Broker | None = None

    def __init__(
        self,
        config: str | os.PathLike[str] | None = None,
        *,
        # options: broker
        data: str | os.PathLike[str] = default(None),
        token_key: Secret | bytes = default(None),
        port: int | Literal["off"] = default(None),
        http_port: int | Literal["off"] = default(None),
        mqtt_port: int | Literal["off"] = default(None),
        tubemq_port: int | Literal["off"] = default(None),
        listeners: Sequence[ListenerOptions] = default(None),
        durability: Literal["fsync", "os", "memory"] = default(None),
        token_audience: str = default(None),
        subscription_owners: bool = default(True),
        max_store: Size = default(None),
        min_disk_free: Size = default(64 << 20),
        max_connections: int = default(16 << 10),
        max_topics: int = default(10_000),
        auto_create: bool = default(True),
        host: str = default("127.0.0.1"),
        tls_cert: Pem = default(None),
        tls_key: Pem = default(None),
        tls_client_ca: Pem = default(None),
        acl_file: str | os.PathLike[str] = default(None),
        allow_anonymous: bool = default(False),
        mqtt_ws_port: int | Literal["off"] = default(None),
        mqtt_password_file: str | os.PathLike[str] = default(None),
        tubemq_user_file: str | os.PathLike[str] = default(None),
        advertised_url: str = default(None),
        max_message_size: Size = default(5 << 20),
        keep_alive: Duration = default(30.0),
        retention: Duration = default(600.0),
        retention_bytes: Size = default(32 << 20),
        default_partitions: int = default(0),
        deduplicate: bool = default(True),
        schema_compatibility: Literal[
            "always_compatible",
            "always_incompatible",
            "backward",
            "forward",
            "full",
            "backward_transitive",
            "forward_transitive",
            "full_transitive",
        ] = default("full"),
        mqtt_max_packet_size: Size = default(2_000_000),
        mqtt_max_sessions: int = default(100_000),
        mqtt_max_subscription_bytes: Size = default(256 << 20),
        mqtt_slow_subscriber: Literal["drop", "disconnect", "wait"] = default("drop"),
        mqtt_full_queue: Literal["refuse", "drop"] = default("refuse"),
        mqtt_max_queue: int = default(10_000),
        mqtt_max_queue_bytes: Size = default(64 << 20),
        mqtt_max_output: Size = default(8 << 20),
        mqtt_max_inflight: int = default(100),
        mqtt_receive_maximum: int = default(1000),
        mqtt_topic_alias_maximum: int = default(100),
        mqtt_max_retained: int = default(100_000),
        mqtt_max_session_expiry: Duration = default(None),
        tubemq_advertised_host: str = default(None),
        tubemq_partitions: int = default(3),
        tubemq_retention: Duration = default(604800.0),
        tubemq_offset_retention: Duration = default(1728000.0),
        tubemq_max_message_size: Size = default(1 << 20),
        tubemq_client_timeout: Duration = default(30.0),
        # end of options
        **unknown: Never,
    ) -> None:
        options = _options.given(locals(), "self", "config")
        file = broker_config.read(config, OPTIONS) if config is not None else {}
        values = _options.resolve(OPTIONS, options, file)
        values.setdefault("durability", "fsync" if "data" in values else "memory")
        from ._core.native import start_broker

        self._options = broker_endpoints.complete(values)
        self._native = start_broker(self._options)
        self._folder = Path(values["data"]).resolve() if "data" in values else None
        self._listening = self._native.listening
        with _starting:
            _started.add(self)

    def _url_of(self, name: str) -> str | None:
        return next((url for of, url, _ in self._listening if of == name), None)

    @property
    def url(self) -> str:
        """The URL for Pulsar clients; with ``port="off"`` that of the first listener."""
        return self._url_of("pulsar") or self._listening[0][1]

    @property
    def mqtt_url(self) -> str | None:
        """The URL for MQTT clients; ``None`` without such a listener."""
        return self._url_of("mqtt")

    @property
    def mqtt_ws_url(self) -> str | None:
        """The URL for MQTT clients over WebSocket; ``None`` without such a listener."""
        return self._url_of("mqtt_ws")

    @property
    def tubemq_url(self) -> str | None:
        """The URL of TubeMQ's master; ``None`` without a listener for TubeMQ."""
        return self._url_of("tubemq")

    @property
    def http_url(self) -> str | None:
        """The URL for HTTP: a page for operators, ``/healthz``, ``/readyz``, ``/metrics``, and Pulsar's
        lookups and administration; ``None`` without a listener for HTTP."""
        return self._url_of("http")

    @property
    def urls(self) -> dict[str, str]:
        """The URL of everything that the broker listens on, by ``"pulsar"``, ``"mqtt"``, ``"mqtt_ws"``,
        ``"tubemq"`` and ``"http"``; of several listeners, that of the first one."""
        return {name: url for name, url, _ in reversed(self._listening)}

    @property
    def all_urls(self) -> list[str]:
        """The URLs of all listeners: those of the ports, then ``listeners`` in their order."""
        return [url for _, url, _ in self._listening]

    @property
    def readable_urls(self) -> list[str]:
        """The URLs of listeners that other machines can reach and that have no TLS, so that passwords and
        messages can be read on the way."""
        return [url for _, url, in_the_clear in self._listening if in_the_clear]

    @property
    def running(self) -> bool:
        """Whether the broker has not been stopped."""
        return self._native is not None

    def _running(self) -> _engine.Broker:
        if self._native is None:
            raise Closed("the broker has been stopped")
        return self._native

    def status(self) -> dict[str, Any]:
        """Figures of the broker since it started.

        The keys ``url``, ``durability``, ``uptime`` (seconds), ``store_bytes``, ``damage`` (the first
        message since the start that could not be read, or ``None``), ``stalled`` (why the store cannot write
        at the moment and tries again, or ``None``) and ``failure`` (the error
        after which the store accepts nothing, or ``None``) describe the whole broker. The figures
        ``connections``, ``connections_refused``, ``sessions``, ``topics``, ``subscriptions``, ``producers``,
        ``consumers``, ``retained``, ``messages_in``, ``messages_out``, ``messages_dropped``,
        ``messages_redelivered``, ``duplicates`` (of Pulsar, not stored again), ``denied``
        (requests that the permissions do not allow), ``bytes_in`` and ``bytes_out`` are sums over all
        protocols.

        The key ``pulsar``, and ``mqtt`` and ``tubemq`` if they are enabled, has a dict with the same figures
        of that protocol. A figure that a protocol does not have is 0: sessions and retained messages are
        MQTT's; topics, producers and consumers are Pulsar's and TubeMQ's. Dropped messages are MQTT's, and
        those of Pulsar's non-persistent topics, once for each subscription that could not take them. Bytes
        are those of messages, or of all packets for MQTT.

        Raises:
            Closed: the broker has been stopped. The methods below raise it, too.
        """
        return self._running().status()

    def reload_users(self) -> dict[str, int]:
        """Reads `mqtt_password_file` and `tubemq_user_file` again, and returns the number of users by
        protocol. Files of protocols without a port are not read. MQTT connections whose user is gone or has
        another password end, and TubeMQ calls are refused. ``forebay broker`` does this at SIGHUP.

        Raises:
            InvalidArgument: a file cannot be read, or a line of it is no user. The former users of all
                protocols stay.
        """
        return dict(self._running().reload_users())

    def reload_keys(self) -> dict[str, int]:
        """Reads the files of `tls_cert`, `tls_key`, `tls_client_ca` and `token_key` again, also those of
        `listeners`, and returns the number of listeners with a certificate and that of the token keys, as
        ``certificates`` and ``token_keys``. New connections are made with the new certificates, and their
        tokens are verified with the new keys; open connections stay. ``forebay broker`` does this at SIGHUP.

        Raises:
            InvalidArgument: a file cannot be read, a certificate or key is not valid, or they do not fit.
                The former ones stay, all of them.
        """
        native = self._running()
        try:
            listeners = [
                {name: parse.again(value) for name, value in one.items()}
                for one in self._options["listeners"]
            ]
            options: dict[str, Any] = {"listeners": listeners}
            if "token_key" in self._options:
                options["token_key"] = parse.again(self._options["token_key"])
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        certificates, token_keys = native.reload_keys(options)
        return {"certificates": certificates, "token_keys": token_keys}

    def reload_permissions(self) -> int:
        """Reads `acl_file` again, and returns the number of its rules. No connection ends: producers and
        consumers do that may not be there any more, and MQTT clients do not get what they may not read any
        more. ``forebay broker`` does this at SIGHUP.

        Raises:
            NotAllowed: the broker was started without `acl_file`.
            InvalidArgument: the file cannot be read, or a line of it is no rule. The former rules stay.
        """
        rules = self._running().reload_permissions()
        if rules is None:
            raise NotAllowed("the broker was started without acl_file")
        return rules

    def create_topic(self, name: str, partitions: int = 0) -> None:
        """Creates a topic: a plain one, or one with ``partitions``. A name that begins with ``tubemq:`` names
        a TubeMQ topic.

        Raises:
            InvalidTopic: the name is not a topic name.
            NotAllowed: the topic already exists.
            InvalidArgument: a TubeMQ topic, and the broker has no ``tubemq_port``.
        """
        if name.startswith("tubemq:") and self.tubemq_url is None:
            raise InvalidArgument(
                f"{name!r} is a TubeMQ topic, and this broker does not speak TubeMQ: set tubemq_port"
            )
        self._running().create_topic(name, partitions)

    def grow_topic(self, name: str, partitions: int) -> None:
        """Adds partitions to a partitioned topic of Pulsar, or to a TubeMQ topic, until it has
        ``partitions``. With Pulsar, the new partitions get the subscriptions of the others, and open
        producers and consumers notice them after their ``partitions_update_interval``; with TubeMQ, at their
        next heartbeat.

        Raises:
            TopicNotFound: the topic does not exist.
            NotAllowed: the topic has no partitions.
            InvalidArgument: it has as many already, or more: partitions can only be added.
        """
        self._running().grow_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its messages, and closes its producers and consumers.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        self._running().delete_topic(name)

    def terminate_topic(self, name: str) -> None:
        """Terminates a topic of Pulsar, with all its partitions, for good: it takes no more messages, and its
        consumers are told when they have acknowledged the last one.

        Raises:
            TopicNotFound: the topic does not exist.
            Unsupported: a TubeMQ topic.
        """
        self._running().terminate_topic(name)

    def topics(self) -> list[str]:
        """Full names of all topics; a partitioned topic is listed once."""
        return self._running().topics()

    def topic_stats(self, name: str) -> dict[str, Any]:
        """Entries, messages, producers and subscriptions of a topic.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        return self._running().topic_stats(name)

    def stop(self, timeout: Duration = 60.0) -> None:
        """Stops listening, writes accepted messages and closes the store. A second call does nothing.

        Args:
            timeout: seconds to wait for connections to end and messages to be written.

        Raises:
            Timeout: stopping takes longer; it continues in the background.
        """
        native, self._native = self._native, None
        if native is not None:
            native.stop(parse.seconds(timeout) or 0.0)

    close = stop

    def abandon(self) -> None:
        """Stops the broker without waiting for its end."""
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
        return f"<forebay.Broker {self.url} {'running' if self.running else 'stopped'}>"

    def __del__(self) -> None:
        if self._native is not None:
            try:
                shown = repr(self)
                self.abandon()
            except ForkError:  # The broker is the parent's.
                return
            warnings.warn(f"unclosed {shown}", ResourceWarning, 2, source=self)
