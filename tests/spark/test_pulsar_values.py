"""Topics of Pulsar with schemas as typed columns of Spark. Payloads are decoded in the client, whatever the
broker is; `test_pulsar_source.py` has both."""

import datetime
import decimal
import enum
import re
import uuid
from dataclasses import dataclass, field
from typing import Annotated

import pulsar.schema
import pytest
from pyspark.sql import types as T  # noqa: N812

import pulsar
from forebay import errors
from forebay.pulsar import Avro, KeyValue, Schema
from forebay.pulsar._ranges import plan
from forebay.spark import register
from forebay.spark._arrow import arrow_schema
from forebay.spark._sources.pulsar import SOURCE, batches, read_config
from forebay.spark._sources.reading import row_schema, wanted

from support.queries import started
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

UTC = datetime.UTC


@pytest.fixture
def service(embedded):
    return embedded


@pytest.fixture
def read(spark, service):
    """Reads a topic with ``decode``, or with the options that are given."""
    register(spark)

    def load(topic, schema=None, **options):
        given = {"url": service.url, "subscribe": topic, "decode": True, **options}
        reader = spark.read.format("forebay").options(**{name: str(value) for name, value in given.items()})
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def topic(client, service):
    return kept(client, service.topic())


def kept(client, topic):
    """Retains messages that are sent before the first subscription."""
    client.consumer(topic, "keep", position="earliest").close()
    return topic


def send(client, topic, schema, *values, **options):
    """Sends values; ``None`` is a tombstone."""
    with client.producer(topic, schema=schema, **options) as producer:
        return [
            producer.send(None, null_value=True) if value is None else producer.send(value)
            for value in values
        ]


