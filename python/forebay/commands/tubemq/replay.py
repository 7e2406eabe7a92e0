"""``forebay replay`` with a TubeMQ URL: messages of a topic, sent again to another one.

Partitions are read one after the other, each in spans of the index, without a group that keeps an offset. A
broker that keeps several partitions in one store does not tell the offset of each message, but it is known
what lies in a span. So the end of a span is a place from which a replay can go on, wherever its messages are.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forebay import protocols
from forebay.commands._shared import replay as shared
from forebay.commands._shared.failed import Failed
from forebay.commands._shared.options import moment, scopes
from forebay.errors import DataLost, Error, InvalidArgument, MessageTooLarge, Unsupported
from forebay.frames.tubemq import GROUPS
from forebay.tubemq import Position, blocking
from forebay.tubemq import offsets as spelled
from forebay.tubemq.offsets import UNIT
from forebay.tubemq.ranges import REFUSED, Part, Plan, Range, beyond, rows

from .places import edge, offsets

_TIMEOUT = 60.0
"""Longest time in seconds without a message while the partition goes on."""
_COLUMNS = [
    ("value", "value"),
    ("key_text", "key"),
    ("message_type", "message_type"),
    ("event_time", "event_time"),
    ("properties", "properties"),
    ("offset", "offset"),
]
_SPAN = shared.CONFIRMED_EVERY
"""Entries of a span. Receipts are waited for at its end, because places in it are not always known."""
_REFUSED = {**REFUSED, "position": "use --from"}
_NO_TIMES = (
    "TubeMQ's brokers do not find messages by the time of their publication, and the time in a message is"
    " there only if its sender has set it, to the minute and in a time zone of the sender's choice"
)
_FORM = "BROKER:PARTITION:OFFSET[,...], with offsets as `forebay peek` shows them"


def run(given: argparse.Namespace) -> int:
    """Replays; returns the exit status."""
    options = scopes(given.options, "tubemq")
    shared.check(given, same_topic=given.source == given.target)
    wanted = _Wanted.of(given, options["consumer"])
    to: str = given.to or given.url
    with (
        blocking.connect(given.url, **options["client"]) as source,
        blocking.connect(to, **options["client"]) as target,
    ):
        plan = Plan(source, {"subscribe": given.source, "groupIdPrefix": GROUPS})
        ranges = _ranges(plan, given.source, wanted)
        # Opened last: a target may be created by that.
        with target.producer(given.target, **options["producer"]) as producer:
            _Replay(given, source, plan, producer, wanted, ranges).run()
    return 0


@dataclass(frozen=True)
class _Wanted:
    """The wanted range, checked as far as it can be without a broker."""

    begin: str | dict[str, int]
    """``--from``: a word, or the first offset of partitions."""
    after: dict[str, int]
    """``--after``: the last offset of partitions that is not wanted again."""
    until: dict[str, int]
    """``--until``: the first offset of partitions that is not wanted."""
    filters: Any
    """Message types, or message types by topic; ``None`` for all."""

    @classmethod
    def of(cls, given: argparse.Namespace, consumer: Mapping[str, Any]) -> _Wanted:
        """Takes them from the arguments.

        Args:
            given: the parsed arguments.
            consumer: options of the consumer.

        Raises:
            InvalidArgument: a place or an option is wrong.
            Unsupported: something is wanted that TubeMQ does not have, or pyarrow is not installed.
        """
        if given.no_schema:
            raise Unsupported("TubeMQ has no schemas: leave --no-schema out")
        if "," in given.source or given.source != given.source.strip():
            raise InvalidArgument(f"{given.source!r} is not the name of a topic")
        for name in {**protocols.of_url(given.url)["consumer"], **consumer}:
            if name in _REFUSED:
                raise InvalidArgument(f"replay has no option {name!r}: {_REFUSED[name]}")
        inherited = protocols.inherited_for(given.url)[1]["consumer"]
        resolved = protocols.PROTOCOLS["tubemq"].resolve("consumer", consumer, inherited)
        try:
            import pyarrow  # noqa: F401  # pyright: ignore
        except ImportError:
            raise Unsupported("with TubeMQ replay needs pyarrow: pip install 'forebay[frames]'") from None
        begin = "earliest" if given.begin is None else edge(given.begin) or _places("--from", given.begin)
        after = _places("--after", given.after) if given.after else {}
        until = _places("--until", given.until) if given.until else {}
        return cls(begin, after, until, resolved.get("filters"))


def _places(flag: str, text: str) -> dict[str, int]:
    """Offsets by partition.

    Raises:
        Unsupported: the text is a time.
        InvalidArgument: it is something else.
    """
    places = offsets(text)
    if places is None:
        words = "earliest, latest or " if flag == "--from" else ""
        if flag != "--after" and _is_time(text):
            raise Unsupported(f"{flag} takes no time with TubeMQ: {_NO_TIMES}. It takes {words}{_FORM}")
        raise InvalidArgument(f"{flag} takes {words}{_FORM}, not {text!r}")
    if len(places) < text.count(",") + 1:
        raise InvalidArgument(f"{flag} names a partition twice: {text!r}")
    try:
        spelled.starting({"topic": places})
    except ValueError as error:
        raise InvalidArgument(f"{flag}: {error}") from None
    return places


def _is_time(text: str) -> bool:
    """Whether it is one with Pulsar."""
    try:
        moment("", text)
    except InvalidArgument:
        # It may also lack its zone.
        try:
            datetime.fromisoformat(text)
        except ValueError:
            return False
    return True


def _ranges(plan: Plan, topic: str, wanted: _Wanted) -> list[Range]:
    """The part of each partition that is to be read, up to its end now.

    Raises:
        InvalidArgument: a place is in a partition that the topic does not have.
        TopicNotFound: no broker has the topic.
        DataLost: a partition ends before the place at which reading begins.
    """
    parts = plan.parts()
    known = {part.key for part in parts}
    begin: Mapping[str, int] = {} if isinstance(wanted.begin, str) else wanted.begin
    for flag, places in (("--from", begin), ("--after", wanted.after), ("--until", wanted.until)):
        if wrong := [key for key in places if key not in known]:
            raise Failed(f"{flag}: {topic!r} has no partition {', '.join(wrong)}")
    with plan.tail(parts) as tail:
        bounds = tail.bounds()
    ranges: list[Range] = []
    for part, (first, last) in bounds.items():
        if part.key in wanted.after:
            start = wanted.after[part.key] + UNIT
        else:
            start = begin.get(part.key, last if wanted.begin == "latest" else first)
        if start > last:
            raise DataLost(beyond(part, start, last), topic=topic)
        end = min(wanted.until.get(part.key, last), last)
        if start < end:
            ranges.append(Range(part, start, end))
    return ranges


@dataclass(frozen=True)
class _Row:
    """A message."""

    part: Part
    offset: int | None
    """``None`` if the broker does not tell it."""
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        """The message, in errors."""
        if self.offset is None:
            return f"a message of {self.part.name}"
        return f"the message {self.part.key}:{self.offset} of {self.part.topic}"


class _Replay(shared.Replay[_Row, Position]):
    """A replay; its places are the last offsets that need not be read again.

    Args:
        given: the parsed arguments.
        client: of the source.
        plan: of the source.
        producer: of the target.
        wanted: what is to be read.
        ranges: the same, as parts of the partitions that there are.
    """

    def __init__(
        self,
        given: argparse.Namespace,
        client: blocking.TubeMqClient,
        plan: Plan,
        producer: blocking.TubeMqProducer,
        wanted: _Wanted,
        ranges: list[Range],
    ) -> None:
        # Words of the same meaning become one.
        resumed = given.begin if not isinstance(wanted.begin, str) else wanted.begin
        super().__init__(given, producer, None if resumed == "earliest" else resumed, given.until)
        self._client = client
        self._plan = plan
        self._filters = wanted.filters
        self._ranges = ranges
        self._left: int | None = given.count
        """Messages that -n still allows; ``None`` for no limit."""
        self._at = 0
        """The offset at which reading goes on in the partition."""
        self._deleted = 0
        """The largest number of messages that were deleted before they were read."""
        self._confirmed = {key: Position.parse(f"{key}:{offset}") for key, offset in wanted.after.items()}

    def _messages(self) -> Generator[_Row, None, None]:
        for whole in self._ranges:
            self._at = whole.start
            while self._at < whole.end:
                if self._left == 0:
                    return
                span = Range(whole.part, self._at, min(self._at + _SPAN * UNIT, whole.end))
                yield from self._span(span, whole.end)
                self._note(whole.part, self._at)
                if self._pending:
                    self._flush()
        self.complete = True

    def _note(self, part: Part, behind: int) -> None:
        """Takes note that everything up to an offset was sent."""
        self._sent[part.key] = Position(part.broker_id, part.number, behind - UNIT)

    def _span(self, span: Range, end: int) -> Generator[_Row, None, None]:
        """The messages of a span, up to the number that -n allows. Moves `_at` behind them.

        Args:
            span: where they are.
            end: the offset up to which the partition is read.

        Raises:
            DataLost: a message is damaged, or the end of the partition was lost. The beginning may be deleted
                meanwhile, which is counted.
        """
        count, known, since = 0, span.start, 0
        try:
            with contextlib.closing(self._rows(span)) as found:
                for row in found:
                    yield row
                    count, since = count + 1, since + 1
                    if row.offset is not None:
                        known, since = row.offset + UNIT, 0
                    if self._left is not None:
                        self._left -= 1
                    if self._left == 0:
                        self._at = self._behind(span, count) if since else known
                        return
            self._at = span.end
        except DataLost:
            first = self._first(span.part)
            if first <= known:
                raise
            self._at = min(first, end)
            # Those of them that were read without their offsets are not missing.
            self._deleted += max((self._at - known) // UNIT - since, 0)

    def _rows(self, span: Range) -> Generator[_Row, None, None]:
        import pyarrow  # pyright: ignore[reportMissingImports]

        pa: Any = pyarrow
        batches: Any = rows(self._client, span, _COLUMNS, _TIMEOUT, True, self._filters, GROUPS)
        with contextlib.closing(batches):
            for batch in batches:
                for fields in pa.record_batch(batch).to_pylist():
                    yield _Row(span.part, fields.pop("offset"), fields)

    def _first(self, part: Part) -> int:
        """The first offset of a partition; 0 if it cannot be asked for."""
        try:
            with self._plan.tail([part]) as tail:
                return tail.bounds()[part][0]
        except Error:
            return 0

    def _behind(self, span: Range, count: int) -> int:
        """The offset behind the first ``count`` messages of a span whose broker tells no offsets."""
        low, high = count, span.entries
        while low < high:
            middle = (low + high) // 2
            with contextlib.closing(
                self._rows(Range(span.part, span.start, span.start + middle * UNIT))
            ) as found:
                enough = sum(1 for _ in found) >= count
            low, high = (low, middle) if enough else (middle + 1, high)
        return span.start + low * UNIT

    def _send(self, message: _Row) -> None:
        fields = message.fields
        try:
            self._submit(
                fields["value"] or b"",
                fields["key"],
                message_type=fields["message_type"],
                event_time=fields["event_time"],
                properties=dict(fields["properties"] or ()) or None,
            )
        except (InvalidArgument, MessageTooLarge) as error:
            # A client of others may have sent what ours does not.
            kind = MessageTooLarge if isinstance(error, MessageTooLarge) else Failed
            raise kind(f"{message.name} cannot be sent: {error}") from None
        if message.offset is not None:
            self._note(message.part, message.offset + UNIT)

    def _text(self, place: Position) -> str:
        return f"{place.broker_id}:{place.partition}:{place.offset}"

    def _details(self) -> dict[str, Any]:
        return {"deleted": self._deleted}

    def _warnings(self) -> Iterator[str]:
        if self._deleted:
            source, target = self._given.source, self._given.target
            yield (
                f"up to {self._deleted:,} messages of {source} were deleted before they were read, and are"
                f" not in {target}"
            )
