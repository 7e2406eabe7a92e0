"""Interceptors: functions of a program that see each message of a producer or consumer."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from forebay._engine import MessageId, PulsarMessage

__all__ = ["ConsumerInterceptor", "Interceptors", "OutgoingMessage", "ProducerInterceptor", "interceptors"]

log = logging.getLogger("forebay.interceptors")


@dataclasses.dataclass
class OutgoingMessage:
    """A message that is about to be sent. Interceptors may change it."""

    payload: Any
    """The payload, or the value of a schema."""
    key: str | None = None
    """The key."""
    ordering_key: bytes | None = None
    """The ordering key."""
    properties: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The properties."""
    event_time: int | None = None
    """Event time in milliseconds since 1970."""
    sequence_id: int | None = None
    """Sequence id, if the caller gave one."""
    deliver_at: int | None = None
    """Earliest delivery in milliseconds since 1970."""
    null_value: bool = False
    """Whether it is a tombstone."""
    replicate_to: list[str] | None = None
    """The only clusters that get a copy, ``["__local__"]`` for none; ``None`` for those of the namespace."""

    def copy(self) -> OutgoingMessage:
        """A copy with properties and clusters of its own."""
        clusters = None if self.replicate_to is None else list(self.replicate_to)
        return dataclasses.replace(self, properties=dict(self.properties), replicate_to=clusters)

    def fields(self) -> tuple[Any, ...]:
        """The arguments of the engine."""
        return (
            *(self.payload, self.key, self.ordering_key, self.properties or None),
            *(self.event_time, self.sequence_id, self.deliver_at, self.null_value, self.replicate_to),
        )


class ProducerInterceptor:
    """Sees each message of a producer. A base class whose methods do nothing.

    A method that raises is logged by the logger ``forebay.interceptors`` and counted
    (``interceptor_errors`` of the producer), and the message is sent as it was before. Methods must not
    block.

    ``send_many`` and ``send_frame`` call the methods for each message. An interceptor that needs one call for
    all of them also has one or both of these methods, which are called instead:

    * ``before_send_many(producer, messages)`` changes the messages of the list. It cannot replace them.
    * ``on_send_many_acknowledged(producer, messages, message_ids, error)``, where ``message_ids`` has one id
      for each message, or is ``None`` with an error.
    """

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage | None:
        """Called before a message is sent. Changes ``message``, or returns another one.

        The payload of a row of ``send_frame`` is encoded already: it is bytes, also with a schema.

        Args:
            producer: the producer.
            message: the message, as earlier interceptors have left it.
        """

    def on_send_acknowledged(
        self,
        producer: Any,
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: BaseException | None,
    ) -> None:
        """Called when the broker has the message, or when it could not be sent. Not for ``send_nowait``,
        which has no result.

        If a ``send_many`` or ``send_frame`` fails, each of its messages is told with the error of the call,
        which does not say which of them the broker has.

        On the blocking face a ``submit_many`` or ``submit_frame`` is told when it is waited for. One that is
        not is told by a later send, ``flush`` or ``close``, once it has ended.

        Args:
            producer: the producer.
            message: the message as it was sent.
            message_id: its id; ``None`` with an error.
            error: what went wrong.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Sees each message of a consumer. A base class whose methods do nothing.

    A method that raises is logged by the logger ``forebay.interceptors`` and counted
    (``interceptor_errors`` of the consumer), and the message is delivered. Methods must not block.
    """

    def before_consume(self, consumer: Any, message: PulsarMessage) -> None:
        """Called before a message is handed to the program, also by a listener."""

    def on_acknowledge(
        self, consumer: Any, message: PulsarMessage | MessageId, error: BaseException | None
    ) -> None:
        """Called for each message that is acknowledged; with ``ack_receipt`` when the broker has answered."""

    def on_acknowledge_cumulative(
        self, consumer: Any, message: PulsarMessage | MessageId, error: BaseException | None
    ) -> None:
        """As :meth:`on_acknowledge`, for ``ack_cumulative``."""

    def on_nack(self, consumer: Any, message: PulsarMessage | MessageId) -> None:
        """Called for each message that is to be delivered again."""

    def close(self) -> None:
        """Called when the consumer is closed."""


def interceptors(*methods: str) -> Callable[[Any], list[Any]]:
    """Parser of the options ``interceptors``: one object or several, with all of ``methods``."""

    def parse(value: Any) -> list[Any]:
        found: list[Any] = list(cast("Any", value)) if isinstance(value, list | tuple) else [value]
        for one in found:
            if isinstance(one, type) or not all(callable(getattr(one, name, None)) for name in methods):
                raise ValueError(f"expected objects with the methods {', '.join(methods)}, not {one!r}")
        return found

    return parse


class Interceptors:
    """The interceptors of a handle.

    Args:
        owner: the producer or consumer.
        chain: the interceptors, called in this order.
    """

    def __init__(self, owner: Any, chain: Sequence[Any]) -> None:
        self._owner, self._chain = owner, chain
        self.errors = 0
        """Number of calls that raised."""
        self.untold: dict[Any, None] = {}
        """Operations of the blocking face whose outcome has not been told, in their order."""

    def _failed(self, one: object, method: str) -> None:
        self.errors += 1
        log.exception("%s of the interceptor %r of %r failed", method, one, self._owner)

    def outgoing(self, message: OutgoingMessage) -> OutgoingMessage:
        """The message that all interceptors have seen."""
        for one in self._chain:
            message = self._seen(one, message)
        return message

    def _seen(self, one: Any, message: OutgoingMessage) -> OutgoingMessage:
        given = message.copy()
        try:
            made = one.before_send(self._owner, given)
            if made is not None and not isinstance(made, OutgoingMessage):
                raise TypeError(f"before_send returned {made!r}, not an OutgoingMessage")
        except Exception:
            self._failed(one, "before_send")
            return message
        return given if made is None else made

    def outgoing_many(self, messages: list[OutgoingMessage]) -> list[OutgoingMessage]:
        """The messages of a call that all interceptors have seen."""
        for one in self._chain:
            if not hasattr(one, "before_send_many"):
                messages = [self._seen(one, message) for message in messages]
                continue
            given = [message.copy() for message in messages]
            try:
                # A list of its own: the order and the number of messages stay.
                one.before_send_many(self._owner, list(given))
            except Exception:
                self._failed(one, "before_send_many")
            else:
                messages = given
        return messages

    def tell_sent(
        self,
        messages: Sequence[OutgoingMessage],
        ids: Sequence[MessageId] | None,
        error: BaseException | None,
    ) -> None:
        """Tells the outcome of the messages of a call."""
        for one in self._chain:
            if hasattr(one, "on_send_many_acknowledged"):
                self._call(one, "on_send_many_acknowledged", messages, ids, error)
                continue
            for at, message in enumerate(messages):
                self._call(one, "on_send_acknowledged", message, None if ids is None else ids[at], error)

    def tell(self, method: str, *arguments: Any) -> None:
        """Calls ``method`` of each interceptor with the owner and ``arguments``."""
        for one in self._chain:
            self._call(one, method, *arguments)

    def _call(self, one: Any, method: str, *arguments: Any) -> None:
        try:
            getattr(one, method)(self._owner, *arguments)
        except Exception:
            self._failed(one, method)

    def close(self) -> None:
        """Tells the interceptors that the owner is closed."""
        for one in self._chain:
            try:
                one.close()
            except Exception:
                self._failed(one, "close")
        self._chain = ()
