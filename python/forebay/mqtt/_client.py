"""MQTT on asyncio: :class:`MqttClient`, :class:`MqttProducer`, :class:`MqttConsumer`.

``forebay/_sync/mqtt/client.py`` is generated from this file.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, Never, Unpack

from forebay._aio.base import Client, Consumer, Producer
from forebay._aio.handle import Opening, immediate
from forebay._aio.open_handle import opening
from forebay._core import parse
from forebay._core.native import MqttMessage
from forebay._core.options import default, given
from forebay.mqtt._fields import ReasonCode, check_version, fields_to_engine, filters_of

if TYPE_CHECKING:
    import os

    from typing_extensions import Buffer

    from forebay._core.types import Duration, Pem, Pending, Secret, Size
    from forebay.mqtt._fields import Birth, Fields, PublishFields, Will


def connect(
    url: str | None = None,
    *,
    # options: mqtt.client
    client_id: str = default(None),
    clean_start: bool = default(True),
    username: str = default(None),
    password: Secret = default(None),
    will: Will = default(None),
    tls_ca: Pem = default(None),
    version: Literal["5", "3.1.1", "3.1", "auto", 5] = default("5"),
    session_expiry: Duration = default(None),
    keep_alive: Duration = default(60.0),
    birth: Birth = default(None),
    connect_timeout: Duration = default(10.0),
    operation_timeout: Duration = default(30.0),
    max_backoff: Duration = default(60.0),
    max_inflight: int = default(1000),
    receive_maximum: int = default(1000),
    topic_alias_maximum: int = default(100),
    max_packet_size: Size = default(16 << 20),
    memory_limit: Size = default(64 << 20),
    receive_buffer: Size = default(16 << 20),
    unclaimed: Literal["keep", "ack", "unsubscribe"] = default("keep"),
    offline: Literal["reject", "drop_oldest", "spill"] = default("reject"),
    outbox: str | os.PathLike[str] = default(None),
    tls_alpn: str = default("mqtt"),
    ws_headers: Mapping[str, str] = default(None),
    ws_query: Secret = default(None),
    tls_cert: Pem = default(None),
    authentication_method: str = default(None),
    authenticator: Callable[[bytes | None], bytes | None] = default(None),
    connect_properties: Mapping[str, str] | Sequence[tuple[str, str]] = default(None),
    request_response_information: bool = default(False),
    outbox_limit: Size = default(1 << 30),
    retry_first: bool | Duration = default(False),
    tls_key: Pem = default(None),
    tls_pin: str | Sequence[str] = default(None),
    tls_server_name: str = default(None),
    tls_skip_hostname_check: bool = default(False),
    threads: int = default(1),
    # end of options
    **unknown: Never,
) -> Opening[MqttClient]:
    """Connects to an MQTT server; as :func:`forebay.connect`, with the types of MQTT.

    Args:
        url: ``mqtt://host:1883``, ``mqtts://``, ``ws://``, ``wss://`` or ``mqtt+unix:///path``.
        options: see :class:`forebay.mqtt.MqttClientOptions`.

    Raises:
        InvalidArgument: an unknown option, a bad value, or a URL of another protocol, at once.
        Unsupported: an option of another protocol, at once.
        ConnectFailed, AuthenticationError: as :func:`forebay.connect` (when awaited).
    """
    return opening(url, given(locals(), "url"), "mqtt")


class MqttClient(Client):
    """A session with an MQTT server. Made by :func:`forebay.connect` with ``mqtt://``, ``mqtts://``,
    ``ws://``, ``wss://`` or ``mqtt+unix://``."""

    _publisher: Any = None

    def publish(
        self, topic: str, payload: Buffer = b"", **fields: Unpack[PublishFields]
    ) -> asyncio.Future[ReasonCode]:
        """Publishes a message without opening a producer; QoS 0 unless ``qos`` says otherwise. Result and
        errors are those of :meth:`MqttProducer.send`.

        Args:
            topic: topic name, without wildcards.
            payload: bytes, or anything with the buffer protocol.
            fields: see :class:`forebay.mqtt.PublishFields`.
        """
        if get_ident() != self._runner._thread_id:
            self._check()
        if not self._open:
            self._check()
        if type(topic) is not str:
            topic = parse.topic_name(topic)
        publisher: Any = self._publisher
        if publisher is None:
            values = {**self._defaults.resolve("producer", {}), "qos": 0, "retain": False}
            publisher = self._publisher = immediate(self._native.publisher(values))
        return publisher.send(payload, fields_to_engine({**fields, "topic": topic}))

    def producer(
        self,
        topic: str,
        *,
        # options: mqtt.producer
        qos: Literal[0, 1, 2] = default(1),
        retain: bool = default(False),
        max_pending: int = default(1000),
        # end of options
        **unknown: Never,
    ) -> Opening[MqttProducer]:
        """Opens a producer.

        Args:
            topic: topic name, without wildcards.
            options: see :class:`forebay.mqtt.MqttProducerOptions`.

        Raises:
            InvalidArgument, InvalidTopic: an unknown option, a bad value or a bad topic name, at once.
            Unsupported: an option of another protocol, at once.
        """
        options = given(locals(), "self", "topic")
        values = self._defaults.resolve("producer", options)
        name = parse.topic_name(topic)
        return Opening(lambda: self._open_producer(name, values))

    async def _open_producer(self, topic: str, values: dict[str, Any]) -> MqttProducer:
        self._check()
        return MqttProducer(await self._native.producer(topic, values), self)

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        *,
        # options: mqtt.consumer
        qos: Literal[0, 1, 2] = default(1),
        auto_ack: bool = default(False),
        no_local: bool = default(False),
        retain_as_published: bool = default(False),
        retain_handling: Literal["always", "if_new", "never"] = default("always"),
        # end of options
        **unknown: Never,
    ) -> Opening[MqttConsumer]:
        """Subscribes.

        Args:
            topic: one topic filter or several.
            subscription: group of a shared subscription (``$share/subscription/filter``): each message goes
                to one of its members. Without it every message comes here.
            options: see :class:`forebay.mqtt.MqttConsumerOptions`.

        Raises:
            InvalidArgument, InvalidTopic: an unknown option, a bad value or a bad topic filter, at once.
            AuthorizationError: the broker refuses a filter (when awaited).
            Unsupported: an option of another protocol, at once; an option of MQTT 5 on a connection of MQTT
                3, or the broker has no wildcards or no shared subscriptions (when awaited).
        """
        options = given(locals(), "self", "topic", "subscription")
        values = self._defaults.resolve("consumer", options)
        filters, group = filters_of(topic), parse.group_name(subscription)
        return Opening(lambda: self._open_consumer(filters, group, values))

    async def _open_consumer(
        self, filters: list[str], subscription: str, values: dict[str, Any]
    ) -> MqttConsumer:
        self._check()
        check_version(self._native.version, values)
        return MqttConsumer(await self._native.consumer(filters, subscription, values), self)

    def subscribe(
        self,
        topic: str | Sequence[str],
        *,
        # options: mqtt.consumer of a subscription
        qos: Literal[0, 1, 2] = default(1),
        auto_ack: bool = default(True),
        no_local: bool = default(False),
        retain_as_published: bool = default(False),
        retain_handling: Literal["always", "if_new", "never"] = default("always"),
        # end of options
        **unknown: Never,
    ) -> Opening[MqttConsumer]:
        """As :meth:`consumer`, with ``auto_ack=True``: each message is acknowledged as soon as it is
        received."""
        options = given(locals(), "self", "topic")
        options.setdefault("auto_ack", True)
        return self.consumer(topic, **options)

    async def unsubscribe(self, filter: str) -> bool:
        """Ends the subscription of the session to a filter that no open consumer has: one of an earlier
        process, or of a consumer that was closed. Messages of it that wait for a consumer are dropped.

        Args:
            filter: the topic filter as it was subscribed to; ``$share/group/filter`` for a shared one.

        Returns:
            Whether the session had it. Brokers before MQTT 5 do not tell: ``True``.

        Raises:
            InvalidTopic: not a topic filter.
            InvalidArgument: an open consumer has this filter.
            Timeout: no answer within ``operation_timeout``.
        """
        self._check()
        return await self._native.unsubscribe(filter)

    def _open_producers(self) -> list[Any]:
        # That of `publish`, too.
        return [*super()._open_producers(), *([self._publisher] if self._publisher else [])]

    async def reauthenticate(self) -> None:
        """Starts a new extended authentication (MQTT 5, 4.12.1).

        Raises:
            InvalidArgument: the client was made without ``authentication_method``.
        """
        self._check()
        await self._native.reauthenticate()


