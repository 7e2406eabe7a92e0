"""DataFrames over MQTT, in both directions: each row is a message on the topic in its topic column."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

import forebay
from forebay import blocking, errors, frames
from forebay._core import dataframes, native
from forebay.mqtt import ReasonCode

from support.mqtt.harness import MqttService
from support.waiting import PATIENCE

ROWS = 900
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "till": pa.array([f"till-{i % 3}" for i in range(ROWS)]),
        "payload": pa.array([b"payload %d" % i for i in range(ROWS)], pa.binary()),
        "when": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * ROWS, pa.timestamp("us", tz="UTC")),
    }
)


@pytest.fixture(
    params=[
        pytest.param("embedded_mqtt", id="embedded"),
        pytest.param("mosquitto", marks=pytest.mark.real_mqtt),
    ]
)
def broker(request: pytest.FixtureRequest) -> MqttService:
    return request.getfixturevalue(request.param)


@pytest.fixture
def topic(broker: MqttService) -> str:
    return broker.topic()


@pytest_asyncio.fixture
async def client(broker: MqttService):
    async with forebay.connect(broker.url, operation_timeout=15) as client:
        yield client


async def rows(consumer: Any, count: int) -> list[dict[str, Any]]:
    """Exactly ``count`` rows; fails when fewer or more arrive."""
    parts: list[Any] = []
    while sum(part.num_rows for part in parts) < count:
        part = await consumer.read_frame(count, timeout=PATIENCE)
        assert part.num_rows, f"{sum(part.num_rows for part in parts)} of {count} rows came"
        parts.append(part)
    got = [row for part in parts for row in part.to_pylist()]
    assert len(got) == count
    assert (await consumer.read_frame(1, timeout=0.05)).num_rows == 0, "more rows came"
    return got


def framed(library: str, columns: dict[str, list[Any]]) -> Any:
    """The same table in the form of each library."""
    if library == "pyarrow":
        return pa.table(columns)
    if library == "polars":
        import polars

        return polars.DataFrame(columns)
    if library == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    import duckdb

    return duckdb.connect().from_arrow(pa.table(columns))


LIBRARIES = ["pyarrow", "polars", "pandas", "duckdb"]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_column_there_and_back_at_each_qos(client: Any, topic: str, qos: int) -> None:
    async with (
        client.subscribe(topic, qos=2) as consumer,
        client.producer(topic, qos=qos) as producer,
    ):
        codes = await producer.send_frame(TABLE, value="payload")
        assert list(codes) == [ReasonCode.SUCCESS] * ROWS
        got = await rows(consumer, ROWS)
        assert [row["value"] for row in got] == TABLE["payload"].to_pylist()
        assert {(row["topic"], row["qos"], row["retain"]) for row in got} == {(topic, qos, False)}
        assert all(abs((row["received_time"] - datetime.now(UTC)).total_seconds()) < 60 for row in got)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_frames_of_each_library_with_a_topic_template(client: Any, topic: str, library: str) -> None:
    frame = framed(
        library,
        {"shop": ["a", "b", "b"], "till": [1, 2, 3], "value": ["x", "y", "z"], "where": [topic] * 3},
    )
    async with client.subscribe(f"{topic}/#") as consumer, client.producer("unused") as producer:
        await producer.send_frame(frame, value="value", topic=f"{topic}/{{shop}}/{{till}}/sales")
        got = await rows(consumer, 3)
        assert [(row["topic"].removeprefix(topic), row["value"]) for row in got] == [
            ("/a/1/sales", b"x"),
            ("/b/2/sales", b"y"),
            ("/b/3/sales", b"z"),
        ]
        await producer.send_frame(frame, topic="where")
        got = await rows(consumer, 3)
        assert [json.loads(row["value"])["till"] for row in got] == [1, 2, 3]
        assert {row["topic"] for row in got} == {topic}


@pytest.mark.parametrize("library", LIBRARIES)
async def test_properties_are_maps_or_structs(client: Any, topic: str, library: str) -> None:
    frame = framed(
        library, {"v": ["1", "2"], "p": [{"source": "till", "shop": "7"}, {"source": "web", "shop": None}]}
    )
    async with client.subscribe(topic) as consumer, client.producer(topic) as producer:
        await producer.send_frame(frame, value="v", properties="p")
        got = await rows(consumer, 2)
        assert [dict(row["properties"]) for row in got] == [
            {"source": "till", "shop": "7"},
            {"source": "web"},
        ]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
async def test_properties_of_any_kind_of_text_keep_their_order(client: Any, topic: str, text: Any) -> None:
    pairs = [[("b", "1"), ("a", "2"), ("b", "3")], [], None]
    table = pa.table({"v": ["x", "y", "z"], "p": pa.array(pairs, pa.map_(text, text))})
    async with client.subscribe(topic) as consumer, client.producer(topic) as producer:
        await producer.send_frame(table, value="v", properties="p")
        assert [row["properties"] for row in await rows(consumer, 3)] == [pairs[0], [], []]


async def test_rows_as_json_with_a_topic_column(client: Any, topic: str) -> None:
    table = TABLE.append_column("where", pa.array([f"{topic}/{i % 5}" for i in range(ROWS)]))
    async with client.subscribe(f"{topic}/+") as consumer, client.producer("unused") as producer:
        await producer.send_frame(table.drop(["payload"]), topic="where")
        got = await rows(consumer, ROWS)
        values = [json.loads(row["value"]) for row in got]
        assert [value["where"] for value in values] == [row["topic"] for row in got]
        assert [value["id"] for value in values] == list(range(ROWS))
        assert values[0]["when"] == "2024-01-01T00:00:00Z"


async def test_retained_rows_are_the_last_of_each_topic(client: Any, topic: str) -> None:
    async with client.producer("unused", retain=True) as producer:
        await producer.send_frame(TABLE, value="payload", topic=f"{topic}/{{till}}")
        async with client.subscribe(f"{topic}/#") as consumer:
            got = await rows(consumer, 3)
            assert all(row["retain"] for row in got)
            assert {row["topic"]: row["value"] for row in got} == {
                f"{topic}/till-{i % 3}": b"payload %d" % i for i in range(ROWS - 3, ROWS)
            }
        # An empty payload removes a retained message; null is an empty payload.
        gone = pa.table({"till": [f"till-{i}" for i in range(3)], "v": pa.array([None] * 3, pa.binary())})
        await producer.send_frame(gone, value="v", topic=f"{topic}/{{till}}")
        async with client.subscribe(f"{topic}/#") as consumer:
            assert await rows(consumer, 0) == []


async def test_braces_that_are_meant_are_written_twice(client: Any, topic: str) -> None:
    table = pa.table({"v": ["x"], "a": ["b"]})
    async with client.subscribe(f"{topic}/#") as consumer, client.producer("unused") as producer:
        await producer.send_frame(table, value="v", topic=f"{topic}/{{{{{{a}}}}}}/{{{{a}}}}")
        assert (await rows(consumer, 1))[0]["topic"] == f"{topic}/{{b}}/{{a}}"


async def test_a_value_may_make_several_levels_or_an_empty_one(client: Any, topic: str) -> None:
    table = pa.table({"v": ["x", "y"], "a": ["b/c", ""]})
    async with client.subscribe(f"{topic}/#") as consumer, client.producer("unused") as producer:
        await producer.send_frame(table, value="v", topic=f"{topic}/{{a}}/d")
        assert [row["topic"] for row in await rows(consumer, 2)] == [f"{topic}/b/c/d", f"{topic}//d"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a+b", "and # are for filters only"),
        ("a/#", "and # are for filters only"),
        ("a\0b", "U+0000"),
        (None, 'column "where" is null'),
    ],
)
@pytest.mark.parametrize("form", ["column", "template"])
async def test_a_bad_topic_names_row_and_column_and_nothing_is_sent(
    client: Any, topic: str, form: str, value: str | None, why: str
) -> None:
    table = pa.table({"v": ["x"] * 8, "where": [f"{topic}/ok"] * 7 + [value]})
    # Row numbers run over all batches.
    table = pa.concat_tables([table.slice(0, 5), table.slice(5)])
    spec = "where" if form == "column" else "{where}"
    async with client.subscribe(f"{topic}/#") as consumer, client.producer("unused") as producer:
        with pytest.raises(errors.InvalidTopic, match=r"^row 7 ") as refused:
            await producer.send_frame(table, value="v", topic=spec)
        assert why in str(refused.value)
        assert '"where"' in str(refused.value)
        assert await rows(consumer, 0) == []
        await producer.send_frame(table.slice(0, 7), value="v", topic=spec)
        assert len(await rows(consumer, 7)) == 7


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("nowhere", errors.InvalidArgument, 'no column "nowhere"; it has id, till, payload, when'),
        ("a/{nowhere}", errors.InvalidArgument, 'no column "nowhere"'),
        ("a/{till", errors.InvalidArgument, "a brace is not closed"),
        ("a/till}", errors.InvalidArgument, "a closing brace has no opening brace"),
        ("a/{}", errors.InvalidArgument, "must contain the name of a column"),
        ("a/{b{till}}", errors.InvalidArgument, "must contain the name of a column"),
        ("#/{till}", errors.InvalidTopic, "cannot be a part of a topic"),
        ("payload", None, None),
    ],
)
async def test_a_bad_template_is_refused_at_once(
    client: Any, topic: str, spec: str, kind: Any, words: str | None
) -> None:
    async with client.producer(topic) as producer:
        if kind is None:
            # A text column as payload is sent as UTF-8.
            assert len(await producer.send_frame(TABLE.slice(0, 1), value="till", topic=spec)) == 1
            return
        with pytest.raises(kind, match=words):
            producer.send_frame(TABLE, value="payload", topic=spec)


async def test_bytes_that_are_no_text_are_no_topic(client: Any, topic: str) -> None:
    table = pa.table({"v": ["x"], "where": pa.array([b"\xff\xfe"], pa.binary())})
    async with client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match='column "where" is Binary, which is not text'):
            producer.send_frame(table, value="v", topic="where")


async def test_text_that_is_not_utf8_is_no_topic(client: Any, topic: str) -> None:
    binary = pa.array([b"shop/1", b"shop/\xff\x01"], pa.binary())
    where = pa.Array.from_buffers(pa.string(), 2, binary.buffers())
    table = pa.table({"v": [b"1", b"2"], "where": where})
    async with client.producer(topic) as producer:
        for spec in ("where", "{where}/sales"):
            with pytest.raises(errors.InvalidArgument, match='row 1 of column "where" is not valid UTF-8'):
                producer.send_frame(table, value="v", topic=spec)


async def test_a_topic_longer_than_mqtt_has_is_refused(client: Any, topic: str) -> None:
    table = pa.table({"v": ["x"], "where": ["x" * 65_000]})
    async with client.producer(topic) as producer:
        with pytest.raises(errors.InvalidTopic, match="row 0 has a topic of 65536 bytes") as refused:
            producer.send_frame(table, value="v", topic="{where}" + "y" * 536)
        assert len(str(refused.value)) < 200
        with pytest.raises(errors.InvalidTopic, match="row 0 has an empty topic"):
            producer.send_frame(pa.table({"v": ["x"], "where": [""]}), value="v", topic="where")


async def test_what_is_no_table_is_refused(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match="no Arrow interface"):
            producer.send_frame([1, 2], value="x")


async def test_properties_need_version_5(broker: MqttService, topic: str) -> None:
    table = pa.table({"v": ["x"], "p": [{"a": "b"}]})
    async with forebay.connect(broker.url, version="3.1.1") as client, client.producer(topic) as producer:
        with pytest.raises(errors.Unsupported):
            await producer.send_frame(table, value="v", properties="p")
        await producer.send_frame(table, value="v")


async def test_a_frame_of_no_rows(client: Any, topic: str) -> None:
    async with client.subscribe(topic) as consumer, client.producer(topic) as producer:
        for spec in (None, "till", "{till}/x"):
            assert list(await producer.send_frame(TABLE.slice(0, 0), value="payload", topic=spec)) == []
        empty = await consumer.read_frame(10, timeout=0.05)
        assert empty.column_names == [
            *("value", "topic", "qos", "retain", "received_time", "content_type", "properties")
        ]


def test_the_blocking_twin(broker: MqttService, topic: str) -> None:
    with (
        blocking.connect(broker.url) as client,
        client.subscribe(f"{topic}/#", qos=1) as consumer,
        client.producer("unused", qos=1) as producer,
    ):
        assert len(producer.send_frame(TABLE, value="payload", topic=f"{topic}/{{till}}")) == ROWS
        got: list[dict[str, Any]] = []
        while len(got) < ROWS:
            part = consumer.read_frame(ROWS - len(got), timeout=PATIENCE)
            assert part.num_rows
            got += part.to_pylist()
        assert [row["value"] for row in got] == TABLE["payload"].to_pylist()
        assert [row["topic"] for row in got] == [f"{topic}/{name}" for name in TABLE["till"].to_pylist()]
        with pytest.raises(errors.InvalidTopic, match="row 0"):
            producer.send_frame(pa.table({"v": ["x"], "w": ["#"]}), value="v", topic="w")


@pytest.mark.parametrize(
    ("template", "columns"),
    [
        ("shop/{till}/{id}{{x}}", ["till", "id"]),
        ("{{{a}}}", ["a"]),
        ("a{{}}", []),
        ("{a}{a}", ["a", "a"]),
        ("{what is here: + # ü}", ["what is here: + # ü"]),
    ],
)
def test_the_columns_of_a_template(template: str, columns: list[str]) -> None:
    assert native.template_columns(template) == columns


@pytest.mark.parametrize("template", ["{", "}", "{a", "a}", "{}", "{{a}", "{a}}", "{a{b}}", "{{}"])
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="literal braces twice"):
        native.template_columns(template)


def test_encoded_rows_are_sent_once(broker: MqttService, topic: str) -> None:
    rows = dataframes.outgoing(TABLE, {"value": "payload"}, None)
    assert (len(rows), rows.payload_bytes) == (ROWS, sum(map(len, TABLE["payload"].to_pylist())))
    with blocking.connect(broker.url) as client, client.producer(topic) as producer:
        assert len(producer.submit_rows(rows).wait()) == ROWS
        with pytest.raises(errors.InvalidArgument, match="sent already"):
            producer.submit_rows(rows)


async def test_a_table_is_written_in_one_call(broker: MqttService, client: Any, topic: str) -> None:
    async with client.subscribe(f"{topic}/#", qos=1) as consumer:
        report = await asyncio.to_thread(
            frames.write, TABLE, broker.url, f"{topic}/{{till}}", value="payload", qos=1
        )
        got = await rows(consumer, ROWS)
    assert (report.rows, report.bytes) == (ROWS, sum(map(len, TABLE["payload"].to_pylist())))
    expected = zip(TABLE["till"].to_pylist(), TABLE["payload"].to_pylist(), strict=True)
    assert [(row["topic"], row["value"]) for row in got] == [
        (f"{topic}/{till}", value) for till, value in expected
    ]
