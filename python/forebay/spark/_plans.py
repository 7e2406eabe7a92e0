"""Whether a plan gives a task that is repeated the same rows in the same order."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument

from ._config import check_order_is_stated

if TYPE_CHECKING:
    from ._config import WriteConfig

_IN_ORDER = {
    *("Range", "LocalTableScan", "OneRowRelation", "FileSourceScan", "InMemoryTableScan"),
    *("Project", "Filter", "Expand", "Generate", "Sample", "Union", "Coalesce"),
    *("Sort", "SortAggregate"),
    *("BatchEvalPython", "ArrowEvalPython", "CollectMetrics"),
    *("BroadcastHashJoin", "BroadcastNestedLoopJoin", "BroadcastExchange"),
    *("AdaptiveSparkPlan", "WholeStageCodegen", "InputAdapter", "ColumnarToRow"),
    *("Subquery", "SubqueryBroadcast", "ReusedSubquery"),
}
"""Nodes whose rows are the same, and in the same order, if those of their children are."""
_SHUFFLE = "a shuffle gives rows in the order in which they arrive"
_JOIN = "a join gives rows with equal keys in the order in which they arrive"
_GROUPS = "the order of groups depends on the memory of the task"
_IN_ANY_ORDER = {
    "ShuffleExchange": _SHUFFLE,
    "ReusedExchange": _SHUFFLE,
    "SortMergeJoin": _JOIN,
    "ShuffledHashJoin": _JOIN,
    "CartesianProduct": _JOIN,
    "HashAggregate": _GROUPS,
    "ObjectHashAggregate": _GROUPS,
}
"""Nodes whose rows are the same if those of their children are, but in the same order only if a sort follows.
"""
_LIMIT = "a limit takes the rows that arrive first"
_OTHERS = {
    **dict.fromkeys(("CollectLimit", "GlobalLimit", "LocalLimit", "CollectTail"), _LIMIT),
    "TakeOrderedAndProject": f"{_LIMIT} of those that the sort does not tell apart",
    "Window": "a window takes rows that its order does not tell apart as they arrive",
    "RDDScan": "an RDD may be anything, such as the batch of a stream",
    "RowDataSourceScan": "a database may give other rows, in any order",
}
"""Reasons against some of the nodes that may give other rows."""
_OF_ALL_ROWS = {
    *("count", "count_if", "sum", "try_sum", "avg", "try_avg", "min", "max", "median", "percentile"),
    *("bool_and", "every", "bool_or", "any", "some", "bit_and", "bit_or", "bit_xor"),
    *("std", "stddev", "stddev_pop", "stddev_samp", "var_pop", "var_samp", "variance"),
    *("skewness", "kurtosis", "corr", "covar_pop", "covar_samp", "approx_count_distinct"),
}
"""Functions of a group that do not depend on the order of its rows."""


@dataclass(frozen=True, slots=True)
class _Above:
    """The fate of a node's rows further up in the plan."""

    is_sorted: bool = False
    """Whether a sort follows, and nothing behind it that gives rows another order."""
    is_cut: bool = True
    """Whether it does not matter, or is decided later, which rows get into one partition."""
    is_adaptive: bool = False
    """Whether Spark changes the plan while it runs."""


def check_order(df: Any, config: WriteConfig) -> None:
    """Checks that an idempotent write can rely on the numbers of rows.

    Raises:
        InvalidArgument: it cannot, or it cannot be seen.
    """
    if not hasattr(df, "_jdf"):
        return check_order_is_stated(config)
    if config.stable_order:
        return None
    query = df._jdf.queryExecution()
    if not query.optimizedPlan().deterministic():
        raise _refused("it has something random, which is different when a task is repeated")
    for why in in_any_order(query.executedPlan(), is_run_again=config.write_id is not None):
        raise _refused(why)
    return None


def in_any_order(plan: Any, *, is_run_again: bool = False) -> Iterator[str]:
    """The reasons why a task that is repeated may get other rows of a plan, or in another order.

    Args:
        plan: the physical plan, an object of the JVM.
        is_run_again: whether the whole job may be repeated, and not just its tasks. Then the rows also have
            to get into the same partitions.
    """
    return _reasons(plan, _Above(is_cut=not is_run_again))


def _reasons(node: Any, above: _Above) -> Iterator[str]:
    kind: str = node.getClass().getSimpleName().removesuffix("Exec")
    if kind in _IN_ANY_ORDER and not above.is_sorted:
        yield f"{_IN_ANY_ORDER[kind]}, and no sort follows"
    elif kind not in _IN_ANY_ORDER and kind not in _IN_ORDER:
        yield _OTHERS.get(kind, f"{kind} is not known to give the same rows again")
    elif kind.endswith("Aggregate"):
        yield from _reasons_of_functions(node)
    elif kind == "ShuffleExchange" and not above.is_cut:
        yield from _reasons_of_cut(node, above)
    below = _below(kind, node, above)
    for child in _children(kind, node):
        yield from _reasons(child, below)
    for subquery in _each(node.subqueries()):
        yield from _reasons(subquery, _Above(is_sorted=True))


def _below(kind: str, node: Any, above: _Above) -> _Above:
    """The same for the rows of a node's children."""
    if kind in ("Sort", "SortAggregate"):
        # A group is one row, and groups come in the order of their keys.
        return replace(above, is_sorted=True)
    if kind == "AdaptiveSparkPlan":
        return replace(above, is_adaptive=True)
    if kind == "Sample" or _partitioning(kind, node) == "RoundRobinPartitioning":
        # Which rows it takes, or where it puts them, depends on their order.
        return replace(above, is_sorted=False)
    if kind in ("ShuffleExchange", "BroadcastExchange"):
        return replace(above, is_cut=True)
    return above


def _reasons_of_functions(node: Any) -> Iterator[str]:
    for expression in _each(node.aggregateExpressions()):
        name: str = expression.aggregateFunction().prettyName()
        if name not in _OF_ALL_ROWS:
            yield f"{name}() may depend on the order of the rows of a group"


def _reasons_of_cut(node: Any, above: _Above) -> Iterator[str]:
    how = _partitioning("ShuffleExchange", node)
    many = "with a write_id, rows have to get into the same partitions when the job is run again, and"
    if how == "RangePartitioning":
        yield f"{many} a sort of all rows cuts partitions where a sample of the rows has it"
    elif above.is_adaptive and how == "HashPartitioning" and _origin(node) != "REPARTITION_BY_NUM":
        yield f"{many} Spark joins and splits the partitions of a shuffle as their sizes have it"


def _partitioning(kind: str, node: Any) -> str:
    return node.outputPartitioning().getClass().getSimpleName() if kind == "ShuffleExchange" else ""


def _origin(node: Any) -> str:
    return node.shuffleOrigin().toString()


def _children(kind: str, node: Any) -> list[Any]:
    if kind == "AdaptiveSparkPlan":
        return [node.initialPlan()]
    if kind == "InMemoryTableScan":
        # It is computed again when it is lost.
        return [node.relation().cachedPlan()]
    if kind in ("ReusedExchange", "ReusedSubquery"):
        return [node.child()]
    return _each(node.children())


def _each(sequence: Any) -> list[Any]:
    """The elements of a sequence of Scala."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(
        f'delivery="idempotent" numbers the rows of each task, and this plan may give a task that is '
        f"repeated other rows, or in another order: {why}. Write what was stored before; or let "
        "df.repartition(number, columns).sortWithinPartitions(columns) come last, by columns that tell rows "
        "apart; or say stable_order=True if you know that rows and order are the same"
    )
