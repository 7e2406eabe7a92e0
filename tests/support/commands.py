"""The command line, run in this process, which is faster than one of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

from forebay import blocking, cli

from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, eventually

COMMANDS = [
    *(
        "broker",
        "backup",
        "restore",
        "check",
        "compact",
        "passwd",
        "token",
        "pub",
        "sub",
        "rr",
        "bench",
        "admin",
        "topic",
    ),
    *("top", "subscriptions", "peek", "replay", "doctor", "completion"),
]
"""Every command of ``forebay``."""


def send(service: PulsarService, topic: str, *payloads: bytes, **options: Any) -> list[str]:
    """Sends messages for commands to find; their ids."""
    with blocking.connect(service.url) as client, client.producer(topic, **options) as producer:
        return [str(id) for id in producer.send_many(list(payloads))]


def time_behind(service: PulsarService, topic: str, count: int) -> str:
    """A time in milliseconds behind the first ``count`` messages of a topic, when it is over: behind that of
    their producer and that at which the broker stored them. The clock may have been set back since then."""
    with blocking.connect(service.url) as client, client.reader(topic, position="earliest") as reader:
        messages = [reader.receive(timeout=PATIENCE) for _ in range(count)]
    times = [at for one in messages for at in (one.publish_time, one.broker_time) if at is not None]
    behind = max(*times, int(time.time() * 1000)) + 20
    eventually(lambda: time.time() * 1000 > behind + 20)
    return str(behind)


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    out: bytes
    err: str


def ended(*words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
    """Runs a command to its end, with ``env`` added to the environment."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    # `forebay broker` blocks signals.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.dict(os.environ, env or {}),
    ):
        try:
            status = cli.main(words)
        except SystemExit as exit:
            status = int(exit.code or 0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        out.flush()
    return Done(status, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]


def run(*words: str, status: int = 0, **rest: Any) -> bytes:
    """The output of a command."""
    done = ended(*words, **rest)
    assert done.status == status, (words, done)
    return done.out


def refused(*words: str, status: int = 2, **rest: Any) -> str:
    """The error of a command that fails."""
    done = ended(*words, **rest)
    assert (done.status, done.out) == (status, b""), (words, done)
    return done.err


def start(*words: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
    """Starts a command in a process of its own."""
    command = [sys.executable, "-m", "forebay", *words]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Commands:
    """Commands with one URL.

    Args:
        url: given to each command with ``-u``.
        words: words before those of each call.
    """

    def __init__(self, url: str, *words: str) -> None:
        self.url = url
        self.words = words

    def run(self, *words: str, status: int = 0) -> tuple[str, str]:
        """The output of a command, and its errors."""
        done = ended(*self.words, *words, "-u", self.url)
        assert done.status == status, (words, done)
        return done.out.decode(), done.err

    def __call__(self, *words: str) -> str:
        return self.run(*words)[0]

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self(*words, "--json").splitlines()]

    def refused(self, *words: str) -> str:
        """The error of a command that fails."""
        return self.run(*words, status=1)[1]

    def misused(self, *words: str) -> str:
        """The error of a command that is called wrongly."""
        return self.run(*words, status=2)[1]
