"""Brokers and small helpers for all suites."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PULSAR = HERE / "brokers" / "pulsar"


def _ports() -> Iterator[int]:
    """Ports for servers that are told theirs: below those that the system gives to connections going out,
    any of which could take a port between the choice and the server's start. Each worker of pytest has its
    own, in an order of its own (of two runs at once, neither knows the other's)."""
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except FileNotFoundError:
        end = 0
    if end < 20_000:
        # Not Linux, or nearly all are given to connections.
        end = 32_768
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(10_000 + worker, end, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))
    random.shuffle(ports)
    return itertools.cycle(ports)


_PORTS = _ports()


def free_port() -> int:
    """A port that nobody listens on, and that is not given out twice."""
    for port in _PORTS:
        with socket.socket() as sock, contextlib.suppress(OSError):
            # On all addresses, as some servers will.
            sock.bind(("", port))
            return port
    raise AssertionError


def run_script(*words: str, timeout: float, environment: dict[str, str] | None = None) -> str:
    """What a script says that starts or stops servers. ``RuntimeError``, with all it said: it failed."""
    # No pipes: the servers inherit them, and would keep them open. Two files: Maven ends its words with a
    # colour and without a line.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        status = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            timeout=timeout,
            check=False,
        ).returncode
        output.seek(0)
        errors.seek(0)
        said = output.read()
        if status != 0:
            raise RuntimeError(f"{Path(words[0]).name} failed (status {status}):\n{said}{errors.read()}")
    return said


def facts_of(said: str) -> dict[str, str]:
    """What a script says that starts servers: names and values."""
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


class Service:
    """A broker that tests talk to, and what only its administrator can do."""

    name: str
    url: str

    @property
    def is_real(self) -> bool:
        return self.name != "embedded"

    def topic(self, partitions: int = 0) -> str:
        """A topic that no other test uses; it comes into being on first use unless it has partitions."""
        topic = f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"
        if partitions:
            self.create_topic(topic, partitions)
        return topic

    def create_topic(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError


class EmbeddedBroker(Service):
    """``penstock.Broker`` in a process of its own."""

    name = "embedded"

    def __init__(self, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "brokers" / "embedded.py"), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.url = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the embedded broker ended with status {self.process.wait(10)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def call(self, method: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        return self._answer()

    def create_topic(self, topic: str, partitions: int) -> None:
        self.call("create_topic", topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic)

    def stop(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        assert self.process.stdout is not None
        self.process.stdout.close()


class BrokerProcess:
    """``penstock broker`` on a folder and a port that stay, to be killed and started again."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data, self.port, self.options = data, free_port(), options
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock", "broker", "--json", *self.options),
                *("--data", str(self.data), "--port", str(self.port)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert json.loads(line), f"the broker ended with {self.process.wait(10)}"

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


class RealPulsar(Service):
    """Apache Pulsar standalone, fetched once and started on free ports."""

    name = "pulsar"

    def __init__(self, *, secure: bool = False, url: str | None = None, admin: str | None = None) -> None:
        self.secure = secure
        self.data: Path | None = None
        self._context: ssl.SSLContext | None = None
        if url and admin:
            self.url, self.admin = url, admin
            return
        self.data = Path(tempfile.mkdtemp(prefix="penstock-pulsar-"))
        names = (
            "PULSAR_PORT",
            "PULSAR_WEB_PORT",
            "PULSAR_TLS_PORT",
            "PULSAR_WEB_TLS_PORT",
            "PULSAR_BOOKIE_PORT",
        )
        self._environment = os.environ | {name: str(free_port()) for name in names}
        self._environment |= {"PULSAR_SECURE": "1" if secure else "0", "PULSAR_WATCH_PID": str(os.getpid())}
        self.start()

    def start(self) -> None:
        """Starts it; the same ports and data when it was stopped."""
        assert self.data is not None, "a broker that somebody else started is left alone"
        words = (str(PULSAR / "start-pulsar"), str(self.data))
        try:
            facts = facts_of(run_script(*words, environment=self._environment, timeout=900))
        except RuntimeError:
            shutil.rmtree(self.data, ignore_errors=True)
            raise
        self.url, self.admin = facts["service_url"], facts["admin_url"]

    def halt(self, *, kill: bool = False) -> None:
        """Ends the process and keeps the data."""
        assert self.data is not None, "a broker that somebody else started is left alone"
        environment = self._environment | ({"PULSAR_STOP_TIMEOUT": "0"} if kill else {})
        run_script(str(PULSAR / "stop-pulsar"), str(self.data), environment=environment, timeout=120)

    def stop(self) -> None:
        if self.data is not None:
            self.halt()
            shutil.rmtree(self.data, ignore_errors=True)

    # -- the secure one

    def _secret(self, name: str) -> Path:
        assert self.data is not None
        return self.data / "secure" / name

    @property
    def ca(self) -> Path:
        return self._secret("ca.crt")

    def token(self, role: str) -> str:
        return self._secret(f"{role}.token").read_text().strip()

    # -- administration

    def rest(self, method: str, path: str, body: object = None, *, timeout: float = 30) -> Any:
        headers = {"Content-Type": "application/json"}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.secure:
            headers["Authorization"] = f"Bearer {self.token('admin')}"
            context = ssl.create_default_context(cafile=str(self.ca))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.admin}/admin/v2/{path}", data, headers, method=method)
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as response:
            text = response.read()
        return json.loads(text) if text else None

    @staticmethod
    def path(topic: str) -> str:
        return topic.replace("://", "/")

    def create_topic(self, topic: str, partitions: int) -> None:
        if partitions:
            self.rest("PUT", f"{self.path(topic)}/partitions", partitions)
        else:
            self.rest("PUT", self.path(topic))

    def delete_topic(self, topic: str) -> None:
        self.rest("DELETE", f"{self.path(topic)}?force=true")

    def unload(self, topic: str) -> None:
        """Closes the topic in the broker: its clients have to look it up and connect again."""
        self.rest("PUT", f"{self.path(topic)}/unload")


def eventually(check: Callable[[], bool], timeout: float = 10.0) -> None:
    """Waits until ``check`` holds, without a fixed sleep."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


async def receive(consumer: Any, count: int, timeout: float = 10.0) -> list[Any]:
    """Exactly ``count`` messages, in the order they came."""
    messages: list[Any] = []
    deadline = time.monotonic() + timeout
    while len(messages) < count:
        left = deadline - time.monotonic()
        got = await consumer.receive_many(count - len(messages), timeout=max(left, 0.01))
        assert got or left > 0, f"{len(messages)} of {count} messages came in {timeout} s"
        messages += got
    return messages


async def nothing(consumer: Any, wait: float = 0.3) -> None:
    """Nothing (more) comes."""
    got = await consumer.receive_many(10, timeout=wait)
    assert got == [], [bytes(message.data) for message in got]


def payloads(messages: list[Any]) -> list[bytes]:
    return [bytes(message.data) for message in messages]


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"m%06d" % number + bytes(size) for number in range(count)]


async def gather(*futures: Any) -> list[Any]:
    return list(await asyncio.gather(*futures))
