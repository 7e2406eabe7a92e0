# The native module. What a handle that was made with a loop returns is an ``asyncio.Future``; without a
# loop it is a :class:`Waiter`. The names with a leading underscore exist for type checkers only.

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, final, type_check_only

from typing_extensions import Buffer

from .mqtt import ReasonCode

__all__ = [
    "ArrowBatch",
    "Broker",
    "Client",
    "Consumer",
    "EngineError",
    "FrameRows",
    "Loop",
    "Message",
    "MessageId",
    "MessageIds",
    "MqttProducer",
    "Position",
    "Producer",
    "TubeProducer",
    "Waiter",
    "connect",
    "encode_frame",
    "set_error_factory",
    "set_reason_codes",
    "template_columns",
    "topic_matches",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

@type_check_only
class _Pending(Protocol[_T_co]):
    def __await__(self) -> Generator[Any, Any, _T_co]: ...
    def wait(self, timeout: float | None = None) -> _T_co: ...

@final
class Loop:
    """The way of results to one event loop: made in it, used in it alone."""
    def __new__(cls, loop: asyncio.AbstractEventLoop) -> Self: ...
    def close(self) -> None:
        """Ends it; results that come later are dropped."""

@final
class Waiter(Generic[_T]):
    """The result of an operation that was started without a loop. It can be taken once."""
    def wait(self, timeout: float | None = None) -> _T:
        """Blocks until the result is there; signals are handled meanwhile.

        Args:
            timeout: seconds; no limit by default.

        Raises:
            Timeout: no result in time; it can still be waited for.
            InvalidArgument: it was taken before.
            Error: what the operation failed with.
        """
    def done(self) -> bool:
        """Whether the result is there and was not taken."""

class EngineError(Exception): ...

def set_error_factory(factory: Callable[[str, str, str | None, bool, str | None], BaseException]) -> None:
    """Has errors made by ``factory(code, message, topic, retriable, broker_text)``."""

def set_reason_codes(codes: Callable[[int], Any]) -> None:
    """Has MQTT's reason codes made by ``codes(number)``."""

def topic_matches(filter: str, topic: str) -> bool:
    """Whether a message of ``topic`` is for ``filter``, a filter of MQTT, shared or not.

    Raises:
        InvalidTopic: no filter, or no topic.
    """

def encode_frame(
    frame: object,
    *,
    value: str | None,
    encoding: str,
    key: str | None = None,
    topic: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    first_row: int = 0,
    id: tuple[str, str] | None = None,
) -> FrameRows:
    """Makes messages of the rows of anything with the Arrow PyCapsule interface.

    Args:
        frame: the rows.
        value: the column with the payloads.
        encoding: ``"raw"``: ``value`` as it is; ``"json"``: an object of each row.
        key: the column with the keys; none by default.
        topic: the column with the topics, or a template of them, instead of keys.
        properties: a column of maps or structs, text to text.
        event_time: a column of timestamps, or of milliseconds since 1970, not negative.
        first_row: number of the first row.
        id: a property with an id: its name, and what comes before the row's number.

    Raises:
        InvalidArgument: no such column, a type that does not fit, a negative time.
    """

def template_columns(template: str) -> list[str]:
    """The columns that a template of topics names, in order.

    Raises:
        InvalidArgument: no template.
    """

def connect(url: str, options: Mapping[str, Any], loop: Loop | None) -> _Pending[Client]:
    """Connects to a service; the scheme of ``url`` says of which protocol.

    Args:
        url: one or several addresses.
        options: by name, as :mod:`penstock.options` has checked them; durations are seconds, sizes bytes.
        loop: where results go; ``None``: results are :class:`Waiter`.

    Raises:
        InvalidArgument: an option that does not fit the URL.
        ConnectFailed, AuthenticationError, TlsError, Timeout: when awaited.
    """

@final
class Client:
    """A client of one service of any protocol. Its methods give what ends with the result."""
    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the process forked since."""
    def producer(self, topic: str, options: Mapping[str, Any]) -> _Pending[Producer]:
        """Opens a producer.

        Args:
            topic: its name.
            options: by name, as :mod:`penstock.options` has checked them; durations are seconds, sizes bytes.

        Returns:
            Ends with a :class:`Producer`, :class:`MqttProducer` or :class:`TubeProducer`.

        Raises:
            InvalidTopic, TopicNotFound, AuthorizationError, Timeout: when awaited.
        """
    def consumer(
        self, topics: Sequence[str], subscription: str, options: Mapping[str, Any]
    ) -> _Pending[Consumer]:
        """Opens a consumer.

        Args:
            topics: names, or filters of MQTT.
            subscription: subscription, shared subscription group of MQTT ("" is none) or group of TubeMQ.
            options: as of :meth:`producer`.
        """
    def partitions(self, topic: str) -> _Pending[int]:
        """Number of partitions of a topic; of Pulsar 0 is one that has none."""
    def topics(self, namespace: str) -> _Pending[list[str]]:
        """Names of a namespace's topics.

        Raises:
            Unsupported: not Pulsar's.
        """
    def reauthenticate(self) -> _Pending[None]:
        """Starts a new extended authentication of MQTT 5.0.

        Raises:
            Unsupported: not MQTT's.
        """
    def close(self) -> _Pending[None]:
        """Closes what was made with it, then the connections."""
    def stats(self) -> dict[str, Any]:
        """Counts: ``memory_used_bytes``, and what MQTT's server granted."""

@final
class Producer:
    """A producer of one topic of Pulsar."""
    @property
    def topic(self) -> str:
        """Its full name."""
    @property
    def name(self) -> str:
        """Its name, which the broker may have given."""
    @property
    def last_sequence_id(self) -> int:
        """Of the last message with a receipt; -1: none."""
    @property
    def pending(self) -> int:
        """Messages without an outcome."""
    def send(
        self,
        payload: Buffer,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: int | None = None,
        sequence_id: int | None = None,
        deliver_at: int | None = None,
        null_value: bool = False,
    ) -> Any:
        """Hands a message over; the payload is copied before this returns.

        Args:
            payload: bytes-like.
            key: of the message; decides the partition.
            ordering_key: decides the Key_Shared consumer instead of ``key``.
            properties: text to text.
            event_time: milliseconds since 1970, not negative; none by default.
            sequence_id: for deduplication; the producer's own by default.
            deliver_at: milliseconds since 1970; at once by default.
            null_value: a tombstone; the payload is empty then.

        Returns:
            Ends with its :class:`MessageId`.
            Cancelling it does not unsend.

        Raises:
            QueueFull: the window, and as many parked messages again, have no outcome yet.
            MemoryLimit: the client's ``memory_limit`` bytes are in use.
            MessageTooLarge, InvalidArgument: at once, and nothing is sent.
            Timeout: no answer within ``send_timeout``; it may have been stored (when awaited).
            Closed: after :meth:`close`.
        """
    def send_nowait(
        self,
        payload: Buffer,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: int | None = None,
        sequence_id: int | None = None,
        deliver_at: int | None = None,
        null_value: bool = False,
    ) -> None:
        """As :meth:`send`, without a result: :meth:`flush` tells what failed.

        Raises:
            QueueFull: the window is full; nothing is parked.
        """
    def send_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> _Pending[MessageIds]:
        """Sends payloads as a group, in their order; ends when the broker has all of them.

        Args:
            payloads: any iterable of bytes-like objects; beyond the window the rest is copied and follows.
            keys: one for each payload, or none.

        Raises:
            TypeError: a payload without a buffer, or keys as one text.
            ValueError: ``keys`` and ``payloads`` differ in number.
            Error: the first error of the group, with the number of messages that failed (when awaited).
        """
    def send_rows(self, rows: FrameRows) -> _Pending[MessageIds]:
        """Sends rows of :func:`encode_frame` as a group, as :meth:`send_many`; takes them out of ``rows``."""
    def flush(self) -> _Pending[None]:
        """Ends when everything that was sent before has an outcome.

        Raises:
            Error: the first error of the messages that nobody awaits, with their number (when awaited).
        """
    def close(self) -> _Pending[None]:
        """Waits for the outcomes of what was sent, at most the operation timeout, and ends the producer."""

@final
class MqttProducer:
    """A publisher of MQTT."""
    @property
    def topic(self) -> str:
        """The topic of messages that name none."""
    @property
    def pending(self) -> int:
        """Messages without an outcome."""
    def send(self, payload: Buffer, extras: Mapping[str, Any] | None = None) -> _Pending[ReasonCode]:
        """Hands a message over; the payload is copied before this returns.

        Args:
            payload: bytes-like.
            extras: by name: ``topic``, ``qos`` (0 to 2), ``retain``, ``message_expiry`` (seconds),
                ``content_type``, ``response_topic``, ``correlation_data``, ``is_text``, ``properties``.

        Returns:
            Ends with a reason code, of PUBACK or PUBCOMP; with QoS 0 once it is written.
            Cancelling it does not unsend.

        Raises:
            QueueFull: the window, and as many parked messages again, have no outcome yet.
            MemoryLimit: the client's ``memory_limit`` bytes are in use.
            MessageTooLarge, InvalidArgument: at once, and nothing is sent.
            Timeout: no answer within ``send_timeout``; it may have been stored (when awaited).
            Closed: after :meth:`close`.
        """
    def send_nowait(self, payload: Buffer, extras: Mapping[str, Any] | None = None) -> None:
        """As :meth:`send`, without a result: :meth:`flush` tells what failed.

        Raises:
            QueueFull: the window is full; nothing is parked.
        """
    def send_many(
        self, payloads: Sequence[Buffer], topics: Sequence[str | None] | None = None
    ) -> _Pending[list[ReasonCode]]:
        """Sends payloads as a group, in their order; ends when the broker has all of them.

        Args:
            payloads: any iterable of bytes-like objects; beyond the window the rest is copied and follows.
            topics: one for each payload, or none.

        Raises:
            TypeError: a payload without a buffer, or topics as one text.
            ValueError: ``topics`` and ``payloads`` differ in number.
            Error: the first error of the group, with the number of messages that failed (when awaited).
        """
    def send_rows(self, rows: FrameRows) -> _Pending[list[ReasonCode]]:
        """Sends rows of :func:`encode_frame` as a group, as :meth:`send_many`; takes them out of ``rows``."""
    def flush(self) -> _Pending[None]:
        """Ends when everything that was sent before has an outcome.

        Raises:
            Error: the first error of the messages that nobody awaits, with their number (when awaited).
        """
    def close(self) -> _Pending[None]:
        """Waits for the outcomes of what was sent, at most the operation timeout, and ends the producer."""

@final
class TubeProducer:
    """A producer of one topic of TubeMQ."""
    @property
    def topic(self) -> str:
        """Its name."""
    @property
    def pending(self) -> int:
        """Messages without an outcome."""
    def send(
        self,
        payload: Buffer,
        key: str | None = None,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: int | None = None,
    ) -> Any:
        """Hands a message over; the payload is copied before this returns.

        Args:
            payload: bytes-like, not empty.
            key: messages with the same key go to the same partition; without one they take turns.
            properties: text to text, with neither ``,`` nor ``=``.
            message_type: for filters, 1 to 256 bytes with neither ``,`` nor ``=``; the producer's by default.
            event_time: milliseconds since 1970, up to the year 9999, kept to the minute; with a type now by
                default, without one none.

        Returns:
            Ends with its :class:`Position`, when a broker has it.
            Cancelling it does not unsend.

        Raises:
            QueueFull: the window, and as many parked messages again, have no outcome yet.
            MemoryLimit: the client's ``memory_limit`` bytes are in use.
            MessageTooLarge, InvalidArgument: at once, and nothing is sent.
            Timeout: no answer within ``send_timeout``; it may have been stored (when awaited).
            Closed: after :meth:`close`.
        """
    def send_nowait(
        self,
        payload: Buffer,
        key: str | None = None,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: int | None = None,
    ) -> None:
        """As :meth:`send`, without a result: :meth:`flush` tells what failed.

        Raises:
            QueueFull: the window is full; nothing is parked.
        """
    def send_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> _Pending[list[Position]]:
        """Sends payloads as a group, in their order; ends when the broker has all of them.

        Args:
            payloads: any iterable of bytes-like objects; beyond the window the rest is copied and follows.
            keys: one for each payload, or none.

        Raises:
            TypeError: a payload without a buffer, or keys as one text.
            ValueError: ``keys`` and ``payloads`` differ in number.
            Error: the first error of the group, with the number of messages that failed (when awaited).
        """
    def send_rows(self, rows: FrameRows) -> _Pending[list[Position]]:
        """Sends rows of :func:`encode_frame` as a group, as :meth:`send_many`; takes them out of ``rows``."""
    def flush(self) -> _Pending[None]:
        """Ends when everything that was sent before has an outcome.

        Raises:
            Error: the first error of the messages that nobody awaits, with their number (when awaited).
        """
    def close(self) -> _Pending[None]:
        """Waits for the outcomes of what was sent, at most the operation timeout, and ends the producer."""

@final
class Consumer:
    """A consumer of any protocol. What a protocol cannot do raises Unsupported."""
    @property
    def topic(self) -> str:
        """The topics, joined by commas."""
    @property
    def subscription(self) -> str:
        """Subscription or group."""
    def __aiter__(self) -> Consumer: ...
    def __anext__(self) -> _Pending[Message]: ...
    def receive(self, timeout: float | None) -> _Pending[Message]:
        """The next message.

        Args:
            timeout: seconds; ``None`` is no limit.

        Raises:
            Timeout: nothing came in time; nothing is lost (when awaited).
            Closed: after :meth:`close` (when awaited).
        """
    def receive_many(self, max: int, timeout: float | None) -> _Pending[list[Message]]:
        """What is there, up to ``max`` messages; waits for the first of them.

        Args:
            max: most messages.
            timeout: seconds, then the list is empty; ``None`` is no limit.
        """
    def ack(self, message: Message | MessageId) -> None:
        """Acknowledges a message; returns at once."""
    def ack_many(self, messages: Sequence[Message | MessageId]) -> None:
        """Acknowledges each of them; returns at once."""
    def ack_receipt(self, messages: Sequence[Message | MessageId], cumulative: bool) -> _Pending[None]:
        """Acknowledges, and ends when the broker has answered.

        Args:
            messages: which.
            cumulative: with all before them in their partition.
        """
    def ack_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledges a message and all before it in its partition; returns at once.

        Raises:
            NotAllowed: Shared and Key_Shared subscriptions.
        """
    def nack(self, message: Message | MessageId, delay: float | None) -> None:
        """Wants a message again; TubeMQ gives the whole pack without what was acknowledged.

        Args:
            message: which.
            delay: seconds; the consumer's ``nack_delay`` by default.
        """
    def nack_many(self, messages: Sequence[Message | MessageId], delay: float | None) -> None:
        """As :meth:`nack`, for several."""
    def redeliver_unacknowledged(self) -> None:
        """Wants all again that was received and not acknowledged."""
    def seek(self, position: MessageId | Position | int, inclusive: bool) -> _Pending[None]:
        """Moves the subscription.

        Args:
            position: a place, or milliseconds since 1970, where the protocol has either.
            inclusive: of Pulsar: gives the message of the id again, too.

        Raises:
            InvalidArgument: a position of a partition that is not held here.
            Unsupported: what the protocol cannot do.
            Timeout: not done within the operation timeout (when awaited).
        """
    def set_paused(self, partitions: Sequence[tuple[int, int]] | None, paused: bool) -> None:
        """Stops fetching from partitions of TubeMQ, or goes on.

        Args:
            partitions: pairs of broker and partition; ``None``: all, those to come too.
            paused: which of both.

        Raises:
            InvalidArgument: one that is not this consumer's.
        """
    def partitions(self) -> list[dict[str, Any]]:
        """What is known of each partition of TubeMQ: ``topic``, ``broker_id``, ``partition``, ``state``,
        ``offset`` and ``max_offset`` (of the index), ``lag`` (messages of the store, at most), ``lag_bytes``.
        What is not known yet is ``None``."""
    def unsubscribe(self) -> _Pending[None]:
        """Deletes the subscription."""
    def close(self) -> _Pending[None]:
        """Hands over the acknowledgements and ends; what is not acknowledged goes to others."""
    def last_message_ids(self) -> _Pending[list[MessageId]]:
        """Id of the last message of each partition of Pulsar."""
    def read_arrow(self, max_rows: int, timeout: float | None) -> _Pending[ArrowBatch]:
        """Messages as columns, without a Python object for each.

        Args:
            max_rows: ends when there are so many ...
            timeout: ... or after so many seconds, with those that came; ``None`` is no limit.
        """

@final
class FrameRows:
    """Rows of a frame as messages, made by :func:`encode_frame`; a producer takes them once."""
    def __len__(self) -> int: ...
    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads, before compression."""

@final
class ArrowBatch:
    """Received messages as columns, by the Arrow PyCapsule interface."""
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Message:
    """A message that was received, of any protocol. What a protocol does not have is ``None`` or empty, or
    raises Unsupported."""
    @property
    def data(self) -> bytes:
        """The payload; a copy for each access."""
    @property
    def key(self) -> str | None: ...
    @property
    def ordering_key(self) -> bytes | None: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def id(self) -> Any:
        """Its :class:`MessageId` or :class:`Position`."""
    @property
    def topic(self) -> str: ...
    @property
    def publish_time(self) -> int:
        """When it was sent, in milliseconds since 1970; of Pulsar."""
    @property
    def event_time(self) -> int | None:
        """When it happened, in milliseconds since 1970; of TubeMQ to the minute."""
    @property
    def broker_time(self) -> int | None:
        """When the broker took it, in milliseconds since 1970, where brokers tell."""
    @property
    def redelivery_count(self) -> int:
        """How often it was given before."""
    @property
    def sequence_id(self) -> int: ...
    @property
    def producer_name(self) -> str: ...
    @property
    def is_null(self) -> bool: ...
    @property
    def index(self) -> int | None: ...
    @property
    def schema_version(self) -> bytes | None: ...
    @property
    def user_properties(self) -> list[tuple[str, str]]: ...
    @property
    def received_time(self) -> int | None:
        """When it came, in milliseconds since 1970; of MQTT."""
    @property
    def qos(self) -> int | None: ...
    @property
    def packet_id(self) -> int | None: ...
    @property
    def retain(self) -> bool: ...
    @property
    def dup(self) -> bool: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def response_topic(self) -> str | None: ...
    @property
    def correlation_data(self) -> bytes | None: ...
    @property
    def is_text(self) -> bool: ...
    @property
    def message_expiry(self) -> int | None:
        """Seconds that are left; of MQTT."""
    @property
    def subscription_ids(self) -> list[int]: ...
    @property
    def message_type(self) -> str | None:
        """What filters of TubeMQ name."""
    @property
    def broker_id(self) -> int | None:
        """Number of the broker; of TubeMQ."""
    @property
    def partition(self) -> int | None:
        """Number of the partition."""
    @property
    def offset(self) -> int | None:
        """Where its pack begins in the index of the store; of TubeMQ."""
    @property
    def message_id(self) -> int | None:
        """Number that the broker gave; of TubeMQ, not unique over brokers."""

@final
class MessageId:
    """Where a message is, of Pulsar. Ordered, hashable, picklable; ``str`` and :meth:`parse` are inverse."""

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]
    @property
    def ledger(self) -> int: ...
    @property
    def entry(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def batch_index(self) -> int:
        """Its index in its entry; -1: the entry is no batch."""
    @property
    def batch_size(self) -> int: ...
    @staticmethod
    def parse(text: str) -> MessageId:
        """From ``str``.

        Raises:
            InvalidArgument: no id.
        """
    @staticmethod
    def from_bytes(data: bytes) -> MessageId:
        """From :meth:`to_bytes` or the official clients' ``serialize``.

        Raises:
            InvalidArgument: no id.
        """
    def to_bytes(self) -> bytes: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __lt__(self, value: MessageId, /) -> bool: ...
    def __le__(self, value: MessageId, /) -> bool: ...
    def __gt__(self, value: MessageId, /) -> bool: ...
    def __ge__(self, value: MessageId, /) -> bool: ...

@final
class Position:
    """Where a message is, of TubeMQ. Equality, order and hash go by broker, partition and offset; pickling
    keeps no more. ``str`` and :meth:`parse` are inverse.

    Args:
        broker_id: number of the broker.
        partition: number of the partition: 10,000 times that of the store, plus its own.
        offset: place in the store's index, 28 bytes a message; of a received message, where its pack begins.

    Raises:
        OverflowError: a negative ``broker_id`` or ``partition``, or one beyond 32 bits.
    """
    def __new__(cls, broker_id: int, partition: int, offset: int) -> Self: ...
    @property
    def broker_id(self) -> int:
        """Number of the broker."""
    @property
    def partition(self) -> int:
        """Number of the partition."""
    @property
    def offset(self) -> int:
        """Place in the index of the store."""
    @property
    def time(self) -> int | None:
        """When the broker took it, in milliseconds since 1970; ``None`` unless a send gave the position."""
    @property
    def message_id(self) -> int | None:
        """Number that the broker gave; ``None``: none was told."""
    @staticmethod
    def parse(text: str) -> Position:
        """From ``broker:partition:offset``.

        Raises:
            InvalidArgument: no position.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __lt__(self, value: Position, /) -> bool: ...
    def __le__(self, value: Position, /) -> bool: ...
    def __gt__(self, value: Position, /) -> bool: ...
    def __ge__(self, value: Position, /) -> bool: ...

@final
class MessageIds(Sequence[MessageId]):
    """Ids of messages sent together, in their order; made one by one when they are looked at."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...

@final
class Broker:
    """The embedded broker."""
    @property
    def url(self) -> str: ...
    @property
    def mqtt_url(self) -> str | None: ...
    @property
    def mqtt_ws_url(self) -> str | None: ...
    @property
    def tubemq_url(self) -> str | None: ...
    @staticmethod
    def start(options: Mapping[str, Any]) -> Broker:
        """Starts it.

        Args:
            options: by name, as :mod:`penstock.options` has checked them.

        Raises:
            IoError: a port that is taken, or data that cannot be opened.
        """
    def stop(self, timeout: float) -> None:
        """Ends it, within ``timeout`` seconds."""
    def status(self) -> dict[str, Any]:
        """What it serves and how much there is of it."""
    def create_topic(self, name: str, partitions: int) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> list[str]: ...
    def topic_stats(self, name: str) -> dict[str, Any]:
        """What is known of a topic.

        Raises:
            TopicNotFound: there is none.
        """
