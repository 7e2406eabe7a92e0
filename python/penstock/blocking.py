"""The blocking face: the verbs of :mod:`penstock.client` without an event loop.

Made for scripts, threads and Spark workers. It never imports asyncio; a call that waits lets other threads
run. Handles may be shared between threads.

>>> import penstock
>>> with penstock.blocking.connect("embedded:") as client:
...     with client.consumer("orders", "billing") as consumer, client.producer("orders") as producer:
...         message_id = producer.send(b"a book", key="42")
...         message = consumer.receive(timeout=5)
...         consumer.ack(message)
...         message.data, message.id.ledger == message_id.ledger
(b'a book', True)
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from . import _native, frames, parse
from . import options as _options
from .errors import Closed, InvalidArgument, Timeout, Unsupported

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from . import _engine
    from ._engine import FrameRows, Message, MessageId, MessageIds
    from .broker import Broker
    from .mqtt import Fields, PublishFields, ReasonCode
    from .options import AnyClientOptions, AnyConsumerOptions, AnyProducerOptions, Duration, Timestamp

__all__ = ["Client", "Consumer", "Producer", "connect"]

_AHEAD = 256
"""Messages that ``for message in consumer`` takes over the border at once."""


class _Handle:
    _open = False
    _owner: _Handle | None = None  # a child keeps its client alive

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called, on this or on its client."""
        return not self._open

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is closed")

    def close(self) -> None:
        """Ends it. May be called again."""
        self._leave(failed=False)

    def _leave(self, failed: bool) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)

    def __del__(self) -> None:
        if self._open:
            self._open = False
            shown = repr(self)
            self._forget()
            warnings.warn(f"unclosed {shown}: use with, or close()", ResourceWarning, 2, source=self)

    def _forget(self) -> None:
        pass


def connect(url: str | None = None, **options: Unpack[AnyClientOptions]) -> Client:
    """Connects to a broker; returns when the first connection is up. Arguments and errors are those of
    :func:`penstock.connect`."""
    base, values, defaults = _options.for_connection(url, options)
    protocol = _options.protocol_of(base)
    broker: Broker | None = None
    if base.startswith("embedded:"):
        from .broker import Broker

        data = base.removeprefix("embedded:")
        broker = Broker(data=data) if data else Broker()
    try:
        native = _native.connect(
            broker.url if broker else base,
            _options.to_engine(_options.scope_of(protocol, "client"), values),
            None,
        ).wait()
    except BaseException:
        if broker:
            broker.stop()
        raise
    if protocol == "mqtt":
        from .mqtt.blocking import MqttClient

        return MqttClient(native, base, defaults, broker)
    if protocol == "tubemq":
        from .tubemq.blocking import TubeClient

        return TubeClient(native, base, defaults, broker)
    return Client(native, base, defaults, broker)


