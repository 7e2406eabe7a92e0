"""Spark: writing DataFrames to topics, reading topics, and watching streams.

``write(df, url, topic, ...)`` is eager, distributed and free of UDFs: each Python worker passes Arrow batches
from the JVM to the engine, no row becomes a Python object, and the call returns when the broker has
acknowledged every row. ``partition_writer(url, topic, ...)`` is for ``df.foreachPartition``;
``register(spark)`` adds the data source ``df.write.format("forebay")``.

Delivery is at least once: when Spark repeats a task, its rows are sent again. With ``id_property`` they carry
the same ids as before.

    report = forebay.spark.write(df, "pulsar://broker:6650", "flights", key="carrier", compression="zstd")
    print(report.rows, report.bytes, report.seconds)
    forebay.spark.write(df, "mqtt://broker", "shop/{till}/sales", qos=1)
    forebay.spark.write(df, "tubemq://master:8715", "flights", id_property="row-id")

PySpark and pyarrow are installed by ``pip install forebay[spark]`` and imported on first use. With PySpark
3.5 only ``write`` and ``partition_writer`` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._core import attach as _attach

from ._driver import partition_writer, register, write
from ._report import PartitionReport, WriteReport
from ._sink import PartitionWriter

if TYPE_CHECKING:
    from ._lag import Lag as Lag
    from ._listener import LagListener as LagListener
    from ._listener import QueryProgress as QueryProgress
else:
    # They import PySpark, or the engine.
    __getattr__, __dir__ = _attach(
        __name__, {"Lag": "_lag", "LagListener": "_listener", "QueryProgress": "_listener"}
    )

__all__ = [
    "Lag",
    "LagListener",
    "PartitionReport",
    "PartitionWriter",
    "QueryProgress",
    "WriteReport",
    "partition_writer",
    "register",
    "write",
]
