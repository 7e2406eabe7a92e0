"""The streaming source for MQTT: every message of QoS 1 and 2 is in a batch, across restarts and kills, and a
batch that Spark repeats has the same rows."""

import multiprocessing
import os
import pickle
import shutil
import signal
import threading
import time
import uuid

import pytest

import forebay
from forebay import blocking, errors
from forebay.spark import register
from forebay.spark._sources.mqtt import MqttStreamReader, source_config

from support.mqtt.harness import Mosquitto
from support.queries import started
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wide_mosquitto():
    """A Mosquitto that drops no message of an offline subscriber."""
    broker = Mosquitto(extra="max_queued_messages 0\n")
    yield broker
    broker.stop()


@pytest.fixture(
    params=[
        pytest.param("embedded_mqtt", id="embedded"),
        pytest.param("wide_mosquitto", marks=pytest.mark.real_mqtt, id="mosquitto"),
    ]
)
def any_url(request):
    return request.getfixturevalue(request.param).url


@pytest.fixture
def url(embedded_mqtt):
    return embedded_mqtt.url


@pytest.fixture
def topic():
    return f"t/{uuid.uuid4().hex[:12]}"


def options(url, topic, folder, **more):
    given = {"url": url, "topic": f"{topic}/#", "wal": str(folder / "wal"), "client_id": f"spark-{topic[2:]}"}
    return given | {name: str(value) for name, value in more.items()}


class Query:
    """A running query, and the rows of each of its batches."""

    def __init__(self, spark, tmp_path, url, topic, available_now=False, **more):
        register(spark)
        self.batches = {}
        source = spark.readStream.format("forebay").options(**options(url, topic, tmp_path, **more)).load()
        writer = source.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        self.query = started(writer.foreachBatch(self._take).start)

    def _take(self, df, number):
        self.batches[number] = df.collect()

    @property
    def rows(self):
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def values(self):
        return [int(row.value) for row in self.rows]

    def wait_for(self, count):
        def there():
            if self.query.exception():
                raise self.query.exception()
            return len(self.rows) >= count

        eventually(there, 60)

    @property
    def sizes(self):
        return [len(self.batches[number]) for number in sorted(self.batches)]

    def stop(self):
        # Not in the middle of a batch.
        self.query.processAllAvailable()
        self.query.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.query.stop()


def available_now(spark, tmp_path, url, topic, count, **more):
    """Runs with ``availableNow`` until they have so many rows together. On a busy machine a run may end
    early, since nothing has come for a second; each has some."""
    runs = []
    while count > 0:
        run = Query(spark, tmp_path, url, topic, available_now=True, **more)
        assert run.query.awaitTermination(240)
        # Without those of `trickle`.
        found = sum(row.value != b"-1" for row in run.rows)
        assert found, f"{count} rows are missing"
        count -= found
        runs.append(run)
    return runs


def publish(url, topic, numbers, qos=1, **fields):
    with blocking.connect(url) as client, client.producer(topic, qos=qos, max_pending=10_000) as producer:
        for number in numbers:
            producer.send_nowait(b"%d" % number, topic=f"{topic}/{number % 3}", **fields)
        producer.flush(60)


def subscribed(url, topic):
    """Waits until the source has its session, so that no message is missed."""
    with blocking.connect(url, client_id=f"spark-{topic[2:]}", clean_start=False) as client:
        client.consumer(f"{topic}/#", qos=2).close()


def test_messages_become_rows(spark, url, topic, tmp_path):
    subscribed(url, topic)
    fields = {"properties": {"source": "till"}, "content_type": "text/plain"}
    publish(url, topic, range(500), qos=2, **fields)
    with Query(spark, tmp_path, url, topic, qos=2) as query:
        query.wait_for(500)
        assert query.values == list(range(500))
        for row in query.rows:
            assert row.topic == f"{topic}/{int(row.value) % 3}"
            assert (row.qos, row.retain, row.content_type) == (2, False, "text/plain")
            assert row.properties == {"source": "till"}
            assert abs(row.received_time.timestamp() - time.time()) < 120
        publish(url, topic, range(500, 600), qos=0)
        query.wait_for(600)
        assert query.rows[-1].properties == {}
        assert query.rows[-1].content_type is None
    assert query.values == list(range(600))


