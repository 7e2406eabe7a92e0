"""The batch of a stream that a write is part of. Names and numbers of rows depend on it: if a write did not
know its batch, rows of the next one would count as sent."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument

from ._config import check_write_is_named

if TYPE_CHECKING:
    from ._config import WriteConfig

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Local properties of the tasks of a streaming query, and of the thread that runs ``foreachBatch``."""
RUN = "spark.jobGroup.id"
"""The same for the id of the query since its last start."""

_GIVE_IT = "pass write_id=, a name of this write, and batch_id=, the number that foreachBatch gives"


def check(config: WriteConfig, df: Any = None) -> None:
    """Checks on the driver that a write knows its batch, if it is part of one.

    Args:
        config: of the write.
        df: the frame, if it is known.

    Raises:
        InvalidArgument: it does not, or it cannot be seen.
    """
    if config.batch_id is not None or not (config.delivery == "idempotent" or config.id_property):
        return
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    if context is None if df is None else not hasattr(df, "_jdf"):
        # A worker of a Spark Connect server that runs foreachBatch has this variable.
        if "SPARK_CONNECT_LOCAL_URL" in os.environ:
            text = "in foreachBatch of Spark Connect a write does not see its batch"
            raise InvalidArgument(f"{text}: {_GIVE_IT}")
    elif context is None:
        return
    elif context.getLocalProperty(BATCH) is not None:
        check_write_is_named(config)
    elif (config.delivery == "idempotent" or config.write_id) and _has_queries():
        raise InvalidArgument(
            "a streaming query is running, and in this thread it cannot be seen whether the write is part of "
            f"one of its batches: if it is, {_GIVE_IT}; if not, pass write_id= and batch_id=0"
        )


def outlives_job(config: WriteConfig, df: Any) -> bool:
    """Whether another job may repeat a write of classic Spark under the same names and ids."""
    if not hasattr(df, "_jdf") or not (config.delivery == "idempotent" or config.id_property):
        return False
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    return bool(config.write_id) or (context is not None and context.getLocalProperty(BATCH) is not None)


def check_is_given(config: WriteConfig) -> None:
    """For a data source, which sees its batch only in the thread of the query.

    Raises:
        InvalidArgument: rows of the next batch could count as sent.
    """
    if config.write_id and config.batch_id is None:
        raise InvalidArgument(
            "with writeId a data source needs batchId, as it cannot see whether it is used in foreachBatch: "
            "give the number that foreachBatch gives, or 0 for a write that is not part of a stream"
        )


def _has_queries() -> bool:
    """Whether a streaming query of this driver is running."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession._instantiatedSession
    # Not session.streams: foreachBatch has a session of its own.
    return session is not None and not session._jsparkSession.sharedState().activeStreamingQueries().isEmpty()
