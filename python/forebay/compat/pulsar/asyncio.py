"""The interface of ``pulsar.asyncio``."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from forebay import errors

from . import _options, exceptions
from ._checks import check_type
from ._client import Client as _Blocking
from ._client import partition_names, producer_check, reader_subscription
from ._consumer import last_id
from ._crypto import CryptoKeyReader
from ._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    Result,
)
from ._ids import MessageId, identify
from ._messages import Message, receive
from ._policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from ._producer import Router, fields, routed
from ._receiver import is_position, seek_target, target, whole_entry
from .schema.schema import BytesSchema, Schema

if TYPE_CHECKING:
    from forebay._engine import Loop, PulsarClient, PulsarConsumer, PulsarProducer


class PulsarException(exceptions.PulsarException):
    """An operation failed.

    Args:
        result: the outcome.
        msg: what happened.
    """

    def __init__(self, result: Result, msg: str | None = None) -> None:
        super().__init__(result, msg)
        self._result, self._msg = result, msg

    def error(self) -> Result:
        """The outcome."""
        return self._result

    def __str__(self) -> str:
        text = f"{self._result.value} {self._result.name}"
        return f"{text}: {self._msg}" if self._msg else text


def _raised(error: errors.Error) -> PulsarException:
    return PulsarException(exceptions.result_of(error), str(error))


def _of_id(error: errors.Error) -> PulsarException:
    return PulsarException(exceptions.result_of_id(error), str(error))


def _expect_text(name: str, value: object) -> None:
    """As the official module, which checks only here."""
    if not isinstance(value, str):
        raise TypeError(f"Argument {name} is expected to be of type 'str' and not '{type(value).__name__}'")


async def _done(pending: Any) -> Any:
    """The result of an operation of the engine."""
    try:
        return await pending
    except errors.Error as error:
        raise _raised(error) from None


class _Handle:
    """A producer, consumer or reader of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = True

    def _check(self) -> None:
        if self._is_elsewhere():
            raise PulsarException(
                Result.AlreadyClosed, f"this {type(self).__name__.lower()} belongs to another event loop"
            )

    def _is_elsewhere(self) -> bool:
        return asyncio.get_running_loop() is not self._loop

    async def _end(self, native: PulsarConsumer) -> None:
        """Closes the consumer of the engine; from another event loop without waiting for it."""
        if self._is_elsewhere():
            with contextlib.suppress(errors.Error):
                native.close()
        else:
            await _done(native.close())


class Producer(_Handle):
    """Sends to one topic. Made by :meth:`Client.create_producer`.

    Args:
        producer: the producer of the engine.
        schema: encodes the messages.
        limit: largest number of messages without an answer.
        block: whether a sender waits while there are as many.
        router: chooses the partition of each message.
    """

    def __init__(
        self,
        producer: PulsarProducer,
        schema: Schema,
        limit: int = 0,
        block: bool = False,
        router: Router | None = None,
    ) -> None:
        super().__init__()
        self._producer, self._schema, self._router = producer, schema, router
        self._limit, self._block = limit, block

    async def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Sends a message and waits for the broker. The arguments are those of the blocking ``send``."""
        arguments: tuple[Any, ...] = fields(
            self._schema,
            content,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        self._check()
        while self._limit and self._producer.pending >= self._limit:
            if not self._block:
                raise PulsarException(Result.ProducerQueueIsFull)
            await self.flush()
        if self._router:
            try:
                arguments = routed(self._router, self._producer, self._schema, arguments)
            except exceptions.UnknownError as error:
                raise PulsarException(Result.UnknownError, str(error)) from None
        try:
            return identify(await self._producer.send(*arguments))
        except errors.Error as error:
            raise _raised(error) from None

    async def flush(self) -> None:
        """Waits for the answers to all messages sent before."""
        self._check()
        await _done(self._producer.flush())

    async def close(self) -> None:
        """Waits for the messages sent before, and closes the producer."""
        if not self._open:
            raise PulsarException(Result.AlreadyClosed)
        if self._is_elsewhere():
            return self._shut()
        self._open = False
        try:
            await self._producer.drain()
        except errors.Error:
            await _done(self._producer.close(False))
        else:
            await _done(self._producer.close())

    def _shut(self) -> None:
        """Fails the messages without an answer."""
        self._open = False
        with contextlib.suppress(errors.Error):
            self._producer.close(False)

    def topic(self) -> str:
        """Full name of the topic."""
        return self._producer.topic

    def producer_name(self) -> str:
        """Name of the producer, given or chosen by the broker."""
        return self._producer.name

    def last_sequence_id(self) -> int:
        """Highest sequence id that the broker has stored; -1 before the first one."""
        return self._producer.last_sequence_id

    def is_connected(self) -> bool:
        """Whether the producer is open and the broker serves it now."""
        return self._open and self._producer.connected


class Consumer(_Handle):
    """Receives from a subscription. Made by :meth:`Client.subscribe`.

    Args:
        consumer: the consumer of the engine.
        schema: decodes the messages.
        name: name of the consumer.
        inclusive: whether ``seek`` delivers the message of its id, too.
    """

    def __init__(
        self, consumer: PulsarConsumer, schema: Schema, name: str = "", inclusive: bool = False
    ) -> None:
        super().__init__()
        self._consumer, self._schema = consumer, schema
        self._name, self._inclusive = name, inclusive

    async def receive(self) -> Message:
        """The next message. Cancelling the wait loses no message."""
        self._check()
        return receive(await _done(self._consumer.receive(None)), self._schema)

    async def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledges a message."""
        if is_position(native := target(message)):
            return
        try:
            self._consumer.ack(whole_entry(native))
        except errors.Error as error:
            raise _of_id(error) from None

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledges a message and all before it."""
        if is_position(native := target(message)):
            return
        try:
            self._consumer.ack_cumulative(whole_entry(native))
        except errors.NotAllowed as error:
            raise PulsarException(Result.CumulativeAcknowledgementNotAllowedError, str(error)) from None
        except errors.Error as error:
            raise _of_id(error) from None

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Has a message delivered again after ``negative_ack_redelivery_delay_ms``."""
        if is_position(native := target(message)):
            return
        try:
            self._consumer.nack(native, None)
        except errors.Error as error:
            raise _of_id(error) from None

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes the consumer."""
        self._check()
        await _done(self._consumer.unsubscribe())
        await self.close()

    async def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription to an id, or to milliseconds since 1970."""
        self._check()
        try:
            await self._consumer.seek(seek_target(messageid), self._inclusive)
        except errors.Error as error:
            raise _of_id(error) from None

    async def close(self) -> None:
        """Closes the consumer. Calling it again does nothing."""
        if self._open:
            self._open = False
            await self._end(self._consumer)

    async def get_last_message_id(self) -> MessageId:
        """Id of the last message of the topic."""
        self._check()
        ids = await _done(self._consumer.last_message_ids())
        try:
            return last_id(ids)
        except exceptions.PulsarException as error:
            raise PulsarException(error.result, str(error)) from None

    def redeliver_unacknowledged_messages(self) -> None:
        """Has every message delivered again that was received and not acknowledged."""
        self._consumer.redeliver_unacknowledged()

    def topic(self) -> str:
        """Full name of the topic; several are joined by commas."""
        return self._consumer.topic

    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._consumer.subscription

    def consumer_name(self) -> str:
        """Name of the consumer, given or made up."""
        return self._name


