"""The log of ``forebay broker``: what is in it, as text and as JSON, and what is not."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay import blocking, cli, errors
from forebay.commands._shared import logs

from support.certificates import Authority
from support.waiting import PATIENCE

COMMAND = [sys.executable, "-m", "forebay", "broker", "--json", "--port", "0", "--mqtt-port", "0"]
PASSWORD = "a secret that no log has"


class Running:
    """A broker of its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout and process.stderr
        self.process, self._stderr = process, process.stderr
        self.urls: dict[str, str] = json.loads(process.stdout.readline())

    def record(self, **wanted: str) -> dict[str, Any]:
        """The next record in JSON that has these values; those before it are passed over."""
        while line := self._stderr.readline():
            found: dict[str, Any] = json.loads(line)
            if found.items() >= wanted.items():
                return found
        raise AssertionError(f"there is no record {wanted}")

    def line(self) -> str:
        return self._stderr.readline()

    def rest(self) -> str:
        """Ends the broker; the rest of its log."""
        self.process.send_signal(signal.SIGTERM)
        return self._stderr.read()


@contextlib.contextmanager
def started(*words: str) -> Iterator[Running]:
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Running(process)
        finally:
            process.terminate()


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users"
    assert cli.main(["passwd", str(path), "till", "-b", PASSWORD]) == 0
    return str(path)


def test_connections_are_told_with_who_from_where_and_why_they_ended(users: str) -> None:
    with started("--log-format", "json", "--mqtt-password-file", users) as broker:
        url = broker.urls["mqtt_url"]
        with blocking.connect(url, client_id="kitchen", username="till", password=PASSWORD):
            found = broker.record(event="connected")
            assert found["logger"] == "forebay.broker.connection"
            assert (found["level"], found["protocol"]) == ("info", "mqtt")
            assert (found["client"], found["user"]) == ("kitchen", "till")
            assert found["address"].startswith("127.0.0.1:")
        ended = broker.record(event="ended", client="kitchen")
        assert (ended["address"], ended["reason"]) == (found["address"], "the client has left")
        with pytest.raises(errors.AuthenticationError):
            blocking.connect(url, client_id="kitchen", username="till", password="wrong, and not in the log")
        refused = broker.record(event="refused")
        assert (refused["level"], refused["protocol"]) == ("warning", "mqtt") and refused["reason"]
        with blocking.connect(broker.urls["url"]) as client:
            assert broker.record(event="connected")["protocol"] == "pulsar"
            client.producer("t").close()
        rest = broker.rest()
    assert PASSWORD not in rest and "not in the log" not in rest


def test_the_kinds_of_the_token_keys_are_logged(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"a secret of more than 16 bytes")
    with started("--log-format", "json", "--token-key", f"file:{tmp_path / 'key'}") as broker:
        assert broker.record(event="token_keys")["algorithms"] == "HS256"


