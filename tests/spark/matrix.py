"""matrix.py URL AVRO_JAR: writes values of all of Spark's types by each door and in each encoding, in several
time zones, and prints as JSON what the messages are, and what Spark itself makes of the same rows.

It runs with any PySpark from 3.5 on.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import to_avro

import forebay.spark
from forebay import blocking

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
NEWEST = VERSION >= (4, 1)
ZONES = ("America/New_York", *(("UTC", "Asia/Kolkata") if NEWEST else ()))
"""Spark alone knows the zone of a session: what becomes of its values has the same code in all of them."""

DOORS = ("write", "rows", "data source", "stream") if VERSION >= (4, 0) else ("write", "rows")

OF_ROWS = ("rows", "stream") if VERSION == (4, 0) else ("rows",)
"""The doors that get Rows of Python."""

ROWS = 6
BY_ALL = {
    "id": ("int", [f"{row}" for row in range(ROWS)]),
    "tinyint": ("tinyint", ["-128Y", "127Y"]),
    "smallint": ("smallint", ["-32768S", "32767S"]),
    "int": ("int", ["-2147483648", "2147483647"]),
    "bigint": ("bigint", ["-9223372036854775808L", "9223372036854775807L"]),
    "boolean": ("boolean", ["true", "false"]),
    "float": ("float", ["0.1", "'3.4028235E38'", "'1.4E-45'", "'NaN'", "'Infinity'", "'-Infinity'"]),
    "double": ("double", ["0.1D", "-0.0D", "4.9E-324D", "'NaN'", "'Infinity'", "1.7976931348623157E308D"]),
    "decimal": ("decimal(10,2)", ["'0.00'", "'-12345678.90'"]),
    "wide_decimal": ("decimal(38,18)", ["'1E-18'", "'-99999999999999999999.999999999999999999'"]),
    "whole_decimal": ("decimal(38,0)", ["'99999999999999999999999999999999999999'", "1"]),
    "string": ("string", ["''", "'na\u00efve \U0001f600 \\u0000 \\u2028 \" / \\\\ \\t\\n'"]),
    "binary": ("binary", ["X'00FF10'", "X''"]),
    "date": ("date", ["'2024-02-29'", "'1500-01-01'", "'0002-01-01'", "'9999-12-30'", "'1582-10-10'"]),
    # The second one does not exist in New York, the third one comes twice there.
    "timestamp": (
        "timestamp",
        [
            "'2024-07-01 12:00:00.123456'",
            "'2024-03-10 02:30:00'",
            "'2024-11-03 01:30:00'",
            "'1500-01-01 00:00:00'",
            "'1969-12-31 23:59:59.999999'",
            "'9999-12-30 00:00:00'",
        ],
    ),
    "timestamp_ntz": (
        "timestamp_ntz",
        ["'2024-03-10 02:30:00.123456'", "'1500-01-01 00:00:00'", "'1969-12-31 23:59:59.999999'"],
    ),
    "void": ("void", []),
    "array": ("array<int>", ["array(1, null, 3)", "array()"]),
    "struct": ("struct<x:int,y:struct<z:string>>", ["struct(1, struct(null))", "struct(null, null)"]),
    "map": ("map<string,int>", ["map('a', 1, 'b', null, '\"', 2)", "map()"]),
    "nested": (
        "array<struct<m:map<string,array<timestamp>>,d:decimal(5,2),f:float,b:binary>>",
        [
            "array(struct(map('k', array(timestamp'2024-07-01 12:00:00', null)), 1.5, float('NaN'), X'01'))",
            "array(null, struct(map('k', null), null, null, null))",
        ],
    ),
}
"""Type and values of each column: what every door writes, as JSON and as Avro."""

FOR_JSON = {
    "of_int": ("map<int,string>", ["map(1, 'x', 2, null)"]),
    "of_boolean": ("map<boolean,int>", ["map(true, 1)"]),
    "of_double": ("map<double,int>", ["map(1.0E10D, 1, double('NaN'), 2, 0.1D, 3)"]),
    "of_decimal": ("map<decimal(5,2),int>", ["map(1.5BD, 1)"]),
    "of_date": ("map<date,int>", ["map(date'2024-02-29', 1)"]),
    "of_timestamp": ("map<timestamp,int>", ["map(timestamp'2024-07-01 12:00:00.123456', 1)"]),
    "of_timestamp_ntz": ("map<timestamp_ntz,int>", ["map(timestamp_ntz'2024-03-10 02:30:00', 1)"]),
    "of_binary": ("map<binary,int>", ["map(X'FF00', 1)"]),
    "of_maps": ("map<string,map<int,array<map<string,int>>>>", ["map('a', map(1, array(map('c', null))))"]),
}
"""What Avro has no form for."""

FOR_COLUMNS = {
    "far_date": ("date", ["'-0010-01-01'", "'+15659-07-15'"]),
    "far_timestamp": ("timestamp", ["'-0010-01-01 00:00:00'", "'+10000-01-01 00:00:00'"]),
    "far_timestamp_ntz": ("timestamp_ntz", ["'-0010-01-01 00:00:00'", "'+10000-01-01 00:00:00'"]),
}
"""What a Row of Python cannot hold."""

FOR_WRITE = {
    "day_time": ("interval day to second", ["interval '1 02:03:04.567891' day to second"]),
    "day": ("interval day", ["interval '5' day", "interval '-5' day"]),
    "day_hour": ("interval day to hour", ["interval '-1 02' day to hour"]),
    "year_month": (
        "interval year to month",
        ["interval '1-2' year to month", "interval -'1-2' year to month"],
    ),
    "year": ("interval year", ["interval '3' year"]),
    "intervals": ("array<struct<i:interval day to second>>", ["array(struct(interval '1' second), null)"]),
}
"""Of these only ``write`` makes the text that ``to_json`` writes."""

if VERSION >= (4, 0):
    FOR_WRITE["calendar"] = ("interval", ["make_interval(1, 2, 3, 4, 5, 6, 7.5)", "make_interval()"])
    FOR_JSON["collated"] = ("string collate UTF8_LCASE", ["'Text'"])
if VERSION >= (4, 1):
    BY_ALL["time"] = ("time(6)", ["time'12:34:56.123456'", "time'00:00:00'"])

REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "json of_struct": ("map(struct(1 x), 1)", {"encoding": "json"}),
    "json of_array": ("map(array(1), 1)", {"encoding": "json"}),
    "avro of_int": ("map(1, 'x')", {"encoding": "avro"}),
    "avro interval": ("array(interval '1' day)", {"encoding": "avro"}),
    "json far_date": ("date_from_unix_date(2147483647)", {"encoding": "json"}),
    "json far_timestamp": ("array(timestamp_micros(9223372036854775807))", {"encoding": "json"}),
    "raw int": ("1", {"value": "c"}),
    "raw timestamp": ("timestamp'2024-01-01'", {"value": "c"}),
    "json interval": ("named_struct('i', interval '1' day)", {"encoding": "json"}),
    "json months": ("interval '1' year", {"encoding": "json"}),
    "raw months": ("interval '1' year", {"value": "text"}),
}
"""Rows that cannot be sent."""

if VERSION >= (4, 0):
    REFUSED["json variant"] = ("array(parse_json('1'))", {"encoding": "json"})
    REFUSED["avro variant"] = ("parse_json('1')", {"encoding": "avro"})
    REFUSED["raw variant"] = ("parse_json('1')", {"value": "c"})

OF_NO_TYPE = {"array": "array()", "map": "map()"}
"""Values without entries, whose types are not known."""


def columns(door: str, encoding: str) -> dict[str, tuple[str, list[str]]]:
    """The columns that a door writes in an encoding."""
    chosen = dict(BY_ALL)
    if encoding == "json":
        chosen |= FOR_JSON
        chosen |= FOR_WRITE if door == "write" else {}
    if door not in OF_ROWS:
        return chosen | FOR_COLUMNS
    if VERSION < (4, 1):
        # Binary values of Rows are bytearrays there, which are no keys of a dictionary.
        chosen.pop("of_binary", None)
    return chosen


def one(columns: str) -> Any:
    """A column for one row."""
    return F.expr(f"inline(array(struct({columns})))")


class Run:
    def __init__(self, spark: Any, url: str, client: Any) -> None:
        self.spark = spark
        self.url = url
        self.client = client
        self.topics = 0
        self.cells: dict[tuple[str, str], Any] = {}

    def topic(self) -> str:
        self.topics += 1
        name = f"matrix-{'-'.join(map(str, VERSION))}-{self.topics}"
        self.client.consumer(name, subscription="keep", position="earliest").close()
        return name

    def table(self, chosen: dict[str, tuple[str, list[str]]]) -> Any:
        """A column for the rows, one for each place in the lists of values."""
        zone = self.spark.conf.get("spark.sql.session.timeZone")

        def cell(kind: str, value: str) -> Any:
            # Large expressions take the parser seconds.
            key = (zone, f"cast({value} as {kind})")
            if key not in self.cells:
                self.cells[key] = F.expr(key[1])
            return self.cells[key]

        rows = [
            F.struct(
                *(
                    cell(kind, values[number] if number < len(values) else "null").alias(name)
                    for name, (kind, values) in chosen.items()
                )
            )
            for number in range(ROWS)
        ]
        return F.inline(F.array(*rows))

    def send(self, door: str, rows: Any, topic: str, **arguments: Any) -> None:
        """Writes the rows of a column."""
        options = {"url": self.url, "topic": topic, **arguments}
        frame = self.spark.range(1).select(rows)
        if door == "write":
            forebay.spark.write(frame, self.url, topic, **arguments)
        elif door == "rows":
            frame.foreachPartition(
                forebay.spark.partition_writer(self.url, topic, schema=frame.schema, **arguments)
            )
        elif door == "data source":
            frame.write.format("forebay").options(**options).mode("append").save()
        else:
            source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            with tempfile.TemporaryDirectory() as folder:
                query = (
                    source.select(rows)
                    .writeStream.format("forebay")
                    .options(**options)
                    .option("checkpointLocation", folder)
                    .trigger(once=True)
                    .start()
                )
                query.awaitTermination()

    def read(self, topic: str, count: int) -> list[str | None]:
        """The payloads in Base64."""
        with self.client.reader(topic, position="earliest") as reader:
            messages = [reader.receive(60) for _ in range(count)]
        return [
            None if message.value is None else base64.b64encode(message.data).decode() for message in messages
        ]

    def written(self, door: str, encoding: str) -> dict[str, Any]:
        """What a door writes, and what Spark makes of the same rows."""
        topic = self.topic()
        if encoding == "raw":
            frame = {name: BY_ALL[name] for name in ("id", "string", "binary")}
            self.send(door, self.table(frame), topic, value="string")
            self.send(door, self.table(frame), topic, value="binary")
            return {"payloads": self.read(topic, 2 * ROWS)}
        chosen = columns(door, encoding)
        self.send(door, self.table(chosen), topic, encoding=encoding)
        result: dict[str, Any] = {"payloads": self.read(topic, ROWS)}
        if encoding == "avro":
            result["schema"] = self.client.schema(topic).definition.decode()
        return result

    def expected(self) -> dict[str, Any]:
        """What Spark makes of the rows."""
        frame = self.spark.range(1).select(self.table(columns("write", "json")))
        plain = self.spark.range(1).select(self.table(columns("write", "avro")))
        text = [row[0] for row in frame.select(F.to_json(F.struct("*"))).collect()]
        avro = [base64.b64encode(row[0]).decode() for row in plain.select(to_avro(F.struct("*"))).collect()]
        converters = self.spark._jvm.org.apache.spark.sql.avro.SchemaConverters
        schema = converters.toAvroType(plain._jdf.schema(), False, "topLevelRecord", "")
        return {"json": text, "avro": avro, "schema": schema.toString()}

    def refused(self, door: str, name: str) -> list[str]:
        """What a door says about a row that cannot be sent."""
        expression, arguments = REFUSED[name]
        return said(lambda: self.send(door, one(f"'x' text, {expression} c"), self.topic(), **arguments))


def said(act: Callable[[], object]) -> list[str]:
    """The error of a call."""
    try:
        act()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def run(spark: Any, url: str, client: Any) -> dict[str, Any]:
    matrix = Run(spark, url, client)
    zones: dict[str, Any] = {}
    for zone in ZONES:
        spark.conf.set("spark.sql.session.timeZone", zone)
        zones[zone] = {"spark": matrix.expected()}
        for door in DOORS:
            zones[zone][door] = {name: matrix.written(door, name) for name in ("json", "avro")}
    refused = {
        door: {name: matrix.refused(door, name) for name in REFUSED}
        for door in DOORS
        # A stream has the same writer.
        if door != "stream"
    }
    raw = {door: matrix.written(door, "raw") for door in DOORS}
    empty: dict[str, Any] = {}
    for door in DOORS:
        for name, expression in OF_NO_TYPE.items():
            # PySpark 3.5 has no other way for the map.
            if (VERSION, name, door) != ((3, 5), "map", "write"):
                topic = matrix.topic()
                matrix.send(door, one(f"{expression} c"), topic, encoding="json")
                empty[f"{door} {name}"] = matrix.read(topic, 1)
    return {
        "zones": zones,
        "raw": raw,
        "refused": refused,
        "empty": empty,
        "register": said(lambda: forebay.spark.register(spark)),
        "columns": {door: {name: list(columns(door, name)) for name in ("json", "avro")} for door in DOORS},
    }


def main(url: str, avro: str) -> None:
    builder: Any = SparkSession.builder
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.task.maxFailures": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.timeType.enabled": "true",
        # The default of PySpark 3.5 is to fail for what was before 1582.
        "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.jars": avro,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.master("local[1]").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        with blocking.connect(url) as client:
            print(json.dumps(run(spark, url, client)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
