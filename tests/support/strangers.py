"""Strangers at every listener of a broker: they begin handshakes, frames and requests, and end none.

``strangers.py PORTS COUNT``, with the ports by listener as JSON, runs them until the end of standard input,
and prints a line when all of them are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import struct
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import forebay

from support.certificates import Certificates
from support.mqtt import wire as mqtt
from support.pulsar import wire as pulsar
from support.service import EmbeddedBroker
from support.tubemq import wire as tubemq
from support.waiting import PATIENCE


def client_hello() -> bytes:
    """The first bytes of a TLS handshake."""
    context = ssl.create_default_context()
    said = ssl.MemoryBIO()
    peer = context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        peer.do_handshake()
    return said.read()


@dataclass(frozen=True)
class Stranger:
    """Words of a stranger, those at once and those a byte at a time."""

    listener: str
    said: bytes
    slowly: bytes = b""


HTTP = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n"
)
HELLO = client_hello()
STRANGERS = [
    Stranger("tls", b""),
    Stranger("tls", HELLO[: len(HELLO) // 2]),
    Stranger("tls", HELLO),
    Stranger("pulsar", struct.pack(">II", 60_000, 100)),
    Stranger("pulsar", b"", pulsar.frame(pulsar.CONNECT, {1: "slow", 4: 19})),
    Stranger("mqtt", b"\x10" + mqtt.varint(60_000) + mqtt.binary("MQTT")),
    Stranger("mqtt", b"", mqtt.connect("slow" * 50)),
    Stranger("tubemq", struct.pack(">IIII", tubemq.TOKEN, 1, 8, 8192) + bytes(100)),
    Stranger("tubemq", b"", struct.pack(">IIII", tubemq.TOKEN, 1, 8, 8192) + bytes(100)),
    Stranger("http", HTTP),
    Stranger("http", b"", HTTP * 10),
    Stranger("mqtt_ws", UPGRADE),
    Stranger("mqtt_ws", UPGRADE + b"\r\n"),
    Stranger("mqtt_ws", b"", UPGRADE),
]


READING: dict[str, dict[str, Any]] = {
    "pulsar": {"subscription": "s"},
    "mqtt": {"qos": 1},
    "tubemq": {"subscription": "s", "position": "first", "poll_interval": 0.01},
}


class EveryListener(EmbeddedBroker):
    """The embedded broker with a listener of every kind."""

    def __init__(self) -> None:
        self._certificates = Certificates()
        tls = {
            "tls_cert": str(self._certificates.server_crt),
            "tls_key": str(self._certificates.server_key),
        }
        ports = dict.fromkeys(("port", "mqtt_port", "mqtt_ws_port", "tubemq_port", "http_port"), 0)
        super().__init__(durability="memory", listeners=[{"protocol": "mqtt", **tls}], **ports)
        urls: dict[str, str] = self.call("urls")
        #: For well-behaved clients.
        self.clients = {name: urls[name] for name in READING}
        *_, secure = self.call("all_urls")
        self.ports = {
            name: int(url.split("/")[2].rpartition(":")[2]) for name, url in (urls | {"tls": secure}).items()
        }

    def stop(self) -> None:
        super().stop()
        self._certificates.remove()


class Crowd:
    """As many strangers, each of which comes again whenever the broker has closed its connection.

    Args:
        ports: of the listeners, by their names.
        count: how many.
    """

    def __init__(self, ports: dict[str, int], count: int) -> None:
        self._ports, self._count = ports, count
        #: Connections so far, and those that are open.
        self.opened = self.open = 0

    async def _slowly(self, writer: asyncio.StreamWriter, said: bytes) -> None:
        for byte in said:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.2)

    async def _once(self, one: Stranger) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[one.listener])
        self.opened += 1
        self.open += 1
        slow = asyncio.ensure_future(self._slowly(writer, one.slowly))
        try:
            writer.write(one.said)
            while await reader.read(4096):
                pass
        finally:
            self.open -= 1
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            writer.transport.abort()

    async def _stay(self, one: Stranger) -> None:
        while True:
            with contextlib.suppress(OSError):
                await self._once(one)
            await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncGenerator[None]:
        """While they are there, all of them at the beginning."""
        kinds = itertools.islice(itertools.cycle(STRANGERS), self._count)
        tasks = [asyncio.create_task(self._stay(one)) for one in kinds]
        try:
            async with asyncio.timeout(PATIENCE):
                while self.opened < self._count:
                    await asyncio.sleep(0.02)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def round_trips(url: str, count: int) -> list[float]:
    """The seconds of messages of a well-behaved client, each of which is sent, received and acknowledged."""
    protocol = url.split(":")[0]
    took: list[float] = []
    async with forebay.connect(url, connect_timeout=PATIENCE) as client:
        # A broker of TubeMQ makes the topic for its first producer.
        async with client.producer("trips") as producer:
            await producer.send(b"first", **({"qos": 1} if protocol == "mqtt" else {}))
            async with client.consumer("trips", **READING[protocol]) as consumer:
                for number in range(count):
                    began = time.perf_counter()
                    await producer.send(b"%d" % number, **({"qos": 1} if protocol == "mqtt" else {}))
                    while (message := await consumer.receive(timeout=PATIENCE)).data != b"%d" % number:
                        await consumer.ack(message)
                    await consumer.ack(message)
                    took.append(time.perf_counter() - began)
    return took


async def main() -> None:
    async with Crowd(json.loads(sys.argv[1]), int(sys.argv[2])).there():
        print("there", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
