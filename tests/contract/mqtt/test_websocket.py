"""MQTT over WebSocket (chapter 6)."""

from __future__ import annotations

import pytest

from support.mqtt import wire
from support.mqtt.harness import MqttService
from support.mqtt.wire import V5, V31, WebSocket


@pytest.fixture
def port(broker: MqttService) -> int:
    return broker.port_of(broker.ws_url)


def test_the_server_chooses_the_subprotocol_mqtt(port: int, version: int, topic: str) -> None:
    with WebSocket(port, version, offers="other, mqtt") as one:
        assert one.chosen == "mqtt"
        assert one.connect("ws")["reason"] == 0
        assert one.subscribe([(topic, 2)]) == [2]
        for payload in (b"small", bytes(70_000)):
            one.publish(topic, payload, 2)
            assert one.message()["payload"] == payload


def test_packets_and_frames_need_not_be_aligned(port: int, version: int, topic: str) -> None:
    with WebSocket(port, version) as one:
        # Three packets in one frame, then one packet in a frame for each byte, then in fragments.
        one.frame(
            wire.connect("frames", version)
            + wire.subscribe(topic, 1, version)
            + wire.publish(topic, b"1", 0, version=version)
        )
        assert one.expect(wire.CONNACK)["reason"] == 0
        assert one.expect(wire.SUBACK)["reasons"] == [0]
        assert one.message()["payload"] == b"1"
        whole = wire.publish(topic, b"2" * 20, 0, version=version)
        for byte in whole:
            one.frame(bytes([byte]))
        assert one.message()["payload"] == b"2" * 20
        one.frame(whole[:5], last=False)
        one.frame(whole[5:9], wire.CONTINUATION, last=False)
        one.frame(whole[9:], wire.CONTINUATION)
        assert one.message()["payload"] == b"2" * 20
        one.frame(b"", wire.BINARY)
        one.sync()


@pytest.mark.differs("mosquitto", "it reads text as well")
def test_a_text_frame_closes_the_connection(port: int, version: int) -> None:
    with WebSocket(port, version) as one:
        assert one.connect("text")["reason"] == 0
        one.frame(wire.packet(wire.PINGREQ), wire.TEXT)
        assert one.closed() == []


def test_a_ping_of_websocket_is_no_mqtt(port: int) -> None:
    with WebSocket(port) as one:
        assert one.connect("pings")["reason"] == 0
        one.frame(b"are you there", wire.PING)
        one.sync()


def test_the_old_subprotocol_of_3_1(port: int, broker: MqttService) -> None:
    with WebSocket(port, V31, offers="mqttv3.1") as one:
        assert one.chosen == "mqttv3.1"
        assert one.connect("old")["reason"] == 0


def test_a_will_is_published_when_the_websocket_ends(port: int, open, topic: str) -> None:
    watcher = open()
    watcher.subscribe(topic)
    with WebSocket(port) as one:
        assert one.connect("dying", will=wire.Will(topic, b"gone"))["reason"] == 0
    assert watcher.message()["payload"] == b"gone"


def test_who_is_on_tcp_and_who_is_on_websocket_share_topics(port: int, open, topic: str) -> None:
    one = open(V5)
    one.subscribe([(topic, 1)])
    with WebSocket(port) as other:
        other.connect("web")
        other.subscribe([(topic, 1)])
        for sender, receiver in ((one, other), (other, one)):
            sender.publish(topic, b"hello", 1)
            assert receiver.message()["payload"] == b"hello"
            assert sender.message()["payload"] == b"hello"
