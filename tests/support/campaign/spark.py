"""``python -m support.campaign.spark PART COUNT``: the faults of Spark, counted; prints a tally as JSON.

The parts, each with both deliveries in turn:

* ``workers``: COUNT of Python's workers are killed in the middle of writes;
* ``broker``: the broker is killed and started again COUNT times in the middle of writes;
* ``cuts``: COUNT writes of ten rows, each with its connections cut at some time;
* ``copies``: COUNT writes on a cluster with speculation, one task of which is slow and runs twice;
* ``drivers``: the driver of a streaming query is killed COUNT times between planning a batch and its commit.

What is in the topics afterwards is held against what the delivery promises. No row is ever lost. With
``"idempotent"`` none comes twice; otherwise one that does has the id that it had before.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import forebay.spark
from forebay import blocking, errors, frames

from support.chance import seeded
from support.chaos import ChaosProxy
from support.scripts import free_port
from support.service import BrokerProcess
from support.spark_cluster import standalone
from support.waiting import eventually

TESTS = Path(__file__).parents[2]
ROWS_PER_BATCH = 200
MODES: dict[str, dict[str, Any]] = {
    "at-least-once": {"id_property": "row-id"},
    "idempotent": {"delivery": "idempotent", "stable_order": True},
}


@dataclass
class Tally:
    """Counts of the writes of one delivery."""

    writes: int = 0
    #: Writes that ended with an error and were made again.
    again: int = 0
    faults: int = 0
    rows: int = 0
    lost: int = 0
    repeated: int = 0


Tallies = dict[str, Tally]


def tallies() -> Tallies:
    return {mode: Tally() for mode in MODES}


def judge(tally: Tally, mode: str, found: list[dict[str, Any]], wanted: set[str]) -> None:
    """Adds the rows of a topic, and fails if the delivery did not keep its promise."""
    counts = collections.Counter(row["value"].decode() for row in found)
    tally.rows += len(wanted)
    tally.lost += len(wanted - counts.keys())
    tally.repeated += counts.total() - len(counts)
    assert not wanted - counts.keys(), f"{len(wanted - counts.keys())} rows are lost"
    if mode == "idempotent":
        assert counts.total() == len(counts), f"{counts.total() - len(counts)} rows came twice"
        return
    values: dict[str, bytes] = {}
    for row in found:
        name = dict(row["properties"])["row-id"]
        assert values.setdefault(name, row["value"]) == row["value"], f"{name} is the id of two rows"
    assert len(values) == len(counts), "a row that came again has another id"


def rows_of(url: str, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic."""
    return frames.read(url, topic, columns=["value", "properties"]).to_pylist()


def keep(url: str, topic: str) -> str:
    """Has the broker keep what the topic gets."""
    with blocking.connect(url) as client:
        client.consumer(topic, "keep", position="earliest").close()
    return topic


@contextlib.contextmanager
def session(master: str, **settings: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from forebay.spark import java

    with tempfile.TemporaryDirectory(prefix="forebay-spark-", ignore_cleanup_errors=True) as folder:
        java.ensure(folder)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder: Any = SparkSession.builder
        builder = builder.master(master).config("spark.local.dir", folder)
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            **settings,
        }.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        # Each fault is an error of a task.
        spark.sparkContext.setLogLevel("OFF")
        yield spark
        spark.stop()


@contextlib.contextmanager
def broker(*options: str) -> Iterator[BrokerProcess]:
    """The embedded broker, with its data on disk."""
    with tempfile.TemporaryDirectory(prefix="forebay-broker-") as folder:
        process = BrokerProcess(Path(folder) / "data", "--durability", "fsync", *options)
        process.start()
        try:
            yield process
            assert process.is_running, "the broker ended by itself"
        finally:
            if process.is_running:
                process.end()


def write(spark: Any, tally: Tally, mode: str, url: str, topic: str, values: Any, **options: Any) -> None:
    """A write that is made again until it succeeds, as a job is that has failed."""
    name = uuid.uuid4().hex
    tally.writes += 1
    while True:
        try:
            report = forebay.spark.write(
                values, url, topic, value="value", write_id=name, batch_id=0, **MODES[mode], **options
            )
        except Exception as error:
            # Of the network, or of what Spark makes of a process that was killed.
            if isinstance(error, errors.InvalidArgument | errors.Unsupported):
                raise
            tally.again += 1
            continue
        assert report.rows == values.count()
        return


def numbers(spark: Any, rows: int, partitions: int) -> Any:
    return spark.range(0, rows, 1, partitions).selectExpr("cast(id as string) value")


# ---------------------------------------------------------------------------- workers


