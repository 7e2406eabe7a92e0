"""The JVM connector of Pulsar for Spark 3.5, in a process with PySpark 3.5.

Its jar is StreamNative's pulsar-spark, which is not published for Spark 3.5 or newer: it has to be built, and
the environment variable ``PULSAR_SPARK_JAR`` names it.
"""

from __future__ import annotations

import json
import os
import urllib.request

from benches.spark.measuring import Way, into_nothing, measure, raw, records, session

JAR = "PULSAR_SPARK_JAR"
OPENED = ("java.lang", "java.nio", "java.util", "sun.nio.ch", "sun.net", "jdk.internal.misc")
"""Packages of Java that its client looks into."""


def connector(url: str, admin: str, topic: str, count: int, size: int) -> dict[str, dict[str, float]]:
    """Writes rows and records, and reads the topics that :func:`benches.spark.cases.spark` has filled."""
    opens = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED)
    settings = {"spark.jars": os.environ[JAR], "spark.driver.extraJavaOptions": opens}
    with session(settings) as spark:
        options = {"service.url": url, "admin.url": admin}
        # Without it rows of 1 KiB fail, as the memory for messages is full.
        patient = {"pulsar.producer.blockIfQueueFull": "true"}
        written = dict.fromkeys((f"{topic}-connector", f"{topic}-connector-avro"), 0)

        def write(frame: object, into: str, rows: int) -> None:
            writer = frame.write.format("pulsar").options(**options, **patient)  # type: ignore[attr-defined]
            writer.option("topic", into).mode("append").save()
            written[into] += rows

        def read(name: str) -> None:
            source = spark.read.format("pulsar").options(**options)
            into_nothing(source.options(topic=name, startingOffsets="earliest").load())

        plain, avro = written
        report = measure(
            {
                "connector_write": Way(lambda rows: write(raw(spark, rows, size), plain, rows), count),
                "connector_avro": Way(lambda rows: write(records(spark, rows), avro, rows), count),
                "connector_read": Way(lambda _: read(f"{topic}-read"), count, 3),
                "connector_read_avro": Way(lambda _: read(f"{topic}-avro"), count, 3),
                "connector_nothing": Way(lambda rows: into_nothing(raw(spark, rows, size)), count),
            }
        )
        for name, rows in written.items():
            stored = _messages(admin, name)
            if stored != rows:
                raise RuntimeError(f"{stored} of {rows} rows are in {name}")
        return report


def _messages(admin: str, topic: str) -> int:
    path = topic.replace("://", "/")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{admin}/admin/v2/{path}/partitioned-stats", timeout=30) as response:
        return json.load(response)["msgInCounter"]
