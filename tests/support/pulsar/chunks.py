"""Single chunks of messages, as no client sends them."""

from __future__ import annotations

import socket
import time

from support.pulsar import wire
from support.pulsar.harness import PulsarService
from support.pulsar.wire import Peer, command, entry, frame, raw


class Chunks:
    """A producer that sends single chunks, in what order it likes."""

    def __init__(self, service: PulsarService, topic: str) -> None:
        host, port = service.url.removeprefix("pulsar://").split(",")[0].rsplit(":", 1)
        self.peer = Peer(socket.create_connection((host, int(port))))
        self._ask(frame(wire.CONNECT, {1: "chunks", 4: 19}), wire.CONNECTED)
        lookup = frame(wire.LOOKUP, {1: topic, 2: 1, 3: 0})
        self._ask(lookup, wire.LOOKUP_RESPONSE)
        self._ask(frame(wire.PRODUCER, {1: topic, 2: 1, 3: 2}), wire.PRODUCER_SUCCESS)
        self.sequence = 0

    def _ask(self, request: bytes, answer: int) -> None:
        self.peer.send(request)
        while (got := self.peer.read()) is not None:
            if got[0] == answer:
                return
            if got[0] == wire.PING:
                self.peer.send(frame(wire.PONG))
        raise AssertionError("the broker has closed the connection")

    def send(self, uuid: str, number: int, count: int, *, age: float = 0) -> None:
        """Sends chunk ``number`` of a message of ``count`` chunks of one byte each, ``age`` seconds old."""
        metadata = {
            1: "chunks",
            2: self.sequence,
            3: int((time.time() - age) * 1000),
            26: uuid,
            27: count,
            28: count,
            29: number,
        }
        body = command(wire.SEND, {1: 1, 2: self.sequence, 3: 1, 7: 1})
        self._ask(raw(body, rest=entry(b"%d" % number, metadata)), wire.SEND_RECEIPT)
        self.sequence += 1