def plain(value):
    """A value of a row as Python has it."""
    if isinstance(value, T.Row):
        return {name: plain(part) for name, part in value.asDict().items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(UTC) if value.tzinfo is None and value.fold is None else value
    return value


def values(frame, column="value"):
    return [plain(row[0]) for row in frame.select(column).collect()]


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Line:
    article: str
    count: Annotated[int, Avro("int")] = 1


@dataclass
class Order:
    number: int
    price: float
    lines: list[Line]
    at: datetime.datetime
    day: datetime.date
    clock: datetime.time
    id: uuid.UUID
    amount: Annotated[
        decimal.Decimal, Avro({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})
    ]
    tags: dict[str, str] = field(default_factory=dict)
    stock: dict[str, list[Line]] = field(default_factory=dict)
    colour: Colour = Colour.RED
    note: str | None = None
    raw: bytes = b""
    paid: bool = False


AT = datetime.datetime(2024, 2, 29, 1, 2, 3, 4567, tzinfo=UTC)
ORDER_TYPE = (
    "struct<number:bigint,price:double,lines:array<struct<article:string,count:int>>,at:timestamp,day:date,"
    "clock:bigint,id:string,amount:decimal(12,2),tags:map<string,string>,"
    "stock:map<string,array<struct<article:string,count:int>>>,colour:string,note:string,raw:binary,"
    "paid:boolean>"
)


def order(number):
    return Order(
        number,
        number / 4,
        [Line("nut", number), Line("bolt")],
        AT,
        datetime.date(1960, 1, 1),
        datetime.time(1, 0, 0, 7),
        uuid.UUID(int=number),
        decimal.Decimal("-12345.67"),
        {"a": "ü"},
        {"shelf": [Line("nut", 3)], "none": []},
        Colour.BLUE,
        None if number % 2 else f"note {number}",
        b"\0\xff",
        True,
    )


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_records_are_structs(client, topic, read, kind):
    sent = [order(number) for number in range(50)]
    send(client, topic, getattr(Schema, kind)(Order), *sent, compression="zstd")
    frame = read(topic)
    assert frame.schema["value"].dataType.simpleString() == ORDER_TYPE
    assert frame.columns[:3] == ["key", "value", "topic"]
    # As values of Spark, which it compares.
    rows = frame.selectExpr(
        "value.*",
        "value.lines[0].count AS first",
        "unix_micros(value.at) AS micros",
        "value.stock['shelf'][0].article AS shelf",
    ).collect()
    for row, one in zip(rows, sent, strict=True):
        assert (row.number, row.price, row.first) == (one.number, one.price, one.number)
        assert row.micros == int(AT.timestamp()) * 1_000_000 + AT.microsecond
        assert (row.day, row.clock, row.id) == (one.day, 3_600_000_007, str(one.id))
        assert (row.amount, row.tags, row.colour) == (one.amount, one.tags, "BLUE")
        assert (row.note, bytes(row.raw), row.paid, row.shelf) == (one.note, one.raw, True, "nut")
    assert frame.where("value.amount = -12345.67 AND value.note IS NULL").count() == 25


def test_batches_of_the_engine_have_the_types_that_spark_exchanges(client, topic, service):
    instant = {"type": "long", "logicalType": "timestamp-millis"}
    local = {"type": "long", "logicalType": "local-timestamp-millis"}
    fixed = {"type": "fixed", "name": "F", "size": 2}
    nested = {"type": "array", "items": {"type": "map", "values": [instant, "null"]}}
    kinds = {"at": instant, "local": local, "fixed": fixed, "nested": nested, "number": ["int", "double"]}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    moment = AT.replace(microsecond=4000)
    value = {
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "fixed": b"\0\1",
        "nested": [{"a": moment, "b": None}, {}],
        "number": 1,
    }
    send(client, topic, Schema.avro({"type": "record", "name": "R", "fields": fields}), value)
    schema, (batch,) = found_in(client, service, topic, includeHeaders="true")
    # Nothing is left to be cast.
    assert batch.schema == arrow_schema(schema)
    found = batch.column("value").to_pylist()[0]
    assert found == {**value, "nested": [[("a", moment), ("b", None)], []], "number": 1.0}


def test_the_fields_of_records_are_columns_as_those_of_pulsar_spark(client, topic, read, service):
    send(client, topic, Schema.avro(Line), Line("nut", 3), None, Line("bolt"))
    frame = read(topic, columns="pulsar")
    assert frame.columns[:4] == ["article", "count", "__key", "__topic"]
    assert [(row.article, row["count"]) for row in frame.collect()] == [("nut", 3), (None, None), ("bolt", 1)]
    # Spark asks for one of them.
    assert values(frame, "count") == [3, None, 1]
    assert values(read(topic, columns="pulsar", schema="count int, __topic string"), "count") == [3, None, 1]
    assert read(topic, columns="pulsar", decode=False).schema["value"].dataType == T.BinaryType()


PRIMITIVES = {
    "bytes": (b"\0\xff", "binary", b"\0\xff"),
    "string": ("ü", "string", "ü"),
    "boolean": (True, "boolean", True),
    "int8": (-128, "int", -128),
    "int16": (-(2**15), "int", -(2**15)),
    "int32": (-(2**31), "int", -(2**31)),
    "int64": (-(2**63), "bigint", -(2**63)),
    "float": (-0.25, "float", -0.25),
    "double": (0.1, "double", 0.1),
    "local_date": (datetime.date(1960, 1, 1), "date", datetime.date(1960, 1, 1)),
    "time": (datetime.time(1, 0, 0, 4000), "bigint", 3_600_004_000),
    "local_time": (datetime.time(1, 0, 0, 4), "bigint", 3_600_000_004),
    "local_date_time": (
        datetime.datetime(1960, 1, 1, 0, 0, 0, 1),
        "timestamp_ntz",
        datetime.datetime(1960, 1, 1, 0, 0, 0, 1),
    ),
    "date": (AT.replace(microsecond=4000), "timestamp", AT.replace(microsecond=4000)),
    "timestamp": (AT.replace(microsecond=4000), "timestamp", AT.replace(microsecond=4000)),
    "instant": (AT, "timestamp", AT),
}


def found_in(client, service, topic, **options):
    """Spark's schema, and the batches of a topic of one range."""
    given = {"url": service.url, "subscribe": topic, "decode": "true", **options}
    config = read_config(given)
    config = SOURCE.fix(config, SOURCE.ask(config))
    schema = row_schema(config)
    (part,) = plan(client, config.read)
    return schema, list(batches(config, part, wanted(config, schema)))


def test_single_values_are_columns(client, service):
    for name, (value, kind, expected) in PRIMITIVES.items():
        topic = kept(client, service.topic())
        send(client, topic, name, value, None)
        schema, found = found_in(client, service, topic)
        assert schema["value"].dataType.simpleString() == kind, name
        # Nothing is left to be cast.
        assert {batch.schema for batch in found} == {arrow_schema(schema)}, name
        assert [one for batch in found for one in batch.column("value").to_pylist()] == [expected, None], name


def test_pairs_are_structs_of_a_key_and_a_value(client, topic, read):
    schema = Schema.key_value(Schema.json(Line), Schema.avro(Line), "separated")
    pairs = [(Line("a", 1), Line("b", 2)), (Line("c"), None), (None, Line("d"))]
    send(client, topic, schema, *(KeyValue(*pair) for pair in pairs))
    frame = read(topic)
    line = "struct<article:string,count:int>"
    assert frame.schema["value"].dataType.simpleString() == f"struct<key:{line},value:{line}>"
    assert values(frame) == [
        {"key": {"article": "a", "count": 1}, "value": {"article": "b", "count": 2}},
        {"key": {"article": "c", "count": 1}, "value": None},
        {"key": None, "value": {"article": "d", "count": 1}},
    ]
    assert read(topic, columns="pulsar").columns[:2] == ["value", "__key"]


def versions():
    """Two versions of a record."""
    first = {"name": "a", "type": "int"}
    second = {"name": "b", "type": ["null", "string"], "default": None}
    return [
        Schema.avro({"type": "record", "name": "R", "fields": fields})
        for fields in ([first], [first, second])
    ]


def test_all_versions_are_values_of_the_newest_schema(client, topic, read):
    old, new = versions()
    send(client, topic, old, {"a": 1})
    planned = read(topic)
    send(client, topic, new, {"a": 2, "b": "x"})
    send(client, topic, old, {"a": 3})
    found = values(read(topic).orderBy("sequenceId", "value.a"))
    assert sorted(found, key=lambda value: value["a"]) == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
        {"a": 3, "b": None},
    ]
    # The rows that there are when Spark runs it, by the schema of when it was planned.
    assert sorted(value["a"] for value in values(planned)) == [1, 2, 3]
    assert planned.schema["value"].dataType.names == ["a"]


