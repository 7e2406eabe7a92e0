"""Clients that violate MQTT or use it against the embedded broker: it closes or goes on, and serves
others."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mqtt import wire
from support.mqtt.harness import EmbeddedMqtt
from support.mqtt.wire import V5, V31, V311
from support.waiting import eventually

HELLO = wire.connect("hostile")
HELLO3 = wire.connect("hostile", V311)
PUBREL, PUBACK, PUBREC, PUBCOMP = wire.PUBREL, wire.PUBACK, wire.PUBREC, wire.PUBCOMP


def noise(seed: int, size: int = 5000) -> bytes:
    return random.Random(seed).randbytes(size)


def property_block(block: bytes) -> bytes:
    return wire.packet(wire.PUBLISH, wire.binary("t") + wire.varint(len(block)) + block)


def raw_subscribe(filters: bytes, packet_id: int = 1) -> bytes:
    return wire.packet(wire.SUBSCRIBE, struct.pack(">H", packet_id) + b"\0" + filters)


def raw_connect(body: bytes) -> bytes:
    return wire.packet(wire.CONNECT, body)


MQTT = wire.binary("MQTT")
ALIVE, ANY = "alive", "any"
# The bytes, and how it must end: a reason in DISCONNECT or CONNACK, closed without a reason (None), "alive",
# or "any" of them.
SCRIPTS: dict[str, tuple[list[bytes], int | str | None]] = {
    # before CONNECT
    "an HTTP request": ([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], None),
    "a TLS hello": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(1, 500)], None),
    "random bytes": ([b"\xf7" + noise(2)], None),
    "PUBLISH first": ([wire.publish("t")], None),
    "PINGREQ first": ([wire.packet(wire.PINGREQ)], None),
    "a packet of type 0": ([b"\0\0"], None),
    "CONNECT of another protocol": ([raw_connect(wire.binary("AMQP") + b"\x05\x02\0\0\0\0\0")], None),
    "CONNECT with level 6": ([raw_connect(MQTT + b"\x06\x02\0\0\0\0\0")], 0x84),
    "CONNECT with level 0": ([raw_connect(MQTT + b"\x00\x02\0\0\0\0")], ANY),
    "CONNECT with the reserved flag": ([wire.connect("x", V5, flags=1)], 0x81),
    "CONNECT with the reserved flag of 3.1.1": ([wire.connect("x", V311, flags=1)], None),
    "CONNECT with a will of QoS 3": ([wire.connect("x", V5, flags=0b11100) + b"\0"], 0x81),
    "CONNECT with a will's QoS and no will": ([wire.connect("x", V5, flags=0b1000)], 0x81),
    "CONNECT with a password and no user, 3.1.1": ([wire.connect("x", V311, password="p")], None),
    "CONNECT that ends in its client identifier": ([raw_connect(MQTT + b"\x05\x02\0\0\0\0\x09x")], 0x81),
    "CONNECT with bytes behind it": ([raw_connect(MQTT + b"\x05\x02\0\0\0\0\x01x" + b"more")], 0x81),
    "CONNECT with a client identifier that is no UTF-8": (
        [raw_connect(MQTT + b"\x05\x02\0\0\0\0\x02\xff\xfe")],
        0x81,
    ),
    "CONNECT with a NUL in its client identifier": ([wire.connect("a\0b")], 0x81),
    "CONNECT with a property twice": (
        [wire.connect("x", props=[("receive_maximum", 1), ("receive_maximum", 2)])],
        0x82,
    ),
    "CONNECT with a receive maximum of 0": ([wire.connect("x", props={"receive_maximum": 0})], 0x82),
    "CONNECT with a maximum packet size of 0": ([wire.connect("x", props={"maximum_packet_size": 0})], 0x82),
    "CONNECT with a property of PUBLISH": ([wire.connect("x", props={"topic_alias": 1})], 0x82),
    "CONNECT with an unknown method": ([wire.connect("x", props={"authentication_method": "x"})], 0x8C),
    "CONNECT with data and no method": ([wire.connect("x", props={"authentication_data": b"x"})], 0x82),
    "CONNECT with a will to a wildcard": ([wire.connect("x", will=wire.Will("a/#"))], 0x90),
    "CONNECT with a will to $SYS": ([wire.connect("x", will=wire.Will("$SYS/broker/version"))], 0x87),
    "CONNECT of 64 KiB and more": ([wire.connect("x" * 65_000, will=wire.Will("w", b"x" * 65_000))], None),
    "CONNECT of 3.1.1 without a name that wants to stay": ([wire.connect("", V311, clean=False)], 2),
    "CONNECT of 3.1 without a name": ([wire.connect("", V31)], 2),
    # frames
    "a length of five bytes": ([HELLO, b"\x30\xff\xff\xff\xff\x01"], 0x81),
    "a packet of 256 MiB": ([HELLO, b"\x30\xff\xff\xff\x7f"], 0x95),
    "a packet just too large": ([HELLO, b"\x30" + wire.varint(2_000_000)], 0x95),
    "type 0 after CONNECT": ([HELLO, b"\x00\x00"], 0x81),
    "a second CONNECT": ([HELLO, HELLO], 0x82),
    "what only a server sends": ([HELLO, b"\x20\x03\0\0\0"], 0x82),
    "SUBACK from a client": ([HELLO, b"\x90\x04\0\x01\0\0"], 0x82),
    "PINGREQ with a body": ([HELLO, b"\xc0\x01x"], 0x81),
    "PINGREQ with flags": ([HELLO, b"\xc5\x00"], 0x81),
    "SUBSCRIBE with flags 0": ([HELLO, wire.packet(wire.SUBSCRIBE, b"\0\x01\0\0\x01t\0", flags=0)], 0x81),
    "AUTH without a method": ([HELLO, wire.auth(0x19, [("authentication_method", "x")])], 0x82),
    "AUTH of 3.1.1": ([HELLO3, b"\xf0\x00"], None),
    "random bytes after CONNECT": ([HELLO, b"\xf3\0" + noise(3)], 0x81),
    "random bytes after CONNECT, 3.1.1": ([HELLO3, b"\xf3\0" + noise(4)], None),
    # PUBLISH
    "PUBLISH with QoS 3": ([HELLO, wire.packet(wire.PUBLISH, wire.binary("t") + b"\0\x01\0", flags=6)], 0x81),
    "PUBLISH with DUP and QoS 0": ([HELLO, wire.publish("t", dup=True)], 0x81),
    "PUBLISH with packet identifier 0": ([HELLO, wire.publish("t", qos=1, packet_id=0)], 0x82),
    "PUBLISH to a wildcard": ([HELLO, wire.publish("a/+")], 0x90),
    "PUBLISH to a wildcard, 3.1.1": ([HELLO3, wire.publish("a/+", version=V311)], None),
    "PUBLISH to nothing": ([HELLO, wire.publish("")], 0x82),
    "PUBLISH to a topic that is no UTF-8": ([HELLO, wire.publish(b"\xc0\x80")], 0x81),
    "PUBLISH to a topic with a surrogate": ([HELLO, wire.publish(b"\xed\xa0\x80")], 0x81),
    "PUBLISH to a topic of a thousand levels": ([HELLO, wire.publish("/" * 1000)], 0x90),
    "PUBLISH to a topic longer than itself": ([HELLO, wire.packet(wire.PUBLISH, b"\xff\xfft")], 0x81),
    "PUBLISH with an alias of 0": ([HELLO, wire.publish("t", props={"topic_alias": 0})], 0x94),
    "PUBLISH with an alias above the maximum": ([HELLO, wire.publish("t", props={"topic_alias": 999})], 0x94),
    "PUBLISH with an alias that stands for nothing": (
        [HELLO, wire.publish("", props={"topic_alias": 7})],
        0x82,
    ),
    "PUBLISH with a subscription identifier": (
        [HELLO, wire.publish("t", props={"subscription_identifier": 1})],
        0x82,
    ),
    "PUBLISH with properties longer than itself": ([HELLO, property_block(b"")[:-1] + b"\x7f"], 0x81),
    "PUBLISH with an unknown property": ([HELLO, property_block(b"\x7e\x01")], 0x81),
    "PUBLISH with a response topic of a wildcard": (
        [HELLO, wire.publish("t", props={"response_topic": "a/#"})],
        ANY,
    ),
    "PUBLISH to $SYS": ([HELLO, wire.publish("$SYS/broker/version", b"mine")], ALIVE),
    "more messages in flight than agreed": (
        [HELLO, *[wire.publish("t", qos=2, packet_id=number) for number in range(1, 1100)]],
        0x93,
    ),
    "65,535 messages of QoS 2 that are never released, 3.1.1": (
        [HELLO3, *[wire.publish("t", qos=2, packet_id=n, version=V311) for n in range(1, 65_536)]],
        ALIVE,
    ),
    # answers to nothing
    "PUBACK for what never was": ([HELLO, wire.ack(PUBACK, 77)], ALIVE),
    "PUBREC for what never was": ([HELLO, wire.ack(PUBREC, 77)], ALIVE),
    "PUBREL for what never was": ([HELLO, wire.ack(PUBREL, 77)], ALIVE),
    "PUBCOMP for what never was": ([HELLO, wire.ack(PUBCOMP, 77)], ALIVE),
    "PUBACK of identifier 0": ([HELLO, wire.ack(PUBACK, 0)], 0x82),
    "PUBACK with a reason of CONNACK": ([HELLO, wire.ack(PUBACK, 1, 0x84)], 0x82),
    "PUBACK of one byte": ([HELLO, b"\x40\x01\0"], 0x81),
    "ten thousand PUBREL": ([HELLO, wire.ack(PUBREL, 5) * 10_000], ALIVE),
    # SUBSCRIBE
    "SUBSCRIBE to nothing": ([HELLO, raw_subscribe(b"")], 0x82),
    "SUBSCRIBE with reserved bits": ([HELLO, raw_subscribe(wire.binary("t") + b"\xc0")], 0x81),
    "SUBSCRIBE with retain handling 3": ([HELLO, raw_subscribe(wire.binary("t") + b"\x30")], 0x82),
    "SUBSCRIBE with QoS 3": ([HELLO, raw_subscribe(wire.binary("t") + b"\x03")], 0x81),
    "SUBSCRIBE without options": ([HELLO, raw_subscribe(wire.binary("t"))], 0x81),
    "SUBSCRIBE with identifier 0": ([HELLO, wire.subscribe("t", props={"subscription_identifier": 0})], 0x82),
    "SUBSCRIBE with packet identifier 0": ([HELLO, wire.subscribe("t", packet_id=0)], 0x82),
    "SUBSCRIBE to a share with no local": ([HELLO, wire.subscribe([("$share/g/t", 4)])], 0x82),
    "SUBSCRIBE to bad filters": (
        [HELLO, wire.subscribe([("a#", 0), ("#/a", 0), ("a+/b", 0)])],
        ALIVE,
    ),
    "SUBSCRIBE to an empty filter": ([HELLO, wire.subscribe([("a", 0), ("", 0)])], 0x81),
    "UNSUBSCRIBE from a bad filter": ([HELLO, wire.unsubscribe("a#")], 0x81),
    "UNSUBSCRIBE from an empty filter": ([HELLO, wire.unsubscribe("")], 0x81),
    "SUBSCRIBE to a bad filter, 3.1.1": ([HELLO3, wire.subscribe("a#", version=V311)], None),
    "SUBSCRIBE to a filter of a thousand levels": ([HELLO, wire.subscribe("+/" * 999 + "+")], ALIVE),
    "twenty thousand subscriptions": (
        [HELLO, *[wire.subscribe([(f"a/{n}/{i}", 0) for i in range(200)]) for n in range(100)]],
        ALIVE,
    ),
    "UNSUBSCRIBE from nothing": ([HELLO, wire.packet(wire.UNSUBSCRIBE, b"\0\x01\0")], 0x82),
    "UNSUBSCRIBE from what never was": ([HELLO, wire.unsubscribe("nowhere")], ALIVE),
    # DISCONNECT
    "DISCONNECT with a server's reason": ([HELLO, wire.disconnect(0x8E)], 0x82),
    "DISCONNECT with flags": ([HELLO, b"\xe1\x00"], 0x81),
    "DISCONNECT that would make a session stay": (
        [HELLO, wire.disconnect(0, [("session_expiry_interval", 100)])],
        0x82,
    ),
    "packets behind DISCONNECT": ([HELLO, wire.disconnect() + noise(5)], None),
}
# The last bytes may be the start of a packet that is still incomplete.
OPEN_ENDED = ("an HTTP request", "a TLS hello", "random bytes", "PUBLISH to a topic longer than itself")


def resident(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedMqtt]:
    broker = EmbeddedMqtt()
    before = resident(broker.pid)
    yield broker
    grown = resident(broker.pid) - before
    broker.stop()
    assert grown < 150 << 20, f"hostile clients made the broker grow by {grown >> 20} MiB"


def serves(broker: EmbeddedMqtt) -> None:
    """Asserts that other clients are served."""
    with broker.raw() as peer:
        peer.connect("good")
        topic = broker.topic()
        assert peer.subscribe([(topic, 1)]) == [1]
        assert peer.publish(topic, b"x", 1) == 0
        assert peer.message()["payload"] == b"x"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_broker_closes_or_goes_on(broker: EmbeddedMqtt, name: str) -> None:
    sent, end = SCRIPTS[name]
    old = any(one in (HELLO3,) for one in sent) or "3.1" in name
    with broker.raw(V311 if old else V5) as peer:
        with contextlib.suppress(ConnectionError):
            peer.send(*sent)
        if end == ALIVE:
            peer.send(wire.packet(wire.PINGREQ))
            while (one := peer.packet()) is not None and one.kind != wire.PINGRESP:
                pass
            assert one is not None, "the broker closed the connection"
        else:
            if name in OPEN_ENDED:
                peer.socket.shutdown(socket.SHUT_WR)
            said = [one for one in peer.closed() if one["type"] in ("CONNACK", "DISCONNECT")]
            if end is None:
                assert not [one for one in said if one.get("reason")], said
            elif end != ANY:
                assert said and said[-1]["reason"] == end, said
    serves(broker)


def test_a_conversation_cut_at_every_byte_is_forgotten(broker: EmbeddedMqtt) -> None:
    whole = (
        HELLO + wire.subscribe([("cut/#", 2)]) + wire.publish("cut/x", b"payload", 2, 1) + wire.ack(PUBREL, 1)
    )
    for cut in range(1, len(whole)):
        with socket.create_connection(("127.0.0.1", broker.port), 5) as peer:
            peer.sendall(whole[:cut])
    serves(broker)


def test_packets_that_come_byte_by_byte_are_packets(broker: EmbeddedMqtt) -> None:
    with broker.raw() as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HELLO + wire.publish("t", b"payload", 1, 9):
            peer.send(bytes([byte]))
        peer.expect(wire.CONNACK)
        assert peer.expect(PUBACK)["packet_id"] == 9


def test_announced_packets_that_never_come_take_no_memory(broker: EmbeddedMqtt) -> None:
    before = resident(broker.pid)
    peers = [broker.raw() for _ in range(100)]
    for number, peer in enumerate(peers):
        peer.connect(f"announcer-{number}")
        peer.send(b"\x30" + wire.varint(1_900_000) + wire.binary("t"))
    serves(broker)
    assert resident(broker.pid) - before < 64 << 20
    for peer in peers:
        peer.socket.close()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_never_reads_does_not_make_the_broker_grow(broker: EmbeddedMqtt, qos: int) -> None:
    topic = broker.topic()
    with broker.raw() as slow, broker.raw() as publisher:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect("slow")
        slow.subscribe([(topic, qos)])
        publisher.connect("fast")
        before = resident(broker.pid)
        for _ in range(1500):
            publisher.publish(topic, bytes(100_000), qos)
        publisher.sync()
        # 150 MB were sent. A session may queue 64 MiB of QoS 1, a connection 8 MiB of QoS 0.
        assert resident(broker.pid) - before < (100 << 20)
    assert broker.call("status")["mqtt"]["messages_dropped"] > 0
    serves(broker)


def test_a_publisher_that_never_reads_is_not_read_either(broker: EmbeddedMqtt) -> None:
    with broker.raw() as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect("deaf")
        before = resident(broker.pid)
        peer.socket.settimeout(2)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 1 << 30:
                peer.socket.sendall(wire.packet(wire.PINGREQ) * 10_000)
                sent += 20_000
        assert resident(broker.pid) - before < 64 << 20
    serves(broker)


def test_many_connections_that_say_nothing(broker: EmbeddedMqtt) -> None:
    peers = [socket.create_connection(("127.0.0.1", broker.port), 5) for _ in range(200)]
    serves(broker)
    for peer in peers:
        peer.close()


def test_a_storm_of_connections_under_one_name(broker: EmbeddedMqtt) -> None:
    for number in range(300):
        with socket.create_connection(("127.0.0.1", broker.port), 5) as peer:
            peer.sendall(HELLO if number % 2 else noise(number)[:50])
    serves(broker)
    # The sessions of the storm ended with their connections.
    eventually(lambda: broker.call("status")["mqtt"]["connections"] == 0)
    assert broker.call("status")["mqtt"]["sessions"] == 0


def test_retained_messages_of_a_flood_end_at_their_limit() -> None:
    broker = EmbeddedMqtt(mqtt_max_retained=100)
    try:
        with broker.raw() as peer:
            peer.connect("flood")
            for number in range(1000):
                peer.publish(f"flood/{number}", b"x", retain=True)
            assert peer.publish("flood/one more", b"x", 1, retain=True) == 0x97
        assert broker.call("status")["mqtt"]["retained"] == 100
    finally:
        broker.stop()


def test_a_web_page_of_another_host_does_not_get_in() -> None:
    broker = EmbeddedMqtt()
    try:
        port = broker.port_of(broker.ws_url)
        for origin, status in (("https://evil.example", b"403"), ("http://localhost:8000", b"101")):
            with socket.create_connection(("127.0.0.1", port), 5) as page:
                page.sendall(
                    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
                    b"Sec-WebSocket-Protocol: mqtt\r\nOrigin: " + origin.encode() + b"\r\n\r\n"
                )
                assert page.recv(100).split()[1] == status
    finally:
        broker.stop()
