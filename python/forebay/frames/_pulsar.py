"""Topics of Pulsar as a source: ranges of partitions, as Spark's tasks read them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

from forebay._core import parse
from forebay._core.dataframes import HEADERS, Column
from forebay.errors import InvalidArgument
from forebay.pulsar import MessageId, _offsets
from forebay.pulsar._columns import KAFKA, MORE, PULSAR_SPARK, READ_FRAME
from forebay.pulsar._decoding import Decoding, decoding_of
from forebay.pulsar._patterns import pattern_parts
from forebay.pulsar._positions import full_name
from forebay.pulsar._ranges import DEFAULTS, REFUSED, Plan, Range, rows

from ._sources import Request, chosen, listed

if TYPE_CHECKING:
    from forebay._engine import ArrowBatch
    from forebay.pulsar.blocking import PulsarClient

_SETS = {"kafka": (*KAFKA, HEADERS), "pulsar": PULSAR_SPARK}
_POSITION = (
    'expected "earliest", "latest", the id of a message, a time (an aware datetime, or milliseconds since'
    ' 1970), a duration back (a timedelta, or text such as "-2h"), or positions of partitions as'
    ' {"topic": {"0": "(12,4,0,-1)"}}'
)
_CALLED = {
    **dict.fromkeys(("startingOffsets", "startingOffsetsByTimestamp"), "start"),
    **dict.fromkeys(("endingOffsets", "endingOffsetsByTimestamp"), "end"),
}


class PulsarSource:
    """A bounded read of topics of Pulsar."""

    def __init__(self, request: Request) -> None:
        given = READ_FRAME if request.columns is None else None
        self.columns = given or chosen(request.columns, _SETS, (*READ_FRAME, *MORE))
        self._consumer = {**DEFAULTS, **request.options(REFUSED)}
        self._request = request
        self._decoding: Decoding | None = None
        self._own: dict[str, Any] = {
            "startingOffsetsByTimestampStrategy": "latest",
            "readTimeout": request.read_timeout,
        }
        topics: list[str] = []
        given_topic: Any = request.topic
        if isinstance(given_topic, re.Pattern):
            pattern = cast("re.Pattern[str]", given_topic)
            pattern_parts(pattern)
            self._own["subscribePattern"] = pattern
        else:
            names: list[Any] = [given_topic] if isinstance(given_topic, str) else listed(given_topic)
            if not names or not all(isinstance(name, str) and name for name in names):
                raise InvalidArgument(
                    f"topic is {given_topic!r}: expected the name of a topic, several names, or a pattern"
                )
            self._own["subscribe"] = topics = names
        self._own |= _position("start", request.start, topics)
        self._own |= _position("end", request.end, topics)

    def plan(self, client: PulsarClient) -> list[Range]:
        """The part of each partition that has something to read, partition by partition."""
        plan, values = Plan(client, self._own, self._consumer, _CALLED), self._request.values
        if values.decode and any(column.content == "value" for column in self.columns):
            self._decoding = decoding_of(client, plan.topics(), spark=False, on_error=values.on_error)
            flat = self._request.columns == "pulsar"
            self.columns = self._decoding.columns(self.columns, flat=flat)
        return plan.ranges()

    def read(self, client: PulsarClient, part: Range, columns: Sequence[Column]) -> Iterator[ArrowBatch]:
        """The rows of a range."""
        wanted = [(column.content, column.name) for column in columns]
        request = self._request
        rules = (request.read_timeout, request.fail_on_data_loss)
        return rows(client, part, wanted, self._consumer, *rules, self._decoding)


def _position(argument: Literal["start", "end"], given: Any, topics: Sequence[str]) -> dict[str, Any]:
    """A position, as an option of :class:`forebay.pulsar._ranges.Plan`.

    Raises:
        InvalidArgument: it is not a position.
    """
    names = {"start": "starting", "end": "ending"}
    positions, times = f"{names[argument]}Offsets", f"{names[argument]}Timestamp"
    parser = _offsets.starting if argument == "start" else _offsets.ending
    try:
        if given is None:
            return {}
        if isinstance(given, timedelta):
            return {times: _back(abs(given))}
        if isinstance(given, datetime) or type(given) is int:
            return {times: _offsets.timestamp(given)}
        if isinstance(given, str):
            text = given.strip()
            if text.startswith("-"):
                return {times: _back(text[1:])}
            if text.lower() in ("earliest", "latest") or text.startswith("{"):
                return {positions: parser(text)}
            try:
                given = MessageId.parse(text)
            except InvalidArgument:
                raise ValueError(f"{given!r} is no position: {_POSITION}") from None
        if isinstance(given, MessageId):
            given = [given]
        if isinstance(given, Mapping):
            return {positions: parser(given)}
        if isinstance(given, Sequence):
            return {positions: parser(_of_ids(cast("Sequence[Any]", given), topics))}
        raise ValueError(f"{given!r} is no position: {_POSITION}")
    except ValueError as error:
        raise InvalidArgument(f"{argument}: {error}") from None


def _back(duration: Any) -> int:
    """The time that was so long ago."""
    return max(int((time.time() - parse.duration(duration)) * 1000), 0)


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
