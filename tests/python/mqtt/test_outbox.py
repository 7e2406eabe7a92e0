"""The durable outbox: a message that ``send`` reported as kept reaches the broker, whatever happens to the
client."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import blocking, errors

NOWHERE = "mqtt://127.0.0.1:1"


@pytest.fixture(scope="module")
def url():
    with forebay.Broker(mqtt_port=0, mqtt_max_packet_size="64KiB") as broker:
        yield broker.mqtt_url


async def emptied(client: Any) -> None:
    async with asyncio.timeout(90):
        while client.stats()["outbox_messages"]:
            await asyncio.sleep(0.01)


async def numbers(consumer: Any, enough: int) -> dict[int, list[int]]:
    """Messages by QoS, in order of arrival, until ``count`` different ones are there."""
    came: dict[int, list[int]] = {1: [], 2: []}
    while len({*came[1], *came[2]}) < enough:
        message = await consumer.receive(timeout=90)
        came[message.qos].append(int(bytes(message.data)))
    return came


async def test_what_was_kept_without_a_broker_is_sent_by_the_next_client(url: str, tmp_path: Path):
    path = tmp_path / "out.db"
    async with forebay.connect(NOWHERE, outbox=path) as client:
        assert not client.stats()["connected"]
        async with client.producer("next") as producer:
            for number in range(50):
                await producer.send(b"%d" % number, qos=1 + number % 2)
            assert await producer.send_many([b"50", b"52"]) is not None
            await client.publish("next", b"51", qos=2)
        stats = client.stats()
        assert stats["outbox_messages"] == 53
        assert stats["outbox_bytes"] > 0
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with forebay.connect(url) as reader, reader.subscribe("next", qos=2) as consumer:
        async with forebay.connect(url, outbox=path) as client:
            came = await numbers(consumer, 53)
            await emptied(client)
    assert came[1] == [*range(0, 50, 2), 50, 52]
    assert came[2] == list(range(1, 53, 2))


async def test_the_session_of_an_outbox_keeps_its_name(url: str, tmp_path: Path):
    path = tmp_path / "out.db"
    async with forebay.connect(url, outbox=path) as client:
        name = client.stats()["client_id"]
        with pytest.raises(errors.InvalidArgument, match="another client has it open"):
            await forebay.connect(url, outbox=path)
    async with forebay.connect(url, outbox=path) as client:
        assert client.stats()["client_id"] == name
        assert client.stats()["session_present"]


async def test_a_full_outbox_refuses_and_what_the_broker_refuses_is_counted(url: str, tmp_path: Path):
    options = {"outbox": tmp_path / "full.db", "outbox_limit": "200KiB", "offline": "spill"}
    async with forebay.connect(NOWHERE, **options) as client:  # pyright: ignore[reportArgumentType]
        async with client.producer("full") as producer:
            with pytest.raises(errors.QueueFull, match="outbox"):
                for _ in range(100):
                    producer.send_nowait(bytes(10_000))
    async with forebay.connect(url, outbox=tmp_path / "large.db") as client:
        await client.publish("large", bytes(100_000), qos=1)
        await client.publish("large", b"small", qos=1)
        await emptied(client)
        stats = client.stats()
        assert stats["outbox_refused"] == 1
        assert "packet" in stats["outbox_last_refusal"]


def test_the_blocking_face_has_it_too(url: str, tmp_path: Path):
    with blocking.connect(NOWHERE, outbox=tmp_path / "out.db") as client:
        client.publish("blocking", b"kept", qos=2)
    with blocking.connect(url) as reader, reader.subscribe("blocking", qos=2) as consumer:
        with blocking.connect(url, outbox=tmp_path / "out.db"):
            assert bytes(consumer.receive(timeout=90).data) == b"kept"


async def test_a_file_that_is_no_outbox_is_refused(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("not yours")
    with pytest.raises(errors.InvalidArgument, match="not an outbox"):
        await forebay.connect(NOWHERE, outbox=path)
    assert path.read_text() == "not yours"
