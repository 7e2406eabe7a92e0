"""The asyncio face of MQTT: the verbs of :mod:`penstock.client`, and what MQTT people type first."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from penstock import frames
from penstock import options as _options
from penstock.client import Client, Consumer, Opening, Producer
from penstock.errors import Unsupported
from penstock.mqtt import ReasonCode, fields_to_engine, filters_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock import _engine
    from penstock.mqtt import PublishFields
    from penstock.options import AnyConsumerOptions, AnyProducerOptions


class MqttClient(Client):
    """A session with an MQTT server. Made by :func:`penstock.connect` with ``mqtt://``, ``mqtts://``, ``ws://``,
    ``wss://`` or ``mqtt+unix://``."""

    _protocol = "mqtt"
    _publisher: _engine.MqttProducer | None = None

    def publish(
        self, topic: str, payload: Buffer = b"", **fields: Unpack[PublishFields]
    ) -> asyncio.Future[ReasonCode]:
        """Publishes a message; QoS 0 unless ``qos`` says otherwise. See :meth:`MqttProducer.send`."""
        if asyncio._get_running_loop() is not self._loop or not self._open:
            self._check()
        publisher = self._publisher
        if publisher is None:
            # Opens nothing at the broker, so that there is nothing to wait for.
            opened = cast(
                "asyncio.Future[_engine.MqttProducer]", self._native.producer("publish", {"qos": 0})
            )
            publisher = self._publisher = opened.result()
        values: dict[str, Any] = {**fields, "topic": topic}
        return publisher.send(payload, fields_to_engine(values))  # pyright: ignore[reportReturnType]

    def producer(self, topic: str, **options: Unpack[AnyProducerOptions]) -> Opening[Producer]:
        """A producer of ``topic``.

        Args:
            topic: a topic name, without wildcards.
            options: see :class:`penstock.options.MqttProducerOptions`.

        Raises:
            InvalidArgument, InvalidTopic: an unknown option, a bad value or name, at once.
        """
        values = _options.resolve("mqtt.producer", options, self._defaults.producer)

        async def start() -> Producer:
            self._check()
            native = await self._native.producer(topic, _options.to_engine("mqtt.producer", values))
            return self._adopt(MqttProducer(cast("_engine.MqttProducer", native), self._loop))

        return Opening(start)

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[AnyConsumerOptions],
    ) -> Opening[Consumer]:
        """Subscribes.

        Args:
            topic: a topic filter or several.
            subscription: group of a shared subscription (``$share/subscription/filter``): each message goes
                to one of its members. None: all messages come here.
            options: see :class:`penstock.options.MqttConsumerOptions`.

        Raises:
            InvalidArgument, InvalidTopic: an unknown option, a bad value or filter, at once.
            AuthorizationError: the broker refuses a filter (when awaited).
            Unsupported: the broker has no wildcards or no shared subscriptions (when awaited).
        """
        values = _options.resolve("mqtt.consumer", options, self._defaults.consumer)
        filters = filters_of(topic)

        async def start() -> Consumer:
            self._check()
            native = await self._native.consumer(
                filters, subscription or "", _options.to_engine("mqtt.consumer", values)
            )
            return self._adopt(Consumer(native, self._loop, ack_receipt=False))

        return Opening(start)

    def subscribe(
        self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]
    ) -> Opening[Consumer]:
        """As :meth:`consumer`, with messages acknowledged when they are taken (``auto_ack=True``)."""
        options.setdefault("auto_ack", True)
        return self.consumer(topic, **options)

    async def reauthenticate(self) -> None:
        """Starts a new extended authentication (4.12.1).

        Raises:
            InvalidArgument: the client was made without ``authentication_method``.
        """
        self._check()
        await self._native.reauthenticate()

    def __repr__(self) -> str:
        return f"<penstock.MqttClient {self._url}>"


class MqttProducer(Producer):
    """Publishes to one topic. Made by :meth:`MqttClient.producer`."""

    _native: _engine.MqttProducer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, native: _engine.MqttProducer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(cast("_engine.Producer", native), loop)

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
            # The engine waits no longer than the operation timeout: a broker may be gone for good.
            await self._native.close()
            # Errors of what nobody awaited.
            await self._native.flush()

    @property
    def name(self) -> str:
        """MQTT's producers have none.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("MQTT has no producer names")

    @property
    def last_sequence_id(self) -> int:
        """MQTT has none.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("MQTT has no sequence ids")

    def send(self, payload: Buffer, key: str | None = None, **fields: Any) -> asyncio.Future[Any]:
        """Publishes a message. It is taken at once; the future ends with the
        :class:`penstock.mqtt.ReasonCode` of the broker's PUBACK (QoS 1) or PUBCOMP (QoS 2), or when it has
        been written (QoS 0). Cancelling the future does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol; copied once.
            fields: see :class:`penstock.mqtt.Fields`.

        Raises:
            QueueFull: the window and the parking lot behind it are full: await some of the futures first.
            InvalidTopic, InvalidArgument: at once.
            Unsupported: the broker does not take this QoS or retained messages; MQTT has no keys.
            AuthorizationError, QuotaExceeded ...: the broker's refusal (when awaited), with its reason code.
        """
        if asyncio._get_running_loop() is not self._loop:
            self._check()
        if key is not None:
            raise Unsupported("MQTT has no keys: put it into the topic, or into properties")
        if not fields:
            return self._native.send(payload, None)  # pyright: ignore[reportReturnType]
        return self._native.send(payload, fields_to_engine(fields))  # pyright: ignore[reportReturnType]

    def send_nowait(self, payload: Buffer, key: str | None = None, **fields: Any) -> None:
        """As :meth:`send`, without a future: the message is admitted or this raises. :meth:`flush` waits for
        the answers and raises what went wrong."""
        if key is not None:
            raise Unsupported("MQTT has no keys: put it into the topic, or into properties")
        self._native.send_nowait(payload, fields_to_engine(fields) if fields else None)

    def send_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> Awaitable[Any]:
        """Publishes many messages with one wake-up at the end; gives their reason codes.

        Args:
            payloads: the messages.
            keys: their topics, where they differ from the producer's.
        """
        self._check()
        return self._native.send_many(payloads, keys)

    def send_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        key: str | None = None,
        properties: str | None = None,
        event_time: str | None = None,
        topic: str | None = None,
    ) -> Awaitable[Any]:
        """Publishes each row of a DataFrame.

        Args:
            frame, value, encoding, properties: as :meth:`penstock.Producer.send_frame`.
            topic: the column with the topics, or a template with columns in it: ``"shop/{till}/sales"``.
                Default: the producer's topic.

        Returns:
            The reason codes in the order of the rows.
        """
        self._check()
        if key is not None or event_time is not None:
            raise Unsupported("MQTT has neither keys nor event times; topic= names a column or a template")
        rows = frames.outgoing(frame, value=value, encoding=encoding, topic=topic, properties=properties)
        return self._native.send_rows(rows)

    def __repr__(self) -> str:
        return f"<penstock.MqttProducer {self._native.topic}>"
