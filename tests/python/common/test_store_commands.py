"""``forebay backup``, ``restore``, ``check`` and ``compact``: stores of the embedded broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forebay import Broker, blocking

from support.waiting import PATIENCE


def forebay(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a store with one message, and room where others were."""
    folder = tmp_path / "data"
    with Broker(data=folder) as broker, blocking.connect(broker.url) as client:
        with client.producer("large") as producer:
            producer.send_many([bytes(100_000)] * 20)
        broker.delete_topic("large")
        with client.producer("orders") as producer:
            producer.send(b"kept")
    return folder


def messages(folder: Path) -> list[bytes]:
    with Broker(data=folder) as broker, blocking.connect(broker.url) as client:
        with client.reader("orders", position="earliest") as reader:
            return [bytes(message.data) for message in reader.receive_many(10, timeout=PATIENCE)]


def test_a_running_broker_is_backed_up_and_the_backup_restored(data: Path, tmp_path: Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored"
    with Broker(data=data):
        done = forebay("backup", copy, "--data", data)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"the store in {data} has been copied to {copy}, ")
        again = forebay("backup", copy, "--data", data)
        assert again.returncode == 1
        assert "exists" in again.stderr
        in_use = forebay("compact", "--data", data)
        assert in_use.returncode == 1
        assert "is in use by another broker" in in_use.stderr
    done = forebay("restore", copy, "--data", restored)
    assert done.stdout == f"1 messages or batches are in the store in {restored}\n"
    assert messages(restored) == [b"kept"]
    again = forebay("restore", copy, "--data", restored)
    assert again.returncode == 1
    assert "has a store: name an empty folder" in again.stderr


def test_a_damaged_backup_is_not_restored(data: Path, tmp_path: Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored"
    assert forebay("backup", copy, "--data", data).returncode == 0
    whole = copy.read_bytes()
    assert whole.count(b"kept") == 1
    copy.write_bytes(whole.replace(b"kept", b"lost"))
    done = forebay("restore", copy, "--data", restored)
    assert done.returncode == 1
    assert "is damaged in 1 places: pulsar persistent://public/default/orders: " in done.stderr
    copy.write_bytes(whole)
    assert forebay("restore", copy, "--data", restored).returncode == 0


def test_a_store_is_compacted(data: Path) -> None:
    done = forebay("compact", "--data", data, "--json")
    said = json.loads(done.stdout)
    assert said["before_bytes"] > 2_000_000
    assert said["after_bytes"] < 200_000
    assert (data / "broker.db").stat().st_size == said["after_bytes"]
    done = forebay("compact", "--data", data)
    assert done.stdout.startswith(f"the store in {data} has ")
    assert messages(data) == [b"kept"]
    done = forebay("check", "--data", data, "--json")
    assert json.loads(done.stdout) == {"entries": 1, "damage": []}


@pytest.mark.parametrize("words", [["check"], ["compact"], ["backup", "x"], ["restore", "x"]])
def test_the_folder_of_the_store_is_needed(words: list[str], tmp_path: Path) -> None:
    done = forebay(*words)
    assert done.returncode == 2
    assert f"`forebay {words[0]}` is for the store in a folder: name it with --data DIR" in done.stderr
    missing = tmp_path / "missing"
    assert forebay(*words, "--data", missing).returncode == 1
    assert not missing.exists()


def test_the_folder_may_come_from_where_the_broker_has_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('data = "data"\n')
    said = {"entries": 1, "damage": []}
    assert json.loads(forebay("check", "--config", config, "--json").stdout) == said
    monkeypatch.setenv("FOREBAY_BROKER_DATA", str(data))
    assert json.loads(forebay("check", "--json").stdout) == said
    monkeypatch.setenv("FOREBAY_BROKER_DATA", str(tmp_path / "missing"))
    assert forebay("check").returncode == 1
    assert json.loads(forebay("check", "--data", data, "--json").stdout) == said


def test_a_backup_tells_its_size(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    said = json.loads(forebay("backup", copy, "--data", data, "--json").stdout)
    assert said == {"file": str(copy), "bytes": copy.stat().st_size}
    done = forebay("backup", tmp_path / "quiet.db", "--data", data, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
