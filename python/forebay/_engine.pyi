# The native module. An operation of a handle that was made with a loop returns an ``asyncio.Future``;
# without a loop it returns a :class:`Waiter`. Names with a leading underscore exist for type checkers only.

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from os import PathLike
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    Required,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    final,
    type_check_only,
)

from typing_extensions import Buffer
from typing_extensions import TypeVar as TypeVarWithDefault

from .mqtt import ReasonCode
from .pulsar import OutgoingMessage

__all__ = [
    "ArrowBatch",
    "Broker",
    "EngineError",
    "FrameRows",
    "Loop",
    "MessageId",
    "MessageIds",
    "MqttClient",
    "MqttConsumer",
    "MqttMessage",
    "MqttProducer",
    "OPT_LEVEL",
    "Position",
    "PulsarClient",
    "PulsarConsumer",
    "PulsarMessage",
    "PulsarProducer",
    "PulsarRange",
    "PulsarSchema",
    "PulsarValues",
    "TubeMqClient",
    "TubeMqConsumer",
    "TubeMqMessage",
    "TubeMqProducer",
    "TubeMqRange",
    "TubeMqTail",
    "Waiter",
    "backup_store",
    "check_store",
    "compact_store",
    "avro_definition",
    "encode_frame",
    "encode_pulsar_frame",
    "hash_password",
    "is_secret",
    "is_signed_with",
    "option_specs",
    "restore_store",
    "set_error_factory",
    "set_missing_factory",
    "set_reason_codes",
    "set_seconds_parser",
    "log_records_dropped",
    "template_columns",
    "topic_matches",
]

# The level at which the engine is optimised: "1", "3".
OPT_LEVEL: Final[str]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_Client = TypeVar("_Client")
_Message = TypeVar("_Message")
_Target_contra = TypeVar("_Target_contra", contravariant=True)
_Receipts_co = TypeVar("_Receipts_co", covariant=True)
_Value_co = TypeVarWithDefault("_Value_co", covariant=True, default=Any)

@type_check_only
class _Pending(Protocol[_T_co]):
    """A future of an event loop, or a :class:`Waiter`."""
    def __await__(self) -> Generator[Any, Any, _T_co]: ...
    def wait(self, timeout: float | None = None) -> _T_co: ...

@final
class Loop:
    """The path of results to one event loop. Created on that loop and used by it alone."""
    def __new__(cls, loop: asyncio.AbstractEventLoop) -> Self: ...
    def close(self) -> None:
        """Closes the path. Results that arrive later are dropped."""

@final
class Waiter(Generic[_T]):
    """The result of an operation that was started without a loop. It can be taken once."""
    def wait(self, timeout: float | None = None) -> _T:
        """Blocks until the result arrives; signals are handled meanwhile.

        Args:
            timeout: seconds; no limit by default.

        Raises:
            Timeout: no result in time; it can still be waited for.
            InvalidArgument: the result has been taken already.
            Error: the operation's own error.
        """
    def done(self) -> bool:
        """Whether the result has arrived and has not been taken."""

class EngineError(Exception): ...

def set_error_factory(factory: Callable[[str, str, str | None, bool, str | None], BaseException]) -> None:
    """Registers the function that makes an exception from ``(code, message, topic, retriable,
    broker_text)``."""

def set_missing_factory(factory: Callable[[str, str], BaseException]) -> None:
    """Registers the function that makes an exception from ``(class_name, attribute)``, for an attribute that
    a message class does not have."""

def set_seconds_parser(parser: Callable[[Any], float | None]) -> None:
    """Registers the function that turns what users give as a duration into seconds."""

def set_reason_codes(codes: Callable[[int], Any]) -> None:
    """Registers the function that makes MQTT's reason codes from their numbers."""

def topic_matches(filter: str, topic: str) -> bool:
    """Whether messages of ``topic`` match ``filter``, a topic filter of MQTT, shared or not.

    Raises:
        InvalidTopic: not a valid filter, or not a valid topic.
    """

def backup_store(path: str | PathLike[str], to: str | PathLike[str]) -> None:
    """Copies a store of the embedded broker into a new file. A broker may use it meanwhile.

    Raises:
        InvalidArgument: the folder has no store, or the file exists.
    """

def check_store(path: str | PathLike[str]) -> tuple[int, list[str]]:
    """Reads a whole store of the embedded broker while no broker uses it.

    Returns:
        The number of entries that can be read, and a line for everything that is damaged.

    Raises:
        InvalidArgument: the folder has no store.
        IoError: a broker uses it.
    """

def hash_password(password: bytes) -> str:
    """Hashes a password by Argon2id with a new salt, which takes 19 MiB and some ten milliseconds.

    Args:
        password: the password.

    Returns:
        The hash as it is in a file of MQTT users: ``$argon2id$v=19$m=19456,t=2,p=1$salt$hash``.

    Raises:
        IoError: the system has not enough memory, or no random numbers.
    """

def is_secret(key: bytes) -> bool:
    """Whether the option ``token_key`` reads a key as a secret, which can sign tokens.

    Args:
        key: a secret, public keys in PEM or DER, or JSON Web Keys, as the option ``token_key`` takes them.

    Raises:
        InvalidArgument: the key contains a public key in a form that cannot be read.
    """

def is_signed_with(key: bytes, token: bytes) -> bool:
    """Whether a JSON Web Token has the signature of a key, whatever its claims say.

    Args:
        key: a secret, public keys in PEM or DER, or JSON Web Keys, as the option ``token_key`` takes them.
        token: the token.

    Raises:
        InvalidArgument: the key is malformed.
    """