class Reader(_Handle):
    """Reads a topic without a durable subscription. Made by :meth:`Client.create_reader`.

    Args:
        reader: the consumer of the engine.
        schema: decodes the messages.
        inclusive: whether the message of an id is read, too.
    """

    def __init__(self, reader: PulsarConsumer, schema: Schema, inclusive: bool = False) -> None:
        super().__init__()
        self._reader, self._schema = reader, schema
        self._inclusive = inclusive

    async def read_next(self) -> Message:
        """The next message. Cancelling the wait loses no message."""
        self._check()
        return receive(await _done(self._reader.receive(None)), self._schema)

    async def has_message_available(self) -> bool:
        """Whether there are messages after the last one that was read."""
        self._check()
        return await _done(self._reader.has_message_available())

    async def seek(self, messageid: MessageId | int) -> None:
        """Moves to an id, or to milliseconds since 1970."""
        self._check()
        try:
            await self._reader.seek(seek_target(messageid), self._inclusive)
        except errors.Error as error:
            raise _of_id(error) from None

    async def close(self) -> None:
        """Closes the reader. Calling it again does nothing."""
        if self._open:
            self._open = False
            await self._end(self._reader)

    def topic(self) -> str:
        """Full name of the topic."""
        return self._reader.topic

    def is_connected(self) -> bool:
        """Whether the reader is open and the broker serves it now."""
        return self._open and self._reader.connected


