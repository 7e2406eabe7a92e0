"""The client."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from forebay import errors
from forebay.pulsar._patterns import pattern_parts

from . import _options, _refusals
from ._authentication import Authentication
from ._checks import check_type
from ._consumer import Consumer
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
    SchemaType,
)
from ._ids import MessageId
from ._loggers import ConsoleLogger, FileLogger
from ._messages import Message
from ._policies import (
    BatchReceivePolicy,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from ._producer import Producer
from ._reader import Reader
from ._services import AutoClusterFailover, ServiceInfo, ServiceInfoProvider, check_url
from ._tables import View
from .exceptions import PulsarException, make, result_of_lookup, translated, waited
from .schema.schema import BytesSchema, Schema, SchemaInfo
from .tableview import TableView

if TYPE_CHECKING:
    from forebay._engine import PulsarClient

_BYTES = BytesSchema()


def _closed(native: PulsarClient) -> None:
    try:
        waited(native.close())
    except errors.Error as error:
        raise translated(error) from None


class Settings:
    """The checked settings with which both faces connect.

    Args:
        given: the keywords of :class:`Client`.

    Raises:
        ValueError: a value of another type, or a URL that is not valid.
        OperationNotSupported: what the engine cannot do yet.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        url = given["service_url"]
        if not isinstance(url, str | AutoClusterFailover | ServiceInfoProvider):
            raise ValueError(
                "Argument service_url is expected to be of type 'str', 'AutoClusterFailover' or "
                "'ServiceInfoProvider'"
            )
        if not isinstance(url, str):
            for name in ("authentication", "tls_trust_certs_file_path"):
                if given[name] is not None:
                    raise ValueError(
                        f"Argument {name} is not supported when service_url is an AutoClusterFailover or "
                        "ServiceInfoProvider; set it on each ServiceInfo instead"
                    )
        _options.check(_options.CLIENT, given)
        logger = given["logger"]
        if not (logger is None or isinstance(logger, logging.Logger | ConsoleLogger | FileLogger)):
            raise ValueError(
                "Logger is expected to be either None, logger.Logger, pulsar.ConsoleLogger or "
                "pulsar.FileLogger"
            )
        _refusals.check({"service_url": url})
        url = str(url)
        check_url(url)
        self.url = url.rstrip("/")
        self.info = ServiceInfo(url, given["authentication"], given["tls_trust_certs_file_path"])
        self.options = _options.client(given, secure=self.info.use_tls)
        self.operation_timeout: float = self.options["operation_timeout"]

    def attempt(self, until: float) -> dict[str, Any]:
        """The options of an attempt to connect that ends by ``until`` of the monotonic clock."""
        left = max(until - time.monotonic(), 0.001)
        return {**self.options, "connect_timeout": min(self.options["connect_timeout"], left)}


def partition_names(topic: str, partitions: int) -> list[str]:
    """The topics of the partitions; of a topic that is not partitioned the topic itself."""
    topic = _options.full_name(topic)
    return [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]


def reader_subscription(prefix: str | None) -> str:
    """A name for the subscription of a reader that is unique."""
    return f"{prefix}-reader-{secrets.token_hex(5)}" if prefix else f"reader-{secrets.token_hex(5)}"


