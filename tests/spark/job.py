"""job.py MASTER URL TOPIC FOLDER: reads TOPIC-first, writes TOPIC, reads it and copies it as a stream, with a
Spark of its own, and prints as JSON what came of it. Nothing has called ``register`` before the first read:
``forebay.spark.write`` does it on Spark Connect.

MASTER is a Spark master, or ``remote:`` and one, for a server of Spark Connect.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import forebay.spark

ROWS = 1000


def session(master: str) -> SparkSession:
    builder: Any = SparkSession.builder
    if master.startswith("remote:"):
        builder = builder.remote(master.removeprefix("remote:"))
    else:
        builder = builder.master(master)
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Listener(forebay.spark.LagListener):
    """Keeps what was known of queries when they ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Any] = []

    def onQueryTerminated(self, event: Any) -> None:
        # One that failed is started again.
        if not event.exception:
            self.ended += self.queries()
        super().onQueryTerminated(event)


def started(writer: Any) -> Any:
    """The query of ``writer``. Spark gives the Python of a source 10 s to begin, and a busy machine may need
    more, as in ``support.queries``, which is not on the path here."""
    while True:
        query = writer.start()
        while not query.exception() and "Initializing" in query.status["message"]:
            time.sleep(0.05)
        if "connect back" not in str(query.exception()):
            return query
        query.stop()


def run(spark: Any, url: str, topic: str, folder: Path) -> dict[str, Any]:
    first = spark.read.format("forebay").options(url=url, subscribe=f"{topic}-first").load()
    found = first.count()
    frame = spark.range(0, ROWS, 1, 2).select(F.col("id").cast("string").alias("value"))
    report = forebay.spark.write(frame, url, topic, value="value")
    options = {"url": url, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.read.format("forebay").options(**options).load()
    values = rows.select(F.col("value").cast("string").cast("int").alias("value"))
    total = values.agg(F.count("value"), F.sum("value")).first()
    listener = Listener()
    spark.streams.addListener(listener)
    query = started(
        spark.readStream.format("forebay")
        .options(**options)
        .load()
        .select("value")
        .writeStream.format("forebay")
        .options(url=url, topic=f"{topic}-copy", value="value", checkpointLocation=str(folder / "checkpoint"))
        .queryName("copy")
        .trigger(availableNow=True)
    )
    ended = query.awaitTermination(120)
    deadline = time.monotonic() + 120
    while not (listener.ended and not listener.queries()) and time.monotonic() < deadline:
        time.sleep(0.05)
    spark.streams.removeListener(listener)
    # Spark knows it already.
    forebay.spark.register(spark)
    return {
        "found": found,
        "written": report.rows,
        "reports": len(report.partitions),
        "read": list(total),
        "ended": ended,
        "watched": [(query.name, query.rows) for query in listener.ended],
        "left": len(listener.queries()),
        "register": rows.limit(1).count(),
    }


def main(master: str, url: str, topic: str, folder: str) -> None:
    spark = session(master)
    try:
        print(json.dumps(run(spark, url, topic, Path(folder))))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
