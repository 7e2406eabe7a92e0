"""DataFrames in, Arrow out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from forebay import errors

from support.messages import receive
from support.waiting import PATIENCE

TABLE = pa.table(
    {
        "id": pa.array([f"id-{i}" for i in range(500)]),
        "payload": pa.array([b"payload %d" % i for i in range(500)], pa.binary()),
        "amount": pa.array(list(range(500)), pa.int64()),
        "when": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 500, pa.timestamp("ms", tz="UTC")),
    }
)


async def rows(consumer: Any, count: int) -> pa.Table:
    parts: list[pa.Table] = []
    while sum(part.num_rows for part in parts) < count:
        part = await consumer.read_frame(count, timeout=PATIENCE)
        assert part.num_rows
        parts.append(part)
    return pa.concat_tables(parts)


async def test_a_column_of_bytes_there_and_back(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        ids = await producer.send_frame(TABLE, value="payload", key="id", event_time="when")
        assert len(ids) == 500
        got = await rows(consumer, 500)
        assert got["value"].to_pylist() == TABLE["payload"].to_pylist()
        assert got["key"].to_pylist() == TABLE["id"].to_pylist()
        assert set(got["event_time"].to_pylist()) == {datetime(2024, 1, 1, tzinfo=UTC)}
        assert set(got["topic"].to_pylist()) == {topic}
        assert got["message_id"].to_pylist() == [str(message_id) for message_id in ids]


async def test_rows_as_json(client: Any, topic: str) -> None:
    table = TABLE.select(["id", "amount"])
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, compression="zstd") as producer,
    ):
        await producer.send_frame(table, encoding="json", key="id")
        got = await rows(consumer, 500)
        assert [json.loads(value) for value in got["value"].to_pylist()] == table.to_pylist()


async def test_a_time_that_has_no_form_as_text_is_refused_with_its_row(client: Any, topic: str) -> None:
    times = pa.array([0, 1, 5642249794417674311], pa.timestamp("s"))
    table = pa.table({"n": [1, 2, 3], "times": pa.array([[], [0, 1], [1 << 62]], pa.list_(times.type))})
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match=r'row 2 of column "at" cannot be'):
            await producer.send_frame(pa.table({"at": times}), encoding="json")
        with pytest.raises(errors.InvalidArgument, match='row 2 of column "times" cannot be'):
            await producer.send_frame(table, encoding="json")
        assert (await consumer.read_frame(10, timeout=0.05)).num_rows == 0, "no row of such a table is sent"


@pytest.mark.parametrize("library", ["polars", "pandas", "duckdb"])
async def test_frames_of_other_libraries(client: Any, topic: str, library: str) -> None:
    frame: Any
    if library == "polars":
        import polars

        frame = polars.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    elif library == "pandas":
        import pandas

        frame = pandas.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    else:
        import duckdb

        frame = duckdb.sql("select * from (values ('a', 1), ('b', 2)) t(id, n)")
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_frame(frame, encoding="json", key="id")
        messages = await receive(consumer, 2)
        assert [message.key for message in messages] == ["a", "b"]
        assert [json.loads(bytes(message.data))["n"] for message in messages] == [1, 2]


async def test_an_index_of_pandas_is_a_column_if_it_has_a_name(client: Any, topic: str) -> None:
    import pandas

    frame = pandas.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    levels = pandas.MultiIndex.from_arrays([[3, 4], [5, 6]], names=["level", None])
    range_ = pandas.RangeIndex(2, name="row")
    frames: list[tuple[Any, set[str]]] = [
        (frame[frame.n > 1], set()),
        (frame.sort_values("n", ascending=False), set()),
        (frame.set_index("id", drop=False), set()),
        (frame.set_axis(levels), {"level"}),
        (frame.set_axis(range_), {"row"}),
        (frame.set_axis(range_)[frame.n.to_numpy() > 1], {"row"}),
        (frame.set_index("id"), set()),
    ]
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        for rows, more in frames:
            columns = list(rows.columns)
            await producer.send_frame(rows, encoding="json")
            for message in await receive(consumer, len(rows)):
                assert set(json.loads(bytes(message.data))) == {"id", "n", *more}
            assert list(rows.columns) == columns, "the caller's DataFrame stays as it is"


async def test_a_filtered_frame_of_pandas_has_the_schema_of_the_whole(client: Any, topic: str) -> None:
    import pandas

    frame = pandas.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    async with client.consumer(topic, "s", schema="auto") as consumer:
        for rows in (frame, frame[frame.n > 1]):
            async with client.producer(topic) as producer:
                await producer.send_frame(rows, schema="avro")
        messages = await receive(consumer, 3)
        assert messages[2].value == {"id": "b", "n": 2}
        assert len({bytes(message.schema_version or b"") for message in messages}) == 1


async def test_properties_from_a_map_column(client: Any, topic: str) -> None:
    table = pa.table(
        {
            "v": pa.array([b"1", b"2"], pa.binary()),
            "p": pa.array([[("a", "b")], []], pa.map_(pa.string(), pa.string())),
        }
    )
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_frame(table, value="v", properties="p")
        assert [message.properties for message in await receive(consumer, 2)] == [{"a": "b"}, {}]


async def test_a_frame_of_no_rows(client: Any, topic: str) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        assert len(await producer.send_frame(TABLE.slice(0, 0), value="payload")) == 0
        assert (await consumer.read_frame(10, timeout=0.05)).num_rows == 0


async def test_a_column_that_is_not_there_is_named(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match="payloads"):
            await producer.send_frame(TABLE, value="payloads")


def unchecked_text(values: list[bytes]) -> pa.Array:
    """A text column whose bytes are unchecked, as Spark makes it from a binary column."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


