"""LagListener: what Spark reports about streams, as metrics."""

import json
import logging
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from forebay import errors
from forebay.spark import Lag, LagListener
from forebay.spark._lag import lags

from support import queries
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

OF_COPY = (("query", "copy"), ("query_id", "q1"))
TOPIC = "persistent://public/default/orders"
LINE = re.compile(r'(?P<name>\w+)\{(?P<labels>(?:\w+="[^"\\]*",?)+)\} (?P<value>\S+)\Z')


def samples(text):
    """The values by name and labels; each name was described before."""
    described, found = set(), {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert rest and (what, name) not in described
            described.add((what, name))
        else:
            match = LINE.match(line)
            assert match, line
            assert {("HELP", match["name"]), ("TYPE", match["name"])} <= described
            labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match["labels"])))
            assert (match["name"], labels) not in found
            found[match["name"], labels] = float(match["value"])
    return found


def offset(**topics):
    return {"v": 1, "topics": {f"{TOPIC}{name.replace('_', '-')}": place for name, place in topics.items()}}


PLACES = {
    "all was read": ("(3,7,-1,-1)", "(3,7,-1,-1)", 0),
    "entries are left": ("(3,7,-1,-1)", "(3,19,-1,-1)", 12),
    "another ledger": ("(3,7,-1,-1)", "(5,0,-1,-1)", None),
    "made again": ("(5,7,-1,-1)", "(3,9,-1,-1)", None),
    "made again, in the same ledger": ("(3,9,-1,-1)", "(3,7,-1,-1)", None),
    "nothing was read": ("earliest", "(3,7,-1,-1)", None),
    "within an entry": ("(3,7,-1,2)", "(3,7,-1,-1)", None),
    "within an entry before": ("(3,6,-1,2)", "(3,7,-1,-1)", None),
    "no position": ("nonsense", "(3,7,-1,-1)", None),
}


@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize("form", ["object", "text"])
def test_entries_are_told_within_a_ledger_and_else_not(case, form):
    end, latest, expected = PLACES[case]
    one, other = offset(_=end), offset(_=latest)
    if form == "text":
        one, other = json.dumps(one), json.dumps(other)
    assert lags(0, one, other) == [Lag(0, f"{TOPIC}-", None, expected, "entries")]


def test_partitions_are_told_apart():
    end = {"v": 1, "topics": {f"{TOPIC}-partition-0": "(3,7,0,-1)", f"{TOPIC}-partition-1": "earliest"}}
    latest = {"v": 1, "topics": {f"{TOPIC}-partition-0": "(3,9,0,-1)", f"{TOPIC}-partition-2": "(4,0,2,-1)"}}
    assert lags(1, end, latest) == [
        Lag(1, TOPIC, 0, 2, "entries"),
        # No message in it, and a new one.
        Lag(1, TOPIC, 1, 0, "entries"),
        Lag(1, TOPIC, 2, None, "entries"),
    ]


@pytest.mark.parametrize("latest", [None, "", "null", "not JSON", [], 7])
def test_without_a_latest_offset_lags_are_unknown(latest):
    assert lags(0, offset(_="(3,7,-1,-1)"), latest) == [Lag(0, f"{TOPIC}-", None, None, "entries")]
    assert lags(0, {"v": 1, "log": "a", "row": 7}, latest) == [Lag(0, None, None, None, "messages")]


def test_offsets_of_tubemq_are_counted_in_entries():
    end = {"v": 1, "topics": {"sales": {"1:0": 28, "1:10": 280, "2:0": 56}}}
    latest = {"v": 1, "topics": {"sales": {"1:0": 308, "1:10": 280, "1:2": 28}}}
    assert lags(0, end, latest) == [
        Lag(0, "sales", "1:0", 10, "entries"),
        Lag(0, "sales", "1:2", None, "entries"),
        Lag(0, "sales", "1:10", 0, "entries"),
        Lag(0, "sales", "2:0", None, "entries"),
    ]


def test_rows_of_a_log_of_mqtt_are_messages():
    end = {"log": "a", "row": 10, "v": 1}
    assert lags(0, end, {"log": "a", "row": 25, "v": 1}) == [Lag(0, None, None, 15, "messages")]
    assert lags(0, end, {"log": "b", "row": 25, "v": 1}) == [Lag(0, None, None, None, "messages")]


