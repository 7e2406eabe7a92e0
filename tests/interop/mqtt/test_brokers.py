"""Our client on Mosquitto, HiveMQ and the embedded broker: cuts at every packet, restarts, TLS, WebSocket,
users, extended authentication; and next to clients of other authors."""

from __future__ import annotations

import asyncio
import hmac
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import forebay
from forebay import errors

from support.fixtures import start
from support.messages import nothing, payloads
from support.mqtt.harness import EmbeddedMqtt, HiveMq, Mosquitto, MqttService, take
from support.mqtt.peers import PEERS, Filter, MosquittoPrograms, Paho, Peer, Target
from support.mqtt.proxy import Proxy
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE, until

# Some tests start a broker of their own.
pytestmark = pytest.mark.timeout(400)

WORDS = {V31: "3.1", V311: "3.1.1", V5: "5"}
NAMES = {"embedded": EmbeddedMqtt, "mosquitto": Mosquitto, "hivemq": HiveMq}

BROKERS = [
    pytest.param("embedded"),
    pytest.param("mosquitto", marks=pytest.mark.real_mqtt),
    pytest.param("hivemq", marks=pytest.mark.real_hivemq),
]
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> MqttService:
    return request.getfixturevalue("embedded_mqtt" if request.param == "embedded" else request.param)


@pytest.fixture
def topic(broker: MqttService) -> str:
    return broker.topic()