class Entries(Query):
    """A query whose rows are the properties, as Spark has them."""

    def _take(self, df, number):
        self.batches[number] = df.selectExpr(
            "value", "map_entries(properties) AS entries", "properties['a'] AS first"
        ).collect()


def test_user_properties_that_repeat_a_name_are_all_there(spark, url, topic, tmp_path):
    subscribed(url, topic)
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "1")]
    publish(url, topic, [0], properties=pairs)
    publish(url, topic, [1], properties={"a": "1"})
    with Entries(spark, tmp_path, url, topic) as query:
        query.wait_for(2)
        repeated, once = ([tuple(entry) for entry in row.entries] for row in query.rows)
        assert [row.first for row in query.rows] == ["1", "1"]
    assert repeated == pairs
    assert once == [("a", "1")]


def test_what_comes_while_the_query_is_down_is_in_a_batch_of_the_next(spark, any_url, topic, tmp_path):
    with Query(spark, tmp_path, any_url, topic) as first:
        # The broker has the session from here on.
        publish_until_seen(any_url, topic, first)
        first.stop()
    publish(any_url, topic, range(1, 5001))
    with Query(spark, tmp_path, any_url, topic) as second:
        second.wait_for(5000)
        second.stop()
    values = [value for value in second.values if value]
    assert values == list(range(1, 5001))
    assert not set(first.batches) & set(second.batches)


def publish_until_seen(url, topic, query):
    def seen():
        publish(url, topic, [0])
        return bool(query.rows)

    eventually(seen, 60)


def test_the_time_to_connect_is_no_silence(url, topic, tmp_path, monkeypatch):
    subscribed(url, topic)
    publish(url, topic, range(95))
    connect = blocking.connect

    def slowly(*args, **options):
        time.sleep(4)
        return connect(*args, **options)

    monkeypatch.setattr("forebay.spark._sources.mqtt.QUIET", 3.0)
    monkeypatch.setattr(blocking, "connect", slowly)
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path)))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset()["row"] == 95
    reader.stop()


def test_what_is_available_is_what_the_log_has_room_for(url, topic, tmp_path):
    subscribed(url, topic)
    publish(url, topic, range(95))
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path, wal_limit=1)))
    assert 0 < available(reader, 1) <= 95
    reader.stop()


def available(reader, count, *start):
    """The end of what is available, with so many rows. On a busy machine the broker may seem to be quiet
    before they have come."""

    def row():
        reader.prepareForTriggerAvailableNow()
        return reader.latestOffset(*start)["row"]

    eventually(lambda: row() >= count)
    return reader.latestOffset(*start)["row"]


def values_in(reader, end):
    """The payloads of the rows up to ``end``, as numbers."""
    parts = reader.partitions({"row": 0, "v": 1}, {"row": end, "v": 1})
    batches = [batch for part in parts for batch in reader.read(part)]
    return [int(value) for batch in batches for value in batch["value"].to_pylist()]


@pytest.mark.real_mqtt
def test_a_backlog_larger_than_any_window_arrives_once(wide_mosquitto, topic, tmp_path, monkeypatch):
    # Mosquitto exceeds the receive maximum when it catches up. A client that ends the connection
    # for that is sent everything in flight again.
    url = wide_mosquitto.url
    subscribed(url, topic)
    with blocking.connect(url) as client, client.producer(f"{topic}/x", qos=1) as producer:
        producer.send_many([b"%d" % number for number in range(100_000)])
    # On a busy machine the broker may pause for longer than a second.
    monkeypatch.setattr("forebay.spark._sources.mqtt.QUIET", 10.0)
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path, available_now_timeout="150s")))
    try:
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset()["row"]
        assert sorted(values_in(reader, end)) == list(range(100_000))
    finally:
        reader.stop()


def test_a_full_window_ends_a_segment(topic, tmp_path, monkeypatch):
    # With the time alone it would take 200 s to fill these 50 windows.
    monkeypatch.setattr("forebay.spark._sources.mqtt.GATHER", 4.0)
    with forebay.Broker(mqtt_port=0, mqtt_max_inflight=20) as broker:
        subscribed(broker.mqtt_url, topic)
        publish(broker.mqtt_url, topic, range(1000))
        reader = MqttStreamReader(source_config(options(broker.mqtt_url, topic, tmp_path)))
        try:
            reader.initialOffset()
            eventually(lambda: reader.latestOffset()["row"] == 1000, 150)
            assert values_in(reader, 1000) == list(range(1000))
        finally:
            reader.stop()


