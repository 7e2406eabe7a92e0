"""Brokers as the tests see them: what is common to all, and the embedded one in processes of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from support.scripts import BROKERS, free_port


class Service:
    """A broker that tests connect to."""

    name: str
    url: str

    @property
    def is_real(self) -> bool:
        """Whether it is a server of other authors."""
        return self.name != "embedded"

    def stop(self) -> None:
        raise NotImplementedError


class EmbeddedBroker:
    """``forebay.Broker`` in a process of its own, with its methods and properties by `call`."""

    name = "embedded"

    def __init__(self, environment: Mapping[str, str] | None = None, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(BROKERS / "embedded.py"), json.dumps(options)],
            env=environment,
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
            raise RuntimeError(f"the embedded broker ended with status {self.process.wait(60)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def call(self, method: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        return self._answer()

    def stop(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        assert self.process.stdout is not None
        self.process.stdout.close()


class EmbeddedListener(Service):
    """The embedded broker with a listener of one protocol, on ports and data that survive a restart.

    ``data=True`` keeps its data in a folder of its own, with fsync unless told otherwise.
    """

    name = "embedded"
    #: Options that are the name of a port.
    port_options: ClassVar[tuple[str, ...]]

    def __init__(self, **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-embedded-"))
        options = self.prepare(options)
        defaults = {"durability": "memory"} | {name: free_port() for name in self.port_options}
        self._options: dict[str, Any] = defaults | options
        if self._options.get("data") is True:
            self._options["data"] = str(self.folder / "data")
            self._options["durability"] = options.get("durability", "fsync")
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def prepare(self, options: dict[str, Any]) -> dict[str, Any]:
        """The broker's options; may write files into ``folder``."""
        return options

    def start(self) -> None:
        self._broker = EmbeddedBroker(**self._options)
        self.started()

    def started(self) -> None:
        """Reads the URLs from the broker."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        return self._broker.process.pid

    def call(self, method: str, *arguments: Any) -> Any:
        return self._broker.call(method, *arguments)

    def halt(self, *, kill: bool = False) -> None:
        """Ends the process and keeps the data."""
        if kill:
            self._broker.process.kill()
            self._broker.process.wait()
        self._broker.stop()

    def restart(self, *, kill: bool = False) -> None:
        self.halt(kill=kill)
        self.start()

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)


class BrokerProcess:
    """``forebay broker`` on a data folder and a port that stay, to be killed and started again."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data, self.port, self.options = data, free_port(), options
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "forebay", "broker", "--json", *self.options),
                *("--data", str(self.data), "--port", str(self.port)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert json.loads(line), f"the broker ended with {self.process.wait(60)}"

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Sends the signal and returns the exit status."""
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status
