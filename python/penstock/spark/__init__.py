"""Spark: a DataFrame into a topic, at the engine's speed.

``write(df, url, topic, ...)`` is eager, distributed and free of UDFs: Arrow batches go from the JVM to the
engine in each Python worker, no row becomes a Python object, and it returns when the broker has acknowledged
every row. ``partition_writer(url, topic, ...)`` is for ``df.foreachPartition``; ``register(spark)`` adds the
data source ``df.write.format("penstock")``.

Delivery is at least once: a task that Spark runs again sends its rows again, with ``id_property`` under the
same ids.

    report = penstock.spark.write(df, "pulsar://broker:6650", "flights", key="carrier", compression="zstd")
    print(report.rows, report.bytes, report.seconds)
    penstock.spark.write(df, "mqtt://broker", "shop/{till}/sales", qos=1)
    penstock.spark.write(df, "tubemq://master:8715", "flights", id_property="row-id")

PySpark 4 and pyarrow come with ``pip install penstock[spark]``; nothing is imported or started before use.
"""

from __future__ import annotations

from .driver import register, write
from .report import PartitionReport, WriteReport
from .sink import PartitionWriter, partition_writer

__all__ = ["PartitionReport", "PartitionWriter", "WriteReport", "partition_writer", "register", "write"]
