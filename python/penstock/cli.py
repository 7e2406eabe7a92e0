"""The command line: ``penstock broker | passwd | pub | sub | bench | topic | doctor``.

This file holds the arguments only. What a command needs is imported when it runs, so that ``penstock broker``
answers within 300 ms of the start of its process.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

DEFAULT_URL = "pulsar://127.0.0.1:6650"

SCHEMES = {
    **dict.fromkeys(("mqtt://", "mqtts://", "ws://", "wss://", "mqtt+unix://"), "mqtt"),
    **dict.fromkeys(("tubemq://", "tubemq+ssl://"), "tubemq"),
}
"""Of the URLs with which ``pub`` and ``sub`` have flags of their own."""
EPILOG = "Status: 1 after an error, 2 for wrong usage, 130 after Ctrl-C. PENSTOCK_URL names the broker."
PUB_SUB_EPILOG = (
    f"{EPILOG} With an MQTT URL the flags are those of mosquitto: penstock pub mqtt:// --help. "
    "Those with a TubeMQ URL: penstock pub tubemq:// --help"
)
FORMAT_HELP = (
    "what to print: %%s payload, %%S its bytes, %%k key, %%t topic, %%p partition, %%i id, %%T publish time, "
    "%%e event time (ms), %%h properties, %%r redelivery count, \\n, \\t; default '%%s\\n'"
)


def parser(protocol: str = "pulsar") -> argparse.ArgumentParser:
    """All commands and their arguments. Those of ``pub`` and ``sub`` are what the users of the protocol know:
    ``-q`` is quiet with Pulsar, but the quality of service with MQTT."""
    top = argparse.ArgumentParser(prog="penstock", description="Messaging at full pressure.", epilog=EPILOG)
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    broker = commands.add_parser("broker", help="run the embedded broker")
    broker.add_argument("--data", metavar="DIR", help="folder of the store; without it all is in memory")
    broker.add_argument("--host", help="address to listen on (127.0.0.1)")
    broker.add_argument("--port", default="6650", help="port to listen on (6650); 0: any free one")
    broker.add_argument("--mqtt-port", metavar="PORT", help="port for MQTT; 0: any free one")
    broker.add_argument("--mqtt-ws-port", metavar="PORT", help="port for MQTT over WebSocket, path /mqtt")
    broker.add_argument("--mqtt-password-file", metavar="FILE", help="users, as mosquitto_passwd writes them")
    broker.add_argument("--tubemq-port", metavar="PORT", help="port for TubeMQ; 0: any free one")
    broker.add_argument("--tubemq-user-file", metavar="FILE", help="users: a line name:password for each")
    broker.add_argument("--durability", help="fsync (with --data), os, or memory (without)")
    broker.add_argument("--tls-cert", metavar="FILE", help="certificate chain (PEM)")
    broker.add_argument("--tls-key", metavar="FILE", help="its private key (PEM)")
    broker.add_argument("--token-key", metavar="KEY", help="HS256 key of tokens: file:PATH or env:NAME")
    broker.add_argument(
        "--allow-insecure-bind", action="store_true", help="other addresses without TLS and tokens"
    )
    broker.add_argument(
        "--max-store", metavar="SIZE", help="bytes on disk, as 10GiB; then producers get an error"
    )
    broker.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[=PARTITIONS]",
        help="create this topic unless it is there, tubemq:NAME one of TubeMQ; repeatable",
    )
    broker.add_argument(
        "-X",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of penstock.Broker: -X retention=1h; repeatable",
    )
    broker.add_argument("--json", action="store_true", help="say the URL as one line of JSON")
    broker.add_argument("-q", "--quiet", action="store_true", help="say nothing")

    passwd = commands.add_parser("passwd", help="users of the embedded broker's MQTT", epilog=EPILOG)
    passwd.add_argument("file", metavar="FILE", help="what --mqtt-password-file names; made if need be")
    passwd.add_argument("user", metavar="USER", help="to be added, or given another password")
    passwd.add_argument("-b", "--password", help="the password; without it asked for, or a line of stdin")
    passwd.add_argument("-D", "--delete", action="store_true", help="take the user out")

    pub = commands.add_parser("pub", help="publish messages", epilog=PUB_SUB_EPILOG)
    sub = commands.add_parser("sub", help="print messages", epilog=PUB_SUB_EPILOG)
    if protocol == "mqtt":
        from .commands.mqtt import arguments

        arguments.pub(pub)
        arguments.sub(sub)
    elif protocol == "tubemq":
        from .commands.tubemq import arguments

        arguments.pub(pub, _connection)
        arguments.sub(sub, _connection)
    else:
        _pub(pub)
        _sub(sub)

    bench = commands.add_parser("bench", help="measure throughput and latency", epilog=EPILOG)
    _connection(bench, default="embedded:")
    bench.add_argument("-t", "--topic", help="topic to use; default: a new one")
    bench.add_argument("-n", "--messages", type=int, default=200_000, help="messages per case (200000)")
    bench.add_argument("-s", "--size", type=int, default=100, help="bytes per message (100)")
    bench.add_argument("-w", "--window", type=int, default=1000, help="messages in flight (1000)")
    bench.add_argument("--qos", type=int, choices=(0, 1, 2), help="with MQTT: quality of service (1)")
    bench.add_argument("-z", "--compression", metavar="CODEC", help="lz4, zlib, zstd or snappy")
    bench.add_argument("--json", action="store_true", help="the figures as JSON")
    bench.add_argument("-q", "--quiet", action="store_true", help="no progress")

    topic = commands.add_parser("topic", help="list, create, delete, inspect topics", epilog=EPILOG)
    actions = topic.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("ls", "list the topics of a namespace"),
        ("create", "create a topic"),
        ("rm", "delete a topic with all that is in it"),
        ("stats", "what is in a topic and who reads it"),
    ):
        action = actions.add_parser(name, help=text)
        _connection(action)
        action.add_argument(
            "--data", metavar="DIR", help="the store of an embedded broker that is not running"
        )
        action.add_argument(
            "--admin", metavar="URL", help="administration of a Pulsar: http://127.0.0.1:8080"
        )
        action.add_argument("--json", action="store_true", help="as JSON")
        if name == "ls":
            action.add_argument(
                "namespace", nargs="?", default="public/default", help="public/default; tubemq: with --data"
            )
        else:
            action.add_argument("topic", help="its name")
        if name == "create":
            action.add_argument("-p", "--partitions", type=int, default=0, help="0 makes a plain topic")

    doctor = commands.add_parser("doctor", help="find out why a connection does not work", epilog=EPILOG)
    doctor.add_argument("address", nargs="?", metavar="URL", help="what to connect to")
    _connection(doctor)
    doctor.add_argument("-t", "--topic", help="with TubeMQ: topic to use, where none comes into being")
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    return top


def _pub(pub: argparse.ArgumentParser) -> None:
    pub.add_argument("places", nargs="*", metavar="[URL] [TOPIC]", help="in place of -u and -t")
    _connection(pub)
    pub.add_argument("-t", "--topic", action="append", default=[], help="where to publish")
    source = pub.add_mutually_exclusive_group()
    source.add_argument("-m", "--message", action="append", metavar="TEXT", help="this text; repeatable")
    source.add_argument("-f", "--file", action="append", metavar="FILE", help="this file; repeatable")
    source.add_argument("-l", "--lines", action="store_true", help="each line of standard input")
    source.add_argument("-s", "--stdin", action="store_true", help="all of standard input as one message")
    source.add_argument("-n", "--null", action="store_true", help="a message without payload")
    pub.add_argument("-k", "--key", help="key of the messages")
    pub.add_argument(
        "-K", "--key-separator", metavar="SEP", help="with -l: the key is what stands before SEP"
    )
    pub.add_argument("-p", "--property", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    pub.add_argument("-z", "--compression", metavar="CODEC", help="lz4, zlib, zstd or snappy")
    pub.add_argument("-r", "--repeat", type=int, default=1, metavar="N", help="send -m or -f this many times")
    pub.add_argument("--json", action="store_true", help="print the id of each message as JSON")
    pub.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    _refuse_mqtt(pub, "--retain", "-D")


def _sub(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("places", nargs="*", metavar="[URL] [TOPIC]", help="in place of -u and -t")
    _connection(sub)
    sub.add_argument("-t", "--topic", action="append", default=[], help="where to read; repeatable")
    sub.add_argument(
        "-s", "--subscription", metavar="NAME", help="durable subscription; without it nothing stays"
    )
    sub.add_argument("-T", "--type", help="exclusive (default), shared, failover or key_shared")
    sub.add_argument(
        "-o",
        "--position",
        metavar="WHERE",
        help="earliest (beginning), latest (end, the default) or a message id",
    )
    sub.add_argument("-C", "--count", type=int, metavar="N", help="end after N messages")
    sub.add_argument(
        "-W", "--timeout", metavar="SECONDS", help="end after this time; status 27 if -C is not reached"
    )
    sub.add_argument("-e", "--exit", action="store_true", help="end where the topic ends now")
    sub.add_argument("-F", "--format", metavar="FORMAT", help=FORMAT_HELP)
    sub.add_argument("-v", "--verbose", action="store_true", help="topic and key before the payload")
    sub.add_argument("-N", "--no-newline", action="store_true", help="nothing after the payload")
    sub.add_argument("--no-ack", action="store_true", help="leave the messages in the subscription")
    sub.add_argument("--json", action="store_true", help="one JSON object per message")
    _refuse_mqtt(sub, "-q", "-R", "--no-retained", "--retained-only", "-E", "--filter-out")


def _refuse_mqtt(command: argparse.ArgumentParser, *more: str) -> None:
    from .commands.mqtt.arguments import refuse

    names = (
        *("--qos", "-i", "--id", "-P", "--pw", "--username", "-V", "--protocol-version", "-c", "-x"),
        *("--keepalive", "--will-topic", "--will-payload", "--will-qos", "--will-retain"),
    )
    refuse(command, (*names, *more), "Pulsar has no {}; it is for MQTT URLs")
    tls = ("--cafile", "--cert", "--insecure", "--tls-alpn")
    refuse(command, tls, "{} is for MQTT URLs; use -X tls_ca=FILE, tls_cert=FILE, tls_key=FILE")


def _connection(command: argparse.ArgumentParser, default: str | None = None) -> None:
    command.add_argument(
        "-u",
        "--url",
        default=os.environ.get("PENSTOCK_URL") or default or DEFAULT_URL,
        help=f"broker (PENSTOCK_URL or {default or DEFAULT_URL})",
    )
    command.add_argument(
        "-X",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of client, producer or consumer: -X token=file:token.txt; repeatable",
    )


def _protocol(words: list[str]) -> str:
    """What the URL speaks: it is known before the other flags have a meaning. ``-u URL`` becomes
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
    return next((protocol for scheme, protocol in SCHEMES.items() if url.startswith(scheme)), "pulsar")


