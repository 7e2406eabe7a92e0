"""Arguments of ``forebay pub`` and ``forebay sub`` with a Pulsar URL."""

from __future__ import annotations

import argparse
import re
import shlex

from forebay.commands._shared import arguments
from forebay.errors import InvalidArgument

__all__ = ["POSITIONS", "PUB_EXAMPLES", "SUB_EXAMPLES", "broker", "problem", "pub", "sub"]

FORMAT_HELP = (
    "how to print a message: %%s payload, %%S payload size, %%k key, %%t topic, %%p partition, "
    "%%i message id, %%T publish time, %%e event time (ms), %%h properties, %%r redelivery count, "
    "\\n, \\t; default: '%%s\\n'"
)
PUB_EXAMPLES = (
    "forebay pub pulsar://127.0.0.1:6650 orders -m 'a book' -k 42 -p source=till",
    "forebay pub -t orders -l -K : < orders.txt",
    "forebay pub -t orders --frame orders.parquet --key-column id",
    "forebay pub -u pulsar+ssl://broker.example:6651 -X token=file:till.token -t orders -f order.json",
)
SUB_EXAMPLES = (
    "forebay sub pulsar://127.0.0.1:6650 orders -o earliest -e",
    "forebay sub -t orders -s billing -T shared --json",
    "forebay sub --pattern 'orders-.*' -o earliest",
    "forebay sub -t orders --parquet orders.parquet -o 2h",
    "forebay sub -t orders -C 1 -W 5s -F '%i %k %s\\n'",
)
_PLACES = "URL and topic, in place of -u and -t"
POSITIONS = {"earliest": "earliest", "beginning": "earliest", "latest": "latest", "end": "latest"}
"""Words of ``-o``, with what they mean."""


def broker(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay broker``: none, because the broker's own port is Pulsar's."""


def pub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay pub``."""
    arguments.help_flags(command)
    arguments.places(command, _PLACES)
    arguments.connection(command)
    arguments.topics(command, "topic to publish to")
    arguments.source(command)
    arguments.keys(command, "key of the messages")
    arguments.properties(command)
    command.add_argument(
        "-z", "--compression", metavar="CODEC", help="compress with lz4, zlib, zstd or snappy"
    )
    arguments.repeat(command, "-r", "--repeat")
    command.add_argument("--json", action="store_true", help="print the id of each message as JSON")
    arguments.quiet(command, "-q", "--quiet")
    arguments.refuse_mosquitto(command, "Pulsar", sub=False, more=("-D",))


def sub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay sub``."""
    arguments.help_flags(command)
    arguments.places(command, _PLACES)
    arguments.connection(command)
    arguments.topics(command, "topic to read; repeatable")
    add = command.add_argument
    add(
        "--pattern",
        metavar="REGEX",
        help="read all topics of a namespace whose names match, now and later: NAME, TENANT/NAMESPACE/NAME or"
        " persistent://TENANT/NAMESPACE/NAME, in which NAME is a regular expression",
    )
    add(
        "-s",
        "--subscription",
        metavar="NAME",
        help="durable subscription; without it nothing is kept on the broker",
    )
    add("-T", "--type", help="subscription type: exclusive (default), shared, failover or key_shared")
    add(
        "-o",
        "--position",
        metavar="WHERE",
        help="where to begin: earliest (beginning), latest (end, the default) or a message id; without -s"
        " also a time: 2026-11-21T12:00:00Z, milliseconds since 1970, or 2h for a duration back",
    )
    arguments.limits(command, "exit after N messages")
    add("-e", "--exit", action="store_true", help="exit at the current end of the topic")
    arguments.output(command, FORMAT_HELP, "print topic and key before the payload")
    add("--no-ack", action="store_true", help="do not acknowledge the messages")
    arguments.parquet(command)
    arguments.refuse_mosquitto(command, "Pulsar", sub=True)


def problem(given: argparse.Namespace) -> str | None:
    """Why the command cannot start with these arguments; ``None`` if it can."""
    if given.command == "sub":
        from forebay.pulsar._patterns import as_pattern

        if given.position and (wrong := _position_problem(given)):
            return wrong
        if given.subscription is None and (given.no_ack or given.type):
            flag = "--no-ack" if given.no_ack else "-T"
            return f"{flag} needs -s: without a subscription nothing is acknowledged or shared"
        if given.pattern is not None:
            return _pattern_problem(given) or arguments.output_problem(given)
        for topic in given.topic:
            if pattern := as_pattern(topic):
                return (
                    f"{topic!r} looks like a pattern and was given as a name: --pattern"
                    f" {shlex.quote(pattern)} reads all topics that match it"
                )
    return arguments.topic_problem(given)


def reads(given: argparse.Namespace) -> bool:
    """Whether ``sub`` reads without a subscription, which may begin at a time."""
    return given.parquet is not None or (given.subscription is None and given.pattern is None)


def _position_problem(given: argparse.Namespace) -> str | None:
    from .ids import message_ids, start

    try:
        if reads(given):
            start("-o", given.position)
        elif given.position not in POSITIONS:
            message_ids(given.position)
    except InvalidArgument as error:
        words = "" if reads(given) else f"-o is {', '.join(POSITIONS)} or a message id: "
        return f"{words}{error}"
    return None


def _pattern_problem(given: argparse.Namespace) -> str | None:
    if given.topic:
        return "--pattern takes the place of a topic: give one of them"
    try:
        re.compile(given.pattern)
    except re.error as error:
        return f"--pattern {shlex.quote(given.pattern)}: {error}"
    return None
