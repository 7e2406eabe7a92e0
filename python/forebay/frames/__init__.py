"""Topics as DataFrames, and DataFrames into topics, in one call and without Spark.

>>> import forebay, pyarrow as pa
>>> table = pa.table({"carrier": ["UA", "AA"], "distance": [1400, 1089]})
>>> with forebay.Broker() as broker:
...     report = forebay.frames.write(table, broker.url, "flights", key="carrier")
...     received = forebay.frames.read(broker.url, "flights")
>>> report.rows, received["key"].to_pylist()
(2, ['UA', 'AA'])

:func:`read` gives a table, :func:`scan` a stream of batches that is larger than memory, :func:`write` sends
any table or stream of batches. All of them block, as :mod:`forebay.blocking` does, also in a running event
loop: call them in a thread there (``await asyncio.to_thread(forebay.frames.read, ...)``). They may be called
from any thread, and Ctrl-C ends them.

They need pyarrow, which ``pip install "forebay[frames]"`` installs.
"""
# pyarrow is typed in part only.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from ._reading import Scan, read, scan
from ._writing import WriteReport, write

__all__ = ["Scan", "WriteReport", "read", "scan", "write"]
