"""The partitions that a bounded read covers, where it begins and ends in each, and how they are split."""

# The engine's client is not for users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from forebay._core.dataframes import blocks
from forebay._core.native import MessageId, PulsarMessage
from forebay._core.read_plan import Positions, ReadPlan, Time
from forebay.errors import DataLost, InvalidArgument, Timeout, TopicNotFound

from ._decoding import WHOLE
from ._offsets import Where
from ._positions import full_name, reader_name, reader_start
from ._schema import Schema

if TYPE_CHECKING:
    from forebay._engine import ArrowBatch
    from forebay.pulsar.blocking import PulsarClient, PulsarConsumer

    from ._decoding import Decoding

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("forebay.pulsar")

SHORT = 5.0
"""Seconds of silence after which it is asked whether there is only a part of a message."""
PROBES = 16
"""Partitions that are asked for their messages at a time."""
_INCOMPLETE = ("orphaned_chunks", "dropped_chunked_messages", "expired_chunked_messages")
"""Counters of a reader that has seen parts of messages."""
_OF_PROBES = (
    "read_compacted",
    "max_chunked_message",
    "max_pending_chunked_messages",
)
REFUSED = {
    "start_inclusive": "reading begins behind the message that is given",
    "durable": "no subscription is left behind",
    "type": "each range is read by itself",
    "dead_letter": "nothing is acknowledged",
    "retry": "nothing is acknowledged",
    "ack_timeout": "nothing is acknowledged",
    "interceptors": "rows are no messages of Python",
    "schema": "decode=true gives values by the schema of the topic",
}
"""Options of a consumer that have no meaning for ranges, and why."""
# An entry that cannot be read would be a row that is missing.
DEFAULTS = {"unreadable": "fail"}
"""Options of a consumer that have another default for ranges."""
DEPTH = 12
"""How often a range over several ledgers is halved at most to get to the size that is asked for."""