@pytest.fixture(params=BROKERS, scope="module")
def guarded(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A broker with users and TLS."""
    broker = start(lambda: NAMES[request.param](users=True, tls=True))
    yield broker
    broker.stop()


@pytest.fixture(params=BROKERS)
def own(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A broker that the test may stop, kill and start; acknowledged messages are on disk."""
    options: dict[str, Any] = {"data": True} if request.param == "embedded" else {}
    if request.param == "mosquitto":
        # Mosquitto writes its state on request or periodically.
        options["extra"] = "autosave_interval 1\nautosave_on_changes true\n"
    broker = start(lambda: NAMES[request.param](**options))
    yield broker
    broker.stop()


def name() -> str:
    return f"o{uuid.uuid4().hex[:10]}"


def secure(broker: Any) -> tuple[str, dict[str, Any]]:
    """URL and options of its TLS listener."""
    url = broker.tls_url if broker.is_real else broker.url
    return url.replace("mqtt://", "mqtts://"), {"tls_ca": str(broker.certificates.ca)}


async def until_closed(proxy: Proxy) -> None:
    """The first connection through the proxy has ended."""
    await asyncio.to_thread(proxy.passages[0].done.wait, PATIENCE)
    assert proxy.passages[0].closed_by == "proxy"


# ------------------------------------------------------------------------------ cuts


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("before", [True, False], ids=["lost", "arrived"])
async def test_publishing_cut_at_each_packet(
    broker: MqttService, topic: str, version: int, qos: int, before: bool
) -> None:
    """Three messages are sent; the connection ends at each of their packets in turn."""
    options: dict[str, Any] = {"version": WORDS[version], "max_backoff": 0.1}
    async with forebay.connect(broker.url, version=WORDS[version]) as watching:
        async with watching.consumer(f"{topic}/#", qos=2) as watcher:
            for at in range(3 * 2 * qos):
                with Proxy(broker.port) as proxy:
                    async with forebay.connect(
                        proxy.url, client_id=name(), clean_start=False, **options
                    ) as client:
                        proxy.cut_at(at, before=before)
                        sent = [b"%d-%d" % (at, number) for number in range(3)]
                        await asyncio.gather(
                            *[client.publish(f"{topic}/{at}", payload, qos=qos) for payload in sent]
                        )
                        if len(proxy.passages[0].packets) >= at:
                            await until_closed(proxy)
                        await client.publish(f"{topic}/{at}", b"end", qos=qos)
                got: list[bytes] = []
                while b"end" not in got:
                    message = await watcher.receive(timeout=PATIENCE)
                    await watcher.ack(message)
                    got.append(bytes(message.data))
                if qos == 2:
                    assert got == [*sent, b"end"], (at, got)
                else:
                    # Once or twice, first occurrences in order.
                    assert list(dict.fromkeys(got)) == [*sent, b"end"], (at, got)


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("before", [True, False], ids=["lost", "arrived"])
async def test_receiving_cut_at_each_packet(
    broker: MqttService, topic: str, version: int, qos: int, before: bool
) -> None:
    options: dict[str, Any] = {"version": WORDS[version], "max_backoff": 0.1}
    async with forebay.connect(broker.url, version=WORDS[version]) as writing:
        for at in range(3 * 2 * qos):
            with Proxy(broker.port) as proxy:
                async with forebay.connect(
                    proxy.url, client_id=name(), clean_start=False, **options
                ) as client:
                    async with client.consumer(f"{topic}/{at}", qos=2) as consumer:
                        proxy.cut_at(at, before=before)
                        sent = [b"%d" % number for number in range(3)]
                        for payload in sent:
                            await writing.publish(f"{topic}/{at}", payload, qos=qos)
                        got: list[bytes] = []
                        while len(set(got)) < 3:
                            message = await consumer.receive(timeout=PATIENCE)
                            await consumer.ack(message)
                            got.append(bytes(message.data))
                        await writing.publish(f"{topic}/{at}", b"end", qos=qos)
                        while b"end" not in got:
                            message = await consumer.receive(timeout=PATIENCE)
                            await consumer.ack(message)
                            got.append(bytes(message.data))
                        if qos == 2:
                            assert got == [*sent, b"end"], (at, got)
                        else:
                            assert list(dict.fromkeys(got)) == [*sent, b"end"], (at, got)
                        await consumer.unsubscribe()


@VERSIONS
async def test_a_broker_that_lost_the_session_gets_the_subscriptions_again(
    broker: MqttService, topic: str, version: int
) -> None:
    client_id = name()
    with Proxy(broker.port) as proxy:
        async with forebay.connect(
            proxy.url, client_id=client_id, version=WORDS[version], max_backoff=0.1
        ) as client:
            async with client.consumer(topic, qos=1) as consumer:
                proxy.refuses = True
                proxy.cut()
                # Another client discards the session.
                with broker.raw(version) as thief:
                    thief.connect(client_id)
                proxy.refuses = False
                await client.publish(f"{topic}/none", b"x", qos=1)
                await until(lambda: client.stats()["resubscribed"] == 1)
                async with forebay.connect(broker.url) as writing:
                    await writing.publish(topic, b"back", qos=1)
                assert payloads(await take(consumer, 1)) == [b"back"]


# ------------------------------------------------------------------------------ restarts


@VERSIONS
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_a_broker_that_restarts(own: Any, version: int, kill: bool) -> None:
    if kill and own.name == "mosquitto":
        pytest.xfail("Mosquitto acknowledges before it has written")
    topic = own.topic()
    kept: dict[str, Any] = {"clean_start": False, "version": WORDS[version]}
    async with (
        forebay.connect(own.url, client_id=name(), max_backoff=0.2, **kept) as client,
        forebay.connect(own.url, client_id=name(), max_backoff=0.2, **kept) as writing,
    ):
        async with client.consumer(topic, qos=2) as consumer:
            await writing.publish(topic, b"before", qos=2)
            await take(consumer, 1)
            await asyncio.to_thread(own.halt, kill=kill)
            # Queued while the subscriber is offline, and sent when it returns.
            waiting = [writing.publish(topic, b"%d" % number, qos=1 + number % 2) for number in range(10)]
            await asyncio.to_thread(own.start)
            await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
            got: list[bytes] = []
            while len(got) < 10:
                message = await consumer.receive(timeout=PATIENCE)
                await consumer.ack(message)
                if bytes(message.data) == b"before":
                    # HiveMQ sends again what is not on disk when it is killed, at QoS 2 too.
                    assert kill and own.name == "hivemq"
                    continue
                got.append(bytes(message.data))
            # In order within each QoS; which of the two comes first is the broker's choice.
            for odd in (0, 1):
                assert [data for data in got if int(data) % 2 == odd] == [
                    b"%d" % number for number in range(10) if number % 2 == odd
                ]


# ------------------------------------------------------------------------------ TLS, users,
# WebSocket


@VERSIONS
async def test_users_and_tls(guarded: Any, version: int) -> None:
    url, options = secure(guarded)
    options |= {"version": WORDS[version]}
    topic = guarded.topic()
    async with forebay.connect(url, username="ann", password="secret", **options) as client:
        async with client.consumer(topic, qos=2) as consumer:
            await client.publish(topic, bytes(100_000), qos=2)
            assert [len(data) for data in payloads(await take(consumer, 1))] == [100_000]
    for user, password in (("ann", "wrong"), ("nobody", "secret")):
        # Mosquitto reports an unknown user as not authorized.
        with pytest.raises((errors.AuthenticationError, errors.AuthorizationError)) as caught:
            async with forebay.connect(url, username=user, password=password, **options):
                pass
        assert password not in str(caught.value)


async def test_a_certificate_of_somebody_else_is_refused(guarded: Any) -> None:
    url, _ = secure(guarded)
    with pytest.raises(errors.Error, match=r"(?i)certificate"):
        async with forebay.connect(url, username="ann", password="secret"):
            pass


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Mosquitto, marks=pytest.mark.real_mqtt, id="mosquitto"),
        pytest.param(HiveMq, marks=pytest.mark.real_hivemq, id="hivemq"),
    ],
)
async def test_mutual_tls(kind: Any) -> None:
    options = (
        {"extra": "require_certificate true\n"} if kind is Mosquitto else {"CLIENT_CERTIFICATE": "REQUIRED"}
    )
    broker = start(lambda: kind(tls=True, **options))
    try:
        url, own = secure(broker)
        certificates = broker.certificates
        key = {"tls_cert": str(certificates.client_crt), "tls_key": str(certificates.client_key)}
        async with forebay.connect(url, **own, **key) as client:
            await client.publish("x", b"x", qos=1)
        with pytest.raises(errors.Error):
            async with forebay.connect(url, connect_timeout=3, **own) as client:
                await client.publish("x", b"x", qos=1)
    finally:
        broker.stop()


