"""The options of the sources that have positions, Pulsar and TubeMQ: Kafka's names, and those of others as
aliases.

Spark hands over the names in lower case. Here they are found whatever their case, with or without ``_`` and
``.``: ``startingOffsets``, ``startingoffsets``, ``starting_offsets`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay._core import parse
from forebay._core.options import Option, hint
from forebay._core.read_plan import Positions, ReadPlan, Split, Time, Topics
from forebay.errors import InvalidArgument
from forebay.pulsar import _offsets as ids
from forebay.tubemq import _offsets as offsets
from forebay.tubemq._ranges import NO_PATTERNS, NO_TIMES

GROUPS = "forebay-spark"
"""Default of ``groupIdPrefix``."""


def _bytes(value: Any) -> int:
    """A size that is a limit."""
    size = parse.size(value)
    if size == 0:
        raise ValueError("expected a size of at least 1 byte")
    return size


_SPLIT = {
    "minPartitions": Option(
        parse.whole(1, 1_000_000), None, "Fewest Spark partitions; a topic partition is split for more."
    ),
}
_LOSS = {
    "failOnDataLoss": Option(
        parse.boolean, True, "Whether messages that were deleted before they were read are an error."
    ),
    "includeHeaders": Option(parse.boolean, False, "Adds the column `headers`, with the properties."),
}
_DELAY = {
    "maxTriggerDelay": Option(parse.duration, 900.0, "Longest wait for `minOffsetsPerTrigger`."),
}

_PULSAR: dict[str, Option] = {
    "subscribe": Option(parse.text, None, "Topics, separated by commas."),
    "subscribePattern": Option(
        parse.text, None, "Regular expression; the topics of a namespace that match it as a whole are read."
    ),
    "assign": Option(ids.partitions, None, 'Partitions: JSON like `{"orders": [0, 2]}`.'),
    "startingOffsets": Option(
        ids.starting,
        None,
        'Where reading begins: `"earliest"` (the default of a batch), `"latest"` (of a stream), or JSON with'
        ' the id of the message to begin behind: `{"orders": {"0": "(12,4,0,-1)", "1": "earliest"}}`.'
        " Partitions without one begin at the default.",
    ),
    "endingOffsets": Option(
        ids.ending,
        None,
        'Where a batch ends: `"latest"` (the default), or JSON with the id of the last message to read.',
    ),
    "startingTimestamp": Option(
        ids.timestamp, None, "Begins with the first message published at this time or later."
    ),
    "endingTimestamp": Option(
        ids.timestamp, None, "Ends before the first message published at this time or later."
    ),
    "startingOffsetsByTimestamp": Option(
        ids.timestamps, None, 'The same for each partition: `{"orders": {"0": 1700000000000}}`.'
    ),
    "endingOffsetsByTimestamp": Option(ids.timestamps, None, "The same for the end."),
    "startingOffsetsByTimestampStrategy": Option(
        parse.one_of("error", "latest"),
        "error",
        "What a partition without a message at the time means: an error, or its end.",
    ),
    **_SPLIT,
    "maxRecordsPerPartition": Option(
        parse.whole(1), None, "Most messages of a Spark partition, about: entries are counted, not messages."
    ),
    "maxBytesPerPartition": Option(
        _bytes,
        None,
        'Most bytes of payload of a Spark partition, as a number or text such as `"64MiB"`, about: entries'
        " are taken to be as large as the first and the last one are.",
    ),
    **_LOSS,
    "columns": Option(
        parse.one_of("kafka", "pulsar"),
        "kafka",
        'Names of the columns: those of Kafka\'s source, or `"pulsar"`, those of pulsar-spark.',
    ),
    "decode": Option(
        parse.boolean,
        None,
        "Whether `value` has the values by the newest schema that the topics have when the query is planned,"
        ' instead of payloads. Default: true with `columns="pulsar"`, where the fields of records are columns'
        " of their own.",
    ),
    "onError": Option(
        parse.one_of("raise", "null"),
        "raise",
        "What a payload that cannot be decoded is: an error that names its message, or the value null.",
    ),
    "maxOffsetsPerTrigger": Option(
        parse.whole(1), None, "Most messages of a micro-batch, about: entries are counted, not messages."
    ),
    "minOffsetsPerTrigger": Option(
        parse.whole(1),
        None,
        "Fewest messages of a micro-batch, about, unless `maxTriggerDelay` is over or the run has a single"
        " one.",
    ),
    "maxBytesPerTrigger": Option(
        _bytes,
        None,
        "Most bytes of payload of a micro-batch, about, estimated in the same way. With"
        " `maxOffsetsPerTrigger` the smaller of the two limits counts.",
    ),
    **_DELAY,
    "subscription": Option(
        parse.text,
        None,
        "Durable subscription on which a stream acknowledges what Spark has committed, so that the broker "
        "keeps the rest and counts it as backlog.",
    ),
    "readTimeout": Option(
        parse.duration, 60.0, "Longest time for which a task waits for a message that the broker has."
    ),
}

_TUBEMQ: dict[str, Option] = {
    "subscribe": Option(parse.text, None, "Topics, separated by commas."),
    "assign": Option(
        offsets.partitions, None, 'Partitions, by broker: JSON like `{"orders": ["1:0", "1:2"]}`.'
    ),
    "startingOffsets": Option(
        offsets.starting,
        None,
        'Where reading begins: `"earliest"` (the default of a batch), `"latest"` (of a stream), or JSON with'
        ' the first offset to read: `{"orders": {"1:0": 2800, "1:1": "earliest"}}`. Partitions without one'
        " begin at the default.",
    ),
    "endingOffsets": Option(
        offsets.ending,
        None,
        'Where a batch ends: `"latest"` (the default), or JSON with the first offset that is not read.',
    ),
    **_SPLIT,
    "maxRecordsPerPartition": Option(
        parse.whole(1),
        None,
        "Most messages of a Spark partition: entries of the index are counted, which the partitions of a"
        " store share.",
    ),
    **_LOSS,
    "maxOffsetsPerTrigger": Option(
        parse.whole(1),
        None,
        "Most messages of a micro-batch: entries of the index are counted for each partition, and the"
        " partitions of a store share them, so that there may be fewer.",
    ),
    "minOffsetsPerTrigger": Option(
        parse.whole(1),
        None,
        "Fewest entries for a micro-batch, counted so, unless `maxTriggerDelay` is over or the run has a"
        " single one.",
    ),
    **_DELAY,
    "subscription": Option(
        parse.text,
        None,
        "Consumer group whose offsets a stream sets to what Spark has committed, for its lag and for"
        " consumers that go on from there.",
    ),
    "groupIdPrefix": Option(
        parse.text,
        GROUPS,
        "Beginning of the names of the groups in which partitions are read; `-0`, `-1` ... are added. Their"
        " offsets mean nothing.",
    ),
    "readTimeout": Option(
        parse.duration,
        60.0,
        "Longest time for which a task waits for a message that the broker has. Pauses that a rule of the"
        " broker for the flow asks for do not count.",
    ),
}

_ALIASES: dict[str, str] = {
    "topic": "subscribe",
    "topics": "subscribe",
    "topicspattern": "subscribePattern",
    "topicpattern": "subscribePattern",
    "startingtime": "startingTimestamp",
    "endingtime": "endingTimestamp",
    "predefinedsubscription": "subscription",
    "maxrowspertrigger": "maxOffsetsPerTrigger",
    "minrowspertrigger": "minOffsetsPerTrigger",
}
"""Names of pulsar-spark and of earlier sources, in lower case."""

_OF_FORM: dict[str, tuple[frozenset[str], str]] = {
    "batch": (
        frozenset(
            {
                "maxOffsetsPerTrigger",
                "maxBytesPerTrigger",
                "minOffsetsPerTrigger",
                "maxTriggerDelay",
                "subscription",
            }
        ),
        "is for streams (spark.readStream)",
    ),
    "stream": (
        frozenset({"endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"}),
        "is for batches (spark.read): a stream has no end",
    ),
}
"""Options that a batch, or a stream, does not have, and why."""


_URL = ("url", "serviceurl")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(".", "")


def split_url(given: Mapping[str, Any]) -> str | None:
    """The URL among options."""
    return next((value for name, value in given.items() if _plain(name) in _URL), None)


@dataclass(frozen=True)
class Names:
    """The options of a protocol's source."""

    options: Mapping[str, Option]
    """As they are documented."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those of other sources that it does not have, and why."""

    def split(
        self, given: Mapping[str, Any], engine: Mapping[str, Option], form: str | None = None
    ) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
        """The URL, the values of the source's own options with their defaults, and the options of the engine.

        Args:
            given: options as Spark hands them over.
            engine: the engine's options.
            form: ``"batch"`` or ``"stream"``, if that is known.

        Raises:
            InvalidArgument: an unknown option, one of the other form, two names of one option, or a bad
                value.
        """
        by_plain = {_plain(name): name for name in [*self.options, *self.lacks]}
        url: str | None = None
        own: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in given.items():
            plain = _plain(name)
            known = by_plain.get(plain) or _ALIASES.get(plain)
            if plain in _URL:
                url = value
            elif name.lower() in engine:
                rest[name.lower()] = value
            elif known is not None and known in self.lacks:
                raise InvalidArgument(f"the source has no option {known!r}: {self.lacks[known]}")
            elif known is not None:
                if known in own:
                    raise InvalidArgument(f"option {known!r} is given twice, once as {name!r}")
                own[known] = self._parsed(known, value)
            else:
                near = hint(name, {**self.options, **engine}, others=["url"])
                raise InvalidArgument(f"the source has no option {name!r}{near}")
        foreign, why = _OF_FORM.get(form or "", (frozenset[str](), ""))
        if wrong := sorted(foreign & own.keys()):
            raise InvalidArgument(f"option {wrong[0]!r} {why}")
        values = {name: own.get(name, option.default) for name, option in self.options.items()}
        return url, values, rest

    def _parsed(self, name: str, value: Any) -> Any:
        try:
            return self.options[name].parse(value)
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from None