def task_workers() -> list[int]:
    """The processes that run tasks below this one. Those of plans and commits are children of daemons of
    their own."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            number = int(folder.name)
            parents[number] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[number] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    is_daemon = {number for number, command in commands.items() if "pyspark.daemon pyspark.worker" in command}

    def is_ours(number: int) -> bool:
        while number in parents and number != os.getpid():
            number = parents[number]
        return number == os.getpid()

    return [number for number in is_daemon if parents[number] in is_daemon and is_ours(number)]


def during(fault: Callable[[], None], act: Callable[[], None]) -> None:
    """Runs ``fault`` in a thread beside ``act``."""
    with ThreadPoolExecutor(1) as pool:
        faults = pool.submit(fault)
        act()
    faults.result()


def workers(count: int, chance: random.Random) -> Tallies:
    found = tallies()
    rows = 100_000
    with broker() as process, session("local[2, 50]") as spark:
        url = process.url
        for number in itertools.count():
            if sum(tally.faults for tally in found.values()) >= count:
                break
            mode = list(MODES)[number % 2]
            tally = found[mode]
            topic = keep(url, f"workers-{number}")
            over = threading.Event()

            def kill(tally: Tally = tally, over: threading.Event = over) -> None:
                # Not on and on: a new worker needs time to begin.
                left = chance.randrange(1, 6)
                while left and not over.wait(chance.uniform(0.02, 0.4)):
                    if alive := task_workers():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(chance.choice(alive), signal.SIGKILL)
                            tally.faults += 1
                            left -= 1

            def act(tally: Tally = tally, mode: str = mode, topic: str = topic, over: Any = over) -> None:
                try:
                    write(spark, tally, mode, url, topic, numbers(spark, rows, 4))
                finally:
                    over.set()

            during(kill, act)
            judge(tally, mode, rows_of(url, topic), {str(one) for one in range(rows)})
    return found


# ---------------------------------------------------------------------------- the broker


def restarts(count: int, chance: random.Random) -> Tallies:
    found = tallies()
    rows = 60_000
    with broker() as process, session("local[2, 10]") as spark:
        url = process.url
        for number in range(count):
            mode = list(MODES)[number % 2]
            topic = keep(url, f"broker-{number}")

            def restart() -> None:
                time.sleep(chance.uniform(0.05, 0.5))
                process.end()
                time.sleep(chance.choice((0, 0.2)))
                process.start()

            def act(mode: str = mode, topic: str = topic) -> None:
                write(spark, found[mode], mode, url, topic, numbers(spark, rows, 4), max_backoff=1)

            during(restart, act)
            found[mode].faults += 1
            judge(found[mode], mode, rows_of(url, topic), {str(one) for one in range(rows)})
    return found


# ---------------------------------------------------------------------------- connections


@contextlib.contextmanager
def proxy_before(target: int, port: int, seed: int) -> Iterator[Callable[[], None]]:
    """Forwards a port to another one; provides what cuts all its connections."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    proxy = ChaosProxy(target, seed=seed, port=port)
    run(proxy.__aenter__())
    try:
        yield lambda: loop.call_soon_threadsafe(proxy.cut) and None
    finally:
        run(proxy.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def cuts(count: int, chance: random.Random) -> Tallies:
    found = tallies()
    port = free_port()
    url = f"pulsar://127.0.0.1:{port}"
    with (
        broker("-X", f"advertised_url={url}") as process,
        session("local[2, 10]") as spark,
        proxy_before(int(process.url.rpartition(":")[2]), port, chance.randrange(2**32)) as cut,
    ):
        topics = {mode: keep(url, f"cuts-{mode}") for mode in MODES}
        for number in range(count):
            mode = list(MODES)[number % 2]
            values = spark.range(0, 10, 1, 2).selectExpr(f"concat('{number}/', id) value")

            def act(mode: str = mode, values: Any = values) -> None:
                write(spark, found[mode], mode, url, topics[mode], values, max_backoff=1)

            def fault() -> None:
                time.sleep(chance.uniform(0, 0.25))
                cut()

            during(fault, act)
            found[mode].faults += 1
        for index, mode in enumerate(MODES):
            wanted = {f"{number}/{row}" for number in range(index, count, 2) for row in range(10)}
            judge(found[mode], mode, rows_of(url, topics[mode]), wanted)
    return found


# ---------------------------------------------------------------------------- copies of tasks


def copies(count: int, chance: random.Random) -> Tallies:
    from pyspark.sql import functions as F  # noqa: N812

    found = tallies()
    rows = 6000
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.quantile": "0.5",
        "spark.executor.memory": "512m",
    }
    with (
        broker() as process,
        tempfile.TemporaryDirectory() as folder,
        # A copy runs on another host.
        standalone(Path(folder), ("127.0.0.1", "127.0.0.2")) as master,
        session(master, **settings) as spark,
    ):
        url = process.url
        # The driver and two executors: without the second one there is no other host.
        running = spark.sparkContext._jsc.sc()
        eventually(lambda: running.getExecutorMemoryStatus().size() >= 3, 240)
        for number in range(count):
            mode = list(MODES)[number % 2]
            topic = keep(url, f"copies-{number}")
            attempts = Path(folder) / str(number)
            attempts.mkdir()

            @F.udf("string")
            def slow(value: int, attempts: str = str(attempts)) -> str:
                from pyspark.taskcontext import TaskContext

                context = TaskContext.get()
                if context is not None and context.partitionId() == 1:
                    Path(attempts, str(context.attemptNumber())).touch()
                    # The first may have failed before: its Python has 10 s to start.
                    if context.attemptNumber() == min(map(int, os.listdir(attempts))):
                        # Both run at the same time, however long the copy takes to begin.
                        while len(os.listdir(attempts)) == 1:
                            time.sleep(0.01)
                        time.sleep(0.004)
                return str(value)

            values = spark.range(0, rows, 1, 4).select(slow("id").alias("value"))
            write(spark, found[mode], mode, url, topic, values)
            ran = sorted(attempt.name for attempt in attempts.iterdir())
            print(f"{mode}: of the slow task ran the attempts {ran}", file=sys.stderr)
            found[mode].faults += len(ran) - 1
            # The task that lost may send until Spark has killed it.
            time.sleep(1)
            judge(found[mode], mode, rows_of(url, topic), {str(one) for one in range(rows)})
    for mode, tally in found.items():
        assert not tally.writes or tally.faults, f"{mode}: no task ran twice"
    return found