def test_few_large_messages_are_no_silence(url, topic, tmp_path, monkeypatch):
    # As from a broker far away. Each is a segment, and there are fewer than a trickle has.
    monkeypatch.setattr("forebay.spark._sources.mqtt.QUIET", 4.0)
    subscribed(url, topic)

    def publish_on():
        with blocking.connect(url) as client, client.producer(f"{topic}/x", qos=1) as producer:
            for number in range(12):
                producer.send(b"%0100000d" % number)
                time.sleep(0.5)

    thread = threading.Thread(target=publish_on)
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path)))
    thread.start()
    try:
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset()["row"] == 12
    finally:
        thread.join()
        reader.stop()


@pytest.fixture
def trickle(url, topic):
    """Publishes a message every 50 ms until the test ends."""
    done = threading.Event()

    def publish_on():
        with blocking.connect(url) as client, client.producer(f"{topic}/live", qos=1) as producer:
            while not done.wait(0.05):
                producer.send(b"-1")

    subscribed(url, topic)
    thread = threading.Thread(target=publish_on)
    yield thread.start
    done.set()
    thread.join()


def test_available_now_on_a_live_topic_has_what_was_there(spark, url, topic, tmp_path, trickle):
    publish(url, topic, range(300))
    trickle()
    runs = available_now(spark, tmp_path, url, topic, 300)
    assert [value for run in runs for value in run.values if value >= 0] == list(range(300))


def test_a_topic_that_is_never_quiet_is_cut_after_the_time(
    url, topic, tmp_path, trickle, caplog, monkeypatch
):
    monkeypatch.setattr("forebay.spark._sources.mqtt.FEW", 1)
    monkeypatch.setattr("forebay.spark._sources.mqtt.QUIET", 30.0)
    trickle()
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path, available_now_timeout="2s")))
    try:
        reader.initialOffset()
        eventually(lambda: reader.latestOffset()["row"] > 0)
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset()["row"] > 0
        assert "was not quiet for 2 s" in caplog.text
    finally:
        reader.stop()


def test_a_batch_that_is_run_again_has_the_same_rows(spark, url, topic, tmp_path, forget_the_last_commit):
    subscribed(url, topic)
    with Query(spark, tmp_path, url, topic) as first:
        publish(url, topic, range(100))
        first.wait_for(100)
        first.stop()
    last = forget_the_last_commit(tmp_path / "checkpoint")
    publish(url, topic, range(100, 150))
    with Query(spark, tmp_path, url, topic) as second:
        second.wait_for(len(first.batches[last]) + 50)
        second.stop()
    assert second.batches[last] == first.batches[last]
    before = [int(row.value) for number in range(last) for row in first.batches[number]]
    assert before + second.values == list(range(150))


def test_micro_batches_are_no_larger_than_asked_for_and_available_now_ends(spark, url, topic, tmp_path):
    subscribed(url, topic)
    publish(url, topic, range(95))
    runs = available_now(spark, tmp_path, url, topic, 95, max_rows_per_trigger=20)
    for run in runs:
        assert all(size == 20 for size in run.sizes[:-1]) and run.sizes[-1] <= 20
    assert [value for run in runs for value in run.values] == list(range(95))
    # Committed rows are deleted, except in the last segment, and the position stays.
    publish(url, topic, range(95, 100))
    runs = available_now(spark, tmp_path, url, topic, 5)
    assert [value for run in runs for value in run.values] == list(range(95, 100))


def test_rows_may_travel_with_the_tasks(url, topic, tmp_path):
    subscribed(url, topic)
    publish(url, topic, range(100))
    on_driver = MqttStreamReader(source_config(options(url, topic, tmp_path, inline="1MiB")))
    on_executor = pickle.loads(pickle.dumps(on_driver))
    start = on_driver.initialOffset()
    eventually(lambda: on_driver.latestOffset()["row"] == 100)
    parts = pickle.dumps(on_driver.partitions(start, on_driver.latestOffset()))
    on_driver.stop()
    # Another machine does not have the folder.
    shutil.rmtree(tmp_path / "wal")
    batches = [batch for part in pickle.loads(parts) for batch in on_executor.read(part)]
    assert [int(value) for batch in batches for value in batch["value"].to_pylist()] == list(range(100))


