"""``python -m support.campaign.spark_volume PART COUNT``: many rows through Spark, counted; prints JSON.

* ``rows``: COUNT rows of 100 bytes into the embedded broker and back. The memory of Python's workers and of
  the driver may not grow with them.
* ``embedded``, ``mosquitto``, ``hivemq``: COUNT MQTT messages that the broker has kept for a query that was
  away; each is a row once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay.spark
from forebay import blocking

from support.campaign.spark import broker, keep, numbers, session, task_workers
from support.mqtt.harness import EmbeddedMqtt, HiveMq, Mosquitto, MqttService

MIB = 1 << 20
SLACK = 24
"""MiB by which memory may be larger in the last quarter: what allocators keep."""


def resident(process: int) -> float:
    """The resident set of a process in MiB; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


class Sampler(threading.Thread):
    """The resident sets of the driver and of the largest worker, ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            workers = [resident(process) for process in task_workers()]
            self.samples.append((resident(os.getpid()), max(workers, default=0.0)))

    def end(self) -> dict[str, float]:
        """The highest in the third and in the last quarter; fails if the last one is larger. Workers reach
        their size with their second task."""
        self._over.set()
        self.join()
        quarter = len(self.samples) // 4
        assert quarter > 5, "too few samples"
        found: dict[str, float] = {}
        for index, name in enumerate(("driver", "worker")):
            early = max(sample[index] for sample in self.samples[-2 * quarter : -quarter])
            late = max(sample[index] for sample in self.samples[-quarter:])
            found |= {f"{name}_mib": round(early), f"{name}_mib_later": round(late)}
            assert late <= early + SLACK, f"the {name} grew from {early:.0f} to {late:.0f} MiB"
        return found


def rows(count: int) -> dict[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    with broker() as process, session("local[2]") as spark:
        url, topic = process.url, keep(process.url, "rows")
        values = numbers(spark, count, 10).select(F.rpad("value", 100, ".").alias("value"))
        sampler = Sampler()
        sampler.start()
        report = forebay.spark.write(values, url, topic, value="value")
        written = sampler.end()
        assert report.rows == count
        sampler = Sampler()
        sampler.start()
        source = spark.read.format("forebay").options(url=url, subscribe=topic, minPartitions=10).load()
        number = F.substring_index(F.col("value").cast("string"), ".", 1).cast("long")
        found = source.select(number.alias("n")).agg(F.count("n"), F.sum("n")).first()
        read = sampler.end()
        assert tuple(found) == (count, count * (count - 1) // 2), f"{found[0]} of {count} rows were read"
        return {"rows": count, "seconds": round(report.seconds, 1), "write": written, "read": read}


def service(kind: str) -> MqttService:
    """A broker whose queues are as long as the backlog."""
    if kind == "mosquitto":
        return Mosquitto(extra="max_queued_messages 0\n", VERBOSE="0")
    if kind == "hivemq":
        queue = "<queued-messages><max-queue-size>10000000</max-queue-size></queued-messages>"
        return HiveMq(extra=f"<mqtt>{queue}</mqtt>\n")
    limits = {"mqtt_max_queue": 10_000_000, "mqtt_max_queue_bytes": "8GiB", "max_store": "16GiB"}
    # The source acknowledges what is in flight when it is on the disk: each window costs a write.
    return EmbeddedMqtt(data=True, mqtt_max_inflight=10_000, **limits)


def backlog(kind: str) -> Callable[[int], dict[str, Any]]:
    def run(count: int) -> dict[str, Any]:
        here = service(kind)
        try:
            with tempfile.TemporaryDirectory() as folder, session("local[2]") as spark:
                return _backlog(spark, here.url, here.topic(), Path(folder), count)
        finally:
            here.stop()

    return run


def _backlog(spark: Any, url: str, topic: str, folder: Path, count: int) -> dict[str, Any]:
    forebay.spark.register(spark)

    def collect() -> None:
        options = {
            "url": url,
            "topic": topic,
            "client_id": "backlog",
            "wal": str(folder / "wal"),
            "qos": "1",
            "available_now_timeout": "1h",
            "wal_limit": "8GiB",
        }
        stream = spark.readStream.format("forebay").options(**options).load()
        writer = stream.selectExpr("cast(cast(value as string) as long) n").writeStream.format("parquet")
        writer = writer.option("path", str(folder / "found"))
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()

    # Makes the session, and its subscription.
    collect()
    started = time.monotonic()
    with blocking.connect(url) as client, client.producer(topic, qos=1) as producer:
        for first in range(0, count, 20_000):
            producer.send_many([b"%d" % number for number in range(first, min(first + 20_000, count))])
    sent = time.monotonic()
    collect()
    collected = time.monotonic() - sent
    found = spark.read.parquet(str(folder / "found"))
    total, distinct = found.count(), found.distinct().count()
    assert (total, distinct) == (count, count), f"{total} rows of {distinct} messages, of {count}"
    return {"messages": count, "sent_in": round(sent - started, 1), "collected_in": round(collected, 1)}


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "rows": rows,
    "embedded": backlog("embedded"),
    "mosquitto": backlog("mosquitto"),
    "hivemq": backlog("hivemq"),
}


if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](int(sys.argv[2]))), flush=True)