def restore_store(source: str | PathLike[str], path: str | PathLike[str]) -> int:
    """Makes a store of the embedded broker of a backup, which is checked first.

    Returns:
        The number of entries.

    Raises:
        InvalidArgument: the folder has a store, or the file is no backup.
        IoError: a broker uses it.
        PersistenceError: the backup is damaged; the folder has no store then.
    """

def compact_store(path: str | PathLike[str]) -> tuple[int, int]:
    """Removes the free space from a store of the embedded broker while no broker uses it.

    Returns:
        The bytes of its file before and after.

    Raises:
        InvalidArgument: the folder has no store.
        IoError: a broker uses it.
        PersistenceError: there is not room for a copy, or the store is damaged.
    """

def option_specs() -> dict[str, list[dict[str, Any]]]:
    """The declarations of all options by table, from which ``tools/generate_options.py`` writes the Python
    tables."""

def avro_definition(schema: object, name: str) -> str:
    """The Avro definition of rows with the columns of an object with ``__arrow_c_schema__``.

    Raises:
        SchemaError: a column has a type or a name without a counterpart in Avro.
    """

@type_check_only
class FrameRoles(TypedDict, total=False):
    """The roles of the columns of a frame."""

    value: Required[str | None]
    """The payloads."""
    key: str | None
    """The keys."""
    ordering_key: str | None
    """The keys of Key_Shared subscriptions."""
    topic: str | None
    """The topics, or a template of them."""
    properties: str | None
    """Maps or structs, text to text."""
    event_time: str | None
    """Timestamps, or milliseconds since 1970, not negative."""
    deliver_at: str | None
    """The same, of the earliest delivery."""
    message_type: str | None
    """The types of messages, text."""
    qos_column: str | None
    """Whole numbers from 0 to 2."""
    retain_column: str | None
    """Booleans."""
    first_row: int
    """Number of the first row."""
    id: tuple[str, str] | None
    """A property with an id for each row: its name, and the text before the row's number."""
    sequence: int | None
    """Sequence id of the row with number 0; the others follow it."""
    leaves_out: bool
    """Whether a row that cannot be a message is left out (:meth:`FrameRows.bad_rows`), instead of being an
    error for all."""

def encode_frame(frame: object, roles: FrameRoles, *, encoding: str) -> FrameRows:
    """Makes messages of the rows of an object with the Arrow PyCapsule interface.

    Args:
        frame: the rows.
        roles: the roles of its columns.
        encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row as a JSON object.

    Raises:
        InvalidArgument: a missing column, a type that does not fit, or a negative time.
    """

def encode_pulsar_frame(
    frame: object, roles: FrameRoles, *, schema: PulsarSchema | str | None, encoding: str | None = None
) -> FrameRows:
    """As :meth:`PulsarProducer.encode_frame`, for producers without a schema of their own."""

def log_records_dropped() -> int:
    """Number of log records of this process that were dropped because handlers were too slow."""

def template_columns(template: str) -> list[str]:
    """The columns that a template of topics names, in order.

    Raises:
        InvalidArgument: not a valid template.
    """

# ---------------------------------------------------------------------------- shared by the protocols

