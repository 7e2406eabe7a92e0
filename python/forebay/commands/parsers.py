"""The commands of ``forebay`` and their arguments, but for those of ``pub``, ``sub`` and ``rr``, which are
beside the commands of each protocol."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from forebay._core import protocols

from ._shared.arguments import connection, described, places, setting
from ._shared.options import FORMS
from .pulsar import admin_arguments

if TYPE_CHECKING:
    from ._shared.arguments import Commands

EXIT_STATUS = "Exit status: 1 after an error, 2 for wrong usage or wrong options, 130 after Ctrl-C."
BROKER_EPILOG = (
    "Exit status: 1 after an error, 2 for wrong usage or a mistake in the options or their file, 3 after a"
    " failure of the store. SIGINT and SIGTERM end it with 0."
)
STORE_EPILOG = f"FOREBAY_BROKER_DATA names the folder if --data does not.\n\n{EXIT_STATUS}"
EPILOG = f"{EXIT_STATUS} FOREBAY_URL is the default URL."
WEB_EPILOG = f"{EXIT_STATUS} FOREBAY_ADMIN_URL is the default URL."
ADMIN_EPILOG = (
    "It asks the web service of a Pulsar, or of the embedded broker with --http-port, over HTTP. Without"
    f" that, `forebay topic` lists and inspects topics over the protocols.\n\n{WEB_EPILOG}"
)
TOPIC_RULE = (
    "The URL says what can be done: that of a protocol lists and inspects; http:// of a Pulsar, or of the"
    " embedded broker with --http-port, does all of this, and `forebay admin` does more over HTTP; --data"
    " does it in the store of an embedded broker that is not running, where tubemq:NAME is a TubeMQ topic."
)
SHELLS = ("bash", "zsh", "fish")
EXAMPLES = {
    "broker": (
        "forebay broker --port 6650 --mqtt-port 1883 --topic orders=4",
        "forebay broker --data /var/lib/forebay --token-key file:token.key -X retention=1h",
        "forebay broker --config /etc/forebay/broker.toml",
    ),
    "backup": (
        "forebay backup /backups/monday.db --data /var/lib/forebay",
        "forebay backup copy.db --config /etc/forebay/broker.toml --json",
    ),
    "restore": ("forebay restore /backups/monday.db --data ./restored",),
    "check": ("forebay check --data /var/lib/forebay", "forebay check --data ./data --json"),
    "compact": ("forebay compact --data /var/lib/forebay",),
    "passwd": (
        "forebay passwd users.txt till",
        "forebay passwd -D users.txt till",
        "forebay passwd users.txt till --json < password.txt",
    ),
    "token": (
        "forebay token create-key token.key",
        "forebay token create --key file:token.key --subject till --expires 30d",
        "forebay token show --key file:token.key file:till.token",
    ),
    "bench": ("forebay bench -n 100000", "forebay bench -u mqtt://127.0.0.1:1883 --qos 1 --json"),
    "admin": (
        "forebay admin topic create orders -p 4",
        "forebay admin subscription reset orders billing --time 2h",
        "forebay admin schema show orders -u https://broker.example:8443 -X token=file:till.token --json",
    ),
    "topic": (
        "forebay topic ls",
        "forebay topic create orders -p 4 -u http://127.0.0.1:8080",
        "forebay topic stats orders --data ./data --json",
    ),
    "subscriptions": (
        "forebay subscriptions -u http://127.0.0.1:8080",
        "forebay subscriptions orders tubemq:sales --json",
        "forebay subscriptions --data ./data",
    ),
    "top": (
        "forebay top -u http://127.0.0.1:8080",
        "forebay top --once",
        "forebay top -i 10s --json > figures.jsonl",
    ),
    "peek": (
        "forebay peek orders -o 2h -n 20 --as json",
        "forebay peek orders -s billing -u http://127.0.0.1:8080",
        "forebay peek tubemq://127.0.0.1:8715 sales --as hex",
    ),
    "replay": (
        "forebay replay orders orders-again --from 2026-11-21T12:00:00Z --rate 500",
        "forebay replay orders orders --to pulsar://staging.example:6650 -n 1000",
        "forebay replay orders orders-again --after 12:34:0:-1,15:20:1:-1",
    ),
    "doctor": ("forebay doctor mqtts://broker.example:8883 -X tls_ca=ca.pem",),
    "completion": (
        "forebay completion bash > ~/.local/share/bash-completion/completions/forebay",
        "forebay completion zsh > ~/.zfunc/_forebay",
        "forebay completion fish > ~/.config/fish/completions/forebay.fish",
    ),
}
"""Examples at the end of each help. Those of ``pub``, ``sub`` and ``rr`` are beside their arguments."""
TOPIC_EXAMPLES = {
    "ls": (
        "forebay topic ls public/default",
        "forebay topic ls tubemq: --data ./data --json",
    ),
    "create": (
        "forebay topic create orders -p 4 -u http://127.0.0.1:8080",
        "forebay topic create tubemq:sales -p 2 --data ./data",
    ),
    "rm": (
        "forebay topic rm orders -u http://127.0.0.1:8080",
        "forebay topic rm tubemq:sales --data ./data",
    ),
    "grow": ("forebay topic grow orders -p 8 -u http://127.0.0.1:8080",),
    "terminate": ("forebay topic terminate orders -u http://127.0.0.1:8080",),
    "stats": (
        "forebay topic stats orders",
        "forebay topic stats tubemq:sales --data ./data --json",
        "forebay topic stats sales -u tubemq://127.0.0.1:8715",
    ),
}
"""Examples of the actions of ``forebay topic``."""
REPLAY_RULE = (
    "It is for topics of Pulsar, and stops at the end that the source had when it started. If it is"
    " interrupted, it prints the command that resumes; up to 500 messages may then be sent twice.\n\n"
    "Keys, ordering keys, properties, event times, schemas and tombstones are kept. Message ids and publish"
    " times are new."
)
TOP_RULE = (
    "The figures are those of /metrics of the embedded broker with --http-port, or of one broker of a"
    " Pulsar. On a terminal they fill the screen, which needs rich: pip install 'forebay[cli]'; elsewhere"
    " they are printed."
)
_EPILOGS = {
    "broker": BROKER_EPILOG,
    "backup": STORE_EPILOG,
    "restore": STORE_EPILOG,
    "check": f"Exit status 1 also if anything is damaged. {STORE_EPILOG}",
    "compact": STORE_EPILOG,
    "subscriptions": WEB_EPILOG,
    "top": f"{TOP_RULE}\n\n{WEB_EPILOG}",
    "replay": f"{REPLAY_RULE}\n\n{EPILOG}",
    "admin": ADMIN_EPILOG,
    "topic": f"{TOPIC_RULE}\n\n{EPILOG}",
}


def add(commands: Commands, name: str, text: str) -> None:
    """Adds a command with the arguments of the function of its name."""
    command = described(commands, name, text, EXAMPLES[name], _EPILOGS.get(name, EPILOG))
    globals()[name](command)


def broker(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay broker``."""
    add = command.add_argument
    add(
        "--config",
        metavar="FILE",
        help="options in TOML, and a [[listener]] for each of its listeners; environment variables such as"
        " FOREBAY_BROKER_RETENTION win over it, and flags over both",
    )
    add("--data", metavar="DIR", help="folder of the store; without it, messages are kept in memory")
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
    add(
        "--token-key",
        metavar="KEY",
        help="key that tokens are signed with, or public keys: file:PATH or env:NAME",
    )
    add(
        "--acl-file",
        metavar="FILE",
        help="permissions, in the format of Mosquitto's acl_file; SIGHUP reads it again",
    )
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
    setting(add, "set any other option of forebay.Broker, such as retention=1h")
    add(
        "--log-format",
        metavar="FORMAT",
        help="log on stderr: text (default), or json, an object on each line",
    )
    add(
        "--log-level",
        metavar="LEVEL",
        help="least urgent records: debug, info (default), warning or error; SIGHUP reads it in the file",
    )
    add("--json", action="store_true", help="print the URLs as one line of JSON; null where no listener is")
    add("-q", "--quiet", action="store_true", help="print nothing but warnings and errors")


