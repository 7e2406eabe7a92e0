"""Control characters of other people's names and payloads, in what commands print."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forebay import blocking
from forebay.commands._shared import display

from support.commands import ended, run

EVIL = "a\x1b[31mb\x9bc\r\u202e"
SHOWN = "a\\x1b[31mb\\x9bc\\r\\u202e"


def on_terminal(*words: str) -> bytes:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    with contextlib.closing(os.fdopen(ours, "rb", buffering=0)) as screen:
        command = [sys.executable, "-m", "forebay", *words]
        process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        out = b""
        # At its end Linux raises EIO.
        with contextlib.suppress(OSError):
            while part := screen.read(65536):
                out += part
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    return out.replace(b"\r\n", b"\n")


@pytest.fixture
def words(broker: Any, protocol: str) -> list[str]:
    """The arguments of ``sub`` that print a message with such characters."""
    topic = broker.topic()
    words = ["sub", "-u", broker.url, "-t", topic, "-C", "1", "-W", "60", "-v"]
    with blocking.connect(broker.url) as made:
        client: Any = made
        if protocol == "mqtt":
            client.publish(topic, EVIL.encode(), qos=1, retain=True)
        else:
            with client.producer(topic) as producer:
                producer.send(EVIL.encode(), EVIL if protocol == "pulsar" else None)
            words += ["-s", "s", "-o", "beginning"]
    return words


def test_a_terminal_gets_escapes(words: list[str], protocol: str) -> None:
    out = on_terminal(*words).decode()
    assert not set("\x1b\x9b\r\u202e") & set(out)
    assert out.count(SHOWN) == (2 if protocol == "pulsar" else 1)


def test_the_escapes_of_a_format_are_the_users_own(words: list[str], protocol: str) -> None:
    form = "\x1b[1m%p\x1b[0m" if protocol == "mqtt" else "\x1b[1m%s\x1b[0m"
    out = on_terminal(*words, "-F", form).decode()
    assert out.strip() == f"\x1b[1m{SHOWN}\x1b[0m"


def test_a_pipe_gets_the_bytes(words: list[str]) -> None:
    assert EVIL.encode() in run(*words)


def test_errors_have_escapes(embedded: Any, tmp_path: Path) -> None:
    for words in (("peek", "orders\u202e"), ("pub", "-t", "t", "-f", str(tmp_path / EVIL))):
        done = ended(*words, "-u", embedded.url)
        assert done.status == 1 and "\\u202e" in done.err
        assert not set("\x1b\x9b\r\u202e") & set(done.err)


def test_a_payload_as_json_has_escapes_and_keeps_letters() -> None:
    value = {"name": f"größe 東京 {EVIL}\n\u2066"}
    for shown in (
        display.payload("json", json.dumps(value, ensure_ascii=False).encode()),
        display.payload("json", b"", value),
    ):
        assert shown.replace("\n", "").isprintable() and "größe 東京" in shown
        assert json.loads(shown) == value