@pytest.mark.parametrize(
    "end", [None, "7", '{"topics": [0]}', {"topics": {"a": 5}}, {"topics": {"a": "x"}}, {"0": 7}, {"row": 1}]
)
def test_offsets_of_other_sources_are_left_alone(end):
    assert lags(0, end, end) == []


def started(run="r1", name="copy", id="q1"):
    return SimpleNamespace(id=id, runId=run, name=name)


def progressed(run="r1", batch=0, end="(3,7,-1,-1)", latest="(3,9,-1,-1)", rows=10, **changes):
    source = SimpleNamespace(endOffset=json.dumps(offset(_=end)), latestOffset=json.dumps(offset(_=latest)))
    values = {
        "id": "q1",
        "runId": run,
        "name": "copy",
        "batchId": batch,
        "batchDuration": 250,
        "numInputRows": rows,
        "inputRowsPerSecond": 4.5,
        "processedRowsPerSecond": 40.0,
        "sources": [source],
        **changes,
    }
    return SimpleNamespace(progress=SimpleNamespace(**values))


def ended(run="r1", exception=None, id="q1"):
    return SimpleNamespace(id=id, runId=run, exception=exception)


def test_metrics_follow_a_query_and_end_with_it(caplog):
    caplog.set_level(logging.DEBUG, "forebay.spark")
    listener = LagListener()
    assert listener.metrics() == ""
    listener.onQueryStarted(started())
    listener.onQueryProgress(progressed())
    listener.onQueryProgress(progressed(batch=1, latest="(3,8,-1,-1)"))
    labels = (("job", "flights"), ("query", "copy"), ("query_id", "q1"))
    place = (*labels, ("source", "0"), ("topic", f"{TOPIC}-"))
    assert samples(listener.metrics(job="flights")) == {
        ("forebay_spark_batches", labels): 2,
        ("forebay_spark_rows", labels): 20,
        ("forebay_spark_batch_seconds", labels): 0.5,
        ("forebay_spark_last_batch", labels): 1,
        ("forebay_spark_last_batch_seconds", labels): 0.25,
        ("forebay_spark_input_rows_per_second", labels): 4.5,
        ("forebay_spark_processed_rows_per_second", labels): 40,
        ("forebay_spark_partitions_with_unknown_lag", labels): 0,
        ("forebay_spark_lag_entries", place): 1,
    }
    listener.onQueryIdle(ended())
    assert samples(listener.metrics())["forebay_spark_input_rows_per_second", OF_COPY] == 0
    listener.onQueryTerminated(ended())
    assert listener.queries() == [] and listener.metrics() == ""
    said = [record.getMessage() for record in caplog.records if record.name == "forebay.spark"]
    assert said[0] == "query copy began, run r1" and said[-1] == "query copy ended"
    assert "query copy, batch 1: 0.25 s, lag 1 entries" in said


def test_a_lag_that_is_not_known_has_no_line(caplog):
    caplog.set_level(logging.DEBUG, "forebay.spark")
    listener = LagListener()
    listener.onQueryProgress(progressed(latest="(4,9,-1,-1)", inputRowsPerSecond=math.nan))
    found = samples(listener.metrics())
    assert found["forebay_spark_partitions_with_unknown_lag", OF_COPY] == 1
    assert "lag_entries" not in listener.metrics()
    assert not any("input_rows" in name for name, _ in found)
    assert "unknown in 1 of 1 partitions" in caplog.text
    with pytest.raises(errors.InvalidArgument, match="label"):
        listener.metrics(**{"a-b": 1})
    for own in ("query", "query_id", "source", "topic", "partition"):
        with pytest.raises(errors.InvalidArgument, match=f"label '{own}' is the listener's own"):
            listener.metrics(**{own: 1})


def test_queries_are_told_apart_and_all_are_forgotten(caplog):
    listener = LagListener()
    for number in range(50):
        listener.onQueryStarted(started(f"r{number}", None, f"q{number}"))
        listener.onQueryProgress(progressed(f"r{number}", name=None, id=f"q{number}"))
    assert len(listener.queries()) == 50
    for number in range(50):
        exception = "it broke\nat line 7" if number == 7 else None
        listener.onQueryTerminated(ended(f"r{number}", exception, f"q{number}"))
    assert listener.queries() == []
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "query q7 failed: it broke"
    ]


