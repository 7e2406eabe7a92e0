"""``penstock doctor URL``: each step of a connection by itself, so that the first one that fails is named."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from penstock import blocking, options
from penstock.errors import Error, Timeout, Unsupported

from . import scopes


def run(given: argparse.Namespace) -> int:
    """Status 0 when every step worked."""
    url = given.address or given.url
    findings: list[dict[str, Any]] = []
    protocol = options.protocol_of(options.split_url(url)[0])
    if given.topic and protocol != "tubemq":
        raise Unsupported("-t is for TubeMQ, whose topics somebody has to make; others come into being")
    wanted = scopes(given.options, protocol)
    # A mistake in URL or options is no finding, but an error.
    base, settings, _ = options.for_connection(url, wanted["client"])

    def step(name: str, work: Callable[[], str]) -> bool:
        started = time.perf_counter()
        try:
            detail, ok = work(), True
        except (Error, OSError) as error:
            code = getattr(error, "code", type(error).__name__)
            detail, ok = f"{code}: {error}", False
        took = round((time.perf_counter() - started) * 1000, 2)
        findings.append({"step": name, "ok": ok, "ms": took, "detail": detail})
        if not given.json:
            print(f"{'ok    ' if ok else 'FAILED'} {name:<12} {took:>9.2f} ms  {detail}", flush=True)
        return ok

    step("installed", _versions)
    if protocol == "mqtt":
        from .mqtt import doctor

        doctor.examine(url, base, settings, wanted, step)
    elif protocol == "tubemq":
        from .tubemq import doctor as tubemq_doctor

        tubemq_doctor.examine(url, base, given.topic, wanted, step)
    elif base.startswith("embedded:") or all(
        step("address", lambda host=host, port=port: reach(host, port)) for host, port in _addresses(base)
    ):
        _talk(url, wanted, step)
    if given.json:
        print(json.dumps({"url": base, "ok": all(f["ok"] for f in findings), "findings": findings}))
    return 0 if all(finding["ok"] for finding in findings) else 1


def _versions() -> str:
    from penstock import __version__

    words = [f"penstock {__version__}", f"Python {sys.version.split()[0]}"]
    from importlib.metadata import PackageNotFoundError, version

    for name in ("pyarrow", "pyspark", "rich"):
        try:
            words.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            words.append(f"no {name}")
    return ", ".join(words)


def _addresses(base: str) -> list[tuple[str, int]]:
    return addresses(base, 6651 if base.startswith("pulsar+ssl:") else 6650)


def addresses(base: str, default: int) -> list[tuple[str, int]]:
    """Hosts and ports of a URL."""
    result: list[tuple[str, int]] = []
    for part in base.partition("://")[2].split("/")[0].split(","):
        host, colon, port = part.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = part, ""
        result.append((host.strip("[]"), int(port) if port.isdecimal() else default))
    return result


def reach(host: str, port: int) -> str:
    """Says that the port is open, or raises an ``OSError``."""
    with socket.create_connection((host, port), timeout=5) as sock:
        return f"{host} is {sock.getpeername()[0]}, port {port} is open"


def _talk(
    url: str, wanted: dict[str, dict[str, Any]], step: Callable[[str, Callable[[], str]], bool]
) -> None:
    client: blocking.Client | None = None

    def connect() -> str:
        nonlocal client
        limits: dict[str, Any] = {"connect_timeout": 5, "operation_timeout": 10, **wanted["client"]}
        client = blocking.connect(url, **limits)
        return "TLS, handshake and authentication" if "+ssl" in client.url else "handshake and authentication"

    if not step("connect", connect) or client is None:
        return
    with client:
        topic = f"penstock-doctor-{time.time_ns():x}"
        connected = client
        if step("topic", lambda: _create(connected, topic)):
            step("round trip", lambda: _round_trip(connected, topic))


def _create(client: blocking.Client, topic: str) -> str:
    with client.producer(topic) as producer:
        return f"{producer.topic} has come into being"


def _round_trip(client: blocking.Client, topic: str) -> str:
    with client.reader(topic, position="earliest") as reader, client.producer(topic) as producer:
        times: list[float] = []
        for number in range(10):
            started = time.perf_counter()
            producer.send(b"%d" % number)
            times.append(time.perf_counter() - started)
        received = [reader.receive(timeout=10).data for _ in times]
    if received != [b"%d" % number for number in range(10)]:
        raise Timeout("messages came back in another order")
    times.sort()
    return f"10 messages sent and read back; send takes {times[5] * 1000:.2f} ms (median)"
