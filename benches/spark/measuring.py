"""The session, the rows, and the measurement of one action, for all ways of Spark."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from benches.clock import MIB, PeakMemory, descendants, tree_cpu

PARTITIONS = 2
WARM_UPS = 5
"""A JVM doubles its speed in the first of them. Writes warm up on a quarter of the rows, reads on all."""


@dataclass(frozen=True)
class Way:
    """``act`` writes or reads a number of rows."""

    act: Callable[[int], object]
    rows: int
    warm_ups: int = WARM_UPS


@contextlib.contextmanager
def session(settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of Spark in this process, on the machine's Java or one that is fetched."""
    from pyspark.sql import SparkSession

    from forebay.spark import java

    with tempfile.TemporaryDirectory() as folder:
        java.ensure(folder)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder = (
            SparkSession.builder.master(f"local[{PARTITIONS}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.local.dir", folder)
            # The connector needs more than the gigabyte of the default to read a million rows.
            .config("spark.driver.memory", "4g")
        )
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
        spark.stop()


def raw(spark: Any, rows: int, size: int) -> Any:
    """Rows of one binary column of ``size`` bytes. Cheap to make: Spark's own work on the rows is in every
    way's figures."""
    from pyspark.sql import functions as F  # noqa: N812

    text = F.concat(F.lpad(F.col("id").cast("string"), 10, "0"), F.lit("." * (size - 10)))
    return spark.range(0, rows, 1, PARTITIONS).select(text.cast("binary").alias("value"))


def records(spark: Any, rows: int) -> Any:
    """Rows of three columns."""
    from pyspark.sql import functions as F  # noqa: N812

    return spark.range(0, rows, 1, PARTITIONS).select(
        F.col("id"),
        F.concat(F.lit("name "), F.col("id")).alias("name"),
        (F.col("id") / 3).alias("amount"),
    )


def into_nothing(frame: Any) -> None:
    """Computes all columns of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def measure(ways: Mapping[str, Way]) -> dict[str, dict[str, float]]:
    """The figures of each way, once all are warm."""
    for way in ways.values():
        for _ in range(way.warm_ups):
            way.act(max(way.rows // 4, 20_000))
    return {name: _timed(way) for name, way in ways.items()}


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


def _timed(way: Way) -> dict[str, float]:
    with _Workers() as workers:
        wall, before = time.perf_counter(), tree_cpu(os.getpid())
        way.act(way.rows)
        wall, after = time.perf_counter() - wall, tree_cpu(os.getpid())
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    million = way.rows / 1e6
    return {
        "rate": way.rows / wall,
        "cpu": sum(used.values()) / million,
        "cpu_driver": used.pop("self") / million,
        "cpu_jvm": used.pop("java") / million,
        "cpu_workers": sum(used.values()) / million,
        "rss": workers.peak / MIB,
    }
