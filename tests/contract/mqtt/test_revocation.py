"""A message that the application does not have yet comes once, whatever ends its consumer and however it is
taken."""

from __future__ import annotations

from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import nothing, numbered, payloads
from support.mqtt.harness import MqttService
from support.taking import TAKES, Take, cancelled, gathered
from support.waiting import PATIENCE

SENT = numbered(7)


@pytest.fixture(
    params=[
        pytest.param("embedded_mqtt", id="embedded"),
        pytest.param("mosquitto", marks=pytest.mark.real_mqtt),
    ]
)
def broker(request: pytest.FixtureRequest) -> MqttService:
    """Without HiveMQ: in one of twelve bursts it keeps the last messages back until those before them are
    acknowledged, from a client of plain sockets too, and these tests acknowledge late."""
    return request.getfixturevalue(request.param)


takes = pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())
acks = pytest.mark.parametrize("auto_ack", [False, True], ids=["ack", "auto_ack"])


async def send(client: Any, topic: str) -> None:
    async with client.producer(topic, qos=1) as producer:
        await producer.send_many(SENT)


@takes
@pytest.mark.parametrize("ending", ["close", "unsubscribe"])
async def test_what_a_consumer_that_has_ended_has_not_handed_out_comes_to_the_next(
    broker: MqttService, topic: str, ending: str, take: Take
) -> None:
    async with forebay.connect(broker.url, connect_timeout=PATIENCE) as client:
        consumer = await client.consumer(topic, "g", qos=1)
        await send(client, topic)
        async with gathered(consumer, len(SENT)):
            pass
        first = await consumer.receive(timeout=PATIENCE)
        assert payloads([first]) == SENT[:1]
        await consumer.ack(first)
        await getattr(consumer, ending)()
        if take is not TAKES["listener"]:
            with pytest.raises((errors.Closed, StopAsyncIteration)):
                await take(consumer, 1)
        async with client.consumer(topic, "g", qos=1) as consumer:
            assert await take(consumer, len(SENT) - 1) == SENT[1:]
            await nothing(consumer, 0.1)


@takes
async def test_the_next_connection_of_a_session_gets_what_was_not_handed_out(
    broker: MqttService, topic: str, client_id: str, take: Take
) -> None:
    options: dict[str, Any] = {"client_id": client_id, "clean_start": False, "connect_timeout": PATIENCE}
    async with forebay.connect(broker.url, **options) as client:
        consumer = await client.consumer(topic, qos=1)
        await send(client, topic)
        async with gathered(consumer, len(SENT)):
            pass
        await consumer.ack(await consumer.receive(timeout=PATIENCE))
        await consumer.close()
    async with forebay.connect(broker.url, **options) as client, client.consumer(topic, qos=1) as consumer:
        assert await take(consumer, len(SENT) - 1) == SENT[1:]
        await nothing(consumer, 0.1)


@takes
@acks
async def test_what_a_batch_waited_with_comes_once(
    broker: MqttService, topic: str, auto_ack: bool, take: Take
) -> None:
    async with (
        forebay.connect(broker.url, connect_timeout=PATIENCE) as client,
        client.consumer(topic, qos=1, auto_ack=auto_ack) as consumer,
    ):
        await send(client, topic)
        async with gathered(consumer, len(SENT)):
            pass
        third = aiter(consumer).__anext__()
        del third
        assert await take(consumer, len(SENT)) == SENT
        await nothing(consumer, 0.1)


@acks
async def test_a_batch_may_be_larger_than_what_is_read_ahead(
    broker: MqttService, topic: str, auto_ack: bool
) -> None:
    # Acknowledgements make room for more: with `auto_ack` they are sent while the batch waits.
    limits: dict[str, Any] = {"receive_maximum": 10} if auto_ack else {}
    sent = numbered(100 if auto_ack else 8, size=300)
    options: dict[str, Any] = {"receive_buffer": 1000, "connect_timeout": PATIENCE, **limits}
    async with (
        forebay.connect(broker.url, **options) as client,
        client.consumer(topic, qos=1, auto_ack=auto_ack) as consumer,
        forebay.connect(broker.url) as other,
    ):
        async with other.producer(topic, qos=1) as producer:
            await producer.send_many(sent)
        batch = await consumer.receive_batch(len(sent), timeout=PATIENCE)
        assert payloads(batch) == sent
        await nothing(consumer, 0.1)


@takes
@pytest.mark.parametrize("wait", TAKES.values(), ids=TAKES.keys())
async def test_a_wait_that_is_cancelled_takes_nothing(
    broker: MqttService, topic: str, wait: Take, take: Take
) -> None:
    async with (
        forebay.connect(broker.url, connect_timeout=PATIENCE) as client,
        client.consumer(topic, qos=1) as consumer,
    ):
        await cancelled(consumer, wait)
        await send(client, topic)
        assert await take(consumer, len(SENT)) == SENT
        await nothing(consumer, 0.1)
