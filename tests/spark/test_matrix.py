"""Values of all of Spark's types, written by each door in each encoding in several time zones, are what Spark
itself makes of them, with the oldest PySpark that the package supports and the newest one.

The differences that are meant are those of `plain`, and listed in docs/guides/spark.md.
"""

import base64
import io
import json
import os
import re
import struct
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest

from forebay import Broker
from forebay.spark import java

from support import pysparks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(60)]

JOB = Path(__file__).with_name("matrix.py")
ZONES = ("America/New_York", "UTC", "Asia/Kolkata")
DOORS = ("write", "rows", "data source", "stream")


@pytest.fixture(scope="module", params=["4.3", "4.0", "3.5"])
def matrix(request, tmp_path_factory):
    """What `matrix.py` prints with a version of PySpark."""
    with pytest.MonkeyPatch.context() as patch:
        # `ensure` may set it.
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        if not os.environ["JAVA_HOME"]:
            del os.environ["JAVA_HOME"]
        java.ensure(tmp_path_factory.mktemp("java"))
        with Broker() as broker:
            yield pysparks.run(
                request.param, JOB, broker.url, pysparks.spark_avro(request.param), timeout=900
            )


def of(matrix, door):
    if door not in matrix["columns"]:
        assert "stream" not in matrix["columns"]
        pytest.skip("PySpark 3.5 has no data sources in Python")
    return door


# ------------------------------------------------------------------------------------------- JSON

MOMENT = re.compile(
    r"([+-]?\d+)-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:(Z)|([+-])(\d\d):(\d\d)(?::(\d\d))?)?"
)


BEFORE_STANDARD_TIME = {"-04:56": ":02", "+05:53": ":28"}
"""The seconds that `to_json` of PySpark 3.5 leaves out."""


def microseconds(text):
    """Since 1970, of a text of any year, which Python's own times do not have."""
    text += BEFORE_STANDARD_TIME.get(text[-6:], "")
    year, month, day, hour, minute, second, fraction, _, sign, *offset = MOMENT.fullmatch(text).groups()
    year = int(year) - (int(month) <= 2)
    of_year = (153 * ((int(month) + 9) % 12) + 2) // 5 + int(day) - 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468
    seconds = days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    hours, minutes, rest = (int(part or 0) for part in offset)
    seconds -= (hours * 3600 + minutes * 60 + rest) * (-1 if sign == "-" else 1)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0") or 0)


def milliseconds(text):
    """`to_json` writes milliseconds, in the time zone of the session; we write microseconds, in UTC."""
    return microseconds(text) // 1000


def single(value):
    """The bits of a float, whose shortest text is not the same in Java and in Rust."""
    return value if isinstance(value, str) else struct.pack("f", value)


def double(value):
    """The bits of a double, as well."""
    return value if isinstance(value, str) else struct.pack("d", value)


