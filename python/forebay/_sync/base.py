# Generated from forebay/_aio/base.py by tools/generate_blocking.py; do not edit.
"""The verbs that every protocol has: :class:`Client`, :class:`Producer`, :class:`Consumer`.

:func:`forebay.blocking.connect` returns a subclass with the verbs of the URL's protocol. Use these classes to
annotate code that works with any of them. A verb or field that a protocol lacks does not exist on its class;
using one raises an error that is both :class:`forebay.errors.Unsupported` and ``AttributeError``.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from forebay._core import dataframes, parse
from forebay._core.metrics import text as metrics_text
from forebay._core.native import log_records_dropped
from forebay._core.protocols import M_co, P_contra
from forebay._sync.handle import ClientHandle, ConsumerHandle, ProducerHandle

if TYPE_CHECKING:
    from forebay._core.types import Duration, Size, Waiter
    from forebay._engine import FrameRoles, FrameRows


class Client(ClientHandle):
    """A connection to a service. Opens producers and consumers, which share it. Made by
    :func:`forebay.blocking.connect`."""

    @property
    def url(self) -> str:
        """The URL of the service, without its query."""
        return self._broker.url if self._broker else self._url

    def producer(self, topic: str, **options: Any) -> Producer:
        """Opens a producer.

        Args:
            topic: the topic to send to.
            options: of the protocol's producers; see its subclass.

        Raises:
            InvalidArgument: an unknown option or a bad value.
            Unsupported: an option of another protocol.
        """
        raise NotImplementedError

    def consumer(
        self, topic: str | Sequence[str], subscription: str | None = None, **options: Any
    ) -> Consumer:
        """Opens a consumer.

        Args:
            topic: one topic or several; topic filters with MQTT.
            subscription: name of the subscription (Pulsar), consumer group (TubeMQ) or shared subscription
                (MQTT, optional). Its members share the messages.
            options: of the protocol's consumers; see its subclass.

        Raises:
            InvalidArgument: an unknown option, a bad value, or no topic.
            Unsupported: an option of another protocol.
        """
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Counters of this client and of all producers and consumers that it has and had. They never fall,
        also over reconnects:

        * ``messages_sent``, ``bytes_sent``: messages that the broker has acknowledged, and their bytes; those
          of MQTT's QoS 0 when they were written.
        * ``messages_failed``: messages that failed.
        * ``send_latency_p50``, ``p90``, ``p99``, ``p999``: seconds from the send to the broker's answer that
          this share of messages did not exceed, ``None`` before the first. One message of a partition is
          measured at a time, ``send_latency_count`` of them so far, in ``send_latency_sum`` seconds. A value
          is at most a quarter too large.
        * ``messages_received``, ``bytes_received``: messages that were taken for the application, and the
          bytes of their payloads.
        * ``messages_acknowledged``, ``messages_refused``: acknowledgements and negative acknowledgements by
          the application, without those of ``auto_ack``; a cumulative one counts as one.
        * ``redelivered``: messages that the broker marks as delivered before.
        * ``connections_opened``, ``connections_closed``, ``connect_failures``, ``reconnects``,
          ``resubscribed``: see :meth:`events`.

        And the state now: :attr:`connected`, ``memory_used_bytes``, the bytes of messages without an answer,
        and what the protocol adds.
        """
        return self._native.stats()

    def metrics(self, **labels: object) -> str:
        """The counters of :meth:`stats` in the text format of Prometheus, for an endpoint of your own;
        its content type is ``text/plain; version=0.0.4``. The names begin with the protocol:
        ``pulsar_client_messages_published``. There is no label for a topic, so that their number does not
        grow.

        Args:
            labels: labels of every line, for example ``client="till-7"``.

        Raises:
            InvalidArgument: a name of a label that Prometheus does not take.
        """
        handles = list(self._children)
        producers = self._open_producers()
        consumers: list[Any] = [
            handle._native for handle in handles if isinstance(handle, ConsumerHandle) and handle._open
        ]
        sums = {
            "messages_pending": sum(native.pending for native in producers),
            "messages_prefetched": sum(native.stats()["messages_prefetched"] for native in consumers),
            "producers": len(producers),
            "consumers": len(consumers),
            "log_records_dropped": log_records_dropped(),
        }
        return metrics_text(self._defaults.protocol.key, {**self.stats(), **sums}, labels)

    def _open_producers(self) -> list[Any]:
        """The open producers of the engine."""
        handles = list(self._children)
        return [handle._native for handle in handles if isinstance(handle, ProducerHandle) and handle._open]

    def __repr__(self) -> str:
        return f"<forebay.blocking.{type(self).__name__} {self._url}>"


