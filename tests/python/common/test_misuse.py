"""What a newcomer types, and the words that help."""

from __future__ import annotations

import asyncio
import copy
import gc
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import blocking, cli, errors
from forebay._core import dataframes, protocols
from forebay.commands._shared import doctor

from support.waiting import PATIENCE


@pytest.fixture(scope="module")
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(mqtt_port=0, tubemq_port=0) as broker:
        yield broker


# ------------------------------------------------------------------------------------------------
# handles


@pytest.mark.parametrize(
    ("kind", "how"), [(forebay.Client, "forebay"), (blocking.Client, "forebay.blocking")]
)
def test_a_client_is_made_by_connect(kind: Any, how: str) -> None:
    for given in ((), ("pulsar://127.0.0.1:6650",)):
        with pytest.raises(TypeError, match=re.escape(f"a Client is made by {how}.connect(url)")):
            kind(*given)


async def test_what_is_never_opened_is_warned_of(broker: forebay.Broker) -> None:
    # What other tests have left behind is not to be warned of here.
    gc.collect()
    with pytest.warns(RuntimeWarning, match="never opened: use `async with`, or await it"):
        forebay.connect(broker.url)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with forebay.connect(broker.url) as client:
            producer = await client.producer("orders")
            await producer.close()
            gc.collect()
        # One that fails has been used all the same.
        with pytest.raises(errors.ConnectFailed):
            await forebay.connect("pulsar://127.0.0.1:1")
        gc.collect()


async def test_with_in_place_of_async_with(broker: forebay.Broker) -> None:
    opening: Any = forebay.connect(broker.url)
    with pytest.raises(TypeError, match="needs `async with`"):
        with opening:
            pass


async def test_a_handle_that_is_not_opened_says_to_await_it(broker: forebay.Broker) -> None:
    async with forebay.connect(broker.url) as client:
        opening: Any = client.producer("orders")
        assert repr(opening) == "<client.producer(...), not opened yet: await it>"
        said = "'send' is used before it is opened; await it first: producer = await client.producer(...)"
        with pytest.raises(AttributeError, match=re.escape(said)):
            opening.send(b"x")
        assert not hasattr(opening, "close")
        consumer: Any = client.consumer("orders", "s")
        with pytest.raises(TypeError, match=re.escape("consumer = await client.consumer(...)")):
            async for _ in consumer:
                pass
        # What looks for private attributes finds what it found before.
        for name in ("__deepcopy__", "_repr_html_", "__wrapped__"):
            with pytest.raises(AttributeError, match=f"'Opening' object has no attribute '{name}'"):
                getattr(opening, name)
        copied = copy.copy(opening)
        assert isinstance(copied, type(opening))
        await (await copied).close()
        for handle in await asyncio.gather(opening, consumer):
            await handle.close()
    connecting: Any = forebay.connect(broker.url)
    with pytest.raises(AttributeError, match=re.escape("client = await forebay.connect(...)")):
        connecting.producer("orders")
    async with connecting:
        pass


# ------------------------------------------------------------------------------------------------
# arguments

NO_NAMES = (None, 7, b"orders", [None], ["orders", 7], re.compile(b"orders"))


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
async def test_a_topic_that_is_no_text_is_named(broker: forebay.Broker, protocol: str, face: str) -> None:
    verbs = ["producer", "consumer"]
    verbs += {"pulsar": ["reader", "table_view"], "mqtt": ["subscribe"]}.get(protocol, [])

    def check(client: Any) -> None:
        for verb in verbs:
            rest = ("s",) if verb == "consumer" else ()
            for wrong in NO_NAMES:
                with pytest.raises(errors.InvalidArgument, match=r"topic is|a pattern of bytes"):
                    getattr(client, verb)(wrong, *rest)
        with pytest.raises(errors.InvalidArgument, match="subscription is 7: pass a name as text"):
            client.consumer("orders", 7)

    url = broker.urls[protocol]
    if face == "asyncio":
        async with forebay.connect(url) as client:
            check(client)
        return
    with blocking.connect(url) as client:
        check(client)


