"""``forebay doctor`` with an MQTT URL: address, TLS, CONNECT, limits, and messages sent and received."""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from forebay.commands._shared import doctor
from forebay.commands._shared.web import tls_context
from forebay.mqtt import blocking

_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}


def run(given: argparse.Namespace) -> int:
    """Exit status 0 if every step succeeds."""
    return doctor.run(given, "mqtt", _examine)


def _examine(examination: doctor.Examination) -> None:
    if not _reached(examination):
        return
    client = examination.connect("connect", blocking.connect, _connack)
    if client is None:
        return
    with client:
        if examination.step("limits", lambda: _limits(client.stats())):
            examination.step("round trip", lambda: _round_trip(client))


def _reached(examination: doctor.Examination) -> bool:
    if examination.scheme == "mqtt+unix":
        path = examination.base.partition("://")[2]
        return examination.step("address", lambda: _reach_unix(path))
    settings = examination.settings
    alpn = "http/1.1" if examination.scheme == "wss" else settings.get("tls_alpn", "")

    def shake_hands(host: str, port: int) -> bool:
        return examination.step("tls", lambda: _tls(host, port, alpn, settings))

    # With a client certificate the handshake is part of the next step: ssl needs the certificate in
    # a file.
    separately = examination.scheme in ("mqtts", "wss") and "tls_cert" not in settings
    return examination.reach(_PORTS[examination.scheme], shake_hands if separately else None)


def _reach_unix(path: str) -> str:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(5)
        sock.connect(path)
        return f"{path} accepts connections"


def _tls(host: str, port: int, alpn: str, settings: dict[str, Any]) -> str:
    # The certificate is compared with tls_pin in the next step; nothing is sent in this one.
    context = tls_context(settings)
    if alpn:
        context.set_alpn_protocols([alpn])
    with (
        socket.create_connection((host, port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=settings.get("tls_server_name") or host) as sock,
    ):
        cipher = sock.cipher()
        certificate: dict[str, Any] = sock.getpeercert() or {}
        chosen = sock.selected_alpn_protocol()
        words = [
            str(sock.version()),
            cipher[0] if cipher else "",
            f"certificate until {certificate['notAfter']}" if certificate else "tls_pin is checked next",
            f"ALPN {chosen}" if chosen else "no ALPN",
        ]
        return ", ".join(words)


def _connack(client: blocking.MqttClient, options: dict[str, Any]) -> str:
    said = client.stats()
    return f"CONNACK for client {said['client_id']!r}, {_version(options)}"


def _version(options: dict[str, Any]) -> str:
    version = str(options.get("version", "5"))
    return "the newest version that the broker speaks" if version == "auto" else f"MQTT {version}"


def _limits(said: dict[str, Any]) -> str:
    words = [
        f"QoS up to {said['maximum_qos']}",
        f"{said['receive_maximum']} in flight",
        f"packets up to {said['maximum_packet_size']} bytes"
        if said["maximum_packet_size"]
        else "no packet size limit",
        f"{said['topic_alias_maximum']} topic aliases",
        "retained messages" if said["retain_available"] else "no retained messages",
        "shared subscriptions" if said["shared_subscription_available"] else "no shared subscriptions",
        "session resumed" if said["session_present"] else "new session",
    ]
    return ", ".join(words)


def _round_trip(client: blocking.MqttClient) -> str:
    topic = doctor.new_topic()
    payloads = [b"%d" % number for number in range(doctor.MESSAGES)]
    with client.consumer(topic) as consumer, client.producer(topic) as producer:

        def received() -> Iterator[bytes]:
            for _ in payloads:
                message = consumer.receive(timeout=10)
                consumer.ack(message)
                yield message.data

        took = doctor.round_trip(payloads, producer.send, received)
    return f"{len(payloads)} messages published and received; QoS 1 takes {took:.2f} ms (median)"