class Client:
    """A client of a Pulsar service, which connects when it is first used.

    Options that are not described in the migration guide have the meaning of the official module.

    Args:
        service_url: ``pulsar://HOST:6650[,HOST:6650]``, ``pulsar+ssl://...``, ``http://HOST:8080`` or
            ``https://...``.
        authentication: the credentials: :class:`AuthenticationToken`, :class:`AuthenticationTLS`,
            :class:`AuthenticationBasic` or :class:`AuthenticationOauth2`.
        operation_timeout_seconds: time limit of opening, closing, seeking and lookups; the first connection
            is tried again until then.
        io_threads: number of threads of the engine, for the whole process: the first client sets it.
        message_listener_threads: number of listeners that run at the same time.
        concurrent_lookup_requests: accepted.
        log_conf_file_path: accepted.
        stats_interval_in_seconds: accepted.
        use_tls: accepted: the URL decides.
        tls_trust_certs_file_path: path of the certificate authorities to trust; the platform's by default.
        tls_allow_insecure_connection: must be false.
        tls_validate_hostname: whether the certificate must be for the host of the URL.
        logger: accepted.
        connection_timeout_ms: time limit of an attempt to connect, in milliseconds.
        listener_name: advertised listener to ask for in lookups.
        tls_private_key_file_path: path of the private key of the client's certificate.
        tls_certificate_file_path: path of the client's certificate.

    Raises:
        ValueError: a value of another type, or a URL that is not valid.
        OperationNotSupported: what the engine cannot do yet.
    """

    def __init__(
        self,
        service_url: str | AutoClusterFailover | ServiceInfoProvider,
        authentication: Authentication | None = None,
        operation_timeout_seconds: int = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: logging.Logger | ConsoleLogger | FileLogger | None = None,
        connection_timeout_ms: int = 10000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
    ) -> None:
        self._native: PulsarClient | None = None
        self._closed = False
        given = dict(locals())
        self._settings = Settings(given)
        self._connecting = threading.Lock()
        self._consumers: list[Consumer | Reader] = []
        self._producers: set[Producer] = set()
        self._views: set[View] = set()
        # A listener always has the same turn, so it never runs twice at a time.
        self._turns = itertools.cycle([threading.Lock() for _ in range(max(message_listener_threads, 1))])

    def _connected(self) -> PulsarClient:
        with self._connecting:
            if self._closed:
                raise make(Result.AlreadyClosed)
            if self._native is None:
                self._native = self._connect()
            return self._native

    def _connect(self) -> PulsarClient:
        from forebay._core.native import PulsarClient

        settings, pause = self._settings, 0.1
        until = time.monotonic() + settings.operation_timeout
        while True:
            if self._closed:
                raise make(Result.AlreadyClosed)
            try:
                return waited(PulsarClient.connect(settings.url, settings.attempt(until), None))
            except (errors.ConnectFailed, errors.Disconnected, errors.Timeout) as error:
                left = until - time.monotonic()
                if left <= 0 or isinstance(error, errors.Timeout):
                    # As there, a broker that does not answer in time is not tried again.
                    result = Result.Timeout if left <= 0 else Result.ConnectError
                    raise make(result, str(error)) from None
            except errors.Error as error:
                raise make(result_of_lookup(error, settings.url), str(error)) from None
            time.sleep(min(pause, left))
            pause = min(pause * 2, 1.0)

    def _partitions(self, topic: str) -> int:
        """Number of partitions; 0 also for a topic that does not exist yet."""
        try:
            return waited(self._connected().partitions(topic))
        except errors.TopicNotFound:
            return 0
        except errors.Error as error:
            raise make(result_of_lookup(error, self._settings.url), str(error)) from None

    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema = _BYTES,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
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
        """Opens a producer. The options have the meaning of the official module.

        Args:
            topic: its topic.
            initial_sequence_id: the sequence id that counts as published last: the first message gets the
                next.
            block_if_queue_full: whether a sender waits while ``max_pending_messages`` have no answer.

        Raises:
            ValueError: a value of another type.
            OperationNotSupported: what the engine cannot do yet.
            PulsarException: the producer was not opened.
        """
        given = dict(locals())
        limits = producer_check(given)
        partitions = self._partitions(topic)
        values = _options.producer(given, partitions)
        try:
            native = waited(self._connected().producer(topic, values))
        except errors.Error as error:
            raise translated(error) from None
        producer = Producer(
            *(native, schema, limits(partitions), block_if_queue_full, self._forget_producer, message_router)
        )
        self._producers.add(producer)
        return producer

    def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema = _BYTES,
        message_listener: Callable[[Consumer, Message], Any] | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
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
    ) -> Consumer:
        """Opens a consumer. The options have the meaning of the official module.

        Args:
            topic: one topic, several, or a pattern of topics.
            subscription_name: its subscription.
            message_listener: called with the consumer and each message, by a thread. An exception is logged,
                and the message stays unacknowledged.

        Raises:
            ValueError: a value of another type.
            OperationNotSupported: what the engine cannot do yet.
            PulsarException: the consumer was not opened.
        """
        given = dict(locals())
        check_type(str, subscription_name, "subscription_name")
        _options.check(_options.CONSUMER, given)
        if not subscription_name:
            raise make(Result.InvalidConfiguration, "the subscription name is empty")
        topics = _options.topics(topic)
        partitions = max((self._partitions(name) for name in topics), default=0)
        name = given["consumer_name"] = consumer_name or secrets.token_hex(5)
        values = _options.consumer(given, partitions)
        try:
            client = self._connected()
            if isinstance(topic, re.Pattern):
                text, flags = pattern_parts(topic)
                native = waited(client.pattern_consumer(text, flags, subscription_name, values))
            else:
                native = waited(client.consumer(topics, subscription_name, values))
        except errors.Error as error:
            raise translated(error) from None
        policy = batch_receive_policy.policy() if batch_receive_policy else BatchReceivePolicy()
        consumer = Consumer(native, schema, start_message_id_inclusive, self._forget, name, policy)
        schema.attach_client(self)
        self._consumers.append(consumer)
        if message_listener:
            consumer._listen(message_listener, next(self._turns))  # pyright: ignore[reportPrivateUsage]
        return consumer

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema = _BYTES,
        reader_listener: Callable[[Reader, Message], Any] | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """Opens a reader. The options have the meaning of the official module.

        Args:
            topic: its topic.
            start_message_id: where reading begins: ``MessageId.earliest``, ``MessageId.latest`` or an id.
            reader_listener: called with the reader and each message, by a thread.

        Raises:
            ValueError: a value of another type.
            OperationNotSupported: what the engine cannot do yet.
            PulsarException: the reader was not opened.
        """
        given = dict(locals())
        check_type(str, topic, "topic")
        _options.check(_options.READER, given)
        values = _options.reader(given)
        subscription = reader_subscription(subscription_role_prefix)
        try:
            native = waited(self._connected().consumer([topic], subscription, values))
        except errors.Error as error:
            raise translated(error) from None
        reader = Reader(native, schema, start_message_id_inclusive, self._forget)
        schema.attach_client(self)
        self._consumers.append(reader)
        if reader_listener:
            reader._listen(reader_listener, next(self._turns))  # pyright: ignore[reportPrivateUsage]
        return reader

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema = _BYTES
    ) -> TableView:
        """Opens a table view, which has everything that the topic has by then.

        Args:
            topic: its topic.
            subscription_name: name of its subscription; a unique one by default.
            schema: decodes the values.

        Raises:
            ValueError: a value of another type.
            OperationNotSupported: what the engine cannot do yet.
            PulsarException: the view was not opened.
        """
        check_type(str, topic, "topic")
        if subscription_name is not None:
            check_type(str, subscription_name, "subscription_name")
        check_type(Schema, schema, "schema")
        url = self._settings.url
        view = View(self._connected(), url, topic, subscription_name, self._views.discard)
        schema.attach_client(self)
        self._views.add(view)
        return TableView(view, topic, subscription_name, schema)

    def get_schema_info(self, topic: str, version: int) -> SchemaInfo:
        """A schema of a topic, as the broker stores it.

        Raises:
            PulsarException: there is no such version.
        """
        try:
            stored = waited(self._connected().schema(topic, version.to_bytes(8, "big")))
        except errors.Error as error:
            raise translated(error) from None
        kind, name, definition, _ = stored
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).upper()
        return SchemaInfo(SchemaType[words], name, definition.decode())

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The topics of the partitions; of a topic that is not partitioned the topic itself."""
        check_type(str, topic, "topic")
        return partition_names(topic, self._partitions(topic))

    def get_service_info(self) -> ServiceInfo:
        """The service that this client uses."""
        return self._settings.info

    def _forget_producer(self, producer: Producer) -> None:
        self._producers.discard(producer)

    def _forget(self, consumer: Consumer | Reader) -> None:
        with contextlib.suppress(ValueError):
            self._consumers.remove(consumer)

    def shutdown(self) -> None:
        """Closes everything without waiting: messages without an answer may be stored or not."""
        # Before the lock, which a thread that tries to connect holds: it gives up.
        self._closed = True
        with self._connecting:
            native, self._native = self._native, None
        for view in list(self._views):
            with contextlib.suppress(PulsarException):
                view.shut()
        self._shut()
        if native is not None:
            with contextlib.suppress(errors.Error):
                native.close()

    def close(self) -> None:
        """Waits for the messages sent before, and closes all producers, consumers and readers.

        Raises:
            AlreadyClosed: when called again.
        """
        with self._connecting:
            if self._closed:
                raise make(Result.AlreadyClosed)
            self._closed = True
            native, self._native = self._native, None
        handles = [*self._producers, *self._consumers]
        # All closes are started before any wait, because each wait has a time limit.
        steps: list[Callable[[], object]] = [view.close for view in self._views]
        steps += [producer._prepare for producer in self._producers]  # pyright: ignore[reportPrivateUsage]
        steps += [handle._start_close for handle in handles]  # pyright: ignore[reportPrivateUsage]
        steps += [handle._finish_close for handle in handles]  # pyright: ignore[reportPrivateUsage]
        if native is not None:
            steps.append(lambda: _closed(native))
        failed: PulsarException | None = None
        try:
            for step in steps:
                try:
                    step()
                except PulsarException as error:
                    failed = failed or error
        except BaseException:
            if native is not None:
                native.close()
            raise
        finally:
            self._shut()
        if failed:
            # As there, that of the first.
            raise failed

    def _shut(self) -> None:
        for handle in [*self._producers, *self._consumers]:
            handle._shut()  # pyright: ignore[reportPrivateUsage]
        self._producers.clear()
        self._consumers.clear()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not self._closed:
            with contextlib.suppress(Exception):
                native.close()


def producer_check(given: Mapping[str, Any]) -> Callable[[int], int]:
    """Checks the options of a producer, and gives the function from the number of partitions to the largest
    number of messages without an answer.

    Raises:
        ValueError: a value of another type, batching and chunking together, or no router for custom routing.
        OperationNotSupported: what the engine cannot do yet.
    """
    check_type(str, given["topic"], "topic")
    _options.check(_options.PRODUCER, given)
    if given["batching_enabled"] and given["chunking_enabled"]:
        raise ValueError("Batching and chunking of messages can't be enabled together.")
    router = given["message_router"]
    if router is not None and not callable(router):
        raise ValueError("Argument message_router is expected to be a function of a message and a number")
    if router is None and given["message_routing_mode"] == PartitionsRoutingMode.CustomPartition:
        raise ValueError("Argument message_routing_mode: CustomPartition needs a message_router")
    each, all_of_them = _options.pending_limits(given)
    return lambda partitions: min(each * partitions, all_of_them) if partitions else each
