"""The asyncio face: :func:`connect`, :class:`Client`, :class:`Producer`, :class:`Consumer`.

Thin on purpose: options are checked once, when a handle is opened; after that a call goes straight to the
native module and returns a real ``asyncio.Future``. ``penstock.blocking`` has the same verbs without a loop.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from . import _native, frames, parse
from . import options as _options
from .errors import Closed, InvalidArgument, Unsupported

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from . import _engine
    from ._engine import Message, MessageId, MessageIds
    from .broker import Broker
    from .mqtt import Fields, PublishFields, ReasonCode
    from .options import AnyClientOptions, AnyConsumerOptions, AnyProducerOptions, Duration, Timestamp

H = TypeVar("H", bound="Handle")


class Opening(Generic[H]):
    """A handle that is about to be opened: ``await`` it, or enter it with ``async with``."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, H]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, Any, H]:
        return self._start().__await__()

    async def __aenter__(self) -> H:
        self._handle = await self._start()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._handle.__aexit__(kind, error, trace)


class Handle:
    """What clients, producers and consumers share: one event loop, an end, a warning when forgotten."""

    _open = False
    _owner: Handle | None = None  # a child keeps its client alive

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open = True

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called, on this or on its client."""
        return not self._open

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is closed")
        if asyncio._get_running_loop() is not self._loop:
            raise InvalidArgument(f"{self!r} belongs to another event loop: open one per loop")

    async def close(self) -> None:
        """Ends it. May be called again."""
        raise NotImplementedError

    async def _leave(self, failed: bool) -> None:
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(failed=kind is not None)

    def __del__(self) -> None:
        if self._open:
            self._open = False
            shown = repr(self)
            self._forget()
            warnings.warn(f"unclosed {shown}: use async with, or close()", ResourceWarning, 2, source=self)

    def _forget(self) -> None:
        """Lets go of the native side; there may be no loop any more."""


def connect(url: str | None = None, **options: Unpack[AnyClientOptions]) -> Opening[Client]:
    """Connects to a broker.

    Args:
        url: ``pulsar://host:6650[,host:6650]``, ``pulsar+ssl://...``; ``mqtt://host:1883``, ``mqtts://``,
            ``ws://``, ``wss://``, ``mqtt+unix:///path``; ``tubemq://master:8715[,master:8715]``,
            ``tubemq+ssl://...``; ``embedded:`` or ``embedded:./data`` starts a broker
            in this process and ends it with the client. Default: ``PENSTOCK_URL``. Its query may hold
            options: ``pulsar://host:6650?compression=zstd``.
        options: see :class:`penstock.options.ClientOptions`, for MQTT
            :class:`penstock.options.MqttClientOptions`, for TubeMQ
            :class:`penstock.options.TubeClientOptions`. Durations are seconds, sizes bytes.

    Returns:
        What can be awaited or entered; both give a :class:`Client` with its first connection up.

    Raises:
        InvalidArgument: an unknown option or a bad value, at once.
        ConnectFailed: no address could be connected within ``connect_timeout`` (when awaited).
        AuthenticationError: the broker did not accept the credentials (when awaited).

    >>> import asyncio, penstock
    >>> async def main():
    ...     async with penstock.connect("embedded:") as client:
    ...         async with client.consumer("orders", "billing") as consumer:
    ...             async with client.producer("orders") as producer:
    ...                 await producer.send(b"a book", key="42")
    ...             message = await consumer.receive(timeout=5)
    ...             await consumer.ack(message)
    ...             return message.key, message.data
    >>> asyncio.run(main())
    ('42', b'a book')
    """
    base, values, defaults = _options.for_connection(url, options)
    protocol = _options.protocol_of(base)

    async def start() -> Client:
        broker: Broker | None = None
        if base.startswith("embedded:"):
            from .broker import Broker

            data = base.removeprefix("embedded:")
            broker = await asyncio.to_thread(lambda: Broker(data=data) if data else Broker())
        loop = asyncio.get_running_loop()
        bridge = _native.Loop(loop)
        try:
            native = await _native.connect(
                broker.url if broker else base,
                _options.to_engine(_options.scope_of(protocol, "client"), values),
                bridge,
            )
        except BaseException:
            bridge.close()
            if broker:
                await asyncio.to_thread(broker.stop)
            raise
        return _class_of(protocol)(native, loop, bridge, base, defaults, broker)

    return Opening(start)


def _class_of(protocol: str) -> type[Client]:
    if protocol == "mqtt":
        from .mqtt.client import MqttClient

        return MqttClient
    if protocol == "tubemq":
        from .tubemq.client import TubeClient

        return TubeClient
    return Client


class Client(Handle):
    """A connection to a service; opens producers and consumers, which share it. Made by :func:`connect`."""

    def __init__(
        self,
        native: _engine.Client,
        loop: asyncio.AbstractEventLoop,
        bridge: _native.Loop,
        url: str,
        defaults: _options.Defaults,
        broker: Broker | None,
    ) -> None:
        super().__init__(loop)
        self._native = native
        self._bridge = bridge
        self._url = url
        self._defaults = defaults
        self._broker = broker
        self._children: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()

    @property
    def url(self) -> str:
        """Where it is connected, without query."""
        return self._broker.url if self._broker else self._url

    @property
    def broker(self) -> Broker | None:
        """The broker of an ``embedded:`` URL."""
        return self._broker

    def producer(self, topic: str, **options: Unpack[AnyProducerOptions]) -> Opening[Producer]:
        """Opens a producer.

        Args:
            topic: ``"orders"`` or ``"persistent://tenant/namespace/orders"``; partitioned ones too.
            options: see :class:`penstock.options.ProducerOptions`.

        Raises:
            InvalidArgument: an unknown option or a bad value, at once.
            ProducerBusy: another one has the name, or exclusive access (when awaited).
            TopicNotFound: the topic does not exist and is not created on first use (when awaited).
        """
        values = _options.resolve("producer", options, self._defaults.producer)

        async def start() -> Producer:
            self._check()
            native = await self._native.producer(topic, _options.to_engine("producer", values))
            return self._adopt(Producer(native, self._loop))

        return Opening(start)

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[AnyConsumerOptions],
    ) -> Opening[Consumer]:
        """Subscribes.

        Args:
            topic: one topic or several.
            subscription: its name, which Pulsar needs; consumers with the same name share the work as
                ``type`` says. With MQTT the group of a shared subscription, or nothing.
            options: see :class:`penstock.options.ConsumerOptions`.

        Raises:
            InvalidArgument: an unknown option or a bad value, at once.
            ConsumerBusy: the subscription has an exclusive consumer (when awaited).
        """
        values = _options.resolve("consumer", options, self._defaults.consumer)
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or not subscription:
            raise InvalidArgument("a consumer needs at least one topic and the name of a subscription")

        async def start() -> Consumer:
            self._check()
            native = await self._native.consumer(topics, subscription, _options.to_engine("consumer", values))
            return self._adopt(Consumer(native, self._loop, values["ack_receipt"]))

        return Opening(start)

    def reader(self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]) -> Opening[Consumer]:
        """Reads a topic without leaving anything behind: a consumer of a subscription of its own that is not
        durable. Nothing needs to be acknowledged.

        Args:
            topic: one topic or several.
            options: as for :meth:`consumer`; ``position`` (default ``"latest"``) is where it begins.

        Raises:
            InvalidArgument: an unknown option or a bad value, at once.
        """
        options["durable"] = False
        return self.consumer(topic, _native.reader_name(), **options)

    def publish(
        self, topic: str, payload: Buffer = b"", **fields: Unpack[PublishFields]
    ) -> asyncio.Future[ReasonCode]:
        """Publishes one message to an MQTT topic; see :meth:`penstock.mqtt.client.MqttClient.publish`.

        Raises:
            Unsupported: with another protocol.
        """
        raise Unsupported("publish is MQTT's: open a producer")

    def subscribe(
        self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]
    ) -> Opening[Consumer]:
        """Subscribes to MQTT topic filters; see :meth:`penstock.mqtt.client.MqttClient.subscribe`.

        Raises:
            Unsupported: with another protocol.
        """
        raise Unsupported("subscribe is MQTT's: open a consumer")

    async def reauthenticate(self) -> None:
        """Starts a new extended authentication of MQTT 5.0.

        Raises:
            Unsupported: with another protocol.
        """
        raise Unsupported("re-authentication at the user's wish is MQTT's; Pulsar's broker asks for it")

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 for a plain one."""
        self._check()
        return await self._native.partitions(topic)

    async def topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the topics of a namespace."""
        self._check()
        return await self._native.topics(namespace)

    def stats(self) -> dict[str, Any]:
        """Counters of the engine for this client: connections, messages, bytes, memory."""
        return self._native.stats()

    def _adopt(self, child: _Child) -> _Child:
        self._children.add(child)
        child._owner = self
        return child

    async def close(self) -> None:
        """Flushes the producers, closes all that hangs on this client, and the broker of ``embedded:``."""
        await self._leave(failed=False)

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        try:
            ends = [child._leave(failed) for child in list(self._children)]
            results = await asyncio.gather(*ends, return_exceptions=True)
            await self._native.close()
        finally:
            self._open = False
            self._bridge.close()
            if self._broker:
                await asyncio.to_thread(self._broker.stop)
        for result in results:
            if isinstance(result, BaseException) and not failed:
                raise result

    def _forget(self) -> None:
        for child in self._children:
            child._open = False
        with contextlib.suppress(Exception):
            self._native.close()
        self._bridge.close()
        if self._broker:
            self._broker.abandon()

    def __repr__(self) -> str:
        return f"<penstock.Client {self._url}>"


_Child = TypeVar("_Child", "Producer", "Consumer")


def refuse(fields: Mapping[str, Any]) -> None:
    """Names what a message of Pulsar has not.

    Raises:
        Unsupported: always.
    """
    raise Unsupported(f"a message of Pulsar has no {' and no '.join(fields)}")


class Producer(Handle):
    """Sends to one topic. Made by :meth:`Client.producer`."""

    def __init__(self, native: _engine.Producer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._native = native

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return self._native.topic

    @property
    def name(self) -> str:
        """Its name, given or chosen by the broker."""
        return self._native.name

    @property
    def last_sequence_id(self) -> int:
        """Highest sequence id that has a receipt, -1 if there is none."""
        return self._native.last_sequence_id

    @property
    def pending(self) -> int:
        """Messages without a receipt."""
        return self._native.pending

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
        **fields: Unpack[Fields],
    ) -> asyncio.Future[MessageId]:
        """Sends a message. The message is taken at once; the future ends with the broker's receipt.
        Cancelling the future does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol; copied once.
            key: chooses the partition, and the consumer on Key_Shared subscriptions.
            ordering_key: chooses the Key_Shared consumer instead of ``key``.
            properties: text to text.
            event_time: when it happened: an aware ``datetime`` or milliseconds since 1970.
            sequence_id: for deduplication; ascending.
            deliver_at: when Shared subscriptions may give it out.
            deliver_after: the same from now, in seconds.
            null_value: a tombstone for compacted topics.
            fields: of MQTT, see :class:`penstock.mqtt.Fields`; there the future ends with a
                :class:`penstock.mqtt.ReasonCode`.

        Raises:
            QueueFull: the window and the parking lot behind it are full: await some of the futures first.
            MessageTooLarge: larger than the broker takes.
            Closed: after :meth:`close`.
        """
        if asyncio._get_running_loop() is not self._loop:
            self._check()
        if fields:
            refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        return self._native.send(
            payload, key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value
        )

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
        **fields: Unpack[Fields],
    ) -> None:
        """As :meth:`send`, without a future: the message is admitted or this raises. :meth:`flush` waits for
        the receipts and raises what went wrong.

        Raises:
            QueueFull: the window is full; nothing is parked.
            MessageTooLarge, Closed: as :meth:`send`.
        """
        if fields:
            refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        self._native.send_nowait(
            payload, key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value
        )

    def send_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> Awaitable[MessageIds]:
        """Sends many messages with one wake-up at the end: the fastest way for payloads in Python. However
        many they are, no more than the window are in flight.

        Args:
            payloads: the messages.
            keys: as many keys, or none.

        Returns:
            The ids in the order of ``payloads``.

        Raises:
            ValueError: ``keys`` has another length.
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
    ) -> Awaitable[MessageIds]:
        """Sends each row of a DataFrame as a message, without a Python object per row.

        Args:
            frame: anything with the Arrow PyCapsule interface: pyarrow, polars, pandas 2.2+, duckdb.
            value: the column with the payloads (binary or text).
            encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` makes an object of each row, of all
                columns. Default: what ``value`` implies.
            key: the column with the keys.
            properties: a column of maps, text to text.
            event_time: a column of timestamps, or of milliseconds since 1970.
            topic: of MQTT: the column with the topics, or a template, ``"shop/{till}/sales"``.

        Returns:
            The ids in the order of the rows.

        Raises:
            InvalidArgument: no such column, a type that does not fit, or no Arrow interface.
        """
        self._check()
        if topic is not None:
            raise Unsupported("a producer of Pulsar has one topic")
        rows = frames.outgoing(
            frame, value=value, encoding=encoding, key=key, properties=properties, event_time=event_time
        )
        return self._native.send_rows(rows)

    def flush(self) -> Awaitable[None]:
        """Waits for the receipts of all that was sent before.

        Raises:
            Error: the first error of those that nobody awaited, with their number.
        """
        self._check()
        return self._native.flush()

    async def close(self) -> None:
        """Flushes and closes."""
        await self._leave(failed=False)

    async def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        try:
            # After an exception in the block its error matters, not those of the messages.
            with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
                await self._native.flush()
        finally:
            self._open = False
            await self._native.close()

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()

    def __repr__(self) -> str:
        return f"<penstock.Producer {self._native.topic}>"