def days(key):
    """`to_json` writes a date that is a key as Spark has it inside; we write the date."""
    return key if key.lstrip("-").isdigit() else str(microseconds(f"{key}T00:00:00") // 86_400_000_000)


def inside(key):
    """The same for times."""
    return key if key.lstrip("-").isdigit() else str(microseconds(key))


def in_base64(key):
    """`to_json` writes what Java calls the array."""
    return key.startswith("[B@") or base64.b64decode(key) == b"\xff\x00"


def keys(change):
    return lambda column: {change(key): value for key, value in column.items()}


def nested(items):
    def changed(item):
        changes = {}
        if "f" in item:
            changes["f"] = single(item["f"])
        if "m" in item:
            changes["m"] = {
                key: times and [at and milliseconds(at) for at in times] for key, times in item["m"].items()
            }
        return {**item, **changes}

    return [item and changed(item) for item in items]


PLAIN = {
    "float": single,
    "double": double,
    "timestamp": milliseconds,
    "timestamp_ntz": milliseconds,
    "far_timestamp": milliseconds,
    "far_timestamp_ntz": milliseconds,
    "nested": nested,
    "of_double": keys(lambda key: str(float(key))),
    "of_date": keys(days),
    "of_timestamp": keys(inside),
    "of_timestamp_ntz": keys(inside),
    "of_binary": keys(in_base64),
}


def plain(text):
    """The columns of a JSON object without the differences that are meant."""
    row = json.loads(text, parse_float=Decimal)
    return {name: PLAIN[name](value) if name in PLAIN else value for name, value in row.items()}


def payloads(written):
    return [None if payload is None else base64.b64decode(payload) for payload in written["payloads"]]


def test_the_newest_version_has_more_than_one_zone(matrix):
    newest = "time" in matrix["columns"]["write"]["json"]
    assert set(matrix["zones"]) == set(ZONES if newest else ZONES[:1])


@pytest.mark.parametrize("door", DOORS)
def test_json_is_what_to_json_writes(matrix, door):
    for found in matrix["zones"].values():
        ours = [plain(payload) for payload in payloads(found[of(matrix, door)]["json"])]
        names = matrix["columns"][door]["json"]
        expected = [plain(text) for text in found["spark"]["json"]]
        for row, theirs in zip(ours, expected, strict=True):
            assert row == {name: value for name, value in theirs.items() if name in names}


def test_moments_are_in_utc_with_microseconds(matrix):
    moments = {"UTC": "T12:00:00", "America/New_York": "T16:00:00", "Asia/Kolkata": "T06:30:00"}
    for zone in matrix["zones"]:
        moment = moments[zone]
        row = json.loads(payloads(matrix["zones"][zone]["write"]["json"])[0])
        assert row["timestamp"] == f"2024-07-01{moment}.123456Z"
        assert row["timestamp_ntz"] == "2024-03-10T02:30:00.123456"
        assert row["of_timestamp"] == {f"2024-07-01{moment}.123456Z": 1}
        assert row["of_date"] == {"2024-02-29": 1}
        assert row["of_binary"] == {"/wA=": 1}


# ------------------------------------------------------------------------------------------- Avro


def bare(kind):
    """A schema whose times are numbers, since Python's have years from 1 to 9999."""
    if isinstance(kind, list):
        return [bare(part) for part in kind]
    if not isinstance(kind, dict):
        return kind
    keep = kind.get("logicalType") == "decimal"
    return {
        name: [{**field, "type": bare(field["type"])} for field in value]
        if name == "fields"
        else bare(value)
        if name in ("type", "items", "values")
        else value
        for name, value in kind.items()
        if keep or name != "logicalType"
    }


def decoded(payload, schema):
    """The columns of an Avro record."""
    made = fastavro.parse_schema(bare(json.loads(schema)))
    return fastavro.schemaless_reader(io.BytesIO(payload), made, None)


def shape(kind):
    """A type without names and the order of unions. Decimals are bytes or, of `to_avro`, fixed ones."""
    if isinstance(kind, list):
        return sorted(repr(shape(part)) for part in kind)
    if isinstance(kind, str):
        return kind
    if kind.get("logicalType") == "decimal":
        return "decimal", kind["precision"], kind["scale"]
    if kind["type"] == "record":
        return [(field["name"], shape(field["type"])) for field in kind["fields"]]
    if kind["type"] in ("array", "map"):
        return kind["type"], shape(kind["items" if kind["type"] == "array" else "values"])
    return kind["type"], kind.get("logicalType")


@pytest.mark.parametrize("door", DOORS)
def test_avro_is_what_to_avro_writes(matrix, door):
    for found in matrix["zones"].values():
        same_as_to_avro(matrix, door, found)


def same_as_to_avro(matrix, door, found):
    written, spark = found[of(matrix, door)]["avro"], found["spark"]
    ours = [decoded(payload, written["schema"]) for payload in payloads(written)]
    theirs = [decoded(base64.b64decode(payload), spark["schema"]) for payload in spark["avro"]]
    for row, expected in zip(ours, theirs, strict=True):
        assert list(row) == matrix["columns"][door]["avro"]
        for name, value in row.items():
            # NaN is not equal to itself.
            assert repr(value) == repr(expected[name]), name
    types = dict(shape(json.loads(spark["schema"])))
    for name, kind in shape(json.loads(written["schema"])):
        assert kind == types[name], name


# ------------------------------------------------------------------------------------------- the
# rest


@pytest.mark.parametrize("door", DOORS)
def test_raw_payloads_are_the_bytes(matrix, door):
    texts = [b"", 'na\u00efve \U0001f600 \0 \u2028 " / \\ \t\n'.encode(), *[None] * 4]
    found = matrix["raw"][of(matrix, door)]
    assert payloads(found) == [*texts, b"\x00\xff\x10", b"", *[None] * 4]


@pytest.mark.parametrize("door", DOORS)
def test_what_has_no_entries_needs_no_type(matrix, door):
    of(matrix, door)
    found = {name: base64.b64decode(got[0]) for name, got in matrix["empty"].items() if name.startswith(door)}
    every = {f"{door} array": b'{"c":[]}', f"{door} map": b'{"c":{}}'}
    assert found == every or (found == {"write array": b'{"c":[]}'} and "stream" not in matrix["columns"])


SAID = {
    "json of_struct": "column 'c' is map<struct<x:int>,int>, and JSON has keys of text only",
    "json of_array": "column 'c' is map<array<int>,int>, and JSON has keys of text only",
    "avro of_int": "column 'c' is map<int,string>, and the keys of Avro's maps are text",
    "avro interval": "column 'c[]' is interval day, and Avro has no intervals: cast it to text",
    "json far_date": 'row 0 of column "c" cannot be written as JSON: a value has no form as text',
    "json far_timestamp": 'row 0 of column "c" cannot be written as JSON: a value has no form as text',
    "raw int": "column 'c' is int, which is not binary or text",
    "raw timestamp": "column 'c' is timestamp, which is not binary or text",
    "json interval": "column 'c.i' is interval day, and JSON has no intervals: cast it to text",
    "json months": "column 'c' of the OWNER is interval year, which PySpark cannot hand to Python",
    "raw months": "column 'c' of the OWNER is interval year, which PySpark cannot hand to Python",
    "json variant": "column 'c[]' is variant, which only Spark can read",
    "avro variant": "column 'c' is variant, which only Spark can read",
    "raw variant": "column 'c' is variant, which only Spark can read",
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("door", ["write", "rows", "data source"])
def test_what_cannot_be_said_is_refused_with_its_column(matrix, door, name):
    found = matrix["refused"][of(matrix, door)]
    if name not in found:
        assert "variant" in name and "stream" not in matrix["columns"]
        pytest.skip("PySpark 3.5 has no VARIANT")
    kind, text = found[name]
    if door == "write" and name in ("json interval", "json months", "raw months"):
        assert kind == "nothing"
    elif door == "rows" and "far" in name:
        # Spark itself does not get as far as to make the Row.
        assert kind != "nothing"
    else:
        assert SAID[name].replace("OWNER", "schema" if door == "rows" else "DataFrame") in text
        assert kind == "InvalidArgument" or door != "write"


def test_a_pyspark_without_data_sources_is_told_so(matrix):
    kind, text = matrix["register"]
    if "stream" in matrix["columns"]:
        assert kind == "nothing"
    else:
        assert kind == "Unsupported"
        assert text.startswith("PySpark 3.5 has no data sources in Python, which came with 4.0")
