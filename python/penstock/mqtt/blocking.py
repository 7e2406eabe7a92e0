"""The blocking face of MQTT: the verbs of :mod:`penstock.mqtt.client` without an event loop."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from penstock import frames
from penstock import options as _options
from penstock.blocking import Client, Consumer, Producer
from penstock.errors import Unsupported
from penstock.mqtt import ReasonCode, fields_to_engine, filters_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock import _engine
    from penstock.mqtt import PublishFields
    from penstock.options import AnyConsumerOptions, AnyProducerOptions


class MqttClient(Client):
    """Twin of :class:`penstock.mqtt.client.MqttClient`. Made by :func:`penstock.blocking.connect`."""

    _protocol = "mqtt"
    _publisher: _engine.MqttProducer | None = None

    def publish(self, topic: str, payload: Buffer = b"", **fields: Unpack[PublishFields]) -> ReasonCode:
        """Publishes a message and waits for its end; QoS 0 unless ``qos`` says otherwise."""
        self._check()
        if self._publisher is None:
            opened = self._native.producer("publish", {"qos": 0})
            self._publisher = cast("_engine.MqttProducer", opened.wait())
        values: dict[str, Any] = {**fields, "topic": topic}
        return self._publisher.send(payload, fields_to_engine(values)).wait()

    def producer(self, topic: str, **options: Unpack[AnyProducerOptions]) -> Producer:
        """A producer of ``topic``; as :meth:`penstock.mqtt.client.MqttClient.producer`."""
        values = _options.resolve("mqtt.producer", options, self._defaults.producer)
        self._check()
        native = self._native.producer(topic, _options.to_engine("mqtt.producer", values)).wait()
        return self._adopt(MqttProducer(cast("_engine.MqttProducer", native)))

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[AnyConsumerOptions],
    ) -> Consumer:
        """Subscribes; as :meth:`penstock.mqtt.client.MqttClient.consumer`."""
        values = _options.resolve("mqtt.consumer", options, self._defaults.consumer)
        filters = filters_of(topic)
        self._check()
        engine_options = _options.to_engine("mqtt.consumer", values)
        native = self._native.consumer(filters, subscription or "", engine_options).wait()
        return self._adopt(Consumer(native, ack_receipt=False))

    def subscribe(self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]) -> Consumer:
        """As :meth:`consumer`, with messages acknowledged when they are taken (``auto_ack=True``)."""
        options.setdefault("auto_ack", True)
        return self.consumer(topic, **options)

    def reauthenticate(self) -> None:
        """Starts a new extended authentication (4.12.1)."""
        self._check()
        self._native.reauthenticate().wait()

    def __repr__(self) -> str:
        return f"<penstock.blocking.MqttClient {self._url}>"


class MqttProducer(Producer):
    """Twin of :class:`penstock.mqtt.client.MqttProducer`. Made by :meth:`MqttClient.producer`."""

    _native: _engine.MqttProducer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, native: _engine.MqttProducer) -> None:
        super().__init__(cast("_engine.Producer", native))

    def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
            # The engine waits no longer than the operation timeout: a broker may be gone for good.
            self._native.close().wait()
            # Errors of what nobody awaited.
            self._native.flush().wait()

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

    def send(self, payload: Buffer, key: str | None = None, **fields: Any) -> Any:
        """Publishes a message and waits for its end; gives the reason code."""
        if key is not None:
            raise Unsupported("MQTT has no keys: put it into the topic, or into properties")
        return self._native.send(payload, fields_to_engine(fields) if fields else None).wait()

    def send_nowait(self, payload: Buffer, key: str | None = None, **fields: Any) -> None:
        """Admits a message or raises; :meth:`flush` waits for the answers."""
        if key is not None:
            raise Unsupported("MQTT has no keys: put it into the topic, or into properties")
        self._native.send_nowait(payload, fields_to_engine(fields) if fields else None)

    def submit_many(self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None) -> Any:
        """As :meth:`send_many`, but returns at once what ``wait()`` gives the reason codes. ``keys`` are
        topics, where they differ from the producer's."""
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
    ) -> Any:
        """Publishes each row of a DataFrame and waits; as
        :meth:`penstock.mqtt.client.MqttProducer.send_frame`."""
        return self.submit_frame(
            frame,
            value=value,
            encoding=encoding,
            key=key,
            properties=properties,
            event_time=event_time,
            topic=topic,
        ).wait()

    def submit_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        key: str | None = None,
        properties: str | None = None,
        event_time: str | None = None,
        topic: str | None = None,
    ) -> Any:
        """As :meth:`send_frame`, but returns at once what ``wait()`` gives the reason codes."""
        self._check()
        if key is not None or event_time is not None:
            raise Unsupported("MQTT has neither keys nor event times; topic= names a column or a template")
        rows = frames.outgoing(frame, value=value, encoding=encoding, topic=topic, properties=properties)
        return self.submit_rows(rows)

    def __repr__(self) -> str:
        return f"<penstock.blocking.MqttProducer {self._native.topic}>"
