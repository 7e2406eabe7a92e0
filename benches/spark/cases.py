"""Spark rows into a topic and back: Forebay's ways beside ``foreachPartition`` around pulsar-client.

All ways run in one warm JVM, one after the other. CPU is that of everything but the broker: this process, the
JVM, Python's daemon and its workers. The memory of workers is the most that one of them had, sampled.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benches.spark.connector import connector
from benches.spark.measuring import Way, into_nothing, measure, raw, records, session

__all__ = ["connector", "eager", "spark"]

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


def swallow(batches: Iterable[Any]) -> Iterable[Any]:
    """Takes the batches of a task, and does nothing with them."""
    for _ in batches:
        pass
    return ()


def eager(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """``forebay.spark.write`` alone, which older builds have as well."""
    return spark(url, topic, count, size, ("spark_write",))["spark_write"]


def spark(
    url: str, topic: str, count: int, size: int, wanted: Sequence[str] | None = None
) -> dict[str, dict[str, float]]:
    """Rows of one binary column of ``size`` bytes, records of three columns, and reads of such topics."""
    import forebay.spark

    of_reads, of_avro, into = f"{topic}-read", f"{topic}-avro", f"{topic}-written"
    write = forebay.spark.write
    with session() as spark:
        forebay.spark.register(spark)

        def source(name: str) -> Any:
            return spark.read.format("forebay").options(url=url, subscribe=name)

        def stream(_: int) -> None:
            with tempfile.TemporaryDirectory() as checkpoint:
                rows = spark.readStream.format("forebay").options(url=url, subscribe=of_reads)
                writer = rows.option("startingOffsets", "earliest").load().writeStream.format("noop")
                writer = writer.option("checkpointLocation", checkpoint)
                writer.trigger(availableNow=True).start().awaitTermination()

        rows_writer = forebay.spark.partition_writer(url, into, value="value")
        row_sender = foreach_row(url, into)
        few = count // FEWER
        ways = {
            "spark_write": Way(lambda rows: write(raw(spark, rows, size), url, into, value="value"), count),
            "spark_json": Way(lambda rows: write(records(spark, rows), url, into), count),
            "spark_avro": Way(
                lambda rows: write(records(spark, rows), url, f"{into}-avro", encoding="avro"), count
            ),
            "spark_rows": Way(lambda rows: raw(spark, rows, size).foreachPartition(rows_writer), few, 1),
            "peer_foreach": Way(lambda rows: raw(spark, rows, size).foreachPartition(row_sender), few, 1),
            "spark_read": Way(lambda _: into_nothing(source(of_reads).load()), count, 3),
            "spark_read_value": Way(
                lambda _: into_nothing(source(of_reads).load().select("value")), count, 3
            ),
            "spark_read_avro": Way(lambda _: into_nothing(source(of_avro).load()), count, 3),
            "spark_stream": Way(stream, count, 3),
            # Baselines without a sink: the plan with its rows sent to Python, and the plan alone.
            "spark_to_python": Way(
                lambda rows: into_nothing(raw(spark, rows, size).mapInArrow(swallow, "value binary")), count
            ),
            "spark_nothing": Way(lambda rows: into_nothing(raw(spark, rows, size)), count),
        }
        ways = {name: way for name, way in ways.items() if wanted is None or name in wanted}
        with forebay.blocking.connect(url) as client:
            # With subscriptions, so that the broker keeps what it gets.
            if not ways.keys().isdisjoint(READS):
                client.consumer(of_reads, "keep").close()
                write(raw(spark, count, size), url, of_reads, value="value")
            if "spark_read_avro" in ways:
                client.consumer(of_avro, "keep").close()
                write(records(spark, count), url, of_avro, encoding="avro")
        return measure(ways)
