"""Verbs that take many, beyond each limit at once: window, memory, packets in flight and topic aliases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import forebay

from support.mqtt.harness import MqttService
from support.mqtt.wire import V5
from support.thresholds import Row, Shape, each_seed, one_by_one, table, take, take_rows
from support.waiting import PATIENCE

TOPICS = 130
"""More than any of the brokers has aliases for."""
ROWS = 400


def fields(row: Row) -> dict[str, Any]:
    given: dict[str, Any] = {"topic": row.topic}
    if row.properties:
        given["properties"] = row.properties
    if row.kind is not None:
        given |= {"content_type": row.kind, "correlation_data": row.ordering_key}
    return given


def seen(message: Any) -> tuple[Any, ...]:
    return message.topic, dict(message.user_properties), message.content_type, message.correlation_data


async def send(producer: Any, verb: str, rows: list[Row]) -> None:
    if verb == "send":
        await one_by_one(producer, rows, fields)
    elif verb == "send_many":
        await producer.send_many([row.payload for row in rows], [row.topic for row in rows])
    else:
        columns = {"topic": "topic"}
        if any(row.properties for row in rows):
            columns["properties"] = "properties"
        await producer.send_frame(table(rows, *columns), value="payload", **columns)


@each_seed
async def test_each_row_keeps_its_fields(
    broker: MqttService, version: int, topic: str, seed: int, tmp_path: Path
) -> None:
    shape = Shape(seed)
    largest = shape.one(300, 3000)
    sizes = shape.sizes(largest)
    words: dict[str, Any] = {"version": "5" if version == V5 else "3.1.1", "connect_timeout": PATIENCE}
    sending_options: dict[str, Any] = {
        "max_inflight": shape.one(1, 3, 1000),
        "topic_alias_maximum": shape.one(0, 5, 100),
        "memory_limit": shape.one("20kB", "64MiB"),
    }
    if version != V5:
        del sending_options["topic_alias_maximum"]
    if shape.one(True, False):
        sending_options |= {"outbox": tmp_path / "outbox", "client_id": topic.replace("/", "-")}
    rows: list[Row] = []
    for number in range(ROWS):
        where = f"{topic}/{shape.chance.randrange(TOPICS)}"
        row = Row(b"%d " % number + bytes(next(sizes)), topic=where)
        if version == V5:
            row.properties = shape.properties()
            if shape.one(True, False):
                row.kind, row.ordering_key = shape.text(), b"\0%d" % number
        rows.append(row)
    calls = [(shape.one("send", "send_many", "send_frame"), part) for part in shape.split(rows, 6)]
    for verb, part in calls:
        if verb == "send_many":
            part[:] = [Row(row.payload, topic=row.topic) for row in part]
        elif verb == "send_frame":
            part[:] = [Row(row.payload, topic=row.topic, properties=row.properties) for row in part]
    qos = shape.one(1, 2)
    async with (
        forebay.connect(broker.url, receive_maximum=shape.one(5, 20, 1000), **words) as reading,
        reading.consumer(f"{topic}/#", qos=qos) as consumer,
        forebay.connect(broker.url, **words) as others,
        others.consumer(f"{topic}/+", qos=qos, auto_ack=True) as frames,
        forebay.connect(broker.url, **words, **sending_options) as client,
        client.producer(f"{topic}/default", qos=qos, max_pending=shape.one(1, 3, 40)) as producer,
    ):
        taking = asyncio.ensure_future(take(consumer, ROWS, shape, hold=[0]))
        taking_rows = asyncio.ensure_future(take_rows(frames, ROWS, shape))
        await asyncio.gather(*[send(producer, verb, part) for verb, part in calls])
        got, found = await taking, await taking_rows
        assert await consumer.receive_many(timeout=0.1) == []
    sent = {row.payload: row for _, part in calls for row in part}
    assert {bytes(message.data): seen(message) for message in got} == {
        payload: (row.topic, row.properties, row.kind, row.ordering_key) for payload, row in sent.items()
    }
    assert {row["value"]: (row["topic"], dict(row["properties"]), row["content_type"]) for row in found} == {
        payload: (row.topic, row.properties, row.kind) for payload, row in sent.items()
    }
    # The order of a call holds on each topic.
    place = {bytes(message.data): number for number, message in enumerate(got)}
    for verb, part in calls:
        for where in {row.topic for row in part}:
            order = [place[row.payload] for row in part if row.topic == where]
            assert order == sorted(order), (verb, where)