@type_check_only
class _ClientOf(Generic[_Client]):
    @staticmethod
    def connect(url: str, options: Mapping[str, Any], loop: Loop | None) -> _Pending[_Client]:
        """Connects to a service.

        Args:
            url: one or several addresses.
            options: by name, as the protocol's table has checked them; durations are seconds, sizes bytes.
            loop: the path of results; ``None`` makes results :class:`Waiter` objects.

        Raises:
            InvalidArgument: an option that does not fit the URL.
            ConnectFailed, AuthenticationError, TlsError, Timeout: when awaited.
        """
    @property
    def connected(self) -> bool:
        """Whether a broker has accepted a connection that is still up."""
    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the process has forked since."""
    def stats(self) -> dict[str, Any]:
        """Counters: ``memory_used_bytes``, and those of the protocol."""
    def event(self, number: int) -> tuple[int, dict[str, Any]] | None:
        """The first connection event that is kept from ``number`` on, with its number."""
    def event_due(self, number: int) -> _Pending[None]:
        """Waits until there is a connection event from ``number`` on, or there will be none."""
    @property
    def events_ended(self) -> bool:
        """Whether there will be no more connection events."""
    def close(self) -> _Pending[None]:
        """Closes the producers and consumers of this client, then its connections."""

@type_check_only
class _ProducerOf(Generic[_Receipts_co]):
    @property
    def topic(self) -> str:
        """The full name of the topic."""
    @property
    def pending(self) -> int:
        """Number of messages without an outcome."""
    def send_rows(self, rows: FrameRows) -> _Pending[_Receipts_co]:
        """Sends the rows of :func:`encode_frame` as a group, like ``send_many``, and takes them out of
        ``rows``."""
    @property
    def connected(self) -> bool:
        """Whether it can reach its brokers now."""
    def flush(self, timeout: float | None = None) -> _Pending[None]:
        """Waits for the outcomes of everything sent before, at most ``timeout`` seconds.

        Raises:
            Timeout: after that (when awaited).
            Error: the first error of the messages sent with ``send_nowait``, with their number (when
                awaited).
        """
    def stats(self) -> dict[str, Any]:
        """Counters of what was sent, and ``messages_pending``."""
    def drain(self) -> _Pending[None]:
        """As :meth:`flush`, before :meth:`close`: gives up when no outcome comes any more.

        Raises:
            Timeout: no outcome came within the operation timeout (when awaited).
        """
    def close(self, wait: bool = True) -> _Pending[None]:
        """Closes the producer; with ``wait``, waits for the outcomes first, as long as some come."""

@type_check_only
class _ConsumerOf(Generic[_Message, _Target_contra]):
    @property
    def topic(self) -> str:
        """The topics, joined by commas."""
    @property
    def subscription(self) -> str:
        """The subscription or group."""
    @property
    def connected(self) -> bool:
        """Whether its brokers deliver to it now."""
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> _Pending[_Message]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _Message:
        """The next message, for a consumer without a loop. Blocks until one arrives; signals are handled
        meanwhile.

        Raises:
            NotAllowed: the consumer belongs to an event loop.
            Closed: after :meth:`close`.
        """
    def receive_blocking(self, given: object, /) -> _Message:
        """As :meth:`__next__`, with a limit: seconds, or what :func:`set_seconds_parser` reads; ``None`` is
        no limit.

        Raises:
            Timeout: no message in time; nothing is lost.
        """
    def receive(self, timeout: float | None) -> _Pending[_Message]:
        """The next message.

        Args:
            timeout: seconds; ``None`` is no limit.

        Raises:
            Timeout: no message in time; nothing is lost (when awaited).
            Closed: after :meth:`close` (when awaited).
        """
    def receive_many(self, max: int, timeout: float | None) -> _Pending[list[_Message]]:
        """The messages that have arrived, up to ``max``; waits for the first one.

        Args:
            max: maximum number of messages.
            timeout: seconds until the list is returned empty; ``None`` is no limit.
        """
    def receive_batch(
        self, max: int, max_bytes: int | None, timeout: float | None
    ) -> _Pending[list[_Message]]:
        """Messages until a limit is reached.

        Args:
            max: completes with this many messages ...
            max_bytes: ... or before their payloads have more bytes, which one message alone may; ``None`` is
                no limit ...
            timeout: ... or after this many seconds, with the messages so far; ``None`` is no limit.
        """
    def read_arrow(self, max_rows: int, timeout: float | None) -> _Pending[ArrowBatch]:
        """Messages as columns, without a Python object for each.

        Args:
            max_rows: completes with this many rows ...
            timeout: ... or after this many seconds, with the rows so far; ``None`` is no limit.
        """
    def ack(self, message: _Target_contra) -> None:
        """Acknowledges a message; returns at once."""
    def stats(self) -> dict[str, Any]:
        """Counters of what was received, and those of the protocol."""
    def ack_many(self, messages: Iterable[_Target_contra]) -> None:
        """Acknowledges each of the messages; returns at once."""
    def unsubscribe(self) -> _Pending[None]:
        """Deletes the subscription and closes the consumer."""
    def close(self) -> _Pending[None]:
        """Hands over the acknowledgements and closes. Messages without one are delivered to other
        consumers."""

@type_check_only
class _Redelivering(_ConsumerOf[_Message, _Target_contra]):
    def ack_cumulative(self, message: _Target_contra) -> None:
        """Acknowledges a message and all before it in its partition; returns at once.

        Raises:
            NotAllowed: the subscription is Shared or Key_Shared (Pulsar).
        """
    def nack(self, message: _Target_contra, delay: float | None) -> None:
        """Asks for a message again. TubeMQ redelivers the whole pack, without the messages that were
        acknowledged.

        Args:
            message: the message.
            delay: seconds; the consumer's ``nack_delay`` by default.
        """
    def nack_many(self, messages: Iterable[_Target_contra], delay: float | None) -> None:
        """As :meth:`nack`, for several messages."""
    def redeliver_unacknowledged(self) -> None:
        """Asks again for everything that was received and not acknowledged."""

@type_check_only
class _AnyMessage:
    @property
    def data(self) -> bytes:
        """The payload; copied on each access."""
    @property
    def topic(self) -> str: ...
    @property
    def properties(self) -> dict[str, str]: ...

# ---------------------------------------------------------------------------- Pulsar

@final
class PulsarClient(_ClientOf[PulsarClient]):
    """A client of a Pulsar cluster."""
    def producer(self, topic: str, options: Mapping[str, Any]) -> _Pending[PulsarProducer]:
        """Opens a producer.

        Raises:
            InvalidTopic, TopicNotFound, AuthorizationError, Timeout: when awaited.
        """
    def consumer(
        self, topics: Sequence[str], subscription: str, options: Mapping[str, Any]
    ) -> _Pending[PulsarConsumer]:
        """Opens a consumer."""
    def pattern_consumer(
        self, pattern: str, flags: str, subscription: str, options: Mapping[str, Any]
    ) -> _Pending[PulsarConsumer]:
        """Opens a consumer of the topics that a pattern matches."""
    def range(
        self,
        topic: str,
        start: MessageId | None,
        inclusive: bool,
        end: MessageId,
        columns: Sequence[tuple[str, str]],
        timeout: float,
        fails_on_loss: bool,
        options: Mapping[str, Any],
        values: PulsarValues | None,
    ) -> _Pending[PulsarRange]:
        """Opens a reader of a part of a partition.

        Args:
            topic: of one partition, or without partitions.
            start: the message behind which it begins; ``None`` for the first message.
            inclusive: it begins with that message, or with the first of that entry, instead.
            end: the last message, or the last entry.
            columns: what each column holds, and its name.
            timeout: longest time in seconds without a message while the broker says that there is one.
            fails_on_loss: whether it is an error that the broker has nothing more before the end.
            options: as of :meth:`consumer`.
            values: what payloads become in columns that hold ``decoded``, or ``decoded.N``, the field of this
                number; the consumer needs a schema then.

        Raises:
            InvalidArgument: an unknown column, or a topic with partitions (when awaited).
        """
    def partitions(self, topic: str) -> _Pending[int]:
        """Number of partitions of a topic; 0 for a topic that is not partitioned."""
    def schema(
        self, topic: str, version: bytes | None
    ) -> _Pending[tuple[str, str, bytes, list[tuple[str, str]]]]:
        """Type, name, definition and properties of a schema of a topic: of a version, or of the latest."""
    def topics(self, namespace: str) -> _Pending[list[str]]:
        """The names of a namespace's topics."""