class MqttProducer(Producer):
    """Publishes to one topic. Made by :meth:`MqttClient.producer`."""

    _ending: Pending[None] | None = None

    def _carried(self, context: dict[str, str]) -> dict[str, str]:
        return context if self._owner and self._owner._native.version == "5" else {}

    def _start_close(self, failed: bool) -> None:
        # A blocking client starts all closes before it waits for one; asyncio gathers them.
        if self._open:
            self._ending = self._native.close()

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
            # The engine waits no longer than the operation timeout: a broker may be gone for good.
            await (self._ending or self._native.close())
            # Errors of messages whose results were not awaited.
            await self._native.flush()

    def send(self, payload: Buffer, **fields: Unpack[Fields]) -> asyncio.Future[ReasonCode]:
        """Publishes a message. The payload is copied before this returns; the result is the reason code of
        the broker's PUBACK (QoS 1) or PUBCOMP (QoS 2). With QoS 0 it comes when the message has been written.
        Cancelling the wait does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol.
            fields: see :class:`forebay.mqtt.Fields`.

        Raises:
            QueueFull: the send window and its overflow queue are full: await earlier sends first.
            MemoryLimit: the client's ``memory_limit`` is reached.
            InvalidTopic, InvalidArgument: a bad topic, an unknown field or a bad value, at once.
            Unsupported: the broker does not support this QoS or RETAIN.
            AuthorizationError, QuotaExceeded, ...: the broker refused the message (when awaited).
            Closed: after :meth:`close`.
        """
        if get_ident() != self._runner._thread_id:
            self._check()
        return self._native.send(payload, fields_to_engine(fields) if fields else None)

    def send_nowait(self, payload: Buffer, **fields: Unpack[Fields]) -> None:
        """As :meth:`send`, without a result: the message is admitted, or this raises. :meth:`flush` waits for
        the answers and raises what went wrong.

        Raises:
            QueueFull: the send window is full; nothing is queued behind it.
            MemoryLimit, InvalidTopic, InvalidArgument, Unsupported, Closed: as :meth:`send`.
        """
        self._native.send_nowait(payload, fields_to_engine(fields) if fields else None)

    def send_many(
        self,
        payloads: Sequence[Buffer],
        topics: Sequence[str | None] | None = None,
    ) -> Awaitable[list[ReasonCode]]:
        """Publishes many messages and wakes up once, when the broker has all of them: the fastest way to send
        payloads from Python. No more than the send window are in flight at a time.

        Args:
            payloads: the messages.
            topics: their topics, where they differ from the producer's; one for each payload, or none.

        Returns:
            The reason codes in the order of ``payloads``.

        Raises:
            ValueError: ``topics`` and ``payloads`` differ in length.
            Error: the first error of the messages, with the number of failed ones (when awaited).
        """
        return self._submit_many(payloads, topics)

    def _submit_many(
        self, payloads: Sequence[Buffer], topics: Sequence[str | None] | None = None
    ) -> Pending[list[ReasonCode]]:
        """As :meth:`send_many`, without waiting: ``wait()`` of the result gives the reason codes, and the
        next messages can be prepared meanwhile."""
        self._check()
        return self._native.send_many(payloads, topics)

    def send_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        properties: str | None = None,
        topic: str | None = None,
    ) -> Awaitable[list[ReasonCode]]:
        """Publishes each row of a DataFrame as a message, without a Python object per row.

        Args:
            frame: anything with the Arrow PyCapsule interface: pyarrow, polars, pandas 2.2+, duckdb.
            value: column of the payloads (binary or text).
            encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row as an object of all
                columns. Default: ``"raw"`` if ``value`` is given.
            properties: column of maps, text to text.
            topic: column of the topics, or a template with columns in it: ``"shop/{till}/sales"``. Default:
                the producer's topic.

        Returns:
            The reason codes in the order of the rows.

        Raises:
            InvalidArgument: no such column, a type that does not fit, or no Arrow interface.
            InvalidTopic: the topic of a row is not valid; the error names the row.
        """
        return self._submit_frame(frame, value=value, encoding=encoding, properties=properties, topic=topic)

    def _submit_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        properties: str | None = None,
        topic: str | None = None,
    ) -> Pending[list[ReasonCode]]:
        """As :meth:`send_frame`, without waiting: ``wait()`` of the result gives the reason codes."""
        self._check()
        return self._submit_rows(
            self._encode_frame(frame, {"value": value, "topic": topic, "properties": properties}, encoding)
        )


class MqttConsumer(Consumer[MqttMessage]):
    """Receives the messages of topic filters. Made by :meth:`MqttClient.consumer`.

    Acknowledging a message sends its PUBACK or PUBCOMP; MQTT requires them in the order of arrival, so that
    one waits until those before it are acknowledged.
    """
