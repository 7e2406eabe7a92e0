"""The package runs with every PySpark from 4.0 on. The tests have the newest one, so they hold the package to
the names and signatures of 4.0.0, which are written down here."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
import pyspark_penstock
from penstock.spark import arrow
from penstock.spark.rows import to_batch
from penstock.spark.sources.mqtt import spark_schema

pytestmark = pytest.mark.spark

OF_4_0 = {
    "pyspark": {"RDD", "TaskContext", "cloudpickle"},
    "pyspark.errors": {"AnalysisException", "PySparkTypeError"},
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
    "pyspark.sql.pandas": {"types"},
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
    },
}
"""Names of PySpark 4.0.0 that the package imports."""

NEWER = {
    ("pyspark.sql.datasource", "DataSourceStreamArrowWriter"),
    ("pyspark.sql.streaming.datasource", "SupportsTriggerAvailableNow"),
}
"""Imported in a ``try`` that has an alternative."""

FROM_4_2 = {"ReadAllAvailable", "ReadMaxBytes", "ReadMaxRows"}
"""Imported by ``getDefaultReadLimit``, which is called by 4.2 and later only."""


def imports():
    """File, module, name, and whether an ``ImportError`` is caught, of every import of PySpark."""
    for path in sorted([*Path(penstock.__file__).parent.rglob("*.py"), Path(pyspark_penstock.__file__)]):
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
                    yield path.name, node.module, alias.name, id(node) in caught


def test_every_imported_name_is_in_the_oldest_version():
    found = list(imports())
    assert len(found) > 20
    for file, module, name, caught in found:
        if name in FROM_4_2:
            continue
        known = name in OF_4_0.get(module, ()) or (caught and (module, name) in NEWER)
        assert known, f"{file} imports {name} of {module}, which PySpark 4.0.0 does not have"


@pytest.fixture
def signatures_of_4_0(monkeypatch):
    """PySpark's conversion with the parameters that 4.0 and 4.1 have."""
    import pyspark.sql.pandas
    from pyspark.sql.pandas import types

    kind_now, schema_now = types.to_arrow_type, types.to_arrow_schema

    def to_arrow_type(
        dt, error_on_duplicated_field_names_in_struct=False, timestamp_utc=True, prefers_large_types=False
    ):
        assert timestamp_utc
        return kind_now(dt, timezone="UTC", prefers_large_types=prefers_large_types)

    def to_arrow_schema(
        schema, error_on_duplicated_field_names_in_struct=False, timestamp_utc=True, prefers_large_types=False
    ):
        assert timestamp_utc
        return schema_now(schema, timezone="UTC", prefers_large_types=prefers_large_types)

    old = SimpleNamespace(to_arrow_type=to_arrow_type, to_arrow_schema=to_arrow_schema)
    monkeypatch.setattr(pyspark.sql.pandas, "types", old)


@pytest.mark.parametrize("large", [False, True])
def test_schemas_are_the_same_with_the_oldest_version(request, large):
    now = arrow.arrow_schema(spark_schema(), large=large)
    request.getfixturevalue("signatures_of_4_0")
    assert arrow.arrow_schema(spark_schema(), large=large) == now


def test_rows_and_writes_work_with_the_oldest_version(spark, embedded_mqtt, reading, signatures_of_4_0):
    from penstock.spark import pool, write

    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value", "timestamp_seconds(id) at")
    topic = embedded_mqtt.topic()
    with reading(embedded_mqtt.url, topic) as reader:
        assert write(frame, embedded_mqtt.url, topic, value="value").rows == 10
        assert {row["value"] for row in reader.rows(10)} == {b"%d" % number for number in range(10)}
    pool.close()
    assert to_batch(frame.collect(), None, frame.schema).num_rows == 10