class Client:
    """A client of a Pulsar service, which connects when it is first used.

    Args:
        service_url: as of :class:`forebay.compat.pulsar.Client`.
        kwargs: its other arguments.
    """

    def __init__(self, service_url: str, **kwargs: Any) -> None:
        self._settings = _Blocking(service_url, **kwargs)._settings  # pyright: ignore[reportPrivateUsage]
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that the connection belongs to."""
        self._bridge: Loop | None = None
        self._opening: asyncio.Future[PulsarClient] | None = None
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._closed = False
        self._shut = False

    def _move(self) -> None:
        """Makes the running event loop the client's, as in the second of two ``asyncio.run()``. Handles that
        were opened in the first one ended with it."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise PulsarException(
                    Result.NotAllowedError,
                    "the client belongs to another event loop, which is still open: make one client per loop",
                )
            self._abandon()
            if self._bridge is not None:
                self._bridge.close()
                self._bridge = None
        self._loop = loop

    async def _connected(self) -> PulsarClient:
        if self._closed:
            raise PulsarException(Result.AlreadyClosed)
        self._move()
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._connect())
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except Exception:
            # The next operation tries again.
            if self._opening is opening:
                self._opening = None
            raise

    async def _connect(self) -> PulsarClient:
        from forebay._core.native import Loop, PulsarClient

        if self._bridge is None:
            self._bridge = Loop(asyncio.get_running_loop())
        settings, pause = self._settings, 0.1
        until = time.monotonic() + settings.operation_timeout
        while True:
            try:
                return await PulsarClient.connect(settings.url, settings.attempt(until), self._bridge)
            except (errors.ConnectFailed, errors.Disconnected, errors.Timeout) as error:
                left = until - time.monotonic()
                if left <= 0 or isinstance(error, errors.Timeout):
                    # As there, a broker that does not answer in time is not tried again.
                    result = Result.Timeout if left <= 0 else Result.ConnectError
                    raise PulsarException(result, str(error)) from None
            except errors.Error as error:
                result = exceptions.result_of_lookup(error, settings.url)
                raise PulsarException(result, str(error)) from None
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, 1.0)

    async def _partitions(self, topic: str) -> int:
        native = await self._connected()
        try:
            return await native.partitions(topic)
        except errors.TopicNotFound:
            return 0
        except errors.Error as error:
            result = exceptions.result_of_lookup(error, self._settings.url)
            raise PulsarException(result, str(error)) from None

    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Message, int], int] | None = None,
    ) -> Producer:
        """Opens a producer. The options are those of the blocking client, but batching is on by default."""
        given = {**locals(), "schema": schema or BytesSchema()}
        _expect_text("topic", topic)
        limits = producer_check(given)
        partitions = await self._partitions(topic)
        native = await self._connected()
        opened = await _done(native.producer(topic, _options.producer(given, partitions)))
        producer = Producer(
            *(opened, given["schema"], limits(partitions), block_if_queue_full, message_router)
        )
        self._producers.add(producer)
        return producer

    async def subscribe(
        self,
        topic: str | list[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        is_pattern_topic: bool = False,
    ) -> Consumer:
        """Opens a consumer. The options are those of the blocking client."""
        given = {**locals(), "schema": schema or BytesSchema()}
        if not isinstance(topic, str | list):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("Argument 'topic' is expected to be of type 'str' or 'list'")
        if is_pattern_topic and not isinstance(topic, str):
            raise ValueError("Argument 'topic' must be a string when 'is_pattern_topic' is True")
        _options.check(_options.CONSUMER, given)
        _expect_text("subscription_name", subscription_name)
        if not subscription_name:
            raise PulsarException(Result.InvalidConfiguration, "the subscription name is empty")
        topics = [] if is_pattern_topic else _options.topics(topic)
        partitions = max([await self._partitions(one) for one in topics], default=0)
        name = given["consumer_name"] = consumer_name or secrets.token_hex(5)
        native = await self._connected()
        values = _options.consumer(given, partitions)
        if is_pattern_topic:
            opening = native.pattern_consumer(cast("str", topic), "", subscription_name, values)
        else:
            opening = native.consumer(topics, subscription_name, values)
        opened = await _done(opening)
        return Consumer(opened, given["schema"], name, start_message_id_inclusive)

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """Opens a reader. The options are those of the blocking client."""
        given = {**locals(), "schema": schema or BytesSchema()}
        check_type(str, topic, "topic")
        _options.check(_options.READER, given)
        native = await self._connected()
        subscription = reader_subscription(subscription_role_prefix)
        opened = await _done(native.consumer([topic], subscription, _options.reader(given)))
        return Reader(opened, given["schema"], start_message_id_inclusive)

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The topics of the partitions; of a topic that is not partitioned the topic itself."""
        check_type(str, topic, "topic")
        return partition_names(topic, await self._partitions(topic))

    def shutdown(self) -> None:
        """Closes everything without waiting: messages without an answer may be stored or not."""
        self._closed = self._shut = True
        self._abandon()

    def _abandon(self) -> None:
        opening, self._opening = self._opening, None
        for producer in list(self._producers):
            producer._shut()  # pyright: ignore[reportPrivateUsage]
        if opening is not None:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                with contextlib.suppress(errors.Error):
                    opening.result().close()
            elif not opening.get_loop().is_closed():
                opening.cancel()

    async def close(self) -> None:
        """Waits for the messages sent before, and closes all producers, consumers and readers."""
        if self._shut:
            return
        if self._closed:
            raise PulsarException(Result.AlreadyClosed)
        self._move()
        self._closed = True
        opening, self._opening = self._opening, None
        try:
            open_ones = [producer for producer in self._producers if producer._open]  # pyright: ignore[reportPrivateUsage]
            # Side by side: each close has a time limit.
            ends = [producer.close() for producer in open_ones]
            for result in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        finally:
            if opening is not None:
                with contextlib.suppress(PulsarException):
                    await _done((await opening).close())
            if self._bridge is not None:
                self._bridge.close()
