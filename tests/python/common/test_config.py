"""``penstock broker --config``: files of options, what wins over them, and how a mistake is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import _config
from penstock.broker import OPTIONS
from penstock.errors import InvalidArgument

LISTENERS = """
data = "store"
retention = "1h"
allow_anonymous = false

[[listener]]
protocol = "mqtt"
port = 0

[[listener]]
protocol = "http"
unix = "http.sock"
mode = "0660"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text)
    return path


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock", "broker", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environment})


def test_a_file_says_what_the_options_say(tmp_path: Path) -> None:
    path = written(tmp_path, LISTENERS)
    options = _config.read(path, OPTIONS)
    assert options["data"] == str(tmp_path / "store")
    assert options["listeners"][1]["unix"] == str(tmp_path / "http.sock")
    with penstock.Broker(path) as broker:
        assert list(broker.urls) == ["http", "mqtt"]
        assert "pulsar" not in broker.status()
        assert (tmp_path / "store" / "broker.db").exists()
        assert (tmp_path / "http.sock").stat().st_mode & 0o777 == 0o660
    with penstock.Broker(path, port=0, data=tmp_path / "other") as broker:
        assert broker.url.startswith("pulsar://"), "keywords win"
        assert (tmp_path / "other" / "broker.db").exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('data = "x"\nretntion = "1h"', ["line 2", "'retntion'; did you mean 'retention'?"]),
        ('\nretention = "soon"', ["line 2", "option 'retention': expected a duration"]),
        ('[[listener]]\nprotocol = "mqtt"\nprt = 1', ["line 3", "'prt'; did you mean 'port'?"]),
        ('[[listener]]\nprotocol = "mqtt"\n[[listener]]\nprotocol = "mqt"', ["line 4", "'mqtt'?"]),
        ('mqtt_port = 1\n[[listener]]\nport = 1\n', ["line 2", "needs a protocol"]),
        ('[[listener]]\nprotocol = "mqtt"\nunix = "a"\nport = 1', ["line 1", "has no port"]),
        ('[listener]\nprotocol = "mqtt"', ["line 1", "[[listener]]"]),
        ('[[listeners]]\nprotocol = "mqtt"', ["line 1", "[[listener]]"]),
        ('[mqtt]\nport = 1', ["line 1", "'mqtt'"]),
        ('data = = "x"', ["is not TOML", "line 1"]),
        ('tls_cert = "no.pem"', ["line 1", "cannot read", "no.pem"]),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgument) as raised:
        penstock.Broker(path)
    for part in [str(path), *parts]:
        assert part in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        penstock.Broker(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"data = '\xe9'")
    with pytest.raises(InvalidArgument, match="cannot read the configuration"):
        penstock.Broker(tmp_path / "latin.toml")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, error = process.communicate(timeout=300)
    return process.returncode, error


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, f'data = "{tmp_path}/file"\ndurability = "os"\nport = "off"\nmqtt_port = 0')
    process = start(
        "--config", str(path), "--data", f"{tmp_path}/flag", "--json",
        PENSTOCK_BROKER_DATA=f"{tmp_path}/environment", PENSTOCK_BROKER_TUBEMQ_PORT="0",
        PENSTOCK_BROKER_RETNTION="1h", PENSTOCK_BROKER_SERVICE_HOST="10.0.0.1",
    )  # fmt: skip
    assert process.stdout
    said: dict[str, Any] = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    code, error = ended(process)
    assert code == 0, error
    assert said["durability"] == "os"
    assert said["url"].startswith("mqtt://")
    assert said["tubemq_url"].startswith("tubemq://")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["flag"]
    assert "PENSTOCK_BROKER_RETNTION names no option; did you mean 'retention'?" in error
    assert "SERVICE_HOST" not in error


def test_a_mistake_in_the_environment_is_named() -> None:
    code, error = ended(start(PENSTOCK_BROKER_MAX_STORE="big"))
    assert code == 2
    assert "environment variable PENSTOCK_BROKER_MAX_STORE: expected a size" in error


def test_secrets_of_the_file_that_others_can_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "token.key").write_bytes(b"k" * 32)
    (tmp_path / "token.key").chmod(0o644)
    path = written(tmp_path, 'port = 0\ntoken_key = "file:token.key"')
    process = start("--config", str(path), "--json")
    assert process.stdout and process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    code, error = ended(process)
    assert code == 0
    assert f"other users may read {tmp_path}/token.key (mode 0644)" in error
