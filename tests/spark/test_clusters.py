"""Clusters of several processes, and Spark Connect: what runs on one machine's threads runs there, too. Each
Spark has a process of its own, in which nothing calls ``register`` before the data source is used."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from forebay import blocking, frames
from forebay.errors import Unsupported
from forebay.spark import _errors, java, partition_writer
from forebay.spark._datasource import ForebayDataSource

from support.spark_cluster import HOME, standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = Path(__file__).with_name("job.py")
WITHOUT = Path(__file__).with_name("without.py")
BATCHES = Path(__file__).with_name("connect_batches.py")


@pytest.fixture(scope="module", autouse=True)
def a_java(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # `ensure` may set it.
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        if not os.environ["JAVA_HOME"]:
            del os.environ["JAVA_HOME"]
        java.ensure(tmp_path_factory.mktemp("java"))
        yield


@pytest.fixture(params=["local-cluster[2,1,1024]", "standalone", "remote:local[2]"])
def master(request, tmp_path):
    """A Spark master of several processes, or ``remote:`` and that of a server of Spark Connect."""
    if request.param != "standalone":
        yield request.param
        return
    with standalone(tmp_path) as url:
        yield url


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def test_rows_are_written_read_and_streamed(master, embedded, tmp_path):
    topic = embedded.topic()
    with blocking.connect(embedded.url) as client:
        for name in (topic, f"{topic}-copy", f"{topic}-first"):
            client.consumer(name, "keep", position="earliest").close()
        with client.producer(f"{topic}-first") as producer:
            producer.send_many([b"%d" % number for number in range(7)])
        assert run(JOB, master, embedded.url, topic, tmp_path) == {
            "found": 7,
            "written": 1000,
            "reports": 2,
            "read": [1000, 499500],
            "ended": True,
            "watched": [["copy", 1000]],
            "left": 0,
            "register": 1,
        }
        copied = frames.read(embedded.url, f"{topic}-copy").to_pylist()
    assert sorted(int(row["value"]) for row in copied) == list(range(1000))


def test_batches_of_connect_are_written_once(embedded, tmp_path):
    topic = embedded.topic()
    with blocking.connect(embedded.url) as client:
        client.consumer(topic, "keep", position="earliest").close()
    answers = run(BATCHES, embedded.url, topic, tmp_path)
    assert "in foreachBatch of Spark Connect a write does not see its batch" in answers["refused"]
    assert answers["errors"] == ["", ""]
    found = [int(value) for value in frames.read(embedded.url, topic)["value"].to_pylist()]
    # The last batch may have been stopped half-way.
    assert set(found) >= set(range(150)), "rows of a batch after the first are missing"
    assert len(found) == len(set(found)), "rows of the second run came again"


@pytest.mark.parametrize("master", ["local[2]", "remote:local[2]"])
def test_workers_without_the_package_are_told_so(master, embedded, tmp_path):
    venv.create(tmp_path / "bare", symlinks=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    answers = run(WITHOUT, master, embedded.url, embedded.topic(), PYSPARK_PYTHON=bare)
    assert answers["write"][0] == "Unsupported"
    for kind, text in answers.values():
        assert kind != "nothing"
        assert f"forebay cannot be imported by the Python of Spark's workers, {bare} (" in text
        assert "docs/guides/spark-clusters.md" in text


def shipped(url):
    """The objects that a write, a read and streams send to executors."""
    schema = StructType([StructField("value", BinaryType())])
    writing = {"url": url, "topic": "orders", "value": "value"}
    reading = {"url": url, "subscribe": "orders"}
    mqtt = {"url": "mqtt://localhost", "topic": "orders", "wal": "wal", "client_id": "spark"}
    source = ForebayDataSource
    return {
        "write": partition_writer(url, "orders", value="value"),
        "writer": source(writing).writer(schema, False),
        "streamWriter": source(writing).streamWriter(schema, False),
        "reader": source(reading).reader(schema),
        "streamReader": source(reading).streamReader(schema),
        "streamReader of MQTT": source(mqtt).streamReader(source(mqtt).schema()),
    }


@pytest.mark.parametrize("what", list(shipped("pulsar://localhost")))
def test_executors_without_the_package_are_told_so_whatever_they_get(what, tmp_path):
    thing = shipped("pulsar://localhost")[what]
    payload = cloudpickle.dumps(thing)
    assert type(cloudpickle.loads(payload)) is type(thing)
    venv.create(tmp_path / "bare", symlinks=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    done = subprocess.run(
        [
            bare,
            "-c",
            "import sys; from pyspark import cloudpickle; cloudpickle.loads(sys.stdin.buffer.read())",
        ],
        env={"PYTHONPATH": os.pathsep.join(map(str, (HOME / "python" / "lib").glob("*.zip")))},
        check=False,
        input=payload,
        capture_output=True,
    )
    error = _errors.of_task(RuntimeError(done.stderr.decode()))
    assert isinstance(error, Unsupported)
    assert f"by the Python of Spark's workers, {bare} (" in str(error)


def test_another_module_that_is_missing_is_named_as_it_is():
    missing = ModuleNotFoundError("No module named 'secrets_of_ours'", name="secrets_of_ours")

    class Odd:
        def __reduce__(self):
            return (_raise, (missing,))

    writer = partition_writer("pulsar://localhost", "orders", value="value")
    writer.row_schema = Odd()
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'secrets_of_ours'"):
        cloudpickle.loads(cloudpickle.dumps(writer))


def _raise(error):
    raise error
