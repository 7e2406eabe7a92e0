"""Parts that the streaming sources share."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

if TYPE_CHECKING:
    _AvailableNow = object
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
    except ImportError:
        # Before PySpark 4.2.
        _AvailableNow = object


class StreamReader(DataSourceStreamReader, _AvailableNow):
    """A streaming source that can end with what is there, and has a limit on the rows of a micro-batch."""

    _max_rows: int | None
    """The limit, if there is one."""

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)
