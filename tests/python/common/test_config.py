"""``forebay broker --config``: files of options, what wins over them, and how a mistake is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay._core import broker_config
from forebay.broker import OPTIONS
from forebay.errors import InvalidArgument

from support.certificates import Authority
from support.commands import refused

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
    command = [sys.executable, "-m", "forebay", "broker", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environment})


def test_a_file_says_what_the_options_say(tmp_path: Path) -> None:
    path = written(tmp_path, LISTENERS)
    options = broker_config.read(path, OPTIONS)
    assert options["data"] == str(tmp_path / "store")
    assert options["listeners"][1]["unix"] == str(tmp_path / "http.sock")
    with forebay.Broker(path) as broker:
        assert list(broker.urls) == ["http", "mqtt"]
        assert "pulsar" not in broker.status()
        assert (tmp_path / "store" / "broker.db").exists()
        assert (tmp_path / "http.sock").stat().st_mode & 0o777 == 0o660
    with forebay.Broker(path, port=0, data=tmp_path / "other") as broker:
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
        ('port = 0\ntoken_key = "/etc/forebay/token.key"', ["line 2", "'token_key'", "write file:PATH"]),
        ('token_key = "broker.toml"', ["line 1", "'token_key'", "write file:PATH"]),
        ('tls_cert = "no.pem"', ["line 1", "cannot read", "no.pem"]),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgument) as raised:
        forebay.Broker(path)
    for part in [str(path), *parts]:
        assert part in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        forebay.Broker(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"data = '\xe9'")
    with pytest.raises(InvalidArgument, match="cannot read the configuration"):
        forebay.Broker(tmp_path / "latin.toml")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, error = process.communicate(timeout=300)
    return process.returncode, error


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, f'data = "{tmp_path}/file"\ndurability = "os"\nport = "off"\nmqtt_port = 0')
    process = start(
        "--config", str(path), "--data", f"{tmp_path}/flag", "--json",
        FOREBAY_BROKER_DATA=f"{tmp_path}/environment", FOREBAY_BROKER_TUBEMQ_PORT="0",
        FOREBAY_BROKER_RETNTION="1h", FOREBAY_BROKER_SERVICE_HOST="10.0.0.1",
    )  # fmt: skip
    assert process.stdout
    said: dict[str, Any] = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    code, error = ended(process)
    assert code == 0, error
    assert said["durability"] == "os"
    assert said["url"].startswith("mqtt://")
    assert said["mqtt_url"] == said["url"], "also where it is the first"
    assert said["tubemq_url"].startswith("tubemq://")
    assert [said[f"{name}_url"] for name in ("pulsar", "mqtt_ws", "http")] == [None] * 3
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["flag"]
    assert "FOREBAY_BROKER_RETNTION names no option; did you mean 'retention'?" in error
    assert "SERVICE_HOST" not in error


def test_a_mistake_in_the_environment_is_named() -> None:
    error = refused("broker", env={"FOREBAY_BROKER_MAX_STORE": "big"})
    assert "environment variable FOREBAY_BROKER_MAX_STORE: expected a size" in error


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


def test_a_path_in_place_of_the_key_is_refused_wherever_it_is_given(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 0\ntoken_key = "signing"')
    with pytest.raises(InvalidArgument, match="token_key"):
        forebay.Broker(token_key=str(tmp_path / "signing"))
    error = refused("broker", env={"FOREBAY_BROKER_TOKEN_KEY": str(tmp_path / "signing")})
    assert "environment variable FOREBAY_BROKER_TOKEN_KEY: this text looks like the path of a file" in error
    # Paths in the file begin at its folder, and so does the check.
    (tmp_path / "signing").write_bytes(b"k" * 32)
    with pytest.raises(InvalidArgument, match=r"line 2: option 'token_key'.*write file:PATH"):
        forebay.Broker(path)


@pytest.mark.parametrize(
    ("text", "mode", "secret"),
    [
        ('token_key = "0123456789abcdef0123456789abcdef"', 0o640, "token_key"),
        ('token_key = "0123456789abcdef0123456789abcdef"', 0o600, None),
        ('token_key = "env:SIGNS"', 0o644, None),
        ("tls_cert = '''\n{chain}'''\ntls_key = '''\n{key}'''", 0o644, "tls_key"),
        (
            "[[listener]]\nprotocol = 'mqtt'\nport = 0\ntls_cert = '''\n{chain}'''\ntls_key = '''\n{key}'''",
            0o604,
            "tls_key",
        ),
    ],
)
def test_a_file_with_a_secret_in_it_that_others_can_read_is_named(
    tmp_path: Path, text: str, mode: int, secret: str | None
) -> None:
    chain, key = Authority().leaf()
    path = written(
        tmp_path, "port = 0\n" + text.replace("{chain}", chain.decode()).replace("{key}", key.decode())
    )
    path.chmod(mode)
    process = start("--config", str(path), "--json", SIGNS="0123456789abcdef0123456789abcdef")
    assert process.stdout and process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    code, error = ended(process)
    assert code == 0, error
    if secret is None:
        assert "other users may read" not in error
    else:
        assert f"other users may read {path} (mode {mode:04o}), which has the secret {secret} in it" in error
