"""The end of a topic that is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.pulsar import MessageId
    from forebay.pulsar.blocking import PulsarConsumer


class End:
    """The last messages of the partitions at the time when the command began.

    Args:
        consumer: reads the topic.
    """

    def __init__(self, consumer: PulsarConsumer) -> None:
        # A negative entry id means that the partition is empty.
        self._open = {
            (last.topic, last.partition): last for last in consumer.last_message_ids() if last.entry >= 0
        }

    @property
    def reached(self) -> bool:
        """Whether all of them have been seen."""
        return not self._open

    def seen(self, seen: MessageId) -> None:
        """Takes note of a message that was received."""
        key = (seen.topic, seen.partition)
        last = self._open.get(key)
        if last is None:
            return
        here, there = (seen.ledger, seen.entry), (last.ledger, last.entry)
        if here > there or (here == there and seen.batch_index >= seen.batch_size - 1):
            del self._open[key]

    @property
    def open(self) -> list[MessageId]:
        """The last messages that have not been seen, with their partitions."""
        return list(self._open.values())

    def is_behind(self, id: MessageId) -> bool:
        """Whether a message is behind the end of its partition."""
        return (id.topic, id.partition) not in self._open

    def close(self, id: MessageId) -> None:
        """Takes the end of a message's partition for reached."""
        self._open.pop((id.topic, id.partition), None)
