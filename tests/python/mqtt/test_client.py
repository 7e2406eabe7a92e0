"""The MQTT client's Python API, on the embedded broker: options, verbs, cuts and kills."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import math
import re
import signal
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import errors, mqtt
from forebay._core import protocols

from support.accepting import Acceptor
from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.mqtt.proxy import Proxy
from support.scripts import free_port
from support.service import BrokerProcess
from support.waiting import PATIENCE, eventually


@pytest.fixture(scope="module")
def url():
    with forebay.Broker(mqtt_port=0, mqtt_max_packet_size="64KiB") as broker:
        yield broker.mqtt_url


async def within(awaitable: Any, seconds: float = PATIENCE) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


@pytest.mark.parametrize(
    ("scope", "name", "value"),
    [
        ("client", "token", "t"),
        ("client", "listener_name", "x"),
        ("producer", "compression", "zstd"),
        ("producer", "access_mode", "exclusive"),
        ("consumer", "type", "shared"),
        ("consumer", "position", "earliest"),
    ],
)
def test_an_option_of_another_protocol_is_refused_by_name(scope, name, value):
    with pytest.raises(errors.Unsupported, match=f"MQTT has no {scope} option '{name}'"):
        protocols.resolve(f"mqtt.{scope}", {name: value})


def test_an_option_of_mqtt_is_refused_by_pulsar():
    with pytest.raises(errors.Unsupported, match="Pulsar has no producer option 'retain'"):
        protocols.resolve("pulsar.producer", {"retain": True})


@pytest.mark.parametrize(
    "options",
    [
        {"version": "6"},
        {"qos": 3},
        {"clean_start": False},
        {"client_id": "x" * 24, "version": "3.1"},
        {"authentication_method": "m"},
        {"connect_properties": {"a": "b"}, "version": "3.1.1"},
        {"will": {"payload": b"x"}},
        {"will": {"topic": "a", "retian": True}},
        {"max_packet_size": 1},
        {"offline": "forget"},
        {"offline": "spill"},
        {"ws_query": "a=b"},
    ],
)
async def test_bad_options_are_refused_at_once(options):
    with pytest.raises(errors.InvalidArgument):
        await forebay.connect("mqtt://127.0.0.1:1", **options)


@pytest.mark.parametrize("name", ["Connection", "upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version"])
async def test_a_header_of_the_handshake_itself_is_refused_by_name(name: str):
    with pytest.raises(errors.InvalidArgument, match=f'ws_headers: "{name}"'):
        await forebay.connect("ws://127.0.0.1:1", ws_headers={name: "x"})


async def test_a_query_for_the_server_is_an_option():
    with pytest.raises(
        errors.InvalidArgument, match=r"unknown option 'sig'.*; a query for the server itself is ws_query="
    ):
        await forebay.connect("ws://127.0.0.1:1/mqtt?sig=1")
    with pytest.raises(errors.InvalidArgument, match=r"'ws_query': it has a space"):
        await forebay.connect("ws://127.0.0.1:1/mqtt", ws_query="a b")
    server = Acceptor(lambda connection: connection.close())
    try:
        with pytest.raises(errors.InvalidArgument, match="ws_query has a space") as refused:
            await forebay.connect(f"ws://127.0.0.1:{server.port}/mqtt", ws_query=lambda: "a-secret b")
        assert "a-secret" not in str(refused.value)
    finally:
        server.close()


async def test_the_request_of_a_websocket():
    requests: list[str] = []

    def serve(connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        with connection, contextlib.suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data and (more := connection.recv(4096)):
                data += more
            requests.append(data.decode())
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    queries = iter(["X-Sig=first%20one&b", "X-Sig=second"])
    server = Acceptor(serve)
    headers = {
        "Host": "front.example",
        "Authorization": "Bearer a-secret",
        "sec-websocket-protocol": "mqttv3.1",
    }
    try:
        for _ in range(2):
            url = f"ws://127.0.0.1:{server.port}/a b/\u00fc%2F"
            with pytest.raises(errors.ConnectFailed) as refused:
                await within(
                    forebay.connect(url, ws_headers=headers, ws_query=lambda: next(queries))._start()
                )  # pyright: ignore
            assert "403" in str(refused.value)
            assert "X-Sig" not in str(refused.value)
            assert "a-secret" not in str(refused.value)
    finally:
        server.close()
    (first, *lines), (second, *_) = (request.split("\r\n") for request in requests)
    assert first == "GET /a%20b/%C3%BC%2F?X-Sig=first%20one&b HTTP/1.1"
    assert second == "GET /a%20b/%C3%BC%2F?X-Sig=second HTTP/1.1"
    found = [tuple(line.split(": ", 1)) for line in lines if line]
    for name, value in headers.items():
        assert [given for one, given in found if one.lower() == name.lower()] == [value]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_password_is_any_bytes(url: str, version: Any, tmp_path: Path):
    file = tmp_path / "password"
    file.write_bytes(b"\xfe\n")
    for given, sent in (
        (b"\xff\0", b"\xff\0"),
        (lambda: b"\xff\0", b"\xff\0"),
        (f"file:{file}", b"\xfe\n"),
        ("w\u00f6rd", "w\u00f6rd".encode()),
    ):
        with Proxy(MqttService.port_of(url)) as proxy:
            async with forebay.connect(proxy.url, username="ann", password=given, version=version):
                pass
            ((_, first), *_) = proxy.packets
        assert wire.parse(first, wire.V5 if version == "5" else wire.V311)["password"] == sent


LIMIT = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (0, 0),
        (0.5, 1),
        ("1ms", 1),
        (60.1, 61),
        (datetime.timedelta(days=40_000), 3_456_000_000),
        (1e9 + 1, 1_000_000_001),
        (LIMIT, LIMIT),
        (str(LIMIT), LIMIT),
        ("never", LIMIT),
        ("inf", LIMIT),
        (math.inf, LIMIT),
    ],
)
async def test_the_expiry_of_a_session_is_what_connect_says(url, given, sent):
    with Proxy(MqttService.port_of(url)) as proxy:
        options: dict[str, Any] = {"client_id": f"expiry-{uuid.uuid4()}", "session_expiry": given}
        async with forebay.connect(proxy.url, **options):
            pass
        ((_, first), *_) = proxy.packets
    assert dict(wire.parse(first, wire.V5)["properties"]).get("session_expiry_interval", 0) == sent


async def test_expiries_of_messages_and_wills_are_whole_seconds_of_32_bits(url):
    topic = f"expiry/{uuid.uuid4()}"
    will = {"topic": topic, "payload": b"gone", "delay": 0.5, "message_expiry": LIMIT}
    with Proxy(MqttService.port_of(url)) as proxy:
        async with forebay.connect(proxy.url, will=will) as client:
            await client.publish(topic, b"1", message_expiry=0.2, qos=1)
            await client.publish(topic, b"2", message_expiry=LIMIT, qos=1)
            await client.publish(topic, b"3", message_expiry=datetime.timedelta(seconds=1.5), qos=1)
            for wrong in (LIMIT + 1, -1, math.inf, math.nan, "never", True):
                with pytest.raises(errors.InvalidArgument, match=r"^message_expiry: expected a duration"):
                    client.publish(topic, b"x", message_expiry=wrong)
        sent = [wire.parse(one, wire.V5) for origin, one in proxy.packets if origin == "client"]
    assert dict(sent[0]["will"]["properties"]) == {
        "will_delay_interval": 1,
        "message_expiry_interval": LIMIT,
    }
    expiries = [dict(one["properties"])["message_expiry_interval"] for one in sent if "payload" in one]
    assert expiries == [1, LIMIT, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"session_expiry": LIMIT + 1}, 'between 0 and 4294967295 seconds, not 4294967296. "never" keeps'),
        ({"session_expiry": -1}, "not -1"),
        ({"session_expiry": "always"}, "'session_expiry': expected a duration"),
        ({"session_expiry": math.nan}, "not nan"),
        ({"keep_alive": 65536}, "between 0 and 65535 seconds, not 65536"),
        (
            {"will": {"topic": "t", "delay": LIMIT + 1}},
            "delay of the will: expected a duration",
        ),
        ({"will": {"topic": "t", "message_expiry": "soon"}}, "message_expiry of the will: expected"),
        ({"birth": {"topic": "t", "message_expiry": LIMIT + 1}}, "message_expiry of the birth message: exp"),
    ],
)
async def test_expiries_just_past_the_limit_are_refused(options, text):
    with pytest.raises(errors.InvalidArgument, match=re.escape(text)):
        await forebay.connect("mqtt://127.0.0.1:1", **options)


PAIRS = [("route", "a"), ("route", "b"), ("to", "c")]


@pytest.mark.parametrize("given", [PAIRS, [list(pair) for pair in PAIRS], "route=a, route=b,to=c"])
async def test_user_properties_of_connect_may_repeat_a_name(url, given):
    with Proxy(MqttService.port_of(url)) as proxy:
        async with forebay.connect(proxy.url, connect_properties=given):
            pass
        ((_, first), *_) = proxy.packets
    sent = wire.parse(first, wire.V5)["properties"]
    assert [value for name, value in sent if name == "user_property"] == PAIRS


@pytest.mark.parametrize("wrong", [3, [("a",)], [("a", 3)], "a", [b"ab"], {"a": 3}, {("a", "b")}])
async def test_what_is_no_user_property_of_connect_is_refused(wrong):
    with pytest.raises(errors.InvalidArgument, match="connect_properties"):
        await forebay.connect("mqtt://127.0.0.1:1", connect_properties=wrong)


@pytest.mark.parametrize("version", ["3.1.1", "3.1"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"session_expiry": 60}, 'session_expiry has no effect with MQTT 3: it needs version="5"'),
        ({"session_expiry": 0, "clean_start": False}, "session_expiry has no effect"),
        ({"connect_properties": {"a": "b"}}, "connect_properties has no effect"),
        ({"request_response_information": True}, "request_response_information has no effect"),
        ({"topic_alias_maximum": 7}, "topic_alias_maximum has no effect"),
        (
            {"authentication_method": "m", "authenticator": lambda _: b""},
            "authentication_method has no effect",
        ),
        ({"will": {"topic": "t", "delay": 5}}, "delay of the will needs"),
        ({"will": {"topic": "t", "properties": {"a": "b"}}}, "properties of the will needs"),
    ],
)
async def test_what_mqtt_3_has_not_is_refused_by_name(version, options, text):
    with pytest.raises(errors.InvalidArgument, match=re.escape(text)):
        await forebay.connect("mqtt://127.0.0.1:1", version=version, client_id="old", **options)


async def test_what_an_mqtt_message_has_not_is_refused_by_name(url):
    async with forebay.connect(url) as client, client.subscribe("fields/#", qos=2) as consumer:
        await client.publish("fields/1", b"text", qos=2, properties=[("a", "1"), ("a", "2")])
        message = await consumer.receive(timeout=PATIENCE)
        assert message.properties == {"a": "2"}
        assert message.received_time is not None
        for name in ("id", "publish_time", "sequence_id", "producer_name"):
            with pytest.raises(errors.Unsupported, match="MQTT"):
                getattr(message, name)


async def test_fields_need_5_0_and_known_names(url):
    async with forebay.connect(url, version="3.1.1") as client, client.producer("a") as producer:
        with pytest.raises(errors.Unsupported, match="version=5"):
            producer.send(b"", content_type="x")
        with pytest.raises(errors.InvalidArgument, match="did you mean 'retain'"):
            producer.send(b"", retian=True)
        with pytest.raises(errors.InvalidTopic):
            producer.send(b"", topic="a/+")
        with pytest.raises(errors.InvalidArgument):
            producer.send(b"", qos=3)
        with pytest.raises(errors.InvalidArgument, match="an MQTT message has no field 'key'"):
            producer.send(b"", key="k")
        with pytest.raises(TypeError, match="2 positional arguments"):
            producer.send(b"", "key")


@pytest.mark.parametrize("version", ["3.1", "3.1.1"])
@pytest.mark.parametrize(
    "option", [{"no_local": True}, {"retain_as_published": True}, {"retain_handling": "never"}]
)
async def test_options_of_a_subscription_that_need_5_0(url, version, option):
    (name,) = option
    text = re.escape(f"{name} needs MQTT 5, and this connection uses MQTT {version}: connect with version=5")
    async with forebay.connect(url, version=version) as client:
        for opening in (client.consumer("a", **option), client.subscribe("a", **option)):
            with pytest.raises(errors.Unsupported, match=text):
                await opening
        # Those of MQTT 3 are what it does anyway.
        plain: dict[str, Any] = {
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": "always",
        }
        async with client.consumer("a", **plain):
            pass
    with forebay.blocking.connect(url, version=version) as blocking:
        with pytest.raises(errors.Unsupported, match=text):
            blocking.consumer("a", **option)
    async with forebay.connect(url, version="auto") as client, client.consumer("a", **option):
        pass


@pytest.mark.parametrize(
    "call", ["nack", "ack_cumulative", "redeliver_unacknowledged", "seek", "last_message_ids"]
)
async def test_what_mqtt_cannot_do_is_refused_by_name(url, call):
    async with forebay.connect(url) as client, client.consumer("refused") as consumer:
        await client.publish("refused", b"x", qos=1)
        message = await consumer.receive(timeout=PATIENCE)
        arguments: list[Any] = {"nack": [message], "ack_cumulative": [message], "seek": ["earliest"]}.get(
            call, []
        )
        with pytest.raises(errors.Unsupported, match="MQTT"):
            await getattr(consumer, call)(*arguments)
        with pytest.raises(errors.Unsupported):
            await client.partitions("a")


async def test_bad_names_and_filters_are_refused(url):
    async with forebay.connect(url) as client:
        for name in ("", "a/#", "a+", "x" * 65_536):
            with pytest.raises(errors.InvalidTopic):
                await client.producer(name)
        for name in ("", "a/#/b", "a+", "$share//a"):
            with pytest.raises(errors.InvalidTopic):
                await client.consumer(name)


async def test_a_packet_above_the_brokers_maximum_is_refused_and_the_rest_goes_on(url):
    async with forebay.connect(url) as client, client.producer("large", qos=1) as producer:
        large = producer.send(b"x" * 70_000)
        after = producer.send(b"small")
        with pytest.raises(errors.MessageTooLarge, match="65536"):
            await within(large)
        assert not (await within(after)).is_error


async def test_what_is_not_acknowledged_holds_the_broker_back(url):
    async with forebay.connect(url, receive_maximum=3) as client, client.consumer("held", qos=1) as consumer:
        async with client.producer("held", qos=1) as producer:
            await producer.send_many([b"x"] * 10)
        batch = [await consumer.receive(timeout=PATIENCE) for _ in range(3)]
        with pytest.raises(errors.Timeout):
            await consumer.receive(timeout=0.2)
        await consumer.ack(batch[0])
        await consumer.receive(timeout=PATIENCE)


async def test_a_session_is_taken_up_by_the_next_process(url):
    options: dict[str, Any] = {"client_id": "taken-up", "clean_start": False, "session_expiry": 60}
    async with forebay.connect(url, **options) as client:
        async with client.consumer("session/+", qos=2) as consumer:
            await client.publish("session/1", b"first", qos=2)
            assert (await consumer.receive(timeout=PATIENCE)).data == b"first"  # not acknowledged
    async with forebay.connect(url) as other, other.producer("session/2", qos=2) as producer:
        await producer.send_many([b"a", b"b", b"c"])
    async with forebay.connect(url, **options) as client:
        assert client.stats()["session_present"]
        async with client.consumer("session/+", qos=2) as consumer:
            got = [await consumer.receive(timeout=PATIENCE) for _ in range(4)]
            for message in got:
                await consumer.ack(message)
            assert [message.data for message in got] == [b"first", b"a", b"b", b"c"]
            await consumer.unsubscribe()


async def test_a_second_client_of_the_same_name_ends_the_first(url):
    async with forebay.connect(url, client_id="twin") as first, first.consumer("twin") as consumer:
        async with forebay.connect(url, client_id="twin") as second:
            with pytest.raises(errors.SessionTakenOver):
                await within(consumer.receive())
            with pytest.raises(errors.SessionTakenOver):
                await within(first.publish("twin", b"x", qos=1))
            assert not (await within(second.publish("twin", b"y", qos=1))).is_error


async def test_a_wrong_password_is_told_at_once(tmp_path: Path):
    users = tmp_path / "users"
    from forebay.cli import main

    assert not main(["passwd", str(users), "anna", "--password", "right"])
    with forebay.Broker(mqtt_port=0, mqtt_password_file=users) as broker:
        assert broker.mqtt_url
        async with forebay.connect(broker.mqtt_url, username="anna", password="right"):
            pass
        async with forebay.connect(broker.mqtt_url, username="anna", password=lambda: "right"):
            pass
        for version in ("3.1.1", "5"):
            with pytest.raises(errors.AuthenticationError) as caught:
                await within(
                    forebay.connect(
                        broker.mqtt_url, username="anna", password="wr0ng", version=version
                    )._start()  # pyright: ignore
                )
            assert "wr0ng" not in repr(caught.value)


async def test_without_a_broker_connecting_fails_at_once():
    with pytest.raises(errors.ConnectFailed):
        await within(forebay.connect(f"mqtt://127.0.0.1:{free_port()}")._start())  # pyright: ignore


async def test_use_after_close(url):
    client = await forebay.connect(url)
    producer = await client.producer("closed")
    consumer = await client.consumer("closed")
    await client.close()
    for use in (lambda: producer.send(b""), lambda: client.publish("a", b""), lambda: consumer.receive()):
        with pytest.raises(errors.Closed):
            await use()
    with pytest.raises(errors.Closed):
        producer.send_nowait(b"")


async def test_the_queue_is_full_by_count_and_by_bytes(url):
    async with forebay.connect(url, memory_limit=10_000) as client:
        async with client.producer("full", qos=1, max_pending=10) as producer:
            with pytest.raises(errors.QueueFull):
                for _ in range(1000):
                    producer.send_nowait(b"x")
            await within(producer.flush())
            with pytest.raises(errors.MemoryLimit):
                for _ in range(1000):
                    producer.send_nowait(b"x" * 4000)
            await within(producer.flush())
            codes = await within(producer.send_many([b"y" * 100] * 500))
            assert len(codes) == 500
        assert client.stats()["memory_used_bytes"] == 0


async def test_cancelling_a_receive_loses_nothing(url):
    async with forebay.connect(url) as client, client.consumer("cancel", qos=1) as consumer:
        async with client.producer("cancel", qos=1) as producer:
            got = []
            for i in range(200):
                waiting = asyncio.ensure_future(consumer.receive())
                producer.send_nowait(str(i).encode())
                if i % 3:
                    await asyncio.sleep(0)
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    message = await waiting
                    await consumer.ack(message)
                    got.append(int(message.data))
            await producer.flush()
            while len(got) < 200 and (batch := await consumer.receive_many(100, timeout=PATIENCE)):
                await consumer.ack_many(batch)
                got += [int(message.data) for message in batch]
            assert await consumer.receive_many(100, timeout=0.3) == [], "more came"
            assert got == list(range(200))


@pytest.mark.slow
async def test_without_a_connection_messages_wait_or_push_out_the_oldest(tmp_path: Path):
    port = free_port()
    broker = BrokerProcess(tmp_path / "data", "--mqtt-port", str(port))
    broker.start()
    url = f"mqtt://127.0.0.1:{port}"
    try:
        async with forebay.connect(url, offline="drop_oldest", max_backoff=0.1) as client:
            async with client.producer("off", qos=1, max_pending=10) as producer:
                await within(producer.send(b"warm"))
                broker.end(signal.SIGKILL)
                await asyncio.to_thread(eventually, lambda: not client.stats()["connected"])
                sends = [producer.send(str(i).encode()) for i in range(25)]
                broker.start()
                results = await within(asyncio.gather(*sends, return_exceptions=True))
                dropped = [i for i, result in enumerate(results) if isinstance(result, errors.QueueFull)]
                assert dropped == [0, 1, 2, 3, 4]
                assert all(not isinstance(result, BaseException) for result in results[5:])
    finally:
        broker.end(signal.SIGTERM)


async def test_closing_gives_up_on_a_broker_that_is_gone_for_good(tmp_path: Path):
    broker = BrokerProcess(tmp_path / "data", "--mqtt-port", str(port := free_port()))
    broker.start()
    try:
        client = await forebay.connect(f"mqtt://127.0.0.1:{port}", operation_timeout=0.3)
        producer = await client.producer("gone", qos=1)
        await within(producer.send(b"there"))
        broker.end(signal.SIGKILL)
        lost = producer.send(b"gone")
        with pytest.raises(errors.Timeout, match="no answer"):
            await within(producer.close())
        with contextlib.suppress(errors.Timeout):
            await within(client.close())
        with pytest.raises(errors.Error):
            await within(lost)
    finally:
        broker.end(signal.SIGTERM)


async def test_matching():
    assert mqtt.matches("$share/g/a/+", "a/b")
    assert not mqtt.matches("+/b", "$SYS/b")
    with pytest.raises(errors.InvalidTopic):
        mqtt.matches("a/#/b", "a")
