"""Progress of a reader, which tells whether there is more to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import _refusals
from ._ids import MessageId

if TYPE_CHECKING:
    from penstock._engine import MessageId as NativeId

_EARLIEST = MessageId.earliest._native  # pyright: ignore[reportPrivateUsage]
_LATEST = MessageId.latest._native  # pyright: ignore[reportPrivateUsage]


class Progress:
    """The position in each partition.

    Args:
        inclusive: whether the message of the id at which reading begins is read, too.
    """

    def __init__(self, inclusive: bool) -> None:
        self._inclusive = inclusive
        self._start: NativeId | None = None
        self._read: dict[int, NativeId] = {}

    @staticmethod
    def at_end(position: object) -> bool:
        """Whether :meth:`start` needs the ids of the last messages for this position."""
        return position == _LATEST

    def start(self, position: NativeId | int, last: Iterable[NativeId] = ()) -> None:
        """Reading goes on at ``position``; a time leaves it unknown until the next message."""
        self._start = None if isinstance(position, int) else position
        self._read = {message_id.partition: message_id for message_id in last}

    def read(self, message_id: NativeId) -> None:
        """A message was read."""
        self._read[message_id.partition] = message_id

    def is_behind(self, last: Iterable[NativeId]) -> bool:
        """Whether there are messages to read, given the ids of the last ones.

        Raises:
            OperationNotSupported: after a seek by time, before the next message.
        """
        for end in last:
            if end.entry < 0:
                continue
            at = self._read.get(end.partition)
            if at is None and self._start is None:
                raise _refusals.refuse("has_message_available")
            if self._more(at, end):
                return True
        return False

    def _more(self, read: NativeId | None, end: NativeId) -> bool:
        at = read if read is not None else self._start
        if at is None or at == _EARLIEST:
            return True
        if at == _LATEST:
            return read is None and self._inclusive
        if (at.ledger, at.entry) != (end.ledger, end.entry):
            return (at.ledger, at.entry) < (end.ledger, end.entry)
        if read is None and self._inclusive:
            return True
        # Without an index the position is behind the whole batch.
        return 0 <= at.batch_index < end.batch_index
