# Generated from penstock/pulsar/client.py by tools/generate_blocking.py; do not edit.
"""Pulsar, blocking: :class:`PulsarClient`, :class:`PulsarProducer`, :class:`PulsarConsumer`.

Options are checked once, when a handle is opened; after that a call goes straight to the native module and
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from penstock import frames, parse
from penstock._missing import refuse_all
from penstock._native import PulsarMessage
from penstock._typing import NoFields
from penstock.blocking._base import Client, Consumer, Producer
from penstock.blocking._opening import opening
from penstock.errors import InvalidArgument
from penstock.pulsar.positions import reader_name, seek_target

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock._engine import MessageId, MessageIds
    from penstock._typing import Duration, Timestamp, Waiter
    from penstock.broker import Broker
    from penstock.pulsar.options import PulsarClientOptions, PulsarConsumerOptions, PulsarProducerOptions


def connect(url: str | None = None, **options: Unpack[PulsarClientOptions]) -> PulsarClient:
    """Connects to Pulsar; as :func:`penstock.blocking.connect`, with the types of Pulsar.

    Args:
        url: ``pulsar://host:6650[,host:6650]``, ``pulsar+ssl://...`` or ``embedded:[folder]``.
        options: see :class:`penstock.pulsar.PulsarClientOptions`.

    Raises:
        InvalidArgument: an unknown option, a bad value, or a URL of another protocol.
        Unsupported: an option of another protocol.
        ConnectFailed, AuthenticationError: as :func:`penstock.blocking.connect`.
    """
    return opening(url, options, "pulsar")


class PulsarClient(Client):
    """A client of a Pulsar service. Made by :func:`penstock.blocking.connect` with ``pulsar://``, ``pulsar+ssl://`` or
    ``embedded:``."""

    @property
    def broker(self) -> Broker | None:
        """The broker of an ``embedded:`` URL; ``None`` for others."""
        return self._broker

    def producer(self, topic: str, **options: Unpack[PulsarProducerOptions]) -> PulsarProducer:
        """Opens a producer.

        Args:
            topic: ``"orders"`` or ``"persistent://tenant/namespace/orders"``, partitioned or not.
            options: see :class:`penstock.pulsar.PulsarProducerOptions`.

        Raises:
            InvalidArgument: an unknown option or a bad value.
            Unsupported: an option of another protocol.
            ProducerBusy: another producer has the name, or exclusive access.
            TopicNotFound: the topic does not exist and is not created on first use.
        """
        values = self._defaults.resolve("producer", options)
        return self._open_producer(topic, values)

    def _open_producer(self, topic: str, values: dict[str, Any]) -> PulsarProducer:
        self._check()
        return PulsarProducer(self._native.producer(topic, values).wait(), self)

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[PulsarConsumerOptions],
    ) -> PulsarConsumer:
        """Subscribes.

        Args:
            topic: one topic or several.
            subscription: its name, which Pulsar requires. Consumers with the same name share the messages as
                the option ``type`` says.
            options: see :class:`penstock.pulsar.PulsarConsumerOptions`.

        Raises:
            InvalidArgument: an unknown option, a bad value, no topic or no subscription.
            Unsupported: an option of another protocol.
            ConsumerBusy: the subscription has an exclusive consumer.
        """
        values = self._defaults.resolve("consumer", options)
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or not subscription:
            raise InvalidArgument("a consumer needs at least one topic and the name of a subscription")
        return self._open_consumer(topics, subscription, values)

    def _open_consumer(self, topics: list[str], subscription: str, values: dict[str, Any]) -> PulsarConsumer:
        self._check()
        # The options stay as they are: an opening may be awaited again after a failure.
        wanted = {name: value for name, value in values.items() if name != "ack_receipt"}
        native = self._native.consumer(topics, subscription, wanted).wait()
        return PulsarConsumer(native, self, values["ack_receipt"])

    def reader(self, topic: str | Sequence[str], **options: Unpack[PulsarConsumerOptions]) -> PulsarConsumer:
        """Reads a topic without leaving a subscription behind. Nothing needs to be acknowledged.

        Args:
            topic: one topic or several.
            options: as for :meth:`consumer`; ``position`` (default ``"latest"``) is where reading begins.

        Raises:
            InvalidArgument: an unknown option or a bad value.
        """
        options["durable"] = False
        return self.consumer(topic, reader_name(), **options)

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if it is not partitioned."""
        self._check()
        return self._native.partitions(topic).wait()

    def topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the topics of a namespace."""
        self._check()
        return self._native.topics(namespace).wait()


class PulsarProducer(Producer):
    """Sends to one topic. Made by :meth:`PulsarClient.producer`."""

    @property
    def name(self) -> str:
        """Producer name, given or chosen by the broker."""
        return self._native.name

    @property
    def last_sequence_id(self) -> int:
        """Highest sequence id with a receipt; -1 before the first one."""
        return self._native.last_sequence_id

    def send(
        self,
        payload: Buffer,
        key: str | None = None,
        *,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: Timestamp | None = None,
        sequence_id: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        null_value: bool = False,
        **other: Unpack[NoFields],
    ) -> MessageId:
        """Sends a message. The payload is copied before this returns; the result is the message id of the
        broker's receipt. An exception during the wait does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol.
            key: chooses the partition, and the consumer on Key_Shared subscriptions.
            ordering_key: chooses the Key_Shared consumer instead of ``key``.
            properties: user-defined metadata.
            event_time: when the event happened: an aware ``datetime`` or milliseconds since 1970.
            sequence_id: for deduplication; must ascend.
            deliver_at: earliest delivery on Shared subscriptions: an aware ``datetime`` or milliseconds since
                1970.
            deliver_after: the same as a delay in seconds from now.
            null_value: sends a tombstone, which compaction removes together with its key.

        Raises:
            QueueFull: the send window and its overflow queue are full: flush first.
            MemoryLimit: the client's ``memory_limit`` is reached.
            MessageTooLarge: the message is larger than the broker accepts.
            Unsupported: a field of another protocol.
            Closed: after :meth:`close`.
        """
        if other:
            refuse_all("pulsar", other)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        return self._native.send(
            payload, key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value
        ).wait()

    def send_nowait(
        self,
        payload: Buffer,
        key: str | None = None,
        *,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: Timestamp | None = None,
        sequence_id: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        null_value: bool = False,
        **other: Unpack[NoFields],
    ) -> None:
        """As :meth:`send`, without a result: the message is admitted, or this raises. :meth:`flush` waits for
        the receipts and raises what went wrong.

        Raises:
            QueueFull: the send window is full; nothing is queued behind it.
            MemoryLimit, MessageTooLarge, Unsupported, Closed: as :meth:`send`.
        """
        if other:
            refuse_all("pulsar", other)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        self._native.send_nowait(
            payload, key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value
        )

    def send_many(
        self,
        payloads: Sequence[Buffer],
        keys: Sequence[str | None] | None = None,
        **other: Unpack[NoFields],
    ) -> MessageIds:
        """Sends many messages and wakes up once, when the broker has all of them: the fastest way to send
        payloads from Python. No more than the send window are in flight at a time.

        Args:
            payloads: the messages.
            keys: one for each payload, or none.

        Returns:
            The message ids in the order of ``payloads``.

        Raises:
            ValueError: ``keys`` and ``payloads`` differ in length.
            Error: the first error of the messages, with the number of failed ones.
        """
        if other:
            refuse_all("pulsar", other)
        return self.submit_many(payloads, keys).wait()

    def submit_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> Waiter[MessageIds]:
        """As :meth:`send_many`, without waiting: ``wait()`` of the result gives the message ids, and the next
        messages can be prepared meanwhile."""
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
        **other: Unpack[NoFields],
    ) -> MessageIds:
        """Sends each row of a DataFrame as a message, without a Python object per row.

        Args:
            frame: anything with the Arrow PyCapsule interface: pyarrow, polars, pandas 2.2+, duckdb.
            value: column of the payloads (binary or text).
            encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row as an object of all
                columns. Default: ``"raw"`` if ``value`` is given.
            key: column of the keys.
            properties: column of maps, text to text.
            event_time: column of timestamps, or of milliseconds since 1970.

        Returns:
            The message ids in the order of the rows.

        Raises:
            InvalidArgument: no such column, a type that does not fit, or no Arrow interface.
            Unsupported: a column of another protocol.
        """
        if other:
            refuse_all("pulsar", other)
        return self.submit_frame(
            frame, value=value, encoding=encoding, key=key, properties=properties, event_time=event_time
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
        **other: Unpack[NoFields],
    ) -> Waiter[MessageIds]:
        """As :meth:`send_frame`, without waiting: ``wait()`` of the result gives the message ids."""
        if other:
            refuse_all("pulsar", other)
        self._check()
        rows = frames.outgoing(
            frame, value=value, encoding=encoding, key=key, properties=properties, event_time=event_time
        )
        return self.submit_rows(rows)


class PulsarConsumer(Consumer[PulsarMessage]):
    """Receives from a subscription. Made by :meth:`PulsarClient.consumer`.

    Iterating over it is the usual way; an iteration may be left at any time and taken up again. The
    acknowledging verbs take effect at once; with ``ack_receipt=True`` their result is the broker's
    confirmation.
    """

    def __init__(self, native: Any, client: PulsarClient, ack_receipt: bool) -> None:
        super().__init__(native, client)
        self._ack_receipt = ack_receipt

    def ack(self, message: PulsarMessage | MessageId) -> None:
        """Acknowledges a message."""
        if self._ack_receipt:
            return self._native.ack_receipt([message], False).wait()
        self._native.ack(message)

    def ack_many(self, messages: Sequence[PulsarMessage | MessageId]) -> None:
        """Acknowledges each of the messages."""
        if self._ack_receipt:
            return self._native.ack_receipt(messages, False).wait()
        self._native.ack_many(messages)

    def ack_cumulative(self, message: PulsarMessage | MessageId) -> None:
        """Acknowledges a message and all before it in its partition.

        Raises:
            NotAllowed: on Shared and Key_Shared subscriptions.
        """
        if self._ack_receipt:
            return self._native.ack_receipt([message], True).wait()
        self._native.ack_cumulative(message)

    def nack(self, message: PulsarMessage | MessageId, delay: Duration | None = None) -> None:
        """Has a message delivered again.

        Args:
            message: the message or its id.
            delay: seconds until then; the option ``nack_delay`` by default.
        """
        self._native.nack(message, parse.seconds(delay))

    def nack_many(self, messages: Sequence[PulsarMessage | MessageId], delay: Duration | None = None) -> None:
        """As :meth:`nack`, for several messages."""
        self._native.nack_many(messages, parse.seconds(delay))

    def redeliver_unacknowledged(self) -> None:
        """Has every message delivered again that was received and not acknowledged."""
        self._native.redeliver_unacknowledged()

    def seek(self, position: MessageId | Timestamp | str, *, inclusive: bool = False) -> None:
        """Moves the subscription.

        Args:
            position: a message id, a time (aware ``datetime`` or milliseconds since 1970), ``"earliest"`` or
                ``"latest"``.
            inclusive: with a message id: delivers that message as well.

        Raises:
            InvalidArgument: not a position.
        """
        self._check()
        return self._native.seek(seek_target(position), inclusive).wait()

    def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition."""
        self._check()
        return self._native.last_message_ids().wait()

    def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer."""
        self._check()
        self._native.unsubscribe().wait()
        self.close()