def wrong_calls(protocol: str, client: Any, producer: Any, consumer: Any) -> dict[str, Any]:
    """The beginning of an error's text -> a call with an argument of a wrong type."""
    calls = {
        "a payload is bytes-like, not None": lambda: producer.send(None),
        "a payload is bytes-like, not int": lambda: producer.send_nowait(3),
        "a payload is bytes-like, not str: encode it": lambda: producer.send("x"),
        "payloads is a sequence, not int": lambda: producer.send_many(3),
        "payloads is a sequence, not bytes: send one": lambda: producer.send_many(b"xy"),
        "payloads[1]: a payload is bytes-like, not None": lambda: producer.send_many([b"x", None]),
        "properties must map str to str": lambda: producer.send(b"x", properties={"a": 3}),
        "messages is a sequence, not int": lambda: consumer.ack_many(3),
        "timeout: expected a duration": lambda: producer.flush("x"),
        "max: 'str' object cannot": lambda: consumer.receive_many("x"),
        "max must be at least 1": lambda: consumer.receive_many(-1),
        "max_bytes: expected a size": lambda: consumer.receive_batch(1, max_bytes="x"),
    }
    if protocol == "mqtt":
        return calls | {
            "topic is None: pass a name": lambda: client.publish(None),
            "topic is 3: pass a name": lambda: client.publish(3, b"x"),
            "topic: 'int' object": lambda: producer.send(b"x", topic=3),
            "topics[0]: 'int' object": lambda: producer.send_many([b"x"], [3]),
            "qos: 'str' object": lambda: producer.send(b"x", qos="x"),
            "retain: 'int' object": lambda: client.publish("t", b"x", retain=3),
            "content_type: 'int' object": lambda: producer.send_nowait(b"x", content_type=3),
            "correlation_data is bytes-like, not str": lambda: producer.send(b"x", correlation_data="x"),
        }
    calls |= {
        "key: 'int' object": lambda: producer.send(b"x", key=3),
        "event_time: 'str' object": lambda: producer.send_nowait(b"x", event_time="x"),
        "keys[1]: 'int' object": lambda: producer.send_many([b"x", b"y"], ["k", 3]),
        "keys is a sequence, not int": lambda: producer.send_many([b"x"], 3),
        "properties: 'int' object": lambda: producer.send(b"x", properties=3),
        "delay: expected a duration": lambda: consumer.nack_many([], delay="x"),
    }
    if protocol == "tubemq":
        return calls | {"message_type: 'int' object": lambda: producer.send(b"x", message_type=3)}
    return calls | {
        "ordering_key: 'str' object": lambda: producer.send(b"x", ordering_key="x"),
        "sequence_id: ": lambda: producer.send(b"x", sequence_id=-1),
        "null_value: 'int' object": lambda: producer.send(b"x", null_value=3),
        "deliver_after: expected a duration": lambda: producer.send(b"x", deliver_after="x"),
        "replicate_to is 3": lambda: producer.send(b"x", replicate_to=3),
    }


def check_wrong_calls(calls: dict[str, Any]) -> None:
    for text, call in calls.items():
        with pytest.raises((TypeError, ValueError, OverflowError), match=f"^{re.escape(text)}"):
            call()


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
def test_an_argument_of_a_wrong_type_is_named(broker: forebay.Broker, protocol: str) -> None:
    rest = () if protocol == "mqtt" else ("s",)
    with blocking.connect(broker.urls[protocol]) as client:
        with client.producer("wrong") as producer, client.consumer("wrong", *rest) as consumer:
            check_wrong_calls(wrong_calls(protocol, client, producer, consumer))


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
async def test_an_argument_of_a_wrong_type_is_named_on_asyncio(broker: forebay.Broker, protocol: str) -> None:
    rest = () if protocol == "mqtt" else ("s",)
    async with forebay.connect(broker.urls[protocol]) as client:
        async with client.producer("wrong") as producer, client.consumer("wrong", *rest) as consumer:
            check_wrong_calls(wrong_calls(protocol, client, producer, consumer))