def test_a_query_has_one_run_and_equal_names_are_told_apart():
    listener = LagListener()
    listener.onQueryProgress(progressed("r1", rows=10))
    # Of another session. `samples` refuses a line that is there twice.
    listener.onQueryProgress(progressed("r2", id="q2", rows=20))
    # It goes on from its checkpoint, and the end of the run before was not told.
    listener.onQueryStarted(started("r3"))
    listener.onQueryProgress(progressed("r3", rows=30))
    found = samples(listener.metrics())
    assert {labels: value for (name, labels), value in found.items() if name == "forebay_spark_rows"} == {
        OF_COPY: 30,
        (("query", "copy"), ("query_id", "q2")): 20,
    }
    assert [query.run_id for query in listener.queries()] == ["r2", "r3"]
    # What is told of the run before comes too late.
    listener.onQueryIdle(ended("r1"))
    listener.onQueryTerminated(ended("r1"))
    assert [query.input_rows_per_second for query in listener.queries()] == [4.5, 4.5]
    listener.clear()
    assert listener.queries() == [] and listener.metrics() == ""


def test_a_query_without_a_batch_is_shown():
    listener = LagListener()
    listener.onQueryStarted(started())
    (query,) = listener.queries()
    assert str(query) == "query copy, no batch yet"


def test_nothing_is_raised_into_spark(caplog):
    listener = LagListener()
    for act in (
        listener.onQueryStarted,
        listener.onQueryProgress,
        listener.onQueryIdle,
        listener.onQueryTerminated,
    ):
        act(SimpleNamespace())
        act(None)
    assert caplog.text.count("was not understood") == 8
    # Offsets of another source do not cost the rest of the report.
    odd = SimpleNamespace(endOffset='{"v": 1, "topics": {"a": 5}}', latestOffset='{"topics": 5}')
    listener.onQueryProgress(progressed(sources=[odd, *progressed().progress.sources]))
    (query,) = listener.queries()
    assert query.rows == 10 and [lag.source for lag in query.lags] == [1]


@pytest.fixture
def otel(monkeypatch):
    """OpenTelemetry in small."""
    path = str(Path(__file__).parents[1] / "support" / "otel")
    gone = [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]
    for name in gone:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(path)
    from opentelemetry import metrics

    yield metrics
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)


def test_opentelemetry_observes_the_same(otel):
    listener = LagListener()
    listener.instrument()
    listener.onQueryProgress(progressed())

    def observed(name):
        return [tuple(one) for one in otel.INSTRUMENTS[f"forebay.spark.{name}"][1](None)]

    query = {"query": "copy", "query_id": "q1"}
    assert observed("rows") == [(10, query)]
    assert observed("lag_entries") == [
        (2, {**query, "source": "0", "messaging.destination.name": f"{TOPIC}-"})
    ]
    assert observed("lag_messages") == []
    assert otel.INSTRUMENTS["forebay.spark.batches"][0] == "counter"
    assert otel.INSTRUMENTS["forebay.spark.lag_entries"][0] == "gauge"
    listener.onQueryTerminated(ended())
    assert observed("rows") == observed("lag_entries") == []


def test_a_stream_that_is_behind_tells_by_how_much(spark, client, service, tmp_path):
    """Each message is an entry, and batches have 10 of them at most."""
    topic = service.topic(partitions=2)
    client.consumer(topic, "keep", position="earliest").close()
    with client.producer(topic, routing="round_robin", batching=False) as producer:
        producer.send_many([b"%d" % number for number in range(100)])
    seen = []
    listener = LagListener()
    on_progress = listener.onQueryProgress

    def watching(event):
        on_progress(event)
        seen.extend(query for query in listener.queries() if query.name == "behind")

    listener.onQueryProgress = watching
    spark.streams.addListener(listener)
    try:
        writer = (
            spark.readStream.format("forebay")
            .options(url=service.url, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
            .load()
            .writeStream.format("noop")
            .queryName("behind")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
        )
        query = queries.started(writer.start)
        assert query.awaitTermination(120)
        eventually(lambda: bool(seen) and not listener.queries(), 60)
    finally:
        spark.streams.removeListener(listener)
    assert [query.rows for query in seen][-1] == 100
    rest = [sum(lag.amount for lag in query.lags) for query in seen if query.last_batch_seconds is not None]
    assert rest[0] >= 50 and rest[-1] == 0 and rest == sorted(rest, reverse=True)
    assert {(lag.topic, lag.partition, lag.unit) for lag in seen[0].lags} == {
        (topic, number, "entries") for number in range(2)
    }
    assert all(sum(lag.amount for lag in query.lags) + query.rows == 100 for query in seen), (
        "each message is an entry"
    )
