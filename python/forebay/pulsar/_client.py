"""Pulsar on asyncio: :class:`PulsarClient`, :class:`PulsarProducer`, :class:`PulsarConsumer`.

Options are checked once, when a handle is opened; after that a call goes straight to the native module.
Results are real futures of asyncio; ``forebay/_sync/pulsar/client.py`` is generated from this file.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, Unpack, overload

from forebay._aio.base import Client, Consumer
from forebay._aio.handle import Opening
from forebay._aio.open_handle import opening
from forebay._core import dataframes, parse
from forebay._core.native import PulsarMessage
from forebay._core.options import default, given
from forebay.errors import InvalidArgument
from forebay.pulsar._intercepted import InterceptedConsumer, InterceptedProducer
from forebay.pulsar._patterns import OF_PATTERNS, pattern_parts, refuse_patterns, refuse_without_effect
from forebay.pulsar._positions import ReaderStart, reader_name, reader_start, seek_target, seek_targets
from forebay.pulsar._producer import PulsarProducer as PulsarProducer
from forebay.pulsar._routing import check_producer
from forebay.pulsar._typing import T, T_co, T_contra

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Buffer

    from forebay._core.types import Duration, Pem, Secret, Size, Timestamp
    from forebay._engine import MessageId
    from forebay.broker import Broker
    from forebay.pulsar._interceptors import ConsumerInterceptor, ProducerInterceptor
    from forebay.pulsar._option_forms import SchemaOption, Start
    from forebay.pulsar._options import (
        ConsumerOptionsButSchema,
        ProducerOptionsButSchema,
        PulsarConsumerOptions,
        PulsarProducerOptions,
    )
    from forebay.pulsar._policies import Backoff, DeadLetterPolicy, KeySharedPolicy
    from forebay.pulsar._routing import Router
    from forebay.pulsar._schema import Schema, StoredSchema
    from forebay.pulsar._table_view import PulsarTableView


V = TypeVar("V")

_OF_THE_FACE = ("ack_receipt", "interceptors", "router")


def _payload(message: PulsarMessage) -> bytes:
    return message.data


def _value(message: PulsarMessage) -> Any:
    return message.value


def connect(
    url: str | None = None,
    *,
    # options: pulsar.client
    token: Secret = default(None),
    tls_ca: Pem = default(None),
    connect_timeout: Duration = default(10.0),
    operation_timeout: Duration = default(30.0),
    keep_alive: Duration = default(30.0),
    max_backoff: Duration = default(60.0),
    memory_limit: Size = default(64 << 20),
    listener_name: str = default(None),
    lookup_properties: Mapping[str, str] = default(None),
    connections_per_broker: int = default(1),
    username: str = default(None),
    password: Secret = default(None),
    basic_method: str = default(None),
    tls_cert: Pem = default(None),
    retry_first: bool | Duration = default(False),
    tls_key: Pem = default(None),
    tls_pin: str | Sequence[str] = default(None),
    tls_server_name: str = default(None),
    tls_skip_hostname_check: bool = default(False),
    threads: int = default(1),
    # end of options
    **unknown: Never,
) -> Opening[PulsarClient]:
    """Connects to Pulsar; as :func:`forebay.connect`, with the types of Pulsar.

    Args:
        url: ``pulsar://host:6650[,host:6650]``, ``pulsar+ssl://...`` or ``embedded:[folder]``; ``http://host:8080``
            or ``https://...`` to look topics up at the brokers' web service.
        options: see :class:`forebay.pulsar.PulsarClientOptions`.

    Raises:
        InvalidArgument: an unknown option, a bad value, or a URL of another protocol, at once.
        Unsupported: an option of another protocol, at once.
        ConnectFailed, AuthenticationError: as :func:`forebay.connect` (when awaited).
    """
    return opening(url, given(locals(), "url"), "pulsar")


class PulsarClient(Client):
    """A client of a Pulsar service. Made by :func:`forebay.connect` with ``pulsar://``, ``pulsar+ssl://``,
    ``http://``, ``https://`` or ``embedded:``."""

    @property
    def broker(self) -> Broker | None:
        """The broker of an ``embedded:`` URL; ``None`` for others."""
        return self._broker

    def stats(self) -> dict[str, Any]:
        """Counters of this client: those of :meth:`forebay.Client.stats`, and:

        * ``dead_letters``, ``dead_letters_failed``, ``retried``: messages that its consumers have sent to
          dead letter topics, attempts to do so that failed, and messages sent to topics of retries.
        * ``lookups``: lookups of brokers, partitions, schemas and lists of topics, each with its repetitions;
          ``lookups_failed`` of them failed. ``lookup_latency_p50``, ``p90``, ``p99``, ``p999``,
          ``lookup_latency_count`` and ``lookup_latency_sum`` are seconds of the others.
        * ``unreadable_entries``: entries that could not be read.
        * ``ended_topics``: topics that ended while their consumer went on with others.
        """
        return super().stats()

    @overload
    def producer(
        self, topic: str, **options: Unpack[ProducerOptionsButSchema]
    ) -> Opening[PulsarProducer[Buffer]]: ...
    @overload
    def producer(
        self, topic: str, *, schema: type[T] | Schema[T], **options: Unpack[ProducerOptionsButSchema]
    ) -> Opening[PulsarProducer[T]]: ...
    @overload
    def producer(
        self, topic: str, **options: Unpack[PulsarProducerOptions]
    ) -> Opening[PulsarProducer[Any]]: ...
    def producer(
        self,
        topic: str,
        *,
        # options: pulsar.producer
        name: str = default(None),
        compression: Literal["none", "lz4", "zlib", "zstd", "snappy"] = default("none"),
        send_timeout: Duration = default(30.0),
        schema: SchemaOption = default(None),
        batching: bool = default(True),
        batch_max_messages: int = default(1000),
        batch_max_bytes: Size = default(128 << 10),
        batching_delay: Duration = default(0.001),
        key_based_batching: bool = default(False),
        stop_on_refusal: bool = default(False),
        compression_min_size: Size = default(0),
        max_pending: int = default(1000),
        hashing: Literal["java", "murmur3", "boost"] = default("java"),
        routing: Literal["round_robin", "single", "partial_round_robin"] = default("round_robin"),
        initial_sequence_id: int = default(None),
        access_mode: Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"] = default(
            "shared"
        ),
        chunking: bool = default(False),
        chunk_max_size: Size = default(None),
        lazy_start: bool = default(False),
        properties: Mapping[str, str] = default(None),
        partitions_update_interval: Duration = default(60.0),
        routing_partitions: int = default(None),
        router: Router = default(None),
        interceptors: ProducerInterceptor | Sequence[ProducerInterceptor] = default(None),
        # end of options
        **unknown: Any,
    ) -> Opening[PulsarProducer[Any]]:
        """Opens a producer.

        Args:
            topic: ``"orders"`` or ``"persistent://tenant/namespace/orders"``, partitioned or not.
            options: see :class:`forebay.pulsar.PulsarProducerOptions`.

        Raises:
            InvalidArgument: an unknown option, a bad value, or options that exclude each other, at once.
            InvalidTopic: the name contains ``*`` or ``.+``, as a pattern does, at once.
            Unsupported: an option of another protocol, at once.
            ProducerBusy: another producer has the name, or exclusive access (when awaited).
            TopicNotFound: the topic does not exist and is not created on first use (when awaited).
            IncompatibleSchema: the topic has a schema that this one may not follow; shows both (when
                awaited).
        """
        options = given(locals(), "self", "topic")
        values = self._defaults.resolve("producer", options)
        check_producer(values)
        refuse_patterns([parse.topic_name(topic)])
        return Opening(lambda: self._open_producer(topic, values))

    async def _open_producer(self, topic: str, values: dict[str, Any]) -> PulsarProducer[Any]:
        self._check()
        wanted = {name: value for name, value in values.items() if name not in _OF_THE_FACE}
        native = await self._native.producer(topic, wanted)
        chain, router = values.get("interceptors"), values.get("router")
        if chain or router:
            return PulsarInterceptedProducer(native, self, chain or (), router)
        return PulsarProducer(native, self)

    @overload
    def consumer(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str | None = None,
        **options: Unpack[ConsumerOptionsButSchema],
    ) -> Opening[PulsarConsumer[bytes]]: ...
    @overload
    def consumer(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str | None = None,
        *,
        schema: type[T] | Schema[T],
        **options: Unpack[ConsumerOptionsButSchema],
    ) -> Opening[PulsarConsumer[T]]: ...
    @overload
    def consumer(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str | None = None,
        **options: Unpack[PulsarConsumerOptions],
    ) -> Opening[PulsarConsumer[Any]]: ...
    def consumer(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str | None = None,
        *,
        # options: pulsar.consumer
        type: Literal["exclusive", "shared", "failover", "key_shared"] = default("exclusive"),
        position: Start = default("latest"),
        dead_letter: DeadLetterPolicy = default(None),
        schema: SchemaOption = default(None),
        start_inclusive: bool = default(False),
        durable: bool = default(True),
        receiver_queue: int = default(1000),
        receive_buffer: Size = default(16 << 20),
        batch_index_ack: bool = default(True),
        max_chunked_message: Size = default(128 << 20),
        max_pending_chunked_messages: int = default(10),
        chunked_message_timeout: Duration = default(60.0),
        ack_incomplete_chunks: bool = default(False),
        unreadable: Literal["skip", "fail", "discard"] = default("skip"),
        ack_group_time: Duration = default(0.1),
        nack_delay: Duration | Backoff = default(60.0),
        ack_timeout: Duration | Backoff = default(None),
        key_shared: KeySharedPolicy = default(None),
        name: str = default(None),
        priority: int = default(0),
        read_compacted: bool = default(False),
        properties: Mapping[str, str] = default(None),
        subscription_properties: Mapping[str, str] = default(None),
        partitions_update_interval: Duration = default(60.0),
        pattern_update_interval: Duration = default(60.0),
        pattern_max_topics: int = default(10_000),
        ack_receipt: bool = default(False),
        topics_domain: Literal["persistent", "non-persistent", "all"] = default(None),
        interceptors: ConsumerInterceptor | Sequence[ConsumerInterceptor] = default(None),
        # end of options
        **unknown: Any,
    ) -> Opening[PulsarConsumer[Any]]:
        """Subscribes.

        Args:
            topic: one topic or several; or a pattern, ``re.compile("persistent://public/default/orders-.*")``,
                for all topics of its namespace that it matches, now and later.
            subscription: its name, which Pulsar requires. Consumers with the same name share the messages as
                the option ``type`` says.
            options: see :class:`forebay.pulsar.PulsarConsumerOptions`.

        Raises:
            InvalidArgument: an unknown option, a bad value, no topic or no subscription, at once; a pattern
                that brokers cannot evaluate, with the position in it (when awaited).
            InvalidTopic: a name contains ``*`` or ``.+``, as a pattern does, at once.
            Unsupported: an option of another protocol, at once.
            ConsumerBusy: the subscription has an exclusive consumer (when awaited).
            IncompatibleSchema: the schema cannot read what the topic has; shows both (when awaited).
            NotAllowed: a pattern matches more than ``pattern_max_topics`` (when awaited).
        """
        options = given(locals(), "self", "topic", "subscription")
        values = self._defaults.resolve("consumer", options)
        if isinstance(topic, re.Pattern):
            topics = pattern_parts(topic)
        else:
            topics = parse.topic_names(topic)
            refuse_patterns(topics)
            refuse_without_effect("a consumer without a pattern", options, OF_PATTERNS)
        if values["read_compacted"] and values["type"] in ("shared", "key_shared"):
            raise InvalidArgument("read_compacted is for exclusive and failover subscriptions")
        group = parse.group_name(subscription)
        if not topics or not group:
            raise InvalidArgument("a consumer needs at least one topic and the name of a subscription")
        return Opening(lambda: self._open_consumer(topics, group, values))

    async def _open_consumer(
        self, topics: list[str] | tuple[str, str], subscription: str, values: dict[str, Any]
    ) -> PulsarConsumer[Any]:
        self._check()
        # The options stay as they are: an opening may be awaited again after a failure.
        wanted = {name: value for name, value in values.items() if name not in _OF_THE_FACE}
        if isinstance(topics, tuple):
            native = await self._native.pattern_consumer(*topics, subscription, wanted)
        else:
            native = await self._native.consumer(topics, subscription, wanted)
        chain, receipt = values.get("interceptors"), values["ack_receipt"]
        consumer = (
            PulsarInterceptedConsumer(native, self, receipt, chain)
            if chain
            else PulsarConsumer(native, self, receipt)
        )
        consumer._one_by_one = values["type"] in ("shared", "key_shared")
        return consumer

    @overload
    def reader(
        self,
        topic: str | Sequence[str],
        *,
        subscription: str | None = None,
        **options: Unpack[ConsumerOptionsButSchema],
    ) -> Opening[PulsarConsumer[bytes]]: ...
    @overload
    def reader(
        self,
        topic: str | Sequence[str],
        *,
        schema: type[T] | Schema[T],
        subscription: str | None = None,
        **options: Unpack[ConsumerOptionsButSchema],
    ) -> Opening[PulsarConsumer[T]]: ...
    @overload
    def reader(
        self,
        topic: str | Sequence[str],
        *,
        subscription: str | None = None,
        **options: Unpack[PulsarConsumerOptions],
    ) -> Opening[PulsarConsumer[Any]]: ...
    def reader(
        self,
        topic: str | Sequence[str],
        *,
        subscription: str | None = None,
        # options: pulsar.consumer but durable
        type: Literal["exclusive", "shared", "failover", "key_shared"] = default("exclusive"),
        position: Start = default("latest"),
        dead_letter: DeadLetterPolicy = default(None),
        schema: SchemaOption = default(None),
        start_inclusive: bool = default(False),
        receiver_queue: int = default(1000),
        receive_buffer: Size = default(16 << 20),
        batch_index_ack: bool = default(True),
        max_chunked_message: Size = default(128 << 20),
        max_pending_chunked_messages: int = default(10),
        chunked_message_timeout: Duration = default(60.0),
        ack_incomplete_chunks: bool = default(False),
        unreadable: Literal["skip", "fail", "discard"] = default("skip"),
        ack_group_time: Duration = default(0.1),
        nack_delay: Duration | Backoff = default(60.0),
        ack_timeout: Duration | Backoff = default(None),
        key_shared: KeySharedPolicy = default(None),
        name: str = default(None),
        priority: int = default(0),
        read_compacted: bool = default(False),
        properties: Mapping[str, str] = default(None),
        subscription_properties: Mapping[str, str] = default(None),
        partitions_update_interval: Duration = default(60.0),
        pattern_update_interval: Duration = default(60.0),
        pattern_max_topics: int = default(10_000),
        ack_receipt: bool = default(False),
        topics_domain: Literal["persistent", "non-persistent", "all"] = default(None),
        interceptors: ConsumerInterceptor | Sequence[ConsumerInterceptor] = default(None),
        # end of options
        **unknown: Any,
    ) -> Opening[PulsarConsumer[Any]]:
        """Reads a topic without leaving a subscription behind. Nothing needs to be acknowledged.

        Args:
            topic: one topic or several.
            subscription: name of the subscription; a unique one by default.
            options: as for :meth:`consumer`. ``position`` is where reading begins: ``"latest"`` (the
                default), ``"earliest"``, a message id, a time (aware ``datetime``, milliseconds since 1970,
                or ISO 8601 with a zone), or a duration back (``timedelta`` or text such as ``"2h"``). For
                several partitions a mapping from their topics to message ids, or a list of ids; a partition
                without one is read from its beginning. With ``start_inclusive`` the messages of the ids
                are read, too.

        Raises:
            InvalidArgument: an unknown option, a bad value or no position, at once. An id of a partition that
                is not read (when awaited).
            InvalidTopic: a name contains ``*`` or ``.+``, at once: a reader takes no patterns.
        """
        options = given(locals(), "self", "topic", "subscription")
        refuse_without_effect("a reader", options, ("durable", *OF_PATTERNS))
        options["durable"] = False
        start = reader_start(options.get("position"))
        if start:
            # Nothing is passed over, should the connection be lost before the reader is moved.
            options["position"] = "earliest"
        values = self._defaults.resolve("consumer", options)
        topics = parse.topic_names(topic)
        if not topics:
            raise InvalidArgument("a reader needs at least one topic")
        refuse_patterns(topics)
        name = parse.group_name(subscription) or reader_name()
        return Opening(lambda: self._open_reader(topics, name, values, start))

    async def _open_reader(
        self, topics: list[str], subscription: str, values: dict[str, Any], start: ReaderStart | None
    ) -> PulsarConsumer[Any]:
        inclusive = values["start_inclusive"]
        wanted = {**values, "start_inclusive": False} if start else values
        reader = await self._open_consumer(topics, subscription, wanted)
        try:
            for target in start.targets() if start else ():
                await reader.seek(target, inclusive=inclusive)
        except BaseException:
            await reader.close()
            raise
        return reader

    @overload
    def table_view(
        self, topic: str, *, subscription: str | None = None, **options: Unpack[ConsumerOptionsButSchema]
    ) -> Opening[PulsarTableView[bytes]]: ...
    @overload
    def table_view(
        self,
        topic: str,
        *,
        schema: type[T] | Schema[T],
        subscription: str | None = None,
        **options: Unpack[ConsumerOptionsButSchema],
    ) -> Opening[PulsarTableView[T]]: ...
    @overload
    def table_view(
        self,
        topic: str,
        *,
        value: Callable[[PulsarMessage[Any]], V],
        subscription: str | None = None,
        **options: Unpack[PulsarConsumerOptions],
    ) -> Opening[PulsarTableView[V]]: ...
    @overload
    def table_view(
        self, topic: str, *, subscription: str | None = None, **options: Unpack[PulsarConsumerOptions]
    ) -> Opening[PulsarTableView[Any]]: ...
    def table_view(
        self,
        topic: str,
        *,
        value: Callable[[PulsarMessage[Any]], Any] | None = None,
        subscription: str | None = None,
        # options: pulsar.consumer of a table view
        schema: SchemaOption = default(None),
        receiver_queue: int = default(1000),
        receive_buffer: Size = default(16 << 20),
        max_chunked_message: Size = default(128 << 20),
        max_pending_chunked_messages: int = default(10),
        chunked_message_timeout: Duration = default(60.0),
        ack_incomplete_chunks: bool = default(False),
        unreadable: Literal["skip", "fail", "discard"] = default("fail"),
        key_shared: KeySharedPolicy = default(None),
        name: str = default(None),
        read_compacted: bool = default(True),
        properties: Mapping[str, str] = default(None),
        partitions_update_interval: Duration = default(60.0),
        pattern_update_interval: Duration = default(60.0),
        pattern_max_topics: int = default(10_000),
        topics_domain: Literal["persistent", "non-persistent", "all"] = default(None),
        interceptors: ConsumerInterceptor | Sequence[ConsumerInterceptor] = default(None),
        # end of options
        **unknown: Any,
    ) -> Opening[PulsarTableView[Any]]:
        """Reads a topic into a table of the last value of each key, and keeps it up to date. An empty payload
        deletes its key; messages without a key are passed over. The view is open when it has everything that
        the topic had before. Compact the topic, so that opening a view does not read all of its history.

        Args:
            topic: the topic, partitioned or not.
            value: makes the value of its message; by default ``message.value`` with a schema, else the
                payload as ``bytes``.
            subscription: name of the reader's subscription; a unique one by default.
            options: as for :meth:`reader`, without those that have no meaning here. ``read_compacted`` is
                true by default, and ``unreadable`` is ``"fail"``: an entry that cannot be read ends the view.

        Raises:
            InvalidArgument: an unknown option, a bad value, or an option without a meaning here, at once.
            InvalidTopic: the name contains ``*`` or ``.+``, at once.
            Timeout: nothing was read for 30 seconds, and messages are missing (when awaited).
        """
        options = given(locals(), "self", "topic", "value", "subscription")
        for name in unknown.keys() & self._defaults.protocol.tables["consumer"].keys():
            raise InvalidArgument(f"a table view has no option {name!r}: it reads the whole topic")
        if value is not None and not callable(value):
            raise InvalidArgument(f"table_view: 'value': expected a function, not {value!r}")
        options.setdefault("unreadable", "fail")
        persistent = not parse.topic_name(topic).startswith("non-persistent:")
        options.setdefault("read_compacted", persistent)
        options["durable"] = False
        options["position"] = "earliest"
        values = self._defaults.resolve("consumer", options)
        refuse_patterns([topic])
        name = parse.group_name(subscription) or reader_name()
        of = value or (_value if values.get("schema") else _payload)
        return Opening(lambda: self._open_table_view(topic, name, values, of, persistent))

    async def _open_table_view(
        self,
        topic: str,
        subscription: str,
        values: dict[str, Any],
        value: Callable[[PulsarMessage], Any],
        persistent: bool,
    ) -> PulsarTableView[Any]:
        from forebay.pulsar._table_view import PulsarTableView

        reader = await self._open_consumer([topic], subscription, values)
        view = PulsarTableView(reader, self, value)
        try:
            if persistent:
                await view.refresh()
        except BaseException:
            await view.close()
            raise
        return view

    async def partitions(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if it is not partitioned."""
        self._check()
        return await self._native.partitions(topic)

    async def schema(self, topic: str, version: bytes | None = None) -> StoredSchema:
        """The schema of a topic.

        Args:
            topic: the topic.
            version: the ``schema_version`` of a message; the latest by default.

        Raises:
            TopicNotFound: the topic has no schema, or not this version.
        """
        from forebay.pulsar._schema import StoredSchema

        self._check()
        return StoredSchema(*await self._native.schema(topic, version))

    async def topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the topics of a namespace."""
        self._check()
        return await self._native.topics(namespace)


class PulsarConsumer(Consumer[PulsarMessage[T_co]]):
    """Receives from a subscription. Made by :meth:`PulsarClient.consumer`. ``PulsarConsumer[Order]`` has
    messages with values of a schema.

    Iterating over it is the usual way; an iteration may be left at any time and taken up again. The
    acknowledging verbs take effect at once; with ``ack_receipt=True`` their result is the broker's
    confirmation.
    """

    _one_by_one = False
    """Whether the broker delivers single messages again."""

    def __init__(self, native: Any, client: PulsarClient, ack_receipt: bool) -> None:
        super().__init__(native, client)
        self._ack_receipt = ack_receipt

    async def read_frame(
        self,
        max_rows: int = 10_000,
        timeout: Duration | None = 1.0,
        *,
        decode: bool = True,
        on_error: Literal["raise", "null"] = "raise",
    ) -> Any:
        """As :meth:`forebay.Consumer.read_frame`. With a schema the column ``value`` has its values: structs
        for records and for pairs. Data of all versions become values of the consumer's schema; with
        ``schema="auto"``, of the newest one that the rows have.

        Args:
            max_rows, timeout: rows, and seconds to wait for them, as there.
            decode: false leaves the payloads as they are, in a binary column.
            on_error: ``"raise"``, or ``"null"`` for the value null where a payload cannot be decoded.

        Raises:
            SchemaError, IncompatibleSchema: a payload cannot be decoded; names its message. All rows are
                received again.
            Unsupported: unions of several types and records inside of themselves cannot be columns.
        """
        self._check()
        if on_error not in ("raise", "null"):
            raise InvalidArgument(f"on_error is {on_error!r}: use 'raise' or 'null'")
        if decode not in (True, False):
            raise InvalidArgument(f"decode is {decode!r}: True for the schema's values, or False")
        batch = await self._native.read_arrow(max_rows, parse.seconds(timeout))
        if decode:
            batch = self._native.decode_arrow(batch, on_error == "null")
        return dataframes.incoming(batch)

    def ack(self, message: PulsarMessage | MessageId) -> Awaitable[None]:
        """Acknowledges a message."""
        if self._ack_receipt:
            return self._native.ack_receipt([message], False)
        self._native.ack(message)
        return self._done

    def ack_many(self, messages: Sequence[PulsarMessage | MessageId]) -> Awaitable[None]:
        """Acknowledges each of the messages."""
        if self._ack_receipt:
            return self._native.ack_receipt(messages, False)
        self._native.ack_many(messages)
        return self._done

    def ack_cumulative(self, message: PulsarMessage | MessageId) -> Awaitable[None]:
        """Acknowledges a message and all before it in its partition.

        Raises:
            NotAllowed: on Shared and Key_Shared subscriptions.
        """
        if self._ack_receipt:
            return self._native.ack_receipt([message], True)
        self._native.ack_cumulative(message)
        return self._done

    def nack(self, message: PulsarMessage | MessageId, delay: Duration | None = None) -> Awaitable[None]:
        """Has a message delivered again.

        Args:
            message: the message or its id.
            delay: seconds until then; the option ``nack_delay`` by default.
        """
        self._native.nack(message, parse.seconds(delay, "delay"))
        return self._done

    def nack_many(
        self, messages: Sequence[PulsarMessage | MessageId], delay: Duration | None = None
    ) -> Awaitable[None]:
        """As :meth:`nack`, for several messages."""
        self._native.nack_many(messages, parse.seconds(delay, "delay"))
        return self._done

    async def reconsume_later(
        self, message: PulsarMessage, delay: Duration, properties: dict[str, str] | None = None
    ) -> None:
        """Sends a message to the topic of retries, from which it is delivered again after ``delay``, and
        acknowledges it. One that has been there ``max_redeliveries`` times is sent to the dead letter topic
        instead. Needs ``dead_letter=DeadLetterPolicy(..., retry=True)``.

        Args:
            message: the message.
            delay: seconds until then. Shared and Key_Shared subscriptions only: others deliver it at once.
            properties: properties to add to those of the message.

        Raises:
            NotAllowed: the consumer has no topic of retries.
            Error: the message could not be sent. It is delivered again after ``nack_delay``.
        """
        self._check()
        seconds = parse.seconds(delay, "delay") or 0.0
        await self._native.reconsume_later(message, seconds, properties, self._ack_receipt)

    def pause(self) -> None:
        """Stops asking the broker for messages. What was asked for before still comes: at most
        ``receiver_queue`` messages for each partition. Connection and subscription stay; other consumers of a
        Shared subscription get what this one does not ask for.

        Raises:
            Closed: the consumer is closed.
        """
        self._check()
        self._native.set_paused(True)

    def resume(self) -> None:
        """Asks for messages again after :meth:`pause`; errors as there."""
        self._check()
        self._native.set_paused(False)

    def redeliver_unacknowledged(self) -> Awaitable[None]:
        """Has every message delivered again that was received and not acknowledged."""
        self._native.redeliver_unacknowledged()
        return self._done

    def seek(
        self,
        position: MessageId
        | Timestamp
        | timedelta
        | str
        | Callable[[str], MessageId | Timestamp | timedelta | str | None],
        *,
        inclusive: bool = False,
    ) -> Awaitable[None]:
        """Moves the subscription. All partitions move at the same time. If some cannot be moved, the others
        have been, and the error says how many have not.

        Args:
            position: a message id, ``"earliest"``, ``"latest"``, a time (aware ``datetime``, milliseconds
                since 1970, or ISO 8601 with a zone), or a duration back (``timedelta`` or text such as
                ``"2h"``). Or a function that gives one of these for the full topic name of each partition,
                or ``None`` to leave that where it is. It is called for all of them before any is moved.
            inclusive: with a message id: delivers that message as well.

        Raises:
            InvalidArgument: not a position, or a message of another partition: nothing has moved.
        """
        self._check()
        if callable(position):
            positions = seek_targets(self._native.partition_topics(), position)
            return self._native.seek_each(positions, inclusive)
        return self._native.seek(seek_target(position), inclusive)

    def stats(self) -> dict[str, Any]:
        """Counters of this consumer since it was opened: those of :meth:`forebay.Consumer.stats`, and:

        * ``redelivered``: messages that came again; brokers count this on Shared and Key_Shared
          subscriptions only.
        * ``ack_timeouts``: messages that were not acknowledged within ``ack_timeout``.
        * ``dead_letters``: messages that were sent to the dead letter topic.
        * ``dead_letters_failed``: attempts to do so that failed; the message was delivered again.
        * ``retried``: messages that were sent to the topic of retries.
        * ``orphaned_chunks``: chunks that were acknowledged because the beginning of their message is gone.
        * ``dropped_chunked_messages``: incomplete chunked messages that were given up because there were too
          many, or because a chunk of theirs is missing.
        * ``expired_chunked_messages``: those that were given up after ``chunked_message_timeout``.
        """
        self._check()
        return self._native.stats()

    async def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition, with its topic. The entry of an id is -1 where there is
        no message."""
        self._check()
        return await self._native.last_message_ids()

    @property
    def interceptor_errors(self) -> int:
        """Number of calls of interceptors that raised."""
        return 0

    def _lane(self, message: PulsarMessage) -> Hashable:
        return message.ordering_key or message.key or message.topic

    def _refuse(self, message: PulsarMessage) -> None:
        self._native.nack(message, None)

    def _hand_back(self, messages: Sequence[PulsarMessage]) -> None:
        if self._one_by_one:
            self._native.nack_many(messages, 0.0)
        else:
            # Also what was fetched behind them, so that the order stays.
            self._native.redeliver_unacknowledged()

    async def has_message_available(self) -> bool:
        """Whether there is something to receive: messages that have arrived, or messages of a topic behind
        the last one that was received. Before the first one and after a seek, the position counts. Messages
        that other consumers of the subscription got count, too; those that are to come again do not."""
        self._check()
        return await self._native.has_message_available()

    @property
    def is_active(self) -> bool:
        """Whether this consumer is served in all partitions. On a Failover subscription one consumer of each
        partition is, as the broker has told; other types serve all. A partition without a connection is not
        served on a Failover subscription."""
        self._check()
        return self._native.is_active

    async def active_change(self) -> tuple[str, bool]:
        """Waits for the next change on a Failover subscription: the full topic name of a partition, and
        whether this consumer is its active one now. Changes wait until they are asked for, the latest of each
        partition; so the first calls tell the state at the beginning.

        Raises:
            Closed: the consumer was closed.
        """
        self._check()
        return await self._native.active_change()

    @property
    def reached_end(self) -> bool:
        """Whether every topic was terminated and every message acknowledged. Iterating ends then, and
        :meth:`receive` raises :class:`forebay.errors.EndOfTopic`. A seek to earlier messages begins again.
        A reader reaches the end when it acknowledges what it has read."""
        self._check()
        return self._native.reached_end

    async def wait_for_end(self) -> None:
        """Waits until :attr:`reached_end` is true.

        Raises:
            Closed: the consumer was closed.
        """
        self._check()
        await self._native.wait_for_end()

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Deletes the subscription and closes this consumer. If it has several partitions and some cannot be
        reached, it is deleted in the others, and the consumer stays open.

        Args:
            force: deletes it also if it has other consumers, which the broker disconnects. Those that are
                open subscribe again and create a new one: close them first.

        Raises:
            MetadataError: there are other consumers, and ``force`` is false.
        """
        self._check()
        if force:
            await self._native.unsubscribe_by_force()
        else:
            await self._native.unsubscribe()
        await self.close()


# pyright looks for the other keywords of `send` among those of each of its overloads.
class PulsarInterceptedProducer(  # pyright: ignore[reportIncompatibleMethodOverride]
    InterceptedProducer, PulsarProducer[T_contra]
):
    """A producer with interceptors."""


class PulsarInterceptedConsumer(InterceptedConsumer, PulsarConsumer[T_co]):
    """A consumer with interceptors."""
