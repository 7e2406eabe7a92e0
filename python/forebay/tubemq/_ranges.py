"""The partitions that a bounded read covers, where it begins and ends in each, and how they are split."""

# The engine's client is not for users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from forebay._core.dataframes import blocks
from forebay._core.read_plan import Positions, ReadPlan, Time
from forebay.errors import DataLost, InvalidArgument, TopicNotFound

from ._offsets import UNIT, WHOLE, Where

if TYPE_CHECKING:
    from forebay._engine import ArrowBatch, TubeMqTail
    from forebay.tubemq.blocking import TubeMqClient

NO_PATTERNS = "TubeMQ's masters do not list topics: name them"
NO_TIMES = "TubeMQ's brokers find the offset of a time in their web interface only: use offsets"
_NO_ACKS = "the source acknowledges nothing"
_NO_BALANCE = "each reader takes its partition by itself"
REFUSED = {
    "balance": _NO_BALANCE,
    "source_count": _NO_BALANCE,
    "node_id": _NO_BALANCE,
    "auto_ack": _NO_ACKS,
    "nack_delay": _NO_ACKS,
    "poll_interval": "a reader reads to an end that is known",
}
"""Options of consumers that ranges do not have, and why."""


@dataclass(frozen=True)
class Part:
    """A partition."""

    topic: str
    broker_id: int
    number: int
    """At its broker."""
    host: str
    """Of the broker."""
    port: int

    @property
    def key(self) -> str:
        """Its name among those of its topic."""
        return f"{self.broker_id}:{self.number}"

    @property
    def name(self) -> str:
        return f"{self.topic} {self.key}"

    @property
    def location(self) -> tuple[str, int, int, str, int]:
        """As the engine takes it."""
        return self.topic, self.broker_id, self.number, self.host, self.port


@dataclass(frozen=True)
class Range:
    """A part of a partition."""

    part: Part
    start: int
    """Offset of the first entry."""
    end: int
    """The first offset behind it."""

    @property
    def entries(self) -> int:
        """Entries of the index: the number of messages, if no other partition shares it, and at most that
        otherwise."""
        return max(0, self.end - self.start) // UNIT


class Tail:
    """Asks for the ends of partitions, which it holds until it is closed."""

    def __init__(self, native: TubeMqTail, parts: Sequence[Part]) -> None:
        self._native = native
        self._parts = parts

    def bounds(self) -> dict[Part, tuple[int, int]]:
        """For each partition its first offset, as it was when it was asked for first, and the one behind its
        last message."""
        return dict(zip(self._parts, self._native.bounds().wait(), strict=True))

    def close(self) -> None:
        """Gives the partitions back."""
        self._native.close().wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan(client: TubeMqClient, read: ReadPlan) -> list[Range]:
    """The ranges of a bounded read, those of a partition side by side.

    Raises:
        InvalidArgument: a position is of a topic or a partition that is not read.
        TopicNotFound: no broker has a topic.
        DataLost: a partition ends before the offset at which reading begins.
    """
    return Planner(client, read).ranges()


