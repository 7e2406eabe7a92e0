"""A port where something else listens: the error says what, and what to write instead."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import errors

from support.accepting import Acceptor
from support.certificates import Authority, listening
from support.waiting import PATIENCE, until

ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
"""What OpenSSL answers to bytes that are not TLS: the alert protocol_version."""
ANSWERS = {
    "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "tls": ALERT,
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
}
BROKER = ("pulsar", "mqtt", "tubemq")
CLIENTS: dict[str, dict[str, str]] = {
    "pulsar": {
        "http": "{0} speaks HTTP, not Pulsar: for lookups over HTTP use http://{0}",
        "tls": "{0} speaks TLS, not Pulsar: use pulsar+ssl://{0}",
        "ssh": "{0} speaks SSH, not Pulsar",
        "nothing": "{0} did not answer: the peer closed the connection. Does it speak Pulsar?",
        "mqtt": "{0} did not answer: the peer closed the connection. Does it speak Pulsar?",
        "tubemq": "{0} did not answer: the peer closed the connection. Does it speak Pulsar?",
    },
    "mqtt": {
        "http": "{0} speaks HTTP, not MQTT: for MQTT over WebSocket use ws://{0}",
        "tls": "{0} speaks TLS, not MQTT: use mqtts://{0}",
        "ssh": "{0} speaks SSH, not MQTT",
        "nothing": "{0} did not answer: the peer closed the connection. Does it speak MQTT?",
        "pulsar": "{0} did not answer: the peer closed the connection. Does it speak MQTT?",
        "tubemq": "{0} did not answer: the peer closed the connection. Does it speak MQTT?",
    },
    "tubemq": {
        "http": "{0} speaks HTTP, not TubeMQ",
        "tls": "{0} speaks TLS, not TubeMQ: use tubemq+ssl://{0}",
        "ssh": "{0} speaks SSH, not TubeMQ",
        "nothing": "{0} did not answer: the peer closed the connection. Does it speak TubeMQ?",
        "pulsar": "{0} did not answer: the peer closed the connection. Does it speak TubeMQ?",
        "mqtt": "{0} did not answer: the peer closed the connection. Does it speak TubeMQ?",
    },
    "http": {
        "tls": "the request over HTTP to {0} failed: invalid HTTP version parsed. The answer is not HTTP",
        "ssh": "The answer is not HTTP: a port of TLS needs https://",
        "nothing": "connection closed before message completed. Does it speak HTTP?",
        "pulsar": "connection closed before message completed. Does it speak HTTP?",
    },
    "ws": {
        "http": "400 Bad Request",
        "tls": "The answer is not HTTP: a port of TLS needs wss://, and one of bare MQTT mqtt://",
        "nothing": "Does it speak WebSocket at this port?",
        "mqtt": "Does it speak WebSocket at this port?",
    },
    "pulsar+ssl": {
        "http": "Its answer is not TLS: use the port that has TLS, or a URL without it",
        "nothing": "Does this port have TLS?",
        "pulsar": "Does this port have TLS?",
    },
    "mqtts": {"http": "Its answer is not TLS", "mqtt": "Does this port have TLS?"},
    "https": {"http": "Its answer is not TLS", "pulsar": "Does this port have TLS?"},
    "wss": {"http": "Its answer is not TLS", "mqtt": "Does this port have TLS?"},
}
"""What a client of each scheme is told by a server that answers so, or that is the embedded broker's."""


def answering(answer: bytes) -> Acceptor:
    """A server that gives an answer once it has been spoken to, and closes the connection."""

    def serve(connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        with connection:
            connection.recv(4096)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    return Acceptor(serve)


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    servers = {name: answering(answer) for name, answer in ANSWERS.items()}
    with forebay.Broker(durability="memory", mqtt_port=0, tubemq_port=0) as broker:
        urls = {"pulsar": broker.url, "mqtt": broker.mqtt_url, "tubemq": broker.tubemq_url}
        yield {name: server.port for name, server in servers.items()} | {
            name: int(url.rpartition(":")[2]) for name, url in urls.items()
        }
    for server in servers.values():
        server.close()


async def open(url: str) -> None:
    """Opens a client, and what makes it talk."""
    options: dict[str, Any] = {"connect_timeout": PATIENCE, "max_backoff": 0.1}
    if url.startswith("tubemq"):
        options["operation_timeout"] = 1
    async with forebay.connect(url, **options) as client:
        if not url.startswith(("mqtt", "ws")):
            await client.producer("t")


@pytest.mark.parametrize(
    ("scheme", "server"), [(scheme, server) for scheme, servers in CLIENTS.items() for server in servers]
)
async def test_the_client_says_what_listens_there(ports: dict[str, int], scheme: str, server: str) -> None:
    address = f"127.0.0.1:{ports[server]}"
    with pytest.raises(errors.Error) as raised:
        await asyncio.wait_for(open(f"{scheme}://{address}"), PATIENCE)
    assert CLIENTS[scheme][server].format(address) in str(raised.value)


async def test_a_port_of_tls_is_told_from_a_server_that_is_away() -> None:
    """A real server of TLS, which answers with an alert or closes."""
    with listening(*Authority().leaf()) as server:
        for scheme in ("pulsar", "mqtt", "tubemq"):
            address = f"127.0.0.1:{server.port}"
            with pytest.raises(errors.Error, match=f"{address} (speaks TLS|did not answer)"):
                await asyncio.wait_for(open(f"{scheme}://{address}"), PATIENCE)


@pytest.mark.parametrize("listener", BROKER)
@pytest.mark.parametrize("speaker", ["pulsar", "mqtt", "tubemq", "http", "pulsar+ssl"])
async def test_the_broker_says_who_came(
    ports: dict[str, int], caplog: pytest.LogCaptureFixture, listener: str, speaker: str
) -> None:
    if speaker == listener:
        return
    says = {"pulsar": "Pulsar", "mqtt": "MQTT", "tubemq": "TubeMQ", "http": "HTTP", "pulsar+ssl": "TLS"}
    caplog.set_level(logging.INFO, "forebay")
    with pytest.raises(errors.Error):
        await asyncio.wait_for(open(f"{speaker}://127.0.0.1:{ports[listener]}"), PATIENCE)
    await until(lambda: f"the peer speaks {says[speaker]}, not {listener}" in caplog.text)