_NO_SIZES = "TubeMQ's brokers do not tell how large messages are: limit their number"

PULSAR = Names(_PULSAR, {"groupIdPrefix": "it reads without a subscription"})
TUBEMQ = Names(
    _TUBEMQ,
    {
        "subscribePattern": f"{NO_PATTERNS} with subscribe",
        "startingTimestamp": NO_TIMES,
        "endingTimestamp": NO_TIMES,
        "startingOffsetsByTimestamp": NO_TIMES,
        "endingOffsetsByTimestamp": NO_TIMES,
        "startingOffsetsByTimestampStrategy": NO_TIMES,
        "columns": "its columns have Kafka's names",
        "maxBytesPerPartition": _NO_SIZES,
        "maxBytesPerTrigger": _NO_SIZES,
        "decode": "its topics have no schemas",
        "onError": "its topics have no schemas",
    },
)


def read_plan(own: Mapping[str, Any], consumer: Mapping[str, Any]) -> ReadPlan:
    """The read that options of Spark describe.

    Args:
        own: values of a source's own options, by name.
        consumer: options of the consumers that read.

    Raises:
        InvalidArgument: ``subscribePattern`` is no regular expression.
    """
    required = 'startingOffsetsByTimestampStrategy="latest" begins at its end then'
    if own.get("startingOffsetsByTimestampStrategy") == "latest":
        required = None
    most, size = own["maxRecordsPerPartition"], own.get("maxBytesPerPartition")
    return ReadPlan(
        _topics(own),
        start=_positions(own, "starting", required),
        end=_positions(own, "ending"),
        split=Split(own["minPartitions"] or 0, most, size),
        timeout=own["readTimeout"],
        fails_on_loss=own["failOnDataLoss"],
        consumer=consumer,
        groups=own.get("groupIdPrefix", GROUPS),
    )


def _topics(own: Mapping[str, Any]) -> Topics:
    if own["assign"] is not None:
        return own["assign"]
    if own["subscribe"] is not None:
        return [name.strip() for name in own["subscribe"].split(",") if name.strip()]
    pattern: str = own["subscribePattern"]
    try:
        return re.compile(pattern)
    except re.error as error:
        text = f"subscribePattern: {pattern!r} is no regular expression: {error}"
        raise InvalidArgument(text) from None


def _positions(own: Mapping[str, Any], side: str, required: str | None = None) -> tuple[Positions, ...]:
    """The positions of one side, ``"starting"`` or ``"ending"``, times first."""
    found: list[Positions] = []
    at, each, where = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (ms := own.get(at)) is not None:
        found.append(Positions(at, Time(ms, required)))
    if times := own.get(each):
        by_topic = {
            topic: {number: Time(ms, required) for number, ms in of.items()} for topic, of in times.items()
        }
        found.append(Positions(each, partitions=by_topic))
    offsets = own[where]
    if isinstance(offsets, str):
        found.append(Positions(where, offsets))
    elif offsets is not None:
        found.append(Positions(where, partitions=offsets))
    return tuple(found)