def test_a_time_that_is_no_number_is_refused(broker: forebay.Broker) -> None:
    with blocking.connect(broker.url) as client, client.producer("t") as producer:
        sent = producer.submit_many([b"x"])
        with pytest.raises(ValueError, match="timeout"):
            sent.wait(float("nan"))
        sent.wait()


def test_an_argument_of_a_wrong_type_is_named_with_interceptors(broker: forebay.Broker) -> None:
    with blocking.connect(broker.url) as client:
        options = {"interceptors": forebay.pulsar.ProducerInterceptor()}
        with client.producer("wrong", **options) as producer, client.consumer("wrong", "s") as consumer:
            calls = wrong_calls("pulsar", client, producer, consumer)
            calls["key of message 1: 'int' object"] = calls.pop("keys[1]: 'int' object")
            check_wrong_calls(calls)


async def test_a_handle_in_another_thread_is_told_what_threads_may_share(broker: forebay.Broker) -> None:
    async with forebay.connect(broker.url) as client, client.producer("orders") as producer:

        def send() -> None:
            producer.send(b"x")

        async def sent() -> None:
            await producer.send(b"x")

        for use in (send, lambda: asyncio.run(sent())):
            with pytest.raises(errors.InvalidArgument, match=r"in another thread: .*forebay\.blocking"):
                await asyncio.to_thread(use)


# ------------------------------------------------------------------------------------------------
# names


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_verbs_of_pulsar_client_answer_with_ours(broker: forebay.Broker, face: str) -> None:
    def check(owner: Any, name: str, here: str) -> None:
        assert not hasattr(owner, name)
        with pytest.raises(errors.Unsupported, match=re.escape(f"Pulsar's {name} is called {here} here")):
            getattr(owner, name)

    if face == "asyncio":
        async with forebay.connect(broker.url) as client, client.producer("orders") as producer:
            check(client, "create_producer", "producer()")
            check(producer, "send_async", "send() or send_nowait()")
            check(producer, "partition_key", "key")
        return
    with (
        blocking.connect(broker.url) as client,
        client.consumer("orders", "s", position="earliest") as consumer,
    ):
        with client.producer("orders") as producer:
            producer.send(b"x")
        message = consumer.receive(timeout=PATIENCE)
        check(client, "create_reader", "reader()")
        check(consumer, "acknowledge", "ack()")
        check(message, "event_timestamp", "event_time")


def test_each_name_of_ours_exists() -> None:
    from forebay.pulsar import _unsupported
    from forebay.pulsar import blocking as pulsar

    words = {word for here in _unsupported.NAMES_THERE.values() for word in re.findall(r"\w+", here)} - {"or"}
    owners = (
        pulsar.PulsarClient,
        pulsar.PulsarProducer,
        pulsar.PulsarConsumer,
        forebay._core.native.PulsarMessage,
    )
    fields = pulsar_fields()
    missing = {word for word in words if not any(hasattr(owner, word) for owner in owners)} - fields
    assert missing == set()


def pulsar_fields() -> set[str]:
    from forebay.pulsar._typing import MessageFields

    return set(MessageFields.__annotations__)


@pytest.mark.parametrize("text", ["persistent://public/default/.*", "orders.+", ".*"])
def test_a_pattern_that_is_given_as_a_name(broker: forebay.Broker, text: str) -> None:
    with blocking.connect(broker.url) as client:
        for topic in (text, ["orders", text]):
            with pytest.raises(errors.InvalidTopic, match=re.escape(f"pass re.compile({text!r})")):
                client.consumer(topic, "s")
        assert not [topic for topic in broker.topics() if "*" in topic or "+" in topic]


