"""``penstock doctor`` with an MQTT URL: address, TLS, CONNECT, limits, and messages there and back."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from penstock import blocking
from penstock.commands.doctor import addresses, reach
from penstock.errors import Timeout

_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
Step = Callable[[str, Callable[[], str]], bool]


def examine(url: str, base: str, settings: dict[str, Any], wanted: dict[str, Any], step: Step) -> None:
    """One step after the other, up to the first that fails.

    Args:
        url: as given, with its query.
        base: without.
        settings: the client's options, resolved.
        wanted: the options as given, by scope.
        step: does one and notes how it went.
    """
    scheme = base.partition(":")[0]
    alpn = "http/1.1" if scheme == "wss" else settings.get("tls_alpn", "")
    if scheme == "mqtt+unix":
        path = base.partition("://")[2]
        if not step("address", lambda: _reach_unix(path)):
            return
    else:
        for host, port in addresses(base, _PORTS[scheme]):
            if not step("address", lambda host=host, port=port: reach(host, port)):
                return
            # With a certificate of ours the handshake is part of the next step: ssl would want it in a file.
            shakes = scheme in ("mqtts", "wss") and "tls_cert" not in settings
            if shakes and not step("tls", lambda host=host, port=port: _tls(host, port, alpn, settings)):
                return
    _talk(url, wanted, step)


def _reach_unix(path: str) -> str:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(5)
        sock.connect(path)
        return f"{path} is listened to"


def _tls(host: str, port: int, alpn: str, settings: dict[str, Any]) -> str:
    authorities: bytes | None = settings.get("tls_ca")
    context = ssl.create_default_context(cadata=authorities.decode() if authorities else None)
    if settings.get("tls_skip_hostname_check"):
        context.check_hostname = False
    if alpn:
        context.set_alpn_protocols([alpn])
    with (
        socket.create_connection((host, port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=host) as sock,
    ):
        cipher = sock.cipher()
        certificate: dict[str, Any] = sock.getpeercert() or {}
        chosen = sock.selected_alpn_protocol()
        words = [
            str(sock.version()),
            cipher[0] if cipher else "",
            f"certificate until {certificate.get('notAfter')}",
            f"ALPN {chosen}" if chosen else "no ALPN",
        ]
        return ", ".join(words)


def _talk(url: str, wanted: dict[str, Any], step: Step) -> None:
    client: blocking.Client | None = None

    def connect() -> str:
        nonlocal client
        limits: dict[str, Any] = {"connect_timeout": 5, "operation_timeout": 10, **wanted["client"]}
        client = blocking.connect(url, **limits)
        said = client.stats()
        return f"CONNACK for client {said['client_id']!r}, {_version(limits)}"

    if not step("connect", connect) or client is None:
        return
    with client:
        connected = client
        if step("limits", lambda: _limits(connected.stats())):
            step("round trip", lambda: _round_trip(connected))


def _version(options: dict[str, Any]) -> str:
    version = str(options.get("version", "5"))
    return "the newest version it speaks" if version == "auto" else f"MQTT {version}"


def _limits(said: dict[str, Any]) -> str:
    words = [
        f"QoS up to {said['maximum_qos']}",
        f"{said['receive_maximum']} in flight",
        f"packets up to {said['maximum_packet_size']} bytes" if said["maximum_packet_size"] else "any packet",
        f"{said['topic_alias_maximum']} topic aliases",
        "retained messages" if said["retain_available"] else "no retained messages",
        "shared subscriptions" if said["shared_subscription_available"] else "no shared subscriptions",
        "session taken up" if said["session_present"] else "new session",
    ]
    return ", ".join(words)


def _round_trip(client: blocking.Client) -> str:
    topic = f"penstock-doctor-{time.time_ns():x}"
    with client.consumer(topic) as consumer, client.producer(topic) as producer:
        times: list[float] = []
        for number in range(10):
            started = time.perf_counter()
            producer.send(b"%d" % number)
            times.append(time.perf_counter() - started)
        received: list[bytes] = []
        for _ in times:
            message = consumer.receive(timeout=10)
            consumer.ack(message)
            received.append(message.data)
    if received != [b"%d" % number for number in range(10)]:
        raise Timeout("messages came back in another order")
    times.sort()
    return f"10 messages published and received; QoS 1 takes {times[5] * 1000:.2f} ms (median)"