class Planner:
    """Makes ranges, and answers what streams ask about partitions.

    Args:
        client: asks the master and the brokers.
        read: what to read, and how it is split.
    """

    def __init__(self, client: TubeMqClient, read: ReadPlan) -> None:
        self._client = client
        self._read = read

    def ranges(self) -> list[Range]:
        """The ranges; errors as those of :func:`plan`."""
        parts = self.parts()
        self.check(parts)
        with self.tail(parts) as tail:
            bounds = tail.bounds()
        whole: list[Range] = []
        for part, (first, last) in bounds.items():
            start = self.start(part, first, last, "earliest")
            where = _position(part, self._read.end, "latest")
            end = min(where, last) if isinstance(where, int) else last
            if start > last and self._read.fails_on_loss:
                raise DataLost(beyond(part, start, last), topic=part.topic)
            if start < end:
                whole.append(Range(part, start, end))
        return self.split(whole)

    def parts(self, *, skip: bool = False) -> list[Part]:
        """The partitions to read, each once.

        Args:
            skip: leaves topics and partitions out that do not exist.

        Raises:
            TopicNotFound: no broker has a topic, or it has not the partition.
        """
        topics = self._read.topics
        if isinstance(topics, re.Pattern):
            raise InvalidArgument(f"{topics.pattern!r} is a pattern, and {NO_PATTERNS}")
        keys: Mapping[str, Sequence[str]] = topics if isinstance(topics, Mapping) else {}
        found: dict[str, Part] = {}
        for topic in topics:
            try:
                chosen = self._parts(topic, keys.get(topic), skip=skip)
            except TopicNotFound:
                if skip:
                    continue
                raise
            found.update((part.name, part) for part in chosen)
        return list(found.values())

    def _parts(self, topic: str, keys: Sequence[str] | None, *, skip: bool) -> list[Part]:
        # One at a time: members of a group at the master read the same topics.
        locations = self._client._native.locations({topic}, self._read.groups).wait()
        of = {part.key: part for part in (Part(*location) for location in locations)}
        if not of:
            raise TopicNotFound(f"no broker has the topic {topic!r}", topic=topic)
        if keys is None:
            return list(of.values())
        missing = [key for key in keys if key not in of]
        if missing and not skip:
            raise TopicNotFound(f"{topic!r} has no partition {missing[0]}, only {', '.join(of)}", topic=topic)
        return [of[key] for key in keys if key in of]

    def check(self, parts: Sequence[Part]) -> None:
        """Checks that the offsets are of partitions that are read.

        Raises:
            InvalidArgument: one is not.
        """
        for positions in self._read.positions():
            for topic, offsets in positions.partitions.items():
                known = {part.key for part in parts if part.topic == topic}
                if not known:
                    raise InvalidArgument(f"{positions.called}: {topic!r} is not read")
                if wrong := [key for key in offsets if key != WHOLE and key not in known]:
                    raise InvalidArgument(
                        f"{positions.called}: {topic!r} has no partition {', '.join(wrong)}"
                    )

    def tail(self, parts: Sequence[Part]) -> Tail:
        """Asks for the ends of partitions."""
        native = self._client._native.tail([part.location for part in parts], self._read.groups).wait()
        return Tail(native, parts)

    def start(self, part: Part, first: int, last: int, default: Where) -> int:
        """The offset at which reading begins."""
        where = _position(part, self._read.start, default)
        if isinstance(where, int):
            return where
        return first if where == "earliest" else last

    def split(self, whole: list[Range]) -> list[Range]:
        """The ranges, split until there are enough of them, and none is too large."""
        fewest, most = self._read.split.min_ranges, self._read.split.max_messages
        total = sum(part.entries for part in whole) or 1
        ranges: list[Range] = []
        for each in whole:
            pieces = max(1, math.ceil(fewest * each.entries / total)) if len(whole) < fewest else 1
            if most is not None:
                pieces = max(pieces, math.ceil(each.entries / most))
            pieces = min(pieces, max(each.entries, 1))
            cuts = [each.start + UNIT * (each.entries * number // pieces) for number in range(pieces)]
            ends = [*cuts[1:], each.end]
            ranges += [Range(each.part, start, end) for start, end in zip(cuts, ends, strict=True)]
        return ranges


def beyond(part: Part, start: int, last: int) -> str:
    """The text of an error."""
    return (
        f"{part.name} ends at offset {last}, before {start}, up to which it was read: "
        "the broker has lost messages, or the topic was made again"
    )


def _position(part: Part, given: Sequence[Positions], default: Where) -> Where:
    """The position in a partition: the first that is given, its own or that of the whole topic."""
    for each in given:
        offsets = each.partitions.get(part.topic, {})
        found: Where | Time | None = each.everywhere
        if found is None:
            found = offsets.get(part.key, offsets.get(WHOLE))
        if isinstance(found, Time):
            raise InvalidArgument(f"{each.called}: {NO_TIMES}")
        if found is not None:
            return found
    return default


def rows(
    client: TubeMqClient, read: ReadPlan, part: Range, columns: Sequence[tuple[str, str]]
) -> Iterator[ArrowBatch]:
    """The messages of a range as tables.

    Args:
        client: it stays open while the rows are read.
        read: that the range is of. Of the options of its consumers ``filters`` counts.
        part: the range.
        columns: what each column holds, and its name.

    Raises:
        DataLost: messages of the range were deleted, or are damaged.
        Timeout: nothing was read for the time.
    """
    types: set[str] | Mapping[str, set[str]] | None = read.consumer.get("filters")
    if isinstance(types, Mapping):
        types = types.get(part.part.topic)
    span = (part.part.location, part.start, part.end)
    rules = (read.timeout, read.fails_on_loss, types or set[str](), read.groups)
    reader = client._native.range(*span, columns, *rules).wait()
    yield from blocks(reader)
