"""Arguments of ``penstock pub`` and ``penstock sub`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.commands.mqtt.arguments import refuse

FORMAT_HELP = (
    "what to print: %%s payload, %%S its bytes, %%k key, %%m message type, %%t topic, %%b broker, "
    "%%p partition, %%o offset, %%i position, %%e event time (ms), %%h properties, %%r redelivery count, "
    "\\n, \\t; default '%%s\\n'"
)
_ONLY_MQTT = (
    *("--qos", "-i", "--id", "-P", "--pw", "--username", "-V", "--protocol-version", "-c", "-x"),
    *("--keepalive", "--will-topic", "--will-payload", "--will-qos", "--will-retain", "-D"),
)
Connection = Callable[[argparse.ArgumentParser], None]


def pub(command: argparse.ArgumentParser, connection: Connection) -> None:
    """Arguments of ``penstock pub``; ``connection`` adds those that say where to connect."""
    add = command.add_argument
    add("places", nargs="*", metavar="[URL] [TOPIC]", help="in place of -u and -t: tubemq://MASTER[,MASTER]")
    connection(command)
    add("-t", "--topic", action="append", default=[], help="where to publish")
    source = command.add_mutually_exclusive_group()
    source.add_argument("-m", "--message", action="append", metavar="TEXT", help="this text; repeatable")
    source.add_argument("-f", "--file", action="append", metavar="FILE", help="this file; repeatable")
    source.add_argument("-l", "--lines", action="store_true", help="each line of standard input")
    source.add_argument("-s", "--stdin", action="store_true", help="all of standard input as one message")
    add("-k", "--key", help="key of the messages: the same key, the same partition")
    add("-K", "--key-separator", metavar="SEP", help="with -l: the key is what stands before SEP")
    add("-p", "--property", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    add("-T", "--message-type", metavar="TYPE", help="what filters name")
    add("-E", "--event-time", metavar="WHEN", help="ISO 8601 with a zone, or ms since 1970; to the minute")
    add("-r", "--repeat", type=int, default=1, metavar="N", help="send -m or -f this many times")
    add("--json", action="store_true", help="print where each message is as JSON")
    add("-q", "--quiet", action="store_true", help="no progress, no summary")
    command.set_defaults(null=False)
    refuse(command, ["-n", "--null"], "a message of TubeMQ is not empty, hence no {}")
    refuse(command, ["-z", "--compression"], "TubeMQ has no compression, hence no {}")
    _refuse_mqtt(command, "--retain")


def sub(command: argparse.ArgumentParser, connection: Connection) -> None:
    """Arguments of ``penstock sub``; as :func:`pub`."""
    add = command.add_argument
    add("places", nargs="*", metavar="[URL] [TOPIC]", help="in place of -u and -t: tubemq://MASTER[,MASTER]")
    connection(command)
    add("-t", "--topic", action="append", default=[], help="where to read; repeatable")
    add("-s", "--subscription", metavar="GROUP", help="consumer group, needed: brokers keep its offsets")
    add("-T", "--message-type", action="append", metavar="TYPE", help="only these; repeatable")
    add(
        "-o",
        "--position",
        metavar="WHERE",
        help="where a new group begins: first (earliest, beginning), latest (end, the default); max: the end "
        "in any case; or BROKER:PARTITION:OFFSET[,...]",
    )
    add(
        "-C",
        "--count",
        type=int,
        metavar="N",
        help="end after N messages; what remains of a pack comes again",
    )
    add("-W", "--timeout", metavar="SECONDS", help="end after this time; status 27 if -C is not reached")
    add("-e", "--exit", action="store_true", help="end where this member's partitions end now")
    add("-F", "--format", metavar="FORMAT", help=FORMAT_HELP)
    add("-v", "--verbose", action="store_true", help="topic and key before the payload")
    add("-N", "--no-newline", action="store_true", help="nothing after the payload")
    add("--no-ack", action="store_true", help="leave the group where it is; one pack of each partition comes")
    add("--json", action="store_true", help="one JSON object per message")
    refuse(
        command, ["--type"], "TubeMQ has no subscription types, hence no {}: a group shares the partitions"
    )
    _refuse_mqtt(command, "-q", "-R", "--no-retained", "--retained-only", "-E", "--filter-out")


def _refuse_mqtt(command: argparse.ArgumentParser, *more: str) -> None:
    refuse(command, (*_ONLY_MQTT, *more), "TubeMQ has no {}; it is for MQTT URLs")
    user = ("--user", "--password")
    refuse(command, user, "there is no {}; use -X username=NAME, -X password=env:NAME")
    tls = ("--cafile", "--cert", "--insecure", "--tls-alpn")
    refuse(command, tls, "{} is for MQTT URLs; use -X tls_ca=FILE, tls_cert=FILE, tls_key=FILE")
