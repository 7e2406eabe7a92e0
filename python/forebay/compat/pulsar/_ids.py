"""Message ids."""

from __future__ import annotations

from typing import Any, ClassVar

from forebay import errors
from forebay._core.native import MessageId as NativeId

from .exceptions import make, result_of


class MessageId:
    """The position of a message.

    It stands for both ``pulsar.MessageId`` and ``_pulsar.MessageId`` of the official module. It is hashable
    and picklable as well, and compares with any other object.

    Args:
        partition: number of the partition; -1 if the topic is not partitioned.
        ledger_id: number of the ledger.
        entry_id: number of the entry in the ledger.
        batch_index: number in the batch; -1 if the entry is not a batch.
    """

    __slots__ = ("__dict__", "__weakref__", "_native")

    earliest: ClassVar[MessageId]
    """The position before the first message."""
    latest: ClassVar[MessageId]
    """The position after the last message."""

    def __init__(
        self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1
    ) -> None:
        try:
            self._native = NativeId.parse(f"({ledger_id},{entry_id},{partition},{batch_index})")
        except errors.Error as error:
            raise make(result_of(error), str(error)) from None

    @property
    def _msg_id(self) -> MessageId:
        return self

    def ledger_id(self) -> int:
        """Number of the ledger."""
        return self._native.ledger

    def entry_id(self) -> int:
        """Number of the entry in the ledger."""
        return self._native.entry

    def batch_index(self) -> int:
        """Number in the batch; -1 if the entry is not a batch."""
        return self._native.batch_index

    def partition(self) -> int:
        """Number of the partition; -1 if the topic is not partitioned."""
        return self._native.partition

    def serialize(self) -> bytes:
        """The id as bytes, equal to those of the official clients. They do not hold the topic."""
        return self._native.to_bytes()

    def __str__(self) -> str:
        return str(self._native)

    def __repr__(self) -> str:
        return str(self._native)

    def __eq__(self, other: object) -> bool:
        return self._native == other._native if isinstance(other, MessageId) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return self._native != other._native if isinstance(other, MessageId) else NotImplemented

    def __lt__(self, other: MessageId) -> bool:
        return self._native < other._native

    def __le__(self, other: MessageId) -> bool:
        return self._native <= other._native

    def __gt__(self, other: MessageId) -> bool:
        return self._native > other._native

    def __ge__(self, other: MessageId) -> bool:
        return self._native >= other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __reduce__(self) -> tuple[Any, ...]:
        return MessageId.deserialize, (self._native.to_bytes(), self._native.topic or None)

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Reads the result of :meth:`serialize`.

        Args:
            message_id_bytes: of this module or of an official client.
            topic: name of the topic, which consumers of several topics need.

        Raises:
            ValueError: not a message id.
        """
        try:
            return identify(NativeId.from_bytes(message_id_bytes, topic or ""))
        except errors.Error:
            raise ValueError("Failed to parse serialized message id") from None

    @classmethod
    def wrap(cls, msg_id: MessageId) -> MessageId:
        """The id itself: there is no second class of ids here."""
        return msg_id


_new = MessageId.__new__


def identify(native: NativeId) -> MessageId:
    """The id of the engine in this module's class."""
    made = _new(MessageId)
    made._native = native  # pyright: ignore[reportPrivateUsage]
    return made


MessageId.earliest = identify(NativeId.earliest)
MessageId.latest = identify(NativeId.latest)