def test_a_payload_that_cannot_be_decoded_is_named_or_null(client, topic, read):
    schema = Schema.avro(Line)
    send(client, topic, schema, Line("a", 1))
    (bad,) = send(client, topic, Schema("avro", "Line", schema.definition, raw=True), b"\xff")
    send(client, topic, schema, Line("b", 2))
    with pytest.raises(
        Exception, match=f"(?s)message \\({bad.ledger},{bad.entry},.*{topic}.*cannot be decoded"
    ):
        read(topic).collect()
    assert values(read(topic, onError="null")) == [
        {"article": "a", "count": 1},
        None,
        {"article": "b", "count": 2},
    ]
    # A column that is not read is not decoded.
    assert read(topic, schema="partition int").count() == 3


def test_a_schema_of_the_user_must_be_that_of_the_topic(client, topic, read):
    send(client, topic, Schema.avro(Order), order(1))
    given = f"value {ORDER_TYPE}, partition int"
    assert values(read(topic, schema=given), "value.number") == [1]
    for wrong, text in (
        (given.replace("count:int", "count:bigint", 1), "'value.lines[].count' is int, not bigint"),
        ("value struct<number:bigint>", "'value' has the fields number, price"),
        ("value binary", "'value' is struct<"),
    ):
        with pytest.raises(Exception, match=re.escape(text)):
            read(topic, schema=wrong).collect()


