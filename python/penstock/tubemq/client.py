"""The asyncio face of TubeMQ: the verbs of :mod:`penstock.client`, and what only TubeMQ has."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from penstock import frames, parse
from penstock import options as _options
from penstock.client import Client, Consumer, Opening, Producer
from penstock.errors import InvalidArgument, Unsupported
from penstock.tubemq import PartitionState, Position, partitions_of, refuse, seek_target

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock import _engine
    from penstock._engine import MessageId
    from penstock.options import AnyConsumerOptions, AnyProducerOptions, Timestamp


class TubeClient(Client):
    """A client of a TubeMQ cluster. Made by :func:`penstock.connect` with ``tubemq://`` or ``tubemq+ssl://``."""

    def producer(self, topic: str, **options: Unpack[AnyProducerOptions]) -> Opening[Producer]:
        """Opens a producer.

        Args:
            topic: its name.
            options: see :class:`penstock.options.TubeProducerOptions`.

        Raises:
            InvalidArgument: an unknown option or a bad value, at once.
            InvalidTopic, TopicNotFound: no name of a topic, or one that no broker has (when awaited).
        """
        values = _options.resolve("tubemq.producer", options, self._defaults.producer)

        async def start() -> Producer:
            self._check()
            native = await self._native.producer(topic, _options.to_engine("tubemq.producer", values))
            return self._adopt(TubeProducer(cast("_engine.TubeProducer", native), self._loop))

        return Opening(start)

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[AnyConsumerOptions],
    ) -> Opening[Consumer]:
        """Joins a consumer group.

        Args:
            topic: one topic or several.
            subscription: the group. Its members share the partitions, and have the same topics and filters.
            options: see :class:`penstock.options.TubeConsumerOptions`.

        Raises:
            InvalidArgument: an unknown option or a bad value, at once.
            TopicNotFound: no broker has a topic (when awaited).
            ConsumerAssign: the group's members have other topics, filters or balance (when awaited).
            AuthorizationError: the group may not consume (when awaited).
        """
        values = _options.resolve("tubemq.consumer", options, self._defaults.consumer)
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or not subscription:
            raise InvalidArgument("a consumer needs at least one topic and the name of a group")

        async def start() -> Consumer:
            self._check()
            engine_options = _options.to_engine("tubemq.consumer", values)
            native = await self._native.consumer(topics, subscription, engine_options)
            return self._adopt(TubeConsumer(native, self._loop, ack_receipt=False))

        return Opening(start)

    def reader(self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]) -> Opening[Consumer]:
        """TubeMQ has none.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("TubeMQ has no readers: brokers keep the offsets of every group")

    async def reauthenticate(self) -> None:
        """TubeMQ has none: each call to a master is signed.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("TubeMQ has no re-authentication: each call to a master is signed")

    def __repr__(self) -> str:
        return f"<penstock.TubeClient {self._url}>"


class TubeProducer(Producer):
    """Sends to one topic. Made by :meth:`TubeClient.producer`."""

    _native: _engine.TubeProducer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, native: _engine.TubeProducer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(cast("_engine.Producer", native), loop)

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
    ) -> asyncio.Future[Position]:
        """Sends a message. It is taken at once; the future ends with its :class:`penstock.tubemq.Position`
        when a broker has it. Cancelling the future does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol, not empty; copied once.
            key: messages with the same key go to the same partition.
            properties: attributes, text to text; names and values have neither ``,`` nor ``=``.
            message_type: what filters of consumers name; the producer's by default.
            event_time: when it happened; kept to the minute.

        Raises:
            QueueFull: the window and the parking lot behind it are full: await some of the futures first.
            MessageTooLarge, InvalidArgument: at once.
            Timeout: no broker answered within ``send_timeout``; it may have been stored (when awaited).
            Closed: after :meth:`close`.
        """
        if asyncio._get_running_loop() is not self._loop:
            self._check()
        if fields:
            refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        return self._native.send(payload, key, properties, message_type, event_time)

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
        """As :meth:`send`, without a future: the message is admitted or this raises. :meth:`flush` waits for
        the answers and raises what went wrong."""
        if fields:
            refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        self._native.send_nowait(payload, key, properties, message_type, event_time)

    def send_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> Awaitable[Any]:
        """Sends many messages with one wake-up at the end; gives their positions in the same order.

        Args:
            payloads: the messages.
            keys: as many keys, or none.
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
        """Sends each row of a DataFrame as a message; as :meth:`penstock.Producer.send_frame`. Gives the
        positions in the order of the rows."""
        self._check()
        if topic is not None:
            raise Unsupported("a producer of TubeMQ has one topic")
        rows = frames.outgoing(
            frame, value=value, encoding=encoding, key=key, properties=properties, event_time=event_time
        )
        return self._native.send_rows(rows)

    def __repr__(self) -> str:
        return f"<penstock.TubeProducer {self._native.topic}>"


class TubeConsumer(Consumer):
    """A member of a consumer group. Made by :meth:`TubeClient.consumer`.

    A broker gives messages in packs, one at a time for each partition, and hears that a pack was consumed
    when all of it is acknowledged. A negative acknowledgement has the pack given again, without what was
    acknowledged.
    """

    def seek(
        self, position: MessageId | Position | Timestamp | str, *, inclusive: bool = False
    ) -> Awaitable[None]:
        """Moves the group.

        Args:
            position: ``"first"`` or ``"latest"`` for all of this consumer's partitions, or a
                :class:`penstock.tubemq.Position` for its own.
            inclusive: of Pulsar; a position is always inclusive.

        Raises:
            InvalidArgument: not a position, or of a partition that is not held here.
            Unsupported: a time.
        """
        self._check()
        return self._native.seek(seek_target(position), inclusive)

    def pause(self, partitions: Any = None) -> None:
        """Stops fetching. What has been fetched is still given, and the partitions stay held.

        Args:
            partitions: messages, positions or pairs of broker and partition; all by default, also those to
                come.

        Raises:
            InvalidArgument: one that is not this consumer's.
        """
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
        return f"<penstock.TubeConsumer {self._native.topic} {self._native.subscription!r}>"
