"""A proxy that records the packets between client and broker and cuts connections on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from support.accepting import Acceptor
from support.mqtt import wire


class Passage:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self._sockets = {"client": client, "broker": broker}
        #: Sender and packet, in the order in which they were seen. All were forwarded except a
        #: packet before which the connection was cut.
        self.packets: list[tuple[str, wire.Packet]] = []
        #: "client", "broker" or "proxy".
        self.closed_by: str | None = None
        self.done = threading.Event()

    def cut(self, by: str = "proxy") -> None:
        if self.closed_by is None:
            self.closed_by = by
        for one in self._sockets.values():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def pump(self, origin: str, verdict: Callable[[Passage, str, wire.Packet], str]) -> None:
        source = self._sockets[origin]
        target = self._sockets["broker" if origin == "client" else "client"]
        buffer = bytearray()
        try:
            while data := source.recv(65536):
                buffer += data
                while (one := wire.take(buffer)) is not None:
                    what = verdict(self, origin, one)
                    self.packets.append((origin, one))
                    if what != "cut before":
                        target.sendall(one.raw)
                    if what != "pass":
                        self.cut()
                        return
        except OSError:
            pass
        except wire.Malformed:
            # Not MQTT: forwarded and not recorded.
            with contextlib.suppress(OSError):
                target.sendall(buffer)
        finally:
            self.cut(origin)

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()
        self.done.set()


class Proxy:
    """Forwards packet by packet.

    ``verdict(passage, origin, packet)`` decides for each: "pass", "cut before" it is forwarded, or "cut
    after". It may be replaced at any time.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self.verdict: Callable[[Passage, str, wire.Packet], str] = lambda *_: "pass"
        self.passages: list[Passage] = []
        #: Whether new connections are accepted and closed at once.
        self.refuses = False
        self._acceptor = Acceptor(self._take)
        self.port = self._acceptor.port
        self.url = f"mqtt://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, client: socket.socket) -> None:
        try:
            if self.refuses:
                raise OSError
            broker = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            client.close()
            return
        for one in (client, broker):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        passage = Passage(client, broker)
        self.passages.append(passage)
        threading.Thread(target=self._run, args=(passage,), daemon=True).start()

    def _run(self, passage: Passage) -> None:
        def verdict(*arguments: Any) -> str:
            # One at a time: both directions of a connection share a count.
            with self._lock:
                return self.verdict(*arguments)

        other = threading.Thread(target=passage.pump, args=("broker", verdict), daemon=True)
        other.start()
        passage.pump("client", verdict)
        other.join()
        passage.close()

    def cut_at(self, number: int, *, before: bool) -> None:
        """Ends the connection once, at packet ``number`` from now on, counted from 0 in both directions
        together. After that everything passes."""
        seen = -1

        def verdict(passage: Passage, origin: str, one: wire.Packet) -> str:
            nonlocal seen
            seen += 1
            if seen == number:
                return "cut before" if before else "cut after"
            return "pass"

        self.verdict = verdict

    def cut(self) -> None:
        """Ends all current connections."""
        for passage in self.passages:
            passage.cut()

    @property
    def packets(self) -> list[tuple[str, wire.Packet]]:
        """The packets of all connections."""
        return [seen for passage in self.passages for seen in passage.packets]

    def close(self) -> None:
        self._acceptor.close()
        self.cut()
        for passage in self.passages:
            passage.done.wait(5)