class Producer(ProducerHandle, Generic[P_contra]):
    """Sends to one topic. Made by :meth:`Client.producer`."""

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return self._native.topic

    @property
    def pending(self) -> int:
        """Number of messages that the broker has not answered."""
        return self._native.pending

    def stats(self) -> dict[str, Any]:
        """Counters of this producer, which never fall:

        * ``messages_sent``, ``bytes_sent``: messages that the broker has acknowledged, and their bytes; those
          of MQTT's QoS 0 when they were written.
        * ``messages_failed``: messages that failed.
        * ``send_latency_p50``, ``p90``, ``p99``, ``p999``: seconds from the send to the broker's answer that
          this share of messages did not exceed, ``None`` before the first. One message of a partition is
          measured at a time, ``send_latency_count`` of them so far, in ``send_latency_sum`` seconds. A value
          is at most a quarter too large.

        And the state now: ``messages_pending``, messages without an answer.
        """
        return self._native.stats()

    def send(self, payload: P_contra, *, properties: dict[str, str] | None = None) -> Any:
        """Sends a message. The payload is copied before this returns; the result comes when the broker has
        the message. An exception during the wait does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol.
            properties: user-defined metadata.

        Raises:
            QueueFull: the send window and its overflow queue are full.
            MessageTooLarge: the message is larger than the broker accepts.
            Closed: after :meth:`close`.
        """
        raise NotImplementedError

    def send_nowait(self, payload: P_contra, *, properties: dict[str, str] | None = None) -> None:
        """As :meth:`send`, without a result: the message is admitted, or this raises. :meth:`flush` waits for
        the broker and raises what went wrong.

        Raises:
            QueueFull: the send window is full; nothing is queued behind it.
            MessageTooLarge, Closed: as :meth:`send`.
        """
        raise NotImplementedError

    def send_many(self, payloads: Sequence[P_contra]) -> Sequence[Any]:
        """Sends many messages and wakes up once, when the broker has all of them: the fastest way to send
        payloads from Python. No more than the send window are in flight at a time.

        Returns:
            The results in the order of ``payloads``.
        """
        raise NotImplementedError

    def send_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        properties: str | None = None,
    ) -> Sequence[Any]:
        """Sends each row of a DataFrame as a message, without a Python object per row.

        Args:
            frame: anything with the Arrow PyCapsule interface: pyarrow, polars, pandas 2.2+, duckdb.
            value: column of the payloads (binary or text).
            encoding: ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row as an object of all
                columns. Default: ``"raw"`` if ``value`` is given.
            properties: column of maps, text to text.

        Returns:
            The results in the order of the rows.

        Raises:
            InvalidArgument: no such column, a type that does not fit, or no Arrow interface.
        """
        raise NotImplementedError

    def submit_many(self, payloads: Sequence[P_contra]) -> Waiter[Any]:
        """As :meth:`send_many`, without waiting: ``wait()`` of the result gives the results, and the next
        messages can be prepared meanwhile."""
        raise NotImplementedError

    def submit_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        properties: str | None = None,
    ) -> Waiter[Any]:
        """As :meth:`send_frame`, without waiting: ``wait()`` of the result gives the results."""
        raise NotImplementedError

    def _carried(self, context: dict[str, str]) -> dict[str, str]:
        """The part of a trace context that the properties of a message can carry."""
        return context

    def _encode_frame(self, frame: Any, roles: FrameRoles, encoding: str | None) -> FrameRows:
        """The rows of a frame, encoded and checked.

        Args:
            frame: anything with the Arrow PyCapsule interface.
            roles: the roles of its columns.
            encoding: as for :meth:`send_frame`.
        """
        return dataframes.outgoing(frame, roles, encoding)

    def submit_rows(self, rows: FrameRows) -> Waiter[Any]:
        """As :meth:`submit_frame`, for rows that :meth:`_encode_frame` has encoded."""
        self._check()
        return self._native.send_rows(rows)

    def __repr__(self) -> str:
        return f"<forebay.blocking.{type(self).__name__} {self._native.topic}>"


