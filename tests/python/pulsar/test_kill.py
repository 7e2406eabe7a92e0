"""``forebay broker --data`` killed and stopped: what it has confirmed is there again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay

from support.kill import brokers_on
from support.messages import numbered, receive
from support.service import BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with brokers_on(tmp_path / "data") as start:
        yield start()


def connect(broker: BrokerProcess) -> Any:
    return forebay.connect(broker.url, max_backoff=0.1, operation_timeout=30)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_acknowledgements_with_a_receipt_outlive_a_kill(broker: BrokerProcess) -> None:
    topic = "persistent://public/default/acked"
    async with connect(broker) as client, client.producer(topic) as producer:
        async with client.consumer(topic, "s", type="shared", ack_receipt=True) as consumer:
            for round_ in range(5):
                await producer.send_many([b"%d-%d" % (round_, i) for i in range(100)])
                messages = await receive(consumer, 100)
                assert all(bytes(message.data).startswith(b"%d-" % round_) for message in messages)
                await consumer.ack_many(messages)
                await asyncio.to_thread(broker.end)
                await asyncio.to_thread(broker.start)


async def test_a_broker_that_is_told_to_stop_stops_cleanly_and_keeps_everything(
    broker: BrokerProcess,
) -> None:
    topic = "persistent://public/default/stopped"
    async with connect(broker) as client:
        async with client.producer(topic) as producer:
            await producer.send_many(numbered(1000))
    assert await asyncio.to_thread(broker.end, signal.SIGTERM) == 0
    await asyncio.to_thread(broker.start)
    async with connect(broker) as client, client.consumer(topic, "s", position="earliest") as consumer:
        assert [bytes(message.data) for message in await receive(consumer, 1000)] == numbered(1000)


async def test_sequence_ids_of_a_named_producer_outlive_a_kill(broker: BrokerProcess) -> None:
    topic = "persistent://public/default/named"
    async with connect(broker) as client:
        async with client.producer(topic, name="p") as producer:
            await producer.send_many(numbered(10))
    await asyncio.to_thread(broker.end)
    await asyncio.to_thread(broker.start)
    async with connect(broker) as client, client.producer(topic, name="p") as producer:
        assert producer.last_sequence_id == 9


async def test_two_brokers_cannot_share_a_folder(broker: BrokerProcess) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "forebay", "broker", "--data", str(broker.data), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert second.stderr.strip()
