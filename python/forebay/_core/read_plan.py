"""A bounded read before it is planned: what to read, from where to where, and how it is split.

Spark and :mod:`forebay.frames` translate their options into a :class:`ReadPlan`; ``plan(client, read)`` of a
protocol's ``ranges`` module makes ranges of it, and ``rows(client, read, part, columns)`` reads one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Topics: TypeAlias = "Sequence[str] | re.Pattern[str] | Mapping[str, Sequence[Any]]"
"""Names of topics; a pattern; or partitions by topic, as the protocol numbers them."""


@dataclass(frozen=True)
class Time:
    """The first message that was published at a time or later."""

    ms: int
    """Milliseconds since 1970."""
    required: str | None = None
    """Advice for the error if no message is that new. ``None``: it is no error, and stands for the end."""


@dataclass(frozen=True)
class Positions:
    """Positions in partitions: ``"earliest"``, ``"latest"``, a :class:`Time`, or the protocol's own."""

    called: str
    """The caller's name for them, for errors."""
    everywhere: Any = None
    """The position in each partition."""
    partitions: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict[str, Mapping[Any, Any]])
    """Otherwise: by topic and partition."""


@dataclass(frozen=True)
class Split:
    """Limits on ranges."""

    min_ranges: int = 0
    max_messages: int | None = None
    """Most messages of a range, about."""
    max_bytes: int | None = None
    """Most bytes of payload of a range, about. Only Pulsar knows them."""


@dataclass(frozen=True)
class ReadPlan:
    """A bounded read. Picklable."""

    topics: Topics
    start: tuple[Positions, ...] = ()
    """The first of them that knows a partition says where it begins; if none does, at its beginning."""
    end: tuple[Positions, ...] = ()
    """The same for the end, which is that of the partition by default."""
    split: Split = field(default_factory=Split)
    timeout: float = 60.0
    """Longest time in seconds without a message that the broker says is there."""
    fails_on_loss: bool = True
    """Whether messages that were deleted before they were read are an error."""
    consumer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the consumers that read."""
    groups: str = "forebay-ranges"
    """Beginning of the names of the groups in which TubeMQ's partitions are read. Their offsets mean nothing.
    """

    def positions(self) -> tuple[Positions, ...]:
        """Those of the start and of the end."""
        return *self.start, *self.end
