"""Readers: where they begin, over partitions, and what they leave behind."""

from __future__ import annotations

import functools
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.pulsar import MessageId

from support.messages import gather, nothing, numbered, payloads, receive
from support.observing import behind
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, until


async def two_partitions(client: Any, service: PulsarService) -> tuple[str, list[str], list[bytes]]:
    """A topic with five messages in each of its partitions."""
    topic = service.topic(partitions=2)
    names = [f"{topic}-partition-{number}" for number in range(2)]
    for name, letter in zip(names, "ab", strict=True):
        async with client.producer(name, batching=False) as producer:
            await gather(*[producer.send(f"{letter}{number}".encode()) for number in range(5)])
    return topic, names, [f"{letter}{number}".encode() for letter in "ab" for number in range(5)]


def moment() -> int:
    """The time now, and that no message has: publish times are whole milliseconds."""

    def after(then: int) -> int:
        while (now := int(time.time() * 1000)) < then + 2:
            time.sleep(0.001)
        return now

    found = after(int(time.time() * 1000))
    after(found)
    return found


@pytest.mark.parametrize("form", ["ms", "datetime", "timedelta", "text", "text without a sign", "ISO 8601"])
async def test_from_a_time(client: Any, service: PulsarService, form: str) -> None:
    topic = service.topic(partitions=2)
    async with client.producer(topic, batching=False, routing="round_robin") as producer:
        await gather(*[producer.send(b"before") for _ in range(4)])
        at = moment()
        await gather(*[producer.send(payload) for payload in numbered(4)])
        position = {
            "ms": at,
            "datetime": datetime.fromtimestamp(at / 1000, UTC),
            "timedelta": timedelta(hours=1),
            "text": "-1h",
            "text without a sign": "1h",
            "ISO 8601": datetime.fromtimestamp(at / 1000, UTC).isoformat(),
        }[form]
        wanted = numbered(4) if form in ("ms", "datetime", "ISO 8601") else [b"before"] * 4 + numbered(4)
        async with client.reader(topic, position=position) as reader:
            assert sorted(payloads(await receive(reader, len(wanted)))) == sorted(wanted)
            await nothing(reader)


async def test_a_duration_back_is_measured_when_the_reader_is_opened(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"before")
        opening = client.reader(topic, position="-0s")
        moment()
        async with opening as reader:
            await producer.send(b"after")
            assert bytes((await reader.receive(timeout=PATIENCE)).data) == b"after"
            await nothing(reader)


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("form", ["mapping", "list", "texts"])
async def test_from_an_id_for_each_partition(
    client: Any, service: PulsarService, form: str, inclusive: bool
) -> None:
    topic, names, sent = await two_partitions(client, service)
    async with client.reader(topic, position="earliest") as reader:
        found = {bytes(message.data): message.id for message in await receive(reader, 10)}
    ids = [found[b"a3"], found[b"b1"]]
    position: Any = {
        "mapping": dict(zip(names, ids, strict=True)),
        "list": ids,
        "texts": {topic.rpartition("/")[2] + f"-partition-{id.partition}": str(id) for id in ids},
    }[form]
    wanted = [*sent[4:5], *sent[7:]]
    if inclusive:
        wanted = [*sent[3:5], *sent[6:]]
    async with client.reader(topic, position=position, start_inclusive=inclusive) as reader:
        assert sorted(payloads(await receive(reader, len(wanted)))) == wanted
        await nothing(reader)


async def test_a_reader_goes_on_where_another_ended(client: Any, service: PulsarService) -> None:
    topic, _, sent = await two_partitions(client, service)
    last: dict[str, MessageId] = {}
    got: list[bytes] = []
    while len(got) < 10:
        async with client.reader(topic, position=last or "earliest", receiver_queue=2) as reader:
            for message in await reader.receive_many(3, timeout=PATIENCE):
                last[message.topic] = message.id
                got.append(bytes(message.data))
    assert sorted(got) == sent


async def test_a_partition_without_an_id_is_read_from_its_beginning(
    client: Any, service: PulsarService
) -> None:
    topic, names, sent = await two_partitions(client, service)
    async with client.reader(names[0], position="earliest") as reader:
        third = (await receive(reader, 3))[2].id
    async with client.reader(topic, position={names[0]: third}) as reader:
        assert sorted(payloads(await receive(reader, 7))) == sent[3:]


async def test_a_reader_has_the_name_of_its_subscription(client: Any, topic: str) -> None:
    async with client.reader(topic, subscription="mine") as reader:
        assert reader.subscription == "mine"
        with pytest.raises(errors.ConsumerBusy):
            await client.reader(topic, subscription="mine", position=1)


