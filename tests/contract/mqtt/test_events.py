"""Connection events: what a program learns of its connections, and when."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

from support.mqtt.harness import MqttService, take
from support.observing import behind, follow_a_loss, raise_in_callbacks, seek
from support.scripts import free_port
from support.waiting import eventually


async def test_a_lost_connection_is_told_and_the_way_back(broker: MqttService, topic: str) -> None:
    async with behind(broker.url, told=False) as (proxy, url):
        client: Any = await forebay.connect(url, max_backoff=0.2)
        consumer = await client.consumer(topic, qos=1)

        async def works() -> None:
            await client.publish(topic, b"x", qos=1)
            await take(consumer, 1)

        await follow_a_loss(client, proxy, works)


async def test_connected_tells_whether_the_server_had_the_session(
    broker: MqttService, topic: str, client_id: str
) -> None:
    async with behind(broker.url, told=False) as (proxy, url):
        async with forebay.connect(url, client_id=client_id, max_backoff=0.2) as client:
            events = client.events()
            assert (await seek(events, "connected")).session_present is False
            proxy.cut()
            assert (await seek(events, "connected")).session_present is True


async def test_each_address_that_fails_is_told(broker: MqttService) -> None:
    dead = f"127.0.0.1:{free_port()}"
    live = broker.url.removeprefix("mqtt://")
    async with forebay.connect(f"mqtt://{dead},{live}") as client:
        events = client.events()
        failed, connected = await anext(events), await anext(events)
        assert (failed.kind, failed.address, failed.attempts) == ("connect_failed", dead, 1)
        assert failed.error is not None and failed.retry_in == 0
        assert (connected.kind, connected.address, connected.attempts) == ("connected", live, 2)
        assert client.stats()["connect_failures"] == 1


async def test_a_subscription_that_is_made_again_names_its_filters(broker: MqttService, topic: str) -> None:
    async with behind(broker.url, told=False) as (proxy, url):
        # Without an expiry the session ends with its connection.
        options: dict[str, Any] = {"session_expiry": 0, "max_backoff": 0.2}
        filters = [f"{topic}/a", f"{topic}/b"]
        async with forebay.connect(url, **options) as client, client.consumer(filters):
            events = client.events()
            proxy.cut()
            assert (await seek(events, "resubscribed")).topic == ",".join(filters)
            assert client.stats()["resubscribed"] == 1


async def test_a_client_whose_session_is_taken_over_gives_up(
    embedded_mqtt: MqttService, client_id: str
) -> None:
    """Mosquitto closes the connection without a reason, and the client connects again."""
    url = embedded_mqtt.url
    first: Any = await forebay.connect(url, client_id=client_id)
    events = first.events()
    async with forebay.connect(url, client_id=client_id):
        gone = await seek(events, "gave_up")
        assert gone.topic is None and isinstance(gone.error, errors.Error)
        assert [event async for event in events] == []
    await first.close()


async def test_callbacks_that_raise_or_hang(broker: MqttService, caplog: Any) -> None:
    await raise_in_callbacks(await forebay.connect(broker.url), caplog)


async def test_a_wait_for_events_may_be_cancelled(broker: MqttService) -> None:
    async with forebay.connect(broker.url) as client:
        events = client.events()
        assert (await anext(events)).kind == "connected"
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.01)
        last = asyncio.ensure_future(anext(events))
        await client.close()
        assert (await last).kind == "disconnected"


def test_the_blocking_face(broker: MqttService) -> None:
    client = connect_blocking(broker.url)
    seen: list[Any] = []
    callback = client.on_event(seen.append)
    rest: list[Any] = []
    reader = threading.Thread(target=lambda: rest.extend(client.events()))
    reader.start()
    eventually(lambda: bool(seen))
    client.close()
    reader.join(30)
    assert [event.kind for event in rest] == ["connected", "disconnected"] and seen == rest
    assert callback.failed == 0
