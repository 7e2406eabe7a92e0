"""Spark rows into a topic: Penstock's two ways beside the usual ``foreachPartition`` around pulsar-client.

All ways run in one warm JVM, one after the other. CPU is that of everything but the broker: this process, the
JVM, Python's daemon and its workers.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from benches.clock import tree_cpu

PARTITIONS = 2
# The row-by-row ways are so slow that a fifth of the rows says as much.
FEWER = 5


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


def _timed(write: Callable[[Any], object], frame: Any, rows: int) -> dict[str, float]:
    wall, before = time.perf_counter(), tree_cpu(os.getpid())
    write(frame)
    wall, after = time.perf_counter() - wall, tree_cpu(os.getpid())
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    million = rows / 1e6
    return {
        "rate": rows / wall,
        "cpu": sum(used.values()) / million,
        "cpu_driver": used.pop("self") / million,
        "cpu_jvm": used.pop("java") / million,
        "cpu_workers": sum(used.values()) / million,
    }


def spark(url: str, topic: str, count: int, size: int) -> dict[str, dict[str, float]]:
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

        def frame(rows: int) -> Any:
            # Cheap to make: Spark's own work on the rows is in every way's figures.
            text = F.concat(F.lpad(F.col("id").cast("string"), 10, "0"), F.lit("." * (size - 10)))
            return session.range(0, rows, 1, PARTITIONS).select(text.cast("binary").alias("value"))

        rows_writer = penstock.spark.partition_writer(url, topic, value="value")
        row_sender = foreach_row(url, topic)
        ways: dict[str, tuple[Callable[[Any], object], int]] = {
            "spark_write": (lambda df: penstock.spark.write(df, url, topic, value="value"), count),
            "spark_rows": (lambda df: df.foreachPartition(rows_writer), count // FEWER),
            "peer_foreach": (lambda df: df.foreachPartition(row_sender), count // FEWER),
        }
        for write, rows in ways.values():
            write(frame(max(rows // 4, 20_000)))
        report = {name: _timed(write, frame(rows), rows) for name, (write, rows) in ways.items()}
        session.stop()
        return report