class Client(_Handle):
    """Twin of :class:`penstock.Client`. Made by :func:`connect`."""

    def __init__(
        self, native: _engine.Client, url: str, defaults: _options.Defaults, broker: Broker | None
    ) -> None:
        self._native = native
        self._url = url
        self._defaults = defaults
        self._broker = broker
        self._children: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()
        self._open = True

    @property
    def url(self) -> str:
        """Where it is connected, without query."""
        return self._broker.url if self._broker else self._url

    @property
    def broker(self) -> Broker | None:
        """The broker of an ``embedded:`` URL."""
        return self._broker

    def producer(self, topic: str, **options: Unpack[AnyProducerOptions]) -> Producer:
        """Opens a producer; as :meth:`penstock.Client.producer`."""
        values = _options.resolve("producer", options, self._defaults.producer)
        self._check()
        return self._adopt(
            Producer(self._native.producer(topic, _options.to_engine("producer", values)).wait())
        )

    def consumer(
        self,
        topic: str | Sequence[str],
        subscription: str | None = None,
        **options: Unpack[AnyConsumerOptions],
    ) -> Consumer:
        """Subscribes; as :meth:`penstock.Client.consumer`."""
        values = _options.resolve("consumer", options, self._defaults.consumer)
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or not subscription:
            raise InvalidArgument("a consumer needs at least one topic and the name of a subscription")
        self._check()
        native = self._native.consumer(topics, subscription, _options.to_engine("consumer", values)).wait()
        return self._adopt(Consumer(native, values["ack_receipt"]))

    def reader(self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]) -> Consumer:
        """Reads a topic without leaving anything behind; as :meth:`penstock.Client.reader`."""
        options["durable"] = False
        return self.consumer(topic, _native.reader_name(), **options)

    def publish(self, topic: str, payload: Buffer = b"", **fields: Unpack[PublishFields]) -> ReasonCode:
        """Publishes one message to an MQTT topic.

        Raises:
            Unsupported: with another protocol.
        """
        raise Unsupported("publish is MQTT's: open a producer")

    def subscribe(self, topic: str | Sequence[str], **options: Unpack[AnyConsumerOptions]) -> Consumer:
        """Subscribes to MQTT topic filters.

        Raises:
            Unsupported: with another protocol.
        """
        raise Unsupported("subscribe is MQTT's: open a consumer")

    def reauthenticate(self) -> None:
        """Starts a new extended authentication of MQTT 5.0.

        Raises:
            Unsupported: with another protocol.
        """
        raise Unsupported("re-authentication at the user's wish is MQTT's; Pulsar's broker asks for it")

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 for a plain one."""
        self._check()
        return self._native.partitions(topic).wait()

    def topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the topics of a namespace."""
        self._check()
        return self._native.topics(namespace).wait()

    def stats(self) -> dict[str, Any]:
        """Counters of the engine for this client."""
        return self._native.stats()

    def abandon(self) -> None:
        """Ends it without waiting for anything: what has no answer yet may arrive or not. For when an error
        has been seen, and another connection is to begin anew."""
        if self._open:
            self._open = False
            self._forget()

    def _adopt(self, child: _Child) -> _Child:
        self._children.add(child)
        child._owner = self
        return child

    def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        try:
            with contextlib.ExitStack() as stack:
                for child in list(self._children):
                    stack.callback(child._leave, failed)
        finally:
            self._open = False
            self._native.close().wait()
            if self._broker:
                self._broker.stop()

    def _forget(self) -> None:
        for child in self._children:
            child._open = False
        with contextlib.suppress(Exception):
            self._native.close()
        if self._broker:
            self._broker.abandon()

    def __repr__(self) -> str:
        return f"<penstock.blocking.Client {self._url}>"


_Child = TypeVar("_Child", "Producer", "Consumer")


def _refuse(fields: Mapping[str, Any]) -> None:
    raise Unsupported(f"a message of Pulsar has no {' and no '.join(fields)}")


class Producer(_Handle):
    """Twin of :class:`penstock.Producer`. Made by :meth:`Client.producer`."""

    def __init__(self, native: _engine.Producer) -> None:
        self._native = native
        self._open = True

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
    ) -> MessageId:
        """Sends a message and waits for the broker's receipt. Arguments and errors are those of
        :meth:`penstock.Producer.send`; for many messages use :meth:`send_nowait` or :meth:`send_many`."""
        if fields:
            _refuse(fields)
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
        **fields: Unpack[Fields],
    ) -> None:
        """Admits a message or raises; :meth:`flush` waits for the receipts.

        Raises:
            QueueFull: the window is full: flush first.
        """
        if fields:
            _refuse(fields)
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        self._native.send_nowait(
            payload, key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value
        )

    def send_many(self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None) -> MessageIds:
        """Sends many messages and waits for all receipts."""
        return self.submit_many(payloads, keys).wait()

    def submit_many(
        self, payloads: Sequence[Buffer], keys: Sequence[str | None] | None = None
    ) -> _engine.Waiter[MessageIds]:
        """As :meth:`send_many`, but returns at once what ``wait()`` gives the ids: the next lot can be
        prepared meanwhile."""
        self._check()
        return self._native.send_many(payloads, keys)  # pyright: ignore[reportReturnType]

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
    ) -> MessageIds:
        """Sends each row of a DataFrame and waits; as :meth:`penstock.Producer.send_frame`."""
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
    ) -> _engine.Waiter[MessageIds]:
        """As :meth:`send_frame`, but returns at once what ``wait()`` gives the ids."""
        self._check()
        if topic is not None:
            raise Unsupported("a producer of Pulsar has one topic")
        rows = frames.outgoing(
            frame, value=value, encoding=encoding, key=key, properties=properties, event_time=event_time
        )
        return self.submit_rows(rows)

    def submit_rows(self, rows: FrameRows) -> _engine.Waiter[MessageIds]:
        """As :meth:`submit_frame`, for rows that :func:`penstock.frames.outgoing` has encoded."""
        self._check()
        return self._native.send_rows(rows)  # pyright: ignore[reportReturnType]

    def flush(self, timeout: Duration | None = None) -> None:
        """Waits for the receipts of all that was sent before.

        Raises:
            Error: the first error of those that nobody waited for, with their number.
            Timeout: they did not come within ``timeout`` seconds; the messages stay admitted.
        """
        self._check()
        self._native.flush().wait(parse.seconds(timeout))

    def _leave(self, failed: bool) -> None:
        if not self._open:
            return
        try:
            with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
                self._native.flush().wait()
        finally:
            self._open = False
            self._native.close().wait()

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()

    def __repr__(self) -> str:
        return f"<penstock.blocking.Producer {self._native.topic}>"


