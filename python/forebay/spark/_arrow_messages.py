"""Arrow messages of the JVM, and their sizes."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Generator
from typing import Any

from forebay._core import parse

ROWS_PER_MESSAGE = 256
"""Rows in an Arrow message of the JVM where it does not count bytes. A message costs it the same 20 µs
whether it has few rows or many. A heap of 1 GiB holds the messages of two tasks with rows of 1 MB; it did not
hold 512 rows of them."""
BYTES_PER_MESSAGE = 8 << 20
"""Bytes in one where it does: the data source of Spark 4.1 and newer."""
ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_CONF = "spark.sql.execution.arrow.maxBytesPerBatch"


def arrow_batches(df: Any) -> Any:
    """An RDD of Arrow IPC messages.

    This amounts to a ``foreachPartition`` with Arrow: there is no UDF in the plan, and no row is pickled. The
    method is not public; PySpark 3.5 to 4.3 have it.
    """
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    session = df.sparkSession
    with short_messages(session):
        batches = df._jdf.toArrowBatchRdd().toJavaRDD()
    return RDD(batches, session.sparkContext, NoOpSerializer())


class _Shortened:
    """A setting of a session that has a lower value for now."""

    def __init__(self, before: str) -> None:
        self.before = before
        self.users = 0


_shortened: dict[tuple[Any, str], _Shortened] = {}
_shortening = threading.Lock()


def short_messages(session: Any, *, of_data_source: bool = False) -> contextlib.AbstractContextManager[None]:
    """Lets the JVM make Arrow messages of a few rows, or of few bytes where it counts them. Otherwise 10,000
    rows of 100 KiB would be one message of 1 GB, three times on its heap. The workers put them together
    again."""
    if of_data_source and _counts_bytes(session.version):
        return _lowered(session, BYTES_CONF, BYTES_PER_MESSAGE)
    return _lowered(session, ROWS_CONF, ROWS_PER_MESSAGE)


def _counts_bytes(version: str) -> bool:
    """Whether this version of Spark limits the bytes that it passes to Python at a time. 4.0 has the setting,
    and does not look at it."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= (4, 1)


def _number(value: str) -> int:
    """The number of a setting such as ``"10000"`` or ``"64m"``; 0 for ``"-1"``, no limit."""
    try:
        return parse.size(value)
    except ValueError:
        return 0


@contextlib.contextmanager
def _lowered(session: Any, name: str, limit: int) -> Generator[None, None, None]:
    """The session with a setting of at most ``limit``; 0 and less are no limit. Several writes may run in it
    at once: the last to end sets it back."""
    # PySpark has several objects for one session.
    classic = getattr(session, "_jsparkSession", None)
    key = session.session_id if classic is None else classic.hashCode(), name
    with _shortening:
        state = _shortened.get(key)
        if state is None:
            state = _shortened[key] = _Shortened(session.conf.get(name))
            session.conf.set(name, str(min(_number(state.before) or limit, limit)))
        state.users += 1
    try:
        yield
    finally:
        with _shortening:
            state.users -= 1
            if not state.users:
                del _shortened[key]
                session.conf.set(name, state.before)