@final
class PulsarProducer(_ProducerOf[MessageIds]):
    """A producer of one topic."""
    def encode_frame(
        self,
        frame: object,
        roles: FrameRoles,
        *,
        schema: PulsarSchema | str | None,
        encoding: str | None = None,
    ) -> FrameRows:
        """As :func:`encode_frame`, by a schema.

        Args:
            schema: ``"producer"`` for that of the producer, ``"avro"`` or ``"json"`` for one that the columns
                define, a schema, or ``None`` for payloads without one, whatever the topic has.

        Raises:
            SchemaError: a row or a column does not fit the schema.
            Unsupported: rows cannot be encoded by the schema.
            InvalidArgument: as :func:`encode_frame`; ``encoding`` is not that of the schema.
        """
    def send_messages(
        self,
        messages: Sequence[OutgoingMessage],
        partitions: Sequence[int | None] | None = None,
        schema: PulsarSchema | None = None,
        rows: FrameRows | None = None,
    ) -> _Pending[MessageIds]:
        """Sends messages as a group, like ``send_many``.

        Args:
            messages: the messages.
            partitions: of each message; by default the routing chooses it.
            schema: of all of them; by default that of the producer.
            rows: the rows of a frame that the messages replace. Their payloads are encoded already.
        """
    @property
    def name(self) -> str:
        """The name of the producer, given or chosen by the broker."""
    @property
    def partitions(self) -> int:
        """Number of partitions now; 0 for a topic that is not partitioned."""
    @property
    def started_partitions(self) -> int:
        """Number of partitions whose producers are open or being opened."""
    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the last message with a receipt; -1 without one."""
    def send(
        self,
        payload: Any,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: int | None = None,
        sequence_id: int | None = None,
        deliver_at: int | None = None,
        null_value: bool | None = None,
        replicate_to: list[str] | None = None,
        partition: int | None = None,
        schema: PulsarSchema | None = None,
    ) -> Any:
        """Sends a message; the payload is copied before this returns.

        Args:
            payload: bytes-like, or a value of the producer's schema.
            key: chooses the partition.
            ordering_key: chooses the Key_Shared consumer instead of ``key``.
            properties: text to text.
            event_time: milliseconds since 1970, not negative; none by default.
            sequence_id: for deduplication; the producer's own by default.
            deliver_at: milliseconds since 1970; at once by default.
            null_value: a tombstone; the payload is empty then.
            replicate_to: the only clusters that get a copy; ``["__local__"]`` for none.
            partition: the partition; by default the routing chooses it.
            schema: that of the message; by default that of the producer.

        Returns:
            Completes with the :class:`MessageId`. Cancelling it does not unsend.

        Raises:
            QueueFull: the window and its overflow queue are full.
            MemoryLimit: the client's ``memory_limit`` is reached.
            MessageTooLarge, InvalidArgument: at once; nothing is sent.
            Timeout: no answer within ``send_timeout``; the message may have been stored (when awaited).
            Closed: after :meth:`close`.
        """
    def send_nowait(
        self,
        payload: Any,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: int | None = None,
        sequence_id: int | None = None,
        deliver_at: int | None = None,
        null_value: bool | None = None,
        replicate_to: list[str] | None = None,
        partition: int | None = None,
        schema: PulsarSchema | None = None,
    ) -> None:
        """As :meth:`send`, without a result: :meth:`flush` reports failures.

        Raises:
            QueueFull: the window is full; the overflow queue is not used.
        """
    def encode_values(
        self, values: Iterable[Any], keys: Iterable[str | None] | None, schema: PulsarSchema
    ) -> FrameRows:
        """Encodes values by a schema of their own, for :meth:`send_rows`.

        Args:
            values: values of the schema.
            keys: one for each value, or none.
            schema: the schema.

        Raises:
            ValueError: ``keys`` and ``values`` differ in number.
            InvalidArgument: a value that does not fit.
            Unsupported: the schema is separated.
        """
    def send_many(
        self, payloads: Iterable[Buffer], keys: Iterable[str | None] | None = None
    ) -> _Pending[MessageIds]:
        """Sends payloads as a group, in their order; completes when the broker has all of them.

        Args:
            payloads: bytes-like objects; beyond the window the rest is copied and follows.
            keys: one for each payload, or none.

        Raises:
            TypeError: a payload that is not bytes-like, or keys as a single text.
            ValueError: ``keys`` and ``payloads`` differ in number.
            Error: the first error of the group, with the number of messages that failed (when awaited).
        """

@final
class PulsarConsumer(_Redelivering[PulsarMessage, PulsarMessage | MessageId]):
    """A consumer of one or several topics."""
    def decode_arrow(self, batch: ArrowBatch, lenient: bool) -> ArrowBatch:
        """The batch with the values of its messages instead of their payloads, if the consumer has a schema.

        Args:
            batch: of :meth:`read_arrow`; once.
            lenient: values that cannot be decoded are null.

        Raises:
            SchemaError: a payload cannot be decoded. All messages are received again.
        """
    def ack_receipt(self, messages: Iterable[PulsarMessage | MessageId], cumulative: bool) -> _Pending[None]:
        """Acknowledges, and completes with the broker's answer.

        Args:
            messages: the messages.
            cumulative: with all before them in their partition.
        """
    def seek(self, position: MessageId | int, inclusive: bool) -> _Pending[None]:
        """Moves the subscription.

        Args:
            position: an id, or milliseconds since 1970.
            inclusive: whether the message of the id is delivered too.

        Raises:
            InvalidArgument: an id of a partition that this consumer does not hold.
            Timeout: not done within the operation timeout (when awaited).
        """
    def seek_each(self, positions: list[tuple[str, MessageId | int]], inclusive: bool) -> _Pending[None]:
        """As :meth:`seek`, for partitions, given by the names of their topics, each to its own position."""
    def partition_topics(self) -> list[str]:
        """Full names of the partitions' topics."""
    def reconsume_later(
        self, message: PulsarMessage, delay: float, properties: Mapping[str, str] | None, receipt: bool
    ) -> _Pending[None]:
        """Sends a message to the topic of retries and acknowledges it.

        Args:
            message: the message.
            delay: seconds until it is delivered again.
            properties: properties to add.
            receipt: whether it waits for the broker's receipt of the acknowledgement.

        Raises:
            NotAllowed: there is no such topic (when awaited).
        """
    def has_message_available(self) -> _Pending[bool]:
        """Whether there are messages behind the last one that was received."""
    def unsubscribe_by_force(self) -> _Pending[None]:
        """Deletes the subscription also if it has other consumers, and closes this one."""
    @property
    def is_active(self) -> bool:
        """Whether this consumer is served in all its partitions."""
    def set_paused(self, paused: bool) -> None:
        """Stops asking the broker for messages, or goes on with it."""
    def active_change(self) -> _Pending[tuple[str, bool]]:
        """A partition, and whether this consumer of a Failover subscription is its active one now."""
    @property
    def reached_end(self) -> bool:
        """Whether every topic was terminated and has nothing more to receive."""
    def wait_for_end(self) -> _Pending[None]:
        """Completes when :attr:`reached_end` becomes true.

        Raises:
            Closed: the consumer was closed (when awaited).
        """
    def last_message_ids(self) -> _Pending[list[MessageId]]:
        """Id of the last message of each partition."""

