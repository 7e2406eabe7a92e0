"""``penstock broker``."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from penstock._native import backup_store, check_store
from penstock.broker import OPTIONS, Broker
from penstock.errors import Closed, Error, InvalidArgument

from ._shared.options import pairs, protocol_of_topic

FAILED = 3
"""Exit status of a broker whose store has failed."""
_RELOAD = getattr(signal, "SIGHUP", None)
_SIGNALS = tuple(one for one in (signal.SIGINT, signal.SIGTERM, _RELOAD) if one is not None)


def run(given: argparse.Namespace) -> int:
    """Runs the broker until SIGINT, SIGTERM or the failure of its store, or checks the store. At SIGHUP it
    reads the files of users and of permissions again."""
    if given.backup is not None:
        return _backup(given)
    if given.check:
        return _check(given)
    _check_secrets(given)
    # The flags have the names of the options.
    options: dict[str, Any] = {name: value for name, value in vars(given).items() if name in OPTIONS}
    options |= pairs(given.options, "options")
    options["allow_insecure_bind"] = given.allow_insecure_bind
    # Blocked before the broker's threads start: they inherit the mask, and only sigwait sees the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    started = time.perf_counter()
    with Broker(**options) as broker:
        for text in given.topic:
            _create(broker, text)
        took = (time.perf_counter() - started) * 1000
        durability = str(broker.status().get("durability", ""))
        if given.json:
            import json

            more = {f"{name}_url": url for name, url in broker.urls.items() if url != broker.url}
            said = {"url": broker.url, **more, "durability": durability, "ready_ms": round(took, 1)}
            print(json.dumps(said), flush=True)
        elif not given.quiet:
            urls = " and ".join(broker.urls.values())
            print(f"penstock broker at {urls}, durability {durability}, ready in {took:.0f} ms", flush=True)
        failures: list[str] = []
        threading.Thread(target=_watch, args=(broker, failures), daemon=True).start()
        while signal.sigwait(_SIGNALS) == _RELOAD:
            _reload(broker, permissions=given.acl_file is not None)
        if failures:
            _tell(f"{failures[0]}: the broker ends, start it again")
            return FAILED
        if not given.quiet and not given.json:
            _tell("stopping")
    return 0


def _tell(text: str) -> None:
    """Writes to stderr. The broker goes on if that is closed."""
    try:
        print(f"penstock broker: {text}", file=sys.stderr, flush=True)
    except OSError:
        # The text stays in a buffer, and Python ends with status 120 if it cannot write that at its end.
        with contextlib.suppress(OSError), Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())


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
            _tell(text)
        time.sleep(0.5)


def _reload(broker: Broker, *, permissions: bool) -> None:
    try:
        counts = broker.reload_users()
    except Error as error:
        text = f"SIGHUP: {error}: the former users stay"
    else:
        read = ", ".join(f"{count} of {protocol}" for protocol, count in counts.items())
        text = f"SIGHUP: users read again: {read}" if read else "SIGHUP: there are no files of users to read"
    _tell(text)
    if permissions:
        try:
            text = f"SIGHUP: permissions read again: {broker.reload_permissions()} rules"
        except Error as error:
            text = f"SIGHUP: {error}: the former permissions stay"
        _tell(text)


def _check_secrets(given: argparse.Namespace) -> None:
    """Refuses a key that other users of the machine see, and warns of files that they can read."""
    key = given.token_key or ""
    if key and not key.startswith(("file:", "env:")):
        raise InvalidArgument(
            "--token-key does not take the key itself, which every user of this machine can see: use"
            " file:PATH or env:NAME"
        )
    named = [key.removeprefix("file:") if key.startswith("file:") else None, given.tls_key]
    for path in [*named, given.mqtt_password_file, given.tubemq_user_file]:
        with contextlib.suppress(OSError):
            if path and (mode := Path(path).stat().st_mode & 0o777) & 0o077:
                _tell(f"other users may read {path} (mode {mode:04o}): chmod 600 {path}")


def _backup(given: argparse.Namespace) -> int:
    if not given.data:
        raise InvalidArgument("--backup copies the store in a folder: name it with --data DIR")
    backup_store(given.data, given.backup)
    return 0


def _check(given: argparse.Namespace) -> int:
    if not given.data:
        raise InvalidArgument("--check reads the store in a folder: name it with --data DIR")
    entries, damage = check_store(given.data)
    if given.json:
        import json

        print(json.dumps({"entries": entries, "damage": damage}), flush=True)
    elif not given.quiet:
        print(*damage, sep="\n", end="\n" if damage else "")
        print(f"{entries} messages or batches can be read, {len(damage)} places are damaged", flush=True)
    return 1 if damage else 0


def _create(broker: Broker, text: str) -> None:
    name, equals, count = text.partition("=")
    if equals and not count.isdecimal():
        raise InvalidArgument(f"--topic is NAME or NAME=PARTITIONS, not {text!r}")
    full = name if "://" in name or protocol_of_topic(name) else f"persistent://public/default/{name}"
    if full not in broker.topics():
        broker.create_topic(name, int(count or 0))
