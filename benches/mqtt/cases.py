"""Cases of MQTT: Forebay's ways to publish and receive, and those of its peers.

Each takes the port, the topic, the number of messages and their QoS. Version 5.0, 100 bytes, at most 100
unacknowledged.
"""

from __future__ import annotations

from typing import Any

from benches.mqtt.load import BODY, WINDOW, Publish, Report, feed, one_by_one, received, timed, windowed
from benches.mqtt.peers import *  # noqa: F403
from benches.mqtt.programs import *  # noqa: F403


def _connect(port: int) -> Any:
    import forebay

    options: Any = {"version": 5, "max_inflight": WINDOW}
    return forebay.connect(f"mqtt://127.0.0.1:{port}", **options)


async def forebay_publish(port: int, topic: str, count: int, qos: int) -> Report:
    import forebay

    async with _connect(port) as client, client.producer(topic, qos=qos) as producer:

        async def admitted(send: Publish, times: int) -> None:
            for _ in range(times):
                try:
                    producer.send_nowait(BODY)
                except forebay.QueueFull:
                    await producer.flush()
                    producer.send_nowait(BODY)

        async def marker() -> None:
            if not qos:
                await client.publish("mark", b"", qos=1)

        return await timed(windowed if qos else admitted, lambda: producer.send(BODY), count, marker)


async def forebay_publish_many(port: int, topic: str, count: int, qos: int) -> Report:
    async with _connect(port) as client, client.producer(topic, qos=qos) as producer:

        async def many(send: Publish, times: int) -> None:
            for start in range(0, times, 10_000):
                await producer.send_many([BODY] * min(10_000, times - start))

        async def marker() -> None:
            if not qos:
                await client.publish("mark", b"", qos=1)

        return await timed(many, marker, count, marker)


async def forebay_one(port: int, topic: str, count: int, qos: int) -> Report:
    async with _connect(port) as client, client.producer(topic, qos=qos) as producer:
        return await timed(
            one_by_one, lambda: producer.send(BODY), count, lambda: client.publish("mark", b"", qos=1)
        )


async def forebay_keep(port: int, topic: str, count: int, qos: int) -> Report:
    """Publishes to a session that is away: the broker has stored a message when it acknowledges it."""
    import forebay

    options: Any = {"version": 5, "client_id": topic, "clean_start": False, "session_expiry": 600}
    async with forebay.connect(f"mqtt://127.0.0.1:{port}", **options) as client:
        # The subscription outlives its connection.
        await client.consumer(topic, qos=qos)
    return await forebay_publish(port, topic, count, qos)


async def forebay_receive(port: int, topic: str, count: int, qos: int) -> Report:
    async with _connect(port) as client:

        async def receive(name: str, left: int) -> None:
            async with client.consumer(name, qos=qos) as consumer:
                feed(port, name, left, qos)
                async for message in consumer:
                    await consumer.ack(message)
                    left -= 1
                    if not left:
                        break
                assert not left, "the messages ended early"

        return await received(receive, topic, count)


async def forebay_receive_many(port: int, topic: str, count: int, qos: int) -> Report:
    async with _connect(port) as client:

        async def receive(name: str, left: int) -> None:
            async with client.consumer(name, qos=qos) as consumer:
                feed(port, name, left, qos)
                while left:
                    messages = await consumer.receive_many(1000, timeout=30)
                    assert messages, "no message in 30 s"
                    await consumer.ack_many(messages)
                    left -= len(messages)

        return await received(receive, topic, count)
