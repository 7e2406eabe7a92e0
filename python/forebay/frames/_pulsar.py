"""Topics of Pulsar as a source: ranges of partitions, as Spark's tasks read them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from forebay._core import parse
from forebay._core.dataframes import HEADERS, Column
from forebay._core.read_plan import Positions, ReadPlan, Time
from forebay.errors import InvalidArgument
from forebay.pulsar import MessageId, _offsets
from forebay.pulsar._columns import KAFKA, MORE, PULSAR_SPARK, READ_FRAME
from forebay.pulsar._decoding import Decoding, decoding_of
from forebay.pulsar._patterns import pattern_parts
from forebay.pulsar._positions import full_name
from forebay.pulsar._ranges import DEFAULTS, REFUSED, Planner, Range, rows

from ._sources import Request, chosen, listed

if TYPE_CHECKING:
    from forebay._engine import ArrowBatch
    from forebay.pulsar.blocking import PulsarClient

_SETS = {"kafka": (*KAFKA, HEADERS), "pulsar": PULSAR_SPARK}
_POSITION = (
    'expected "earliest", "latest", the id of a message, a time (an aware datetime, milliseconds since'
    ' 1970, or ISO 8601 with a zone), a duration back (a timedelta, or text such as "2h"), or positions of'
    ' partitions as {"topic": {"0": "(12,4,0,-1)"}}'
)


class PulsarSource:
    """A bounded read of topics of Pulsar."""

    def __init__(self, request: Request) -> None:
        given = READ_FRAME if request.columns is None else None
        self.columns = given or chosen(request.columns, _SETS, (*READ_FRAME, *MORE))
        consumer = {**DEFAULTS, **request.options(REFUSED)}
        self._request = request
        self._decoding: Decoding | None = None
        topics = _topics(request.topic)
        names = () if isinstance(topics, re.Pattern) else topics
        self._read = ReadPlan(
            topics,
            start=_positions("start", request.start, names),
            end=_positions("end", request.end, names),
            timeout=request.read_timeout,
            fails_on_loss=request.fail_on_data_loss,
            consumer=consumer,
        )

    def plan(self, client: PulsarClient) -> list[Range]:
        """The part of each partition that has something to read, partition by partition."""
        values = self._request.values
        planner = Planner(client, self._read)
        if values.decode and any(column.content == "value" for column in self.columns):
            self._decoding = decoding_of(client, planner.topics(), spark=False, on_error=values.on_error)
            flat = self._request.columns == "pulsar"
            self.columns = self._decoding.columns(self.columns, flat=flat)
        return planner.ranges()

    def read(self, client: PulsarClient, part: Range, columns: Sequence[Column]) -> Iterator[ArrowBatch]:
        """The rows of a range."""
        wanted = [(column.content, column.name) for column in columns]
        return rows(client, self._read, part, wanted, self._decoding)


def _topics(given: Any) -> list[str] | re.Pattern[str]:
    """The names of topics, or a pattern.

    Raises:
        InvalidArgument: they are something else.
    """
    if isinstance(given, re.Pattern):
        pattern = cast("re.Pattern[str]", given)
        pattern_parts(pattern)
        return pattern
    names: list[Any] = [given] if isinstance(given, str) else listed(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(
            f"topic is {given!r}: expected the name of a topic, several names, or a pattern"
        )
    return [name.strip() for name in names if name.strip()]


def _positions(argument: Literal["start", "end"], given: Any, topics: Sequence[str]) -> tuple[Positions, ...]:
    """The position of an argument.

    Raises:
        InvalidArgument: it is not a position.
    """
    if given is None:
        return ()
    try:
        found = _position(argument, given, topics)
    except ValueError as error:
        raise InvalidArgument(f"{argument}: {error}") from None
    if isinstance(found, Mapping):
        return (Positions(argument, partitions=cast("Mapping[str, Mapping[int, Any]]", found)),)
    return (Positions(argument, found),)


def _position(argument: Literal["start", "end"], given: Any, topics: Sequence[str]) -> Any:
    """A position for all partitions, or positions by topic and partition.

    Raises:
        ValueError: it is not a position.
    """
    parser = _offsets.starting if argument == "start" else _offsets.ending
    if isinstance(given, str):
        text = given.strip()
        if text.lower() in ("earliest", "latest") or text.startswith("{"):
            return parser(text)
        with contextlib.suppress(InvalidArgument):
            given = MessageId.parse(text)
    if (moment := parse.moment(given)) is not None:
        return Time(moment.ms())
    if isinstance(given, MessageId):
        given = [given]
    if isinstance(given, Mapping):
        return parser(given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return parser(_of_ids(cast("Sequence[Any]", given), topics))
    raise ValueError(f"{given!r} is no position: {_POSITION}")


def _of_ids(ids: Sequence[Any], topics: Sequence[str]) -> Any:
    """Ids of messages by their topics and partitions; a word for an id that stands for one."""
    if not ids:
        raise ValueError("the list of ids is empty: None stands for no position")
    if len(ids) == 1 and ids[0] in (MessageId.earliest, MessageId.latest):
        return "earliest" if ids[0] == MessageId.earliest else "latest"
    found: dict[str, dict[int, MessageId]] = {}
    partitions: dict[tuple[str, int], MessageId] = {}
    for each in ids:
        id = MessageId.parse(each) if isinstance(each, str) else each
        if not isinstance(id, MessageId):
            raise ValueError(f"{each!r} is no position: {_POSITION}")
        if not id.topic and len(topics) != 1:
            raise ValueError(f"the message {id} is of one topic, and several are read: say {{topic: id}}")
        name, number = id.topic or topics[0], max(id.partition, -1)
        partition = (full_name(name).removesuffix(f"-partition-{number}"), number)
        if (other := partitions.setdefault(partition, id)) is not id:
            raise ValueError(f"{other} and {id} are of one partition: give one id for each")
        found.setdefault(name, {})[-1 if id.topic else number] = id
    return found