def test_names_of_pulsar_client_as_text(broker: forebay.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(errors.InvalidArgument, match="'send_timeout_millis': use send_timeout=, in seconds"):
        blocking.connect(f"{broker.url}?send_timeout_millis=30000")
    assert cli.main(["pub", broker.url, "t", "-m", "x", "-X", "tls_validate_hostname=false"]) == 2
    assert "use -X tls_skip_hostname_check=true, which is the opposite" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------
# commands


@pytest.mark.parametrize(
    ("words", "scopes"),
    [
        (["sub", "mqtt://h", "-X", "help"], protocols.PROTOCOLS["mqtt"].tables),
        (["pub", "-X", "help"], protocols.PROTOCOLS["pulsar"].tables),
        (["doctor", "tubemq://h", "-X", "help"], protocols.PROTOCOLS["tubemq"].tables),
        (["topic", "ls", "-X", "help"], protocols.PROTOCOLS["pulsar"].tables),
        (["broker", "-X", "help"], {"": protocols.table("broker")}),
    ],
)
def test_options_are_listed_with_their_texts(
    words: list[str], scopes: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 110
    flat = " ".join(said.split())
    for table in scopes.values():
        for name, option in table.items():
            assert f"\n  {name}" in said
            assert " ".join(option.doc.split()) in flat


def test_options_are_listed_with_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["pub", "-X", "help"])
    said = capsys.readouterr().out
    assert "\n  max_pending (default: 1000)\n" in said
    assert "\n  token\n" in said


@pytest.mark.parametrize("words", ["pub -X help", "--version"])
def test_a_reader_that_is_gone(words: str) -> None:
    """Also when the whole output is still in the buffer."""
    shell = f"(sleep 0.2; {sys.executable} -m forebay {words}; echo $? >&2) | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=300)
    assert done.stderr == "0\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "check its spelling, and the DNS"),
        (ConnectionRefusedError(111, "Connection refused"), "whether the broker runs"),
        (TimeoutError("timed out"), "the firewalls on the way"),
    ],
)
def test_doctor_names_a_next_step(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(doctor.socket, "create_connection", fail)
    for url in ("pulsar://h", "mqtt://h", "tubemq://h"):
        assert cli.main(["doctor", url]) == 1
        assert said in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------
# frames


def test_columns_of_polars_without_a_type(broker: forebay.Broker) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {"id": [1, 2], "none": [None, None], "lists": [[], []], "inner": [{"a": None}, {"a": None}]}
    )
    assert frame.schema["none"] == pl.Null
    # What is null is left out.
    wanted = b'{"id":1,"lists":[],"inner":{}}'
    for url in (broker.url, broker.mqtt_url, broker.tubemq_url):
        with blocking.connect(url) as client, client.producer("frames") as producer:
            producer.send_frame(frame, encoding="json")
    with blocking.connect(broker.url) as client, client.reader("frames", position="earliest") as reader:
        assert reader.receive(timeout=PATIENCE).data == wanted
    forebay.frames.write(frame, broker.url, "written", encoding="json")
    with blocking.connect(broker.url) as client, client.reader("written", position="earliest") as reader:
        assert reader.receive(timeout=PATIENCE).data == wanted


@pytest.mark.parametrize(
    ("url", "help"),
    [
        (6650, "the URL is 6650: pass text such as 'pulsar://localhost:6650'"),
        ("localhost:6650", "has no scheme: write pulsar://localhost:6650"),
        ("10.0.0.1:1883", "has no scheme: write mqtt://10.0.0.1:1883"),
        ("tube:8715?threads=1", "has no scheme: write tubemq://tube:8715"),
    ],
)
def test_a_url_without_a_scheme(url: Any, help: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=re.escape(help)):
        blocking.connect(url)
    with pytest.raises(errors.InvalidArgument, match=re.escape(help)):
        protocols.for_connection(url, {})


def test_a_lazy_frame_is_collected_first() -> None:
    lazy = type("LazyFrame", (), {})()
    with pytest.raises(errors.InvalidArgument, match=re.escape("call .collect() on it first")):
        dataframes.readable(lazy)