def test_micro_batches_with_rows_of_their_own_have_a_size(spark, url, topic, tmp_path):
    subscribed(url, topic)
    with blocking.connect(url) as client, client.producer(f"{topic}/0") as producer:
        producer.send_many([b"%06d" % number + bytes(20_000) for number in range(100)])
    runs = available_now(spark, tmp_path, url, topic, 100, inline="200KiB")
    assert [int(row.value[:6]) for run in runs for row in run.rows] == list(range(100))
    # The log has a little more than the payloads.
    assert max(size for run in runs for size in run.sizes) <= 10


def test_rows_are_spread_over_tasks(spark, url, topic, tmp_path):
    subscribed(url, topic)
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path)))
    try:
        start = reader.initialOffset()
        publish(url, topic, range(2000))
        eventually(lambda: reader.latestOffset()["row"] == 2000)
        # On executors there is a copy.
        copy = pickle.loads(pickle.dumps(reader))
        parts = reader.partitions(start, {"row": 2000, "v": 1})
        batches = [batch for part in parts for batch in copy.read(pickle.loads(pickle.dumps(part)))]
        assert [int(value) for batch in batches for value in batch["value"].to_pylist()] == list(range(2000))
        # As after a restart.
        assert list(reader.partitions({"row": 2000, "v": 1}, {"row": 2000, "v": 1})) == []
    finally:
        reader.stop()


def ingest(config):
    """A driver, to be killed."""
    reader = MqttStreamReader(config)
    while True:
        reader.latestOffset()
        time.sleep(0.01)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_driver_that_is_killed_loses_nothing(any_url, topic, tmp_path, qos):
    subscribed(any_url, topic)
    config = source_config(options(any_url, topic, tmp_path, qos=qos))
    done = threading.Event()

    def feed():
        with blocking.connect(any_url) as client, client.producer(f"{topic}/x", qos=qos) as producer:
            for number in range(6000):
                producer.send(b"%d" % number)
        done.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    context = multiprocessing.get_context("spawn")
    kills = 0
    while not done.is_set() or kills < 3:
        process = context.Process(target=ingest, args=(config,))
        process.start()
        folder = tmp_path / "wal"
        before = segments(folder)
        # Killed whenever it has written something, in the middle of whatever it does then.
        eventually(lambda: segments(folder) > before or done.is_set(), 240)  # noqa: B023
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    feeder.join()
    reader = MqttStreamReader(config)
    try:
        seen = set()

        def all_there():
            end = reader.latestOffset()
            for part in reader.partitions({"row": 0, "v": 1}, end):
                for batch in reader.read(part):
                    seen.update(int(value) for value in batch["value"].to_pylist())
            return len(seen) == 6000

        eventually(all_there, 60)
    finally:
        reader.stop()


def segments(folder):
    return len(list(folder.glob("*.arrow")))


def test_a_full_log_leaves_messages_at_the_broker(url, topic, tmp_path):
    subscribed(url, topic)
    config = source_config(options(url, topic, tmp_path, wal_limit="64KiB", receive_maximum=50))
    reader = MqttStreamReader(config)
    try:
        reader.initialOffset()
        publish(url, topic, [0] * 50, properties={"filler": "x" * 3000})
        eventually(lambda: reader.latestOffset()["row"] > 0)
        publish(url, topic, [0] * 300, properties={"filler": "x" * 3000})
        # It holds what was collected when it was full, and no more.
        stuck = wait_until_still(lambda: reader.latestOffset()["row"])
        assert stuck < 350
        while reader.latestOffset()["row"] < 350:
            reader.commit(reader.latestOffset())
            time.sleep(0.01)
    finally:
        reader.stop()


