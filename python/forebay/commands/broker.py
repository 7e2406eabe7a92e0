"""``forebay broker``."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay._core.broker_config import literal_secrets
from forebay._core.broker_config import read as read_config
from forebay._core.broker_endpoints import NAMES
from forebay._core.options import hint
from forebay.broker import Broker
from forebay.errors import Closed, Error, InvalidArgument

from ._shared import logs
from ._shared.broker_options import ENVIRONMENT, OPTIONS
from ._shared.options import pairs, protocol_of_topic

FAILED = 3
"""Exit status of a broker whose store has failed."""
PORT = 6650
"""Port for Pulsar, of a broker that is told no listeners."""
_LINKS = re.compile(r"_(SERVICE_(HOST|PORT.*)|PORT_[0-9]+_(TCP|UDP).*)\Z")
"""Variables that Kubernetes sets for a service of the name forebay-broker."""
_RELOAD = getattr(signal, "SIGHUP", None)
_SIGNALS = tuple(one for one in (signal.SIGINT, signal.SIGTERM, _RELOAD) if one is not None)


def run(given: argparse.Namespace) -> int:
    """Runs the broker until SIGINT, SIGTERM or the failure of its store. At SIGHUP it reads the files of
    users and of permissions again."""
    _check_flags(given)
    logs.set_up("text", "info")
    options = _options(given)
    form, level = _log_options(given, options)
    logs.set_up(form, level)
    topics = [_topic(text) for text in given.topic]
    _check_secrets(given.config, options)
    # Blocked before the broker's threads start: they inherit the mask, and only sigwait sees the
    # signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    started = time.perf_counter()
    with Broker(**options) as broker:
        for name, partitions in topics:
            _create(broker, name, partitions)
        took = (time.perf_counter() - started) * 1000
        durability = str(broker.status().get("durability", ""))
        if given.json:
            import json

            urls = {f"{name}_url": broker.urls.get(name) for name in NAMES}
            said = {"url": broker.url, **urls, "durability": durability, "ready_ms": round(took, 1)}
            print(json.dumps(said), flush=True)
        elif not given.quiet:
            urls = " and ".join(broker.all_urls)
            print(f"forebay broker at {urls}, durability {durability}, ready in {took:.0f} ms", flush=True)
        _notify("READY=1")
        for url in broker.readable_urls:
            _warn(f"{url} has no TLS: passwords, tokens and messages can be read on the way; set tls_cert")
        failures: list[str] = []
        threading.Thread(target=_watch, args=(broker, failures), daemon=True).start()
        while signal.sigwait(_SIGNALS) == _RELOAD:
            _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            _reload(broker, given, permissions=options.get("acl_file") is not None)
            _notify("READY=1")
        _notify("STOPPING=1")
        if failures:
            logs.BROKER.error("%s: the broker ends, start it again", failures[0])
            return FAILED
        _tell("stopping")
    return 0


def _warn(text: str) -> None:
    logs.BROKER.warning("%s", text)


def _tell(text: str) -> None:
    logs.BROKER.info("%s", text)


def _notify(text: str) -> None:
    """Tells systemd how the service is, where it wants to know (``Type=notify``, sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # An abstract socket is written with @.
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(text.encode(), path)
    except OSError as error:
        _warn(f"NOTIFY_SOCKET {address}: {error}")


def _watch(broker: Broker, failures: list[str]) -> None:
    """Tells when the store cannot write, and ends the process when it has failed for good."""
    told = None
    while True:
        try:
            status = broker.status()
        except Closed:
            return
        if status["failure"]:
            failures.append(status["failure"])
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if status["stalled"] != told:
            told = status["stalled"]
            text = f"{told}: nothing is acknowledged until that is over" if told else "the store writes again"
            (_warn if told else _tell)(text)
        time.sleep(0.5)


def _reload(broker: Broker, given: argparse.Namespace, *, permissions: bool) -> None:
    """Reads everything again that can be read again. A mistake in one thing does not keep the others."""

    def users() -> str:
        read = ", ".join(f"{count} of {protocol}" for protocol, count in broker.reload_users().items())
        return f"users read again: {read}" if read else "there are no files of users to read"

    def keys() -> str:
        counts = broker.reload_keys()
        read = f"{counts['certificates']} certificates, {counts['token_keys']} token keys"
        return f"read again: {read}" if any(counts.values()) else ""

    def rules() -> str:
        return f"permissions read again: {broker.reload_permissions()} rules" if permissions else ""

    def level() -> str:
        _, wanted = _log_options(given, _options(given))
        return f"the log is written from {wanted} on" if logs.set_level(wanted) else ""

    former = {
        users: "the former users stay",
        keys: "the former certificates and token keys stay",
        rules: "the former permissions stay",
        level: "the level of the log stays",
    }
    for act, stays in former.items():
        try:
            if text := act():
                _tell(f"SIGHUP: {text}")
        except Error as error:
            _warn(f"SIGHUP: {error}: {stays}")


def _log_options(given: argparse.Namespace, options: dict[str, Any]) -> tuple[str, str]:
    """Takes format and level of the log out of the options."""
    quiet = "warning" if given.quiet else "info"
    form, level = options.pop("log_format", "text"), options.pop("log_level", quiet)
    for name, value in (("log_format", form), ("log_level", level)):
        try:
            OPTIONS[name].parse(value)
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from None
    return form, level


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """The options of the broker: those of the file, above them the environment, above them the flags."""
    options: dict[str, Any] = read_config(given.config, OPTIONS) if given.config else {}
    for variable, value in os.environ.items():
        name = variable.removeprefix(ENVIRONMENT).lower()
        if not variable.startswith(ENVIRONMENT):
            continue
        if name in OPTIONS:
            if not value:
                # A secret that was not found must not mean a broker without one.
                raise InvalidArgument(
                    f"environment variable {variable} is empty: set it to a value, or unset it"
                )
            options[name] = _of_environment(variable, name, value)
        elif not _LINKS.search(variable):
            _warn(f"{variable} names no option{hint(name, OPTIONS)}")
    # The flags have the names of the options.
    options |= {name: value for name, value in vars(given).items() if name in OPTIONS and value is not None}
    options |= pairs(given.options, "options")
    if "listeners" not in options:
        options.setdefault("port", PORT)
    return options


def _of_environment(variable: str, name: str, value: str) -> str:
    try:
        OPTIONS[name].parse(value)
    except ValueError as error:
        raise InvalidArgument(f"environment variable {variable}: {error}") from None
    return value


def _check_flags(given: argparse.Namespace) -> None:
    """Refuses secrets that other users of the machine see, given by a flag or by ``-X``."""
    for values in (vars(given), pairs(given.options, "options")):
        # A list of listeners cannot be given here.
        single = {name: value for name, value in values.items() if value and name != "listeners"}
        for name in literal_secrets(single, OPTIONS):
            raise InvalidArgument(
                f"{name} does not take the key itself, which every user of this machine can see: use"
                " file:PATH or env:NAME"
            )


def _check_secrets(config: str | None, options: Mapping[str, Any]) -> None:
    """Warns of files with secrets that other users of the machine can read."""
    if config and (literal := literal_secrets(read_config(config, OPTIONS), OPTIONS)):
        mode = Path(config).stat().st_mode & 0o777
        if mode & 0o077:
            _warn(
                f"other users may read {config} (mode {mode:04o}), which has the secret {literal[0]} in it:"
                f" chmod 600 {config}, or write file:PATH"
            )
    named = [options.get(name) for name in ("token_key", "mqtt_password_file", "tubemq_user_file")]
    named += [one.get("tls_key") for one in [options, *options.get("listeners", ())]]
    for text in named:
        path = str(text or "").removeprefix("file:")
        with contextlib.suppress(OSError, ValueError):
            if path and (mode := Path(path).stat().st_mode & 0o777) & 0o077:
                _warn(f"other users may read {path} (mode {mode:04o}): chmod 600 {path}")


def _topic(text: str) -> tuple[str, int]:
    """Name and partitions of ``--topic``."""
    name, equals, count = text.partition("=")
    if not name or (equals and not count.isdecimal()):
        raise InvalidArgument(f"--topic is NAME or NAME=PARTITIONS, not {text!r}")
    return name, int(count or 0)


def _create(broker: Broker, name: str, partitions: int) -> None:
    full = name if "://" in name or protocol_of_topic(name) else f"persistent://public/default/{name}"
    if full not in broker.topics():
        broker.create_topic(name, partitions)
