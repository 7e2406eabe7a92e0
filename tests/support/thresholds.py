"""Rows for verbs that take many: their number and sizes cross the limits of producers, clients and brokers
at once. Each row has fields of its own, and what another client reads is compared row by row."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from forebay import errors

from support.waiting import PATIENCE

SEEDS = int(os.environ.get("NET_SEEDS", "4"))
"""How many shapes are played. `make test-deep` plays more, and the first are these."""

each_seed = pytest.mark.parametrize("seed", range(SEEDS))


@dataclass
class Row:
    """A message. Fields that its verb cannot say have their default."""

    payload: bytes
    key: str | None = None
    properties: dict[str, str] = field(default_factory=dict[str, str])
    event_time: int | None = None
    ordering_key: bytes | None = None
    topic: str | None = None
    kind: str | None = None


class Shape:
    """Choices by a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def one(self, *of: Any) -> Any:
        return self.chance.choice(of)

    def sizes(self, limit: int) -> Iterator[int]:
        """Bytes of payloads: few, and now and then just below, at and beyond a limit."""
        while True:
            near = self.chance.random() < 0.08
            yield max(limit + self.chance.randint(-3, 3), 0) if near else self.chance.randrange(300)

    def text(self, longest: int = 40) -> str:
        return "".join(self.chance.choices("abcdefghijklmnop äß€😀/%-_.", k=self.chance.randint(1, longest)))

    def properties(self, letters: str = "abcdefgh äß€😀") -> dict[str, str]:
        names = self.chance.sample(
            ["till", "Straße", "a b", "x-1", "trace"], self.chance.choice((0, 0, 1, 3))
        )
        return {name: "".join(self.chance.choices(letters, k=self.chance.randrange(60))) for name in names}

    def split(self, rows: Sequence[Row], calls: int) -> list[list[Row]]:
        """The rows in the given number of calls; some are empty."""
        cuts = sorted(self.chance.randint(0, len(rows)) for _ in range(calls - 1))
        return [list(rows[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


async def one_by_one(producer: Any, rows: Sequence[Row], fields: Any) -> list[Any]:
    """Sends each row in a call of its own, without waiting in between unless the producer says so."""
    sent: list[Any] = []
    for row in rows:
        while True:
            try:
                sent.append(producer.send(row.payload, **fields(row)))
                break
            except (errors.QueueFull, errors.MemoryLimit):
                # Other calls may have all the room.
                await asyncio.sleep(0.002)
    return list(await asyncio.gather(*sent))


def table(rows: Sequence[Row], *columns: str) -> pa.Table:
    """The rows as a table with ``payload`` and these columns, in chunks of different lengths."""
    types = {
        "properties": pa.map_(pa.string(), pa.string()),
        "payload": pa.binary(),
        "event_time": pa.int64(),
    }
    types["ordering_key"] = pa.binary()
    schema = pa.schema([(name, types.get(name, pa.string())) for name in ("payload", *columns)])
    half = len(rows) // 3
    batches = [
        pa.record_batch(
            [
                pa.array(
                    [
                        list(row.properties.items()) if name == "properties" else getattr(row, name)
                        for row in part
                    ],
                    schema.field(name).type,
                )
                for name in schema.names
            ],
            schema=schema,
        )
        for part in (rows[:half], rows[half:])
    ]
    return pa.Table.from_batches(batches, schema)


async def take(consumer: Any, count: int, shape: Shape, hold: Sequence[int] = (0, 10, 100)) -> list[Any]:
    """Exactly ``count`` messages, by all verbs that receive messages and all that acknowledge them.

    Args:
        consumer: receives them.
        count: their number.
        shape: chooses the verbs.
        hold: how many stay without acknowledgement: brokers of MQTT send no more than some ahead.
    """
    got: list[Any] = []
    held: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(got) < count:
            left = count - len(got)
            match shape.chance.randrange(3):
                case 0:
                    some = [await consumer.receive()]
                case 1:
                    some = await consumer.receive_many(min(left, shape.one(1, 7, 1000)))
                case _:
                    limit = shape.one(None, 1, 5000)
                    some = await consumer.receive_batch(
                        min(left, shape.one(1, 50, 1000)), max_bytes=limit, timeout=0.05
                    )
            got += some
            held += some
            # Now and then, and in any order.
            if len(held) > shape.one(*hold) or len(got) == count:
                shape.chance.shuffle(held)
                if shape.one(True, False):
                    await consumer.ack_many(held)
                else:
                    await asyncio.gather(*[consumer.ack(message) for message in held])
                held = []
    return got


def milliseconds(time: Any) -> int | None:
    """A time in a table, as messages have it."""
    return None if time is None else round(time.timestamp() * 1000)


async def take_rows(consumer: Any, count: int, shape: Shape) -> list[dict[str, Any]]:
    """Exactly ``count`` rows of tables."""
    got: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while len(got) < count:
            part = await consumer.read_frame(min(count - len(got), shape.one(1, 30, 1000)), timeout=PATIENCE)
            got += pa.table(part).to_pylist()
    return got
