"""Readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import errors

from ._ids import MessageId
from ._messages import Message
from ._progress import Progress
from ._receiver import Receiver, seek_target
from .exceptions import translated
from .schema.schema import Schema

if TYPE_CHECKING:
    from penstock._engine import MessageId as NativeId
    from penstock._engine import PulsarConsumer, PulsarMessage


class Reader(Receiver):
    """Reads a topic without a durable subscription. Made by :meth:`Client.create_reader`.

    Args:
        native, schema, inclusive, forget: as of :class:`Receiver`.
        start: where reading begins.
    """

    def __init__(
        self,
        native: PulsarConsumer,
        schema: Schema,
        inclusive: bool,
        forget: Callable[[Any], None],
        start: NativeId,
    ) -> None:
        super().__init__(native, schema, inclusive, forget)
        self._progress = Progress(inclusive)
        self._started(start)

    def _started(self, at: NativeId | int) -> None:
        last = self._native.last_message_ids().wait() if Progress.at_end(at) else []
        self._progress.start(at, last)

    def _made(self, native: PulsarMessage) -> Message:
        self._progress.read(native.id)
        return super()._made(native)

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message.

        Args:
            timeout_millis: longest wait in milliseconds; no limit by default.

        Raises:
            Timeout: no message came in time. No message is lost.
            AlreadyClosed: after :meth:`close`.
            InvalidConfiguration: the reader has a listener.
        """
        return self._next(timeout_millis)

    def has_message_available(self) -> bool:
        """Whether there are messages after the last one that was read."""
        try:
            return self._progress.is_behind(self._native.last_message_ids().wait())
        except errors.Error as error:
            raise translated(error) from None

    def seek(self, messageid: MessageId | int) -> None:
        """Moves to a position.

        Args:
            messageid: an id, or milliseconds since 1970.

        Raises:
            ValueError: neither of them.
        """
        super().seek(messageid)
        self._started(seek_target(messageid))
