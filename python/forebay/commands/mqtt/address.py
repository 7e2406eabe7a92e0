"""The address of the broker as Mosquitto's commands take it, ``-h HOST -p PORT`` for example, or a URL."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from forebay._core import protocols
from forebay.commands._shared import arguments

_LOCAL = "127.0.0.1"
_SECURE_PORT = 8883
_LOCATOR = "-L is mqtt://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC, or mqtts://..."


class _Host(arguments.Help):
    """``-h HOST``."""

    def take(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, host: str) -> None:
        namespace.host = host


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 65535:
        hint = ": a property is -D publish user-property NAME VALUE" if "=" in text else ""
        raise argparse.ArgumentTypeError(f"a port is a number from 1 to 65535, not {text!r}{hint}")
    return int(text)


def flags(command: argparse.ArgumentParser) -> None:
    """Adds ``--help``, the positional arguments, and the flags for the address."""
    add = command.add_argument
    add("--help", action="help", help="show this help message and exit")
    arguments.places(command, "URL and topic: mqtt://, mqtts://, ws://, wss:// or mqtt+unix://")
    add("--url", help="URL of the broker, also as -u (default: FOREBAY_URL)")
    add("-h", "--host", action=_Host, nargs="?", metavar="HOST", help="host of the broker, in place of a URL")
    add("-p", "--port", type=_port, help="port of the broker (default: 1883, with TLS 8883, which means TLS)")
    add("--unix", metavar="PATH", help="Unix socket of the broker")
    add(
        "-L",
        "--locator",
        metavar="URL",
        help="user, password, broker and topic in one: mqtt://USER:PASSWORD@HOST:PORT/TOPIC",
    )


def locate(given: argparse.Namespace) -> str | None:
    """Sets the URL, and with ``-L`` the topic and the user; returns what is wrong with the flags, if
    anything."""
    ways = [
        name
        for name, value in (
            ("-L", given.locator),
            ("-h or -p", given.host or given.port),
            ("--unix", given.unix),
            ("a URL", given.url),
        )
        if value
    ]
    if len(ways) > 1:
        return f"the broker's address is given by {' and by '.join(ways)}: give one of them"
    if given.locator:
        return _by_locator(given)
    if given.unix:
        given.url = f"mqtt+unix://{Path(given.unix).absolute()}"
        return "--unix takes no path with a ?" if "?" in given.url else None
    elsewhere = os.environ.get("FOREBAY_URL", "")
    if (
        given.port
        and not given.host
        and protocols.is_url(elsewhere)
        and protocols.of(elsewhere).key == "mqtt"
    ):
        return "-p without -h is for this machine, and FOREBAY_URL names a broker: give -h HOST, too"
    if given.host or given.port:
        host: str = given.host or _LOCAL
        if wrong := _host_problem(host):
            return f"-h {wrong}"
        scheme = "mqtts" if _is_secure(given) or given.port == _SECURE_PORT else "mqtt"
        given.url = _url(scheme, host, given.port)
    else:
        scheme = "mqtts" if _is_secure(given) else "mqtt"
        given.url = given.url or elsewhere or f"{scheme}://{_LOCAL}"
    return None


def _by_locator(given: argparse.Namespace) -> str | None:
    """Reads ``-L``. As in Mosquitto, nothing in it is escaped."""
    scheme, separator, rest = given.locator.partition("://")
    if not separator or scheme not in ("mqtt", "mqtts"):
        return f"{_LOCATOR}, not {_without_user(given.locator)!r}"
    authority, _, topic = rest.partition("/")
    user, at, place = authority.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, ""
    number = None
    if colon and port:
        try:
            number = _port(port)
        except argparse.ArgumentTypeError as error:
            return f"-L: {error}"
    host = host.removeprefix("[").removesuffix("]")
    if wrong := _host_problem(host):
        return f"-L: {wrong}"
    if at:
        name, _, password = user.partition(":")
        given.username = given.username if given.username is not None else name
        if password and given.pw is None:
            given.pw = password
    if topic:
        given.topic = [*given.topic, topic]
    secure = scheme == "mqtts" or _is_secure(given) or number == _SECURE_PORT
    given.url = _url("mqtts" if secure else "mqtt", host, number)
    return None


def _is_secure(given: argparse.Namespace) -> bool:
    return bool(given.cafile or given.cert or given.key or given.insecure or given.tls_alpn)


def _host_problem(host: str) -> str | None:
    if not host or any(letter in "/@?#,[]" or letter.isspace() for letter in host):
        return f"{_without_user(host)!r} is no host name: with a port it is -h HOST -p PORT"
    if host.count(":") == 1:
        name, _, port = host.partition(":")
        return f"{host!r} is a host and a port: write -h {name} -p {port}"
    return None


def _without_user(text: str) -> str:
    """The text as an error may show it: without what stands before an ``@``, which may be a password."""
    return text.rpartition("@")[2]


def _url(scheme: str, host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" if port is None else f"{scheme}://{shown}:{port}"