def test_records_with_many_fields_are_compared_whole(client, topic, read):
    fields = [{"name": f"f{number}", "type": "int"} for number in range(60)]
    schema = Schema.avro({"type": "record", "name": "Wide", "fields": fields})
    send(client, topic, schema, {f"f{number}": number for number in range(60)})
    frame = read(topic)
    assert values(frame, "value.f59") == [59]
    last = T.StructType([T.StructField(f"f{number}", T.IntegerType()) for number in range(59)])
    wrong = T.StructType([T.StructField("value", last.add("f59", T.LongType()))])
    with pytest.raises(Exception, match=re.escape("'value.f59' is int, not bigint")):
        read(topic, schema=wrong).collect()


def test_nothing_to_read_and_topics_without_a_schema(client, service, topic, read):
    with client.producer(topic, schema=Schema.avro(Line)):
        frame = read(topic)
    assert frame.collect() == [] and frame.schema["value"].dataType.names == ["article", "count"]
    without = kept(client, service.topic())
    send(client, without, None, b"v")
    assert values(read(without)) == [b"v"]
    assert values(read(without, columns="pulsar")) == [b"v"]


class Item(pulsar.schema.Record):
    name = pulsar.schema.String()
    count = pulsar.schema.Integer()
    tags = pulsar.schema.Array(pulsar.schema.String())
    prices = pulsar.schema.Map(pulsar.schema.Double())


def test_values_of_the_official_client(client, service, topic, read):
    official = pulsar.Client(service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = official.create_producer(topic, schema=pulsar.schema.AvroSchema(Item))
    producer.send(Item(name="ü", count=3, tags=["a", "b"], prices={"net": 1.5}))
    producer.send(Item(name=None, count=None, tags=[], prices={}))
    official.close()
    frame = read(topic)
    kinds = {part.name: part.dataType.simpleString() for part in frame.schema["value"].dataType.fields}
    assert kinds == {
        "name": "string",
        "count": "int",
        "tags": "array<string>",
        "prices": "map<string,double>",
    }
    assert values(frame) == [
        {"name": "ü", "count": 3, "tags": ["a", "b"], "prices": {"net": 1.5}},
        {"name": None, "count": None, "tags": [], "prices": {}},
    ]


class Rows:
    """A stream of ``value``, that goes on from its checkpoint."""

    def __init__(self, spark, url, topic, folder, **options):
        register(spark)
        self._spark, self._folder = spark, folder
        given = {"url": url, "subscribe": topic, "startingOffsets": "earliest", "decode": True, **options}
        self._options = {name: str(value) for name, value in given.items()}
        self.values = []

    def start(self, **trigger):
        frame = self._spark.readStream.format("forebay").options(**self._options).load().select("value")

        def collect(batch, _):
            self.values.extend(values(batch))

        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self._folder))
        return started(lambda: writer.trigger(**trigger).start())

    def run(self):
        query = self.start(availableNow=True)
        query.awaitTermination(120)
        assert query.exception() is None


def test_a_stream_keeps_its_schema_until_it_starts_again(spark, client, service, topic, tmp_path):
    old, new = versions()
    send(client, topic, old, {"a": 1})
    stream = Rows(spark, service.url, topic, tmp_path / "checkpoint")
    running = stream.start(processingTime="0 seconds")
    try:
        eventually(lambda: stream.values == [{"a": 1}])
        send(client, topic, new, {"a": 2, "b": "x"})
        eventually(lambda: stream.values == [{"a": 1}, {"a": 2}])
    finally:
        running.stop()
    send(client, topic, new, {"a": 3, "b": "y"})
    send(client, topic, old, {"a": 4})
    stream.run()
    # The last batch of the first run may come again.
    later = [value for value in stream.values[2:] if value["a"] > 2]
    assert sorted(later, key=lambda value: value["a"]) == [{"a": 3, "b": "y"}, {"a": 4, "b": None}]


def test_options_that_say_what_values_are():
    of = {"url": "pulsar://localhost:1", "subscribe": "a"}
    assert read_config(of).own["decode"] is None
    with pytest.raises(errors.InvalidArgument, match="onError"):
        read_config({**of, "on_error": "skip"})
    with pytest.raises(errors.InvalidArgument, match="decode=true"):
        read_config({**of, "schema": "string"})
