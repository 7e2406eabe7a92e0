"""Reports of a write."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.pulsar import MessageId
    from forebay.tubemq import Position

BAD_ROWS_LOGGED = 10
"""Bad rows of a task that are logged one by one."""

log = logging.getLogger("forebay.spark")


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


class Total:
    """Counts the rows of a task."""

    rows = 0
    bytes = 0
    bad_rows = 0
    repeated_rows = 0
    first: MessageId | Position | None = None
    last: MessageId | Position | None = None

    def __init__(self) -> None:
        self._shown: list[str] = []

    def add(self, answers: Any, *, counts_repeated: bool) -> None:
        """Counts rows that are acknowledged.

        Args:
            answers: of the broker, for each row.
            counts_repeated: whether a message without an id is one that the broker had already.
        """
        self.rows += len(answers)
        # MQTT answers with reason codes, which are numbers.
        if not len(answers) or isinstance(answers[0], int):
            return
        if counts_repeated or not (_has_id(answers[0]) and _has_id(answers[-1])):
            with_ids = [answer for answer in answers if _has_id(answer)]
            if counts_repeated:
                self.repeated_rows += len(answers) - len(with_ids)
            answers = with_ids
        if answers:
            self.first = answers[0] if self.first is None else self.first
            self.last = answers[-1]

    def bad(self, number: int, why: str) -> None:
        """Counts a row that was left out."""
        self.bad_rows += 1
        if len(self._shown) < BAD_ROWS_LOGGED:
            self._shown.append(f"row {number}: {why}")

    def tell_bad(self, partition: int) -> None:
        """Logs the rows that were left out."""
        if self.bad_rows:
            shown = "; ".join(self._shown)
            log.warning("Spark partition %d: %d rows were left out: %s", partition, self.bad_rows, shown)


def _has_id(answer: Any) -> bool:
    """Whether a message was stored now. The broker has dropped the others."""
    return getattr(answer, "ledger", 0) >= 0
