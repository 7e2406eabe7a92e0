"""Arguments of ``forebay pub`` and ``forebay sub`` with a TubeMQ URL."""

from __future__ import annotations

import argparse

from forebay._core import protocols
from forebay.commands._shared import arguments
from forebay.errors import InvalidArgument

FORMAT_HELP = (
    "how to print a message: %%s payload, %%S payload size, %%k key, %%m message type, %%t topic, "
    "%%b broker, %%p partition, %%o offset, %%i position, %%e event time (ms), %%h properties, "
    "%%r redelivery count, \\n, \\t; default: '%%s\\n'"
)
PUB_EXAMPLES = (
    "forebay pub tubemq://127.0.0.1:8715 orders -m 'a book' -T paid",
    "forebay pub -u tubemq://127.0.0.1:8715 -t orders -l -K : < orders.txt",
)
SUB_EXAMPLES = (
    "forebay sub tubemq://127.0.0.1:8715 orders -s billing",
    "forebay sub -u tubemq://127.0.0.1:8715 -t orders -s audit -o first -e --json",
)
_PLACES = "URL and topic, in place of -u and -t: tubemq://MASTER[,MASTER]"


def broker(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay broker``."""
    add = command.add_argument
    add("--tubemq-port", metavar="PORT", help="port for TubeMQ; 0 picks a free one")
    add("--tubemq-user-file", metavar="FILE", help="TubeMQ users, a line name:password for each")


def pub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay pub``."""
    arguments.help_flags(command)
    arguments.places(command, _PLACES)
    arguments.connection(command)
    arguments.topics(command, "topic to publish to")
    arguments.source(command, null=None)
    arguments.keys(command, "key of the messages; messages with the same key go to the same partition")
    arguments.properties(command)
    add = command.add_argument
    add("-T", "--message-type", metavar="TYPE", help="message type, by which consumers can filter")
    add(
        "-E",
        "--event-time",
        metavar="WHEN",
        help="event time: ISO 8601 with a time zone, or milliseconds since 1970; kept to the minute",
    )
    arguments.repeat(command, "-r", "--repeat")
    add("--json", action="store_true", help="print the position of each message as JSON")
    arguments.quiet(command, "-q", "--quiet")
    arguments.refuse(command, ["-n", "--null"], "a TubeMQ message is never empty, so {} is not supported")
    arguments.refuse(command, ["-z", "--compression"], "TubeMQ has no compression, so {} is not supported")
    _refuse_mqtt(command, sub=False)


def sub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay sub``."""
    arguments.help_flags(command)
    arguments.places(command, _PLACES)
    arguments.connection(command)
    arguments.topics(command, "topic to read; repeatable")
    add = command.add_argument
    add(
        "-s",
        "--subscription",
        metavar="GROUP",
        help="consumer group (required); the brokers keep its offsets",
    )
    add(
        "-T",
        "--message-type",
        action="append",
        metavar="TYPE",
        help="print only messages of this type; repeatable",
    )
    add(
        "-o",
        "--position",
        metavar="WHERE",
        help="where a new group begins: first (earliest, beginning) or latest (end, the default); "
        "max: at the end even if the group exists; or BROKER:PARTITION:OFFSET[,...]",
    )
    arguments.limits(command, "exit after N messages; the rest of a pack is delivered again")
    add("-e", "--exit", action="store_true", help="exit at the current end of this member's partitions")
    arguments.output(command, FORMAT_HELP, "print topic and key before the payload")
    add(
        "--no-ack",
        action="store_true",
        help="do not acknowledge, so the group stays where it is; delivers one pack of each partition",
    )
    command.add_argument(
        "--parquet",
        metavar="FILE",
        help="write what the topics have now into a file, from -o on, the beginning by default, at most -C"
        " messages; no group is used; needs pyarrow",
    )
    command.set_defaults(decode=False)
    arguments.refuse(
        command,
        ["--type"],
        "TubeMQ has no subscription types, so {} is not supported: a group shares the partitions",
    )
    _refuse_mqtt(command, sub=True)


def _refuse_mqtt(command: argparse.ArgumentParser, *, sub: bool) -> None:
    arguments.refuse_mosquitto(command, "TubeMQ", sub=sub, more=("-D",))
    user = ("--user", "--password")
    arguments.refuse(command, user, "there is no {}; use -X username=NAME, -X password=env:NAME")


def problem(given: argparse.Namespace) -> str | None:
    """Why the command cannot start with these arguments; ``None`` if it can."""
    if given.command == "sub" and given.topic and not given.subscription and given.parquet is None:
        return (
            "a consumer group is needed: -s GROUP; brokers keep its offsets, and its members share the topic"
        )
    if given.command == "sub" and given.position and (wrong := _position_problem(given)):
        return wrong
    return arguments.topic_problem(given)


def _position_problem(given: argparse.Namespace) -> str | None:
    from .peek import start
    from .sub import position

    try:
        if given.parquet is not None:
            start(given.topic, given.position)
        else:
            protocols.table("tubemq.consumer")["position"].parse(position(given.position))
    except (InvalidArgument, ValueError) as error:
        text = str(error)
        return text if text.startswith("-o ") else f"-o, the position: {text}"
    return None
