"""The drop-in for pulsar-client: how its handles, its threads and the process end."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import forebay.compat.pulsar as pulsar
import forebay.compat.pulsar.asyncio as aio
import pulsar as official
from forebay import Broker

from support.pulsar.harness import EmbeddedPulsar
from support.pulsar.wire import CLOSE_CONSUMER, CLOSE_PRODUCER, SEND, FakeBroker
from support.scripts import free_port
from support.waiting import PATIENCE


@pytest.fixture
def silent() -> Iterator[FakeBroker]:
    """A broker that answers no message."""
    broker = FakeBroker({SEND: lambda *_: None})
    yield broker
    broker.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads(text: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if text in thread.name]


@pytest.fixture
def hanging() -> Iterator[FakeBroker]:
    """A broker that does not answer when handles are closed."""
    broker = FakeBroker({CLOSE_PRODUCER: lambda *_: None, CLOSE_CONSUMER: lambda *_: None})
    yield broker
    broker.close()


def test_the_handles_of_a_client_are_closed_side_by_side(hanging: FakeBroker) -> None:
    client = pulsar.Client(hanging.url, operation_timeout_seconds=3)
    for number in range(3):
        client.subscribe("t", f"s-{number}")
        client.create_producer("t")
    client.create_reader("t", pulsar.MessageId.earliest)
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < 12, "one after another they take 21 s"


async def test_asyncio_closes_the_producers_side_by_side(hanging: FakeBroker) -> None:
    client = aio.Client(hanging.url, operation_timeout_seconds=3)
    _producers = [await client.create_producer("t") for _ in range(5)]
    start = time.monotonic()
    await client.close()
    assert time.monotonic() - start < 10, "one after another they take 15 s"


def test_shutdown_fails_what_has_no_answer(silent: FakeBroker) -> None:
    client = pulsar.Client(silent.url)
    producer = client.create_producer("t")
    results: list[Any] = []
    for _ in range(5):
        producer.send_async(b"x", lambda result, _: results.append(result))
    client.shutdown()
    assert results == [pulsar.Result.AlreadyClosed] * 5
    with pytest.raises(pulsar.AlreadyClosed):
        producer.send(b"x")


def test_a_send_times_out(silent: FakeBroker) -> None:
    client = pulsar.Client(silent.url)
    producer = client.create_producer("t", send_timeout_millis=200)
    results: list[Any] = []
    producer.send_async(b"x", lambda result, _: results.append(result))
    with pytest.raises(pulsar.Timeout, match="Pulsar error: TimeOut"):
        producer.send(b"x")
    producer.flush()
    assert results == [pulsar.Result.Timeout]
    client.shutdown()


def test_a_full_queue_refuses_or_blocks(silent: FakeBroker) -> None:
    client = pulsar.Client(silent.url)
    producer = client.create_producer("t", max_pending_messages=3)
    results: list[Any] = []
    for _ in range(5):
        producer.send_async(b"x", lambda result, _: results.append(result))
    assert results == [pulsar.Result.ProducerQueueIsFull] * 2
    blocking = client.create_producer(
        "t", max_pending_messages=3, block_if_queue_full=True, send_timeout_millis=300
    )
    start = time.monotonic()
    for _ in range(5):
        blocking.send_async(b"x", None)
    assert time.monotonic() - start > 0.1
    client.shutdown()


async def test_asyncio_refuses_what_exceeds_the_queue(silent: FakeBroker) -> None:
    client = aio.Client(silent.url)
    producer = await client.create_producer("t", max_pending_messages=2)
    sends = [asyncio.ensure_future(producer.send(b"x")) for _ in range(3)]
    done, waiting = await asyncio.wait(sends, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = done
    error = refused.exception()
    assert isinstance(error, aio.PulsarException) and error.error() == pulsar.Result.ProducerQueueIsFull
    client.shutdown()
    for send in waiting:
        with pytest.raises(aio.PulsarException) as caught:
            await send
        assert caught.value.error() == pulsar.Result.AlreadyClosed


def test_close_waits_for_messages_and_their_callbacks(embedded: EmbeddedPulsar) -> None:
    client = pulsar.Client(embedded.url)
    producer = client.create_producer(embedded.topic(), batching_enabled=True)
    results: list[Any] = []
    for _ in range(500):
        producer.send_async(b"x", lambda result, _: results.append(result))
    client.close()
    assert results == [pulsar.Result.Ok] * 500


def test_threads_end_with_their_handles(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client = pulsar.Client(embedded.url)
    producer = client.create_producer(topic)
    producer.send_async(b"x", None)
    consumer = client.subscribe(topic, "s", message_listener=lambda *_: None)
    client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=lambda *_: None)
    assert len(threads(topic)) == 3
    consumer.close()
    producer.close()
    assert len(threads(topic)) == 1
    client.close()
    assert not threads(topic)


def test_threads_end_when_a_client_is_forgotten(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client: Any = pulsar.Client(embedded.url)
    producer: Any = client.create_producer(topic)
    producer.send_async(b"x", None)
    producer.flush()
    del client, producer
    gc.collect()
    until(lambda: not threads(topic))


def test_a_consumer_closes_itself_in_its_listener(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client = pulsar.Client(embedded.url)
    got: list[bytes] = []

    def listener(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        got.append(message.data())
        consumer.close()

    consumer = client.subscribe(topic, "s", message_listener=listener)
    producer = client.create_producer(topic)
    for _ in range(3):
        producer.send(b"x")
    until(lambda: not consumer.is_connected())
    until(lambda: not threads(topic))
    assert got == [b"x"]
    client.close()


def test_a_listener_closes_the_client(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client = pulsar.Client(embedded.url)
    closed: list[str] = []

    def listener(consumer: pulsar.Consumer, _: pulsar.Message) -> None:
        # The others wait for their turn meanwhile, and must not be waited for.
        time.sleep(0.1)
        client.close()
        closed.append(consumer.subscription_name())

    for name in "abc":
        client.subscribe(topic, name, message_listener=listener)
    client.create_producer(topic).send(b"x")
    until(lambda: closed)
    until(lambda: not threads(topic))
    assert len(closed) == 1


def test_shutdown_ends_the_attempts_to_connect() -> None:
    client = pulsar.Client(f"pulsar://127.0.0.1:{free_port()}", operation_timeout_seconds=60)
    failed: list[type[BaseException]] = []

    def open_one() -> None:
        try:
            client.create_producer("t")
        except pulsar.PulsarException as error:
            failed.append(type(error))

    opening = threading.Thread(target=open_one)
    opening.start()
    opening.join(0.1)
    client.shutdown()
    opening.join(PATIENCE)
    assert failed == [pulsar.AlreadyClosed]


def test_a_callback_sends_and_flushes(embedded: EmbeddedPulsar) -> None:
    client = pulsar.Client(embedded.url)
    producer = client.create_producer(embedded.topic())
    results: list[Any] = []

    def again(result: pulsar.Result, _: pulsar.MessageId) -> None:
        results.append(result)
        producer.send(b"x")
        producer.flush()
        results.append("flushed")

    producer.send_async(b"x", again)
    producer.flush()
    assert results == [pulsar.Result.Ok, "flushed"]
    client.close()


def test_a_callback_that_raises_is_logged(embedded: EmbeddedPulsar, caplog: pytest.LogCaptureFixture) -> None:
    client = pulsar.Client(embedded.url)
    producer = client.create_producer(embedded.topic())
    results: list[Any] = []

    def fails(*_: Any) -> None:
        raise RuntimeError("not today")

    producer.send_async(b"x", fails)
    producer.send_async(b"x", lambda result, _: results.append(result))
    client.close()
    assert results == [pulsar.Result.Ok]
    assert "not today" in caplog.text and caplog.records[0].name == "forebay.compat.pulsar"


def test_listeners_take_turns(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client = pulsar.Client(embedded.url, message_listener_threads=1)
    running, most, count = 0, 0, 0

    def listener(*_: Any) -> None:
        nonlocal running, most, count
        running += 1
        most = max(most, running)
        time.sleep(0.001)
        running -= 1
        count += 1

    for name in "abc":
        client.subscribe(topic, name, message_listener=listener)
    producer = client.create_producer(topic)
    for _ in range(20):
        producer.send(b"x")
    until(lambda: count == 60)
    assert most == 1
    client.close()


def test_an_interrupted_batch_receive_loses_no_message(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client = pulsar.Client(embedded.url)
    policy = pulsar.ConsumerBatchReceivePolicy(3, 0, 60_000)
    consumer = client.subscribe(topic, "s", batch_receive_policy=policy)
    producer = client.create_producer(topic)
    for payload in (b"0", b"1"):
        producer.send(payload)
    take, calls = consumer._take, 0

    def interrupted(timeout: float | None) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return take(timeout)

    consumer._take = interrupted
    with pytest.raises(KeyboardInterrupt):
        consumer.batch_receive()
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"0", b"1"]
    client.close()


async def test_cancelling_a_receive_loses_no_message(embedded: EmbeddedPulsar) -> None:
    topic = embedded.topic()
    client = aio.Client(embedded.url)
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.01)
    await producer.send(b"x")
    assert (await asyncio.wait_for(consumer.receive(), PATIENCE)).data() == b"x"
    await client.close()


def test_a_client_waits_for_a_broker_that_starts() -> None:
    port = free_port()
    client = pulsar.Client(f"pulsar://127.0.0.1:{port}", operation_timeout_seconds=60)
    names: list[str] = []
    opening = threading.Thread(target=lambda: names.append(client.create_producer("t").producer_name()))
    opening.start()
    opening.join(0.2)
    assert opening.is_alive()
    with Broker(port=port):
        opening.join(PATIENCE)
        assert names
        client.close()


@pytest.fixture
def mute() -> Iterator[str]:
    """The URL of a port that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"pulsar://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("module", [pulsar, official])