def backup(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay backup``."""
    command.add_argument("file", metavar="FILE", help="a new file for the copy")
    _store(command)


def restore(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay restore``."""
    command.add_argument("file", metavar="FILE", help="the copy, as forebay backup wrote it")
    _store(command, "folder of the new store; it has none yet")


def check(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay check``."""
    _store(command)


def compact(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay compact``."""
    _store(command)


def _store(command: argparse.ArgumentParser, text: str = "folder of the store") -> None:
    add = command.add_argument
    add("--data", metavar="DIR", help=text)
    add("--config", metavar="FILE", help="the broker's file of options, whose data names the folder")
    add("--json", action="store_true", help="print JSON")
    add("-q", "--quiet", action="store_true", help="print errors only")


def passwd(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay passwd``."""
    add = command.add_argument
    add("file", metavar="FILE", help="the password file (--mqtt-password-file); created if it does not exist")
    add("user", metavar="USER", help="user to add, or whose password to change")
    add("-b", "--password", help="the password; without it, it is asked for or read from standard input")
    add(
        "-H",
        "--hash",
        choices=("argon2id", "sha512-pbkdf2"),
        default="argon2id",
        help="hash of the password: argon2id (default), or sha512-pbkdf2 for Mosquitto before 2.1",
    )
    add("-D", "--delete", action="store_true", help="delete the user")
    add("--json", action="store_true", help="print JSON")


def bench(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay bench``."""
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


def admin(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay admin``."""
    admin_arguments.admin(command, ADMIN_EPILOG)


def subscriptions(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay subscriptions``."""
    admin_arguments.connection(command)
    add = command.add_argument
    add(
        "topics",
        nargs="*",
        metavar="TOPIC",
        help="topics; tubemq:NAME is a TubeMQ topic of the embedded broker (default: all)",
    )
    add(
        "-n",
        "--namespace",
        default="public/default",
        help="namespace whose topics are listed if there is no TOPIC (default: public/default)",
    )
    add("--data", metavar="DIR", help="use the store of an embedded broker that is not running")
    add("--json", action="store_true", help="print JSON")


def top(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay top``."""
    admin_arguments.connection(command)
    add = command.add_argument
    add(
        "-i",
        "--interval",
        default="2s",
        metavar="DURATION",
        help="time between two looks, over which rates are taken (default: 2s)",
    )
    add("--once", action="store_true", help="print the figures after one interval, and end")
    add("--json", action="store_true", help="print a line of JSON after each interval")


def peek(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay peek``."""
    places(command, "URL, in place of -u, and name of the topic", "topic")
    connection(command)
    add = command.add_argument
    add("-n", "--count", type=int, default=10, metavar="N", help="messages to show (default: 10)")
    add(
        "-o",
        "--position",
        metavar="WHERE",
        help="where to begin: earliest (default), a message id, or a time: ISO 8601 with a zone, milliseconds"
        " since 1970, or a duration back such as 2h; with TubeMQ BROKER:PARTITION:OFFSET[,...]",
    )
    add(
        "-s",
        "--subscription",
        metavar="NAME",
        help="show what this subscription has not acknowledged; needs -u http://, counts batches as one, and"
        " shows N of each partition",
    )
    add("--as", dest="form", choices=FORMS, default="text", help="how to show payloads (default: text)")
    add("--json", action="store_true", help="print each message as a line of JSON")


def replay(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay replay``."""
    places(command, "URL, in place of -u, topic to read, and topic to send to", "source", "target")
    connection(command)
    add = command.add_argument
    add("--to", metavar="URL", help="URL of the target's broker; its query may hold options (default: -u)")
    add(
        "--from",
        dest="begin",
        metavar="WHERE",
        help="where to begin: earliest (default), a message id or one of each partition with commas, or a"
        " time: ISO 8601 with a zone, milliseconds since 1970, or a duration back such as 2h",
    )
    add("--after", metavar="ID[,ID]", help="resume after these messages, as printed by an earlier replay")
    add("--until", metavar="WHEN", help="end before the first message that was published at this time")
    add("-n", "--count", type=int, metavar="N", help="end after N messages")
    add("--rate", type=float, metavar="N", help="send at most N messages per second")
    add("--no-schema", action="store_true", help="send payloads without the schemas of the source")
    add("--json", action="store_true", help="print what was done as JSON")
    add("-q", "--quiet", action="store_true", help="show no progress")


def topic(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay topic``."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("ls", "list the topics of a namespace"),
        ("create", "create a topic"),
        ("rm", "delete a topic and its messages"),
        ("grow", "add partitions to a topic"),
        ("terminate", "end a topic of Pulsar for good: it takes no more messages"),
        ("stats", "show the content and the subscriptions of a topic"),
    ):
        action = described(actions, name, text, TOPIC_EXAMPLES[name], f"{TOPIC_RULE}\n\n{EPILOG}")
        connection(action)
        add = action.add_argument
        add("--data", metavar="DIR", help="use the store of an embedded broker that is not running")
        add("--json", action="store_true", help="print JSON")
        if name == "ls":
            add(
                "namespace",
                nargs="?",
                default="public/default",
                help="namespace (default: public/default); tubemq: lists the TubeMQ topics",
            )
        else:
            add("topic", help="name of the topic; tubemq:NAME is a TubeMQ topic")
        if name == "create":
            add(
                "-p",
                "--partitions",
                type=int,
                default=0,
                help="partitions; by default, a plain topic, or as many as TubeMQ is set to",
            )
        if name == "grow":
            add(
                "-p",
                "--partitions",
                type=int,
                required=True,
                help="partitions that it has then",
            )


def doctor(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay doctor``."""
    add = command.add_argument
    add("address", nargs="?", metavar="URL", help="URL to connect to, in place of -u")
    connection(command)
    add("-t", "--topic", help="with TubeMQ, topic to use if the server does not create topics itself")
    add("--json", action="store_true", help="print the findings as JSON")


def token(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay token``."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    create_key = described(
        actions, "create-key", "make a key for --token-key", EXAMPLES["token"][:1], EXIT_STATUS
    )
    create_key.add_argument("file", metavar="FILE", help="a new file, which only its owner may read")
    create = described(actions, "create", "sign a token, and print it", EXAMPLES["token"][1:2], EXIT_STATUS)
    add = create.add_argument
    add("--key", metavar="KEY", required=True, help="key of the broker's --token-key: file:PATH or env:NAME")
    add("--subject", metavar="NAME", required=True, help="whose token it is")
    add("--audience", metavar="NAME", help="the broker's token_audience, if it has one")
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
    add("--audience", metavar="NAME", help="the broker's token_audience, if it has one")
    add("--key", metavar="KEY", help="checks the signature with this key: file:PATH or env:NAME")
    for action in (create_key, create, show):
        action.add_argument("--json", action="store_true", help="print JSON")


def completion(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay completion``."""
    command.add_argument("shell", choices=SHELLS, help="the shell to write a completion script for")