def side_by_side(act: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """The results for several things, of which a few are worked on at a time."""
    if len(things) <= 1:
        return [act(thing) for thing in things]
    threads = concurrent.futures.ThreadPoolExecutor(PROBES, "forebay-plan")
    try:
        return list(threads.map(act, things))
    finally:
        # After an error or Ctrl-C the others end with the client.
        threads.shutdown(wait=False, cancel_futures=True)


def _resolved(client: PulsarClient, consumer: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options of a consumer. They are all that there are: the environment may have others, for other
    consumers."""
    return client._defaults.protocol.resolve("consumer", dict(consumer), {})


@dataclass(frozen=True)
class Part:
    """A partition, or a topic without any."""

    topic: str
    """Full name, with the partition."""
    base: str
    """Full name without it."""
    number: int
    """-1 in a topic without partitions."""


@dataclass(frozen=True)
class Range:
    """A part of a partition."""

    topic: str
    start: MessageId | None
    """``None``: the beginning."""
    inclusive: bool
    end: MessageId
    """The last message, or the last entry."""


def plan(client: PulsarClient, read: ReadPlan) -> list[Range]:
    """The ranges of a bounded read, those of a partition side by side.

    Raises:
        InvalidArgument: a position is of a topic or a partition that is not read.
        TopicNotFound: a topic does not exist. It is not created.
    """
    return Planner(client, read).ranges()


class Planner:
    """Makes ranges, and answers what streams ask about partitions.

    Args:
        client: asks the brokers.
        read: what to read, and how it is split. Of the options of its consumers those count that decide what
            a message is.
    """

    def __init__(self, client: PulsarClient, read: ReadPlan) -> None:
        self._client = client
        self._read = read
        self._timeout = max(read.timeout, SHORT)
        self._consumer = {name: value for name, value in read.consumer.items() if name in _OF_PROBES}
        self._listed: dict[str, set[str]] = {}
        self._known: dict[str, _Ends] = {}
        """The ends that were asked for last, of each partition."""

    def ranges(self) -> list[Range]:
        """The ranges; errors as those of :func:`plan`."""
        parts = self.parts()
        self.check(parts)
        last = self.last(parts)
        whole = side_by_side(lambda part: self._bounds(part, last.get(part.topic)), parts)
        return self.split([each for each in whole if each is not None])

    def parts(self, *, skip: bool = False) -> list[Part]:
        """The partitions to read, each once.

        Args:
            skip: leaves topics out that do not exist.

        Raises:
            TopicNotFound: a topic does not exist. It is not created.
        """
        topics = self._read.topics
        if isinstance(topics, re.Pattern):
            return self._matching(topics)
        numbers: Mapping[str, Sequence[int]] = topics if isinstance(topics, Mapping) else {}
        found: dict[str, Part] = {}
        for name in topics:
            try:
                found.update((part.topic, part) for part in self._chosen(name, numbers.get(name)))
            except TopicNotFound:
                if not skip:
                    raise
        return list(found.values())

    def topics(self) -> list[str]:
        """Full names of the topics to read, without partitions."""
        return list(dict.fromkeys(part.base for part in self.parts()))

    def check(self, parts: Sequence[Part]) -> None:
        """Checks that the positions are of partitions that are read.

        Raises:
            InvalidArgument: one is not.
        """
        for positions in self._read.positions():
            spelled: dict[str, str] = {}
            for topic, values in positions.partitions.items():
                if (other := spelled.setdefault(full_name(topic), topic)) != topic:
                    raise InvalidArgument(
                        f"{positions.called}: {other!r} and {topic!r} are one topic: give its positions once"
                    )
                of_it = [part for part in parts if full_name(topic) in (part.base, part.topic)]
                if not of_it:
                    raise InvalidArgument(f"{positions.called}: {topic!r} is not read")
                known = {max(part.number, 0) for part in of_it} | {-1}
                if wrong := [str(number) for number in values if number not in known]:
                    raise InvalidArgument(
                        f"{positions.called}: {topic!r} has no partition {', '.join(wrong)}"
                    )

    def _chosen(self, name: str, numbers: Sequence[int] | None) -> list[Part]:
        parts = self._parts(full_name(name))
        if numbers is None:
            return parts
        of = {part.number: part for part in parts}
        chosen = [of.get(number, of.get(-1) if number == 0 else None) for number in numbers]
        if None in chosen:
            missing = numbers[chosen.index(None)]
            raise TopicNotFound(f"{name!r} has no partition {missing}: it has {len(of)}")
        return [part for part in chosen if part is not None]

    def _parts(self, topic: str) -> list[Part]:
        count = self._client.partitions(topic)
        if count:
            return [Part(f"{topic}-partition-{number}", topic, number) for number in range(count)]
        if topic not in self._topics(topic):
            raise TopicNotFound(f"the topic {topic!r} does not exist")
        return [_part(topic)]

    def _topics(self, topic: str) -> set[str]:
        namespace = "/".join(topic.partition("://")[2].split("/")[:-1])
        if namespace not in self._listed:
            self._listed[namespace] = set(self._client.topics(namespace))
        return self._listed[namespace]

    def _matching(self, pattern: re.Pattern[str]) -> list[Part]:
        """The partitions of the topics of a pattern."""
        namespace, text = _pattern(pattern.pattern)
        try:
            compiled = re.compile(text, pattern.flags)
        except re.error as error:
            raise InvalidArgument(f"{pattern.pattern!r} is no pattern of topics: {error}") from None
        listed: dict[str, list[Part]] = {}
        for topic in sorted(self._client.topics(namespace)):
            part = _part(topic)
            name = part.base.partition("://")[2]
            if topic.startswith("persistent://") and compiled.fullmatch(name[len(namespace) + 1 :]):
                listed.setdefault(part.base, []).append(part)
        found: list[Part] = []
        for base, parts in listed.items():
            # Partitions may not be there yet, and others may be left of a topic that was deleted.
            with contextlib.suppress(TopicNotFound):
                parts = self._parts(base)
            found += parts
        return found

    def last(self, parts: Sequence[Part]) -> dict[str, MessageId]:
        """The last message of each partition that has one."""
        tail = self.tail(parts)
        if tail is None:
            return {}
        with tail:
            return {id.topic: id for id in tail.last_message_ids() if id.entry >= 0}

    def tail(self, parts: Sequence[Part]) -> PulsarConsumer[bytes] | None:
        """A reader at the end of partitions, if there are any."""
        return self._reader([part.topic for part in parts], position="latest") if parts else None

    def _reader(self, topics: list[str], **options: Any) -> PulsarConsumer[bytes]:
        """A reader of what there is, which creates no topic."""
        options = {**self._consumer, "receiver_queue": 1, "unreadable": "skip", "durable": False, **options}
        start = reader_start(options["position"])
        if start:
            options["position"] = "earliest"
        values = _resolved(self._client, options) | {"creates_topic": False}
        return self._client._open_reader(topics, reader_name(), values, start)

    def start(self, part: Part, last: MessageId | None, default: Where) -> tuple[MessageId | None, bool]:
        """The message at which reading begins, and whether with it or behind it; ``None``: the first message.

        Raises:
            InvalidArgument: there is no message at a time that has to have one.
        """
        where = _position(part, self._read.start, default)
        if isinstance(where, Time):
            first = None if last is None else self._first_from(part.topic, where.ms)
            if first is not None:
                return first, True
            if where.required is not None:
                raise InvalidArgument(
                    f"{part.topic} has no message published at {where.ms} or later: {where.required}"
                )
            return last, False
        if isinstance(where, MessageId):
            return where, False
        return (last if where == "latest" else None), False

    def _bounds(self, part: Part, last: MessageId | None) -> Range | None:
        """The range of a partition; ``None`` if there is nothing in it."""
        start, inclusive = self.start(part, last, "earliest")
        if last is None:
            return None
        end = last
        where = _position(part, self._read.end, "latest")
        if isinstance(where, Time):
            first = self._first_from(part.topic, where.ms)
            end = last if first is None else before(first)
        elif isinstance(where, MessageId):
            end = min(where, last, key=place)
        if start is not None and (
            place(start) > place(end) or (place(start) == place(end) and not inclusive)
        ):
            return None
        return Range(part.topic, start, inclusive, end)

    def _first_from(self, topic: str, ms: int) -> MessageId | None:
        """The first message published at a time or later: its first chunk, if it has several."""
        found = self._message(topic, ms, False)
        return None if found is None else found.begin

    def count(self, topic: str, start: MessageId | None, last: MessageId) -> int | None:
        """The number of messages behind ``start``, about: exact if the broker numbers them, and counted by
        entries otherwise; ``None`` if they are in several ledgers then: many."""
        if start is not None and place(start) >= place(last):
            return 0
        ends = self._ends(Range(topic, start, False, last))
        if ends is None:
            return 0
        if ends.last is not None and ends.first.index is not None and ends.last.index is not None:
            return ends.last.index - ends.first.index + 1
        return None if ends.entries is None else ends.entries * ends.batch

    def message_bytes(self, topic: str, start: MessageId | None, last: MessageId) -> float:
        """Bytes of payload of a message behind ``start``, as far as the first and the last one tell; at least
        1."""
        ends = self._ends(Range(topic, start, False, last))
        return 1.0 if ends is None else max(ends.entry_bytes / ends.batch, 1.0)

    def ahead(self, topic: str, start: MessageId | None, last: MessageId, messages: int) -> MessageId:
        """A position about so many messages behind ``start``, at most ``last``. No entry need be there."""
        ends = self._ends(Range(topic, start, False, last))
        if ends is None:
            return last
        first = ends.first.begin
        entry = ends.first.id.entry + max(messages // ends.batch, 1) - 1
        return min(_id(first.ledger, entry, first.partition), last, key=place)

    def forget(self) -> None:
        """Forgets which topics there are."""
        self._listed.clear()

    def split(self, whole: list[Range]) -> list[Range]:
        """The ranges, split until there are enough of them, and none is too large."""
        fewest = self._read.split.min_ranges
        if len(whole) >= fewest and not self._has_limits:
            return whole
        ends = [self._ends(part) for part in whole]
        # What lies in one ledger has a known number of entries. The rest counts as the largest of
        # them.
        known = [end.entries for end in ends if end is not None and end.entries is not None]
        sizes = [0 if end is None else end.entries or max(known, default=1) for end in ends]
        total = sum(sizes) or 1
        ranges: list[Range] = []
        for part, end, size in zip(whole, ends, sizes, strict=True):
            if end is not None:
                pieces = max(1, math.ceil(fewest * size / total))
                ranges += self._pieces(end, pieces, DEPTH)
            else:
                ranges.append(part)
        return ranges

    @property
    def _has_limits(self) -> bool:
        """Whether a range may be too large."""
        split = self._read.split
        return split.max_messages is not None or split.max_bytes is not None

    def _fewest(self, ends: _Ends, entries: int) -> int:
        """The number of ranges that entries must be split into, so that none is too large."""
        messages, size = self._read.split.max_messages, self._read.split.max_bytes
        by_messages = 1 if messages is None else math.ceil(entries * ends.batch / messages)
        by_bytes = 1 if size is None else math.ceil(entries * ends.entry_bytes / size)
        return max(by_messages, by_bytes)

    def _ends(self, part: Range) -> _Ends | None:
        """The first and the last message of a range; ``None`` if it has no whole message (any more)."""
        known = self._known.get(part.topic)
        if known is not None and known.part == part:
            return known
        first = self._message(part.topic, part.start or "earliest", part.inclusive)
        if first is None or place(first.begin) > place(part.end):
            return None
        # The last of the chunks of a message is no message by itself.
        ends = self._known[part.topic] = _Ends(part, first, self._message(part.topic, part.end, True))
        return ends

    def _message(self, topic: str, position: Any, inclusive: bool) -> _Found | None:
        """The first message from a position on; ``None`` if there is none, or only parts of one.

        Raises:
            Timeout: the broker has a message, and it does not come.
        """
        # Incomplete messages are given up before the reader has been silent for `SHORT`.
        chunks = {"chunked_message_timeout": SHORT * 0.8}
        with self._reader([topic], position=position, start_inclusive=inclusive, **chunks) as reader:
            message = self._received(reader)
            if message is None:
                return None
            begin = message.id.first_chunk or message.id
            size = len(message.data)
            return _Found(message.id, begin, message.index, message.publish_time, size)

    def _received(self, reader: PulsarConsumer[bytes]) -> PulsarMessage | None:
        """The next message of a reader; ``None`` if there is none, or only parts of one."""
        until = time.monotonic() + self._timeout
        while reader.has_message_available():
            left = until - time.monotonic()
            try:
                return reader.receive(timeout=max(min(SHORT, left), 0.0))
            except Timeout as error:
                counted = reader.stats()
                if any(counted[name] for name in _INCOMPLETE):
                    return None
                if time.monotonic() >= until:
                    raise Timeout(
                        "the broker says that there is a message, and none came within"
                        f" {self._timeout:g} s ({error})"
                    ) from error
        return None

    def _pieces(self, ends: _Ends, pieces: int, depth: int) -> list[Range]:
        part = ends.part
        if ends.entries is not None:
            pieces = min(max(pieces, self._fewest(ends, ends.entries)), ends.entries)
            ledger, first = ends.first.begin.ledger, ends.first.begin.entry
            entries = [first + ends.entries * number // pieces for number in range(1, pieces)]
            return _cut(part, [_id(ledger, entry, part.end.partition) for entry in entries])
        # How long its ledgers are is not known: it is cut at times.
        pieces = max(pieces, 2 if self._has_limits else 1)
        begun, ended = ends.times
        cuts: dict[tuple[int, int, float], MessageId] = {}
        for number in range(1, pieces):
            found = self._first_from(part.topic, begun + (ended - begun) * number // pieces)
            if found is not None and place(ends.first.begin) < place(found) <= place(part.end):
                cuts[place(found)] = found
        ranges = _cut(part, [cuts[key] for key in sorted(cuts)])
        if not self._has_limits or depth == 0 or len(ranges) == 1:
            return ranges
        smaller: list[Range] = []
        for each in ranges:
            inner = self._ends(each)
            smaller += [each] if inner is None else self._pieces(inner, 1, depth - 1)
        return smaller


@dataclass(frozen=True)
class _Found:
    """A message."""

    id: MessageId
    begin: MessageId
    """Its first chunk."""
    index: int | None
    publish_time: int
    size: int
    """Bytes of its payload."""

    @property
    def entry_bytes(self) -> int:
        """Bytes of payload of one of its entries, if the others of a batch are like it."""
        chunks = self.id.entry - self.begin.entry + 1 if self.id.ledger == self.begin.ledger else 1
        return self.size * max(self.id.batch_size, 1) // chunks


@dataclass(frozen=True)
class _Ends:
    """A range with its first and its last message, if that is known."""

    part: Range
    first: _Found
    last: _Found | None

    @property
    def times(self) -> tuple[int, int]:
        """When the first and the last were published, in milliseconds since 1970."""
        ended = int(time.time() * 1000) if self.last is None else self.last.publish_time
        return self.first.publish_time, ended

    @property
    def entries(self) -> int | None:
        """Number of entries; ``None`` if they are in several ledgers."""
        begin, end = self.first.begin, self.part.end
        return end.entry - begin.entry + 1 if begin.ledger == end.ledger else None

    @property
    def batch(self) -> int:
        """Messages of an entry, as far as the first and the last tell."""
        return max(self.first.id.batch_size, self.last.id.batch_size if self.last else 0, 1)

    @property
    def entry_bytes(self) -> int:
        """Bytes of payload of an entry, as far as the first and the last message tell."""
        found = [each.entry_bytes for each in (self.first, self.last) if each is not None]
        return max(sum(found) // len(found), 1)


def _cut(part: Range, cuts: Sequence[MessageId]) -> list[Range]:
    """A range, cut before each of the messages, or entries, of ``cuts``, which are in order."""
    ranges: list[Range] = []
    start, inclusive = part.start, part.inclusive
    for cut in cuts:
        ranges.append(Range(part.topic, start, inclusive, before(cut)))
        start, inclusive = cut, True
    return [*ranges, Range(part.topic, start, inclusive, part.end)]


def _pattern(text: str) -> tuple[str, str]:
    """The namespace of a pattern, and the part of it that is for the names of topics."""
    text = text.removeprefix("^")
    text = text.partition("://")[2] if "://" in text else text
    tenant, slash, rest = text.partition("/")
    namespace, second, name = rest.partition("/")
    if slash and second and not re.search(r"[\\()\[\]{}|*+?^$]", tenant + namespace):
        return f"{tenant}/{namespace}", name
    return "public/default", text


def _part(topic: str) -> Part:
    """A topic without partitions, or a partition that is named."""
    base, is_partition, number = topic.rpartition("-partition-")
    if is_partition and number.isdecimal():
        return Part(topic, base, int(number))
    return Part(topic, topic, -1)


def before(id: MessageId) -> MessageId:
    """The position right before a message: that of the one before it in its batch, or of the entry before."""
    if id.batch_index > 0:
        return _id(id.ledger, id.entry, id.partition, id.batch_index - 1)
    return _id(id.ledger, id.entry - 1, id.partition)


def whole(id: MessageId) -> MessageId:
    """The entry of a message."""
    return _id(id.ledger, id.entry, id.partition)


def _id(ledger: int, entry: int, partition: int, index: int = -1) -> MessageId:
    return MessageId.parse(f"({ledger},{entry},{partition},{index})")


def place(id: MessageId) -> tuple[int, int, float]:
    """Sorts positions; the id of an entry stands for the last of its messages."""
    return id.ledger, id.entry, id.batch_index if id.batch_index >= 0 else float("inf")


def _position(part: Part, given: Sequence[Positions], default: Where) -> Where | Time:
    """The position in a partition: the first that is given."""
    for each in given:
        found = _of(part, each.partitions) if each.everywhere is None else each.everywhere
        if isinstance(found, MessageId) and found.partition >= 0 and found.partition != max(part.number, 0):
            raise InvalidArgument(f"{found} is a message of another partition than {part.topic}")
        if found is not None:
            return found
    return default


def _of(part: Part, given: Mapping[str, Mapping[int, Any]]) -> Any:
    """The value for a partition: its own, or that of the whole topic."""
    for topic, values in given.items():
        name = full_name(topic)
        if name in (part.topic, part.base):
            own = values.get(max(part.number, 0))
            whole = values.get(-1)
            if own is None and isinstance(whole, MessageId) and name != part.topic:
                raise InvalidArgument(f"{topic!r} has partitions: give an id for each of them")
            if own is not None or whole is not None:
                return whole if own is None else own
    return None


def rows(
    client: PulsarClient,
    read: ReadPlan,
    part: Range,
    columns: Sequence[tuple[str, str]],
    decoding: Decoding | None = None,
) -> Iterator[ArrowBatch]:
    """The messages of a range as tables.

    Args:
        client: it stays open while the rows are read.
        read: that the range is of.
        part: the range.
        columns: what each column holds, and its name.
        decoding: of the columns that have values.

    Raises:
        DataLost: the partition ends before the range does.
        SchemaError, IncompatibleSchema: a payload cannot be decoded.
        Timeout: a message does not come.
    """
    options = _resolved(client, read.consumer)
    is_decoded = any(content.startswith(WHOLE) for content, _ in columns)
    values = decoding.native() if decoding and is_decoded else None
    if values is not None:
        # It gets the schema that each message was written with, and tells the broker none.
        options["schema"] = Schema.auto()
    span = (part.topic, part.start, part.inclusive, part.end)
    try:
        rules = (read.timeout, read.fails_on_loss)
        reader = client._native.range(*span, columns, *rules, options, values).wait()
        yield from blocks(reader)
    except TopicNotFound as error:
        if read.fails_on_loss:
            raise DataLost(f"the topic was deleted before it was read: {error}", topic=part.topic) from error
        log.warning("%s was deleted before it was read", part.topic)
