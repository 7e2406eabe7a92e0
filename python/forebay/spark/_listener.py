"""A listener of streaming queries, which makes metrics of what Spark reports about them."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from forebay import telemetry
from forebay._core import metrics
from forebay.errors import InvalidArgument

from ._lag import Lag, lags

log = logging.getLogger("forebay.spark")


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The state of a query that runs."""

    id: str
    """Stays the same when the query goes on from its checkpoint."""
    run_id: str
    name: str | None
    batches: int = 0
    """Batches that were reported in this run."""
    last_batch: int | None = None
    """Number of the last batch."""
    rows: int = 0
    """Rows of these batches."""
    batch_seconds: float = 0.0
    """Seconds that they took together."""
    last_batch_seconds: float | None = None
    """Seconds that the last one took."""
    input_rows_per_second: float | None = None
    """Rows that arrive; ``None`` if Spark does not tell."""
    processed_rows_per_second: float | None = None
    """Rows that are processed."""
    lags: tuple[Lag, ...] = ()
    """The lags of its sources that are of this package."""

    @property
    def label(self) -> str:
        """The name, or the id of a query without one."""
        return self.name or self.id

    @property
    def partitions_with_unknown_lag(self) -> int:
        """Number of ``lags`` that are not known."""
        return sum(lag.amount is None for lag in self.lags)

    def after(self, progress: Any) -> QueryProgress:
        """The state after a report of Spark."""
        found: list[Lag] = []
        for number, source in enumerate(progress.sources):
            try:
                found += lags(number, source.endOffset, source.latestOffset)
            except Exception:
                log.debug("offsets of source %s of query %s were not understood", number, self.label)
        seconds = progress.batchDuration / 1000
        return dataclasses.replace(
            self,
            name=progress.name,
            batches=self.batches + 1,
            last_batch=progress.batchId,
            rows=self.rows + progress.numInputRows,
            batch_seconds=self.batch_seconds + seconds,
            last_batch_seconds=seconds,
            input_rows_per_second=_rate(progress.inputRowsPerSecond),
            processed_rows_per_second=_rate(progress.processedRowsPerSecond),
            lags=tuple(found),
        )

    def __str__(self) -> str:
        if self.last_batch_seconds is None:
            return f"query {self.label}, no batch yet"
        known = sum(lag.amount or 0 for lag in self.lags)
        units = "/".join(sorted({lag.unit for lag in self.lags})) or "messages"
        text = (
            f"query {self.label}, batch {self.last_batch}: {self.last_batch_seconds:g} s, lag {known} {units}"
        )
        if self.partitions_with_unknown_lag:
            text += f", unknown in {self.partitions_with_unknown_lag} of {len(self.lags)} partitions"
        return text


def _rate(value: float | None) -> float | None:
    """A rate. Spark has NaN, or an infinite one, for a batch without time before it."""
    return value if value is not None and 0 <= value < float("inf") else None


_OF_QUERY = (
    ("batches", "counter", "{batch}", "Batches of the query since it began."),
    ("rows", "counter", "{row}", "Rows of these batches."),
    ("batch_seconds", "counter", "s", "Seconds that these batches took."),
    ("last_batch", "gauge", "{batch}", "Number of the last batch."),
    ("last_batch_seconds", "gauge", "s", "Seconds that the last batch took."),
    ("input_rows_per_second", "gauge", "{row}/s", "Rows that arrive per second."),
    ("processed_rows_per_second", "gauge", "{row}/s", "Rows that are processed per second."),
    ("partitions_with_unknown_lag", "gauge", "{partition}", "Partitions whose lag the offsets do not tell."),
)
"""Name, type, unit and help of the metrics of a query, which have the names of its fields."""
_OF_PARTITION = (
    ("lag_entries", "entries", "{entry}", "Entries of a partition that were not read when the batch began."),
    ("lag_messages", "messages", "{message}", "Messages that were not read when the batch began."),
)
"""Name, unit of the lag, unit and help of the metrics of a partition."""


