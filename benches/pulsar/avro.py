"""Avro: rows of a DataFrame, encoded and decoded in Rust, beside the records of pulsar-client."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from benches.clock import Clock

ROWS = 10_000
READY = 30


def _columns(count: int) -> Any:
    import pyarrow as pa

    numbers = range(count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "customer": pa.array([f"customer-{number % 1000:04}" for number in numbers]),
            "price": pa.array([number / 7 for number in numbers], pa.float64()),
            "quantity": pa.array([number % 9 for number in numbers], pa.int32()),
            "paid": pa.array([number % 3 == 0 for number in numbers]),
            "note": pa.array([None if number % 2 else "to be called first" for number in numbers]),
        }
    )


def _records() -> tuple[Any, type[Any]]:
    """The schema module of pulsar-client, and the same record. By name: it carries partial types."""
    schema: Any = importlib.import_module("pulsar.schema")
    fields = {
        "id": schema.Long(required=True),
        "customer": schema.String(required=True),
        "price": schema.Double(required=True),
        "quantity": schema.Integer(required=True),
        "paid": schema.Boolean(required=True),
        "note": schema.String(),
    }
    return schema, type("Order", (schema.Record,), fields)


def _peer(url: str) -> Any:
    pulsar: Any = importlib.import_module("pulsar")
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


async def forebay_avro_send(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    frame = _columns(ROWS)
    async with (
        forebay.connect(url) as client,
        client.producer(f"{topic}-avro", schema=forebay.pulsar.Schema.avro(frame.schema)) as producer,
    ):
        await producer.send_frame(frame)
        clock = Clock(count)
        for _ in range(count // ROWS):
            await producer.send_frame(frame)
        return clock.stop()


async def forebay_avro_read(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    import forebay

    schema = forebay.pulsar.Schema.avro(_columns(1).schema)
    async with (
        forebay.connect(url) as client,
        client.reader(f"{topic}-avro", position="earliest", schema=schema) as reader,
    ):
        await reader.receive(timeout=READY)
        clock, left = Clock(count), count
        while left > 0:
            left -= (await reader.read_frame(min(left, ROWS), timeout=READY)).num_rows
        return clock.stop()


def peer_avro_send(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    schema, order = _records()
    client = _peer(url)
    producer = client.create_producer(
        f"{topic}-avro-peer", schema=schema.AvroSchema(order), batching_enabled=True, block_if_queue_full=True
    )
    rows = _columns(ROWS).to_pylist()
    producer.send(order(**rows[0]))
    left, done = [count], threading.Event()

    def sent(result: Any, message_id: Any) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    clock = Clock(count)
    for number in range(count):
        producer.send_async(order(**rows[number % ROWS]), sent)
    done.wait()
    report = clock.stop()
    client.close()
    return report


def peer_avro_read(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """Into columns as well."""
    import pyarrow as pa

    pulsar: Any = importlib.import_module("pulsar")
    schema, order = _records()
    client = _peer(url)
    reader = client.create_reader(
        f"{topic}-avro-peer", pulsar.MessageId.earliest, schema=schema.AvroSchema(order)
    )
    reader.read_next(READY * 1000)
    clock, left = Clock(count), count
    names = _columns(1).column_names
    while left > 0:
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for _ in range(min(left, ROWS)):
            value = reader.read_next(READY * 1000).value()
            for name in names:
                columns[name].append(getattr(value, name))
            left -= 1
        pa.table(columns)
    report = clock.stop()
    client.close()
    return report
