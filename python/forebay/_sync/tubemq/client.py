# Generated from forebay/tubemq/_client.py by tools/generate_blocking.py; do not edit.
"""TubeMQ, blocking: :class:`TubeMqClient`, :class:`TubeMqProducer`, :class:`TubeMqConsumer`."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never

from forebay._core import parse
from forebay._core.native import TubeMqMessage
from forebay._core.options import default, given
from forebay._sync.base import Client, Consumer, Producer
from forebay._sync.open_handle import opening
from forebay.errors import InvalidArgument
from forebay.tubemq._positions import partitions_of, seek_target

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay._core.types import Duration, Pem, Secret, Size, Timestamp, Waiter
    from forebay._engine import FrameRoles
    from forebay.tubemq._positions import PartitionState, Position


def connect(
    url: str | None = None,
    *,
    # options: tubemq.client
    username: str = default(None),
    password: Secret = default(None),
    tls_ca: Pem = default(None),
    connect_timeout: Duration = default(10.0),
    operation_timeout: Duration = default(30.0),
    request_timeout: Duration = default(10.0),
    heartbeat_interval: Duration = default(10.0),
    max_backoff: Duration = default(2.0),
    memory_limit: Size = default(64 << 20),
    receive_buffer: Size = default(16 << 20),
    tls_cert: Pem = default(None),
    retry_first: bool | Duration = default(False),
    tls_key: Pem = default(None),
    tls_pin: str | Sequence[str] = default(None),
    tls_server_name: str = default(None),
    tls_skip_hostname_check: bool = default(False),
    threads: int = default(1),
    # end of options
    **unknown: Never,
) -> TubeMqClient:
    """Connects to a TubeMQ cluster; as :func:`forebay.blocking.connect`, with the types of TubeMQ.

    Args:
        url: ``tubemq://master:8715[,master:8715]`` or ``tubemq+ssl://...``.
        options: see :class:`forebay.tubemq.TubeMqClientOptions`.

    Raises:
        InvalidArgument: an unknown option, a bad value, or a URL of another protocol.
        Unsupported: an option of another protocol.
        ConnectFailed, AuthenticationError: as :func:`forebay.blocking.connect`.
    """
    return opening(url, given(locals(), "url"), "tubemq")


class TubeMqClient(Client):
    """A client of a TubeMQ cluster. Made by :func:`forebay.blocking.connect` with ``tubemq://`` or
    ``tubemq+ssl://``."""

    def producer(
        self,
        topic: str,
        *,
        # options: tubemq.producer
        max_pending: int = default(1000),
        send_timeout: Duration = default(30.0),
        message_type: str = default(None),
        # end of options
        **unknown: Never,
    ) -> TubeMqProducer:
        """Opens a producer.

        Args:
            topic: name of the topic.
            options: see :class:`forebay.tubemq.TubeMqProducerOptions`.

        Raises:
            InvalidArgument: an unknown option or a bad value.
            Unsupported: an option of another protocol.
            InvalidTopic, TopicNotFound: not a topic name, or no broker has the topic.
        """
        options = given(locals(), "self", "topic")
        values = self._defaults.resolve("producer", options)
        name = parse.topic_name(topic)
        return self._open_producer(name, values)

    def _open_producer(self, topic: str, values: dict[str, Any]) -> TubeMqProducer:
        self._check()
        return TubeMqProducer(self._native.producer(topic, values).wait(), self)

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        *,
        # options: tubemq.consumer
        filters: Sequence[str] | Mapping[str, Sequence[str]] = default(None),
        position: Position | Sequence[Position] | str = default("latest"),
        balance: Literal["client", "server"] = default("client"),
        auto_ack: bool = default(False),
        nack_delay: Duration = default(1.0),
        poll_interval: Duration = default(0.1),
        source_count: int = default(None),
        node_id: int = default(None),
        # end of options
        **unknown: Never,
    ) -> TubeMqConsumer:
        """Joins a consumer group.

        Args:
            topic: one topic or several.
            subscription: the group. Its members share the partitions, and must have the same topics and
                filters.
            options: see :class:`forebay.tubemq.TubeMqConsumerOptions`.

        Raises:
            InvalidArgument: an unknown option, a bad value, no topic or no group.
            Unsupported: an option of another protocol.
            TopicNotFound: no broker has a topic.
            ConsumerAssign: the group's members have other topics, filters or balance.
            AuthorizationError: the group may not consume.
        """
        options = given(locals(), "self", "topic", "subscription")
        values = self._defaults.resolve("consumer", options)
        topics, group = parse.topic_names(topic), parse.group_name(subscription)
        if not topics or not group:
            raise InvalidArgument("a consumer needs at least one topic and the name of a group")
        return self._open_consumer(topics, group, values)

    def _open_consumer(self, topics: list[str], subscription: str, values: dict[str, Any]) -> TubeMqConsumer:
        self._check()
        return TubeMqConsumer(self._native.consumer(topics, subscription, values).wait(), self)

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic, on all brokers."""
        self._check()
        return self._native.partitions(topic).wait()


class TubeMqProducer(Producer):
    """Sends to one topic. Made by :meth:`TubeMqClient.producer`."""

    def send(
        self,
        payload: Buffer,
        key: str | None = None,
        *,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: Timestamp | None = None,
    ) -> Position:
        """Sends a message. The payload is copied before this returns; the result is the
        :class:`forebay.tubemq.Position` of the message, when a broker has it. Cancelling the wait does not
        unsend.

        Args:
            payload: bytes, or anything with the buffer protocol; not empty.
            key: messages with the same key go to the same partition.
            properties: attributes; names and values must not contain ``,`` or ``=``.
            message_type: type for the filters of consumers; the producer's by default.
            event_time: when the event happened: an aware ``datetime`` or milliseconds since 1970. Stored to
                the minute.

        Raises:
            QueueFull: the send window and its overflow queue are full: flush first.
            MemoryLimit: the client's ``memory_limit`` is reached.
            MessageTooLarge, InvalidArgument: at once.
            Timeout: no broker answered within ``send_timeout``; the message may have been stored (when
                awaited).
            Closed: after :meth:`close`.
        """
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        return self._native.send(payload, key, properties, message_type, event_time).wait()

    def send_nowait(
        self,
        payload: Buffer,
        key: str | None = None,
        *,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: Timestamp | None = None,
    ) -> None:
        """As :meth:`send`, without a result: the message is admitted, or this raises. :meth:`flush` waits for
        the answers and raises what went wrong.

        Raises:
            QueueFull: the send window is full; nothing is queued behind it.
            MemoryLimit, MessageTooLarge, InvalidArgument, Closed: as :meth:`send`.
        """
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        self._native.send_nowait(payload, key, properties, message_type, event_time)

    def send_many(
        self,
        payloads: Sequence[Buffer],
        keys: Sequence[str | None] | None = None,
    ) -> list[Position]:
        """Sends many messages and wakes up once, when the brokers have all of them: the fastest way to send
        payloads from Python. No more than the send window are in flight at a time.

        Args:
            payloads: the messages.
            keys: one for each payload, or none.

        Returns:
            The positions in the order of ``payloads``.

        Raises:
            ValueError: ``keys`` and ``payloads`` differ in length.
            Error: the first error of the messages, with the number of failed ones.
        """
        return self.submit_many(payloads, keys).wait()

    def submit_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> Waiter[list[Position]]:
        """As :meth:`send_many`, without waiting: ``wait()`` of the result gives the positions, and the next
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
        message_type: str | None = None,
    ) -> list[Position]:
        """Sends each row of a DataFrame as a message, without a Python object per row.

        Args:
            frame: anything with the Arrow PyCapsule interface: pyarrow, polars, pandas 2.2+, duckdb.
            value: column of the payloads (binary or text).
            encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row as an object of all
                columns. Default: ``"raw"`` if ``value`` is given.
            key: column of the keys.
            properties: column of maps, text to text.
            event_time: column of timestamps, or of milliseconds since 1970.
            message_type: column of the types, by which brokers filter.

        Returns:
            The positions in the order of the rows.

        Raises:
            InvalidArgument: no such column, a type that does not fit, or no Arrow interface.
        """
        return self.submit_frame(
            frame,
            value=value,
            encoding=encoding,
            key=key,
            properties=properties,
            event_time=event_time,
            message_type=message_type,
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
        message_type: str | None = None,
    ) -> Waiter[list[Position]]:
        """As :meth:`send_frame`, without waiting: ``wait()`` of the result gives the positions."""
        self._check()
        roles: FrameRoles = {
            "value": value,
            "key": key,
            "properties": properties,
            "event_time": event_time,
            "message_type": message_type,
        }
        rows = self._encode_frame(frame, roles, encoding)
        return self.submit_rows(rows)

    def _carried(self, context: dict[str, str]) -> dict[str, str]:
        # Attributes cannot hold the separators of `tracestate`.
        return {name: value for name, value in context.items() if not {",", "="} & set(name + value)}