@final
class PulsarRange:
    """A reader of a part of a partition."""
    def read(self, max_rows: int, max_bytes: int) -> _Pending[ArrowBatch | None]:
        """The next rows; ``None`` at the end.

        Args:
            max_rows: most rows.
            max_bytes: most bytes of their payloads, which one row alone may exceed.

        Raises:
            Timeout: the broker has a message, and it does not come (when awaited).
            DataLost: there is none before the end any more (when awaited).
        """
    def close(self) -> _Pending[None]: ...

@final
class PulsarMessage(_AnyMessage, Generic[_Value_co]):
    """A received message. ``PulsarMessage[Order]`` has a value of a schema."""
    @property
    def id(self) -> MessageId: ...
    @property
    def value(self) -> _Value_co:
        """The value, by the schema of the consumer; the payload, if it has none; ``None`` for a tombstone.
        Decoded each time.

        Raises:
            SchemaError: the payload does not fit its schema, or the schema could not be got.
            IncompatibleSchema: the consumer's schema cannot read what was written with the message's.
        """
    @property
    def key(self) -> str | None:
        """The key; of one of bytes the Base64."""
    @property
    def key_bytes(self) -> bytes | None:
        """The bytes of the key, or the UTF-8 of one of text."""
    @property
    def ordering_key(self) -> bytes | None: ...
    @property
    def partition(self) -> int:
        """Number of the partition; -1 if the topic is not partitioned."""
    @property
    def publish_time(self) -> int:
        """When the producer sent it, in milliseconds since 1970."""
    @property
    def event_time(self) -> int | None:
        """When the event happened, in milliseconds since 1970."""
    @property
    def broker_time(self) -> int | None:
        """When the broker stored it, in milliseconds since 1970, if brokers report it."""
    @property
    def redelivery_count(self) -> int:
        """Number of earlier deliveries."""
    @property
    def sequence_id(self) -> int: ...
    @property
    def producer_name(self) -> str: ...
    @property
    def is_null(self) -> bool:
        """Whether it is a tombstone."""
    @property
    def index(self) -> int | None:
        """Its number in the topic, if brokers report it."""
    @property
    def schema_version(self) -> bytes | None: ...

@final
class PulsarSchema:
    def __new__(
        cls,
        kind: str,
        name: str,
        definition: bytes | None,
        properties: Sequence[tuple[str, str]],
        classes: Sequence[tuple[str, type]],
        raw: bool = False,
    ) -> Self: ...
    @staticmethod
    def key_value(key: PulsarSchema, value: PulsarSchema, separated: bool) -> PulsarSchema: ...
    def encode(self, value: Any) -> bytes: ...
    def decode(self, payload: bytes) -> Any: ...

@final
class PulsarValues:
    """The values of one schema in columns of a :class:`PulsarRange`, whatever version payloads were written
    with.

    Args:
        stored: type, name, definition and properties of the schema.
        spark: columns have Spark's types.
        lenient: values that cannot be decoded are null.

    Raises:
        SchemaError: the schema cannot be read.
    """
    def __new__(
        cls, stored: tuple[str, str, bytes, list[tuple[str, str]]], spark: bool, lenient: bool
    ) -> Self: ...
    def table(self) -> ArrowBatch:
        """A table without rows, whose column ``value`` has the type of the values.

        Raises:
            Unsupported: such values cannot be a column.
        """

