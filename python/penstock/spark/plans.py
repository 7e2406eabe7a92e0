"""Whether a plan gives a task that is repeated the same rows in the same order."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidArgument

from .config import check_order_is_stated, check_write_is_named

if TYPE_CHECKING:
    from .config import SinkConfig

_NODE = re.compile(r"^(?P<depth>[\s:+\-]*)(?:\*\s*\(\d+\)\s*|\*)?(?P<name>\w[\w ]*)")
"""A line of the text of a plan."""
_IN_ANY_ORDER = {
    "Exchange": "a shuffle gives rows in the order in which they arrive",
    "ReusedExchange": "a shuffle gives rows in the order in which they arrive",
    "CollectLimit": "a limit takes the rows that arrive first",
    "Scan ExistingRDD": "an RDD may be anything, such as the batch of a stream",
    "Scan JDBCRelation": "a database gives rows in any order",
    "InMemoryTableScan": "what was cached is computed again when it is lost",
}
_KEEP_ORDER = ("Project", "Filter", "AdaptiveSparkPlan", "CollectMetrics", "ColumnarToRow")
"""Nodes that may be above a sort. Others sort for themselves, by the keys of a join or a group only."""


def check_order(df: Any, config: SinkConfig) -> None:
    """Checks that an idempotent write can rely on the numbers of rows.

    Raises:
        InvalidArgument: it cannot, or it cannot be seen.
    """
    session = df.sparkSession
    if not hasattr(df, "_jdf"):
        return check_order_is_stated(config)
    if session.sparkContext.getLocalProperty("streaming.sql.batchId") is not None:
        check_write_is_named(config)
    if config.stable_order:
        return None
    query = df._jdf.queryExecution()
    if not query.optimizedPlan().deterministic():
        raise _refused("it has something random, which is different when a task is repeated")
    for why in in_any_order(query.executedPlan().toString()):
        raise _refused(why)
    return None


def in_any_order(plan: str) -> Iterator[str]:
    """The reasons why the rows of a physical plan may come in another order when a task is repeated.

    Args:
        plan: the text of the plan.
    """
    above: list[tuple[int, str]] = []
    for line in plan.splitlines():
        found = _NODE.match(line)
        if not found:
            continue
        depth, name = len(found["depth"]), found["name"].strip()
        while above and above[-1][0] >= depth:
            above.pop()
        for node, why in _IN_ANY_ORDER.items():
            if (name == node or name.startswith(f"{node} ")) and not _is_sorted(above):
                yield f"{why}, and no sort follows"
        above.append((depth, name))


def _is_sorted(above: list[tuple[int, str]]) -> bool:
    """Whether a sort is the last thing that happens to the rows of a node."""
    for _, name in above:
        kind = name.split()[0]
        if kind == "Sort":
            return True
        if kind not in _KEEP_ORDER:
            return False
    return False


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(
        f'delivery="idempotent" numbers the rows of each task, and this plan may give a task that is '
        f"repeated other rows, or in another order: {why}. Write what was stored before, sort within "
        "partitions by columns that tell rows apart (df.sortWithinPartitions), or say stable_order=True if "
        "you know that the order is the same"
    )
