"""The options that Spark's builders set, or that Spark reads itself. It hands them to data sources, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_SPARK = frozenset({"path", "paths", "checkpointlocation", "queryname", "mergeschema"})
"""In lower case: of ``load(path)``, ``save(path)``, ``start(path)``, ``load([path, ...])`` and
``queryName(name)``, and options of streams and of tables."""


def without_those_of_spark(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are for the data source."""
    return {name: value for name, value in options.items() if name.lower() not in OF_SPARK}
