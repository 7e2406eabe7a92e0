"""``penstock broker``: what it does with stores that no broker serves, and what systemd hears of it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import blocking

from support.waiting import PATIENCE

COMMAND = [sys.executable, "-m", "penstock", "broker"]


def penstock_broker(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a store with one message, and room where others were."""
    folder = tmp_path / "data"
    with penstock.Broker(data=folder) as broker, blocking.connect(broker.url) as client:
        with client.producer("large") as producer:
            producer.send_many([bytes(100_000)] * 20)
        broker.delete_topic("large")
        with client.producer("orders") as producer:
            producer.send(b"kept")
    return folder


def messages(folder: Path) -> list[bytes]:
    with penstock.Broker(data=folder) as broker, blocking.connect(broker.url) as client:
        with client.reader("orders", position="earliest") as reader:
            return [bytes(message.data) for message in reader.receive_many(10, timeout=PATIENCE)]


def test_a_running_broker_is_backed_up_and_the_backup_restored(data: Path, tmp_path: Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored"
    with penstock.Broker(data=data):
        done = penstock_broker("--backup", copy, "--data", data)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        again = penstock_broker("--backup", copy, "--data", data)
        assert again.returncode == 1
        assert "exists" in again.stderr
        in_use = penstock_broker("--compact", "--data", data)
        assert in_use.returncode == 1
        assert "is in use by another broker" in in_use.stderr
    done = penstock_broker("--restore", copy, "--data", restored)
    assert done.stdout == f"1 messages or batches are in the store in {restored}\n"
    assert messages(restored) == [b"kept"]
    again = penstock_broker("--restore", copy, "--data", restored)
    assert again.returncode == 1
    assert "has a store: name an empty folder" in again.stderr


def test_a_damaged_backup_is_not_restored(data: Path, tmp_path: Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored"
    assert penstock_broker("--backup", copy, "--data", data).returncode == 0
    whole = copy.read_bytes()
    assert whole.count(b"kept") == 1
    copy.write_bytes(whole.replace(b"kept", b"lost"))
    done = penstock_broker("--restore", copy, "--data", restored)
    assert done.returncode == 1
    assert "is damaged in 1 places: pulsar persistent://public/default/orders: " in done.stderr
    copy.write_bytes(whole)
    assert penstock_broker("--restore", copy, "--data", restored).returncode == 0


def test_a_store_is_compacted(data: Path) -> None:
    done = penstock_broker("--compact", "--data", data, "--json")
    said = json.loads(done.stdout)
    assert said["before_bytes"] > 2_000_000
    assert said["after_bytes"] < 200_000
    assert (data / "broker.db").stat().st_size == said["after_bytes"]
    done = penstock_broker("--compact", "--data", data)
    assert done.stdout.startswith(f"the store in {data} has ")
    assert messages(data) == [b"kept"]
    done = penstock_broker("--check", "--data", data, "--json")
    assert json.loads(done.stdout) == {"entries": 1, "damage": []}


def test_a_key_on_the_command_line_is_refused() -> None:
    done = penstock_broker("--port", "0", "--token-key", "0123456789abcdef0123456789abcdef")
    assert done.returncode == 1
    assert "file:PATH or env:NAME" in done.stderr
    assert "0123456789abcdef" not in done.stderr


@pytest.mark.parametrize(
    "flags", [["--check"], ["--compact"], ["--backup", "x"], ["--backup", ""], ["--restore", "x"]]
)
def test_what_is_for_a_store_needs_its_folder(flags: list[str], tmp_path: Path) -> None:
    done = penstock_broker(*flags)
    assert done.returncode == 1
    assert f"{flags[0]} is for the store in a folder: name it with --data DIR" in done.stderr
    missing = tmp_path / "missing"
    assert penstock_broker(*flags, "--data", missing).returncode == 1
    assert not missing.exists()


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