class TubeMqConsumer(Consumer[TubeMqMessage]):
    """A member of a consumer group. Made by :meth:`TubeMqClient.consumer`.

    A broker delivers messages in packs, one at a time for each partition. A pack is confirmed when all of its
    messages are acknowledged. A negative acknowledgement has the pack delivered again, without the messages
    that were acknowledged.
    """

    def ack_cumulative(self, message: TubeMqMessage) -> None:
        """Acknowledges a message and every message before it, in its partition."""
        self._native.ack_cumulative(message)

    def nack(self, message: TubeMqMessage, delay: Duration | None = None) -> None:
        """Has a message delivered again, together with the unacknowledged messages of its pack.

        Args:
            message: the message.
            delay: seconds until then; the option ``nack_delay`` by default.
        """
        self._native.nack(message, parse.seconds(delay, "delay"))

    def nack_many(self, messages: Sequence[TubeMqMessage], delay: Duration | None = None) -> None:
        """As :meth:`nack`, for several messages."""
        self._native.nack_many(messages, parse.seconds(delay, "delay"))

    def redeliver_unacknowledged(self) -> None:
        """Has every message delivered again that was received and not acknowledged."""
        self._native.redeliver_unacknowledged()

    def _lane(self, message: TubeMqMessage) -> Hashable:
        return message.key or (message.broker_id, message.partition)

    def _refuse(self, message: TubeMqMessage) -> None:
        self._native.nack(message, None)

    def _hand_back(self, messages: Sequence[TubeMqMessage]) -> None:
        self._native.nack_many(messages, 0.0)

    def seek(self, position: Position | str) -> None:
        """Moves the group.

        Args:
            position: ``"first"`` or ``"latest"`` for all partitions of this consumer, or a
                :class:`forebay.tubemq.Position` for one of them. A position is inclusive.

        Raises:
            InvalidArgument: not a position, or of a partition that this consumer does not hold.
            Unsupported: a time.
        """
        self._check()
        return self._native.seek(seek_target(position)).wait()

    def pause(self, partitions: Any = None) -> None:
        """Stops fetching. Messages already fetched are still delivered, and the partitions stay assigned.

        Args:
            partitions: messages, positions or pairs of broker and partition; by default all, including those
                that are assigned later.

        Raises:
            InvalidArgument: a partition that is not this consumer's.
        """
        self._check()
        self._native.set_paused(partitions_of(partitions), True)

    def resume(self, partitions: Any = None) -> None:
        """Resumes fetching; arguments and errors as :meth:`pause`."""
        self._check()
        self._native.set_paused(partitions_of(partitions), False)

    def partitions(self) -> list[PartitionState]:
        """State of each partition of this consumer, with its lag."""
        self._check()
        return self._native.partitions()
