"""Listeners on MQTT, which has no word for a message that was not processed."""

from __future__ import annotations

import asyncio
from typing import Any

import forebay

from support.messages import numbered
from support.mqtt.harness import MqttService
from support.waiting import until


async def test_topics_run_side_by_side_and_a_failure_is_counted(
    broker: MqttService, topic: str, client_id: str
) -> None:
    got: dict[str, list[bytes]] = {}
    hangs = asyncio.Event()

    async def callback(message: Any) -> None:
        if message.topic.endswith("/hangs"):
            await hangs.wait()
        if message.data == b"m000003":
            raise RuntimeError("no stock")
        got.setdefault(message.topic, []).append(bytes(message.data))

    rest = [payload for number, payload in enumerate(numbered(10)) if number != 3]
    async with forebay.connect(broker.url, client_id=client_id) as client:
        async with client.consumer(f"{topic}/#", qos=1) as consumer:
            async with consumer.listen(callback, concurrency=2) as listener:
                await client.publish(f"{topic}/hangs", b"x", qos=1)
                await until(lambda: listener.stats()["running"] == 1)
                hangs.set()
                for payload in numbered(10):
                    await client.publish(f"{topic}/a", payload, qos=1)
                await until(lambda: listener.stats()["handled"] == 10)
                # All are acknowledged: the window of the server would be closed otherwise.
                for payload in numbered(100):
                    await client.publish(f"{topic}/b", payload, qos=1)
                await until(lambda: listener.stats()["handled"] == 109)
    assert listener.stats() == {"handled": 109, "failed": 2, "running": 0, "waiting": 0}
    assert got[f"{topic}/a"] == rest
