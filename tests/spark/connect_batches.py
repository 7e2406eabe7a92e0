"""connect_batches.py URL TOPIC FOLDER: copies 3 batches with ``foreachBatch`` of Spark Connect, twice, and
prints as JSON what came of it."""

from __future__ import annotations

import json
import sys
import time

from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import SparkSession


def start(writer):
    """Starts a query. Spark gives the Python of ``foreachBatch`` 10 s to begin, and a busy machine may need
    more."""
    deadline = time.monotonic() + 300
    while True:
        try:
            return writer.start()
        except SparkException as error:
            if "failed to connect back" not in str(error) or time.monotonic() > deadline:
                raise


def run(spark, url, topic, folder, number_of):
    """Writes batches until three are committed, with the numbers of ``number_of``; returns the error."""

    def each(frame, number):
        import forebay.spark

        forebay.spark.register(frame.sparkSession)
        forebay.spark.write(
            frame,
            url,
            topic,
            value="value",
            delivery="idempotent",
            stable_order=True,
            write_id="copy",
            batch_id=number_of(number),
            tasks=2,
        )

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50)
    rows = source.option("numPartitions", 2).load().selectExpr("cast(value as string) value")
    query = start(rows.writeStream.option("checkpointLocation", folder).foreachBatch(each))
    deadline = time.monotonic() + 150
    while query.isActive and time.monotonic() < deadline:
        if (query.lastProgress or {}).get("batchId", -1) >= 2:
            break
        time.sleep(0.2)
    error = query.exception()
    query.stop()
    return str(error) if error else ""


def main(url: str, topic: str, folder: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        refused = run(spark, url, topic, f"{folder}/refused", lambda _: None)
        # The second checkpoint begins with the same batches.
        errors = [run(spark, url, topic, f"{folder}/{again}", lambda number: number) for again in "ab"]
        print(json.dumps({"refused": refused, "errors": errors}))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