def _take_places(given: Any, rest: list[str]) -> list[str]:
    """URL and topics that stand alone; gives what remains unknown."""
    from .options import is_url

    # Those after the first flag come as unknown ones.
    places: list[str] = [*given.places, *(word for word in rest if not word.startswith("-"))]
    if places and is_url(places[0]):
        given.url = places.pop(0)
    given.topic = [*given.topic, *places]
    return [word for word in rest if word.startswith("-")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    publishes_or_subscribes = words[:1] in (["pub"], ["sub"])
    protocol = _protocol(words) if publishes_or_subscribes else "pulsar"
    top = parser(protocol)
    given, rest = top.parse_known_args(words)
    if publishes_or_subscribes:
        rest = _take_places(given, rest)
        if not given.topic:
            top.error("a topic is needed: -t TOPIC")
        if protocol == "tubemq" and given.command == "sub" and not given.subscription:
            top.error(
                "a consumer group is needed: -s GROUP; brokers keep its offsets, its members share the topic"
            )
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
        if given.command == "broker":
            from .commands.broker import run
        elif given.command == "passwd":
            from .commands.passwd import run
        elif protocol == "mqtt" and given.command == "pub":
            from .commands.mqtt.pub import run
        elif protocol == "mqtt":
            from .commands.mqtt.sub import run
        elif protocol == "tubemq" and given.command == "pub":
            from .commands.tubemq.pub import run
        elif protocol == "tubemq":
            from .commands.tubemq.sub import run
        elif given.command == "pub":
            from .commands.pub import run
        elif given.command == "sub":
            from .commands.sub import run
        elif given.command == "bench":
            from .commands.bench import run
        elif given.command == "topic":
            from .commands.topic import run
        else:
            from .commands.doctor import run
        return run(given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Error as error:
        print(f"penstock: {error.code}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