# ---------------------------------------------------------------------------- drivers


def stream(url: str, topic: str, checkpoint: str, mode: str) -> None:
    """A streaming query that goes on until its process is killed."""
    with session("local[2]") as spark:
        forebay.spark.register(spark)
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        rows = source.option("numPartitions", 2).load().selectExpr("cast(value as string) value")
        options = {
            "url": url,
            "topic": topic,
            "value": "value",
            "checkpointLocation": checkpoint,
            "tasks": "2",
        }
        for name, value in MODES[mode].items():
            options[name] = str(value)
        rows.writeStream.format("forebay").options(**options).start().awaitTermination()


def newest(folder: Path) -> int:
    """The highest number among the files of a log of Spark; -1 if there is none."""
    with contextlib.suppress(OSError):
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)
    return -1


def drivers(count: int, chance: random.Random) -> Tallies:
    found = tallies()
    with broker() as process, tempfile.TemporaryDirectory() as folder:
        url = process.url
        for index, mode in enumerate(MODES):
            topic = keep(url, f"drivers-{mode}")
            checkpoint = Path(folder) / mode
            for _ in range(index, count, 2):
                kill_in_batch(url, topic, checkpoint, mode, chance)
                found[mode].faults += 1
            if found[mode].faults:
                found[mode].writes = newest(checkpoint / "commits") + 1
                wanted = {str(row) for row in range(ROWS_PER_BATCH * found[mode].writes)}
                judge(found[mode], mode, rows_of(url, topic), wanted)
    return found


def kill_in_batch(url: str, topic: str, checkpoint: Path, mode: str, chance: random.Random) -> None:
    """Runs the query until it has committed some batches, and kills it while one is planned and not
    committed."""
    command = [sys.executable, "-m", __spec__.name, "stream", url, topic, str(checkpoint), mode]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    commits, offsets = checkpoint / "commits", checkpoint / "offsets"
    enough = newest(commits) + chance.randrange(2, 6)
    deadline = time.monotonic() + 120
    try:
        while newest(commits) < enough:
            assert process.poll() is None, "the query ended"
            assert time.monotonic() < deadline, "the query makes no progress"
            time.sleep(0.01)
        while newest(offsets) <= newest(commits):
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.15))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


PARTS: dict[str, Callable[[int, random.Random], Tallies]] = {
    "workers": workers,
    "broker": restarts,
    "cuts": cuts,
    "copies": copies,
    "drivers": drivers,
}


def run(part: str, count: int, timeout: float) -> dict[str, dict[str, int]]:
    """Runs a part in a process of its own; returns what is counted for each delivery."""
    done = subprocess.run(
        [sys.executable, "-m", "support.campaign.spark", part, str(count)],
        cwd=TESTS,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-8000:]}"
    print(done.stdout, end="")
    return json.loads(done.stdout.splitlines()[-1])


def soak(seconds: float) -> None:
    """One part after the other for so long; prints what came of all of them."""
    counts = {"workers": 20, "broker": 6, "cuts": 100, "copies": 4, "drivers": 4}
    total: dict[str, collections.Counter[str]] = {}
    end = time.monotonic() + seconds
    for part in itertools.cycle(PARTS):
        if time.monotonic() >= end:
            break
        for mode, tally in run(part, counts[part], timeout=1800).items():
            total.setdefault(f"{part}, {mode}", collections.Counter()).update(tally)
    for name, tally in total.items():
        print(f"{name}: {', '.join(f'{count} {what}' for what, count in tally.items())}", flush=True)


def main() -> None:
    if sys.argv[1] == "stream":
        stream(*sys.argv[2:])
        return
    found = PARTS[sys.argv[1]](int(sys.argv[2]), seeded())
    print(json.dumps({mode: asdict(tally) for mode, tally in found.items()}), flush=True)


if __name__ == "__main__":
    main()
