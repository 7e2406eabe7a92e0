"""``forebay broker``: secrets on its command line, mistakes in its options, systemd, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import refused, run
from support.mqtt import wire as mqtt
from support.scripts import free_port
from support.service import BrokerProcess
from support.tubemq import wire as tubemq

COMMAND = [sys.executable, "-m", "forebay", "broker"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--token-key", "0123456789abcdef0123456789abcdef"], "--token-key"),
        (["-X", "token_key=0123456789abcdef0123456789abcdef"], "--token-key"),
        (["-X", "tls_key=-----BEGIN PRIVATE KEY-----\n0123456789abcdef"], "--tls-key"),
    ],
)
def test_a_key_on_the_command_line_is_refused(words: list[str], named: str) -> None:
    said = refused("broker", "--port", "0", *words)
    assert f"{named} does not take the key itself" in said and "file:PATH or env:NAME" in said
    assert "0123456789abcdef" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "x"], "--port: expected a whole number"),
        (["--config", "/nope"], "cannot read the configuration /nope"),
        (["-X", "retntion=1h"], "did you mean 'retention'?"),
        (["--port", "0", "--topic", "orders=many"], "--topic is NAME or NAME=PARTITIONS"),
        (["--backup", "x"], "unrecognized arguments: --backup"),
    ],
)
def test_wrong_options_end_with_2(words: list[str], said: str) -> None:
    assert said in refused("broker", *words)


def test_a_mistake_in_the_configuration_ends_with_2_and_names_its_line(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('port = 0\nretention = "soon"\n')
    assert f"{config}, line 2: option 'retention': expected" in refused("broker", "--config", str(config))


def test_a_port_in_use_is_no_wrong_usage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        refused("broker", "--port", str(other.getsockname()[1]), status=1)


def test_the_help_lists_the_exit_statuses() -> None:
    said = " ".join(run("broker", "--help").decode().split())
    assert "Exit status: 1 after an error, 2 for wrong usage" in said
    assert "3 after a failure of the store" in said


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / "rules.acl"
    rules.write_text("topic #\n")
    config = tmp_path / "broker.toml"
    config.write_text('port = 0\nacl_file = "rules.acl"\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with subprocess.Popen(
            [*COMMAND, "--config", config, "--quiet", "--log-level", "info"],
            stderr=subprocess.PIPE,
            text=True,
        ) as broker:
            assert systemd.recv(100) == b"READY=1"
            broker.send_signal(signal.SIGHUP)
            assert systemd.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert systemd.recv(100) == b"READY=1"
            broker.send_signal(signal.SIGTERM)
            assert systemd.recv(100) == b"STOPPING=1"
            assert broker.stderr
            # The file is one of the configuration's.
            assert "SIGHUP: permissions read again: 1 rules" in broker.stderr.read()
    assert broker.returncode == 0


def test_a_systemd_that_does_not_listen_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    with subprocess.Popen([*COMMAND, "--port", "0"], stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr
        assert "NOTIFY_SOCKET" in broker.stderr.readline()
        broker.send_signal(signal.SIGTERM)
        broker.stderr.read()
    assert broker.returncode == 0


def test_a_broker_that_is_told_to_stop_tells_its_clients(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("mqtt", "tubemq")}
    words = (word for name, port in ports.items() for word in (f"--{name}-port", str(port)))
    process = BrokerProcess(tmp_path / "data", *words)
    process.start()
    with mqtt.Raw(ports["mqtt"]) as one, tubemq.Raw(ports["tubemq"]) as other:
        one.connect("peer")
        other.call("producer_register", clientId="p", brokerCheckSum=-1, hostName="127.0.0.1")
        assert process.end(signal.SIGTERM) == 0
        assert one.closed()[-1]["reason"] == 0x8B
        assert other.closed() == []


def test_two_brokers_cannot_share_a_folder(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    try:
        second = refused("broker", "--data", str(process.data), "--port", "0", status=1)
        assert "is in use by another broker" in second
    finally:
        process.end()
