"""Spark rows into a topic and back: Penstock's ways beside ``foreachPartition`` around pulsar-client.

All ways run in one warm JVM, one after the other. CPU is that of everything but the broker: this process, the
JVM, Python's daemon and its workers. The memory of workers is the most that one of them had, sampled.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from benches.clock import MIB, PeakMemory, descendants, tree_cpu

PARTITIONS = 2
# The row-by-row ways are so slow that a fifth of the rows says as much.
FEWER = 5
READS = ("spark_read", "spark_read_value", "spark_stream")


def foreach_row(url: str, topic: str) -> Callable[[Iterable[Any]], None]:
    """pulsar-client in ``df.foreachPartition``: ``send_async`` per row with a callback, batching on. A sync
    ``send`` per row is fifteen times slower still."""

    def send(rows: Iterable[Any]) -> None:
        # By name: it carries partial types.
        pulsar: Any = importlib.import_module("pulsar")
        client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
        failed: list[Any] = []

        def sent(result: Any, message_id: Any) -> None:
            if result != pulsar.Result.Ok:
                failed.append(result)

        for row in rows:
            producer.send_async(bytes(row.value), sent)
        producer.flush()
        client.close()
        if failed:
            raise RuntimeError(f"{len(failed)} rows failed: {failed[0]}")

    return send


class _Workers:
    """Watches the resident sets of Python's workers."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for pid, name in descendants(os.getpid()).items():
                if name.startswith("python"):
                    self.peak = max(self.peak, PeakMemory.now(pid))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _timed(run: Callable[[], object], rows: int) -> dict[str, float]:
    with _Workers() as workers:
        wall, before = time.perf_counter(), tree_cpu(os.getpid())
        run()
        wall, after = time.perf_counter() - wall, tree_cpu(os.getpid())
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    million = rows / 1e6
    return {
        "rate": rows / wall,
        "cpu": sum(used.values()) / million,
        "cpu_driver": used.pop("self") / million,
        "cpu_jvm": used.pop("java") / million,
        "cpu_workers": sum(used.values()) / million,
        "rss": workers.peak / MIB,
    }


def eager(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """``penstock.spark.write`` alone, which older builds have as well."""
    return spark(url, topic, count, size, ("spark_write",))["spark_write"]


def spark(
    url: str, topic: str, count: int, size: int, wanted: Sequence[str] | None = None
) -> dict[str, dict[str, float]]:
    """Rows of one binary column of ``size`` bytes, records of three columns, and reads of such rows."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    import penstock.spark
    from penstock.spark import java

    with tempfile.TemporaryDirectory() as folder:
        java.ensure(folder)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        session = (
            SparkSession.builder.master(f"local[{PARTITIONS}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.local.dir", folder)
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        penstock.spark.register(session)

        def frame(rows: int) -> Any:
            # Cheap to make: Spark's own work on the rows is in every way's figures.
            text = F.concat(F.lpad(F.col("id").cast("string"), 10, "0"), F.lit("." * (size - 10)))
            return session.range(0, rows, 1, PARTITIONS).select(text.cast("binary").alias("value"))

        def records(rows: int) -> Any:
            return session.range(0, rows, 1, PARTITIONS).select(
                F.col("id"),
                F.concat(F.lit("name "), F.col("id")).alias("name"),
                (F.col("id") / 3).alias("amount"),
            )

        def through_source(rows: int) -> None:
            options = {"url": url, "topic": topic, "value": "value"}
            frame(rows).write.format("penstock").options(**options).mode("append").save()

        def read(columns: str) -> Callable[[int], None]:
            def go(rows: int) -> None:
                source = session.read.format("penstock").options(url=url, subscribe=of_reads)
                source.load().selectExpr(columns).write.format("noop").mode("overwrite").save()

            return go

        def stream(rows: int) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
                source = session.readStream.format("penstock").options(url=url, subscribe=of_reads)
                rows_read = source.option("startingOffsets", "earliest").load()
                writer = rows_read.writeStream.format("noop").option("checkpointLocation", checkpoint)
                writer.trigger(availableNow=True).start().awaitTermination()

        of_reads = f"{topic}-read"
        rows_writer = penstock.spark.partition_writer(url, topic, value="value")
        row_sender = foreach_row(url, topic)
        write = penstock.spark.write
        ways: dict[str, tuple[Callable[[int], object], int]] = {
            "spark_write": (lambda rows: write(frame(rows), url, topic, value="value"), count),
            "spark_source": (through_source, count),
            "spark_json": (lambda rows: write(records(rows), url, topic), count),
            "spark_rows": (lambda rows: frame(rows).foreachPartition(rows_writer), count // FEWER),
            "peer_foreach": (lambda rows: frame(rows).foreachPartition(row_sender), count // FEWER),
            "spark_read": (read("*"), count),
            "spark_read_value": (read("value"), count),
            "spark_stream": (stream, count),
        }
        ways = {name: way for name, way in ways.items() if wanted is None or name in wanted}
        with penstock.blocking.connect(url) as client, client.consumer(of_reads, "keep"):
            # With a subscription, so that the broker keeps what it gets.
            if not ways.keys().isdisjoint(READS):
                write(frame(count), url, of_reads, value="value")
            for run, rows in ways.values():
                run(max(rows // 4, 20_000))
            report = {
                name: _timed(lambda run=run, rows=rows: run(rows), rows) for name, (run, rows) in ways.items()
            }
        session.stop()
        return report
