# Generated from forebay/pulsar/_intercepted.py by tools/generate_blocking.py; do not edit.
"""The verbs of producers and consumers with interceptors or a router,, blocking: those without them pay
nothing.

"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from forebay._core import parse
from forebay._core.native import PulsarMessage
from forebay._sync.interception import InterceptedConsumerHandle, InterceptedProducerHandle, watched
from forebay.errors import NotAllowed
from forebay.pulsar._interceptors import Interceptors, OutgoingMessage
from forebay.pulsar._routing import Router, clusters, message_schema, partition_of, with_keys

if TYPE_CHECKING:
    from forebay._core.types import Duration, Timestamp, Waiter
    from forebay._engine import FrameRows, MessageId, MessageIds, PulsarSchema
    from forebay.pulsar._option_forms import SchemaOption


class InterceptedProducer(InterceptedProducerHandle):
    """The verbs of a producer with interceptors or a router."""

    def __init__(self, native: Any, client: Any, chain: Sequence[Any], router: Router | None) -> None:
        super().__init__(native, client)
        self._interceptors = Interceptors(self, chain)
        self._router = router

    @property
    def interceptor_errors(self) -> int:
        return self._interceptors.errors

    def _sent(self, message: OutgoingMessage, id: MessageId | None, error: BaseException | None) -> None:
        self._interceptors.tell("on_send_acknowledged", message, id, error)

    def _outgoing(
        self,
        payload: Any,
        key: str | None,
        ordering_key: bytes | None,
        properties: dict[str, str] | None,
        event_time: Timestamp | None,
        sequence_id: int | None,
        deliver_at: Timestamp | None,
        deliver_after: Duration | None,
        null_value: bool,
        replicate_to: Sequence[str] | None,
        disable_replication: bool,
    ) -> OutgoingMessage:
        at = None if event_time is None else parse.epoch_ms(event_time)
        delivery = None
        if deliver_at is not None or deliver_after is not None:
            delivery = parse.deliver_ms(deliver_at, deliver_after)
        if not isinstance(properties, dict | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"properties: {type(properties).__name__!r} object is not an instance of 'dict'")
        message = OutgoingMessage(
            *(payload, key, ordering_key, dict(properties or {}), at, sequence_id, delivery, null_value),
            clusters(replicate_to, disable_replication),
        )
        return self._interceptors.outgoing(message)

    def _partition(self, message: OutgoingMessage) -> int | None:
        # As in other clients, a topic without partitions leaves nothing to choose.
        if not self._router or not (partitions := self._native.partitions):
            return None
        return partition_of(self._router, message.key, message.properties, partitions)

    def send(
        self,
        payload: Any,
        key: str | None = None,
        *,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: Timestamp | None = None,
        sequence_id: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        null_value: bool = False,
        replicate_to: Sequence[str] | None = None,
        disable_replication: bool = False,
        schema: SchemaOption | None = None,
    ) -> MessageId:
        self._check()
        own = None if schema is None else message_schema(schema)
        message = self._outgoing(
            *(payload, key, ordering_key, properties, event_time),
            *(sequence_id, deliver_at, deliver_after, null_value),
            *(replicate_to, disable_replication),
        )
        try:
            pending = self._native.send(*message.fields(), self._partition(message), own)
        except Exception as error:
            self._sent(message, None, error)
            raise
        untold = self._interceptors.untold
        return watched(pending, lambda sent, error: self._sent(message, sent, error), untold).wait()

    def send_nowait(
        self,
        payload: Any,
        key: str | None = None,
        *,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: Timestamp | None = None,
        sequence_id: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        null_value: bool = False,
        replicate_to: Sequence[str] | None = None,
        disable_replication: bool = False,
        schema: SchemaOption | None = None,
    ) -> None:
        own = None if schema is None else message_schema(schema)
        message = self._outgoing(
            *(payload, key, ordering_key, properties, event_time),
            *(sequence_id, deliver_at, deliver_after, null_value),
            *(replicate_to, disable_replication),
        )
        self._native.send_nowait(*message.fields(), self._partition(message), own)

    def submit_many(
        self,
        payloads: Sequence[Any],
        keys: Sequence[str | None] | None = None,
        *,
        schema: SchemaOption | None = None,
    ) -> Waiter[MessageIds]:
        self._check()
        own = None if schema is None else message_schema(schema)
        return self.submit_messages([OutgoingMessage(*pair) for pair in with_keys(payloads, keys)], own)

    def submit_rows(self, rows: FrameRows) -> Waiter[Any]:
        self._check()
        return self.submit_messages([OutgoingMessage(*row) for row in rows.messages()], None, rows)

    def submit_messages(
        self, messages: list[OutgoingMessage], schema: PulsarSchema | None, rows: FrameRows | None = None
    ) -> Waiter[MessageIds]:
        messages = self._interceptors.outgoing_many(messages)
        try:
            partitions = [self._partition(message) for message in messages] if self._router else None
            pending = self._native.send_messages(messages, partitions, schema, rows)
        except Exception as error:
            self._interceptors.tell_sent(messages, None, error)
            raise
        of = self._interceptors
        return watched(pending, lambda ids, error: of.tell_sent(messages, ids, error), of.untold)


class InterceptedConsumer(InterceptedConsumerHandle):
    """The verbs of a consumer with interceptors."""

    _ack_receipt: bool

    def __init__(self, native: Any, client: Any, ack_receipt: bool, chain: Sequence[Any]) -> None:
        super().__init__(native, client, ack_receipt)  # type: ignore[call-arg]
        self._interceptors = Interceptors(self, chain)

    @property
    def interceptor_errors(self) -> int:
        return self._interceptors.errors

    def _tell(self, method: str, messages: Sequence[Any], error: BaseException | None) -> None:
        for message in messages:
            self._interceptors.tell(method, message, error)

    def ack(self, message: PulsarMessage | MessageId) -> None:
        if self._ack_receipt:
            return self._confirmed("on_acknowledge", [message], False).wait()
        self._acknowledged("on_acknowledge", [message], self._native.ack_many)

    def ack_many(self, messages: Sequence[PulsarMessage | MessageId]) -> None:
        if self._ack_receipt:
            return self._confirmed("on_acknowledge", messages, False).wait()
        self._acknowledged("on_acknowledge", messages, self._native.ack_many)

    def ack_cumulative(self, message: PulsarMessage | MessageId) -> None:
        if self._ack_receipt:
            return self._confirmed("on_acknowledge_cumulative", [message], True).wait()
        self._acknowledged(
            "on_acknowledge_cumulative", [message], lambda messages: self._native.ack_cumulative(messages[0])
        )

    def _acknowledged(
        self, method: str, messages: Sequence[Any], verb: Callable[[Sequence[Any]], object]
    ) -> None:
        try:
            verb(messages)
        except Exception as error:
            self._tell(method, messages, error)
            raise
        self._tell(method, messages, None)

    def _confirmed(self, method: str, messages: Sequence[Any], cumulative: bool) -> Any:
        pending = self._native.ack_receipt(messages, cumulative)
        untold = self._interceptors.untold
        return watched(pending, lambda _, error: self._tell(method, messages, error), untold)

    def _refused(self, messages: Sequence[PulsarMessage | MessageId]) -> None:
        for message in messages:
            self._interceptors.tell("on_nack", message)

    def nack(self, message: PulsarMessage | MessageId, delay: Duration | None = None) -> None:
        self._native.nack(message, parse.seconds(delay, "delay"))
        self._refused([message])

    def nack_many(self, messages: Sequence[PulsarMessage | MessageId], delay: Duration | None = None) -> None:
        self._native.nack_many(messages, parse.seconds(delay, "delay"))
        self._refused(messages)

    def _refuse(self, message: PulsarMessage) -> None:
        self._native.nack(message, None)
        self._refused([message])

    def read_frame(self, max_rows: int = 10_000, timeout: Duration | None = 1.0, **options: Any) -> Any:
        raise NotAllowed(
            f"{self!r} has interceptors, which see messages one by one: use receive_many() instead of"
            " read_frame()"
        )