@final
class MessageId:
    """The position of a message. Ordered, hashable, picklable; ``str`` and :meth:`parse` are inverse."""

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]
    @property
    def topic(self) -> str:
        """Full name of the message's topic, including the partition; empty in an id that was parsed or that a
        send returned."""
    @property
    def ledger(self) -> int: ...
    @property
    def entry(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def batch_index(self) -> int:
        """Index in the batch; -1 if the entry is not a batch."""
    @property
    def batch_size(self) -> int: ...
    @property
    def first_chunk(self) -> MessageId | None:
        """First chunk of a message that was sent in chunks: the id is that of its last one. A ``seek`` or
        reader with ``inclusive`` begins there. It is part of :meth:`to_bytes`, and not of ``str``."""
    @staticmethod
    def parse(text: str) -> MessageId:
        """Parses the result of ``str``.

        Raises:
            InvalidArgument: not a message id.
        """
    @staticmethod
    def from_bytes(data: bytes, topic: str = "") -> MessageId:
        """Reads the result of :meth:`to_bytes` or of the official clients' ``serialize``, which do not hold
        the topic.

        Raises:
            InvalidArgument: not a message id.
        """
    def to_bytes(self) -> bytes: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __lt__(self, value: MessageId, /) -> bool: ...
    def __le__(self, value: MessageId, /) -> bool: ...
    def __gt__(self, value: MessageId, /) -> bool: ...
    def __ge__(self, value: MessageId, /) -> bool: ...

@final
class MessageIds(Sequence[MessageId]):
    """The ids of messages that were sent together, in their order. The ids are created on access."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...

# ---------------------------------------------------------------------------- MQTT

@final
class MqttClient(_ClientOf[MqttClient]):
    """A session with an MQTT server."""
    def producer(self, topic: str, options: Mapping[str, Any]) -> _Pending[MqttProducer]:
        """Opens a producer. The result is there at once, because the server is not asked.

        Raises:
            InvalidTopic: when awaited.
        """
    def publisher(self, options: Mapping[str, Any]) -> _Pending[MqttProducer]:
        """Opens a producer without a topic: each message has one of its own."""
    def consumer(
        self, topics: Sequence[str], subscription: str, options: Mapping[str, Any]
    ) -> _Pending[MqttConsumer]:
        """Subscribes.

        Args:
            topics: topic filters.
            subscription: group of a shared subscription; ``""`` without one.
            options: as of :meth:`producer`.
        """
    def unsubscribe(self, filter: str) -> _Pending[bool]:
        """Ends the subscription to a filter that no open consumer has.

        Returns:
            Completes with whether the session had it.

        Raises:
            InvalidTopic, InvalidArgument, Timeout: when awaited.
        """
    @property
    def version(self) -> Literal["5", "3.1.1", "3.1"]:
        """The version in use."""
    def reauthenticate(self) -> _Pending[None]:
        """Starts an extended re-authentication, which MQTT 5 has."""

@final
class MqttProducer(_ProducerOf[list[ReasonCode]]):
    """A publisher. Its topic is that of messages that do not name one."""
    def send(self, payload: Buffer, extras: Mapping[str, Any] | None = None) -> _Pending[ReasonCode]:
        """Publishes a message; the payload is copied before this returns.

        Args:
            payload: bytes-like.
            extras: by name: ``topic``, ``qos`` (0 to 2), ``retain``, ``message_expiry`` (seconds),
                ``content_type``, ``response_topic``, ``correlation_data``, ``is_text``, ``properties``.

        Returns:
            Completes with the reason code of PUBACK or PUBCOMP; with QoS 0 when the message is written.
            Cancelling it does not unsend.

        Raises:
            QueueFull: the window and its overflow queue are full.
            MemoryLimit: the client's ``memory_limit`` is reached.
            MessageTooLarge, InvalidArgument: at once; nothing is sent.
            Closed: after :meth:`close`.
        """
    def send_nowait(self, payload: Buffer, extras: Mapping[str, Any] | None = None) -> None:
        """As :meth:`send`, without a result: :meth:`flush` reports failures.

        Raises:
            QueueFull: the window is full; the overflow queue is not used.
        """
    def send_many(
        self, payloads: Iterable[Buffer], topics: Iterable[str | None] | None = None
    ) -> _Pending[list[ReasonCode]]:
        """Publishes payloads as a group, in their order; completes when the server has all of them.

        Args:
            payloads: bytes-like objects; beyond the window the rest is copied and follows.
            topics: one for each payload, or none.

        Raises:
            TypeError: a payload that is not bytes-like, or topics as a single text.
            ValueError: ``topics`` and ``payloads`` differ in number.
            Error: the first error of the group, with the number of messages that failed (when awaited).
        """

@final
class MqttConsumer(_ConsumerOf[MqttMessage, MqttMessage]):
    """A consumer of one or several topic filters."""

@final
class MqttMessage(_AnyMessage):
    """A received message."""
    @property
    def user_properties(self) -> list[tuple[str, str]]:
        """The user properties in their order; a name may be repeated."""
    @property
    def received_time(self) -> int:
        """When the client received it, in milliseconds since 1970."""
    @property
    def qos(self) -> int: ...
    @property
    def packet_id(self) -> int | None:
        """The packet identifier; ``None`` with QoS 0."""
    @property
    def retain(self) -> bool: ...
    @property
    def dup(self) -> bool:
        """Whether the server may have sent it before."""
    @property
    def content_type(self) -> str | None: ...
    @property
    def response_topic(self) -> str | None: ...
    @property
    def correlation_data(self) -> bytes | None: ...
    @property
    def is_text(self) -> bool:
        """Whether the publisher declared the payload to be UTF-8."""
    @property
    def message_expiry(self) -> int | None:
        """Seconds until it expires."""
    @property
    def subscription_ids(self) -> list[int]: ...

# ---------------------------------------------------------------------------- TubeMQ

@final
class TubeMqClient(_ClientOf[TubeMqClient]):
    """A client of a TubeMQ cluster."""
    def producer(self, topic: str, options: Mapping[str, Any]) -> _Pending[TubeMqProducer]:
        """Opens a producer.

        Raises:
            InvalidTopic, TopicNotFound, AuthorizationError, Timeout: when awaited.
        """
    def consumer(
        self, topics: Sequence[str], subscription: str, options: Mapping[str, Any]
    ) -> _Pending[TubeMqConsumer]:
        """Joins the consumer group ``subscription``."""
    def partitions(self, topic: str) -> _Pending[int]:
        """Number of partitions of a topic, on all brokers."""
    def locations(self, topics: AbstractSet[str], groups: str) -> _Pending[list[_Location]]:
        """The partitions of topics that can be read.

        Args:
            topics: their names.
            groups: beginning of the name of the group that the master is told for that.

        Raises:
            TopicNotFound, ConsumerAssign, AuthorizationError: when awaited.
        """
    def tail(self, locations: Sequence[_Location], groups: str) -> _Pending[TubeMqTail]:
        """Asks for the ends of partitions, which are taken in groups whose names begin with ``groups``."""
    def range(
        self,
        location: _Location,
        start: int,
        end: int,
        columns: Sequence[tuple[str, str]],
        timeout: float,
        fails_on_loss: bool,
        filters: AbstractSet[str],
        groups: str,
    ) -> _Pending[TubeMqRange]:
        """Opens a reader of a part of a partition.

        Args:
            location: the partition.
            start: offset of the first entry.
            end: the first offset behind it.
            columns: what each column holds, and its name.
            timeout: longest time in seconds without progress.
            fails_on_loss: whether it is an error that messages are missing or damaged.
            filters: message types; all if there are none.
            groups: beginning of the names of the groups in which the partition is taken.
        """
    def confirm(self, group: str, offsets: Sequence[tuple[_Location, int]]) -> _Pending[list[str | None]]:
        """Sets the offsets of a group; for each partition what went wrong."""

_Location: TypeAlias = tuple[str, int, int, str, int]
"""Topic, number of the broker, number of the partition there, and the broker's host and port."""

@final
class TubeMqRange:
    """A reader of a part of a partition."""
    def read(self, max_rows: int, max_bytes: int) -> _Pending[ArrowBatch | None]:
        """The next rows; ``None`` at the end.

        Args:
            max_rows: most rows.
            max_bytes: most bytes of their payloads, which one row alone may exceed.

        Raises:
            Timeout: nothing comes (when awaited).
            DataLost: messages are missing or damaged (when awaited).
        """
    def close(self) -> _Pending[None]:
        """Gives the partition back."""

@final
class TubeMqTail:
    """Asks for the ends of partitions."""
    def bounds(self) -> _Pending[list[tuple[int, int]]]:
        """For each partition its first offset, as it was when it was asked for first, and the one behind its
        last message."""
    def close(self) -> _Pending[None]:
        """Gives the partitions back."""

@final
class TubeMqProducer(_ProducerOf[list[Position]]):
    """A producer of one topic."""
    def send(
        self,
        payload: Buffer,
        key: str | None = None,
        properties: dict[str, str] | None = None,
        message_type: str | None = None,
        event_time: int | None = None,
    ) -> Any:
        """Sends a message; the payload is copied before this returns.

        Args:
            payload: bytes-like, not empty.
            key: messages with the same key go to the same partition; without keys the partitions take turns.
            properties: text to text, without ``,`` and ``=``.
            message_type: type for filters, 1 to 256 bytes without ``,`` and ``=``; the producer's by default.
            event_time: milliseconds since 1970, up to the year 9999, stored to the minute. Default: now for a
                message with a type, none otherwise.

        Returns:
            Completes with the :class:`Position`, when a broker has the message. Cancelling it does not
            unsend.

        Raises:
            QueueFull: the window and its overflow queue are full.
            MemoryLimit: the client's ``memory_limit`` is reached.
            MessageTooLarge, InvalidArgument: at once; nothing is sent.
            Timeout: no answer within ``send_timeout``; the message may have been stored (when awaited).
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
        """As :meth:`send`, without a result: :meth:`flush` reports failures.

        Raises:
            QueueFull: the window is full; the overflow queue is not used.
        """
    def send_many(
        self, payloads: Iterable[Buffer], keys: Iterable[str | None] | None = None
    ) -> _Pending[list[Position]]:
        """Sends payloads as a group, in their order; completes when the brokers have all of them.

        Args:
            payloads: bytes-like objects; beyond the window the rest is copied and follows.
            keys: one for each payload, or none.

        Raises:
            TypeError: a payload that is not bytes-like, or keys as a single text.
            ValueError: ``keys`` and ``payloads`` differ in number.
            Error: the first error of the group, with the number of messages that failed (when awaited).
        """

@final
class TubeMqConsumer(_Redelivering[TubeMqMessage, TubeMqMessage]):
    """A member of a consumer group."""
    def seek(self, position: Position | str) -> _Pending[None]:
        """Moves the group.

        Args:
            position: a position, which is inclusive, or ``"first"`` or ``"latest"`` for all partitions that
                this consumer holds.

        Raises:
            InvalidArgument: a position of a partition that this consumer does not hold.
            Timeout: not done within the operation timeout (when awaited).
        """
    def set_paused(self, partitions: Sequence[tuple[int, int]] | None, paused: bool) -> None:
        """Stops or resumes fetching from partitions.

        Args:
            partitions: pairs of broker and partition; ``None`` for all, including those assigned later.
            paused: true stops, false resumes.

        Raises:
            InvalidArgument: a partition that is not this consumer's.
        """
    def partitions(self) -> list[dict[str, Any]]:
        """The state of each partition: ``topic``, ``broker_id``, ``partition``, ``state``, ``offset`` and
        ``max_offset`` (in the index), ``lag`` (messages of the store, at most) and ``lag_bytes``. A value
        that is not known yet is ``None``."""

@final
class TubeMqMessage(_AnyMessage):
    """A received message."""
    @property
    def id(self) -> Position:
        """The position of its pack."""
    @property
    def key(self) -> str | None: ...
    @property
    def message_type(self) -> str | None:
        """The type that filters name."""
    @property
    def event_time(self) -> int | None:
        """When the event happened, in milliseconds since 1970, to the minute."""
    @property
    def redelivery_count(self) -> int:
        """Number of earlier deliveries of its pack."""
    @property
    def broker_id(self) -> int:
        """Number of the broker."""
    @property
    def partition(self) -> int:
        """Number of the partition."""
    @property
    def offset(self) -> int:
        """Offset of its pack in the index of the store."""
    @property
    def message_id(self) -> int:
        """Number assigned by the broker; not unique across brokers."""

@final
class Position:
    """The position of a message in the store of a broker. Equality, order and hash compare broker, partition
    and offset; pickling keeps only these. ``str`` and :meth:`parse` are inverse.

    Args:
        broker_id: number of the broker.
        partition: number of the partition: 10,000 times that of the store, plus its own.
        offset: offset in the store's index, 28 bytes a message; for a received message that of its pack.

    Raises:
        OverflowError: ``broker_id`` or ``partition`` is negative or beyond 32 bits.
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
        """Offset in the index of the store."""
    @property
    def time(self) -> int | None:
        """When the broker stored it, in milliseconds since 1970; ``None`` unless the position is the result
        of a send."""
    @property
    def message_id(self) -> int | None:
        """Number assigned by the broker; ``None`` if it is not known."""
    @staticmethod
    def parse(text: str) -> Position:
        """Parses ``broker:partition:offset``.

        Raises:
            InvalidArgument: not a position.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __lt__(self, value: Position, /) -> bool: ...
    def __le__(self, value: Position, /) -> bool: ...
    def __gt__(self, value: Position, /) -> bool: ...
    def __ge__(self, value: Position, /) -> bool: ...

# ---------------------------------------------------------------------------- frames and the broker

@final
class FrameRows:
    """The rows of a frame as messages, made by :func:`encode_frame`. A producer takes them once."""
    def __len__(self) -> int: ...
    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads, before compression."""
    def bad_rows(self) -> list[tuple[int, str, int]]:
        """The rows that were left out so far, when they were encoded, and when they were sent: number, reason
        and bytes of the payload that was not sent."""
    def payloads(self) -> list[bytes]:
        """The payloads, which are not sent by that.

        Raises:
            InvalidArgument: the rows have been sent.
        """
    def messages(self) -> list[tuple[Any, ...]]:
        """The fields of the messages, in the order of ``OutgoingMessage``, which are not sent by that.

        Raises:
            InvalidArgument: the rows have been sent.
        """
    def split_first(self) -> tuple[FrameRows, FrameRows]:
        """The first row and the others, in place of these."""
    def by_topic(self) -> list[tuple[str, FrameRows]]:
        """The rows of each topic, in place of these. Topics of Pulsar have their full names."""

@final
class ArrowBatch:
    """Received messages as columns, with the Arrow PyCapsule interface."""
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Broker:
    """The embedded broker."""
    @property
    def listening(self) -> list[tuple[str, str, bool]]:
        """Name and URL of each listener, and whether other machines send to it in the clear."""
    @staticmethod
    def start(options: Mapping[str, Any]) -> Broker:
        """Starts it.

        Args:
            options: by name, as :mod:`forebay._core.options` has checked them.

        Raises:
            IoError: a port that is taken, or data that cannot be opened.
        """
    def stop(self, timeout: float) -> None:
        """Ends it, within ``timeout`` seconds."""
    def reload_users(self) -> list[tuple[str, int]]:
        """Reads the files of users again, and returns the number of users by protocol.

        Raises:
            InvalidArgument: a file that cannot be read, or has a line that is no user.
        """
    def reload_keys(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """Replaces certificates and token keys by those in ``options``, and returns the number of listeners
        with a certificate and that of the keys.

        Raises:
            NotAllowed: one would be added or removed.
            InvalidArgument: one is not valid. Nothing is replaced.
        """
    def reload_permissions(self) -> int | None:
        """Reads the file of permissions again, and returns the number of its rules; ``None`` without a file.

        Raises:
            InvalidArgument: a file that cannot be read, or has a line that is no rule.
        """
    def status(self) -> dict[str, Any]:
        """Figures of the broker: URLs, connections, topics, bytes."""
    def create_topic(self, name: str, partitions: int) -> None: ...
    def grow_topic(self, name: str, partitions: int) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def terminate_topic(self, name: str) -> None: ...
    def topics(self) -> list[str]: ...
    def topic_stats(self, name: str) -> dict[str, Any]:
        """Figures of a topic.

        Raises:
            TopicNotFound: there is none.
        """
