"""The streaming source of Pulsar: ``spark.readStream.format("forebay").option("url", "pulsar://...")``.

An offset has a position for each partition: the last message that was read. The driver has one connection
for as long as the query runs; with each batch it looks for the last messages, and for new partitions and
topics. Tasks read ranges as those of a batch read do, so a batch that Spark repeats has the same rows.

With ``subscription`` a durable subscription follows the query: what Spark has committed is acknowledged
there, so that the broker keeps what is not read yet, counts it as backlog, and may delete the rest. Without
it the retention of the topic must keep messages until they are read.
"""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from forebay.errors import Error
from forebay.pulsar import MessageId
from forebay.pulsar._ranges import Part, Planner, Range, before, place, side_by_side, whole

from .pulsar import batches
from .reading import ReadConfig
from .stream import ASK, LOOK, Driver, PositionReader

if TYPE_CHECKING:
    from forebay.pulsar.blocking import PulsarClient, PulsarConsumer

_EARLIEST = "earliest"
"""The offset of a partition of which nothing was read."""


class PulsarStreamReader(PositionReader):
    """The reader of a query. Positions are the ids of messages as text."""

    def _open(self) -> Driver:
        return _Driver(self._config)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from batches(self._config, partition.value, self._columns)


class _Driver:
    """The connection of a query."""

    def __init__(self, config: ReadConfig) -> None:
        from forebay import blocking

        self._config = config
        connect: Any = blocking.connect
        self._client: PulsarClient = connect(config.url, **config.client)
        self._planner = Planner(self._client, config.read)
        self._parts: list[Part] = []
        self._looked_at = float("-inf")
        """When the partitions were looked for."""
        self._tail: PulsarConsumer[bytes] | None = None
        """Asks for the last messages."""
        self._last: dict[str, MessageId] = {}
        self._asked_at = float("-inf")
        """When the last messages were asked for."""
        self._markers: dict[str, PulsarConsumer[bytes]] = {}
        """Hold the positions of the durable subscription."""

    def start(self) -> dict[str, str]:
        positions: dict[str, str] = {}
        last = self._ends()
        self._planner.check(self._parts)
        starts = side_by_side(
            lambda part: self._planner.start(part, last.get(part.topic), "latest"), self._parts
        )
        for part, (start, inclusive) in zip(self._parts, starts, strict=True):
            if start is not None and inclusive:
                start = before(start)
            positions[part.topic] = _EARLIEST if start is None else str(start)
        return positions

    def losses(self, start: dict[str, str], ends: dict[str, str]) -> Iterator[str]:
        # A partition without messages may have had some.
        here = {part.topic for part in self._parts}
        for topic, position in start.items():
            read, end = _parsed(position), _parsed(ends.get(topic))
            if topic not in here:
                yield f"{topic} does not exist any more"
            elif read is not None and end is not None and place(read) > place(end):
                yield f"{topic} was made again: it ends at {end}, before {read}, which was read"

    def known(self) -> dict[str, str] | None:
        return _texts(self._last) if self._asked_at > 0 else None

    def ends(self) -> dict[str, str]:
        return _texts(self._ends())

    def _ends(self) -> dict[str, MessageId]:
        """The last entry of each partition that there is now, and has one."""
        now = time.monotonic()
        if now - self._asked_at < ASK:
            return self._last
        if now - self._looked_at >= LOOK:
            self._look()
        try:
            ids = self._tail.last_message_ids() if self._tail is not None else []
        except Error:
            # A topic may be gone, or the connection be one that is not mended.
            self._look()
            ids = self._tail.last_message_ids() if self._tail is not None else []
        # The last message is the last of its entry. That can be acknowledged without the number of
        # them.
        self._last = {id.topic: whole(id) for id in ids if id.entry >= 0}
        self._asked_at = time.monotonic()
        return self._last

    def _look(self) -> None:
        """Looks for the partitions."""
        self._planner.forget()
        # Those that the offsets know and that are gone are found missing there.
        parts = self._planner.parts(skip=bool(self._parts) or not self._config.own["failOnDataLoss"])
        if self._tail is None or parts != self._parts:
            self._forget_tail()
            self._tail = self._planner.tail(parts)
        self._parts = parts
        self._looked_at = time.monotonic()

    def waiting(self, start: dict[str, str], ends: dict[str, str]) -> int | None:
        counts = [
            self._planner.count(topic, _parsed(start.get(topic)), MessageId.parse(id))
            for topic, id in ends.items()
        ]
        return None if None in counts else sum(count for count in counts if count is not None)

    def end(
        self, start: dict[str, str], ends: dict[str, str], most: int | None, most_bytes: int | None = None
    ) -> dict[str, str]:
        if most is None and most_bytes is None:
            return start | ends
        last = {topic: MessageId.parse(id) for topic, id in ends.items()}
        counts: dict[str, int] = {}
        size = 0.0
        for topic, id in last.items():
            begin = _parsed(start.get(topic))
            each = 0.0 if most_bytes is None else self._planner.message_bytes(topic, begin, id)
            count = self._planner.count(topic, begin, id)
            if count is None:
                # Many are more than the batch may have.
                count = max(most or 0, math.ceil(most_bytes / each) if most_bytes is not None else 0) + 1
            counts[topic] = count
            size += count * each
        part = min(
            1.0 if most is None else most / max(sum(counts.values()), 1),
            1.0 if most_bytes is None else most_bytes / max(size, 1.0),
        )
        end = dict(start)
        for topic, id in last.items():
            if part >= 1:
                end[topic] = str(id)
            elif counts[topic] > 0:
                share = max(1, int(counts[topic] * part))
                end[topic] = str(self._planner.ahead(topic, _parsed(start.get(topic)), id, share))
        return end

    def ranges(self, start: dict[str, str], end: dict[str, str]) -> list[Range]:
        ranges: list[Range] = []
        for topic, position in end.items():
            if position == _EARLIEST or position == start.get(topic):
                continue
            until, begin = MessageId.parse(position), _parsed(start.get(topic))
            if begin is not None and place(begin) > place(until):
                # The topic was made again, which `failOnDataLoss=false` accepts.
                begin = None
            ranges.append(Range(topic, begin, False, until))
        return self._planner.split(ranges)

    def hold(self) -> None:
        name = self._config.own["subscription"]
        if name is None:
            return
        here = {part.topic for part in self._parts}
        for topic in [topic for topic in self._markers if topic not in here]:
            self._close(self._markers.pop(topic))
        for topic in sorted(here - self._markers.keys()):
            # It holds the position, and asks for no message.
            self._markers[topic] = self._client.consumer(
                topic, name, type="failover", position="earliest", receiver_queue=0
            )

    def commit(self, end: dict[str, str]) -> None:
        for topic, marker in self._markers.items():
            entry = _parsed(end.get(topic))
            if entry is None:
                continue
            if entry.batch_index >= 0:
                # Some of its messages are still to be read.
                entry = before(whole(entry))
            if entry.entry >= 0:
                marker.ack_cumulative(MessageId.from_bytes(entry.to_bytes(), topic))

    def _forget_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            self._close(tail)

    def _close(self, consumer: PulsarConsumer[bytes]) -> None:
        with contextlib.suppress(Exception):
            consumer.close()

    def stop(self) -> None:
        # The subscription stays: the query may go on later.
        for marker in self._markers.values():
            self._close(marker)
        self._forget_tail()
        with contextlib.suppress(Exception):
            self._client.close()


def _texts(ids: dict[str, MessageId]) -> dict[str, str]:
    return {topic: str(id) for topic, id in ids.items()}


def _parsed(position: str | None) -> MessageId | None:
    return None if position in (None, _EARLIEST) else MessageId.parse(position)
