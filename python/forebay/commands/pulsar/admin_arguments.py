"""Arguments of ``forebay admin``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from forebay.commands._shared.arguments import debug, described, setting
from forebay.commands._shared.options import FORMS

if TYPE_CHECKING:
    from forebay.commands._shared.arguments import Commands

DEFAULT_URL = "http://127.0.0.1:8080"
EXAMPLES = {
    "topic": (
        "forebay admin topic create orders -p 4",
        "forebay admin topic internal-stats orders -u https://broker.example:8443 -X token=file:till.token",
        "forebay admin topic rm orders --force",
    ),
    "subscription": (
        "forebay admin subscription create orders billing --position earliest",
        "forebay admin subscription reset orders billing --time 2h",
        "forebay admin subscription peek orders-partition-0 billing -n 3 --json",
    ),
    "schema": (
        "forebay admin schema show orders",
        "forebay admin schema put orders --type AVRO --definition order.avsc",
    ),
    "namespace": ("forebay admin namespace ls public",),
    "tenant": ("forebay admin tenant ls",),
    "cluster": ("forebay admin cluster ls -u http://broker.example:8080 --json",),
}
_VERB_EXAMPLES = {
    "topic ls": ("ls public/default", "ls my-tenant/shop --non-persistent --json"),
    "topic create": ("create orders -p 4", "create persistent://my-tenant/shop/orders"),
    "topic grow": ("grow orders -p 8",),
    "topic rm": ("rm orders", "rm orders --force -u https://broker.example:8443 -X token=file:till.token"),
    "topic stats": ("stats orders --json",),
    "topic internal-stats": ("internal-stats orders",),
    "topic terminate": ("terminate orders",),
    "subscription ls": ("ls orders",),
    "subscription create": ("create orders billing --position earliest", "create orders audit"),
    "subscription rm": ("rm orders billing", "rm orders billing --force"),
    "subscription skip": ("skip orders-partition-0 billing -n 10",),
    "subscription clear": ("clear orders billing",),
    "subscription reset": (
        "reset orders billing --time 2h",
        "reset orders billing --position earliest",
        "reset orders billing --after 12:34:0:-1",
    ),
    "subscription expire": ("expire orders billing --older-than 30m", "expire orders --older-than 2d"),
    "subscription peek": ("peek orders billing -n 3 --as json", "peek orders-partition-0 billing --json"),
    "schema ls": ("ls orders --json",),
    "schema show": ("show orders", "show orders --version 0 --json"),
    "schema put": ("put orders --type AVRO --definition order.avsc", "put names --type STRING"),
    "schema rm": ("rm orders",),
    "namespace ls": ("ls public", "ls my-tenant --json"),
    "tenant ls": ("ls", "ls -u http://broker.example:8080 --json"),
    "cluster ls": ("ls", "ls -u http://broker.example:8080 --json"),
}
"""Examples of each verb, from its name on."""
Add = Callable[..., object]


class _Noun(NamedTuple):
    """A noun, whose verbs are added."""

    name: str
    verbs: Commands
    epilog: str

    def verb(self, name: str, text: str, *aliases: str) -> Add:
        """Adds a verb; gives the function that adds its arguments."""
        examples = [
            f"forebay admin {self.name} {example}" for example in _VERB_EXAMPLES[f"{self.name} {name}"]
        ]
        verb = described(self.verbs, name, text, examples, self.epilog, aliases=aliases)
        verb.set_defaults(verb=name)
        connection(verb)
        verb.add_argument("--json", action="store_true", help="print JSON")
        return verb.add_argument


def admin(command: argparse.ArgumentParser, epilog: str) -> None:
    """Adds the arguments of ``forebay admin``."""
    nouns = command.add_subparsers(dest="noun", metavar="NOUN", required=True)
    for noun, text, verbs_of in (
        ("topic", "create, inspect and delete topics", _topic),
        ("subscription", "create, move and delete subscriptions", _subscription),
        ("schema", "show, add and delete schemas", _schema),
        ("namespace", "list namespaces", _namespace),
        ("tenant", "list tenants", _tenant),
        ("cluster", "list clusters", _cluster),
    ):
        under = described(nouns, noun, text, EXAMPLES[noun], epilog)
        under.set_defaults(noun=noun)
        verbs = under.add_subparsers(dest="verb", metavar="VERB", required=True)
        verbs_of(_Noun(noun, verbs, epilog))


def connection(command: argparse.ArgumentParser) -> None:
    """``-u``, ``-X`` and ``-d`` for a web service."""
    # One of another protocol is refused then: the web service of this machine is not meant.
    default = os.environ.get("FOREBAY_ADMIN_URL") or os.environ.get("FOREBAY_URL") or DEFAULT_URL
    command.add_argument(
        "-u",
        "--url",
        default=default,
        help=f"URL of the web service (default: FOREBAY_ADMIN_URL, FOREBAY_URL or {DEFAULT_URL})",
    )
    setting(
        command.add_argument,
        "set an option of a Pulsar client, such as token=file:token.txt or tls_ca=ca.pem",
    )
    debug(command)


def _topic(noun: _Noun) -> None:
    add = noun.verb("ls", "list the topics of a namespace", "list")
    add("namespace", nargs="?", default="public/default", help="namespace (default: public/default)")
    add("--non-persistent", action="store_true", help="list those that keep no messages")
    add = noun.verb("create", "create a topic")
    add("topic", help="name of the topic")
    add("-p", "--partitions", type=int, default=0, help="partitions; 0 makes a plain topic (default)")
    add = noun.verb("grow", "add partitions to a partitioned topic")
    add("topic", help="name of the topic")
    add("-p", "--partitions", type=int, required=True, help="partitions that it has then")
    add = noun.verb("rm", "delete a topic and its messages", "delete")
    add("topic", help="name of the topic")
    _force(add, "disconnect its producers and consumers; without it, a topic in use is not deleted")
    for name, text in (
        ("stats", "show the figures of a topic and of its subscriptions"),
        ("internal-stats", "show how a topic is stored"),
        ("terminate", "end a topic for good: it takes no more messages"),
    ):
        noun.verb(name, text)("topic", help="name of the topic")


def _force(add: Add, text: str) -> None:
    add("--force", action="store_true", help=text)


def _subscription(noun: _Noun) -> None:
    noun.verb("ls", "list the subscriptions of a topic", "list")("topic", help="name of the topic")

    def verb(name: str, text: str, *aliases: str) -> Add:
        add = noun.verb(name, text, *aliases)
        add("topic", help="name of the topic")
        add("subscription", help="name of the subscription")
        return add

    add = verb("create", "create a subscription")
    add(
        "--position",
        default="latest",
        metavar="WHERE",
        help="where it begins: earliest, latest (default) or a message id",
    )
    add = verb("rm", "delete a subscription", "delete")
    _force(add, "disconnect its consumers; without it, a subscription in use is not deleted")
    add = verb("skip", "skip the next messages of a subscription; a batch counts as one")
    add("-n", "--count", type=int, required=True, metavar="N", help="messages or batches to skip")
    verb("clear", "skip all messages of a subscription")
    add = verb("reset", "move a subscription to another position")
    where: Add = add
    where("--position", metavar="WHERE", help="earliest, latest, or the id of the message that is next")
    where("--after", metavar="ID", help="the id of the message behind which it goes on")
    where(
        "--time",
        metavar="WHEN",
        help="a time: ISO 8601 with a zone, milliseconds since 1970, or a duration back such as 2h",
    )
    add = noun.verb("expire", "skip the messages of a subscription that are older")
    add("topic", help="name of the topic")
    add("subscription", nargs="?", help="name of the subscription (default: all)")
    add("--older-than", required=True, metavar="DURATION", help="age, such as 30m or 2d")
    add = verb("peek", "show messages that a subscription has not acknowledged, without consuming them")
    add("-n", "--count", type=int, default=1, metavar="N", help="messages or batches of each partition")
    add("--as", dest="form", choices=FORMS, default="text", help="how to show payloads")


def _schema(noun: _Noun) -> None:
    def verb(name: str, text: str, *aliases: str) -> Add:
        add = noun.verb(name, text, *aliases)
        add("topic", help="name of the topic")
        return add

    verb("ls", "list all versions of the schema of a topic", "list")
    add = verb("show", "show the schema of a topic")
    add("--version", type=int, dest="schema_version", metavar="N", help="version (default: the newest)")
    add = verb("put", "add a schema to a topic")
    add("--type", required=True, metavar="TYPE", help="type, such as AVRO, JSON or STRING")
    add("--definition", metavar="FILE", help="file with the definition; types that need none have none")
    add(
        "-p",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the schema; repeatable",
    )
    verb("rm", "delete all versions of the schema of a topic", "delete")


def _namespace(noun: _Noun) -> None:
    add = noun.verb("ls", "list the namespaces of a tenant", "list")
    add("tenant", nargs="?", default="public", help="tenant (default: public)")


def _tenant(noun: _Noun) -> None:
    noun.verb("ls", "list the tenants", "list")


def _cluster(noun: _Noun) -> None:
    noun.verb("ls", "list the clusters", "list")