NOT_UTF8 = unchecked_text([b"ok", b"\xff\x00", b"fine"])
PAYLOADS = pa.array([b"1", b"2", b"3"], pa.binary())


@pytest.mark.parametrize(
    ("table", "columns", "column"),
    [
        ({"v": PAYLOADS, "k": NOT_UTF8}, {"value": "v", "key": "k"}, "k"),
        ({"v": PAYLOADS, "k": NOT_UTF8}, {"encoding": "json"}, "k"),
        (
            {"v": PAYLOADS, "p": pa.StructArray.from_arrays([NOT_UTF8], ["text"])},
            {"value": "v", "properties": "p"},
            "p",
        ),
        (
            {
                "v": PAYLOADS,
                "p": pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "c"]), NOT_UTF8),
            },
            {"value": "v", "properties": "p"},
            "p",
        ),
    ],
    ids=["key", "json", "properties of a struct", "properties of a map"],
)
async def test_text_that_is_not_utf8_is_refused_and_nothing_of_its_frame_is_sent(
    client: Any, topic: str, table: dict[str, Any], columns: dict[str, str], column: str
) -> None:
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match=f'column "{column}"'):
            await producer.send_frame(pa.table(table), **columns)
        await producer.send(b"after")
        (message,) = await receive(consumer, 1)
        assert message.data == b"after"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
async def test_text_that_is_the_payload_is_sent_byte_for_byte(client: Any, topic: str, kind: Any) -> None:
    values = [b"ok", b"\xff\x00", b"longer than what a view holds inline \xc3", b""]
    binary = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    column = pa.array(values, binary[kind])
    text = pa.Array.from_buffers(kind, len(column), column.buffers())
    async with client.consumer(topic, "s") as consumer, client.producer(topic) as producer:
        await producer.send_frame(pa.table({"v": text}), value="v")
        assert [message.data for message in await receive(consumer, 4)] == values


async def test_the_row_that_is_not_utf8_is_named(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        batches = [pa.record_batch({"k": pa.array(["a"] * 500)}), pa.record_batch({"k": NOT_UTF8})]
        with pytest.raises(errors.InvalidArgument, match='row 501 of column "k" is not valid UTF-8'):
            await producer.send_frame(pa.Table.from_batches(batches), encoding="json")


async def test_offsets_that_point_outside_are_refused(client: Any, topic: str) -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 4096, 4)))
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"text")])
    async with client.producer(topic) as producer:
        with pytest.raises(errors.InvalidArgument, match='column "v"'):
            await producer.send_frame(pa.table({"v": column}), value="v")


async def test_a_column_is_not_a_frame(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        for column in (pa.array([b"x"]), pa.chunked_array([[b"x"]])):
            with pytest.raises((TypeError, ValueError)):
                await producer.send_frame(column, value="v")


async def test_what_is_no_frame_is_refused(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        with pytest.raises((errors.InvalidArgument, TypeError)):
            await producer.send_frame([1, 2, 3], value="x")
