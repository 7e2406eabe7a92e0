"""Servers that shell scripts start and stop: free ports, scripts, and the lifecycle that they share."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

BROKERS = Path(__file__).parent.parent / "brokers"


def _ports() -> Iterator[int]:
    """Ports for servers that must be told theirs.

    They lie below the range that the system gives to outgoing connections, any of which could take a port
    between the choice and the server's start. Each pytest worker has ports of its own, in random order
    because two runs at the same time do not know each other's.
    """
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except FileNotFoundError:
        end = 0
    if end < 20_000:
        # Not Linux, or outgoing connections own nearly all ports.
        end = 32_768
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(10_000 + worker, end, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))
    random.shuffle(ports)
    return itertools.cycle(ports)


_PORTS = _ports()


def free_port() -> int:
    """A port without a listener, handed out only once."""
    for port in _PORTS:
        with socket.socket() as sock, contextlib.suppress(OSError):
            # All addresses, because some servers listen on all of them.
            sock.bind(("", port))
            return port
    raise AssertionError


def run_script(*words: str, timeout: float, environment: dict[str, str] | None = None) -> str:
    """Runs a script that starts or stops servers and returns its output.

    A failure is a ``RuntimeError`` with everything the script printed.
    """
    # Files instead of pipes: the servers inherit a pipe and would keep it open. Two files, because
    # Maven ends its output with a colour code and no newline.
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
        printed = output.read()
        if status != 0:
            raise RuntimeError(f"{Path(words[0]).name} failed (status {status}):\n{printed}{errors.read()}")
    return printed


def facts_of(output: str) -> dict[str, str]:
    """The ``name=value`` lines that a start script prints."""
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


class ScriptedServer:
    """A server with scripts ``start-NAME`` and ``stop-NAME`` in ``tests/brokers/NAME``.

    The scripts take the data folder as their first argument and read ports and settings from environment
    variables that begin with NAME in upper case. The server ends with this process, whatever happens to it.
    """

    name: str
    #: Seconds for the scripts; the first start downloads the server.
    start_timeout: ClassVar[float] = 600
    stop_timeout: ClassVar[float] = 300
    #: Whether its folder is never in memory (`tools/in-memory`): it reserves far more room than it
    #: uses.
    on_disk: ClassVar[bool] = False
    #: Whether `stop` may kill the server, which is fast: its data is deleted anyway.
    stop_by_kill: ClassVar[bool] = True

    def __init__(self, data: Path, **variables: str) -> None:
        self.data = data
        variables["WATCH_PID"] = str(os.getpid())
        self._environment = os.environ | self._named(variables)
        try:
            self.start()
        except BaseException:
            self._discard()
            raise

    @classmethod
    def folder(cls) -> Path:
        """A new data folder."""
        return Path(tempfile.mkdtemp(prefix=f"forebay-{cls.name}-", dir="/var/tmp" if cls.on_disk else None))

    @classmethod
    def script(cls, name: str) -> str:
        return str(BROKERS / cls.name / name)

    @classmethod
    def _named(cls, variables: dict[str, str]) -> dict[str, str]:
        return {f"{cls.name.upper()}_{name}": value for name, value in variables.items()}

    def run(self, script: str, *arguments: str, timeout: float, **variables: str) -> str:
        """Runs one of the server's scripts on its data and returns the output."""
        words = (self.script(script), str(self.data), *arguments)
        environment = self._environment | self._named(variables)
        return run_script(*words, environment=environment, timeout=timeout)

    def start(self, *parts: str) -> None:
        """Starts all parts of the server or these, with the same ports and data as before."""
        self.started(facts_of(self.run(f"start-{self.name}", *parts, timeout=self.start_timeout)))

    def started(self, facts: dict[str, str]) -> None:
        """Takes over what the start script reported."""
        raise NotImplementedError

    def halt(self, *parts: str, kill: bool = False) -> None:
        """Ends all parts of the server or these and keeps the data."""
        variables = {"STOP_TIMEOUT": "0"} if kill else {}
        self.run(f"stop-{self.name}", *parts, timeout=self.stop_timeout, **variables)

    def restart(self, *parts: str, kill: bool = False) -> None:
        self.halt(*parts, kill=kill)
        self.start(*parts)

    def stop(self) -> None:
        """Ends the server and deletes its data."""
        self.halt(kill=self.stop_by_kill)
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)

    def _discard(self) -> None:
        with contextlib.suppress(RuntimeError, subprocess.SubprocessError):
            self.halt(kill=True)
        self.remove()