def test_a_broker_that_does_not_answer_in_time_is_not_tried_again(module: Any, mute: str) -> None:
    client = module.Client(mute, connection_timeout_ms=200, operation_timeout_seconds=60)
    start = time.monotonic()
    with pytest.raises(module.ConnectError):
        client.create_producer("t")
    assert time.monotonic() - start < 20
    client.shutdown()


def test_the_operation_timeout_ends_the_first_attempt(mute: str) -> None:
    client = pulsar.Client(mute, connection_timeout_ms=60_000, operation_timeout_seconds=1)
    with pytest.raises(pulsar.Timeout):
        client.create_producer("t")
    client.close()


async def test_the_connection_timeout_of_asyncio(mute: str) -> None:
    for timeout_ms, seconds, result in ((200, 60, "ConnectError"), (60_000, 1, "Timeout")):
        client = aio.Client(mute, connection_timeout_ms=timeout_ms, operation_timeout_seconds=seconds)
        with pytest.raises(aio.PulsarException) as caught:
            await client.create_producer("t")
        assert caught.value.error().name == result
        await client.close()


CTRL_C = """
    import importlib, os, signal, sys, threading

    def interrupt(done):
        # More than once: on a loaded machine the call may not have begun yet.
        for delay in (1, 3, 10, 20):
            if done.wait(delay):
                return
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(module, call):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        done = threading.Event()
        threading.Thread(target=interrupt, args=(done,), daemon=True).start()
        while True:
            try:
                call()
            except KeyboardInterrupt:
                continue
            except module.Interrupted:
                done.set()
                break
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    module = importlib.import_module(sys.argv[1])
    client = module.Client(sys.argv[2])
"""
RECEIVE = """
    consumer = client.subscribe("ctrl-c-" + str(os.getpid()), "s")
    interrupted(module, consumer.receive)
    client.shutdown()
"""
SEND_AND_CLOSE = """
    producer = client.create_producer("t")
    interrupted(module, lambda: producer.send(b"x"))
    results = []
    producer.send_async(b"x", lambda result, _: results.append(result))
    interrupted(module, producer.close)
    assert results == [module.Result.AlreadyClosed], results
    assert not [thread for thread in threading.enumerate() if "callbacks" in thread.name]
    client.shutdown()
"""


