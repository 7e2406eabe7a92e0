"""Objects that are sent to Spark's workers, whose Python may lack the package."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any


class Shipped:
    """An object that is unpacked by a function that travels with it. Where the package is missing, the task
    fails with a sentence that says so, and names the Python."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from pyspark import cloudpickle

        import pyspark_forebay

        travels_by_value(pyspark_forebay)
        payload = cloudpickle.dumps((type(self), self.__getstate__()))
        return pyspark_forebay.unpacked, (payload,)


def travels_by_value(module: Any) -> None:
    """Has Spark send what ``module`` defines, and not its name."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)
