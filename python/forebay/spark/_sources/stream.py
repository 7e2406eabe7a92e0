"""Parts that the streaming sources share."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from forebay.errors import DataLost, InvalidArgument
from forebay.spark._shipping import Shipped

from .reading import ReadConfig, wanted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    _AvailableNow = object
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
    except ImportError:
        # Before PySpark 4.2.
        _AvailableNow = object

log = logging.getLogger("forebay.spark")

VERSION = 1
"""Of offsets."""
LOOK = 5.0
"""Seconds between two looks for new partitions and topics."""
ASK = 0.1
"""Least time in seconds between two questions for the ends: without rows Spark plans every 10 ms."""


class StreamReader(Shipped, DataSourceStreamReader, _AvailableNow):
    """A streaming source that can end with what is there, and has a limit on the rows of a micro-batch."""

    _max_rows: int | None
    """The limit, if there is one."""
    _max_bytes: int | None = None
    """A limit on their bytes, if there is one."""

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

        # Python has no limit of several: that on bytes is applied with the other one.
        if self._max_rows is not None:
            return ReadMaxRows(self._max_rows)
        return ReadAllAvailable() if self._max_bytes is None else ReadMaxBytes(self._max_bytes)


class Driver(Protocol):
    """The connection of a query. Positions and ends are by partition."""

    def start(self) -> dict[str, Any]:
        """The positions at which a new query begins."""
        ...

    def ends(self) -> dict[str, Any]:
        """The ends of the partitions that there are now."""
        ...

    def known(self) -> dict[str, Any] | None:
        """The ends as they were known last; ``None`` if they were never asked for."""
        ...

    def losses(self, start: dict[str, Any], ends: dict[str, Any]) -> Iterable[str]:
        """Texts about what was read, or was to be, and is not there any more."""
        ...

    def hold(self) -> None:
        """Has the broker keep what is not committed, if the options ask for that."""
        ...

    def waiting(self, start: dict[str, Any], ends: dict[str, Any]) -> int | None:
        """Messages that wait, about; ``None``: many."""
        ...

    def end(
        self, start: dict[str, Any], ends: dict[str, Any], most: int | None, most_bytes: int | None = None
    ) -> dict[str, Any]:
        """The positions behind the next batch, so that it has about ``most`` messages at most, and about
        ``most_bytes`` of payload if sizes are known."""
        ...

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        """The ranges between positions, as tasks read them."""
        ...

    def commit(self, end: dict[str, Any]) -> None:
        """Tells the broker what Spark has committed, if the options ask for that."""
        ...

    def stop(self) -> None:
        """Ends the connection."""
        ...


class PositionReader(StreamReader):
    """A streaming source whose offsets have a position for each partition. On the driver it lives as long as
    the query; on executors it reads ranges."""

    def __init__(self, config: ReadConfig, schema: StructType) -> None:
        self._config = config
        self._columns = wanted(config, schema)
        self._own = own = config.own
        self._max_rows = own["maxOffsetsPerTrigger"]
        self._max_bytes = own.get("maxBytesPerTrigger")
        self._driver: Driver | None = None
        self._bounded = False
        """Whether the run ends with what is there when it begins."""
        self._end: dict[str, Any] | None = None
        """The ends of such a run."""
        self._start: dict[str, Any] | None = None
        """End of the last batch. PySpark 4.2 and later pass it; earlier versions have a batch planned that
        ends there when a query goes on."""
        self._due: float | None = None
        """When a batch is due that has fewer rows than ``minOffsetsPerTrigger``."""
        self._told: set[str] = set()
        """Losses that were told."""

    def _open(self) -> Driver:
        """Connects."""
        raise NotImplementedError

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Not ``ReadAllAvailable`` if a batch may have to wait for rows: Spark asks for that when a run has a
        single batch, which does not wait."""
        from pyspark.sql.streaming.datasource import ReadMinRows

        fewest = self._own["minOffsetsPerTrigger"]
        if fewest is None or self._max_rows is not None or self._max_bytes is not None:
            return super().getDefaultReadLimit()
        return ReadMinRows(fewest)

    def _encode(self, positions: dict[str, Any]) -> dict[str, Any]:
        """Positions as JSON has them."""
        return dict(sorted(positions.items()))

    def _decode(self, topics: dict[str, Any]) -> dict[str, Any]:
        """The positions of :meth:`_encode`."""
        return topics

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._start = self._on_driver().start()
        return self._offset(self._start)

    def latestOffset(self, *asked: Any) -> dict[str, Any]:  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spark 4.2 and later pass the start and the limit; before, only our own limit applies."""
        driver, own = self._on_driver(), self._own
        most, most_bytes, fewest = self._max_rows, self._max_bytes, own["minOffsetsPerTrigger"]
        start = self._start
        if asked:
            start, limit = self._positions(asked[0]), asked[1]
            if type(limit).__name__ == "ReadAllAvailable":
                most = most_bytes = fewest = None
            else:
                most, most_bytes = getattr(limit, "max_rows", most), getattr(limit, "max_bytes", most_bytes)
        ends = self._end
        if ends is None:
            ends = driver.ends()
            for loss in driver.losses(start or {}, ends):
                self._lost(loss)
            if self._bounded:
                self._end = ends
        # Before anything is read, so that the broker keeps what is not.
        driver.hold()
        if start is None:
            # Without a beginning nothing can be counted.
            return self._offset(ends)
        if fewest is not None and not self._bounded:
            now = time.monotonic()
            waiting = driver.waiting(start, ends)
            if waiting is None or waiting >= fewest or (self._due is not None and now >= self._due):
                self._due = None
            else:
                if self._due is None:
                    self._due = now + own["maxTriggerDelay"]
                return self._offset(start)
        return self._offset(driver.end(start, ends, most, most_bytes))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end that ``latestOffset`` found. The broker is not asked: a report must not fail a query."""
        known = self._driver.known() if self._driver is not None else None
        return None if known is None else self._offset(known)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ends the run with what is there when its first batch is planned; the rest is for the next run."""
        self._bounded = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = self._positions(start), self._positions(end)
        self._start = last
        return [InputPartition(part) for part in self._on_driver().ranges(first, last)]

    def commit(self, end: dict[str, Any]) -> None:
        self._on_driver().commit(self._positions(end))

    def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver:
            driver.stop()

    def _offset(self, positions: dict[str, Any]) -> dict[str, Any]:
        return {"v": VERSION, "topics": self._encode(positions)}

    def _positions(self, offset: dict[str, Any]) -> dict[str, Any]:
        if offset.get("v") != VERSION or not isinstance(offset.get("topics"), dict):
            raise InvalidArgument(f"the checkpoint was written by another version of this source: {offset}")
        return self._decode(offset["topics"])

    def _lost(self, what: str) -> None:
        if self._own["failOnDataLoss"]:
            raise DataLost(f"{what}; failOnDataLoss=false goes on with what there is")
        if what not in self._told:
            self._told.add(what)
            log.warning("%s", what)

    def _on_driver(self) -> Driver:
        if self._driver is None:
            self._driver = self._open()
        return self._driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}
