"""Policies for messages that are not acknowledged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._core import parse
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay._core.types import Duration

__all__ = [
    "Backoff",
    "DeadLetterPolicy",
    "KeySharedPolicy",
    "ack_timeout",
    "dead_letter",
    "delay",
    "key_shared",
]

SHORTEST_ACK_TIMEOUT = 1.0


@dataclass(frozen=True)
class Backoff:
    """A delay that grows with the redeliveries of a message: ``min * multiplier ** redelivery_count``, at
    most ``max``. For the options ``nack_delay`` and ``ack_timeout`` of Pulsar's consumers.

    Args:
        min: seconds for a message that has not been redelivered yet.
        max: longest delay in seconds.
        multiplier: factor between two delays, at least 1.

    Raises:
        InvalidArgument: ``max`` is below ``min``, or a value is out of range.
    """

    min: Duration
    max: Duration
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        for name in ("min", "max"):
            try:
                object.__setattr__(self, name, parse.duration(getattr(self, name)))
            except ValueError as error:
                raise InvalidArgument(f"Backoff: {name}: {error}") from None
        multiplier: Any = self.multiplier
        is_number = isinstance(multiplier, int | float) and not isinstance(multiplier, bool)
        if not is_number or not 1 <= multiplier <= 1e6 or math.isnan(multiplier):
            raise InvalidArgument(f"Backoff: multiplier: expected a number from 1 to 1e6, not {multiplier!r}")
        object.__setattr__(self, "multiplier", float(multiplier))
        if self.max < self.min:  # pyright: ignore[reportOperatorIssue]
            raise InvalidArgument(f"Backoff: max is {self.max} s, and min {self.min} s: max must not be less")


@dataclass(frozen=True)
class DeadLetterPolicy:
    """A limit on the redeliveries of a message. For the option ``dead_letter`` of Pulsar's consumers.

    A message that has been redelivered ``max_redeliveries`` times, and is then nacked or late again
    (``ack_timeout``), is sent to the dead letter topic and acknowledged instead of being delivered once more.

    Args:
        max_redeliveries: number of redeliveries a message may have, at least 1.
        topic: dead letter topic; by default ``<topic>-<subscription>-DLQ``, for each partition its own.
        subscription: subscription that is created with the dead letter topic, so that it keeps its messages
            until they are read.
        retry: whether :meth:`forebay.pulsar.PulsarConsumer.reconsume_later` can send messages to a topic of
            retries, which the consumer reads too.
        retry_topic: topic of retries; by default ``<topic>-<subscription>-RETRY``. With several topics it is
            named after the first in alphabetical order, and with ``retry`` so is the dead letter topic.

    Raises:
        InvalidArgument: a value is out of range or of a wrong type.
    """

    max_redeliveries: int
    topic: str | None = None
    subscription: str | None = None
    retry: bool = False
    retry_topic: str | None = None

    def __post_init__(self) -> None:
        parsers = {
            "max_redeliveries": parse.whole(1),
            "topic": parse.text,
            "subscription": parse.text,
            "retry": parse.boolean,
            "retry_topic": parse.text,
        }
        for name, parser in parsers.items():
            value = getattr(self, name)
            if value is None and name not in ("max_redeliveries", "retry"):
                continue
            try:
                object.__setattr__(self, name, parser(value))
            except ValueError as error:
                raise InvalidArgument(f"DeadLetterPolicy: {name}: {error}") from None
        if self.retry_topic is not None and not self.retry:
            raise InvalidArgument("DeadLetterPolicy: retry_topic is given and retry is False: set retry=True")


@dataclass(frozen=True)
class KeySharedPolicy:
    """Assignment of keys to the consumers of a Key_Shared subscription, on which all have to agree. For the
    option ``key_shared`` of Pulsar's consumers.

    Args:
        ranges: ranges of hashes that this consumer takes, of 0 to 65535, both ends included. Messages whose
            hash is in no consumer's range wait. By default the broker splits the hashes among the consumers.
        out_of_order: lets a key move to another consumer before its messages are acknowledged: a new
            consumer gets messages at once, and those of a key may be out of order then.

    Raises:
        InvalidArgument: no range, or ranges that are out of order, beyond the limits, or overlap.
    """

    ranges: Sequence[tuple[int, int]] | None = None
    out_of_order: bool = False

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "out_of_order", parse.boolean(self.out_of_order))
        except ValueError as error:
            raise InvalidArgument(f"KeySharedPolicy: out_of_order: {error}") from None
        if self.ranges is None:
            return
        try:
            ranges = sorted((_slot(start), _slot(end)) for start, end in self.ranges)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "KeySharedPolicy: ranges: expected pairs of numbers from 0 to 65535, such as [(0, 999)], not "
                f"{self.ranges!r}"
            ) from None
        if not ranges:
            raise InvalidArgument(
                "KeySharedPolicy: ranges: at least one is needed; None has the broker split"
            )
        last = -1
        for start, end in ranges:
            if end < start:
                raise InvalidArgument(f"KeySharedPolicy: ranges: ({start}, {end}) ends before it begins")
            if start <= last:
                raise InvalidArgument(f"KeySharedPolicy: ranges: ({start}, {end}) overlaps with another")
            last = end
        object.__setattr__(self, "ranges", tuple(ranges))


def _slot(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65_535:
        raise ValueError(value)
    return value


def key_shared(value: Any) -> KeySharedPolicy:
    """Parser of the option ``key_shared``."""
    if not isinstance(value, KeySharedPolicy):
        raise ValueError(f"expected a forebay.pulsar.KeySharedPolicy, not {value!r}")
    return value


def dead_letter(value: Any) -> DeadLetterPolicy:
    """Parser of the option ``dead_letter``."""
    if not isinstance(value, DeadLetterPolicy):
        raise ValueError(f"expected a forebay.pulsar.DeadLetterPolicy, not {value!r}")
    return value


def delay(value: Any) -> float | Backoff:
    """Parser of the option ``nack_delay``: a duration, or a :class:`Backoff`."""
    return value if isinstance(value, Backoff) else parse.duration(value)


def ack_timeout(value: Any) -> float | Backoff:
    """Parser of the option ``ack_timeout``: as :func:`delay`, at least one second; 0 is no limit."""
    timeout = delay(value)
    shortest: Any = timeout.min if isinstance(timeout, Backoff) else timeout
    if shortest < SHORTEST_ACK_TIMEOUT and timeout != 0:
        raise ValueError(f"expected at least 1 second, or 0 for no limit, not {shortest:g}")
    return timeout