async def test_websocket(broker: MqttService, topic: str) -> None:
    async with forebay.connect(broker.ws_url) as client:
        async with client.consumer(topic, qos=2) as consumer:
            for payload in (b"", b"small", bytes(50_000)):
                await client.publish(topic, payload, qos=2)
                assert payloads(await take(consumer, 1)) == [payload]


async def test_keep_alive(broker: MqttService, topic: str) -> None:
    for _ in range(3):
        with Proxy(broker.port) as proxy:
            async with forebay.connect(proxy.url, keep_alive=2) as client:
                async with client.consumer(topic, qos=1) as consumer:
                    # With 1 HiveMQ closes after a second, and not after one and a half.
                    await nothing(consumer, 5)
                    await client.publish(topic, b"still here", qos=1)
                    got = payloads(await consumer.receive_many(1, timeout=PATIENCE))
        # A client whose machine stood still is rightly dropped; one that sends no pings is dropped
        # each time.
        if len(proxy.passages) == 1:
            break
    pings = [packet for origin, packet in proxy.packets if packet.name == "PINGREQ"]
    assert len(proxy.passages) == 1
    assert len(pings) >= 2
    assert got == [b"still here"]


@pytest.mark.real_hivemq
async def test_what_hivemq_forbids() -> None:
    """The others with the same rules: tests/contract/mqtt/test_permissions.py."""
    broker = start(lambda: HiveMq(users=True))
    try:
        async with forebay.connect(broker.url, username="ann", password="secret") as client:
            with pytest.raises(errors.AuthorizationError):
                await client.publish("forbidden/x", b"x", qos=1)
            with pytest.raises(errors.AuthorizationError):
                await client.consumer("forbidden/x", qos=1)
    finally:
        broker.stop()


# ------------------------------------------------------------------------------ extended
# authentication


