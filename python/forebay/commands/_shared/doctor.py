"""The sequence of checks of ``forebay doctor``: each step of a connection by itself, so that the first one
that fails is named."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import forebay
from forebay._core import protocols
from forebay.errors import Error, Timeout, Unsupported

from .display import visible
from .options import scopes

_Client = TypeVar("_Client")
MESSAGES = 10
"""How many messages the round trip sends."""


class Examination:
    """The checks of one URL.

    Attributes:
        url: the URL as it was given, with its query.
        base: the URL without its query.
        scheme: the URL's scheme.
        topic: the topic to use; ``None`` for a new one.
        wanted: the options as they were given, by scope.
        settings: the client's options, resolved.
    """

    def __init__(self, given: argparse.Namespace, protocol: str, *, takes_topic: bool) -> None:
        self.url: str = given.address or given.url
        self.topic: str | None = given.topic
        # A mistake in the URL or the options ends the command as an error; it is not a finding.
        protocols.split_url(self.url)
        if given.topic and not takes_topic:
            raise Unsupported(
                "-t is for TubeMQ, where topics must be created first; here a new topic is used"
            )
        self.wanted = scopes(given.options, protocol)
        self.base, self.settings, _ = protocols.for_connection(self.url, self.wanted["client"])
        self.scheme = self.base.partition(":")[0]
        self._json: bool = given.json
        self._findings: list[dict[str, Any]] = []

    def step(self, name: str, work: Callable[[], str]) -> bool:
        """Runs one check, prints what it returns or how it failed; whether it succeeded."""
        started = time.perf_counter()
        try:
            detail, ok = work(), True
        except (Error, OSError) as error:
            code = getattr(error, "code", type(error).__name__)
            detail, ok = f"{code}: {error}{_next_step(error)}", False
        took = round((time.perf_counter() - started) * 1000, 2)
        self._findings.append({"step": name, "ok": ok, "ms": took, "detail": detail})
        if not self._json:
            print(f"{'ok    ' if ok else 'FAILED'} {name:<12} {took:>9.2f} ms  {visible(detail)}", flush=True)
        return ok

    def reach(self, default_port: int, further: Callable[[str, int], bool] | None = None) -> bool:
        """Checks that each address of the URL accepts connections, up to the first that does not.

        Args:
            default_port: the port of addresses without one.
            further: another check of an address that accepts connections; whether it succeeded.
        """
        return all(
            self.step("address", lambda host=host, port=port: _reach(host, port))
            and (further is None or further(host, port))
            for host, port in _addresses(self.base, default_port)
        )

    def connect(
        self, step: str, connect: Callable[..., _Client], words: Callable[[_Client, dict[str, Any]], str]
    ) -> _Client | None:
        """Opens a client with short time limits.

        Args:
            step: name of the step.
            connect: the protocol's ``connect``.
            words: the finding, from the client and its options.
        """
        client: _Client | None = None
        limits: dict[str, Any] = {"connect_timeout": 5, "operation_timeout": 10, **self.wanted["client"]}

        def work() -> str:
            nonlocal client
            client = connect(self.url, **limits)
            return words(client, limits)

        return client if self.step(step, work) else None

    @property
    def healthy(self) -> bool:
        """Whether every check succeeded."""
        return all(finding["ok"] for finding in self._findings)

    def finish(self) -> int:
        """Prints the findings with ``--json``; returns the exit status."""
        if self._json:
            print(json.dumps({"url": self.base, "ok": self.healthy, "findings": self._findings}))
        return 0 if self.healthy else 1


def run(
    given: argparse.Namespace,
    protocol: str,
    examine: Callable[[Examination], None],
    *,
    takes_topic: bool = False,
) -> int:
    """Runs the checks; exit status 0 if all of them succeed.

    Args:
        given: the parsed arguments.
        protocol: the protocol of the URL.
        examine: runs the protocol's checks one after the other, up to the first that fails.
        takes_topic: whether ``-t`` is allowed.
    """
    examination = Examination(given, protocol, takes_topic=takes_topic)
    examination.step("installed", _versions)
    examine(examination)
    return examination.finish()


def _next_step(error: Exception) -> str:
    """What to do about an address that cannot be reached, after the words of the system."""
    if isinstance(error, socket.gaierror):
        return "; the name has no address: check its spelling, and the DNS of this machine"
    if isinstance(error, ConnectionRefusedError):
        return "; nothing listens on this port: check the port, and whether the broker runs"
    if isinstance(error, TimeoutError):
        return "; no answer: check the address, and the firewalls on the way"
    return ""


def _versions() -> str:
    words = [f"forebay {forebay.__version__}", f"Python {sys.version.split()[0]}"]
    for name in ("pyarrow", "pyspark", "rich"):
        try:
            words.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            words.append(f"no {name}")
    return ", ".join(words)


def _addresses(base: str, default_port: int) -> list[tuple[str, int]]:
    """The hosts and ports of a URL."""
    result: list[tuple[str, int]] = []
    for part in base.partition("://")[2].split("/")[0].split(","):
        host, colon, port = part.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = part, ""
        result.append((host.strip("[]"), int(port) if port.isdecimal() else default_port))
    return result


def _reach(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=5) as sock:
        return f"{host} is {sock.getpeername()[0]}, port {port} is open"


def new_topic(separator: str = "-") -> str:
    """The name of a topic that does not exist yet."""
    return separator.join(("forebay", "doctor", f"{time.time_ns():x}"))


def round_trip(
    payloads: list[bytes], send: Callable[[bytes], Any], receive: Callable[[], Iterable[bytes]]
) -> float:
    """Sends the payloads one at a time and compares them with those received; the median time of ``send`` in
    milliseconds.

    Raises:
        Timeout: other payloads came back, or in another order.
    """
    times: list[float] = []
    for payload in payloads:
        started = time.perf_counter()
        send(payload)
        times.append(time.perf_counter() - started)
    if list(receive()) != payloads:
        raise Timeout("the messages came back in another order")
    times.sort()
    return times[len(times) // 2] * 1000
