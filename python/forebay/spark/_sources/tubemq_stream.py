"""The streaming source of TubeMQ: ``spark.readStream.format("forebay").option("url", "tubemq://...")``.

An offset has the first offset of each partition that was not read yet. The driver has one connection for as
long as the query runs; it holds the partitions in groups that are made for that, to ask for their ends, and
looks for new partitions. Tasks read ranges as those of a batch read do, so a batch that Spark repeats has the
same rows.

With ``subscription`` the offsets of a consumer group follow the query: they are set to what Spark has
committed, unless another client of the group holds the partition. Brokers delete messages by age whether they
were read or not, so the retention of the topic must keep them until they are.
"""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from forebay._core import protocols
from forebay.errors import DataLost, Error, NotAllowed, ServiceNotReady
from forebay.tubemq._offsets import UNIT
from forebay.tubemq._ranges import Part, Planner, Range, Tail, beyond

from .reading import ReadConfig
from .stream import ASK, LOOK, Driver, PositionReader
from .tubemq import batches

if TYPE_CHECKING:
    from forebay.tubemq.blocking import TubeMqClient

log = logging.getLogger("forebay.spark")


class TubeMqStreamReader(PositionReader):
    """The reader of a query. Positions are offsets, by the name of the topic and that of the partition."""

    def _open(self) -> Driver:
        return _Driver(self._config)

    def _encode(self, positions: dict[str, int]) -> dict[str, Any]:
        topics: dict[str, dict[str, int]] = {}
        for name, offset in sorted(positions.items(), key=lambda item: _order(item[0])):
            topic, _, key = name.partition(" ")
            topics.setdefault(topic, {})[key] = offset
        return topics

    def _decode(self, topics: dict[str, Any]) -> dict[str, int]:
        return {f"{topic} {key}": offset for topic, of in topics.items() for key, offset in of.items()}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from batches(self._config, partition.value, self._columns)


def _order(name: str) -> tuple[str, int, int]:
    topic, _, key = name.partition(" ")
    broker, _, number = key.partition(":")
    return topic, int(broker), int(number)


