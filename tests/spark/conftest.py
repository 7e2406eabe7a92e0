"""One Spark session for all tests, and a frame to write."""

import os
import sys
import threading

import pytest

from forebay import blocking
from forebay.spark import _pool, java

from support.limits import patience, patient_clients
from support.mqtt.harness import EmbeddedMqtt
from support.waiting import PATIENCE

LIMITS = ("CONNECT", "OPERATION", "REQUEST")
ROWS = 25_000
LONGEST = (
    "test_tubemq_stream",
    "test_matrix",
    "test_clusters",
    "test_delivery",
    "test_faults",
    "test_mqtt_source",
)
"""The files that take longest begin first, or one worker would be busy with the last of them alone."""

CORE = (
    "test_batches",
    "test_builders",
    "test_idempotent",
    "test_mqtt",
    "test_pulsar",
    "test_pulsar_source",
    "test_pulsar_stream",
    "test_rows",
    "test_tubemq",
)
"""The files that `make test` runs: each way to write and to read, with one version of PySpark."""

patient = patient_clients(*LIMITS)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in CORE:
            item.add_marker(pytest.mark.core)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session")
def embedded_mqtt():
    """An embedded broker that keeps all rows for a reader that a loaded machine makes slow."""
    broker = EmbeddedMqtt(mqtt_slow_subscriber="wait", mqtt_max_queue=1_000_000)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    java.ensure(tmp_path_factory.mktemp("java"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2, 3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
    )
    # The workers have the environment of the JVM.
    with patience(*LIMITS):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def frame(spark):
    from pyspark.sql import functions as F  # noqa: N812

    return spark.range(0, ROWS, 1, 3).select(
        F.col("id"),
        (F.col("id") % 7).alias("shop"),
        F.concat(F.lit("payload "), F.col("id")).alias("value"),
        F.lit(1_700_000_000).cast("timestamp").alias("moment"),
        F.create_map(F.lit("source"), F.lit("spark")).alias("props"),
    )


@pytest.fixture
def topic(embedded):
    """A Pulsar topic whose messages are kept. Files about other topics have a fixture of their own."""
    name = embedded.topic()
    with blocking.connect(embedded.url) as client:
        client.consumer(name, "keep", position="earliest").close()
    return name


@pytest.fixture
def own_pool():
    """Closes the clients that the test has left open in this process."""
    yield
    _pool.close()


class MqttReader:
    """Subscribes before the write and collects in a thread, so that no queue of a broker fills."""

    def __init__(self, url, topic):
        # Mosquitto 2.0 exceeds a lower maximum when it delivers a burst.
        self._client = blocking.connect(url, receive_maximum=65_535)
        self._consumer = self._client.consumer(topic, qos=2, auto_ack=True)
        self._rows = []
        self._more = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._gather)
        self._thread.start()

    def _gather(self):
        while self._open:
            rows = self._consumer.read_frame(10_000, timeout=0.1).to_pylist()
            with self._more:
                self._rows += rows
                self._more.notify_all()

    def rows(self, count):
        """``count`` rows; fails when there are more."""
        with self._more:
            self._more.wait_for(lambda: len(self._rows) >= count, PATIENCE)
            assert len(self._rows) >= count, f"{len(self._rows)} rows came"
            there = len(self._rows)
            assert not self._more.wait_for(lambda: len(self._rows) > there, 0.5), "more rows came"
            return self._rows

    def rows_until(self, are_all):
        """The rows that have come when ``are_all(rows)`` holds, or in a minute."""
        with self._more:
            self._more.wait_for(lambda: are_all(self._rows), PATIENCE)
            return list(self._rows)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._open = False
        self._thread.join()
        self._client.close()


@pytest.fixture
def reading():
    """``with reading(url, filter) as reader`` collects the messages written meanwhile."""
    return MqttReader


def _forget_the_last_commit(checkpoint):
    """Removes the last commit from the checkpoint, so that Spark repeats that batch; returns its number."""

    def numbers(log):
        return sorted(int(file.name) for file in (checkpoint / log).iterdir() if file.name.isdigit())

    def remove(log, number):
        (checkpoint / log / str(number)).unlink()
        (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)

    last = numbers("commits")[-1]
    remove("commits", last)
    # Planned, and perhaps begun, when the query was stopped.
    for planned in numbers("offsets"):
        if planned > last:
            remove("offsets", planned)
    return last


@pytest.fixture
def forget_the_last_commit():
    """``forget_the_last_commit(checkpoint)`` makes Spark run its last micro-batch again."""
    return _forget_the_last_commit


@pytest.fixture
def client(service):
    """A client of the Pulsar service."""
    with blocking.connect(service.url) as client:
        yield client
