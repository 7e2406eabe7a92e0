"""The commands of ``penstock`` and their arguments, but for those of ``pub``, ``sub`` and ``rr``, which are
beside the commands of each protocol."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock import protocols

from ._shared.arguments import connection, described

if TYPE_CHECKING:
    from ._shared.arguments import Commands

EXIT_STATUS = "Exit status: 1 after an error, 2 for wrong usage, 130 after Ctrl-C."
EPILOG = f"{EXIT_STATUS} PENSTOCK_URL is the default URL."
SHELLS = ("bash", "zsh", "fish")
EXAMPLES = {
    "broker": (
        "penstock broker --port 6650 --mqtt-port 1883 --topic orders=4",
        "penstock broker --data /var/lib/penstock --token-key file:token.key -X retention=1h",
        "penstock broker --config /etc/penstock/broker.toml",
        "penstock broker --data /var/lib/penstock --check",
    ),
    "passwd": ("penstock passwd users.txt till", "penstock passwd -D users.txt till"),
    "token": (
        "penstock token create-key token.key",
        "penstock token create --key file:token.key --subject till --expires 30d",
        "penstock token show --key file:token.key file:till.token",
    ),
    "bench": ("penstock bench -n 100000", "penstock bench -u mqtt://127.0.0.1:1883 --qos 1 --json"),
    "topic": (
        "penstock topic ls --admin http://127.0.0.1:8080",
        "penstock topic create orders -p 4 --data ./data",
        "penstock topic stats orders --data ./data --json",
    ),
    "doctor": ("penstock doctor mqtts://broker.example:8883 -X tls_ca=ca.pem",),
    "completion": (
        "penstock completion bash > ~/.local/share/bash-completion/completions/penstock",
        "penstock completion zsh > ~/.zfunc/_penstock",
        "penstock completion fish > ~/.config/fish/completions/penstock.fish",
    ),
}
"""Examples at the end of each help. Those of ``pub``, ``sub`` and ``rr`` are beside their arguments."""


def add(commands: Commands, name: str, text: str) -> None:
    """Adds a command with the arguments of the function of its name."""
    command = described(commands, name, text, EXAMPLES[name], EPILOG)
    globals()[name](command)


def broker(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock broker``."""
    add = command.add_argument
    add(
        "--config",
        metavar="FILE",
        help="options in TOML, and a [[listener]] for each of its listeners; environment variables such as"
        " PENSTOCK_BROKER_RETENTION win over it, and flags over both",
    )
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
    add("--port", help="port for Pulsar (default: 6650); 0 picks a free one, off speaks no Pulsar")
    for row in protocols.PROTOCOLS.values():
        row.module("arguments").broker(command)
    add(
        "--http-port",
        metavar="PORT",
        help="port for HTTP: health, metrics, administration; 0 picks a free one",
    )
    add("--durability", help="fsync (default with --data), os, or memory (default without)")
    add("--tls-cert", metavar="FILE", help="certificate chain (PEM); enables TLS")
    add("--tls-key", metavar="FILE", help="private key of the certificate (PEM)")
    add(
        "--tls-client-ca",
        metavar="FILE",
        help="authorities of the clients' certificates (PEM); each needs one, which names its user",
    )
    add("--token-key", metavar="KEY", help="HS256 key that signs tokens: file:PATH or env:NAME")
    add(
        "--allow-anonymous",
        action="store_true",
        default=None,
        help="admit clients without credentials, also from other machines",
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
        help="set any other option of penstock.Broker, such as retention=1h; repeatable; -X help lists them",
    )
    add("--json", action="store_true", help="print the URLs as one line of JSON")
    add("-q", "--quiet", action="store_true", help="print nothing")


def passwd(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock passwd``."""
    add = command.add_argument
    add("file", metavar="FILE", help="the password file (--mqtt-password-file); created if it does not exist")
    add("user", metavar="USER", help="user to add, or whose password to change")
    add("-b", "--password", help="the password; without it, it is asked for or read from standard input")
    add("-D", "--delete", action="store_true", help="delete the user")


def bench(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock bench``."""
    connection(command, default="embedded:")
    add = command.add_argument
    add("-t", "--topic", help="topic to use (default: a new one)")
    add("-n", "--messages", type=int, default=200_000, help="messages in each case (default: 200000)")
    add("-s", "--size", type=int, default=100, help="bytes in each message (default: 100)")
    add("-w", "--window", type=int, default=1000, help="messages in flight (default: 1000)")
    add("--qos", type=int, choices=(0, 1, 2), help="with MQTT, quality of service (default: 1)")
    add("-z", "--compression", metavar="CODEC", help="compress with lz4, zlib, zstd or snappy")
    add("--json", action="store_true", help="print the figures as JSON")
    add("-q", "--quiet", action="store_true", help="show no progress")


def topic(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock topic``."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("ls", "list the topics of a namespace"),
        ("create", "create a topic"),
        ("rm", "delete a topic and its messages"),
        ("grow", "add partitions to a partitioned topic of Pulsar"),
        ("terminate", "end a topic of Pulsar for good: it takes no more messages"),
        ("stats", "show the content and the subscriptions of a topic"),
    ):
        action = described(actions, name, text, (), EPILOG)
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


def doctor(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock doctor``."""
    add = command.add_argument
    add("address", nargs="?", metavar="URL", help="URL to connect to, in place of -u")
    connection(command)
    add("-t", "--topic", help="with TubeMQ, topic to use if the server does not create topics itself")
    add("--json", action="store_true", help="print the findings as JSON")


def token(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock token``."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    create_key = described(
        actions, "create-key", "make a key for --token-key", EXAMPLES["token"][:1], EXIT_STATUS
    )
    create_key.add_argument("file", metavar="FILE", help="a new file, which only its owner may read")
    create = described(actions, "create", "sign a token, and print it", EXAMPLES["token"][1:2], EXIT_STATUS)
    add = create.add_argument
    add("--key", metavar="KEY", required=True, help="key of the broker's --token-key: file:PATH or env:NAME")
    add("--subject", metavar="NAME", required=True, help="whose token it is")
    add("--expires", metavar="DURATION", help="how long it is valid, such as 30d or 12h (default: forever)")
    add("--not-before", metavar="DURATION", help="how long from now until it becomes valid, such as 1h")
    add("--output", metavar="FILE", help="write it into a new file, which only its owner may read")
    show = described(
        actions,
        "show",
        "show what a token says, and whether it is valid",
        EXAMPLES["token"][2:],
        f"Exit status 1 if the broker would refuse it. {EXIT_STATUS}",
    )
    add = show.add_argument
    add("token", metavar="TOKEN", help="the token: file:PATH, env:NAME, - for standard input, or its text")
    add("--key", metavar="KEY", help="checks the signature with this key: file:PATH or env:NAME")
    for action in (create_key, create, show):
        action.add_argument("--json", action="store_true", help="print JSON")


def completion(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``penstock completion``."""
    command.add_argument("shell", choices=SHELLS, help="the shell to write a completion script for")
