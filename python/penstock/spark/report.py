"""What a write did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._engine import MessageId, Position


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What one Spark task wrote. Picklable."""

    partition: int
    """Number of the Spark partition."""
    rows: int
    """Messages acknowledged; with MQTT's QoS 0 written to the socket."""
    bytes: int
    """Bytes of the payloads, before compression."""
    first: MessageId | Position | None
    """Id of the first row's message, its position with TubeMQ; ``None`` without rows, and with MQTT."""
    last: MessageId | Position | None
    """Id of the last row's message."""
    attempt: int
    """0 for the first attempt of the task."""
    seconds: float
    """Time in the task, waiting for receipts included."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What :func:`penstock.spark.write` did; every row has been acknowledged by the broker."""

    rows: int
    """Messages acknowledged; with MQTT's QoS 0 written to the socket."""
    bytes: int
    """Bytes of the payloads, before compression; 0 if ``partitions`` is empty."""
    seconds: float
    """Wall time, planning included."""
    retries: int
    """Attempts of tasks that Spark had to repeat; their rows may be there more than once."""
    partitions: tuple[PartitionReport, ...]
    """One per Spark partition, in order."""

    @classmethod
    def of(cls, partitions: list[PartitionReport], seconds: float) -> WriteReport:
        """The sum of ``partitions``."""
        ordered = tuple(sorted(partitions, key=lambda part: part.partition))
        return cls(
            rows=sum(part.rows for part in ordered),
            bytes=sum(part.bytes for part in ordered),
            seconds=seconds,
            retries=sum(part.attempt for part in ordered),
            partitions=ordered,
        )
