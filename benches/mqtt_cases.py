"""One MQTT measurement in a process of its own: ``python mqtt_cases.py CASE PORT TOPIC COUNT QOS`` prints a
JSON line as ``cases.py`` does. Version 5.0, 100 bytes, at most 100 unanswered.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import mqtt_clients
import mqtt_native
from mqtt_load import BODY, Publish, Report, feed, one_by_one, received, timed, windowed


def _connect(port: int) -> Any:
    import penstock

    options: Any = {"version": 5}
    return penstock.connect(f"mqtt://127.0.0.1:{port}", **options)


async def penstock_publish(port: int, topic: str, count: int, qos: int) -> Report:
    import penstock

    async with _connect(port) as client, client.producer(topic, qos=qos) as producer:

        async def admitted(send: Publish, times: int) -> None:
            for _ in range(times):
                try:
                    producer.send_nowait(BODY)
                except penstock.QueueFull:
                    await producer.flush()
                    producer.send_nowait(BODY)

        async def marker() -> None:
            if not qos:
                await client.publish("mark", b"", qos=1)

        return await timed(windowed if qos else admitted, lambda: producer.send(BODY), count, marker)


async def penstock_publish_many(port: int, topic: str, count: int, qos: int) -> Report:
    async with _connect(port) as client, client.producer(topic, qos=qos) as producer:

        async def many(send: Publish, times: int) -> None:
            for start in range(0, times, 10_000):
                await producer.send_many([BODY] * min(10_000, times - start))

        async def marker() -> None:
            if not qos:
                await client.publish("mark", b"", qos=1)

        return await timed(many, marker, count, marker)


async def penstock_one(port: int, topic: str, count: int, qos: int) -> Report:
    async with _connect(port) as client, client.producer(topic, qos=qos) as producer:
        return await timed(
            one_by_one, lambda: producer.send(BODY), count, lambda: client.publish("mark", b"", qos=1)
        )


async def penstock_receive(port: int, topic: str, count: int, qos: int) -> Report:
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


async def penstock_receive_many(port: int, topic: str, count: int, qos: int) -> Report:
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


CASES: dict[str, Callable[..., Any]] = {
    name: value
    for source in (globals(), vars(mqtt_clients), vars(mqtt_native))
    for name, value in source.items()
    if name.endswith(("_publish", "_publish_many", "_one", "_receive", "_receive_many", "_receive_callback"))
}


def main() -> None:
    name, port, topic, count, qos = sys.argv[1:]
    result = CASES[name](int(port), topic, int(count), int(qos))
    if asyncio.iscoroutine(result):
        result = asyncio.run(result)
    print(json.dumps(result), flush=True)
    # Clients are not closed one by one: what they still owe is not measured.
    os._exit(0)


if __name__ == "__main__":
    main()