def test_a_name_cannot_look_like_a_record() -> None:
    with started() as broker:
        with blocking.connect(
            broker.urls["mqtt_url"], client_id='x"\n2026-01-01T00:00:00.000Z error  all is lost'
        ):
            line = broker.line()
        assert '"x\\"\\n2026' in line
        assert " info    broker.connection: mqtt 127.0.0.1:" in line


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_path_cannot_reach_the_terminal(form: str) -> None:
    """C1 controls, line ends beyond ASCII and marks that turn the direction of a line."""
    controls = "\u009b2J\u0085\u2028\u202e"
    with started("--http-port", "0", "--log-level", "debug", "--log-format", form) as broker:
        address = urllib.parse.urlsplit(broker.urls["http_url"])
        with socket.create_connection((address.hostname, address.port or 0), timeout=PATIENCE) as stranger:
            request = f"GET /{controls} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            stranger.sendall(request.encode())
            while stranger.recv(4096):
                pass
        rest = broker.rest()
    assert "GET " in rest
    assert not any(control in rest for control in controls if not control.isascii())


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_record_shows_letters_and_escapes_what_is_not_printable(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("forebay")
    before = logger.handlers[:], logs.BROKER.level
    hidden = "\x1b[2J\x7f\u009b\u0085\u2028\u202e\u2066\ufeff\n\U000e0041"
    try:
        logs.set_up(form, "info")
        logs.BROKER.warning("größe 東京 %s", hidden, extra={logs.FIELDS: {"path": f"/ñ{hidden}"}})
    finally:
        logger.handlers[:] = before[0]
        logs.BROKER.setLevel(before[1])
    line = capsys.readouterr().err.removesuffix("\n")
    assert line.isprintable()
    assert "größe 東京" in line
    if form == "json":
        assert json.loads(line)["path"] == f"/ñ{hidden}"


def test_those_who_only_knock_are_told(tmp_path: Path) -> None:
    with started("--log-format", "json") as broker:
        host, port = broker.urls["url"].removeprefix("pulsar://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(OSError):
                stranger.recv(100)
        found = broker.record(event="refused")
        assert found["protocol"] == "pulsar" and found["reason"]


@pytest.mark.parametrize("secure", [False, True])
def test_those_who_come_and_go_are_no_refusals(tmp_path: Path, *, secure: bool) -> None:
    """As health checks do, before the broker has let them in."""
    words = ["--mqtt-ws-port", "0", "--tubemq-port", "0", "--http-port", "0"]
    if secure:
        (chain, key), files = Authority().leaf(), [tmp_path / "server.crt", tmp_path / "server.key"]
        for file, data in zip(files, (chain, key), strict=True):
            file.write_bytes(data)
            file.chmod(0o600)
        words += ["--tls-cert", str(files[0]), "--tls-key", str(files[1])]
    with started("--log-format", "json", "--log-level", "debug", *words) as broker:
        for name in ("url", "mqtt_url", "mqtt_ws_url", "tubemq_url", "http_url"):
            address = urllib.parse.urlsplit(broker.urls[name])
            with socket.create_connection((address.hostname, address.port or 0), timeout=PATIENCE):
                pass
            if name != "http_url":
                assert broker.record(event="left")["level"] == "debug"
        assert "refused" not in broker.rest()


def test_a_client_whose_calls_are_not_admitted_is_refused_with_a_reason(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("mill:a secret\n")
    users.chmod(0o600)
    with started("--log-format", "json", "--tubemq-port", "0", "--tubemq-user-file", str(users)) as broker:
        with pytest.raises(errors.AuthenticationError), blocking.connect(broker.urls["tubemq_url"]) as client:
            client.producer("t").send(b"x")
        found = broker.record(event="refused")
        assert found["protocol"] == "tubemq" and "sign" in found["reason"]


def test_of_connections_beyond_a_limit_it_is_told_that_they_were_refused() -> None:
    with started("--log-format", "json", "-X", "max_connections=1") as broker:
        host, port = broker.urls["mqtt_url"].removeprefix("mqtt://").split(":")
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE),
            socket.create_connection((host, int(port)), timeout=PATIENCE) as stranger,
        ):
            assert stranger.recv(1) == b""
            found = broker.record(event="refused")
            assert (found["level"], found["protocol"]) == ("warning", "mqtt") and "limit" in found["reason"]


def test_requests_that_change_something_are_told_and_refusals(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    path = tmp_path / "token"
    assert (
        cli.main(["token", "create", "--subject", "ops", "--key", f"file:{key}", "--output", str(path)]) == 0
    )
    token = path.read_text().strip()
    with started("--log-format", "json", "--http-port", "0", "--token-key", f"file:{key}") as broker:

        def ask(method: str, path: str, **headers: str) -> int:
            request = urllib.request.Request(broker.urls["http_url"] + path, method=method, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        topic = "/admin/v2/persistent/public/default/orders"
        assert ask("GET", "/metrics", Authorization="Bearer wrong") == 401
        found = broker.record(event="request")
        assert (found["level"], found["path"], found["status"]) == ("warning", "/metrics", "401")
        assert ask("GET", "/metrics", Authorization=f"Bearer {token}") == 200
        assert ask("PUT", topic, Authorization=f"Bearer {token}") == 204
        # The one before it, which only reads, is not told at this level.
        found = broker.record(event="request")
        assert (found["level"], found["method"], found["path"]) == ("info", "PUT", topic)
        assert (found["user"], found["status"]) == ("ops", "204")
        assert token not in broker.rest()


def test_the_level_is_read_again(tmp_path: Path, users: str) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('log_level = "warning"\nlog_format = "json"\n')
    with started("--config", str(config), "--mqtt-password-file", users) as broker:
        url = broker.urls["mqtt_url"]
        with blocking.connect(url, client_id="first", username="till", password=PASSWORD):
            pass
        # Records come in order: with this one, the level has been applied to those of the first
        # client.
        with pytest.raises(errors.AuthenticationError):
            blocking.connect(url, client_id="first", username="till", password="wrong")
        assert broker.record()["event"] == "refused"
        config.write_text('log_level = "info"\nlog_format = "json"\n')
        broker.process.send_signal(signal.SIGHUP)
        assert broker.record(message="SIGHUP: the log is written from info on")
        # The engine looks at the levels of loggers again after a tenth of a second.
        time.sleep(0.2)
        with blocking.connect(url, client_id="second", username="till", password=PASSWORD):
            assert broker.record(event="connected")["client"] == "second"
        config.write_text('log_level = "loud"\n')
        broker.process.send_signal(signal.SIGHUP)
        assert "the level of the log stays" in broker.record(level="warning")["message"]


def test_a_level_that_does_not_exist_is_refused() -> None:
    done = subprocess.run(
        [*COMMAND, "--log-level", "loud"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode != 0
    assert "expected one of debug, info, warning, error" in done.stderr


def test_of_a_journal_the_level_is_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w+") as journal:
        found = tmp_path.joinpath("journal").stat()
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        with subprocess.Popen([*COMMAND], stdout=subprocess.PIPE, stderr=journal, text=True) as process:
            assert process.stdout and process.stdout.readline()
            process.terminate()
        journal.seek(0)
        assert journal.read() == "<6>broker: stopping\n"
