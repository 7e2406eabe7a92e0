"""Producers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from forebay import errors

from ._calls import NO_ID, Callback, Callbacks
from ._checks import check_type, check_type_or_none
from ._closing import Closing
from ._enums import Result
from ._ids import MessageId, identify
from ._messages import Message, receive
from .exceptions import make, result_of, translated, waited
from .schema.schema import BytesSchema, Schema

if TYPE_CHECKING:
    from forebay._core.types import Pending
    from forebay._engine import MessageId as NativeId
    from forebay._engine import PulsarMessage, PulsarProducer, Waiter

Router = Callable[[Message, int], int]
Fields = tuple[
    bytes,
    str | None,
    bytes | None,
    dict[str, str] | None,
    int | None,
    int | None,
    int | None,
    bool,
    list[str] | None,
]
"""The arguments of the engine's ``send``."""


def fields(
    schema: Schema,
    content: Any,
    properties: dict[str, str] | None,
    partition_key: str | None,
    ordering_key: str | None,
    sequence_id: int | None,
    replication_clusters: list[str] | None,
    disable_replication: bool | None,
    event_timestamp: int | None,
    deliver_at: int | None,
    deliver_after: timedelta | None,
) -> Fields:
    """The arguments of the engine's ``send`` for those of the official one.

    Raises:
        ValueError: an argument of another type.
    """
    data = b""
    if content is not None:
        data = schema.encode(content)
        check_type(bytes, data, "data")
    check_type_or_none(dict, properties, "properties")
    check_type_or_none(str, partition_key, "partition_key")
    check_type_or_none(str, ordering_key, "ordering_key")
    check_type_or_none(int, sequence_id, "sequence_id")
    check_type_or_none(list, replication_clusters, "replication_clusters")
    check_type_or_none(bool, disable_replication, "disable_replication")
    check_type_or_none(int, event_timestamp, "event_timestamp")
    check_type_or_none(int, deliver_at, "deliver_at")
    check_type_or_none(timedelta, deliver_after, "deliver_after")
    if sequence_id is not None and sequence_id < 0:
        raise ValueError("sequenceId needs to be >= 0")
    if deliver_after:
        deliver_at = round((time.time() + deliver_after.total_seconds()) * 1000)
    return (
        data,
        partition_key or None,
        ordering_key.encode() if ordering_key else None,
        properties or None,
        event_timestamp or None,
        sequence_id,
        deliver_at or None,
        content is None,
        # It wins over the clusters, as there.
        ["__local__"] if disable_replication else replication_clusters or None,
    )


@dataclasses.dataclass
class _Outgoing:
    """A message that is about to be sent, with the attributes of one that was received."""

    data: bytes
    key: str | None
    ordering_key: bytes | None
    properties: dict[str, str]
    event_time: int | None
    is_null: bool
    topic: str
    publish_time: int = 0
    redelivery_count: int = 0
    schema_version: bytes | None = None
    producer_name: str = ""


def routed(router: Router, native: PulsarProducer, schema: Schema, arguments: Fields) -> tuple[Any, ...]:
    """The arguments with the partition that ``router`` chooses; without it if the topic has no partitions.

    Raises:
        UnknownError: there is no such partition.
        Exception: what the router raises, as there.
    """
    if not (partitions := native.partitions):
        return arguments
    data, key, ordering_key, properties, event_time, _, _, is_null, _ = arguments
    message = _Outgoing(data, key, ordering_key, properties or {}, event_time, is_null, native.topic)
    partition = operator.index(router(receive(cast("PulsarMessage", message), schema), partitions))
    if not 0 <= partition < partitions:
        raise make(Result.UnknownError, f"message_router returned {partition} for {partitions} partitions")
    return (*arguments, partition)


def closed(*arguments: object) -> Any:
    """Takes the place of a verb of the engine that is closing.

    Raises:
        Closed: always.
    """
    raise errors.Closed("the client was shut down")


