"""A port where something else listens: the error says what, and what to write instead."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Iterator

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


async def refused(url: str) -> str:
    """The error of a client that is opened, and made to talk."""
    # A master of TubeMQ that closes connections may be starting: it is asked until the time
    # is over.
    timeout = 5 if url.startswith("tubemq") else PATIENCE

    async def open() -> None:
        async with forebay.connect(url, connect_timeout=timeout) as client:
            await client.producer("t")

    with pytest.raises(errors.Error) as raised:
        await asyncio.wait_for(open(), PATIENCE)
    return str(raised.value)


@pytest.mark.parametrize("scheme", CLIENTS)
async def test_the_client_says_what_listens_there(ports: dict[str, int], scheme: str) -> None:
    addresses = {server: f"127.0.0.1:{ports[server]}" for server in CLIENTS[scheme]}
    told = await asyncio.gather(*[refused(f"{scheme}://{address}") for address in addresses.values()])
    for (server, address), text in zip(addresses.items(), told, strict=True):
        assert CLIENTS[scheme][server].format(address) in text


async def test_a_port_of_tls_is_told_from_a_server_that_is_away() -> None:
    """A real server of TLS, which answers with an alert or closes."""
    with listening(*Authority().leaf()) as server:
        address = f"127.0.0.1:{server.port}"
        schemes = ("pulsar", "mqtt", "tubemq")
        for text in await asyncio.gather(*[refused(f"{scheme}://{address}") for scheme in schemes]):
            assert re.search(f"{address} (speaks TLS|did not answer)", text)


@pytest.mark.parametrize("listener", ["pulsar", "mqtt", "tubemq"])
async def test_the_broker_says_who_came(
    ports: dict[str, int], caplog: pytest.LogCaptureFixture, listener: str
) -> None:
    speakers = {"pulsar": "Pulsar", "mqtt": "MQTT", "tubemq": "TubeMQ", "http": "HTTP", "pulsar+ssl": "TLS"}
    del speakers[listener]
    caplog.set_level(logging.INFO, "forebay")
    await asyncio.gather(*[refused(f"{speaker}://127.0.0.1:{ports[listener]}") for speaker in speakers])
    for name in speakers.values():
        await until(lambda name=name: f"the peer speaks {name}, not {listener}" in caplog.text)