class LagListener(StreamingQueryListener):
    """Watches the streaming queries of a session: how far they are behind their topics, how many rows they
    process, and how long their batches take.

        listener = forebay.spark.LagListener()
        spark.streams.addListener(listener)
        print(listener.metrics(job="flights"))

    It works on classic PySpark and on Spark Connect, and raises nothing into Spark. It logs the beginning and
    the end of queries (``INFO``) and their batches (``DEBUG``) under the logger ``forebay.spark``. A query
    that has ended is forgotten, and so is a run when the query goes on in another one. Lags need PySpark 4.2:
    before, Spark reports no latest offsets of Python's sources, and they are unknown.

    Spark tells a listener that was removed nothing more, not even the end of queries: call :meth:`clear`
    after ``removeListener``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}
        """By id: a query has one run at a time."""

    def queries(self) -> list[QueryProgress]:
        """The queries that run, in the order in which they began."""
        with self._lock:
            return list(self._queries.values())

    def clear(self) -> None:
        """Forgets all queries. Those of which Spark reports later are known again."""
        with self._lock:
            self._queries.clear()

    def metrics(self, **labels: object) -> str:
        """The metrics in the text format of Prometheus, for an endpoint of your own; its content type is
        ``text/plain; version=0.0.4``. Their names begin with ``forebay_spark_``. The labels of each are
        ``query``, the name or else the id of the query, and ``query_id``, which tells queries of several
        sessions apart; those of lags also ``source``, ``topic`` and ``partition``.
        A lag that is not known has no line, and counts in ``partitions_with_unknown_lag``.

        Args:
            labels: labels of every line, for example ``job="flights"``.

        Raises:
            InvalidArgument: a name of a label that Prometheus does not take, or one of the names above.
        """
        metrics.label_text(labels)
        if own := [name for name in labels if name in _OWN_LABELS]:
            raise InvalidArgument(
                f"metrics: the label {own[0]!r} is the listener's own: give yours another name"
            )
        queries = self.queries()
        lines: list[str] = []
        for name, kind, _, text in _OF_QUERY:
            samples = list(_values(queries, name))
            lines += _described(name, kind, text, samples, labels)
        for name, unit, _, text in _OF_PARTITION:
            lines += _described(name, "gauge", text, list(_samples(queries, unit)), labels)
        return "".join(f"{line}\n" for line in lines)

    def instrument(self, meter_provider: Any = None) -> None:
        """Reports the same as OpenTelemetry metrics, named ``forebay.spark.lag_entries`` and so on, whenever
        a reader collects them. A lag has the attributes ``messaging.destination.name`` and
        ``messaging.destination.partition.id``.

        Args:
            meter_provider: the provider; the global one by default.

        Raises:
            ImportError: ``opentelemetry-api`` is not installed.
        """
        meter, observation = telemetry.meter(meter_provider)

        def of_query(name: str) -> Callable[[Any], list[Any]]:
            return lambda _: [observation(value, labels) for labels, value in _values(self.queries(), name)]

        def of_partition(unit: str) -> Callable[[Any], list[Any]]:
            return lambda _: [
                observation(amount, {_ATTRIBUTES.get(name, name): value for name, value in labels.items()})
                for labels, amount in _samples(self.queries(), unit)
            ]

        for name, kind, unit, text in _OF_QUERY:
            create = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
            create(f"forebay.spark.{name}", [of_query(name)], unit, text)
        for name, of, unit, text in _OF_PARTITION:
            meter.create_observable_gauge(f"forebay.spark.{name}", [of_partition(of)], unit, text)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""
        with _quietly():
            self._put(QueryProgress(str(event.id), str(event.runId), event.name))
            log.info("query %s began, run %s", event.name or event.id, event.runId)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""
        with _quietly():
            progress = event.progress
            id, run = str(progress.id), str(progress.runId)
            # The listener may have been added later than the query.
            query = (self._run(id, run) or QueryProgress(id, run, progress.name)).after(progress)
            self._put(query)
            log.debug("%s", query)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""
        with _quietly():
            if (query := self._run(str(event.id), str(event.runId))) is not None:
                idle = {"input_rows_per_second": 0.0, "processed_rows_per_second": 0.0}
                self._put(dataclasses.replace(query, **idle))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Called by Spark."""
        with _quietly():
            query = self._run(str(event.id), str(event.runId))
            if query is not None:
                with self._lock:
                    self._queries.pop(query.id, None)
            name = query.label if query else event.id
            if event.exception:
                log.warning("query %s failed: %s", name, event.exception.partition("\n")[0])
            else:
                log.info("query %s ended", name)

    def _run(self, id: str, run: str) -> QueryProgress | None:
        """A query, if it is known in this run."""
        with self._lock:
            query = self._queries.get(id)
        return query if query is not None and query.run_id == run else None

    def _put(self, query: QueryProgress) -> None:
        with self._lock:
            if query.id in self._queries and self._queries[query.id].run_id != query.run_id:
                # It began after the others.
                del self._queries[query.id]
            self._queries[query.id] = query


_OWN_LABELS = ("query", "query_id", "source", "topic", "partition")
_ATTRIBUTES = {"topic": "messaging.destination.name", "partition": "messaging.destination.partition.id"}


def _labels(query: QueryProgress) -> dict[str, str]:
    return {"query": query.label, "query_id": query.id}


def _values(queries: list[QueryProgress], name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Labels of the queries that have a value, and the values."""
    for query in queries:
        value: float | None = getattr(query, name)
        if value is not None:
            yield _labels(query), value


def _samples(queries: list[QueryProgress], unit: str) -> Iterator[tuple[dict[str, str], int]]:
    """Labels and values of the lags in ``unit``."""
    for query in queries:
        for lag in query.lags:
            if lag.unit != unit or lag.amount is None:
                continue
            labels = {**_labels(query), "source": str(lag.source)}
            if lag.topic is not None:
                labels["topic"] = lag.topic
            if lag.partition is not None:
                labels["partition"] = str(lag.partition)
            yield labels, lag.amount


def _described(
    name: str, kind: str, text: str, samples: list[tuple[dict[str, str], Any]], labels: dict[str, object]
) -> Iterator[str]:
    if samples:
        name = f"forebay_spark_{name}"
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        for own, value in samples:
            yield f"{name}{{{metrics.label_text({**labels, **own})}}} {value}"


@contextlib.contextmanager
def _quietly() -> Generator[None, None, None]:
    """Logs what goes wrong: it is no reason for a query to fail."""
    try:
        yield
    except Exception:
        log.warning("a report of a query was not understood", exc_info=True)
