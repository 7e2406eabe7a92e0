"""Positions and message ids where they could mean something else than the caller thinks."""

from __future__ import annotations

import pickle
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import forebay
from forebay import errors, pulsar
from forebay.commands._shared.options import moment as at_flag
from forebay.errors import InvalidArgument
from forebay.frames._pulsar import _position as frames_position
from forebay.pulsar import MessageId, _offsets
from forebay.pulsar._positions import reader_start, seek_target

from support.waiting import PATIENCE


@pytest.fixture(scope="module")
def broker():
    with forebay.Broker() as broker:
        yield broker


@pytest.fixture
async def client(broker: forebay.Broker):
    async with pulsar.connect(broker.url) as client:
        yield client


async def texts(consumer: Any, count: int) -> list[bytes]:
    got = [bytes((await consumer.receive(timeout=PATIENCE)).data) for _ in range(count)]
    assert await consumer.receive_many(timeout=0) == []
    return got


async def filled(client: Any, topic: str, count: int = 10, **options: Any) -> list[MessageId]:
    async with client.producer(topic, **options) as producer:
        return list(await producer.send_many([b"%d" % number for number in range(count)]))


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
@pytest.mark.parametrize("batching", [False, True])
async def test_a_new_subscription_begins_at_its_position(client: Any, kind: str, batching: bool) -> None:
    topic = f"new-{kind}-{batching}"
    ids = await filled(client, topic, batching=batching)
    async with client.consumer(topic, "behind", type=kind, position=ids[5]) as consumer:
        assert await texts(consumer, 4) == [b"6", b"7", b"8", b"9"]
    async with client.consumer(topic, "at", type=kind, position=ids[5], start_inclusive=True) as consumer:
        assert await texts(consumer, 5) == [b"5", b"6", b"7", b"8", b"9"]
    # It is an ordinary subscription from then on.
    async with client.consumer(topic, "behind", type=kind) as consumer:
        assert await texts(consumer, 4) == [b"6", b"7", b"8", b"9"]


async def test_a_seek_moves_the_partition_that_the_id_is_of(broker: forebay.Broker, client: Any) -> None:
    for topic in ("one", "two"):
        broker.create_topic(topic, partitions=2)
        await filled(client, topic, batching=False)
    async with client.consumer(["one", "two"], "s", position="earliest") as consumer:
        first = [await consumer.receive(timeout=PATIENCE) for _ in range(20)]
        assert await consumer.receive_many(timeout=0) == []
        target = next(message for message in first if "two-partition-1" in message.topic)
        assert target.id.topic == target.topic
        # Pickled, an id keeps its topic.
        await consumer.seek(pickle.loads(pickle.dumps(target.id)))
        behind = [message for message in first if message.topic == target.topic and message.id > target.id]
        again = [await consumer.receive(timeout=PATIENCE) for _ in behind]
        assert [message.id for message in again] == [message.id for message in behind]
        assert await consumer.receive_many(timeout=0) == []
        for position in (str(target.id), MessageId.from_bytes(target.id.to_bytes())):
            with pytest.raises(errors.InvalidArgument, match="which of the 4 partitions"):
                await consumer.seek(position)
        with pytest.raises(errors.InvalidArgument, match="partition 7"):
            await consumer.seek("(1,2,7,-1)")
        with pytest.raises(errors.InvalidArgument, match="which of the 4 partitions"):
            await consumer.ack(MessageId.parse(str(target.id)))
        await consumer.ack(target.id)
    async with client.consumer("one", "other") as consumer:
        for act in (consumer.seek, consumer.ack, consumer.ack_cumulative):
            with pytest.raises(errors.InvalidArgument, match="not a topic of this consumer"):
                await act(target.id)


