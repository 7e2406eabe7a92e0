"""Table views: what they hold, what they tell, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import errors

from support.pulsar.harness import PulsarService, RealPulsar
from support.waiting import eventually, until


@pytest.fixture
def blocking(service: PulsarService) -> Iterator[Any]:
    with forebay.blocking.connect(service.url) as client:
        yield client


@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_a_view_holds_the_last_value_of_each_key(client: Any, topic: str, batching: bool) -> None:
    async with client.producer(topic, batching=batching) as producer:
        for value in (b"1", b"2"):
            await producer.send_many([b"a" + value, b"b" + value, b"none"], keys=["a", "b", None])
        await producer.send(b"c1", key="c")
        async with client.table_view(topic) as view:
            assert sorted(view.items()) == [("a", b"a2"), ("b", b"b2"), ("c", b"c1")]
            assert (view.get("a"), view["b"], view.get("d"), view.get("d", b"?")) == (
                b"a2",
                b"b2",
                None,
                b"?",
            )
            assert ("a" in view, "d" in view, len(view)) == (True, False, 3)
            assert sorted(view) == sorted(view.keys()) == ["a", "b", "c"]
            assert sorted(view.values()) == [b"a2", b"b2", b"c1"]
            assert view.topic == topic
            assert view.stats() == {"read": 7, "callbacks_failed": 0}
            with pytest.raises(KeyError):
                view["d"]


async def test_an_empty_payload_deletes_its_key(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send_many([b"1", b"2", b"3"], keys=["a", "b", "c"])
        async with client.table_view(topic) as view:
            await producer.send(b"", key="a")
            await producer.send(b"", key="b", null_value=True)
            await producer.send(b"", key="never")
            await view.refresh()
            assert view.items() == [("c", b"3")]


async def test_a_view_of_an_empty_topic_opens_and_fills(client: Any, topic: str) -> None:
    async with client.table_view(topic) as view, client.producer(topic) as producer:
        assert (len(view), view.items()) == (0, [])
        await producer.send(b"x", key="a")
        await until(lambda: view.get("a") == b"x")


async def test_a_view_of_partitions_has_the_keys_of_all(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    keys = [str(number) for number in range(50)]
    async with client.producer(topic) as producer:
        await producer.send_many([key.encode() for key in keys], keys)
        async with client.table_view(topic) as view:
            assert sorted(view) == sorted(keys)
            await producer.send_many([b"new"] * 50, keys)
            await view.refresh()
            assert set(view.values()) == {b"new"}


async def test_a_view_has_the_keys_of_partitions_that_are_added(client: Any, service: PulsarService) -> None:
    topic = service.topic(partitions=1)
    often = {"partitions_update_interval": 0.1}
    keys = [str(number) for number in range(50)]
    async with client.table_view(topic, **often) as view:
        async with client.producer(topic) as producer:
            await producer.send_many([b"old"] * 50, keys)
        service.grow_topic(topic, 4)
        async with client.producer(topic) as producer:
            ids = await producer.send_many([b"new"] * 50, keys)
        assert {id.partition for id in ids} == {0, 1, 2, 3}
        await until(lambda: view.stats()["read"] == 100)
        await view.refresh()
        # A key moved to another partition, whose reader knows no order with the old one.
        assert sorted(view) == sorted(keys)
        assert set(view.values()) == {b"new"}


async def test_refresh_waits_for_what_was_sent_before(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer, client.table_view(topic) as view:
        for number in range(20):
            await producer.send(b"%d" % number, key="k")
            await view.refresh()
            assert view["k"] == b"%d" % number


@pytest.mark.parametrize("existing", [True, False])
async def test_listeners_get_each_change_once(client: Any, topic: str, existing: bool) -> None:
    told: list[tuple[str, bytes | None]] = []
    async with client.producer(topic) as producer:
        await producer.send_many([b"1", b"2"], keys=["a", "b"])
        async with client.table_view(topic) as view:
            end = view.listen(lambda key, value: told.append((key, value)), existing=existing)
            assert sorted(told) == ([("a", b"1"), ("b", b"2")] if existing else [])
            told.clear()
            await producer.send_many([b"3", b"", b"4"], keys=["a", "b", "c"])
            await view.refresh()
            assert told == [("a", b"3"), ("b", None), ("c", b"4")]
            end()
            await producer.send(b"5", key="a")
            await view.refresh()
            assert len(told) == 3


async def test_a_listener_that_raises_is_logged_and_the_view_goes_on(
    client: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(key: str, value: bytes | None) -> None:
        raise RuntimeError("no room")

    async with client.producer(topic) as producer, client.table_view(topic) as view:
        told: list[str] = []
        view.listen(raises)
        view.listen(lambda key, value: told.append(key))
        with caplog.at_level(logging.ERROR, "forebay.table_view"):
            await producer.send(b"x", key="a")
            await view.refresh()
        assert (told, view["a"], view.stats()["callbacks_failed"]) == (["a"], b"x", 1)
        assert "no room" in caplog.text


async def test_values_are_made_by_a_function(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"7", key="a", properties={"unit": "m"})
        async with client.table_view(
            topic, value=lambda message: (int(message.data), message.properties)
        ) as view:
            assert view["a"] == (7, {"unit": "m"})


async def test_a_value_that_cannot_be_made_ends_the_view(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        async with client.table_view(topic, value=lambda message: int(message.data)) as view:
            await producer.send(b"7", key="a")
            await view.refresh()
            await producer.send(b"seven", key="a")
            with pytest.raises(ValueError, match="seven"):
                await view.refresh()
            for verb in (lambda: view["a"], lambda: view.get("a"), lambda: len(view), view.items):
                with pytest.raises(ValueError, match="seven"):
                    verb()
        with pytest.raises(ValueError, match="seven"):
            await client.table_view(topic, value=lambda message: int(message.data))


async def test_a_reader_that_ends_ends_the_view(client: Any, service: PulsarService) -> None:
    topic = service.topic()
    async with client.producer(topic) as producer:
        await producer.send(b"x", key="a")
        view = await client.table_view(topic)
        await view._reader._native.close()

        def ended() -> bool:
            try:
                return not view["a"]
            except errors.Closed:
                return True

        await until(ended)
        with pytest.raises(errors.Closed):
            await view.refresh()
        await view.close()


async def test_a_closed_view_raises(client: Any, topic: str) -> None:
    view = await client.table_view(topic)
    await view.close()
    await view.close()
    assert view.closed
    for verb in (view.items, view.keys, view.values, lambda: view.get("a"), lambda: "a" in view):
        with pytest.raises(errors.Closed, match="closed"):
            verb()
    with pytest.raises(errors.Closed):
        await view.refresh()


async def test_closing_the_client_closes_its_views(service: PulsarService, topic: str) -> None:
    async with forebay.connect(service.url) as client:
        view = await client.table_view(topic)
    assert view.closed


async def test_a_view_leaves_no_subscription(client: Any, topic: str) -> None:
    async with client.table_view(topic), client.table_view(topic, subscription="mine"):
        pass
    async with client.table_view(topic, subscription="mine") as view:
        assert len(view) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"type": "shared"}, {"position": "latest"}, {"ack_timeout": 5}, {"value": 3}, {"queue": 1}],
    ids=str,
)
async def test_an_option_without_a_meaning_is_named(client: Any, topic: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match=next(iter(wrong))):
        client.table_view(topic, **wrong)


async def test_a_listener_must_be_a_plain_function(client: Any, topic: str) -> None:
    async def waits(key: str, value: bytes | None) -> None: ...

    async with client.table_view(topic) as view:
        for wrong in (waits, None, 3):
            with pytest.raises(errors.InvalidArgument, match="plain function"):
                view.listen(wrong)


async def test_new_messages_while_a_view_is_opened(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send_many(
            [b"%d" % number for number in range(3000)], [str(n % 100) for n in range(3000)]
        )

        async def more() -> None:
            for number in range(100):
                await producer.send(b"last", key=str(number))

        sending = asyncio.ensure_future(more())
        async with client.table_view(topic, receiver_queue=100) as view:
            assert len(view) == 100
            await sending
            await view.refresh()
            assert set(view.values()) == {b"last"}


@pytest.mark.real_pulsar
@pytest.mark.parametrize("batching", [True, False], ids=["batches", "single"])
async def test_a_compacted_topic_whose_last_message_deletes_a_key(
    real_pulsar: RealPulsar, batching: bool
) -> None:
    topic = real_pulsar.topic()
    path = f"{real_pulsar.path(topic)}/compaction"
    async with forebay.connect(real_pulsar.url) as client:
        async with client.producer(topic, batching=batching) as producer:
            await producer.send_many([b"1", b"2", b"3", b""], keys=["a", "b", "a", "b"])
            await asyncio.to_thread(real_pulsar.rest, "PUT", path)

            def compacted() -> bool:
                return real_pulsar.rest("GET", path)["status"] == "SUCCESS"

            await until(compacted)
            async with client.table_view(topic) as view:
                assert view.items() == [("a", b"3")]
                await producer.send(b"4", key="b")
                await view.refresh()
                assert view["b"] == b"4"


def test_a_view_without_an_event_loop(blocking: Any, topic: str) -> None:
    told: list[tuple[str, bytes | None]] = []
    with blocking.producer(topic) as producer:
        producer.send_many([b"1", b"2"], keys=["a", "b"])
        with blocking.table_view(topic) as view:
            assert dict(view.items()) == {"a": b"1", "b": b"2"}
            view.listen(lambda key, value: told.append((key, value)))
            producer.send_many([b"3", b""], keys=["a", "b"])
            view.refresh()
            assert (view["a"], "b" in view, len(view), list(view)) == (b"3", False, 1, ["a"])
            producer.send(b"4", key="c")
            eventually(lambda: view.get("c") == b"4")
            assert told == [("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None), ("c", b"4")]
        with pytest.raises(errors.Closed):
            view.items()
