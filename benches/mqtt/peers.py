"""The Python clients beside which Forebay is measured, each used in the way that suits it best."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from benches.clock import Clock
from benches.mqtt.load import (
    BODY,
    UNTOLD,
    WARM,
    WINDOW,
    Arrivals,
    Publish,
    Report,
    feed,
    module,
    one_by_one,
    received,
    timed,
    windowed,
)


def told(action: Callable[[], object]) -> Callable[..., None]:
    """A callback that needs none of its arguments."""

    def callback(*_: Any) -> None:
        action()

    return callback


# -------------------------------------------------------------------------------------------
# paho-mqtt


def _paho(port: int) -> Any:
    mqtt = module("paho.mqtt.client")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(WINDOW)
    connected = threading.Event()
    client.on_connect = told(connected.set)
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert connected.wait(10), "no CONNACK"
    return client


def paho_publish(port: int, topic: str, count: int, qos: int) -> Report:
    client = _paho(port)
    room = threading.BoundedSemaphore(WINDOW)
    client.on_publish = told(room.release)

    def publish(times: int) -> None:
        for _ in range(times):
            room.acquire()
            client.publish(topic, BODY, qos)
        room.acquire()
        client.publish("mark", b"", 1).wait_for_publish(30)
        for _ in range(WINDOW):
            room.acquire()
        for _ in range(WINDOW):
            room.release()

    publish(WARM)
    clock = Clock(count)
    publish(count)
    return clock.stop()


def paho_one(port: int, topic: str, count: int, qos: int) -> Report:
    client = _paho(port)
    client.publish(topic, BODY, qos).wait_for_publish(30)
    clock = Clock(count)
    for _ in range(count):
        client.publish(topic, BODY, qos).wait_for_publish(30)
    return clock.stop()


async def paho_receive(port: int, topic: str, count: int, qos: int) -> Report:
    client, arrivals, subscribed = _paho(port), Arrivals(), threading.Event()
    client.on_subscribe = told(subscribed.set)
    client.on_message = arrivals.one

    async def receive(name: str, left: int) -> None:
        subscribed.clear()
        arrivals.expect(left)
        client.subscribe(name, qos)
        assert subscribed.wait(10), "no SUBACK"
        feed(port, name, left, qos)
        assert arrivals.done.wait(300), "the messages did not come"

    return await received(receive, topic, count)


# -------------------------------------------------------------------------------------------
# aiomqtt


def _aiomqtt(port: int) -> Any:
    aiomqtt = module("aiomqtt")
    client = aiomqtt.Client(
        "127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5, max_inflight_messages=WINDOW
    )
    # Only a warning, for each publish.
    client.pending_calls_threshold = 2 * WINDOW
    return client


async def aiomqtt_publish(port: int, topic: str, count: int, qos: int) -> Report:
    async with _aiomqtt(port) as client:

        async def workers(send: Publish, times: int) -> None:
            # A task a message would cost more.
            shares = [times // WINDOW + (number < times % WINDOW) for number in range(WINDOW)]
            await asyncio.gather(*(one_by_one(send, share) for share in shares))

        return await timed(
            workers, lambda: client.publish(topic, BODY, qos), count, lambda: client.publish("mark", b"", 1)
        )


async def aiomqtt_one(port: int, topic: str, count: int, qos: int) -> Report:
    async with _aiomqtt(port) as client:
        return await timed(
            one_by_one,
            lambda: client.publish(topic, BODY, qos),
            count,
            lambda: client.publish("mark", b"", 1),
        )


async def aiomqtt_receive(port: int, topic: str, count: int, qos: int) -> Report:
    async with _aiomqtt(port) as client:

        async def receive(name: str, left: int) -> None:
            await client.subscribe(name, qos)
            feed(port, name, left, qos)
            async for _ in client.messages:
                left -= 1
                if not left:
                    break
            assert not left, "the messages ended early"

        return await received(receive, topic, count)


# ------------------------------------------------------------------------------------------- gmqtt


class _Gmqtt:
    """The client does not report acknowledgements, but its storage can be replaced by one that does."""

    def __init__(self) -> None:
        gmqtt, storage = module("gmqtt"), module("gmqtt.storage")
        waiting: deque[asyncio.Future[None]] = deque()

        class Storage(storage.PersistentStorage):  # pyright: ignore[reportUntypedBaseClass]
            def remove_message_by_mid(self, mid: int) -> None:
                storage.PersistentStorage.remove_message_by_mid(self, mid)
                # Answers come in the order of the messages.
                waiting.popleft().set_result(None)

        self.client = gmqtt.Client("", persistent_storage=Storage())
        self.waiting = waiting

    def publish(self, topic: str, qos: int) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        if qos:
            self.waiting.append(future)
        else:
            future.set_result(None)
        self.client.publish(topic, BODY, qos=qos)
        return future


async def _gmqtt(port: int) -> _Gmqtt:
    logging.disable(logging.WARNING)
    peer = _Gmqtt()
    await peer.client.connect("127.0.0.1", port)
    return peer


async def gmqtt_publish(port: int, topic: str, count: int, qos: int) -> Report:
    peer = await _gmqtt(port)

    async def way(send: Publish, times: int) -> None:
        # QoS 0 waits for no acknowledgement: pauses let the loop run, or all messages pile up in
        # memory.
        for start in range(0, times, 1000):
            await windowed(send, min(1000, times - start))
            await asyncio.sleep(0)

    return await timed(way, lambda: peer.publish(topic, qos), count, lambda: peer.publish("mark", 1))


async def gmqtt_one(port: int, topic: str, count: int, qos: int) -> Report:
    peer = await _gmqtt(port)
    return await timed(one_by_one, lambda: peer.publish(topic, qos), count, lambda: peer.publish("mark", 1))


async def gmqtt_receive(port: int, topic: str, count: int, qos: int) -> Report:
    peer, arrivals = await _gmqtt(port), Arrivals()
    subscribed, done = asyncio.Event(), asyncio.Event()
    peer.client.on_message = arrivals.one
    peer.client.on_subscribe = told(subscribed.set)

    async def receive(name: str, left: int) -> None:
        subscribed.clear()
        done.clear()
        arrivals.expect(left, done.set)
        peer.client.subscribe(name, qos)
        await asyncio.wait_for(subscribed.wait(), 10)
        feed(port, name, left, qos)
        await asyncio.wait_for(done.wait(), 300)

    return await received(receive, topic, count)


# -------------------------------------------------------------------------------------------
# mqttium


async def _mqttium(port: int, on_message: Callable[..., Any] | None = None) -> Any:
    mqttium = module("mqttium")
    client = module("mqttium.api").AsyncClient(
        protocol=mqttium.MQTTProtocolVersion.MQTTv5,
        max_outbound_inflight=WINDOW,
        max_inbound_inflight=UNTOLD,
        message_delivery="callback" if on_message else "iterator",
    )
    if on_message:
        client.on_message = on_message
    await client.connect("127.0.0.1", port)
    return client


async def mqttium_publish(port: int, topic: str, count: int, qos: int) -> Report:
    client = await _mqttium(port)

    async def way(send: Publish, times: int) -> None:
        receipts: deque[Any] = deque()
        for _ in range(times):
            if len(receipts) == WINDOW:
                await receipts.popleft().wait()
            receipts.append(await client.publish(topic, BODY, qos=qos))
        for receipt in receipts:
            await receipt.wait()

    async def marker() -> None:
        await (await client.publish("mark", b"", qos=1)).wait()

    return await timed(way, marker, count, marker)


async def mqttium_publish_many(port: int, topic: str, count: int, qos: int) -> Report:
    client = await _mqttium(port)
    message = module("mqttium.api").PublishMessage

    async def way(send: Publish, times: int) -> None:
        messages: Iterable[Any] = (message(topic, BODY, qos=qos) for _ in range(times))
        await (await client.publish_many(messages)).wait()

    async def marker() -> None:
        await (await client.publish("mark", b"", qos=1)).wait()

    return await timed(way, marker, count, marker)


async def mqttium_one(port: int, topic: str, count: int, qos: int) -> Report:
    client = await _mqttium(port)

    async def send() -> None:
        await (await client.publish(topic, BODY, qos=qos)).wait()

    return await timed(one_by_one, send, count, send)


async def mqttium_receive(port: int, topic: str, count: int, qos: int) -> Report:
    client = await _mqttium(port)
    messages = client.messages()

    async def receive(name: str, left: int) -> None:
        await client.subscribe(name, qos=qos)
        feed(port, name, left, qos)
        async for _ in messages:
            left -= 1
            if not left:
                break
        assert not left, "the messages ended early"

    return await received(receive, topic, count)


async def mqttium_receive_callback(port: int, topic: str, count: int, qos: int) -> Report:
    arrivals, done = Arrivals(), asyncio.Event()
    client = await _mqttium(port, arrivals.one)

    async def receive(name: str, left: int) -> None:
        done.clear()
        arrivals.expect(left, done.set)
        await client.subscribe(name, qos=qos)
        feed(port, name, left, qos)
        await asyncio.wait_for(done.wait(), 300)

    return await received(receive, topic, count)
