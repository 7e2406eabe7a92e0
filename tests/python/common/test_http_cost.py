"""What hostile requests over HTTP cost the embedded broker: processor time and memory follow their bytes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.tokens import KEY, token
from support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the figures are those of /proc")

COMMAND = [sys.executable, "-m", "forebay", "broker", "--port", "0", "--http-port", "0", "--json"]
UNIT = 64 << 10
#: CPU time for each 64 KiB, as in tests/rust/broker/hostile/cost/rule.rs, beside other programs.
SECONDS = 0.05 * 3
#: Growth of the resident set: the room of all bodies is 32 MiB, and buffers of connections come to
#: it.
MEMORY = 128 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


class Process:
    """``forebay broker`` with HTTP that asks for tokens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        self._pid = process.pid
        url: str = json.loads(process.stdout.readline())["http_url"]
        self._port = int(url.rpartition(":")[2])

    def cpu(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * PAGE

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)

    def hear(self, data: bytes) -> None:
        """Sends bytes, on another connection whenever the broker ends one, and takes its answers."""
        while data:
            with self.connect() as stream, contextlib.suppress(ConnectionError):
                # A piece at a time, so that the broker does not end the connection far behind.
                while piece := data[: UNIT // 4]:
                    stream.sendall(piece)
                    data = data[len(piece) :]
                    stream.settimeout(0.001)
                    with contextlib.suppress(TimeoutError):
                        while stream.recv(UNIT):
                            pass
                        break
                    stream.settimeout(PATIENCE)
                else:
                    stream.shutdown(socket.SHUT_WR)
                    while stream.recv(UNIT):
                        pass

    def is_healthy(self) -> bool:
        with self.connect() as stream:
            stream.sendall(request("/healthz", headers="Connection: close\r\n"))
            return stream.recv(12) == b"HTTP/1.1 200"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    key = tmp_path_factory.mktemp("http") / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    words = ["--token-key", f"file:{key}", "--log-level", "error"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Process(process)
        finally:
            process.terminate()


def request(path: str = "/metrics", method: str = "GET", headers: str = "", host: str = "127.0.0.1") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode()


AUTHORIZED = f"Authorization: Bearer {token('ops')}\r\n"


def chunked(size: int) -> bytes:
    """With a valid token: others are refused before their bodies are read."""
    path = "/admin/v2/schemas/public/default/t/schema"
    head = request(path, "POST", f"{AUTHORIZED}Transfer-Encoding: chunked\r\n")
    return head + b"1\r\nx\r\n" * (size // 6) + b"0\r\n\r\n"


FORMS: dict[str, Callable[[int], bytes]] = {
    "no token": lambda size: request() * (size // len(request())),
    "wrong tokens": lambda size: request(headers="Authorization: Bearer a.b.c\r\n") * (size // 70),
    "long tokens": lambda size: request(headers=f"Authorization: Bearer {'a' * 9_000}\r\n") * (size // 9_000),
    "another host": lambda size: request(host="evil.example") * (size // 50),
    "another site": lambda size: (
        request(method="POST", headers="Origin: http://evil.example\r\n") * (size // 80)
    ),
    "tricks in paths": lambda size: request("/admin/v2/%2e%2e/%00/..//" + "%2f" * 300) * (size // 970),
    "long paths": lambda size: request("/" + "x" * 20_000) * max(1, size // 20_000),
    "many headers": lambda size: request(headers="X: x\r\n" * 63) * max(1, size // 420),
    "a head that does not end": lambda size: request()[:-2] + b"X: " + b"x" * size,
    "the beginning of another protocol": lambda size: b"\0\0\0\x10\0\0\0\x0c" * (size // 8),
    "bodies for health checks": lambda size: (
        request("/healthz", "POST", f"Content-Length: {size}\r\n") + b"x" * size
    ),
    "a body in chunks of a byte": chunked,
}


@pytest.mark.parametrize("size", [20_000, 2_000_000])
@pytest.mark.parametrize("form", FORMS)
def test_time_follows_the_bytes(broker: Process, form: str, size: int) -> None:
    data = FORMS[form](size)
    before = broker.cpu()
    broker.hear(data)
    assert broker.cpu() - before <= SECONDS * (1 + len(data) // UNIT)
    assert broker.is_healthy()


def test_requests_that_are_not_finished_hold_little(broker: Process) -> None:
    """Two hundred connections, each with a body of 2 MiB but for a byte: of strangers, and with a token."""
    before = broker.resident()
    path = "/admin/v2/schemas/public/default/t/schema"
    with contextlib.ExitStack() as streams:
        for who in ("", AUTHORIZED) * 100:
            stream = streams.enter_context(broker.connect())
            with contextlib.suppress(ConnectionError):
                stream.sendall(request(path, "POST", f"{who}Content-Length: {2 << 20}\r\n"))
                stream.sendall(b"x" * ((2 << 20) - 1))
        assert broker.resident() - before < MEMORY
    assert broker.is_healthy()
