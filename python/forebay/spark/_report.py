"""Reports of a write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.pulsar import MessageId
    from forebay.tubemq import Position


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The result of one Spark task. Picklable."""

    partition: int
    """Number of the Spark partition."""
    rows: int
    """Messages acknowledged by the broker; with MQTT's QoS 0, messages written to the socket."""
    bytes: int
    """Bytes of the payloads, before compression."""
    first: MessageId | Position | None
    """Id of the first message, or its position with TubeMQ; ``None`` if no row was stored, and with MQTT."""
    last: MessageId | Position | None
    """Id or position of the last message."""
    attempt: int
    """0 for the first attempt of the task."""
    seconds: float
    """Duration of the task, including the wait for receipts."""
    bad_rows: int = 0
    """Rows that could not be sent and were left out (``on_bad_row``)."""
    repeated_rows: int = 0
    """Those of ``rows`` that the broker had from an attempt or a job before (``delivery="idempotent"``)."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of :func:`forebay.spark.write`. The broker has acknowledged every row."""

    rows: int
    """Messages acknowledged by the broker; with MQTT's QoS 0, messages written to the socket."""
    bytes: int
    """Bytes of the payloads, before compression; 0 if ``partitions`` is empty."""
    seconds: float
    """Wall time, including planning."""
    retries: int
    """Repeated attempts of tasks; their rows may be in the topic more than once."""
    partitions: tuple[PartitionReport, ...]
    """One report for each Spark partition, in order."""
    bad_rows: int = 0
    """Rows that could not be sent and were left out (``on_bad_row``)."""
    repeated_rows: int = 0
    """Those of ``rows`` that the broker had from an attempt or a job before (``delivery="idempotent"``)."""

    @classmethod
    def of(cls, partitions: list[PartitionReport], seconds: float) -> WriteReport:
        """The report of a whole write from those of its partitions."""
        ordered = tuple(sorted(partitions, key=lambda part: part.partition))
        return cls(
            rows=sum(part.rows for part in ordered),
            bytes=sum(part.bytes for part in ordered),
            seconds=seconds,
            retries=sum(part.attempt for part in ordered),
            partitions=ordered,
            bad_rows=sum(part.bad_rows for part in ordered),
            repeated_rows=sum(part.repeated_rows for part in ordered),
        )