class Consumer(Handle):
    """Receives from a subscription. Made by :meth:`Client.consumer`.

    ``async for message in consumer`` is the usual way; it may be left at any time and taken up again. The
    acknowledging verbs return at once; what they return may be awaited or not.
    """

    def __init__(self, native: _engine.Consumer, loop: asyncio.AbstractEventLoop, ack_receipt: bool) -> None:
        super().__init__(loop)
        self._native = native
        self._ack_receipt = ack_receipt
        self._done: asyncio.Future[None] = loop.create_future()
        self._done.set_result(None)

    @property
    def topic(self) -> str:
        """Full name of the topic, or of the topics, with commas."""
        return self._native.topic

    @property
    def subscription(self) -> str:
        """Name of the subscription."""
        return self._native.subscription

    def __aiter__(self) -> AsyncIterator[Message]:
        self._check()
        return self._native.__aiter__()  # pyright: ignore[reportReturnType]

    def __anext__(self) -> Awaitable[Message]:
        return self._native.__anext__()

    def receive(self, timeout: Duration | None = None) -> Awaitable[Message]:
        """The next message.

        Args:
            timeout: seconds to wait at most; no limit by default.

        Raises:
            Timeout: nothing came in time. Nothing is lost.
            Closed: after :meth:`close`.
        """
        self._check()
        return self._native.receive(parse.seconds(timeout))

    def receive_many(self, max: int = 1000, timeout: Duration | None = None) -> Awaitable[list[Message]]:
        """What is there, up to ``max`` messages; waits when there is nothing.

        Args:
            max: most messages to return.
            timeout: seconds to wait at most for the first one; then the list is empty. No limit by default.
        """
        self._check()
        return self._native.receive_many(max, parse.seconds(timeout))

    async def read_frame(self, max_rows: int = 10_000, timeout: Duration | None = 1.0) -> Any:
        """Messages as an Arrow table, without a Python object per message. Columns: ``value`` (binary),
        ``key``, ``topic``, ``message_id``, ``publish_time``, ``event_time``, ``properties``,
        ``redelivery_count``; with MQTT: ``value``, ``topic``, ``qos``, ``retain``, ``received_time``,
        ``content_type``, ``properties``. A row cannot be acknowledged: with MQTT subscribe with
        ``auto_ack=True``.

        Args:
            max_rows: returns when there are so many rows ...
            timeout: ... or after this many seconds, with those that came; ``None`` waits for ``max_rows``.

        Returns:
            A ``pyarrow.Table``; without pyarrow an object with the Arrow PyCapsule interface.
        """
        self._check()
        return frames.incoming(await self._native.read_arrow(max_rows, parse.seconds(timeout)))

    def ack(self, message: Message | MessageId) -> Awaitable[None]:
        """Acknowledges a message. With ``ack_receipt=True`` the result ends with the broker's answer."""
        if self._ack_receipt:
            return self._native.ack_receipt([message], False)
        self._native.ack(message)
        return self._done

    def ack_many(self, messages: Sequence[Message | MessageId]) -> Awaitable[None]:
        """Acknowledges messages, each of them."""
        if self._ack_receipt:
            return self._native.ack_receipt(messages, False)
        self._native.ack_many(messages)
        return self._done

    def ack_cumulative(self, message: Message | MessageId) -> Awaitable[None]:
        """Acknowledges a message and all before it, in its partition.

        Raises:
            NotAllowed: on Shared and Key_Shared subscriptions.
        """
        if self._ack_receipt:
            return self._native.ack_receipt([message], True)
        self._native.ack_cumulative(message)
        return self._done

    def nack(self, message: Message | MessageId, delay: Duration | None = None) -> Awaitable[None]:
        """Wants a message again, after ``delay`` seconds (default: the consumer's ``nack_delay``)."""
        self._native.nack(message, parse.seconds(delay))
        return self._done

    def nack_many(
        self, messages: Sequence[Message | MessageId], delay: Duration | None = None
    ) -> Awaitable[None]:
        """As :meth:`nack`, for several."""
        self._native.nack_many(messages, parse.seconds(delay))
        return self._done

    def redeliver_unacknowledged(self) -> Awaitable[None]:
        """Wants all again that has been received and not been acknowledged."""
        self._native.redeliver_unacknowledged()
        return self._done

    def seek(self, position: MessageId | Timestamp | str, *, inclusive: bool = False) -> Awaitable[None]:
        """Moves the subscription.

        Args:
            position: a message id, a time (aware ``datetime`` or milliseconds since 1970), ``"earliest"`` or
                ``"latest"``.
            inclusive: with an id: gives that message again, too.

        Raises:
            InvalidArgument: not a position.
        """
        self._check()
        return self._native.seek(_native.seek_target(position), inclusive)

    async def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition."""
        self._check()
        return await self._native.last_message_ids()

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer."""
        self._check()
        await self._native.unsubscribe()
        self._open = False
        await self._native.close()

    async def close(self) -> None:
        """Hands over the acknowledgements and closes; what is not acknowledged goes to others."""
        if self._open:
            self._open = False
            await self._native.close()

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()

    def __repr__(self) -> str:
        return f"<penstock.Consumer {self._native.topic} {self._native.subscription!r}>"
