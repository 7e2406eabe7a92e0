"""Idempotent writes in detail: rows with topics of their own, records, topics that do not exist yet, names
that are taken, and what reports say of rows that the broker has."""

import collections
import threading
import time

import pyarrow as pa
import pytest

from forebay import blocking, errors, frames
from forebay.spark import _pool, partition_writer
from forebay.spark._config import write_config

from support.pulsar.harness import RealPulsar
from support.service import BrokerProcess
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]
IDEMPOTENT = {"delivery": "idempotent", "stable_order": True, "write_id": "job", "tasks": 1}


@pytest.fixture
def new_topic(service):
    """``new_topic()`` creates a topic that drops repetitions, and keeps what is written."""

    def create(name=None, partitions=0):
        topic = name or service.topic(partitions)
        with blocking.connect(service.url) as client:
            client.consumer(topic, "keep", position="earliest").close()
        if isinstance(service, RealPulsar):
            service.drop_repetitions(topic, partitions)
        return topic

    return create


def payloads(url, topic):
    return frames.read(url, topic)["value"].to_pylist()


def batches(rows, size=400):
    return iter(pa.table(rows).to_batches(max_chunksize=size))


@pytest.mark.parametrize("how", ["column", "template"])
def test_rows_with_topics_of_their_own_are_sent_once(service, new_topic, how):
    prefix = new_topic()
    names = [new_topic(f"{prefix}-{number}") for number in range(3)]
    rows = {"v": [str(number) for number in range(3000)], "n": [number % 3 for number in range(3000)]}
    rows["t"] = [names[number] for number in rows["n"]]
    where = {"topic_column": "t"} if how == "column" else {"topic": f"{prefix}-{{n}}"}
    writer = partition_writer(service.url, **where, value="v", **IDEMPOTENT)
    (first,) = writer(batches(rows))
    assert (first.rows, first.repeated_rows) == (3000, 0)
    (second,) = writer(batches(rows))
    assert (second.rows, second.repeated_rows, second.bytes) == (3000, 3000, first.bytes)
    for number, name in enumerate(names):
        assert list(map(int, payloads(service.url, name))) == list(range(number, 3000, 3))


def test_the_spellings_of_a_topic_are_one_topic(service, new_topic):
    full = new_topic()
    assert full.startswith("persistent://public/default/")
    spellings = [full, full.removeprefix("persistent://"), full.rpartition("/")[2]]
    rows = {"v": [str(n) for n in range(1000)], "t": [spellings[n % 3] for n in range(1000)]}
    (report,) = partition_writer(service.url, topic_column="t", value="v", **IDEMPOTENT)(batches(rows))
    assert report.rows == 1000
    assert list(map(int, payloads(service.url, full))) == list(range(1000))


def test_records_are_sent_once(service, new_topic):
    from pyspark.sql.types import LongType, StructField, StructType

    topic = new_topic()
    schema = StructType([StructField("n", LongType(), False)])
    writer = partition_writer(service.url, topic, encoding="avro", schema=schema, **IDEMPOTENT)
    # A producer that waits for the version of its schema numbers rows in the same way.
    for repeated in (0, 500):
        (report,) = writer(batches({"n": list(range(500))}))
        assert (report.rows, report.repeated_rows) == (500, repeated)
    with blocking.connect(service.url) as client:
        with client.reader(topic, schema="auto", position="earliest") as reader:
            assert [reader.receive(PATIENCE).value["n"] for _ in range(500)] == list(range(500))
            assert not reader.receive_many(timeout=0.5)


def test_what_a_report_says_of_rows_that_the_broker_had(service, new_topic):
    topic = new_topic()
    writer = partition_writer(service.url, topic, value="v", **IDEMPOTENT)
    some = {"v": [str(number) for number in range(700)]}
    more = {"v": [str(number) for number in range(1000)]}
    (first,) = writer(batches(some))
    (known,) = writer(batches(some))
    assert (known.rows, known.bytes, known.repeated_rows) == (700, first.bytes, 700)
    assert (known.first, known.last) == (None, None)
    (both,) = writer(batches(more))
    assert (both.rows, both.repeated_rows) == (1000, 700)
    # The ids of what was stored now.
    assert both.first > first.last and both.last > both.first
    assert both.last.ledger >= 0
    assert list(map(int, payloads(service.url, topic))) == list(range(1000))


def test_a_topic_that_does_not_exist_is_created(embedded):
    topic = f"{embedded.topic()}-new"
    writer = partition_writer(embedded.url, topic, value="v", **IDEMPOTENT)
    for repeated in (0, 10):
        (report,) = writer(batches({"v": list("abcdefghij")}))
        assert (report.rows, report.repeated_rows) == (10, repeated)
    by_row = partition_writer(embedded.url, f"{topic}-{{v}}", value="v", **IDEMPOTENT)
    assert by_row(batches({"v": list("abc")}))[0].rows == 3


@pytest.mark.real_pulsar
def test_a_broker_that_drops_nothing_gets_one_row(real_pulsar):
    topic = real_pulsar.topic()
    with blocking.connect(real_pulsar.url) as client:
        client.consumer(topic, "keep", position="earliest").close()
    writer = partition_writer(real_pulsar.url, topic, value="v", **IDEMPOTENT)
    with pytest.raises(errors.Unsupported, match="enable deduplication"):
        writer(batches({"v": list("abc")}))
    assert payloads(real_pulsar.url, topic) == [b"a"]