def run_interrupted(module: Any, url: str, body: str) -> None:
    program = textwrap.dedent(CTRL_C) + textwrap.dedent(body)
    subprocess.run([sys.executable, "-c", program, module.__name__, url], check=True, timeout=100)


@pytest.mark.parametrize("module", [pulsar, official])
def test_ctrl_c_interrupts_a_receive(module: Any, embedded: EmbeddedPulsar) -> None:
    run_interrupted(module, embedded.url, RECEIVE)


def test_ctrl_c_interrupts_a_send_and_a_close(silent: FakeBroker) -> None:
    run_interrupted(pulsar, silent.url, SEND_AND_CLOSE)


PROGRAM = """
    import sys
    import forebay.compat.pulsar as pulsar

    client = pulsar.Client(sys.argv[1])
    topic, end = sys.argv[2], sys.argv[3]
    consumer = client.subscribe(topic, "s", message_listener=lambda consumer, message: None)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for _ in range(200):
        producer.send_async(b"x", lambda *_: None)
    if end == "raise":
        raise SystemExit(3)
"""


@pytest.mark.parametrize(("end", "status"), [("return", 0), ("raise", 3)])
@pytest.mark.parametrize("answers", [True, False], ids=["answers", "silent"])
def test_a_program_that_closes_nothing_ends(
    embedded: EmbeddedPulsar, silent: FakeBroker, end: str, status: int, answers: bool
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-X", "dev", "-c", textwrap.dedent(PROGRAM)),
            *(embedded.url if answers else silent.url, embedded.topic(), end),
        ],
        env=dict(os.environ),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (status, "")


