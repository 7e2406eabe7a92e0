"""The streaming source of Pulsar: ``spark.readStream.format("penstock").option("url", "pulsar://...")``.

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
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from penstock.errors import DataLost, Error, InvalidArgument
from penstock.pulsar import MessageId
from penstock.pulsar.ranges import Part, Plan, Range, before, place, whole

from .pulsar import ReadConfig, batches, wanted
from .stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.pulsar.blocking import PulsarClient, PulsarConsumer

log = logging.getLogger("penstock.spark")

VERSION = 1
"""Of offsets."""
LOOK = 5.0
"""Seconds between two looks for new partitions and topics."""
ASK = 0.1
"""Least time in seconds between two questions for the last messages: without rows Spark plans every 10 ms."""
_EARLIEST = "earliest"
"""The offset of a partition of which nothing was read."""


class PulsarStreamReader(StreamReader):
    """The reader of a query. On the driver it lives as long as the query; on executors it reads ranges."""

    def __init__(self, config: ReadConfig, schema: StructType) -> None:
        self._config = config
        self._columns = wanted(config, schema)
        self._max_rows = config.own["maxOffsetsPerTrigger"]
        self._driver: _Driver | None = None
        self._bounded = False
        """Whether the run ends with what is there when it begins."""
        self._end: dict[str, MessageId] | None = None
        """The last entries of such a run."""
        self._start: dict[str, str] | None = None
        """End of the last batch. PySpark 4.2 and later pass it; earlier versions have a batch planned that
        ends there when a query goes on."""
        self._due: float | None = None
        """When a batch is due that has fewer rows than ``minOffsetsPerTrigger``."""
        self._told: set[str] = set()
        """Losses that were told."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._start = self._on_driver().start()
        return _offset(self._start)

    def latestOffset(self, *asked: Any) -> dict[str, Any]:  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spark 4.2 and later pass the start and the limit; before, only our own limit applies."""
        driver, own = self._on_driver(), self._config.own
        most, fewest = own["maxOffsetsPerTrigger"], own["minOffsetsPerTrigger"]
        if asked:
            start = _positions(asked[0])
            most = getattr(asked[1], "max_rows", None)
        elif self._start is None:
            # Without a beginning nothing can be counted.
            start, most, fewest = {}, None, None
        else:
            start = self._start
        last = self._end
        if last is None:
            last = driver.last()
            self._check(start, last)
            if self._bounded:
                self._end = last
        # Before anything is read, so that the broker keeps what is not.
        driver.hold()
        if fewest is not None and not self._bounded:
            now = time.monotonic()
            waiting = driver.waiting(start, last)
            if waiting is None or waiting >= fewest or (self._due is not None and now >= self._due):
                self._due = None
            else:
                if self._due is None:
                    self._due = now + own["maxTriggerDelay"]
                return _offset(start)
        return _offset(driver.end(start, last, most))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return _offset({topic: str(id) for topic, id in self._on_driver().known().items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ends the run with what is there when its first batch is planned; the rest is for the next run."""
        self._bounded = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = _positions(start), _positions(end)
        self._start = last
        ranges: list[Range] = []
        for topic, position in last.items():
            if position == _EARLIEST or position == first.get(topic):
                continue
            until, begin = MessageId.parse(position), _parsed(first.get(topic))
            if begin is not None and place(begin) > place(until):
                # The topic was made again, which `failOnDataLoss=false` accepts.
                begin = None
            ranges.append(Range(topic, begin, False, until))
        return [InputPartition(part) for part in self._on_driver().split(ranges)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from batches(self._config, partition.value, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self._on_driver().acknowledge(_positions(end))

    def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver:
            driver.stop()

    def _check(self, start: dict[str, str], last: dict[str, MessageId]) -> None:
        """Looks for partitions that are gone, or began again. One without messages may have had some."""
        for topic, position in start.items():
            read, end = _parsed(position), last.get(topic)
            if not self._on_driver().exists(topic):
                self._lost(f"{topic} does not exist any more")
            elif read is not None and end is not None and place(read) > place(end):
                self._lost(f"{topic} was made again: it ends at {end}, before {read}, which was read")

    def _lost(self, what: str) -> None:
        if self._config.own["failOnDataLoss"]:
            raise DataLost(f"{what}; failOnDataLoss=false goes on with what there is")
        if what not in self._told:
            self._told.add(what)
            log.warning("%s", what)

    def _on_driver(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self._config)
        return self._driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}


def _offset(positions: dict[str, str]) -> dict[str, Any]:
    return {"v": VERSION, "topics": dict(sorted(positions.items()))}


def _positions(offset: dict[str, Any]) -> dict[str, str]:
    if offset.get("v") != VERSION or not isinstance(offset.get("topics"), dict):
        raise InvalidArgument(f"the checkpoint was written by another version of this source: {offset}")
    return offset["topics"]


class _Driver:
    """The connection of a query."""

    def __init__(self, config: ReadConfig) -> None:
        from penstock import blocking

        self._config = config
        connect: Any = blocking.connect
        self._client: PulsarClient = connect(config.url, **config.client)
        self._plan = Plan(self._client, config.own, config.consumer)
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
        """The position in each partition at which a new query begins."""
        positions: dict[str, str] = {}
        last = self.last()
        self._plan.check(self._parts)
        for part in self._parts:
            start, inclusive = self._plan.start(part, last.get(part.topic), "latest")
            if start is not None and inclusive:
                start = before(start)
            positions[part.topic] = _EARLIEST if start is None else str(start)
        return positions

    def exists(self, topic: str) -> bool:
        """Whether the partition was there when the partitions were looked for."""
        return any(part.topic == topic for part in self._parts)

    def known(self) -> dict[str, MessageId]:
        """The last entries as they were known last."""
        return self._last or self.last()

    def last(self) -> dict[str, MessageId]:
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
        # The last message is the last of its entry. That can be acknowledged without the number of them.
        self._last = {id.topic: whole(id) for id in ids if id.entry >= 0}
        self._asked_at = time.monotonic()
        return self._last

    def _look(self) -> None:
        """Looks for the partitions."""
        self._plan.forget()
        # Those that the offsets know and that are gone are found missing there.
        parts = self._plan.parts(skip=bool(self._parts) or not self._config.own["failOnDataLoss"])
        if self._tail is None or parts != self._parts:
            self._forget_tail()
            self._tail = self._plan.tail(parts)
        self._parts = parts
        self._looked_at = time.monotonic()

    def waiting(self, start: dict[str, str], last: dict[str, MessageId]) -> int | None:
        """Messages that wait, about; ``None``: many."""
        counts = [self._plan.count(topic, _parsed(start.get(topic)), id) for topic, id in last.items()]
        return None if None in counts else sum(count for count in counts if count is not None)

    def end(self, start: dict[str, str], last: dict[str, MessageId], most: int | None) -> dict[str, str]:
        """The end of the next batch in each partition, so that it has about ``most`` messages at most."""
        if most is None:
            return start | {topic: str(id) for topic, id in last.items()}
        counts: dict[str, int] = {}
        for topic, id in last.items():
            count = self._plan.count(topic, _parsed(start.get(topic)), id)
            # Many are more than the batch may have.
            counts[topic] = most + 1 if count is None else count
        total = sum(counts.values())
        end = dict(start)
        for topic, id in last.items():
            begin = _parsed(start.get(topic))
            if total <= most:
                end[topic] = str(id)
            elif counts[topic] > 0:
                share = max(1, most * counts[topic] // total)
                end[topic] = str(self._plan.ahead(topic, begin, id, share))
        return end

    def split(self, ranges: list[Range]) -> list[Range]:
        return self._plan.split(ranges)

    def hold(self) -> None:
        """Has the broker keep what is not acknowledged, if there is a subscription for that."""
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

    def acknowledge(self, end: dict[str, str]) -> None:
        """Acknowledges what was read, up to the end of a batch."""
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


def _parsed(position: str | None) -> MessageId | None:
    return None if position in (None, _EARLIEST) else MessageId.parse(position)