class Producer(Closing):
    """Sends to one topic. Made by :meth:`Client.create_producer`.

    Args:
        native: the producer of the engine.
        schema: encodes the messages.
        limit: largest number of messages without an answer.
        block: whether a sender waits while there are as many.
        forget: takes this object off the list of its client, which it keeps alive.
        router: chooses the partition of each message.
    """

    def __init__(
        self,
        native: PulsarProducer,
        schema: Schema,
        limit: int,
        block: bool,
        forget: Callable[[Producer], None],
        router: Router | None = None,
    ) -> None:
        super().__init__(forget)
        self._native, self._schema = native, schema
        self._limit, self._block = limit, block
        self._send: Callable[..., Waiter[NativeId]] = native.send
        # Bytes are sent as they are: no call of the schema for each message.
        self._plain = type(schema) is BytesSchema and router is None
        self._router = router
        self._callbacks: Callbacks | None = None
        self._starting = threading.Lock()
        self._open = True
        self._draining: Pending[None] | None = None

    def topic(self) -> str:
        """Full name of the topic."""
        return self._native.topic

    def producer_name(self) -> str:
        """Name of the producer, given or chosen by the broker."""
        return self._native.name

    def last_sequence_id(self) -> int:
        """Highest sequence id that the broker has stored; -1 before the first one."""
        return self._native.last_sequence_id

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Sends a message and waits for the broker.

        Args:
            content: what the schema encodes; ``None`` sends a tombstone.
            properties: user-defined metadata.
            partition_key: chooses the partition.
            ordering_key: chooses the consumer of a Key_Shared subscription.
            sequence_id: number for deduplication; must ascend.
            replication_clusters: names of the only clusters that get a copy.
            disable_replication: keeps the message in this cluster.
            event_timestamp: when the event happened, in milliseconds since 1970.
            deliver_at: earliest delivery, in milliseconds since 1970.
            deliver_after: earliest delivery from now on.

        Raises:
            ValueError: an argument of another type.
            PulsarException: the message was not stored, or it is not known.
        """
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
        if self._router:
            arguments = routed(self._router, self._native, self._schema, arguments)
        while True:
            try:
                return identify(waited(self._send(*arguments)))
            except errors.QueueFull as error:
                if not self._block:
                    raise translated(error) from None
                self._wait_for_room()
            except errors.Error as error:
                raise translated(error) from None

    def send_async(
        self,
        content: Any,
        callback: Callback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Sends a message; a thread calls ``callback(Result, MessageId)`` when the broker has answered.

        The callbacks of a producer are called in the order of its messages. An exception of a callback is
        logged. If the queue is full, this thread calls the callback with ``ProducerQueueIsFull`` at once, or
        blocks until there is room, as the option ``block_if_queue_full`` says.

        Args:
            content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
                disable_replication, event_timestamp, deliver_at, deliver_after: as of :meth:`send`.
            callback: called with the outcome; none by ``None``.

        Raises:
            ValueError: an argument of another type.
        """
        if (
            type(content) is bytes
            and self._plain
            and properties is None
            and partition_key is None
            and ordering_key is None
            and sequence_id is None
            and not replication_clusters
            and not disable_replication
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
        ):
            arguments: tuple[Any, ...] = (content,)
        else:
            arguments = fields(
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
            if self._router:
                arguments = routed(self._router, self._native, self._schema, arguments)
        callbacks = self._callbacks or self._start()
        # The thread has taken one message already.
        if callbacks.waiting() + 1 >= self._limit:
            if self._block:
                callbacks.wait_for_room(max(self._limit - 1, 1))
            elif self._native.pending >= self._limit:
                return self._failed(callback, Result.ProducerQueueIsFull)
        while True:
            try:
                waiter: Waiter[NativeId] = self._send(*arguments)
            except errors.QueueFull:
                if not self._block:
                    return self._failed(callback, Result.ProducerQueueIsFull)
                self._wait_for_room()
            except errors.Error as error:
                return self._failed(callback, result_of(error))
            else:
                callbacks.put((waiter, callback))
                return None

    @staticmethod
    def _failed(callback: Callback | None, result: Result) -> None:
        if callback is not None:
            callback(result, NO_ID)

    def _start(self) -> Callbacks:
        with self._starting:
            if self._callbacks is None:
                self._callbacks = Callbacks(
                    functools.partial(self._native.close, False), f"callbacks of {self._native.topic}"
                )
            return self._callbacks

    def _wait_for_room(self) -> None:
        """Waits until the engine's queue has room: messages that other threads wait for count, too."""
        while self._native.pending >= self._limit:
            time.sleep(0.001)

    def flush(self) -> None:
        """Waits until the broker has answered for all messages sent before, and their callbacks have been
        called.

        Raises:
            AlreadyClosed: after :meth:`close`.
        """
        self._check()
        try:
            waited(self._native.flush())
        except errors.Error as error:
            raise translated(error) from None
        if self._callbacks:
            self._callbacks.flush()

    def close(self) -> None:
        """Waits for the messages sent before, as long as answers come, and closes the producer.

        Raises:
            AlreadyClosed: when called again.
        """
        self._check()
        try:
            self._start_close()
        finally:
            self._finish_close()

    def _prepare(self) -> None:
        """Begins to wait for the messages sent before."""
        with contextlib.suppress(errors.Error):
            self._draining = self._native.drain()

    def _start_close(self) -> None:
        if not self._open:
            return
        self._open = False
        draining, self._draining = self._draining, None
        wait = False
        try:
            waited(draining or self._native.drain())
            wait = True
        except errors.Error:
            # The callbacks tell of it.
            pass
        finally:
            # Interrupted: what has no answer yet is given up.
            self._ending = self._native_close(wait)

    def _native_close(self, wait: bool) -> Pending[None]:
        try:
            return self._native.close(wait)
        except errors.Error as error:
            raise translated(error) from None

    def _ended(self) -> None:
        if self._callbacks:
            self._callbacks.stop()

    def _check(self) -> None:
        if not self._open:
            raise make(Result.AlreadyClosed)

    def _shut(self) -> None:
        """Fails the messages without an answer, and ends the thread."""
        self._open, self._send = False, closed
        with contextlib.suppress(errors.Error):
            self._native.close(False)
        if self._callbacks:
            self._callbacks.stop()

    def is_connected(self) -> bool:
        """Whether the producer is open and the broker serves it now."""
        return self._open and self._native.connected

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            with contextlib.suppress(Exception):
                self._native.close()
        if callbacks := getattr(self, "_callbacks", None):
            callbacks.put((None, None))