def test_close_raises_the_error_of_the_first_handle_and_closes_all(
    embedded: EmbeddedPulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pulsar.Client(embedded.url)
    handles = [client.subscribe("t", f"s-{number}") for number in range(3)]

    def failing(number: int) -> Callable[[], None]:
        close = handles[number]._finish_close

        def finish() -> None:
            close()
            raise pulsar.ConnectError(f"handle {number}")

        return finish

    for number in (0, 2):
        monkeypatch.setattr(handles[number], "_finish_close", failing(number))
    with pytest.raises(pulsar.ConnectError, match="handle 0"):
        client.close()
    for handle in handles:
        with pytest.raises(pulsar.AlreadyClosed):
            handle.receive(100)


def test_a_callback_or_listener_that_ends_its_thread_is_logged_and_others_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Broker() as broker:
        client = pulsar.Client(broker.url)
        got: list[str] = []

        def handle(what: str) -> None:
            got.append(what)
            raise SystemExit

        client.subscribe("orders", "s", message_listener=lambda consumer, message: handle("message"))
        producer = client.create_producer("orders")
        for _ in range(2):
            producer.send_async(b"x", lambda *_: handle("receipt"))
        until(lambda: sorted(got) == ["message"] * 2 + ["receipt"] * 2)
        client.close()
    assert {record.getMessage() for record in caplog.records if record.name == "forebay.compat.pulsar"} == {
        "the callback of send_async failed",
        "the listener of persistent://public/default/orders failed",
    }


FORKED = """
    import os, sys
    import forebay.compat.pulsar as pulsar

    client = pulsar.Client(sys.argv[1])
    topic = sys.argv[2]
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    for close in (producer.close, consumer.close, client.close):
        child = os.fork()
        if not child:
            try:
                close()
            except pulsar.AlreadyClosed:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, close
    producer.send(b"x")
    client.close()
"""


def test_closing_in_a_forked_child_raises_an_error_of_the_module(embedded: EmbeddedPulsar) -> None:
    program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKED), embedded.url, embedded.topic()]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