def answering(password: str) -> Callable[[bytes | None], bytes | None]:
    """The method CHALLENGE of tests/brokers/hivemq/HiveMq.java."""

    def step(data: bytes | None) -> bytes | None:
        if data is None:
            return b"ann"
        if data == b"welcome":
            return None
        return hmac.new(password.encode(), data, "sha256").digest()

    return step


@pytest.mark.real_hivemq
async def test_extended_authentication_and_once_more() -> None:
    broker = start(lambda: HiveMq(users=True))
    try:
        with Proxy(broker.port) as proxy:
            async with forebay.connect(
                proxy.url, authentication_method="CHALLENGE", authenticator=answering("secret")
            ) as client:
                await client.publish("x", b"x", qos=1)
                await client.reauthenticate()
                await client.publish("x", b"x", qos=1)

                def said() -> list[int]:
                    return [packet.body[0] for _, packet in proxy.packets if packet.name == "AUTH"]

                # The broker may answer the publication first.
                await until(lambda: len(said()) >= 6)
            # Challenge, answer, re-authenticate, challenge, answer, success.
            assert said() == [0x18, 0x18, 0x19, 0x18, 0x18, 0x00]
        with pytest.raises(errors.AuthorizationError, match="that is not the answer"):
            async with forebay.connect(
                broker.url, authentication_method="CHALLENGE", authenticator=answering("wrong")
            ):
                pass
        with pytest.raises(errors.AuthenticationError):
            async with forebay.connect(
                broker.url, authentication_method="OTHER", authenticator=answering("secret")
            ):
                pass
    finally:
        broker.stop()


# ------------------------------------------------------------------------------ beside other
# clients


@pytest.mark.parametrize(
    ("peer", "version"),
    [
        pytest.param(peer, version, id=f"{label}-{WORDS[version]}")
        for label, peer in PEERS.items()
        for version in peer.versions
    ],
)
@pytest.mark.real_mqtt
async def test_beside_other_clients_on_mosquitto(
    mosquitto: Mosquitto, peer: type[Peer], version: int
) -> None:
    topic = mosquitto.topic()
    one = await asyncio.to_thread(peer)
    try:
        await asyncio.to_thread(one.connect, Target(mosquitto.port), name(), version)
        await asyncio.to_thread(one.subscribe, Filter(f"{topic}/ours", 2))
        async with forebay.connect(mosquitto.url, version=WORDS[version]) as client:
            async with client.consumer(f"{topic}/theirs", qos=2) as consumer:
                for qos in (0, 1, 2):
                    await client.publish(f"{topic}/ours", b"ours %d" % qos, qos=qos)
                    await asyncio.to_thread(one.publish, f"{topic}/theirs", b"theirs %d" % qos, qos)
                got = await take(consumer, 3)
                assert [(bytes(m.data), m.qos) for m in got] == [(b"theirs %d" % q, q) for q in (0, 1, 2)]
                seen = await asyncio.to_thread(one.receive, 3)
                assert [(m.payload, m.qos) for m in seen] == [(b"ours %d" % q, q) for q in (0, 1, 2)]
    finally:
        await asyncio.to_thread(one.close)


@pytest.mark.parametrize("receiver", [Paho, MosquittoPrograms], ids=lambda peer: peer.name)
async def test_what_we_send_with_aliases_others_receive_in_full(
    broker: MqttService, topic: str, receiver: type[Peer]
) -> None:
    one = receiver()
    try:
        await asyncio.to_thread(one.connect, Target(broker.port), name(), V5)
        await asyncio.to_thread(one.subscribe, Filter(f"{topic}/#", 1))
        with Proxy(broker.port) as proxy:
            async with forebay.connect(proxy.url) as client:
                for number in range(40):
                    await client.publish(f"{topic}/{number % 3}", b"%d" % number, qos=1)
            shortened = [
                packet
                for _, packet in proxy.packets
                if packet.name == "PUBLISH" and packet.body[:2] == b"\0\0"
            ]
            assert shortened, "no topic alias was used"
        got = await asyncio.to_thread(one.receive, 40)
        assert [(m.topic, m.payload) for m in got] == [
            (f"{topic}/{number % 3}", b"%d" % number) for number in range(40)
        ]
    finally:
        await asyncio.to_thread(one.close)
