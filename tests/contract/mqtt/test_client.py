"""Our client on every broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import blocking, errors
from forebay.mqtt import ReasonCode

from support.messages import gather, nothing, numbered, payloads, receive
from support.mqtt.harness import MqttService, take
from support.mqtt.proxy import Proxy
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE, eventually

WORDS = {V31: "3.1", V311: "3.1.1", V5: "5"}
ALL = pytest.mark.parametrize("version", WORDS, ids=WORDS.values(), indirect=True)
OF_5_0 = pytest.mark.parametrize("version", [V5], ids=["5.0"], indirect=True)

Connect = Callable[..., Any]


@pytest.fixture
def connect(broker: MqttService, version: int) -> Connect:
    """``connect(...)``: a client of this broker and version."""

    def make(**options: Any) -> Any:
        options = {"connect_timeout": PATIENCE} | options
        return forebay.connect(broker.url, version=WORDS[version], **options)

    return make


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
async def test_each_qos_both_ways(connect: Connect, topic: str, published: int, granted: int) -> None:
    async with connect() as client, client.consumer(topic, qos=granted) as consumer:
        sent = [b"", b"x", bytes(range(256)), b"y" * 100_000]
        for payload in sent:
            code = await client.publish(topic, payload, qos=published)
            assert code in {ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS}
        got = await take(consumer, len(sent))
        assert payloads(got) == sent
        for message in got:
            assert (message.topic, message.qos, message.retain) == (topic, min(published, granted), False)
        await nothing(consumer, 0.1)


async def test_a_thousand_messages_come_in_their_order(connect: Connect, topic: str, patience: float) -> None:
    async with connect() as client, client.consumer(topic, qos=2) as consumer:
        for qos in (1, 2):
            async with client.producer(topic, qos=qos) as producer:
                await gather(*[producer.send(payload) for payload in numbered(1000)])
            got = await take(consumer, 1000, patience)
            assert payloads(got) == numbered(1000)


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "outbox"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_send_many_beyond_the_window_keeps_the_topic_of_each_row(
    connect: Connect, topic: str, tmp_path: Path, qos: int, *, kept: bool
) -> None:
    """Rows that have to wait for room, and calls that wait for others, go where their callers said."""
    rows = [(payload, f"{topic}/to/{number % 7}") for number, payload in enumerate(numbered(700))]
    options = {"outbox": tmp_path / "outbox", "client_id": topic.replace("/", "-")} if kept else {}
    async with (
        connect() as watching,
        watching.consumer(f"{topic}/#", qos=qos) as consumer,
        connect(**options) as client,
        client.producer(f"{topic}/default", qos=qos, max_pending=50) as producer,
    ):
        halves = [rows[:350], rows[350:]]
        calls = [producer.send_many([p for p, _ in half], topics=[to for _, to in half]) for half in halves]
        for half, codes in zip(halves, await gather(*calls), strict=True):
            assert len(codes) == len(half)
        got = await take(consumer, len(rows))
        await nothing(consumer, 0.1)
    assert sorted((bytes(message.data), message.topic) for message in got) == sorted(rows)
    for to in {to for _, to in rows}:
        mine = [bytes(message.data) for message in got if message.topic == to]
        assert mine == [payload for payload, wanted in rows if wanted == to]


def test_the_blocking_send_many_keeps_the_topic_of_each_row(broker: MqttService, topic: str) -> None:
    rows = [(payload, f"{topic}/to/{number % 3}") for number, payload in enumerate(numbered(500))]
    with (
        blocking.connect(broker.url, connect_timeout=PATIENCE) as client,
        client.consumer(f"{topic}/#", qos=1) as consumer,
        client.producer(f"{topic}/default", qos=1, max_pending=50) as producer,
    ):
        assert len(producer.send_many([p for p, _ in rows], topics=[to for _, to in rows])) == len(rows)
        got: list[tuple[bytes, str]] = []
        while len(got) < len(rows):
            some = consumer.receive_many(500, timeout=PATIENCE)
            assert some
            for message in some:
                consumer.ack(message)
            got += [(bytes(message.data), message.topic) for message in some]
    assert sorted(got) == sorted(rows)


async def test_an_empty_topic_beyond_the_window_is_refused(connect: Connect, topic: str) -> None:
    async with connect() as client, client.producer(f"{topic}/default", qos=1, max_pending=10) as producer:
        with pytest.raises(errors.Error, match="topic"):
            await producer.send_many([b"x"] * 50, topics=[topic] * 49 + [""])


async def test_acknowledging_in_any_order(connect: Connect, topic: str) -> None:
    async with connect() as client, client.consumer(topic, qos=2) as consumer:
        for qos in (1, 2, 1, 2, 1, 2):
            await client.publish(topic, b"x", qos=qos)
        messages = [await consumer.receive(timeout=PATIENCE)]
        # HiveMQ sends the rest after the acknowledgement of the first.
        await consumer.ack(messages[0])
        messages = await receive(consumer, 5)
        for message in reversed(messages):
            await consumer.ack(message)
        await client.publish(topic, b"after", qos=2)
        assert payloads(await take(consumer, 1)) == [b"after"]


async def test_async_for(connect: Connect, topic: str) -> None:
    async with connect() as client, client.consumer(topic) as consumer:
        await client.publish(topic, b"1", qos=1)
        await client.publish(topic, b"2", qos=1)
        got = []
        async for message in consumer:
            got.append(bytes(message.data))
            await consumer.ack(message)
            if len(got) == 2:
                break
        assert got == [b"1", b"2"]


async def test_several_filters_and_several_consumers(connect: Connect, topic: str) -> None:
    async with connect() as client:
        async with (
            client.consumer([f"{topic}/a/+", f"{topic}/b"], qos=1) as one,
            client.consumer(f"{topic}/c/#", qos=1) as other,
        ):
            for name in ("a/1", "b", "c", "c/d/e", "none"):
                await client.publish(f"{topic}/{name}", name.encode(), qos=1)
            assert {bytes(message.data) for message in await take(one, 2)} == {b"a/1", b"b"}
            assert {bytes(message.data) for message in await take(other, 2)} == {b"c", b"c/d/e"}
            await nothing(one, 0.1)
            await nothing(other, 0.1)


async def test_unsubscribing_ends_it(connect: Connect, topic: str) -> None:
    async with connect() as client:
        consumer = await client.consumer(topic, qos=1)
        await consumer.unsubscribe()
        async with client.consumer(f"{topic}/other", qos=1) as other:
            await client.publish(topic, b"x", qos=1)
            await client.publish(f"{topic}/other", b"y", qos=1)
            assert payloads(await take(other, 1)) == [b"y"]


async def test_retained_messages(connect: Connect, topic: str) -> None:
    async with connect() as client:
        async with client.producer(topic, retain=True) as producer:
            await producer.send(b"first")
            await producer.send(b"last")
        async with client.consumer(f"{topic}/#", qos=1) as consumer:
            (message,) = await take(consumer, 1)
            assert (bytes(message.data), message.retain) == (b"last", True)
        await client.publish(topic, b"", qos=1, retain=True)
        async with client.consumer(topic, qos=1) as consumer:
            await nothing(consumer)


@OF_5_0
async def test_retain_handling(connect: Connect, topic: str) -> None:
    async with connect() as client:
        await client.publish(topic, b"kept", qos=1, retain=True)
        async with client.consumer(topic, retain_handling="never") as consumer:
            await nothing(consumer)
        async with client.consumer(topic, retain_handling="if_new") as consumer:
            assert payloads(await take(consumer, 1)) == [b"kept"]
        await client.publish(topic, b"", qos=1, retain=True)


@OF_5_0
async def test_no_local(connect: Connect, topic: str) -> None:
    async with connect() as client, connect() as other:
        async with client.consumer(topic, no_local=True) as consumer:
            await client.publish(topic, b"own", qos=1)
            await other.publish(topic, b"another's", qos=1)
            assert payloads(await take(consumer, 1)) == [b"another's"]
            await nothing(consumer, 0.1)


async def test_a_shared_subscription(connect: Connect, topic: str) -> None:
    async with connect() as first, connect() as second, connect() as writer:
        async with (
            first.consumer(topic, subscription="group", qos=1) as one,
            second.consumer(topic, subscription="group", qos=1) as two,
        ):
            await gather(*[writer.publish(topic, payload, qos=1) for payload in numbered(40)])
            got: list[bytes] = []
            deadline = time.monotonic() + PATIENCE
            while len(got) < 40 and time.monotonic() < deadline:
                for consumer in (one, two):
                    for message in await consumer.receive_many(40, timeout=0.05):
                        await consumer.ack(message)
                        got.append(bytes(message.data))
            assert sorted(got) == numbered(40)


@OF_5_0
async def test_everything_of_a_message(connect: Connect, topic: str) -> None:
    async with connect() as client, client.consumer(topic) as consumer:
        pairs = [("b", "2"), ("a", "1"), ("b", "3"), ("größe", "☃")]
        await client.publish(
            topic,
            "Grüße".encode(),
            qos=1,
            content_type="text/plain",
            response_topic="answers/1",
            correlation_data=b"\0\xff",
            message_expiry=60,
            is_text=True,
            properties=pairs,
        )
        (message,) = await take(consumer, 1)
        assert message.content_type == "text/plain"
        assert message.response_topic == "answers/1"
        assert message.correlation_data == b"\0\xff"
        assert message.is_text is True
        assert message.message_expiry in range(1, 61)
        assert message.user_properties == pairs


@OF_5_0
async def test_request_and_response(connect: Connect, topic: str) -> None:
    async with connect() as asking, connect() as answering:
        async with (
            asking.consumer(f"{topic}/answers") as answers,
            answering.consumer(f"{topic}/questions") as questions,
        ):
            await asking.publish(
                f"{topic}/questions",
                b"6 x 7",
                qos=1,
                response_topic=f"{topic}/answers",
                correlation_data=b"q1",
            )
            (question,) = await take(questions, 1)
            await answering.publish(
                question.response_topic, b"42", qos=1, correlation_data=question.correlation_data
            )
            (answer,) = await take(answers, 1)
            assert (bytes(answer.data), answer.correlation_data) == (b"42", b"q1")


async def test_a_will(broker: MqttService, connect: Connect, topic: str, version: int) -> None:
    async with connect() as watcher, watcher.consumer(topic, qos=2) as consumer:
        # DISCONNECT, so no will.
        async with connect(will={"topic": topic, "payload": b"never"}):
            pass
        with Proxy(broker.port) as proxy:
            will = {"topic": topic, "payload": b"gone", "qos": 2}
            # A persistent session would delay it.
            dying = await forebay.connect(proxy.url, version=WORDS[version], will=will)
            proxy.refuses = True
            proxy.cut()
            assert payloads(await take(consumer, 1)) == [b"gone"]
            await dying.close()


@ALL
async def test_a_session_that_is_kept(connect: Connect, topic: str, client_id: str) -> None:
    kept: dict[str, Any] = {"client_id": client_id, "clean_start": False}
    async with connect(**kept) as client:
        consumer = await client.consumer(topic, qos=2)
        await client.publish(topic, b"before", qos=1)
        await take(consumer, 1)
    async with connect() as writer:
        for qos in (1, 2):
            await writer.publish(topic, b"%d" % qos, qos=qos)
    async with connect(**kept) as client, client.consumer(topic, qos=2) as consumer:
        got = await take(consumer, 2)
        assert payloads(got) == [b"1", b"2"]
        await nothing(consumer, 0.1)
    async with connect(client_id=client_id):
        pass


async def test_a_session_with_more_than_the_buffer_is_resumed(
    connect: Connect, topic: str, client_id: str
) -> None:
    kept: dict[str, Any] = {"client_id": client_id, "clean_start": False, "receive_buffer": 64 << 10}
    async with connect(**kept) as client:
        await client.consumer(topic, qos=1)
    sent = [b"%04d" % number + bytes(20_000) for number in range(60)]
    async with connect() as other:
        for payload in sent:
            await other.publish(topic, payload, qos=1)
    # The broker sends a window of them ahead of SUBACK.
    async with connect(**kept) as client, client.consumer(topic, qos=1) as consumer:
        assert payloads(await take(consumer, len(sent))) == sent
    async with connect(client_id=client_id):
        pass


async def test_publishing_from_the_receiving_loop(connect: Connect, topic: str) -> None:
    """The pattern that deadlocks clients whose reader waits for their own acknowledgements."""
    async with connect() as client, client.consumer(f"{topic}/in", qos=1) as consumer:
        async with client.consumer(f"{topic}/out", qos=1) as echoed:
            await gather(*[client.publish(f"{topic}/in", payload, qos=1) for payload in numbered(200)])
            for _ in range(200):
                message = await consumer.receive(timeout=PATIENCE)
                await client.publish(f"{topic}/out", bytes(message.data), qos=1)
                await consumer.ack(message)
            got = await take(echoed, 200)
            assert payloads(got) == numbered(200)


async def test_what_is_wrong_is_refused_at_once(connect: Connect, topic: str) -> None:
    async with connect() as client:
        for name in ("", "a/+", "a/#", "a\0"):
            with pytest.raises(errors.InvalidTopic):
                await client.publish(name, b"x")
        for filter in ("", "a/#/b", "a+"):
            with pytest.raises(errors.InvalidTopic):
                await client.consumer(filter)
        with pytest.raises(errors.InvalidArgument):
            async with client.producer(topic) as producer:
                await producer.send(b"x", key="k")
        # None of this has harmed the connection.
        await client.publish(topic, b"x", qos=2)


async def test_two_clients_of_one_name_take_over_from_each_other(connect: Connect, client_id: str) -> None:
    async with connect(client_id=client_id) as first, connect(client_id=client_id) as second:
        await second.publish("x", b"x", qos=1)
        assert first is not second


async def test_the_blocking_twin(broker: MqttService, version: int, topic: str) -> None:
    def work() -> None:
        with forebay.blocking.connect(broker.url, version=WORDS[version]) as client:
            with client.consumer(topic, qos=2) as consumer:
                client.publish(topic, b"one", qos=2)
                with client.producer(topic) as producer:
                    producer.send(b"two")
                for payload in (b"one", b"two"):
                    message = consumer.receive(timeout=PATIENCE)
                    assert bytes(message.data) == payload
                    consumer.ack(message)

    await asyncio.to_thread(work)


async def test_closing_sends_what_was_accepted(connect: Connect, topic: str) -> None:
    async with connect() as watcher, watcher.consumer(topic, qos=2) as consumer:
        async with connect() as client:
            async with client.producer(topic, qos=1) as producer:
                for payload in numbered(100):
                    producer.send_nowait(payload)
        got = await take(consumer, 100)
        assert payloads(got) == numbered(100)


def test_the_connection_is_gone_after_close(broker: MqttService) -> None:
    with forebay.blocking.connect(broker.url) as client:
        client.publish("x", b"x", qos=1)
    eventually(lambda: client.closed)
