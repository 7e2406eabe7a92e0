"""Topics of TubeMQ as a source: ranges of partitions, as Spark's tasks read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from forebay._core.dataframes import HEADERS
from forebay._core.read_plan import Positions, ReadPlan
from forebay.errors import InvalidArgument
from forebay.tubemq import _offsets
from forebay.tubemq._columns import KAFKA, MORE, READ_FRAME
from forebay.tubemq._positions import filters as parsed_filters
from forebay.tubemq._ranges import NO_PATTERNS, NO_TIMES, REFUSED, Range, plan, rows

from ._sources import Request, chosen, listed

if TYPE_CHECKING:
    from forebay._core.dataframes import Column
    from forebay._engine import ArrowBatch
    from forebay.tubemq.blocking import TubeMqClient

GROUPS = "forebay-frames"
"""Beginning of the names of the groups in which partitions are read."""
_SETS = {"kafka": (*KAFKA, HEADERS)}
_POSITION = 'expected "earliest", "latest", or offsets of partitions as {"topic": {"1:0": 2800}}'


class TubeMqSource:
    """A bounded read of topics of TubeMQ."""

    def __init__(self, request: Request) -> None:
        given = READ_FRAME if request.columns is None else None
        self.columns = given or chosen(request.columns, _SETS, (*READ_FRAME, *MORE))
        filters = request.options(REFUSED).get("filters")
        if request.values.decode:
            raise InvalidArgument("decode: topics of TubeMQ have no schemas, so their payloads are bytes")
        self._read = ReadPlan(
            _topics(request.topic),
            start=_positions("start", request.start),
            end=_positions("end", request.end),
            timeout=request.read_timeout,
            fails_on_loss=request.fail_on_data_loss,
            consumer={} if filters is None else {"filters": parsed_filters(filters)},
            groups=GROUPS,
        )

    def plan(self, client: TubeMqClient) -> list[Range]:
        """The part of each partition that has something to read, partition by partition."""
        return plan(client, self._read)

    def read(self, client: TubeMqClient, part: Range, columns: Sequence[Column]) -> Iterator[ArrowBatch]:
        """The rows of a range."""
        return rows(client, self._read, part, [(column.content, column.name) for column in columns])


def _topics(given: Any) -> list[str]:
    """The names of topics.

    Raises:
        InvalidArgument: they are something else.
    """
    if isinstance(given, re.Pattern):
        raise InvalidArgument(f"topic is a pattern, and {NO_PATTERNS}")
    names: list[Any] = [given] if isinstance(given, str) else listed(given)
    if not names or not all(isinstance(name, str) and name and "," not in name for name in names):
        raise InvalidArgument(f"topic is {given!r}: expected the name of a topic, or several names")
    return [name.strip() for name in names if name.strip()]


def _positions(argument: Literal["start", "end"], given: Any) -> tuple[Positions, ...]:
    """The position of an argument.

    Raises:
        InvalidArgument: it is not a position.
    """
    if given is None:
        return ()
    times = isinstance(given, datetime | timedelta) or (isinstance(given, str) and given.startswith("-"))
    if times:
        raise InvalidArgument(f"{argument}: {given!r} is a time. {NO_TIMES}")
    if not isinstance(given, str | Mapping):
        raise InvalidArgument(f"{argument}: {given!r} is no position: {_POSITION}")
    try:
        found = (_offsets.starting if argument == "start" else _offsets.ending)(given)
    except ValueError as error:
        raise InvalidArgument(f"{argument}: {error}") from None
    if isinstance(found, str):
        return (Positions(argument, found),)
    return (Positions(argument, partitions=found),)