async def test_a_reader_does_not_apply_one_id_to_several_partitions(
    broker: forebay.Broker, client: Any
) -> None:
    broker.create_topic("parts", partitions=2)
    ids = await filled(client, "parts", batching=False)
    await filled(client, "whole", batching=False)
    for topic in ("parts", ["parts-partition-0", "whole"]):
        with pytest.raises(errors.InvalidArgument, match="2 partitions are opened"):
            await client.reader(topic, position=ids[3])
    partition = ids[3].partition
    with pytest.raises(errors.InvalidArgument, match=f"of partition {partition}"):
        await client.reader(f"parts-partition-{1 - partition}", position=ids[3])
    async with client.reader("whole", position="earliest") as reader:
        other = await reader.receive(timeout=PATIENCE)
    with pytest.raises(errors.InvalidArgument, match="whole: give an id"):
        await client.reader(f"parts-partition-{partition}", position=other.id)
    async with client.reader(f"parts-partition-{partition}", position=ids[3]) as reader:
        behind = [one for one in ids if one.partition == partition and one > ids[3]]
        assert [(await reader.receive(timeout=PATIENCE)).id for _ in behind] == behind


@pytest.mark.parametrize("receipt", [False, True])
async def test_an_id_that_lacks_the_batch_size_is_refused_by_ack(client: Any, receipt: bool) -> None:
    topic = f"parsed-{receipt}"
    await filled(client, topic)
    async with client.consumer(topic, "s", position="earliest", ack_receipt=receipt) as consumer:
        message = next(m for m in await consumer.receive_many(timeout=PATIENCE) if m.id.batch_index >= 0)
        with pytest.raises(errors.InvalidArgument, match="lacks the batch size"):
            await consumer.ack(MessageId.parse(str(message.id)))
        await consumer.ack(MessageId.from_bytes(message.id.to_bytes()))


@pytest.mark.parametrize("receipt", [False, True])
async def test_a_position_is_no_message_that_can_be_acknowledged(client: Any, receipt: bool) -> None:
    topic = f"position-{receipt}"
    async with client.consumer(topic, "s", ack_receipt=receipt) as consumer:
        (empty,) = await consumer.last_message_ids()
        for position in (MessageId.latest, MessageId.earliest, empty):
            for verb in (consumer.ack, consumer.ack_cumulative, consumer.nack):
                with pytest.raises(errors.InvalidArgument, match="seek to"):
                    await verb(position)
            for verb in (consumer.ack_many, consumer.nack_many):
                with pytest.raises(errors.InvalidArgument, match="seek to"):
                    await verb([position])
        # None of them covers what comes.
        ids = await filled(client, topic)
        assert len(await texts(consumer, 10)) == 10
        for position in (MessageId.latest, MessageId.earliest):
            with pytest.raises(errors.InvalidArgument):
                await consumer.ack_many([*ids, position])
        # Nothing of a list that was refused is acknowledged.
        await consumer.redeliver_unacknowledged()
        assert len(await texts(consumer, 10)) == 10


NOW = 1_795_262_400_000
"""2026-11-21T12:00:00Z in milliseconds."""
PLACES: dict[str, Any] = {
    "command line": lambda value: at_flag("--from", value),
    "Spark": _offsets.timestamp,
    "frames": lambda value: frames_position("start", value, ["t"]).ms,
    "reader": lambda value: reader_start(value).targets()[0],
    "seek": seek_target,
}
"""Each place that takes a time, as a function to milliseconds."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("2026-11-21T12:00:00Z", NOW),
        ("2026-11-21T13:00:00+01:00", NOW),
        (str(NOW), NOW),
        ("2h", NOW - 7_200_000),
        ("-2h", NOW - 7_200_000),
        ("250ms", NOW - 250),
        (NOW, NOW),
        (datetime.fromtimestamp(NOW / 1000, UTC), NOW),
        (timedelta(hours=2), NOW - 7_200_000),
        (timedelta(hours=-2), NOW - 7_200_000),
    ],
)
def test_a_time_is_the_same_everywhere(
    place: str, given: Any, ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW / 1000)
    if place != "command line" or isinstance(given, str):
        assert PLACES[place](given) == ms


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "given",
    [
        *("2026-11-21T12:00:00", "2026-11-21", datetime(2026, 11, 21), "1969-12-31T00:00:00Z", -5, "-5"),
        *("soon", "-soon", "", "2 weeks", 1.5, True, None),
    ],
)
def test_what_is_no_time_is_refused_everywhere(place: str, given: Any) -> None:
    if place == "command line" and not isinstance(given, str):
        return
    if place == "reader" and (isinstance(given, bool) or not isinstance(given, str | int | datetime)):
        assert reader_start(given) is None, "left to the option"
        return
    with pytest.raises((InvalidArgument, ValueError)):
        PLACES[place](given)
