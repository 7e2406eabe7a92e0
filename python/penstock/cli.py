"""The command line: ``penstock broker | passwd | pub | sub | bench | topic | doctor``.

This module parses the arguments and picks the module of :mod:`penstock.commands` that runs the command. Only
then is the code that does the work imported, so that ``penstock broker`` answers within 300 ms of its start.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import protocols
from .commands._shared.arguments import connection

EPILOG = (
    "Exit status: 1 after an error, 2 for wrong usage, 130 after Ctrl-C. PENSTOCK_URL is the default URL."
)


def parser(protocol: str | None = None) -> argparse.ArgumentParser:
    """All commands and their arguments. ``pub`` and ``sub`` have the flags that users of ``protocol`` know:
    ``-q`` means quiet with Pulsar, but the quality of service with MQTT. Default: the first protocol of the
    registry."""
    top = argparse.ArgumentParser(prog="penstock", description="Messaging at full pressure.", epilog=EPILOG)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    _broker(commands.add_parser("broker", help="run the embedded broker"))
    _passwd(commands.add_parser("passwd", help="manage the MQTT users of the embedded broker", epilog=EPILOG))
    arguments = _module(protocol or _default(), "arguments")
    _, *others = protocols.PROTOCOLS.values()
    helps = ", ".join(f"penstock pub {row.schemes[0]}:// --help" for row in others)
    epilog = f"{EPILOG} The flags depend on the protocol of the URL, see {helps}"
    arguments.pub(commands.add_parser("pub", help="publish messages", epilog=epilog))
    arguments.sub(commands.add_parser("sub", help="print messages", epilog=epilog))
    _bench(commands.add_parser("bench", help="measure throughput and latency", epilog=EPILOG))
    _topic(commands.add_parser("topic", help="list, create, delete or inspect topics", epilog=EPILOG))
    _doctor(commands.add_parser("doctor", help="find out why a connection fails", epilog=EPILOG))
    return top


def _broker(broker: argparse.ArgumentParser) -> None:
    add = broker.add_argument
    add("--data", metavar="DIR", help="folder of the store; without it, messages are kept in memory")
    add(
        "--check",
        action="store_true",
        help="read the whole store of --data, list what is damaged in it, and exit: status 1 if anything is",
    )
    add(
        "--backup",
        metavar="FILE",
        help="copy the store of --data into a new file, while its broker runs or not, and exit",
    )
    add("--host", help="address to listen on (default: 127.0.0.1)")
    add("--port", default="6650", help="port to listen on (default: 6650); 0 picks a free one")
    for protocol in protocols.PROTOCOLS:
        _module(protocol, "arguments").broker(broker)
    add(
        "--http-port",
        metavar="PORT",
        help="port for HTTP: health, metrics, administration; 0 picks a free one",
    )
    add("--durability", help="fsync (default with --data), os, or memory (default without)")
    add("--tls-cert", metavar="FILE", help="certificate chain (PEM); enables TLS")
    add("--tls-key", metavar="FILE", help="private key of the certificate (PEM)")
    add("--token-key", metavar="KEY", help="HS256 key that signs tokens: file:PATH or env:NAME")
    add(
        "--allow-insecure-bind",
        action="store_true",
        help="allow addresses other than loopback without TLS and tokens",
    )
    add("--max-store", metavar="SIZE", help="size limit of the store, such as 10GiB; then publishing fails")
    add(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[=PARTITIONS]",
        help="create this topic if it does not exist; tubemq:NAME is a TubeMQ topic; repeatable",
    )
    add(
        "-X",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set any other option of penstock.Broker, such as retention=1h; repeatable",
    )
    add("--json", action="store_true", help="print the URLs as one line of JSON")
    add("-q", "--quiet", action="store_true", help="print nothing")


def _passwd(passwd: argparse.ArgumentParser) -> None:
    add = passwd.add_argument
    add("file", metavar="FILE", help="the password file (--mqtt-password-file); created if it does not exist")
    add("user", metavar="USER", help="user to add, or whose password to change")
    add("-b", "--password", help="the password; without it, it is asked for or read from standard input")
    add("-D", "--delete", action="store_true", help="delete the user")


def _bench(bench: argparse.ArgumentParser) -> None:
    connection(bench, default="embedded:")
    add = bench.add_argument
    add("-t", "--topic", help="topic to use (default: a new one)")
    add("-n", "--messages", type=int, default=200_000, help="messages in each case (default: 200000)")
    add("-s", "--size", type=int, default=100, help="bytes in each message (default: 100)")
    add("-w", "--window", type=int, default=1000, help="messages in flight (default: 1000)")
    add("--qos", type=int, choices=(0, 1, 2), help="with MQTT, quality of service (default: 1)")
    add("-z", "--compression", metavar="CODEC", help="compress with lz4, zlib, zstd or snappy")
    add("--json", action="store_true", help="print the figures as JSON")
    add("-q", "--quiet", action="store_true", help="show no progress")


def _topic(topic: argparse.ArgumentParser) -> None:
    actions = topic.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("ls", "list the topics of a namespace"),
        ("create", "create a topic"),
        ("rm", "delete a topic and its messages"),
        ("grow", "add partitions to a partitioned topic of Pulsar"),
        ("terminate", "end a topic of Pulsar for good: it takes no more messages"),
        ("stats", "show the content and the subscriptions of a topic"),
    ):
        action = actions.add_parser(name, help=text)
        connection(action)
        add = action.add_argument
        add("--data", metavar="DIR", help="use the store of an embedded broker that is not running")
        add(
            "--admin", metavar="URL", help="use the administration of a Pulsar, such as http://127.0.0.1:8080"
        )
        add("--json", action="store_true", help="print JSON")
        if name == "ls":
            add(
                "namespace",
                nargs="?",
                default="public/default",
                help="namespace (default: public/default); with --data, tubemq: lists the TubeMQ topics",
            )
        else:
            add("topic", help="name of the topic")
        if name == "create":
            add("-p", "--partitions", type=int, default=0, help="partitions; 0 makes a plain topic (default)")
        if name == "grow":
            add("-p", "--partitions", type=int, required=True, help="partitions that it has then")


def _doctor(doctor: argparse.ArgumentParser) -> None:
    add = doctor.add_argument
    add("address", nargs="?", metavar="URL", help="URL to connect to, in place of -u")
    connection(doctor)
    add("-t", "--topic", help="with TubeMQ, topic to use if the server does not create topics itself")
    add("--json", action="store_true", help="print the findings as JSON")


def _module(protocol: str, name: str) -> Any:
    return importlib.import_module(f"{protocols.PROTOCOLS[protocol].commands}.{name}")


def _default() -> str:
    return next(iter(protocols.PROTOCOLS))


def _protocol(words: list[str]) -> str:
    """The protocol of the URL, which has to be known before the other flags can be parsed. ``-u URL`` becomes
    ``--url URL``, because ``-u`` is the user with MQTT."""
    for at, word in enumerate(words[1:], 1):
        before = words[at - 1]
        if word.startswith("--url="):
            return _protocol_of(word.removeprefix("--url="))
        if before == "--url" or (before in ("pub", "sub") and at == 1 and "://" in word):
            return _protocol_of(word)
        if before == "-u" and "://" in word:
            words[at - 1] = "--url"
            return _protocol_of(word)
    return _protocol_of(os.environ.get("PENSTOCK_URL", ""))


def _protocol_of(url: str) -> str:
    # A command of the first protocol explains what is wrong with an unknown scheme.
    return protocols.of(url).key if protocols.is_url(url) else _default()


def _take_places(given: Any, rest: list[str]) -> list[str]:
    """Assigns the URL and topics that were given as positional arguments; returns the remaining words."""
    # Those after the first flag are reported as unknown.
    places: list[str] = [*given.places, *(word for word in rest if not word.startswith("-"))]
    if places and protocols.is_url(places[0]):
        given.url = places.pop(0)
    given.topic = [*given.topic, *places]
    return [word for word in rest if word.startswith("-")]


def _parse(words: list[str], protocol: str) -> tuple[argparse.ArgumentParser, Any, list[str]]:
    """The parser, the arguments, and the words that it does not know."""
    top = parser(protocol)
    given, rest = top.parse_known_args(words)
    if hasattr(given, "places"):
        rest = _take_places(given, rest)
    return top, given, rest


def _run_of(given: Any, protocol: str) -> Callable[[Any], int]:
    """The function that runs the command."""
    if given.command == "broker":
        return importlib.import_module(f"{__package__}.commands.broker").run
    if given.command == "passwd":
        return _module("mqtt", "passwd").run
    if given.command not in ("pub", "sub"):
        protocol = _protocol_of((given.command == "doctor" and given.address) or given.url)
    return _module(protocol, given.command).run


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    publishes_or_subscribes = words[:1] in (["pub"], ["sub"])
    protocol = _protocol(words) if publishes_or_subscribes else _default()
    top, given, rest = _parse(words, protocol)
    if publishes_or_subscribes:
        if (spoken := _protocol_of(given.url or "")) != protocol:
            # A URL after the first flag: only now is it known whose flags they are.
            protocol = spoken
            top, given, rest = _parse(words, protocol)
        problem = _module(protocol, "arguments").problem(given)
        if problem:
            top.error(problem)
    if rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if given.version:
        from . import __version__

        print(f"penstock {__version__}")
        return 0
    if given.command is None:
        top.print_help()
        return 2
    from .errors import Error

    try:
        return _run_of(given, protocol)(given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has seen enough. Without this the interpreter would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Error as error:
        print(f"penstock: {error.code}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
