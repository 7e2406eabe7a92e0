"""Official Java clients in processes of their own, driven over pipes with lines of JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from typing import Any, Self


class Refused(Exception):
    """The Java client raised an exception; its text."""


class JavaPeer:
    """A Java program that answers lines of ``[handle, verb, arguments...]``."""

    def __init__(self, *command: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            ["java", "-XX:+UseSerialGC", "-XX:-UsePerfData", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            bufsize=1,
        )
        self._handles = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def call(self, handle: str, verb: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([handle, verb, *arguments]) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java client ended with {self.process.wait(60)}: {self.errors[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer.get("ok")

    def open(self, kind: str, options: dict[str, Any]) -> str:
        """Opens a producer, a consumer or the like; returns its handle."""
        self._handles += 1
        handle = f"{kind}{self._handles}"
        self.call(handle, kind, options)
        return handle

    def kill(self) -> None:
        """Ends the process as by a crash."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._errors.close()


class Handle:
    """A producer, a consumer or the like, open in a `JavaPeer`."""

    def __init__(self, java: JavaPeer, handle: str) -> None:
        self._java, self._handle = java, handle

    def call(self, verb: str, *arguments: Any) -> Any:
        return self._java.call(self._handle, verb, *arguments)

    def close(self) -> None:
        self.call("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The process may have been killed.
        with contextlib.suppress(RuntimeError, Refused, OSError, ValueError):
            self.close()