@pytest.mark.real_pulsar
def test_what_the_broker_refuses_hides_no_row_of_the_next_attempt(real_pulsar):
    """One entry is on its way at a time, so nothing is stored behind a row that a policy does not allow."""
    topic = real_pulsar.topic()
    with blocking.connect(real_pulsar.url) as client:
        client.consumer(topic, "keep", position="earliest").close()
    policy = f"{real_pulsar.path(topic)}/maxMessageSize"
    real_pulsar.rest("POST", policy, 1000)
    eventually(lambda: real_pulsar.rest("GET", policy) == 1000)
    # The broker applies what it was told before this as well.
    real_pulsar.drop_repetitions(topic)
    writer = partition_writer(real_pulsar.url, topic, value="v", batch_max_messages=1, **IDEMPOTENT)
    for _ in range(2):
        with pytest.raises(errors.NotAllowed):
            writer(batches({"v": ["a", "x" * 5000, "c", "d"]}))
    (report,) = writer(batches({"v": ["a", "b", "c", "d"]}))
    assert (report.rows, report.repeated_rows) == (4, 1)
    assert payloads(real_pulsar.url, topic) == [b"a", b"b", b"c", b"d"]


def test_other_numbers_of_tasks_are_other_writes(service, new_topic):
    """Row 0 of task 0 of 4 is not row 0 of task 0 of 2."""
    topic = new_topic()
    arguments = {"value": "v", **IDEMPOTENT}
    for tasks, rows in ((4, ["a", "b"]), (2, ["a", "c"]), (2, ["a", "c"]), (4, ["a", "b"])):
        writer = partition_writer(service.url, topic, **{**arguments, "tasks": tasks})
        assert writer(batches({"v": rows}))[0].rows == 2
    assert payloads(service.url, topic) == [b"a", b"b", b"a", b"c"]


def test_a_name_that_outlives_the_job_needs_the_number_of_tasks(embedded, topic):
    unknown = {**IDEMPOTENT, "tasks": None}
    with pytest.raises(errors.InvalidArgument, match=r"a write_id needs tasks= here.*getNumPartitions"):
        partition_writer(embedded.url, topic, value="v", **unknown)
    with pytest.raises(errors.InvalidArgument, match="a write_id needs tasks="):
        partition_writer(embedded.url, topic, value="v", id_property="row-id", write_id="job")
    with pytest.raises(errors.InvalidArgument, match="tasks: expected a whole number between 1"):
        partition_writer(embedded.url, topic, value="v", **{**IDEMPOTENT, "tasks": 0})
    with pytest.raises(errors.InvalidArgument, match="tasks= is part of the ids of rows"):
        partition_writer(embedded.url, topic, value="v", tasks=2)


def test_a_copy_of_a_task_waits_for_the_one_that_runs(embedded, topic):
    config = write_config(embedded.url, topic, {}, value="v", **IDEMPOTENT, ack_timeout=0.3)
    with blocking.connect(embedded.url) as client:
        running = client.producer(topic, name="forebay-job-0")
        with pytest.raises(errors.ProducerBusy), _pool.producers(config, "forebay-job-0") as producers:
            # The first attempt: another job has the name.
            producers.of(topic)
        end = threading.Timer(1.5, running.close)
        started = time.monotonic()
        end.start()
        with _pool.producers(config, "forebay-job-0", is_again=True) as producers:
            producers.of(topic)
        assert time.monotonic() - started > 1
        end.join()


def test_more_topics_than_producers(embedded, topic, monkeypatch):
    monkeypatch.setattr(_pool, "MOST_PRODUCERS", 2)
    names = [f"{topic}-{number}" for number in range(5)]
    rows = {"v": [str(n) for n in range(600)], "t": [names[n * 7 % 5] for n in range(600)]}
    for delivery in ({}, IDEMPOTENT):
        writer = partition_writer(embedded.url, topic_column="t", value="v", **delivery)
        (report,) = writer(batches(rows, 100))
        assert report.rows == 600
    found = collections.Counter(int(v) for name in names for v in payloads(embedded.url, name))
    assert found == dict.fromkeys(range(600), 2)


def test_the_producers_that_are_open_are_room_enough(embedded, topic, monkeypatch):
    """With as many topics as producers, each topic had all lots in flight waited for."""
    monkeypatch.setattr(_pool, "MOST_PRODUCERS", 3)
    settled = []

    from forebay.spark import _sink

    settle = _sink._Writing.settle
    monkeypatch.setattr(_sink._Writing, "settle", lambda writing: settled.append(1) or settle(writing))
    rows = {"v": [str(n) for n in range(900)], "t": [f"{topic}-{n % 3}" for n in range(900)]}
    (report,) = partition_writer(embedded.url, topic_column="t", value="v")(batches(rows, 100))
    assert report.rows == 900
    assert len(settled) == 1, "only the one at the end"


def test_a_broker_that_is_killed_in_the_middle_of_an_idempotent_write(tmp_path):
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    url = broker.url
    try:
        with blocking.connect(url) as client:
            client.consumer("t", "keep", position="earliest").close()
        writer = partition_writer(url, "t", value="v", **IDEMPOTENT, max_backoff=1)

        def rows():
            for number, batch in enumerate(batches({"v": [str(n) for n in range(20_000)]}, 1000)):
                if number == 10:
                    broker.end()
                    broker.start()
                yield batch

        (report,) = writer(rows())
        assert report.rows == 20_000
        (report,) = writer(batches({"v": [str(n) for n in range(20_000)]}, 1000))
        assert report.repeated_rows == 20_000
        assert list(map(int, payloads(url, "t"))) == list(range(20_000))
    finally:
        broker.end()
