"""Verbs that take many, beyond each limit at once: window, memory, polls and partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import forebay

from support.thresholds import Row, Shape, each_seed, milliseconds, one_by_one, table, take, take_rows
from support.tubemq.harness import TubeMqService, group
from support.waiting import PATIENCE

ROWS = 400
TIMES = [(28_333_333 + number) * 60_000 for number in range(ROWS)]
"""Whole minutes, as brokers store them."""
WORDS = "abc ä€😀"
"""Letters of properties, which cannot have ``,`` and ``=``."""


def fields(row: Row) -> dict[str, Any]:
    return {
        "key": row.key,
        "properties": row.properties or None,
        "message_type": row.kind,
        "event_time": row.event_time,
    }


def seen(message: Any) -> tuple[Any, ...]:
    return message.key, dict(message.properties), message.message_type, event_time(message.event_time)


def event_time(at: int | None) -> int | None:
    """The time of a row; with a type, one that has none gets the present minute."""
    return at if at in TIMES else None


async def send(producer: Any, verb: str, rows: list[Row]) -> list[Any]:
    if verb == "send":
        return await one_by_one(producer, rows, fields)
    if verb == "send_many":
        return list(await producer.send_many([row.payload for row in rows], [row.key for row in rows]))
    columns = {"key": "key", "properties": "properties", "event_time": "event_time", "message_type": "kind"}
    return list(await producer.send_frame(table(rows, *columns.values()), value="payload", **columns))


@each_seed
async def test_each_row_keeps_its_fields(tube: TubeMqService, seed: int) -> None:
    shape = Shape(seed)
    topic = tube.topic(partitions=shape.one(1, 3))
    sizes = shape.sizes(shape.one(500, 30_000))
    rows = [
        Row(
            b"%d " % number + bytes(next(sizes)),
            shape.one(None, "k", f"k{number % 7}"),
            shape.properties(WORDS),
            shape.one(None, TIMES[number]),
            kind=shape.one(None, "till", "Aa"),
        )
        for number in range(ROWS)
    ]
    calls = [(shape.one("send", "send_many", "send_frame"), part) for part in shape.split(rows, 6)]
    for verb, part in calls:
        if verb == "send_many":
            part[:] = [Row(row.payload, row.key) for row in part]
    patient = {"connect_timeout": PATIENCE, "request_timeout": PATIENCE}
    async with (
        forebay.connect(tube.url, receive_buffer=shape.one("10kB", "16MiB"), **patient) as reading,
        reading.consumer(topic, group(), position="first") as consumer,
        forebay.connect(tube.url, **patient) as others,
        others.consumer(topic, group(), position="first", auto_ack=True) as frames,
        forebay.connect(tube.url, memory_limit=shape.one("100kB", "64MiB"), **patient) as client,
        client.producer(topic, max_pending=shape.one(1, 3, 40), send_timeout=PATIENCE) as producer,
    ):
        taking = asyncio.ensure_future(take(consumer, ROWS, shape, hold=[0]))
        taking_rows = asyncio.ensure_future(take_rows(frames, ROWS, shape))
        receipts = await asyncio.gather(*[send(producer, verb, part) for verb, part in calls])
        got, found = await taking, await taking_rows
        assert await consumer.receive_many(timeout=0.1) == []
    sent = {row.payload: row for _, part in calls for row in part}
    wanted = {payload: (row.key, row.properties, row.kind, row.event_time) for payload, row in sent.items()}
    assert {bytes(message.data): seen(message) for message in got} == wanted
    assert {
        row["value"]: (
            row["key"],
            dict(row["properties"]),
            row["message_type"],
            event_time(milliseconds(row["event_time"])),
        )
        for row in found
    } == wanted
    places = {
        row.payload: place
        for (_, part), some in zip(calls, receipts, strict=True)
        for row, place in zip(part, some, strict=True)
    }
    assert {(one.broker_id, one.partition) for one in places.values()} == {
        (message.broker_id, message.partition) for message in got
    }
