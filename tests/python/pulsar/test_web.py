"""The commands' client of a web service: hostile and slow servers, redirects, credentials, TLS."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import cli, errors
from forebay.commands._shared import web
from forebay.commands._shared.web import Web
from forebay.commands.pulsar import peeked
from forebay.commands.pulsar.administration import Administration

from support.accepting import Acceptor
from support.certificates import Certificates
from support.commands import Commands

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
Play = Callable[[socket.socket, bytes], None]


def request(connection: socket.socket) -> bytes:
    """The request of a client, with its body, which may come in a packet of its own."""
    heard = b""
    while True:
        head, end, body = heard.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if end and len(body) >= (int(length[1]) if length else 0):
            return heard
        part = connection.recv(65536)
        if not part:
            return heard
        heard += part


class Server:
    """Plays a script to each connection, after its request."""

    def __init__(self, *plays: bytes | Play) -> None:
        self.plays = list(plays)
        self.heard: list[bytes] = []
        self._acceptor = Acceptor(self._take)
        self.url = f"http://127.0.0.1:{self._acceptor.port}"

    def _take(self, connection: socket.socket) -> None:
        threading.Thread(target=self._play, args=(connection,), daemon=True).start()

    def _play(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = request(connection)
            self.heard.append(head)
            play = self.plays[min(len(self.heard), len(self.plays)) - 1]
            if callable(play):
                play(connection, head)
            else:
                connection.sendall(play)

    def close(self) -> None:
        self._acceptor.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*plays: bytes | Play) -> Server:
        servers.append(Server(*plays))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def drip(data: bytes) -> Play:
    """Sends a byte each 50 ms."""

    def play(connection: socket.socket, _: bytes) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    return play


def silent(connection: socket.socket, _: bytes) -> None:
    connection.recv(1)


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(silent, id="silent"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + b"A: b\r\n" * 99), id="head"),
        pytest.param(drip(answer(200, b"[" + b" " * 999 + b"]")), id="body"),
        pytest.param(drip(b"HTTP/1.0 200 OK\r\n\r\n[" + b" " * 999 + b"]"), id="body without a length"),
        pytest.param(
            drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 200), id="chunks"
        ),
    ],
)
def test_a_slow_server_has_so_much_time_and_no_more(serve: Callable[..., Server], play: Play) -> None:
    asked = Web(serve(play).url, {"operation_timeout": 0.6})
    started = time.monotonic()
    with pytest.raises(
        errors.Timeout, match=r"GET http://127.*/admin: no complete answer within 0.6 seconds"
    ):
        asked.ask("GET", ["admin"])
    assert 0.5 < time.monotonic() - started < 20


@pytest.mark.parametrize(
    "play",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"\0" * 70_000,
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[]",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n[]",
    ],
)
def test_what_is_no_answer_is_an_error(serve: Callable[..., Server], play: bytes) -> None:
    with pytest.raises((errors.ProtocolError, errors.Disconnected), match="GET http://127"):
        Web(serve(play).url, {}).ask("GET", ["admin"])


def test_an_answer_has_a_limit(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ANSWER_LIMIT", 100_000)
    server = serve(answer(200, b"x" * 100_000), answer(200, b"x" * 100_001))
    assert len(Web(server.url, {}).ask("GET", ["a"]).body) == 100_000
    with pytest.raises(errors.ProtocolError, match="is not read"):
        Web(server.url, {}).ask("GET", ["a"])


@pytest.mark.parametrize("body", [b"<html>", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_an_error(serve: Callable[..., Server], body: bytes) -> None:
    with pytest.raises(errors.ProtocolError, match="is this the web service of a broker"):
        Administration(Web(serve(answer(200, body)).url, {})).clusters()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidArgument),
        (401, errors.AuthenticationError),
        (403, errors.AuthorizationError),
        (404, errors.TopicNotFound),
        (412, errors.NotAllowed),
        (418, errors.UnknownError),
        (429, errors.TooManyRequests),
        (500, errors.UnknownError),
        (503, errors.ServiceNotReady),
    ],
)
def test_a_refusal_has_the_url_and_the_words_of_the_broker(
    serve: Callable[..., Server], status: int, kind: type[errors.Error]
) -> None:
    server = serve(answer(status, json.dumps({"reason": "no \x1b[31m way"}).encode()))
    with pytest.raises(kind) as caught:
        Administration(Web(server.url, {})).stats("a/b/c d")
    said = str(caught.value)
    assert f"GET {server.url}/admin/v2/persistent/a/b/c%20d/partitions: HTTP {status}" in said
    assert "'no  [31m way'" in said


def test_redirects_are_followed_with_the_credentials_and_the_body(serve: Callable[..., Server]) -> None:
    other = serve(OK)
    first = serve(answer(307, b"", f"Location: {other.url}/else?where=1"))
    asked = Web(first.url, {"token": "secret"})
    assert asked.ask("PUT", ["a"], 3).url == f"{other.url}/else?where=1"
    head = other.heard[0].decode()
    assert head.startswith("PUT /else?where=1 HTTP/1.1\r\n")
    assert "Authorization: Bearer secret\r\n" in head
    assert head.endswith("\r\n\r\n3")


def test_redirects_that_lead_nowhere_are_errors(serve: Callable[..., Server]) -> None:
    def loop(connection: socket.socket, _: bytes) -> None:
        connection.sendall(answer(307, b"", "Location: /again"))

    endless = serve(loop)
    with pytest.raises(errors.ProtocolError, match="redirected 20 times"):
        Web(endless.url, {}).ask("GET", ["a"])
    assert len(endless.heard) == 21
    with pytest.raises(errors.ProtocolError, match="does not say where"):
        Web(serve(answer(307)).url, {}).ask("GET", ["a"])
    with pytest.raises(errors.ProtocolError, match="not HTTP"):
        Web(serve(answer(307, b"", "Location: file:///etc/passwd")).url, {}).ask("GET", ["a"])
    with pytest.raises(errors.ProtocolError, match="from https to http"):
        web._redirected("https://a/b", "http://a/b")


def test_the_first_host_that_can_be_reached_answers(serve: Callable[..., Server]) -> None:
    server = serve(OK, b"")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"http://127.0.0.1:{port},{server.url.removeprefix('http://')}"
    assert Web(url, {}).ask("GET", ["a"]).body == b"[]"
    with pytest.raises(errors.ConnectFailed, match=f"cannot connect to 127.0.0.1 port {port}"):
        Web(f"http://127.0.0.1:{port}", {}).ask("GET", ["a"])
    # A request that was sent is not sent to another host.
    with pytest.raises((errors.Disconnected, errors.ProtocolError)):
        Web(f"{server.url},{server.url.removeprefix('http://')}", {}).ask("POST", ["a"])
    assert len(server.heard) == 2


@pytest.mark.parametrize("url", ["pulsar://h:6650", "h:8080", "", "http://h:8080/admin/v2", "mqtt://h"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"over HTTP|has no path"):
        Web(url, {})


def test_credentials(serve: Callable[..., Server], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(OK)

    def head(**options: Any) -> str:
        Web(server.url, options).ask("GET", ["a"])
        return server.heard[-1].decode()

    assert "Authorization" not in head()
    caplog.set_level(logging.DEBUG, "forebay")
    file = tmp_path / "token"
    file.write_text("one\n")
    asked = Web(server.url, {"token": f"file:{file}"})
    file.write_text("two\n")
    asked.ask("GET", ["a"])
    assert "Authorization: Bearer two\r\n" in server.heard[-1].decode()
    file.unlink()
    with pytest.raises(errors.AuthenticationError, match=r"cannot read .*token"):
        asked.ask("GET", ["a"])
    said = base64.b64encode(b"till:word").decode()
    assert f"Authorization: Basic {said}\r\n" in head(username="till", password="word")
    assert "Authorization: Bearer bytes\r\n" in head(token=lambda: b"bytes")
    with pytest.raises(errors.InvalidArgument, match="characters that a header"):
        head(token=lambda: "a\r\nB: c")
    assert "/a: 200, 2 bytes" in caplog.text
    assert "two" not in caplog.text


def test_tls(tmp_path: Path) -> None:
    files = Certificates()
    with forebay.Broker(http_port=0, tls_cert=files.server_crt, tls_key=files.server_key) as broker:
        url = str(broker.http_url)
        assert url.startswith("https://")

        def clusters(**options: Any) -> list[str]:
            return Administration(Web(url, options)).clusters()

        assert clusters(tls_ca=files.ca) == ["standalone"]
        bundle = "# Autorité\n".encode() + files.ca.read_bytes() + "\xe9".encode("latin-1")
        assert clusters(tls_ca=bundle) == ["standalone"]
        with pytest.raises(errors.InvalidArgument, match="'tls_ca': the certificates cannot be read"):
            clusters(tls_ca=b"-----BEGIN CERTIFICATE-----\n")
        with pytest.raises(errors.TlsError, match="certificate verify failed"):
            clusters()
        der = ssl.PEM_cert_to_DER_cert(files.server_crt.read_text())
        pin = hashlib.sha256(der).hexdigest()
        assert clusters(tls_pin=pin) == ["standalone"]
        with pytest.raises(errors.TlsError, match=f"the fingerprint {pin}, which tls_pin does not list"):
            clusters(tls_pin="0" * 64)
        with pytest.raises(errors.InvalidArgument, match="tls_pin excludes"):
            clusters(tls_pin=pin, tls_ca=files.ca)
        with pytest.raises(errors.InvalidArgument, match="needs tls_key"):
            clusters(tls_ca=files.ca, tls_cert=files.client_crt)
        pair = {"tls_cert": files.client_crt, "tls_key": files.client_key}
        assert clusters(tls_ca=files.ca, **pair) == ["standalone"]
    files.remove()


def test_a_client_certificate_is_presented() -> None:
    files = Certificates()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    context.load_cert_chain(files.server_crt, files.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    seen: list[Any] = []

    def play(connection: socket.socket, _: bytes) -> None:
        raise AssertionError

    server = Server(play)
    server._play = lambda connection: _secured(context, connection, seen)  # type: ignore[method-assign]
    url = server.url.replace("http", "https")
    options = {"tls_ca": files.ca, "tls_cert": files.client_crt, "tls_key": files.client_key}
    assert Web(url, options).ask("GET", ["a"]).body == b"[]"
    assert seen
    server.close()
    files.remove()


def _secured(context: ssl.SSLContext, connection: socket.socket, seen: list[Any]) -> None:
    with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
        seen.append(tls.getpeercert())
        tls.recv(65536)
        tls.sendall(OK)


def message(size: int, *fields: bytes, payload: bytes = b"") -> bytes:
    metadata = b"".join(fields) + b"\x18" + bytes([size])
    return len(metadata).to_bytes(4) + metadata + payload


BATCHES = [
    b"\0",
    b"\xff\xff\xff\xff",
    (2).to_bytes(4) + b"\x18\xff",
    message(9, payload=b"12345678"),
    message(0, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    message(0, b"\x0b"),
    message(0, b"\x0a\x02\x0a\x09"),
    b"\0\0\0\0" * 3,
]


@pytest.mark.parametrize("body", BATCHES)
def test_a_malformed_batch_is_an_error(serve: Callable[..., Server], body: bytes) -> None:
    headers = ("X-Pulsar-num-batch-message: 1", "X-Pulsar-Message-ID: 1:2")
    said = Web(serve(answer(200, body, *headers)).url, {}).ask("GET", ["a"])
    with pytest.raises(errors.ProtocolError, match="batch"):
        list(peeked.messages("t", said))


def test_headers_of_older_brokers(serve: Callable[..., Server]) -> None:
    headers = ("X-Pulsar-PROPERTY-a: b", "X-Pulsar-Message-ID: 1:2:3:4", "X-Pulsar-publish-time: soon")
    said = Web(serve(answer(200, b"x", *headers)).url, {}).ask("GET", ["a"])
    (found,) = peeked.messages("t-partition-3", said)
    assert (found.id, found.properties, found.publish_time) == ("(1,2,3,-1)", {"a": "b"}, None)


@pytest.mark.parametrize("value", ["", " ", 7, None, b"", b"\xff"])
@pytest.mark.parametrize("option", ["token", "password"])
def test_a_function_that_supplies_no_secret_is_named(
    serve: Callable[..., Server], option: str, value: Any
) -> None:
    server = serve(answer(200, b"{}"))
    options = {"username": "till", option: lambda: value}
    with pytest.raises(errors.AuthenticationError, match=f"the function for {option} "):
        Web(server.url, options).ask("GET", ["a"])
    assert server.heard == []


def test_a_token_of_the_embedded_broker(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    file = tmp_path / "token"
    with forebay.Broker(http_port=0, token_key=f"file:{key}") as broker:
        words = ["token", "create", "--key", f"file:{key}", "--subject", "till", "--output", str(file)]
        assert cli.main(words) == 0
        admin = Commands(str(broker.http_url), "admin")
        assert admin("tenant", "ls", "-X", f"token=file:{file}") == "public\n"
        assert admin.refused("tenant", "ls").startswith("forebay: authentication: GET http://")
        said = admin.refused("tenant", "ls", "-X", "token=nonsense")
        assert said.startswith("forebay: authentication: GET http://")
        assert "nonsense" not in said
