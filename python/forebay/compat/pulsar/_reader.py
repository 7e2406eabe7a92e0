"""Readers."""

from __future__ import annotations

from forebay import errors

from ._messages import Message
from ._receiver import Receiver
from .exceptions import translated, waited


class Reader(Receiver):
    """Reads a topic without a durable subscription. Made by :meth:`Client.create_reader`.

    Args:
        native, schema, inclusive, forget: as of :class:`Receiver`.
    """

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
            return waited(self._native.has_message_available())
        except errors.Error as error:
            raise translated(error) from None