@pytest.mark.parametrize(
    "position",
    [
        "-soon",
        "middle",
        {"t": "middle"},
        {"t": "earliest"},
        {3: "(1,2,-1,-1)"},
        [5],
        datetime(2026, 1, 1),
        1.5,
    ],
    ids=str,
)
async def test_what_is_no_position_is_refused_at_once(client: Any, topic: str, position: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        client.reader(topic, position=position)


async def test_an_id_of_another_topic_is_refused(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer, client.reader(topic) as reader:
        await producer.send(b"x")
        id = (await reader.receive(timeout=PATIENCE)).id
        with pytest.raises(errors.InvalidArgument, match="not of"):
            client.reader(topic, position={"other": id})
        with pytest.raises(errors.InvalidArgument, match="not a topic of this consumer"):
            await client.reader("other", position=[id])


async def test_times_are_of_readers_only(client: Any, topic: str) -> None:
    for position in (1, "-1h", timedelta(hours=1), []):
        with pytest.raises(errors.InvalidArgument, match="position"):
            client.consumer(topic, "s", position=position)


def test_without_an_event_loop(service: PulsarService, topic: str) -> None:
    with forebay.blocking.connect(service.url) as client, client.producer(topic) as producer:
        producer.send_many(numbered(3))
        with client.reader(topic, position="-1h", subscription="mine") as reader:
            messages = [reader.receive(timeout=PATIENCE) for _ in range(3)]
        with client.reader(topic, position=[messages[1].id]) as reader:
            assert bytes(reader.receive(timeout=PATIENCE).data) == numbered(3)[2]


async def test_several_topics_are_read(client: Any, service: PulsarService) -> None:
    topics = [service.topic(), service.topic(partitions=2)]
    for topic in topics:
        async with client.producer(topic, routing="round_robin") as producer:
            await gather(*[producer.send(payload) for payload in numbered(10)])
    async with client.reader(topics, position="earliest") as reader:
        messages = await receive(reader, 20)
        assert {message.topic.split("-partition-")[0] for message in messages} == set(topics)
        assert sorted(payloads(messages)) == sorted(numbered(10) * 2)


@pytest.mark.parametrize("fresh", [True, False], ids=["empty topic", "topic with messages"])
@pytest.mark.parametrize("arrived", [True, False], ids=["before the loss", "during it"])
async def test_a_reader_at_the_end_loses_nothing_with_its_connection(
    service: PulsarService, client: Any, topic: str, fresh: bool, arrived: bool
) -> None:
    async with (
        client.producer(topic) as producer,
        behind(service.url, told=True) as (proxy, url),
        forebay.connect(url, max_backoff=0.2) as lossy,
    ):
        if not fresh:
            await producer.send(b"before")
        async with lossy.reader(topic, position="latest") as reader:
            if arrived:
                await producer.send(b"0")
                # It waits in the engine.
                await until(lambda: lossy.stats()["connected"])
                assert await reader.has_message_available()
            await proxy.deafen()
            proxy.cut()
            await until(lambda: not reader.connected)
            await producer.send(b"1")
            await proxy.listen()
            wanted = [b"0", b"1"] if arrived else [b"1"]
            assert payloads(await receive(reader, len(wanted))) == wanted
            await nothing(reader)
            assert lossy.stats()["reconnects"] > 0


async def test_a_reader_that_has_sought_the_end_loses_nothing_with_its_connection(
    service: PulsarService, client: Any, topic: str
) -> None:
    async with (
        client.producer(topic) as producer,
        behind(service.url, told=True) as (proxy, url),
        forebay.connect(url, max_backoff=0.2) as lossy,
        lossy.reader(topic, position="earliest") as reader,
    ):
        await producer.send(b"before")
        await reader.seek("latest")
        await until(lambda: reader.connected)
        await proxy.deafen()
        proxy.cut()
        await until(lambda: not reader.connected)
        await producer.send(b"1")
        await proxy.listen()
        assert payloads(await receive(reader, 1)) == [b"1"]
        await nothing(reader)


async def test_options_without_an_effect_are_refused(client: Any, topic: str) -> None:
    for name, value in (("pattern_update_interval", 2), ("pattern_max_topics", 5), ("topics_domain", "all")):
        for begin in (client.reader, functools.partial(client.consumer, subscription="s")):
            with pytest.raises(errors.InvalidArgument, match=f"{name} has no effect for a"):
                begin(topic, **{name: value})
            await (await begin(topic, **{name: None})).close()
    with pytest.raises(errors.InvalidArgument, match="durable has no effect for a reader"):
        client.reader(topic, durable=True)
    for kind in ("shared", "key_shared"):
        with pytest.raises(errors.InvalidArgument, match="read_compacted is for exclusive and failover"):
            client.consumer(topic, "s", type=kind, read_compacted=True)
    async with client.consumer(topic, "s", type="failover", read_compacted=True):
        pass
