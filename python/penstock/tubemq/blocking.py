"""The blocking face of TubeMQ: the verbs of :mod:`penstock.tubemq.client` without an event loop."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from penstock import frames, parse
from penstock import options as _options
from penstock.blocking import Client, Consumer, Producer
from penstock.errors import InvalidArgument, Unsupported
from penstock.tubemq import PartitionState, Position, partitions_of, refuse, seek_target

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock import _engine
    from penstock._engine import Message, MessageId
    from penstock.options import AnyConsumerOptions, AnyProducerOptions, Duration, Timestamp


class TubeClient(Client):
    """Twin of :class:`penstock.tubemq.client.TubeClient`. Made by :func:`penstock.blocking.connect`."""

    def producer(self, topic: str, **options: Unpack[AnyProducerOptions]) -> Producer:
        """Opens a producer; as :meth:`penstock.tubemq.client.TubeClient.producer`."""
        values = _options.resolve("tubemq.producer", options, self._defaults.producer)
        self._check()
        native = self._native.producer(topic, _options.to_engine("tubemq.producer", values)).wait()
        return self._adopt(TubeProducer(cast("_engine.TubeProducer", native)))

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[AnyConsumerOptions],
    ) -> Consumer:
        """Joins a consumer group; as :meth:`penstock.tubemq.client.TubeClient.consumer`."""
        values = _options.resolve("tubemq.consumer", options, self._defaults.consumer)
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or not subscription:
            raise InvalidArgument("a consumer needs at least one topic and the name of a group")
        self._check()
        engine_options = _options.to_engine("tubemq.consumer", values)
        native = self._native.consumer(topics, subscription, engine_options).wait()
        return self._adopt(TubeConsumer(native, ack_receipt=False))

    def reader(self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]) -> Consumer:
        """TubeMQ has none.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("TubeMQ has no readers: brokers keep the offsets of every group")

    def reauthenticate(self) -> None:
        """TubeMQ has none: each call to a master is signed.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("TubeMQ has no re-authentication: each call to a master is signed")

    def __repr__(self) -> str:
        return f"<penstock.blocking.TubeClient {self._url}>"


class TubeProducer(Producer):
    """Twin of :class:`penstock.tubemq.client.TubeProducer`. Made by :meth:`TubeClient.producer`."""

    _native: _engine.TubeProducer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, native: _engine.TubeProducer) -> None:
        super().__init__(cast("_engine.Producer", native))

    @property
    def name(self) -> str:
        """TubeMQ's producers have none.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("TubeMQ has no producer names")

    @property
    def last_sequence_id(self) -> int:
        """TubeMQ has none.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("TubeMQ has no sequence ids")

    def send(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        payload: Buffer,
        key: str | None = None,
        *,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: Timestamp | None = None,
        **fields: Any,
    ) -> Position:
        """Sends a message and waits until a broker has it; gives its position."""
        if fields:
            refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        return self._native.send(payload, key, properties, message_type, event_time).wait()

    def send_nowait(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        payload: Buffer,
        key: str | None = None,
        *,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: Timestamp | None = None,
        **fields: Any,
    ) -> None:
        """Admits a message or raises; :meth:`flush` waits for the answers."""
        if fields:
            refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        self._native.send_nowait(payload, key, properties, message_type, event_time)

    def submit_many(self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None) -> Any:
        """As :meth:`send_many`, but returns at once what ``wait()`` gives the positions."""
        self._check()
        return self._native.send_many(payloads, keys)

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
        """As :meth:`send_frame`, but returns at once what ``wait()`` gives the positions."""
        self._check()
        if topic is not None:
            raise Unsupported("a producer of TubeMQ has one topic")
        rows = frames.outgoing(
            frame, value=value, encoding=encoding, key=key, properties=properties, event_time=event_time
        )
        return self.submit_rows(rows)

    def __repr__(self) -> str:
        return f"<penstock.blocking.TubeProducer {self._native.topic}>"


class TubeConsumer(Consumer):
    """Twin of :class:`penstock.tubemq.client.TubeConsumer`. Made by :meth:`TubeClient.consumer`."""

    def nack(self, message: Message | MessageId, delay: Duration | None = None) -> None:
        """Wants a message again, and with it what of its pack has not been acknowledged."""
        self.nack_many([message], delay)

    def nack_many(self, messages: Sequence[Message | MessageId], delay: Duration | None = None) -> None:
        """As :meth:`nack`, for several."""
        # What was taken ahead of the same packs will come again.
        packs = {getattr(message, "id", None) for message in messages}
        self._ahead = deque(message for message in self._ahead if message.id not in packs)
        super().nack_many(messages, delay)

    def seek(self, position: MessageId | Position | Timestamp | str, *, inclusive: bool = False) -> None:
        """Moves the group; as :meth:`penstock.tubemq.client.TubeConsumer.seek`."""
        self._check()
        target = seek_target(position)
        self._ahead.clear()
        self._native.seek(target, inclusive).wait()

    def pause(self, partitions: Any = None) -> None:
        """Stops fetching; as :meth:`penstock.tubemq.client.TubeConsumer.pause`."""
        self._check()
        self._native.set_paused(partitions_of(partitions), True)

    def resume(self, partitions: Any = None) -> None:
        """Fetches again; as :meth:`pause`."""
        self._check()
        self._native.set_paused(partitions_of(partitions), False)

    def partitions(self) -> list[PartitionState]:
        """Where each of this consumer's partitions stands, and how far behind it is."""
        self._check()
        return cast("list[PartitionState]", self._native.partitions())

    def __repr__(self) -> str:
        return f"<penstock.blocking.TubeConsumer {self._native.topic} {self._native.subscription!r}>"
