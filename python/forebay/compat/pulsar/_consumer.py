"""Consumers."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forebay import errors

from ._enums import Result
from ._ids import MessageId, identify
from ._messages import Message
from ._policies import BatchReceivePolicy
from ._receiver import Receiver, failed, is_position, target, whole_entry
from .exceptions import make, result_of_id, translated, waited
from .schema.schema import Schema

if TYPE_CHECKING:
    from forebay._engine import PulsarConsumer, PulsarMessage


_new = Message.__new__


def last_id(native_ids: list[Any]) -> MessageId:
    """The id of the last message of a topic.

    Raises:
        OperationNotSupported: there are several topics or partitions.
    """
    if len(native_ids) != 1:
        raise make(Result.OperationNotSupported, "several partitions have several last messages")
    return identify(native_ids[0])


class Consumer(Receiver):
    """Receives from a subscription. Made by :meth:`Client.subscribe`.

    Args:
        native, schema, inclusive, forget: as of :class:`Receiver`.
        name: name of the consumer.
        policy: when :meth:`batch_receive` returns.
    """

    def __init__(
        self,
        native: PulsarConsumer,
        schema: Schema,
        inclusive: bool,
        forget: Callable[[Any], None],
        name: str,
        policy: BatchReceivePolicy,
    ) -> None:
        super().__init__(native, schema, inclusive, forget)
        self._name, self._policy = name, policy
        self._ack = native.ack

    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._native.subscription

    def consumer_name(self) -> str:
        """Name of the consumer, given or made up."""
        return self._name

    def unsubscribe(self) -> None:
        """Deletes the subscription and closes the consumer.

        Raises:
            AlreadyClosed: after :meth:`close`.
        """
        self._check()
        try:
            waited(self._native.unsubscribe())
        except errors.Error as error:
            raise translated(error) from None
        self.close()

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message.

        Args:
            timeout_millis: longest wait in milliseconds; no limit by default.

        Raises:
            Timeout: no message came in time. No message is lost.
            AlreadyClosed: after :meth:`close`.
            InvalidConfiguration: the consumer has a listener.
        """
        # The usual case, without a call but the engine's: `_next` answers for all others.
        if self._listener or self._held:
            return self._next(timeout_millis)
        if timeout_millis is None:
            seconds = None
        elif type(timeout_millis) is int and timeout_millis >= 0:
            seconds = timeout_millis / 1000
        else:
            return self._next(timeout_millis)
        try:
            native = self._take(seconds)
        except KeyboardInterrupt:
            if seconds is not None:
                raise
            # As there, only a wait without a time limit is interrupted so.
            raise make(Result.Interrupted) from None
        except errors.Error as error:
            raise failed(error) from None
        made = _new(Message)
        made._native, made._schema = native, self._schema
        return made

    def batch_receive(self) -> list[Message]:
        """Several messages, until a limit of the batch receive policy is reached."""
        if self._listener:
            raise make(Result.InvalidConfiguration, "the messages go to the listener")
        most, most_bytes = self._policy.getMaxNumMessages(), self._policy.getMaxNumBytes()
        wait = self._policy.getTimeoutMs()
        until = time.monotonic() + wait / 1000 if wait > 0 else None
        taken: list[PulsarMessage] = []
        size = 0
        try:
            while most <= 0 or len(taken) < most:
                try:
                    if self._held:
                        native = self._held.popleft()
                    else:
                        native = self._take(None if until is None else max(until - time.monotonic(), 0.0))
                except errors.Timeout:
                    break
                size += len(native.data)
                if taken and 0 < most_bytes < size:
                    self._held.appendleft(native)
                    break
                taken.append(native)
                if 0 < most_bytes <= size:
                    break
        except BaseException as error:
            # A later cumulative acknowledgement must not cover messages that no caller has seen.
            self._held.extendleft(reversed(taken))
            if isinstance(error, errors.Error):
                raise translated(error) from None
            raise
        return [self._made(native) for native in taken]

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledges a message.

        Args:
            message: the message or its id.

        Raises:
            TypeError: neither of them.
            AlreadyClosed: after :meth:`close`.
            OperationNotSupported: an id without its topic, and there are several.
        """
        if type(message) is Message:
            native: Any = message._native
        elif is_position(native := target(message)):
            return self._check()
        else:
            native = whole_entry(native)
        try:
            self._ack(native)
        except errors.Error as error:
            raise make(result_of_id(error), str(error)) from None

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledges a message and all before it.

        Raises:
            CumulativeAcknowledgementNotAllowedError: on Shared and Key_Shared subscriptions.
        """
        if is_position(native := target(message)):
            return self._check()
        try:
            self._native.ack_cumulative(whole_entry(native))
        except errors.NotAllowed as error:
            raise make(Result.CumulativeAcknowledgementNotAllowedError, str(error)) from None
        except errors.Error as error:
            raise make(result_of_id(error), str(error)) from None

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Has a message delivered again after ``negative_ack_redelivery_delay_ms``."""
        if is_position(native := target(message)):
            return
        try:
            self._native.nack(native, None)
        except errors.Error as error:
            raise make(result_of_id(error), str(error)) from None

    def _check(self) -> None:
        if not self._open:
            raise make(Result.AlreadyClosed)

    def pause_message_listener(self) -> None:
        """Stops calling the listener."""
        self._running.clear()

    def resume_message_listener(self) -> None:
        """Goes on calling the listener."""
        self._running.set()

    def redeliver_unacknowledged_messages(self) -> None:
        """Has every message delivered again that was received and not acknowledged."""
        self._held.clear()
        try:
            self._native.redeliver_unacknowledged()
        except errors.Error as error:
            raise translated(error) from None

    def get_last_message_id(self) -> MessageId:
        """Id of the last message of the topic.

        Raises:
            OperationNotSupported: there are several topics or partitions.
        """
        try:
            return last_id(waited(self._native.last_message_ids()))
        except errors.Error as error:
            raise translated(error) from None
