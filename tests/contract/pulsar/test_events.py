"""Connection events: what a program learns of its connections, and when."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

from support.messages import receive
from support.observing import behind, follow_a_loss, raise_in_callbacks, seek
from support.pulsar.harness import PulsarService
from support.waiting import eventually, until


async def test_a_lost_connection_is_told_and_the_way_back(service: PulsarService, topic: str) -> None:
    async with behind(service.url, told=True) as (proxy, url):
        client: Any = await forebay.connect(url, max_backoff=0.2)
        consumer = await client.consumer(topic, "s")
        producer = await client.producer(topic)

        async def works() -> None:
            await producer.send(b"x")
            await consumer.ack((await receive(consumer, 1))[0])

        await follow_a_loss(client, proxy, works)


async def test_a_subscription_that_is_made_again_names_its_topic(service: PulsarService, topic: str) -> None:
    async with behind(service.url, told=True) as (proxy, url):
        async with forebay.connect(url, max_backoff=0.2) as client, client.consumer(topic, "s"):
            events = client.events()
            proxy.cut()
            again = await seek(events, "resubscribed")
            assert again.topic is not None and again.topic.endswith(topic.rpartition("/")[2])
            await until(lambda: client.stats()["resubscribed"] == 1)


async def test_a_seek_is_no_loss_of_the_subscription(service: PulsarService, topic: str) -> None:
    async with forebay.connect(service.url) as client:
        events = client.events()
        consumer = await client.consumer(topic, "s")
        producer = await client.producer(topic)
        for body in (b"1", b"2"):
            await producer.send(body)
            await consumer.seek("earliest")
            assert (await receive(consumer, 1))[0].data == b"1"
        await client.close()
        assert "resubscribed" not in [event.kind async for event in events]


async def test_a_producer_that_cannot_come_back_is_given_up(service: PulsarService, topic: str) -> None:
    async with behind(service.url, told=True) as (proxy, url):
        async with forebay.connect(url, max_backoff=0.2) as client:
            producer = await client.producer(topic)
            await producer.send(b"x")
            service.terminate_topic(topic)
            proxy.cut()
            gone = await seek(client.events(), "gave_up")
            assert isinstance(gone.error, errors.Error) and gone.topic is not None
            with pytest.raises(errors.Error):
                await producer.send(b"y")


async def test_callbacks_that_raise_or_hang(service: PulsarService, caplog: Any) -> None:
    await raise_in_callbacks(await forebay.connect(service.url), caplog)


async def test_what_is_no_callback_is_refused(service: PulsarService) -> None:
    async with forebay.connect(service.url) as client:
        with pytest.raises(errors.InvalidArgument, match="on_event"):
            client.on_event(3)  # type: ignore[arg-type]
        stopped = client.on_event(lambda _: None)
        stopped.stop()
    with pytest.raises(errors.Closed):
        client.events()


def test_the_blocking_face(service: PulsarService) -> None:
    client = connect_blocking(service.url)
    seen: list[Any] = []
    callback = client.on_event(lambda event: seen.append(event) or 1 / 0)
    events = client.events()
    first = next(events)
    assert first.kind == "connected" and first.attempts == 1
    with pytest.raises(errors.Timeout):
        events.next(timeout=0.01)
    rest: list[Any] = []
    reader = threading.Thread(target=lambda: rest.extend(events))
    reader.start()
    eventually(lambda: callback.failed == 1)
    client.close()
    reader.join(30)
    assert [event.kind for event in rest] == ["disconnected"] and rest[0].error.code == "closed"
    assert events.next() is None
    assert [event.kind for event in seen] == ["connected", "disconnected"] and callback.failed == 2
    with pytest.raises(errors.Closed):
        client.on_event(seen.append)