class Consumer(_Handle):
    """Twin of :class:`penstock.Consumer`. Made by :meth:`Client.consumer`."""

    def __init__(self, native: _engine.Consumer, ack_receipt: bool) -> None:
        self._native = native
        self._ack_receipt = ack_receipt
        self._ahead: deque[Message] = deque()
        self._open = True

    @property
    def topic(self) -> str:
        """Full name of the topic, or of the topics, with commas."""
        return self._native.topic

    @property
    def subscription(self) -> str:
        """Name of the subscription."""
        return self._native.subscription

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        return self.receive()

    def receive(self, timeout: Duration | None = None) -> Message:
        """The next message.

        Args:
            timeout: seconds to wait at most; no limit by default.

        Raises:
            Timeout: nothing came in time. Nothing is lost.
        """
        try:
            return self._ahead.popleft()
        except IndexError:
            self._check()
        self._ahead.extend(self._native.receive_many(_AHEAD, parse.seconds(timeout)).wait())
        try:
            return self._ahead.popleft()
        except IndexError:
            raise Timeout(f"no message within {timeout} s", topic=self._native.topic) from None

    def receive_many(self, max: int = 1000, timeout: Duration | None = None) -> list[Message]:
        """What is there, up to ``max`` messages; waits up to ``timeout`` seconds when there is nothing."""
        self._check()
        if self._ahead:
            return [self._ahead.popleft() for _ in range(min(max, len(self._ahead)))]
        return self._native.receive_many(max, parse.seconds(timeout)).wait()

    def read_frame(self, max_rows: int = 10_000, timeout: Duration | None = 1.0) -> Any:
        """Messages as an Arrow table; as :meth:`penstock.Consumer.read_frame`.

        Raises:
            NotAllowed: ``receive`` has taken messages ahead that have not been handed out yet.
        """
        self._check()
        if self._ahead:
            from .errors import NotAllowed

            raise NotAllowed("receive() has taken messages ahead: receive them first, then read frames")
        return frames.incoming(self._native.read_arrow(max_rows, parse.seconds(timeout)).wait())

    def ack(self, message: Message | MessageId) -> None:
        """Acknowledges a message; waits for the broker's answer with ``ack_receipt=True`` only."""
        if self._ack_receipt:
            self._native.ack_receipt([message], False).wait()
        else:
            self._native.ack(message)

    def ack_many(self, messages: Sequence[Message | MessageId]) -> None:
        """Acknowledges messages, each of them."""
        if self._ack_receipt:
            self._native.ack_receipt(messages, False).wait()
        else:
            self._native.ack_many(messages)

    def ack_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledges a message and all before it, in its partition.

        Raises:
            NotAllowed: on Shared and Key_Shared subscriptions.
        """
        if self._ack_receipt:
            self._native.ack_receipt([message], True).wait()
        else:
            self._native.ack_cumulative(message)

    def nack(self, message: Message | MessageId, delay: Duration | None = None) -> None:
        """Wants a message again, after ``delay`` seconds (default: the consumer's ``nack_delay``)."""
        self._native.nack(message, parse.seconds(delay))

    def nack_many(self, messages: Sequence[Message | MessageId], delay: Duration | None = None) -> None:
        """As :meth:`nack`, for several."""
        self._native.nack_many(messages, parse.seconds(delay))

    def redeliver_unacknowledged(self) -> None:
        """Wants all again that has been received and not been acknowledged."""
        self._ahead.clear()
        self._native.redeliver_unacknowledged()

    def seek(self, position: MessageId | Timestamp | str, *, inclusive: bool = False) -> None:
        """Moves the subscription; as :meth:`penstock.Consumer.seek`."""
        self._check()
        self._ahead.clear()
        self._native.seek(_native.seek_target(position), inclusive).wait()

    def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition."""
        self._check()
        return self._native.last_message_ids().wait()

    def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer."""
        self._check()
        self._native.unsubscribe().wait()
        self.close()

    def _leave(self, failed: bool) -> None:
        if self._open:
            self._open = False
            self._ahead.clear()
            self._native.close().wait()

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._native.close()

    def __repr__(self) -> str:
        return f"<penstock.blocking.Consumer {self._native.topic} {self._native.subscription!r}>"
