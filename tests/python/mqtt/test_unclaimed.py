"""Messages that a consumer did not hand out, and messages that no open consumer claims.

The broker is a script, so that each acknowledgement can be seen; the embedded one shows what becomes of the
messages.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import forebay
from forebay import errors, mqtt

from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.mqtt.wire import V5
from support.waiting import until

#: Longer than unclaimed messages are held, on a loaded machine.
PATIENCE = 30.0


class Script:
    """A broker that publishes when the test says so, and notes the acknowledgements. ``refuse`` has the
    reasons, by filter, with which it answers SUBSCRIBE on every connection but the first."""

    def __init__(self, window: int = 100, *, refuse: dict[str, int] | None = None) -> None:
        self.window, self.refuse = window, refuse or {}
        self.connections = 0
        self.acked: list[int] = []
        self.unsubscribed: list[str] = []
        self.subscribed: list[str] = []
        self._queue: list[tuple[str, bytes, int]] = []
        self._inflight: list[int] = []
        self._next = 0
        self._writer: asyncio.StreamWriter | None = None
        self.present = False

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        self._queue.append((topic, payload, qos))
        self._pump()

    def _pump(self) -> None:
        while self._queue and len(self._inflight) < self.window:
            topic, payload, qos = self._queue.pop(0)
            self._next += 1
            self._inflight.append(self._next)
            assert self._writer
            self._writer.write(wire.publish(topic, payload, qos, self._next, V5))

    def cut(self) -> None:
        assert self._writer
        self._writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writer = writer
        buffer = bytearray()
        try:
            while data := await reader.read(65536):
                buffer += data
                while (packet := wire.take(buffer)) is not None:
                    self._answer(packet, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _answer(self, packet: wire.Packet, writer: asyncio.StreamWriter) -> None:
        if packet.kind == wire.CONNECT:
            present = b"\1" if self.present else b"\0"
            writer.write(wire.packet(wire.CONNACK, present + b"\0\0"))
        elif packet.kind in (wire.SUBSCRIBE, wire.UNSUBSCRIBE):
            said = wire.parse(packet, V5)
            names = [one[0] if isinstance(one, (tuple, list)) else one for one in said["filters"]]
            if packet.kind == wire.SUBSCRIBE:
                self.subscribed += names
                refuse = self.refuse if self.connections > 1 else {}
                reasons, answer = bytes(refuse.get(name, 1) for name in names), wire.SUBACK
            else:
                self.unsubscribed += names
                reasons, answer = bytes(0x11 if "unknown" in name else 0 for name in names), wire.UNSUBACK
            writer.write(wire.packet(answer, packet.body[:2] + b"\0" + reasons))
        elif packet.kind in (wire.PUBACK, wire.PUBREC):
            number = struct.unpack(">H", packet.body[:2])[0]
            self.acked.append(number)
            if number in self._inflight:
                self._inflight.remove(number)
            self._pump()
        elif packet.kind == wire.PINGREQ:
            writer.write(wire.packet(wire.PINGRESP))

    @asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()


@pytest.mark.parametrize("ending", ["close", "unsubscribe"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_consumer_that_ends_acknowledges_nothing_that_it_has_not_handed_out(
    ending: str, qos: int, auto_ack: bool
) -> None:
    script = Script()
    async with script.up() as url, mqtt.connect(url) as client:
        consumer = await client.consumer("jobs", "g", qos=qos, auto_ack=auto_ack)
        for number in range(10):
            script.publish("jobs", b"%d" % number, qos)
        # Iteration takes messages from the engine ahead.
        async for message in consumer:
            await consumer.ack(message)
            if message.data == b"2":
                break
        await getattr(consumer, ending)()
        await until(lambda: script.unsubscribed)
        assert (await client.publish("after", qos=0)).name == "SUCCESS"
    assert script.acked == [1, 2, 3]


async def test_the_next_consumer_of_a_shared_subscription_gets_what_was_not_handed_out() -> None:
    script = Script()
    async with script.up() as url, mqtt.connect(url) as client:
        first = await client.consumer("jobs", "g")
        for number in range(10):
            script.publish("jobs", b"%d" % number)
        handed_out = await first.receive(timeout=PATIENCE)
        assert handed_out.data == b"0"
        await first.close()
        await until(lambda: client.stats()["unclaimed_messages"] == 9)
        async with client.consumer("jobs") as other, client.consumer("jobs", "g") as second:
            got = [await second.receive(timeout=PATIENCE) for _ in range(9)]
            assert [message.data for message in got] == [b"%d" % number for number in range(1, 10)]
            assert await other.receive_many(timeout=0) == []
        assert client.stats()["unclaimed_messages"] == 0


@pytest.mark.parametrize("ending", ["ack after close", "drop after close", "drop before close"])
async def test_a_message_whose_consumer_is_closed_before_its_ack_holds_up_no_other(ending: str) -> None:
    script = Script(window=5)
    async with script.up() as url, mqtt.connect(url) as client:
        async with client.consumer("b") as other:
            first = await client.consumer("a")
            script.publish("a", b"job")
            for number in range(20):
                script.publish("b", b"%d" % number)
            message: Any = await first.receive(timeout=PATIENCE)
            if ending == "drop before close":
                message = None
            await first.close()
            if ending == "ack after close":
                await first.ack(message)
            message = None
            for number in range(20):
                got = await other.receive(timeout=PATIENCE)
                assert got.data == b"%d" % number
                await other.ack(got)
            await until(lambda: script.acked == list(range(1, 22)))


async def test_a_job_that_is_dropped_unacknowledged_goes_to_the_next_consumer() -> None:
    script = Script()
    async with script.up() as url, mqtt.connect(url) as client:
        first = await client.consumer("jobs", "g")
        script.publish("jobs", b"0")
        await first.receive(timeout=PATIENCE)
        await first.close()
        async with client.consumer("jobs", "g") as second:
            message = await second.receive(timeout=PATIENCE)
            assert message.data == b"0"
            assert script.acked == []
            await second.ack(message)
            await until(lambda: script.acked == [1])


async def test_what_is_unsubscribed_from_is_not_kept_for_another_consumer() -> None:
    script = Script()
    script.present = True
    async with script.up() as url, mqtt.connect(url, client_id="dev", clean_start=False) as client:
        consumer = await client.consumer("a/#")
        for number in range(5):
            script.publish("a/x", b"%d" % number)
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
        await consumer.unsubscribe()
        assert client.stats()["unclaimed_messages"] == 0
        await until(lambda: script.acked == [1, 2, 3, 4, 5])
        async with client.consumer("a/#") as again:
            assert await again.receive_many(timeout=0) == []


@pytest.mark.real_hivemq
async def test_jobs_of_a_worker_that_goes_home_are_done_by_another(hivemq: MqttService) -> None:
    url, topic = hivemq.url, hivemq.topic()
    async with mqtt.connect(url) as boss, mqtt.connect(url) as two:
        async with mqtt.connect(url) as one:
            first = await one.consumer(topic, "g")
            async with boss.producer(topic) as producer:
                await producer.send_many([b"%d" % number for number in range(50)])
            done = []
            for _ in range(3):
                message = await first.receive(timeout=PATIENCE)
                done.append(int(message.data))
                await first.ack(message)
            second = await two.consumer(topic, "g")
            await first.close()
        while len(done) < 50:
            message = await second.receive(timeout=PATIENCE)
            done.append(int(message.data))
            await second.ack(message)
        assert sorted(done) == list(range(50))


@pytest.mark.parametrize("policy", ["keep", "ack", "unsubscribe"])
async def test_messages_that_no_consumer_claims_do_not_starve_the_others(
    policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(window=100)
    script.present = True
    options: Any = {"client_id": "dev", "clean_start": False, "unclaimed": policy}
    with caplog.at_level(logging.WARNING, "forebay"):
        async with script.up() as url, mqtt.connect(url, **options) as client:
            async with client.subscribe("b/#") as wanted:
                for number in range(150):
                    script.publish(f"a/{number}", b"old")
                script.publish("b/1", b"hello")
                assert (await wanted.receive(timeout=PATIENCE)).topic == "b/1"
                await until(lambda: len(script.acked) == 151)
                stats = client.stats()
                assert stats["unclaimed_messages"] == (150 if policy == "keep" else 0)
                assert stats["unclaimed_dropped"] == (0 if policy == "keep" else 150)
                if policy == "unsubscribe":
                    await until(lambda: len(script.unsubscribed) == 150)
                    assert script.unsubscribed[0] == "a/0"
                if policy == "keep":
                    async with client.consumer("a/+") as late:
                        got = await late.receive_many(timeout=PATIENCE)
                        assert [message.topic for message in got] == [f"a/{number}" for number in range(150)]
    assert script.acked == list(range(1, 152))
    await until(lambda: any("that no open consumer claims" in record.message for record in caplog.records))


async def test_messages_of_a_resumed_session_wait_unacknowledged_for_their_consumer() -> None:
    script = Script()
    script.present = True
    async with script.up() as url, mqtt.connect(url, client_id="dev", clean_start=False) as client:
        for number in range(5):
            script.publish("a/x", b"%d" % number)
        await until(lambda: client.stats()["unclaimed_messages"] == 5)
        assert script.acked == []
        async with client.subscribe("a/#") as consumer:
            for number in range(5):
                assert (await consumer.receive(timeout=PATIENCE)).data == b"%d" % number
            await until(lambda: script.acked == [1, 2, 3, 4, 5])


async def test_bytes_that_no_consumer_claims_are_limited_and_the_oldest_are_dropped() -> None:
    with forebay.Broker(mqtt_port=0) as broker:
        options: Any = {"client_id": "dev", "clean_start": False}
        async with mqtt.connect(broker.mqtt_url, **options) as client:
            await (await client.consumer("a/#")).close()
        options["receive_buffer"] = 1 << 20
        url = broker.mqtt_url
        async with mqtt.connect(url) as other, mqtt.connect(url, **options) as client:
            async with client.subscribe("b/#") as wanted, other.producer("a/x", qos=0) as producer:
                for _ in range(40):
                    await producer.send(b"x" * 100_000)
                await other.publish("b/1", b"hello", qos=1)
                assert (await wanted.receive(timeout=PATIENCE)).topic == "b/1"
                await until(lambda: client.stats()["unclaimed_dropped"] > 0, PATIENCE)
                assert client.stats()["unclaimed_messages"] * 100_000 <= 1 << 19


async def test_a_subscription_of_an_earlier_process_can_be_ended() -> None:
    script = Script()
    script.present = True
    async with script.up() as url, mqtt.connect(url, client_id="dev", clean_start=False) as client:
        for number in range(5):
            script.publish("a/x", b"%d" % number)
        await until(lambda: client.stats()["unclaimed_messages"] == 5)
        assert await client.unsubscribe("a/#") is True
        assert await client.unsubscribe("unknown/#") is False
        await until(lambda: script.acked == [1, 2, 3, 4, 5])
        assert client.stats()["unclaimed_messages"] == 0
        assert client.stats()["unclaimed_dropped"] == 5
        assert script.unsubscribed == ["a/#", "unknown/#"]
        async with client.consumer("b/#"):
            with pytest.raises(errors.InvalidArgument, match="open consumer has this filter"):
                await client.unsubscribe("b/#")
        with pytest.raises(errors.InvalidTopic):
            await client.unsubscribe("a/#/b")


async def test_unacknowledged_messages_that_come_again_after_a_cut_are_held_once() -> None:
    script = Script()
    script.present = True
    options: Any = {"client_id": "dev", "clean_start": False, "max_backoff": 0.1}
    async with script.up() as url, mqtt.connect(url, **options) as client:
        for number in range(5):
            script.publish("a/x", b"%d" % number)
        await until(lambda: client.stats()["unclaimed_messages"] == 5)
        script.cut()
        await until(lambda: script.connections == 2 and client.stats()["connected"])
        for number in range(5):
            script.publish("a/x", b"%d" % number)
        await until(lambda: client.stats()["unclaimed_messages"] == 5)
        async with client.subscribe("a/#") as consumer:
            got = [(await consumer.receive(timeout=PATIENCE)).data for _ in range(5)]
            assert got == [b"0", b"1", b"2", b"3", b"4"]
            assert await consumer.receive_many(timeout=0) == []


@pytest.mark.parametrize("filters", [["secret/#"], ["open/#", "secret/#"]], ids=["all", "one of two"])
async def test_a_subscription_that_is_refused_after_a_reconnect_ends_its_consumer(filters: list[str]) -> None:
    script = Script(refuse={"secret/#": 0x87})
    async with script.up() as url, mqtt.connect(url, max_backoff=0.1) as client:
        refused, other = await client.consumer(filters), await client.consumer("other")
        waiting = refused.receive()
        script.cut()
        with pytest.raises(errors.AuthorizationError, match="SUBSCRIBE") as caught:
            await asyncio.wait_for(waiting, PATIENCE)
        assert caught.value.topic == "secret/#"
        with pytest.raises(errors.AuthorizationError):
            await refused.receive(timeout=PATIENCE)
        await asyncio.wait_for(refused.close(), PATIENCE)
        assert script.unsubscribed == (filters if len(filters) > 1 else [])
        script.publish("other", b"still here")
        assert (await other.receive(timeout=PATIENCE)).data == b"still here"
        script.cut()
        await until(lambda: script.subscribed == [*filters, "other", *filters, "other", "other"])
        assert script.connections == 3