class Consumer(ConsumerHandle[M_co]):
    """Receives messages. Made by :meth:`Client.consumer`.

    Iterating over it is the usual way; an iteration may be left at any time and taken up again. The
    acknowledging verbs take effect at once.
    """

    @property
    def topic(self) -> str:
        """Full name of the topic; several are joined by commas."""
        return self._native.topic

    @property
    def subscription(self) -> str:
        """Name of the subscription or group."""
        return self._native.subscription

    def receive_many(self, max: int = 1000, timeout: Duration | None = None) -> list[M_co]:
        """The messages that have arrived, up to ``max``; if there is no message, waits for one.

        Args:
            max: maximum number of messages.
            timeout: longest wait in seconds for the first message; after it the list is empty. No limit by
                default.
        """
        self._check()
        return self._native.receive_many(max, parse.seconds(timeout)).wait()

    def receive_batch(
        self, max: int = 1000, *, max_bytes: Size | None = None, timeout: Duration | None = 1.0
    ) -> list[M_co]:
        """Waits for a batch of messages: until ``max`` messages or ``max_bytes`` of payload have arrived, or
        the time is over. :meth:`receive_many` does not wait for more than one.

        Args:
            max: number of messages of a full batch.
            max_bytes: size of a full batch in bytes, or text such as ``"1MiB"``; a batch has more only if
                its one message has. No limit by default.
            timeout: longest wait in seconds; after it the batch has what has arrived, perhaps nothing.
                ``None`` is no limit.

        Raises:
            ValueError: a limit of 0.
        """
        self._check()
        size = parse.bytes_of(max_bytes, "max_bytes")
        return self._native.receive_batch(max, size, parse.seconds(timeout)).wait()

    def read_frame(self, max_rows: int = 10_000, timeout: Duration | None = 1.0) -> Any:
        """Messages as an Arrow table, without a Python object per message. Rows cannot be acknowledged one by
        one.

        All protocols have the columns ``value`` (binary), ``topic`` and ``properties``. Pulsar adds ``key``,
        ``message_id``, ``publish_time``, ``event_time`` and ``redelivery_count``; MQTT ``qos``, ``retain``,
        ``received_time`` and ``content_type`` (subscribe with ``auto_ack=True`` there); TubeMQ ``key``,
        ``message_type``, ``event_time``, ``broker_id``, ``partition`` and ``offset``.

        Args:
            max_rows: returns when the table has this many rows ...
            timeout: ... or after this many seconds, with the rows so far. ``None`` waits for ``max_rows``.

        Returns:
            A ``pyarrow.Table``; without pyarrow an object with the Arrow PyCapsule interface.
        """
        self._check()
        return dataframes.incoming(self._native.read_arrow(max_rows, parse.seconds(timeout)).wait())

    def ack(self, message: M_co) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        """Acknowledges a message."""
        self._native.ack(message)

    def ack_many(self, messages: Sequence[M_co]) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        """Acknowledges each of the messages."""
        self._native.ack_many(messages)

    def stats(self) -> dict[str, Any]:
        """Counters of this consumer, which never fall:

        * ``messages_received``, ``bytes_received``: messages that were taken for the application, and the
          bytes of their payloads.
        * ``messages_acknowledged``, ``messages_refused``: acknowledgements and negative acknowledgements by
          the application, without those of ``auto_ack``; a cumulative one counts as one.
        * ``redelivered``: messages that the broker marks as delivered before.

        And the state now: ``messages_prefetched``, messages that were taken for the application and
        wait for it.
        """
        self._check()
        return self._native.stats()

    def _lane(self, message: M_co) -> Hashable:  # pyright: ignore[reportGeneralTypeIssues]
        """The lane of a message: those in one are processed one after the other."""
        return message.topic

    def _refuse(self, message: M_co) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        """Tells the broker that a message was not processed, where a protocol has a word for it. Where it
        has none, a message without an acknowledgement would hold up those behind it."""
        self._native.ack(message)

    def _hand_back(self, messages: Sequence[M_co]) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        """Gives up messages that were received and will not be processed."""

    def unsubscribe(self) -> None:
        """Ends the subscription at the broker and closes this consumer."""
        self._check()
        self._native.unsubscribe().wait()
        self.close()

    def __repr__(self) -> str:
        return f"<forebay.blocking.{type(self).__name__} {self._native.topic} {self._native.subscription!r}>"
