"""The asyncio API, on top of the engine, which tests/contract covers."""

import asyncio
import doctest
import gc
import importlib
import subprocess
import sys
import warnings

import pytest

import forebay
from forebay import errors

from support.waiting import PATIENCE


@pytest.mark.parametrize(
    "module",
    [
        "forebay",
        "forebay.blocking",
        "forebay.broker",
        "forebay._core.unsupported",
        "forebay.errors",
        "forebay.frames",
        "forebay.mqtt",
        "forebay._core.options",
        "forebay._core.protocols",
        "forebay.pulsar",
        "forebay.tubemq",
    ],
)
def test_the_examples_of_the_docstrings_are_true(module):
    done = doctest.testmod(importlib.import_module(module), raise_on_error=False)
    assert done.attempted > 0
    assert done.failed == 0


def test_importing_it_loads_next_to_nothing():
    code = "import sys, forebay; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"asyncio", "forebay._engine", "pyarrow", "dataclasses"} & set(loaded.split())


def test_every_public_name_is_there():
    for name in forebay.__all__:
        assert getattr(forebay, name) is not None
        assert name in dir(forebay)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = forebay.nonsense


async def test_an_embedded_broker_ends_with_its_client():
    async with forebay.connect("embedded:") as client:
        broker = client.broker
        assert broker is not None
        assert broker.running
        assert client.url == broker.url
    assert not broker.running


async def test_an_embedded_broker_keeps_its_data(tmp_path):
    url = f"embedded:{tmp_path / 'store'}"
    async with forebay.connect(url) as client:
        async with client.consumer("t", "s"), client.producer("t") as producer:
            await producer.send(b"kept")
    async with forebay.connect(url) as client, client.consumer("t", "s") as consumer:
        assert (await consumer.receive(timeout=PATIENCE)).data == b"kept"


async def test_an_embedded_broker_ends_when_connecting_fails():
    before = threads()
    with pytest.raises(errors.Error):
        await forebay.connect("embedded:/dev/null/no-folder")
    assert threads() <= before + 2


def threads():
    import threading

    return threading.active_count()


async def test_what_the_url_says_holds_for_handles_and_keywords_win():
    async with forebay.connect("embedded:?producer.name=from-url&type=shared") as client:
        async with client.producer("t") as producer:
            assert producer.name == "from-url"
        async with client.producer("t", name="from-keyword") as producer:
            assert producer.name == "from-keyword"
        async with client.consumer("t", "s"), client.consumer("t", "s"):
            pass


def test_mistakes_show_before_anything_is_awaited():
    with pytest.raises(errors.InvalidArgument, match="did you mean"):
        forebay.connect("embedded:", conect_timeout=1)
    with pytest.raises(errors.InvalidArgument, match="scheme"):
        forebay.connect("pulsr://h")


async def test_bad_arguments_of_handles_show_at_once():
    async with forebay.connect("embedded:") as client:
        for open_it in (
            lambda: client.producer("t", compression="nonsense"),
            lambda: client.consumer("t", ""),
            lambda: client.consumer([], "s"),
            lambda: client.consumer("t", "s", position="nowhere"),
        ):
            with pytest.raises(errors.InvalidArgument):
                open_it()


async def test_times_and_delays_are_checked():
    import datetime

    async with forebay.connect("embedded:") as client, client.producer("t") as producer:
        with pytest.raises(errors.InvalidArgument, match="time zone"):
            producer.send(b"x", event_time=datetime.datetime(2024, 1, 1))
        with pytest.raises(errors.InvalidArgument, match="exclude"):
            producer.send(b"x", deliver_at=1, deliver_after=1)
        async with client.reader("t", position="earliest") as reader:
            moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
            await producer.send(b"x", event_time=moment)
            message = await reader.receive(timeout=PATIENCE)
            assert message.event_time == int(moment.timestamp() * 1000)


async def test_ack_may_be_awaited_or_not():
    async with forebay.connect("embedded:") as client, client.consumer("t", "s") as consumer:
        async with client.producer("t") as producer:
            await producer.send_many([b"1", b"2", b"3"])
        first, second, third = [await consumer.receive(timeout=PATIENCE) for _ in range(3)]
        consumer.ack(first)
        await consumer.ack(second)
        await asyncio.wait_for(consumer.ack(third), PATIENCE)


async def test_an_iteration_may_be_left_and_taken_up_again():
    async with forebay.connect("embedded:") as client, client.consumer("t", "s") as consumer:
        async with client.producer("t") as producer:
            await producer.send_many([b"%d" % number for number in range(10)])
        got = []
        for _ in range(2):
            async for message in consumer:
                got.append(message.data)
                if len(got) % 5 == 0:
                    break
        assert got == [b"%d" % number for number in range(10)]


async def test_leaving_a_producer_flushes():
    async with forebay.connect("embedded:") as client, client.reader("t", position="earliest") as reader:
        async with client.producer("t", batching_delay="10s") as producer:
            for number in range(100):
                producer.send_nowait(b"%d" % number)
        got = []
        while len(got) < 100:
            got += await reader.receive_many(100, timeout=PATIENCE)


async def test_a_reader_leaves_nothing_behind():
    with forebay.Broker() as broker:
        async with forebay.connect(broker.url) as client:
            async with client.producer("t") as producer, client.reader("t", position="earliest") as reader:
                await producer.send(b"x")
                assert (await reader.receive(timeout=PATIENCE)).data == b"x"
            async with client.reader("t", position="earliest") as reader:
                assert reader.subscription.startswith("reader-")


async def test_a_frame_without_arrow_is_refused_by_name():
    async with forebay.connect("embedded:") as client, client.producer("t") as producer:
        with pytest.raises(errors.InvalidArgument, match=r"builtins\.list has no Arrow interface"):
            producer.send_frame([1])
        with pytest.raises(errors.InvalidArgument, match="encoding"):
            producer.send_frame(Capsule(), encoding="xml")
        with pytest.raises(errors.InvalidArgument, match="value="):
            producer.send_frame(Capsule(), encoding="raw")


class Capsule:
    def __arrow_c_stream__(self, requested_schema=None):
        raise AssertionError("not needed")


def test_a_forgotten_client_warns_and_lets_go():
    async def main():
        client = await forebay.connect("embedded:")
        broker = client.broker
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del client
            gc.collect()
        assert any(
            issubclass(w.category, ResourceWarning) and "forebay.PulsarClient" in str(w.message)
            for w in caught
        )
        assert not broker.running

    asyncio.run(main())


async def test_a_child_keeps_its_client():
    with forebay.Broker() as broker:
        producer = await (await forebay.connect(broker.url)).producer("t")
        gc.collect()
        await producer.send(b"x")
        owner = producer._owner
        await owner.close()
        assert producer.closed


async def test_nothing_secret_is_shown():
    async with forebay.connect("embedded:", token="canary-7f3a") as client:
        async with client.producer("t") as producer, client.consumer("t", "s") as consumer:
            shown = "".join(map(repr, (client, producer, consumer, client.broker, client.stats())))
            assert "canary" not in shown
