"""Arguments of ``penstock pub`` and ``penstock sub`` with a Pulsar URL."""

from __future__ import annotations

import argparse

from penstock.commands._shared import arguments
from penstock.commands._shared.arguments import topic_problem as problem

__all__ = ["PUB_EXAMPLES", "SUB_EXAMPLES", "broker", "problem", "pub", "sub"]

FORMAT_HELP = (
    "how to print a message: %%s payload, %%S payload size, %%k key, %%t topic, %%p partition, "
    "%%i message id, %%T publish time, %%e event time (ms), %%h properties, %%r redelivery count, "
    "\\n, \\t; default: '%%s\\n'"
)
PUB_EXAMPLES = (
    "penstock pub pulsar://127.0.0.1:6650 orders -m 'a book' -k 42 -p source=till",
    "penstock pub -t orders -l -K : < orders.txt",
    "penstock pub -t orders --frame orders.parquet --key-column id",
    "penstock pub -u pulsar+ssl://broker.example:6651 -X token=file:till.token -t orders -f order.json",
)
SUB_EXAMPLES = (
    "penstock sub pulsar://127.0.0.1:6650 orders -o earliest -e",
    "penstock sub -t orders -s billing -T shared --json",
    "penstock sub -t orders --parquet orders.parquet -o 2h",
    "penstock sub -t orders -C 1 -W 5s -F '%i %k %s\\n'",
)
_PLACES = "URL and topic, in place of -u and -t"


def broker(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock broker``: none, because the broker's own port is Pulsar's."""


def pub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock pub``."""
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
    """Adds the arguments of ``penstock sub``."""
    arguments.help_flags(command)
    arguments.places(command, _PLACES)
    arguments.connection(command)
    arguments.topics(command, "topic to read; repeatable")
    add = command.add_argument
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
        help="where to begin: earliest (beginning), latest (end, the default) or a message id",
    )
    arguments.limits(command, "exit after N messages")
    add("-e", "--exit", action="store_true", help="exit at the current end of the topic")
    arguments.output(command, FORMAT_HELP, "print topic and key before the payload")
    add("--no-ack", action="store_true", help="do not acknowledge the messages")
    arguments.parquet(command)
    arguments.refuse_mosquitto(command, "Pulsar", sub=True)
