"""The end of an iteration over messages."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import forebay
from forebay import blocking, errors

PATIENCE = 30


def subscribed(broker: Any) -> dict[str, str]:
    """Options of a consumer."""
    return {} if broker.url.startswith("mqtt") else {"subscription": "s"}


@pytest.mark.parametrize("closes", ["consumer", "client"])
async def test_a_loop_ends_when_another_task_closes(broker: Any, closes: str) -> None:
    topic = broker.topic()
    client: Any = await forebay.connect(broker.url)
    consumer = await client.consumer(topic, **subscribed(broker))
    producer = await client.producer(topic)
    found: list[bytes] = []
    first = asyncio.Event()

    async def read() -> None:
        async for message in consumer:
            found.append(message.data)
            first.set()

    reading = asyncio.ensure_future(read())
    await producer.send(b"x")
    await asyncio.wait_for(first.wait(), PATIENCE)
    await (consumer if closes == "consumer" else client).close()
    await asyncio.wait_for(reading, PATIENCE)
    assert found == [b"x"]
    with pytest.raises(errors.Closed):
        await consumer.receive(timeout=1)
    with pytest.raises(errors.Closed):
        await read()
    await client.close()


@pytest.mark.parametrize("closes", ["consumer", "client"])
def test_a_blocking_loop_ends_when_another_thread_closes(broker: Any, closes: str) -> None:
    topic = broker.topic()
    client: Any = blocking.connect(broker.url)
    consumer = client.consumer(topic, **subscribed(broker))
    first = threading.Event()

    def read() -> list[bytes]:
        found: list[bytes] = []
        for message in consumer:
            found.append(message.data)
            first.set()
        return found

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        client.producer(topic).send(b"x")
        assert first.wait(PATIENCE)
        (consumer if closes == "consumer" else client).close()
        assert reading.result(PATIENCE) == [b"x"]
    with pytest.raises(errors.Closed):
        consumer.receive(timeout=1)
    with pytest.raises(errors.Closed):
        read()
    client.close()
