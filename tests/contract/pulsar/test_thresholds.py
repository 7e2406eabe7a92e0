"""Verbs that take many, beyond each limit at once: window, memory, batches, chunks and partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import forebay

from support.pulsar.harness import PulsarService
from support.thresholds import Row, Shape, each_seed, milliseconds, one_by_one, table, take, take_rows
from support.waiting import PATIENCE, until

FULL = ("key", "properties", "event_time", "ordering_key")


def fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FULL}


def seen(message: Any) -> tuple[Any, ...]:
    return bytes(message.data), *(getattr(message, name) for name in FULL)


async def send(producer: Any, verb: str, rows: list[Row]) -> list[Any]:
    if verb == "send":
        return await one_by_one(producer, rows, fields)
    if verb == "send_many":
        return list(await producer.send_many([row.payload for row in rows], [row.key for row in rows]))
    columns = {name: name for name in FULL}
    return list(await producer.send_frame(table(rows, *FULL), value="payload", **columns))


@each_seed
async def test_each_row_keeps_its_fields(service: PulsarService, seed: int) -> None:
    shape = Shape(seed)
    partitions = shape.one(0, 3)
    topic = service.topic(partitions)
    chunk = shape.one(None, 2000)
    batch = shape.one(1, 500, 4000)
    producing: dict[str, Any] = {
        "max_pending": shape.one(1, 3, 40, 1000),
        "batching": chunk is None,
        "batch_max_bytes": batch,
        "batch_max_messages": shape.one(1, 2, 37),
        "batching_delay": shape.one(0, 0.01),
        "key_based_batching": shape.one(True, False),
        "compression": shape.one("none", "lz4", "zstd", "zlib", "snappy"),
        "chunking": chunk is not None,
        "chunk_max_size": chunk,
        "routing": shape.one("round_robin", "single"),
    }
    kind = shape.one("exclusive", "shared", "key_shared")
    consuming: dict[str, Any] = {
        "receiver_queue": shape.one(1, 10, 1000),
        "receive_buffer": shape.one("10kB", "16MiB"),
        "type": kind if chunk is None or kind == "exclusive" else "shared",
        "ack_receipt": shape.one(True, False),
    }
    sizes = shape.sizes(batch if chunk is None else chunk)
    rows = [
        Row(
            shape.one(b"%d " % number, b"%d " % number, b"") + bytes(next(sizes)),
            shape.one(None, "", "k", shape.text()),
            shape.properties(),
            shape.one(None, 1_700_000_000_000 + number),
            shape.one(None, None, b"\0\xff", b"o%d" % number),
        )
        for number in range(500)
    ]
    calls = [(shape.one("send", "send_many", "send_frame"), part) for part in shape.split(rows, 8)]
    for verb, part in calls:
        if verb == "send_many":
            part[:] = [Row(row.payload, row.key) for row in part]
    patient = {"connect_timeout": PATIENCE, "operation_timeout": PATIENCE}
    async with (
        forebay.connect(service.url, **patient) as reading,
        reading.consumer(topic, "s", **consuming) as consumer,
        reading.reader(topic, position="earliest") as reader,
        forebay.connect(service.url, memory_limit=shape.one("20kB", "64MiB"), **patient) as client,
        client.producer(topic, send_timeout=PATIENCE, **producing) as producer,
    ):
        sending = [asyncio.ensure_future(send(producer, verb, part)) for verb, part in calls]
        taking = asyncio.ensure_future(take(consumer, len(rows), shape))
        receipts = await asyncio.gather(*sending)
        sent = {
            str(place): (row.payload, *fields(row).values())
            for (_, part), places in zip(calls, receipts, strict=True)
            for row, place in zip(part, places, strict=True)
        }
        assert len(sent) == len(rows)
        got = await taking
        assert {str(message.id): seen(message) for message in got} == sent
        place = {str(message.id): number for number, message in enumerate(got)}
        if consuming["type"] == "exclusive":
            # The order of a call holds within a partition.
            for places in receipts:
                for partition in {one.partition for one in places}:
                    order = [place[str(one)] for one in places if one.partition == partition]
                    assert order == sorted(order)
        parts = [last.topic for last in await consumer.last_message_ids()]
        await until(lambda: sum(service.backlog(part, "s") for part in parts) == 0)
        found = {row["message_id"]: row for row in await take_rows(reader, len(rows), shape)}
    assert {
        name: (row["value"], row["key"], dict(row["properties"]), milliseconds(row["event_time"]))
        for name, row in found.items()
    } == {name: row[:4] for name, row in sent.items()}
