"""The package runs with every PySpark from 4.0 on, and eager writes with 3.5. Most tests have the newest
one, so these hold the package to the names of 4.0.0, which are written down here. `test_matrix.py` has other
versions.
"""

import ast
from pathlib import Path

import pytest

import forebay
import pyspark_forebay
from forebay.errors import Unsupported
from forebay.spark import _arrow, register
from forebay.spark._rows import to_batch

pytestmark = pytest.mark.spark

OF_4_0 = {
    "pyspark": {"RDD", "SparkContext", "TaskContext", "cloudpickle"},
    "pyspark.errors": {"AnalysisException"},
    "pyspark.serializers": {"NoOpSerializer"},
    "pyspark.sql": {"DataFrame", "Observation", "SparkSession", "functions"},
    "pyspark.sql.datasource": {
        "DataSource",
        "DataSourceArrowWriter",
        "DataSourceReader",
        "DataSourceStreamReader",
        "DataSourceStreamWriter",
        "InputPartition",
        "WriterCommitMessage",
    },
    "pyspark.sql.pandas.types": {"from_arrow_schema"},
    "pyspark.sql.streaming.listener": {"StreamingQueryListener"},
    "pyspark.sql.types": {
        "ArrayType",
        "BinaryType",
        "BooleanType",
        "DataType",
        "IntegerType",
        "MapType",
        "StringType",
        "StructField",
        "StructType",
        "TimestampType",
        "UserDefinedType",
    },
}
"""Names of PySpark 4.0.0 that the package imports."""

NEWER = {
    ("pyspark.sql.datasource", "DataSourceStreamArrowWriter"),
    ("pyspark.sql.streaming.datasource", "SupportsTriggerAvailableNow"),
}
"""Imported in a ``try`` that has an alternative."""

FROM_4_2 = {"ReadAllAvailable", "ReadMaxBytes", "ReadMaxRows", "ReadMinRows"}
"""Imported by ``getDefaultReadLimit``, which is called by 4.2 and later only."""


def imports():
    """File, module, name, and whether an ``ImportError`` is caught, of every import of PySpark."""
    root = Path(forebay.__file__).parent
    for path in sorted([*root.rglob("*.py"), Path(pyspark_forebay.__file__)]):
        file = str(path.relative_to(root.parent)).removeprefix("forebay/spark/")
        tree = ast.parse(path.read_text())
        caught = {
            id(inside)
            for node in ast.walk(tree)
            if isinstance(node, ast.Try)
            and any(isinstance(h.type, ast.Name) and h.type.id == "ImportError" for h in node.handlers)
            for statement in node.body
            for inside in ast.walk(statement)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    assert alias.name.partition(".")[0] != "pyspark", (
                        f"{path.name}: import names from {alias.name}"
                    )
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
                for alias in node.names:
                    yield file, node.module, alias.name, id(node) in caught


def test_every_imported_name_is_in_the_oldest_version():
    found = list(imports())
    assert len(found) > 20
    for file, module, name, caught in found:
        if name in FROM_4_2:
            continue
        known = name in OF_4_0.get(module, ()) or (caught and (module, name) in NEWER)
        assert known, f"{file} imports {name} of {module}, which PySpark 4.0.0 does not have"


OF_DATA_SOURCES = {"_datasource.py", "pyspark_forebay/__init__.py"} | {
    f"_sources/{path.name}" for path in (Path(forebay.__file__).parent / "spark" / "_sources").glob("*.py")
}
"""The files that eager writes do not need."""


def test_eager_writes_import_nothing_that_came_after_3_5():
    found = [(file, module) for file, module, _, _ in imports()]
    assert ("_datasource.py", "pyspark.sql.datasource") in found
    for file, module in found:
        assert file in OF_DATA_SOURCES or module != "pyspark.sql.datasource", file


KINDS = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(10,2), "
    "i decimal(38,18), j string, k binary, l date, m timestamp, n timestamp_ntz, "
    "o interval day to second, p void, q array<string>, r map<string,array<timestamp>>, "
    "s struct<x:int,y:struct<z:binary>>, t time(6)"
)


@pytest.mark.parametrize("large", [False, True])
def test_arrow_types_are_those_of_pyspark(spark, large):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

    schema = StructType.fromDDL(KINDS)
    schema.add(StructField("never_null", ArrayType(IntegerType(), False), False))
    schema.add("of_never_null", MapType(StringType(), IntegerType(), False), False)
    expected = to_arrow_schema(schema, timezone="UTC", prefers_large_types=large)
    assert _arrow.arrow_schema(schema, large=large) == expected


def test_what_arrow_has_no_type_for_is_refused(spark):
    from pyspark.sql.types import StructType

    for kind in ("interval year to month", "array<variant>"):
        with pytest.raises(Unsupported, match="Arrow has no type for Spark's"):
            _arrow.arrow_schema(StructType.fromDDL(f"c {kind}"))


def test_pyspark_3_5_says_that_it_has_no_data_sources(spark, monkeypatch):
    monkeypatch.setattr(pyspark_forebay, "HAS_DATA_SOURCES", False)
    with pytest.raises(Unsupported, match=r"PySpark 3.5 has no data sources in Python"):
        register(spark)


def test_user_defined_types_are_what_they_are_stored_as(spark):
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import Row
    from pyspark.sql.pandas.types import to_arrow_schema

    frame = spark.createDataFrame([Row(v=Vectors.dense([1.0, 2.0])), Row(v=None)])
    batch = to_batch(frame.collect(), None, frame.schema)
    assert batch.schema == to_arrow_schema(frame.schema, timezone="UTC")
    assert [row and row["values"] for row in batch.column("v").to_pylist()] == [[1.0, 2.0], None]