def wait_until_still(value, quiet=1.0):
    """Waits until the value has not changed for a while."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < quiet:
        time.sleep(0.02)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last


def test_a_log_of_another_checkpoint_is_refused(url, topic, tmp_path):
    subscribed(url, topic)
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path)))
    try:
        with pytest.raises(errors.IoError, match="not the one that this checkpoint was made with"):
            reader.latestOffset({"row": 10, "v": 1}, None)
        with pytest.raises(errors.InvalidArgument, match="another version"):
            reader.latestOffset({"row": 10, "v": 2}, None)
    finally:
        reader.stop()


def test_a_log_that_was_replaced_ends_the_query_of_its_checkpoint(spark, url, topic, tmp_path):
    subscribed(url, topic)
    publish(url, topic, range(10))
    first = available_now(spark, tmp_path, url, topic, 10)
    assert [value for run in first for value in run.values] == list(range(10))
    shutil.rmtree(tmp_path / "wal")
    # The new log soon has the rows' numbers, but they are other messages.
    publish(url, topic, range(10, 60))
    second = Query(spark, tmp_path, url, topic, available_now=True)
    with pytest.raises(Exception, match="not the one that this checkpoint was made with"):
        second.query.awaitTermination(240)
    assert second.values == []


def test_an_offset_without_a_log_is_one_of_an_earlier_version(url, topic, tmp_path):
    subscribed(url, topic)
    publish(url, topic, range(5))
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path)))
    try:
        assert available(reader, 5, {"row": 2, "v": 1}, None) == 5
        assert (
            sum(
                piece.rows
                for part in reader.partitions({"row": 2, "v": 1}, {"row": 5, "v": 1})
                for piece in part.slices
            )
            == 3
        )
    finally:
        reader.stop()


def test_a_second_query_on_the_same_log_is_refused(url, topic, tmp_path, monkeypatch):
    subscribed(url, topic)
    config = source_config(options(url, topic, tmp_path))
    monkeypatch.setattr(
        "forebay.spark._sources.wal.Log.__init__.__kwdefaults__", {"patience": 0.1}, raising=True
    )
    reader, other = MqttStreamReader(config), MqttStreamReader(config)
    try:
        reader.initialOffset()
        with pytest.raises(errors.InvalidArgument, match="another query"):
            other.initialOffset()
    finally:
        reader.stop()


def test_a_session_that_another_takes_ends_the_query_by_name(url, topic, tmp_path):
    reader = MqttStreamReader(source_config(options(url, topic, tmp_path)))
    try:
        reader.initialOffset()
        subscribed(url, topic)

        def ended():
            try:
                reader.latestOffset()
            except errors.Error as error:
                assert isinstance(error, errors.SessionTakenOver)
                return True
            return False

        eventually(ended)
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"wal": None}, errors.InvalidArgument, '"wal" is missing'),
        ({"topic": None}, errors.InvalidArgument, '"topic" is missing'),
        ({"client_id": None}, errors.InvalidArgument, '"client_id" is missing'),
        ({"max_rows_per_triger": "1"}, errors.InvalidArgument, "did you mean 'max_rows_per_trigger'"),
        ({"keepalive": "60"}, errors.InvalidArgument, "use keep_alive=, in seconds"),
        ({"connectTimeoutMs": "1000"}, errors.InvalidArgument, "use connect_timeout=, in seconds"),
        ({"max_rows_per_trigger": "0"}, errors.InvalidArgument, "max_rows_per_trigger"),
        ({"receive_maximum": "65535"}, errors.InvalidArgument, "takes 10000 at most"),
        ({"maxRowsPerTrigger": "0"}, errors.InvalidArgument, "max_rows_per_trigger"),
        ({"subscribe": "t/y"}, errors.InvalidArgument, "'topic' is given twice"),
        ({"inline": "65MiB"}, errors.InvalidArgument, "inline is 68157440 bytes"),
        ({"wal_limit": "much"}, errors.InvalidArgument, "wal_limit"),
        ({"qos": "3"}, errors.InvalidArgument, "qos"),
        ({"clean_start": "true"}, errors.Unsupported, "clean_start"),
        ({"auto_ack": "true"}, errors.Unsupported, "auto_ack"),
        ({"password": "secret-text"}, errors.InvalidArgument, "env:NAME"),
        ({"url": "pulsar://h:6650"}, errors.Unsupported, "MQTT"),
    ],
)
def test_mistakes_are_named(tmp_path, change, kind, words):
    given = options("mqtt://h:1", "t/x", tmp_path) | change
    with pytest.raises(kind, match=words) as refused:
        source_config({name: value for name, value in given.items() if value is not None})
    assert "secret-text" not in str(refused.value)


def test_reading_without_a_stream_or_with_another_schema_is_refused(spark, url, topic, tmp_path):
    register(spark)
    given = options(url, topic, tmp_path)
    with pytest.raises(Exception, match=r"spark\.readStream"):
        spark.read.format("forebay").options(**given).load().collect()
    # Spark asks the planner for a reader with this schema when the query begins.
    stream = spark.readStream.format("forebay").schema("value string").options(**given).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="its own schema"):
        started(writer.start).awaitTermination(240)
