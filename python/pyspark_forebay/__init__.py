"""The data source ``forebay`` for Spark, which finds it by itself: it looks for modules whose names begin
with ``pyspark_``, and registers the ``DefaultSource`` of each.

Spark imports them before it knows which source it needs, so this one imports no more than PySpark's base
class until the source is used. What it defines also travels by value, to Pythons without the package, where
it says that the package is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:
        # PySpark 3.5, whose workers unpack what eager writes send them.
        DataSource = object

HAS_DATA_SOURCES = DataSource is not object
"""Whether this PySpark has data sources in Python, which came with 4.0."""

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Makes a :class:`forebay.spark._datasource.ForebayDataSource`."""

    def __new__(cls, options: Any) -> Any:
        try:
            from forebay.spark._datasource import ForebayDataSource
        except ImportError as error:
            raise not_installed(error) from None
        return ForebayDataSource(options)

    @classmethod
    def name(cls) -> str:
        return "forebay"


def unpacked(payload: bytes) -> Any:
    """The object that :class:`forebay.spark._shipping.Shipped` has packed.

    Raises:
        ImportError: the package cannot be imported; the text names the Python.
    """
    from pyspark import cloudpickle

    try:
        kind, state = cloudpickle.loads(payload)
    except ImportError as error:
        # Options may hold functions of the user, with modules of their own.
        if (error.name or "").partition(".")[0] != "forebay":
            raise
        raise not_installed(error) from None
    thing = kind.__new__(kind)
    thing.__dict__.update(state or {})
    return thing


def not_installed(error: ImportError) -> ImportError:
    """The error for a Python without the package. The driver finds it by the beginning of its text."""
    import platform
    import sys

    return ImportError(
        f"forebay cannot be imported by the Python of Spark's workers, {sys.executable} "
        f"({platform.python_version()}) on {platform.node()}: install the wheel there or ship it with the "
        "job, as the guide 'Spark on clusters' (docs/guides/spark-clusters.md) shows, or set PYSPARK_PYTHON "
        f"to a Python that has it ({error})"
    )
