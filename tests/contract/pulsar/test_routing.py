"""The choice of a partition: by a function of the program, among some of them, and opened on first use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.pulsar import OutgoingMessage, ProducerInterceptor

from support.messages import gather, numbered, payloads, receive
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE

Seen = tuple[str | None, dict[str, str], int]


class Odd(Exception):
    """Raised by a router."""


async def test_a_router_chooses_the_partition(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    seen: list[Seen] = []

    def router(key: str | None, properties: Mapping[str, str], partitions: int) -> int:
        seen.append((key, dict(properties), partitions))
        return int(properties["to"])

    async with client.consumer(topic, "s") as consumer, client.producer(topic, router=router) as producer:
        ids = await gather(
            *[
                producer.send(b"%d" % i, "k" if i % 2 else None, properties={"to": str(i % 3)})
                for i in range(30)
            ]
        )
        producer.send_nowait(b"last", properties={"to": "2"})
        await producer.flush()
        assert [message_id.partition for message_id in ids] == [i % 3 for i in range(30)]
        messages = await receive(consumer, 31)
        for partition in range(3):
            own = [int(m.data) for m in messages if m.id.partition == partition and bytes(m.data) != b"last"]
            assert own == list(range(partition, 30, 3))
        assert [m.id.partition for m in messages if bytes(m.data) == b"last"] == [2]
    assert seen == [("k" if i % 2 else None, {"to": str(i % 3)}, 3) for i in range(30)] + [
        (None, {"to": "2"}, 3)
    ]


@pytest.mark.parametrize("answer", [-1, 3, "1", 1.0, None, True, 2**70])
async def test_a_router_that_returns_nonsense_fails_its_message_only(
    client: Any, service: PulsarService, answer: Any
) -> None:
    topic = service.topic(partitions=3)

    def router(key: str | None, properties: Mapping[str, str], partitions: int) -> Any:
        return answer if key == "bad" else 1

    async with client.consumer(topic, "s") as consumer, client.producer(topic, router=router) as producer:
        first = [producer.send(payload) for payload in numbered(5)]
        with pytest.raises(errors.InvalidArgument, match=r"its router returned .* from 0 to 2"):
            producer.send(b"never", "bad")
        with pytest.raises(errors.InvalidArgument, match="its router returned"):
            producer.send_nowait(b"never", "bad")
        second = [producer.send(payload) for payload in numbered(10)[5:]]
        ids = await gather(*first, *second)
        assert producer.pending == 0
        messages = await receive(consumer, 10)
        assert payloads(messages) == numbered(10)
        assert [message.id for message in messages] == ids


async def test_a_router_that_raises_fails_its_message_only(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)

    def router(key: str | None, properties: Mapping[str, str], partitions: int) -> int:
        if key == "bad":
            raise Odd("no")
        return 1

    async with client.consumer(topic, "s") as consumer, client.producer(topic, router=router) as producer:
        sent = [producer.send(b"m000000")]
        with pytest.raises(errors.InvalidArgument, match="router raised Odd"):
            producer.send(b"never", "bad")
        sent.append(producer.send(b"m000001"))
        await gather(*sent)
        assert payloads(await receive(consumer, 2)) == numbered(2)


async def test_a_router_is_no_coroutine_function(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)

    async def router(key: str | None, properties: Mapping[str, str], partitions: int) -> int:
        return 1

    options: dict[str, Any] = {"router": router}
    async with client.producer(topic, **options) as producer:
        with pytest.raises(errors.InvalidArgument, match="coroutine function"):
            producer.send(b"x")


async def test_a_router_may_send(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    inner: list[Any] = []

    def router(key: str | None, properties: Mapping[str, str], partitions: int) -> int:
        if key == "outer":
            inner.append(producer.send(b"inner", "inner"))
        return 1

    async with client.consumer(topic, "s") as consumer, client.producer(topic, router=router) as producer:
        await producer.send(b"outer", "outer")
        await gather(*inner)
        assert payloads(await receive(consumer, 2)) == [b"inner", b"outer"]


async def test_a_topic_without_partitions_has_nothing_to_choose(client: Any, topic: str) -> None:
    def router(key: str | None, properties: Mapping[str, str], partitions: int) -> int:
        raise AssertionError("not called")

    async with client.producer(topic, router=router) as producer:
        await producer.send(b"x")


async def test_a_router_sees_what_interceptors_have_made(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    told: list[BaseException | None] = []

    class Keys(ProducerInterceptor):
        def before_send(self, producer: Any, message: OutgoingMessage) -> None:
            message.key = "made"

        def on_send_acknowledged(
            self, producer: Any, message: OutgoingMessage, message_id: Any, error: BaseException | None
        ) -> None:
            told.append(error)

    def router(key: str | None, properties: Mapping[str, str], partitions: int) -> int:
        assert key == "made"
        return 7 if properties else 2

    async with client.producer(topic, router=router, interceptors=Keys()) as producer:
        assert (await producer.send(b"x", "given")).partition == 2
        with pytest.raises(errors.InvalidArgument):
            producer.send(b"x", properties={"a": "b"})
    assert [type(error) for error in told] == [type(None), errors.InvalidArgument]


async def test_a_router_chooses_the_partition_of_each_of_many(client: Any, service: PulsarService) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")

    def by_key(key: str | None, properties: Any, count: int) -> int:
        return int(key or "0")

    keys = [str(at % 3) for at in range(100)]
    topic = service.topic(partitions=3)
    async with client.producer(topic, router=by_key, max_pending=10) as producer:
        ids = await producer.send_many([b"x"] * 100, keys)
        assert [id.partition for id in ids] == [int(key) for key in keys]
        ids = await producer.send_frame(pyarrow.table({"v": keys, "k": keys}), value="v", key="k")
        assert [id.partition for id in ids] == [int(key) for key in keys]
        with pytest.raises(errors.InvalidArgument, match="from 0 to 2"):
            producer.send_many([b"x"] * 2, ["0", "3"])


async def test_a_router_is_told_of_new_partitions(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    options: dict[str, Any] = {"partitions_update_interval": 0.1, "lazy_start": True}
    async with client.producer(
        topic, router=lambda _key, _properties, count: count - 1, **options
    ) as producer:
        assert (await producer.send(b"x")).partition == 1
        service.grow_topic(topic, 4)
        async with asyncio.timeout(PATIENCE):
            while (await producer.send(b"x")).partition != 3:
                await asyncio.sleep(0.01)
        assert producer.started_partitions <= 3, "those in between got no message"


def test_a_router_of_the_blocking_api(service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    with (
        forebay.blocking.connect(service.url) as client,
        client.producer(topic, router=lambda key, _properties, _count: int(key or 9)) as producer,
    ):
        assert [producer.send(b"x", str(i)).partition for i in (2, 0, 1)] == [2, 0, 1]
        with pytest.raises(errors.InvalidArgument, match="returned 9"):
            producer.send(b"x")


# ------------------------------------------------------------------------------------- round robin


async def test_partial_routing_uses_some_partitions(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=6)
    async with client.producer(
        topic, batching=False, routing="partial_round_robin", routing_partitions=2
    ) as producer:
        ids = await gather(*[producer.send(b"x") for _ in range(20)])
        keyed = await gather(*[producer.send(b"x", f"key-{i % 10}") for i in range(40)])
        used = {message_id.partition for message_id in ids}
        assert len(used) == 2
        assert {message_id.partition for message_id in keyed} == used
        for i in range(10):
            assert len({message_id.partition for message_id in keyed[i::10]}) == 1, "a key stays"


async def test_partial_routing_with_more_than_there_are_uses_all(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    async with client.producer(
        topic, batching=False, routing="partial_round_robin", routing_partitions=9
    ) as producer:
        ids = await gather(*[producer.send(b"x") for _ in range(10)])
        assert {message_id.partition for message_id in ids} == {0, 1}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"routing": "partial_round_robin"}, "needs routing_partitions"),
        ({"routing_partitions": 2}, "routing_partitions has no effect"),
        ({"routing": "partial_round_robin", "routing_partitions": 0}, "between 1"),
        (
            {"routing": "partial_round_robin", "routing_partitions": 1, "router": lambda *_: 0},
            "exclude each other",
        ),
        ({"router": "round"}, "expected a callable"),
        ({"lazy_start": True, "access_mode": "exclusive"}, "lazy_start and access_mode"),
        ({"lazy_start": True, "access_mode": "wait_for_exclusive"}, "lazy_start and access_mode"),
        ({"lazy_start": True, "access_mode": "exclusive_with_fencing"}, "lazy_start and access_mode"),
        ({"chunk_max_size": 1000}, "no effect without chunking"),
        ({"chunking": True, "chunk_max_size": 0}, "at least 1 byte"),
    ],
)
async def test_options_that_cannot_be_are_refused_at_once(
    client: Any, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=why):
        client.producer("t", **options)


# -------------------------------------------------------------------------------------- lazy start


async def test_lazy_partitions_are_opened_on_first_use(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=5)
    async with client.producer(
        topic, lazy_start=True, router=lambda key, _properties, _count: int(key)
    ) as producer:
        assert producer.started_partitions == 1
        assert producer.name
        # A partition that is not open is free for an exclusive producer.
        async with contextlib.AsyncExitStack() as stack:
            free = 0
            for partition in range(5):
                with contextlib.suppress(errors.ProducerBusy, errors.ProducerFenced):
                    await stack.enter_async_context(
                        client.producer(f"{topic}-partition-{partition}", access_mode="exclusive")
                    )
                    free += 1
            assert free == 4
        ids = await gather(*[producer.send(b"x", str(i)) for i in (3, 3, 1)])
        assert [message_id.partition for message_id in ids] == [3, 3, 1]
        assert 2 <= producer.started_partitions <= 3


async def test_lazy_partitions_lose_and_reorder_nothing(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=4)
    sent = numbered(400)
    keys = [f"k{i % 40}" for i in range(400)]
    async with (
        client.consumer(topic, "s") as consumer,
        client.producer(topic, lazy_start=True) as producer,
    ):
        assert producer.started_partitions == 1
        ids = list(await producer.send_many(sent, keys))
        assert producer.started_partitions == 4
        messages = await receive(consumer, 400)
        assert {str(m.id): bytes(m.data) for m in messages} == {
            str(at): payload for at, payload in zip(ids, sent, strict=True)
        }
        for partition in range(4):
            own = [bytes(m.data) for m in messages if m.id.partition == partition]
            assert own == sorted(own)


async def test_a_lazy_producer_goes_on_behind_its_last_sequence_ids(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=3)
    async with client.consumer(topic, "s") as consumer:
        for run in range(3):
            async with client.producer(topic, name="till-7", lazy_start=True) as producer:
                sent = [b"%d-%d" % (run, i) for i in range(30)]
                ids = await gather(*[producer.send(payload, payload.decode()) for payload in sent])
                assert all(message_id.entry >= 0 for message_id in ids)
            messages = await receive(consumer, 30)
            assert sorted(payloads(messages)) == sorted(sent)
            assert {message.producer_name for message in messages} == {"till-7"}


async def test_single_routing_opens_one_partition_lazily(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=4)
    async with client.producer(topic, lazy_start=True, routing="single", batching=False) as producer:
        ids = await gather(*[producer.send(b"x") for _ in range(20)])
        assert len({message_id.partition for message_id in ids}) == 1
        assert producer.started_partitions == 1


async def test_a_lazy_producer_that_closes_sends_what_it_was_given(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=4)
    async with client.consumer(topic, "s") as consumer:
        async with client.producer(topic, lazy_start=True, batching_delay="20s") as producer:
            for payload in numbered(40):
                producer.send_nowait(payload, payload.decode())
        assert sorted(payloads(await receive(consumer, 40))) == numbered(40)


async def test_a_lazy_partition_that_cannot_be_opened_fails_its_messages_only(
    client: Any, service: PulsarService
) -> None:
    topic = service.topic(partitions=3)
    options: dict[str, Any] = {"lazy_start": True, "send_timeout": 0.7}
    async with client.producer(
        topic, router=lambda key, _properties, _count: int(key), **options
    ) as producer:

        async def send_until_stored(partition: int) -> None:
            async with asyncio.timeout(PATIENCE):
                while True:
                    with contextlib.suppress(errors.Timeout):
                        assert (await producer.send(b"x", str(partition))).partition == partition
                        return

        taken: list[int] = []
        async with contextlib.AsyncExitStack() as stack:
            for partition in range(3):
                with contextlib.suppress(errors.ProducerBusy, errors.ProducerFenced):
                    await stack.enter_async_context(
                        client.producer(f"{topic}-partition-{partition}", access_mode="exclusive")
                    )
                    taken.append(partition)
            free = ({0, 1, 2} - set(taken)).pop()
            with pytest.raises(errors.Error):
                await producer.send(b"x", str(taken[0]))
            await send_until_stored(free)
        # The one that was in the way is gone.
        await send_until_stored(taken[0])


async def test_a_lazy_producer_is_closed_while_a_partition_opens(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    producer = await client.producer(topic, lazy_start=True, send_timeout=PATIENCE)
    sent = [producer.send(b"x", f"k{i}") for i in range(30)]
    await producer.close()
    assert len(await gather(*sent)) == 30
    with pytest.raises(errors.Closed):
        producer.send(b"x")
    # No partition is left open at the broker.
    for partition in range(3):
        async with client.producer(f"{topic}-partition-{partition}", access_mode="exclusive"):
            pass