class _Driver:
    """The connection of a query."""

    def __init__(self, config: ReadConfig) -> None:
        from forebay import blocking

        self._own = config.own
        connect: Any = blocking.connect
        self._client: TubeMqClient = connect(config.url, **config.client)
        self._planner = Planner(self._client, config.read)
        option = protocols.table("tubemq.client")["operation_timeout"]
        self._patience: float = config.client.get("operation_timeout", option.default)
        self._parts: dict[str, Part] = {}
        self._gone: set[str] = set()
        """Partitions that their brokers say they do not have."""
        self._tail: Tail | None = None
        self._looked_at = float("-inf")
        """When the partitions were looked for."""
        self._bounds: dict[str, tuple[int, int]] = {}
        self._asked_at = float("-inf")
        """When the ends were asked for."""
        self._confirmed: dict[str, int] = {}
        self._told: set[str] = set()
        """Warnings."""

    def start(self) -> dict[str, int]:
        bounds = self._ask()
        self._planner.check(list(self._parts.values()))
        return {
            name: self._planner.start(part, *bounds[name], "latest") for name, part in self._parts.items()
        }

    def ends(self) -> dict[str, int]:
        return {name: last for name, (_, last) in self._ask().items()}

    def known(self) -> dict[str, int] | None:
        return {name: last for name, (_, last) in self._bounds.items()} or None

    def losses(self, start: dict[str, int], ends: dict[str, int]) -> Iterator[str]:
        for name, offset in start.items():
            if name in self._gone:
                yield _not_there(name)
            elif name not in self._parts:
                # Its position stays, so nothing of it is passed over.
                self._miss(name, _unlisted(name))
            elif offset > ends.get(name, offset):
                yield beyond(self._parts[name], offset, ends[name])

    def hold(self) -> None:
        # Brokers keep messages by their age.
        pass

    def waiting(self, start: dict[str, int], ends: dict[str, int]) -> int:
        return sum(self._entries(start, ends).values())

    def end(
        self, start: dict[str, int], ends: dict[str, int], most: int | None, most_bytes: int | None = None
    ) -> dict[str, int]:
        # A new partition has no rows in the batch that tells where it begins. So that is known,
        # whatever is deleted before a batch with rows of it is repeated.
        end = start | {name: self._begin(start, ends, name) for name in ends}
        begun = {name: last for name, last in ends.items() if name in start}
        entries = self._entries(start, begun)
        total = sum(entries.values())
        if most is None or total <= most:
            return end | begun
        left = most
        for name, count in entries.items():
            share = min(count, left, max(1, most * count // total))
            end[name] += UNIT * share
            left -= share
        return end

    def _entries(self, start: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
        """Entries of the index behind ``start``."""
        counts = {name: (last - self._begin(start, ends, name)) // UNIT for name, last in ends.items()}
        # The longest ones first, so that those at the end of a list have their turn, too.
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def _begin(self, start: dict[str, int], ends: dict[str, int], name: str) -> int:
        """The offset to read from: that of the first message if the partition is new, and the end if that is
        before what was read already. Then the broker has lost messages; those that are left were read."""
        offset = start.get(name)
        if offset is None:
            return self._bounds.get(name, (ends[name], 0))[0]
        return min(offset, ends[name])

    def ranges(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        ranges: list[Range] = []
        moved = {name: last for name, last in end.items() if start.get(name) != last}
        if moved and not moved.keys() <= self._parts.keys():
            # The query goes on, and nothing was asked for yet.
            self._ask()
            self._wait_for(moved.keys())
        for name, last in moved.items():
            begin = self._begin(start, end, name)
            part = self._parts.get(name)
            if part is None:
                what = _not_there(name) if name in self._gone else _unlisted(name)
                self._miss(
                    name, f"{what}. Its offsets {begin} to {last}, which are in this batch, are not read"
                )
            elif start.get(name, last) > last and self._own["failOnDataLoss"]:
                raise DataLost(beyond(part, start[name], last), topic=part.topic)
            elif begin < last:
                ranges.append(Range(part, begin, last))
        return self._planner.split(ranges)

    def _wait_for(self, names: Collection[str]) -> None:
        """Looks for partitions until they are found, for the time of an operation: after a restart a master
        does not know its brokers for a while."""
        deadline = time.monotonic() + self._patience
        while set(names) - self._parts.keys() - self._gone and time.monotonic() < deadline:
            time.sleep(0.5)
            self._look(keep=True)

    def _miss(self, name: str, what: str) -> None:
        """An error, or a line in the log, about a partition that is not there to be read."""
        if not self._own["failOnDataLoss"]:
            self._warn(what)
            return
        kind = DataLost if name in self._gone else ServiceNotReady
        raise kind(f"{what}; failOnDataLoss=false goes on without it", topic=name.partition(" ")[0])

    def _warn(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)

    def commit(self, end: dict[str, int]) -> None:
        group: str | None = self._own["subscription"]
        if group is None:
            return
        names = [name for name in end if name in self._parts and self._confirmed.get(name) != end[name]]
        offsets = [(self._parts[name].location, end[name]) for name in names]
        errors = self._client._native.confirm(group, offsets).wait()
        for name, error in zip(names, errors, strict=True):
            if error is None:
                self._confirmed[name] = end[name]
            else:
                self._warn(f"{name}: the offset of the group {group!r} was not set: {error}")

    def _ask(self) -> dict[str, tuple[int, int]]:
        """The first offset, and the one behind the last message, of each partition that there is now."""
        now = time.monotonic()
        if now - self._asked_at < ASK:
            return self._bounds
        if now - self._looked_at >= LOOK:
            self._look(keep=True)
        try:
            bounds = self._tail.bounds() if self._tail else {}
        except Error:
            # A broker may be gone, or have another address now, or a partition is gone.
            self._look(keep=False)
            bounds = self._tail.bounds() if self._tail else {}
        self._bounds = {part.name: each for part, each in bounds.items()}
        self._asked_at = time.monotonic()
        return self._bounds

    def _look(self, *, keep: bool) -> None:
        """Looks for the partitions.

        Args:
            keep: keeps those that the master does not list. It may have restarted, and know no broker yet.
                Otherwise theirs are asked.
        """
        # Those that the offsets know and that are gone are found missing there.
        parts = self._planner.parts(skip=bool(self._parts) or not self._own["failOnDataLoss"])
        listed = {part.name: part for part in parts}
        unlisted = {name: part for name, part in self._parts.items() if name not in listed}
        by_name = (unlisted if keep else self._held(unlisted)) | listed
        self._gone -= by_name.keys()
        if self._tail is None or by_name != self._parts:
            self._forget_tail()
            self._tail = self._planner.tail(list(by_name.values()))
        self._parts = by_name
        self._looked_at = time.monotonic()

    def _held(self, parts: Mapping[str, Part]) -> dict[str, Part]:
        """Those of the partitions that their brokers have. The others that are not unreachable are gone."""
        held: dict[str, Part] = {}
        down: set[tuple[str, int]] = set()
        for name, part in parts.items():
            broker = part.host, part.port
            if broker in down:
                continue
            try:
                with self._planner.tail([part]) as tail:
                    tail.bounds()
            except NotAllowed:
                self._gone.add(name)
            except Error:
                down.add(broker)
            else:
                held[name] = part
        return held

    def _forget_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            with contextlib.suppress(Exception):
                tail.close()

    def stop(self) -> None:
        self._forget_tail()
        with contextlib.suppress(Exception):
            self._client.close()


def _not_there(name: str) -> str:
    return f"{name} does not exist any more"


def _unlisted(name: str) -> str:
    return f"no master lists {name}: its broker may be down, or the topic was deleted"
