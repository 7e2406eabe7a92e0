"""``forebay admin``: the administration of a Pulsar or of the embedded broker, over HTTP."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from forebay._core import parse
from forebay.commands._shared import display
from forebay.commands._shared.failed import Failed
from forebay.commands._shared.options import moment, pairs, protocol_of_topic, scopes
from forebay.commands._shared.web import Web
from forebay.errors import InvalidArgument, Unsupported

from . import peeked
from .administration import Administration, unacknowledged
from .format import to_json

Verb = Callable[[Administration, argparse.Namespace], Any]
"""Does it; gives what is printed, ``None`` for nothing."""


def run(given: argparse.Namespace) -> int:
    """Runs a verb; returns the exit status."""
    _refuse_others(given)
    asked = Administration(Web(given.url, scopes(given.options, "pulsar")["client"]))
    result = _VERBS[given.noun, given.verb](asked, given)
    if given.verb == "peek":
        return 0
    if result is None:
        if given.json:
            print(json.dumps(_done(given)))
    elif given.json:
        print(json.dumps(result))
    elif isinstance(result, list):
        for one in cast("list[Any]", result):
            print(display.printable(one) if isinstance(one, str) else json.dumps(one))
    else:
        display.figures(result)
    return 0


def _refuse_others(given: argparse.Namespace) -> None:
    """Refuses topics of other protocols: Pulsar would make topics of such names."""
    for name in (getattr(given, "topic", None), getattr(given, "namespace", None)):
        if name and protocol_of_topic(name):
            raise Unsupported(
                f"{name!r} names a topic of TubeMQ, and this is the administration of Pulsar: use `forebay"
                f" topic` with --data DIR (embedded broker that is not running) or a tubemq:// URL;"
                f" `forebay subscriptions {name}` lists its groups"
            )


def _done(given: argparse.Namespace) -> dict[str, Any]:
    """The output of ``--json`` after a change: the verb and its arguments."""
    names = ("topic", "subscription", "partitions", "count")
    said = {name: getattr(given, name) for name in names if getattr(given, name, None) is not None}
    return {"done": f"{given.noun} {given.verb}", **said}


# -- verbs


def _reset(asked: Administration, given: argparse.Namespace) -> None:
    chosen = [name for name in ("position", "after", "time") if getattr(given, name) is not None]
    if len(chosen) != 1:
        raise InvalidArgument("reset takes one of --position, --after and --time")
    if given.time is not None:
        asked.reset_to_time(given.topic, given.subscription, moment("--time", given.time))
    elif given.after is not None:
        asked.reset_to_id(given.topic, given.subscription, given.after, after=True)
    else:
        asked.reset_to_id(given.topic, given.subscription, given.position)


def _expire(asked: Administration, given: argparse.Namespace) -> None:
    try:
        seconds = parse.duration(given.older_than)
    except ValueError as error:
        raise InvalidArgument(f"--older-than: {error}") from None
    if seconds < 1:
        raise InvalidArgument(f"--older-than is at least a second, not {given.older_than}: `clear` skips all")
    asked.expire(given.topic, given.subscription, round(seconds))


def _peek(asked: Administration, given: argparse.Namespace) -> None:
    peek(asked, given, given.topic, given.subscription)


def peek(asked: Administration, given: argparse.Namespace, topic: str, subscription: str) -> None:
    """Prints messages that a subscription has not acknowledged."""
    if given.count < 1:
        raise InvalidArgument(f"-n is 1 or more, not {given.count}")
    printed = display.printer(given, to_json)
    for part, answer in unacknowledged(asked, topic, subscription, given.count):
        for message in peeked.messages(part, answer):
            printed(message)


def _skip(asked: Administration, given: argparse.Namespace) -> None:
    if given.count < 1:
        raise InvalidArgument(f"-n is 1 or more, not {given.count}")
    asked.skip(given.topic, given.subscription, given.count)


def _put_schema(asked: Administration, given: argparse.Namespace) -> Any:
    definition = ""
    if given.definition is not None:
        try:
            definition = Path(given.definition).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"cannot read {given.definition}: {error}") from None
    schema = {
        "type": given.type.upper(),
        "schema": definition,
        "properties": pairs(given.property, "properties"),
    }
    return asked.put_schema(given.topic, schema)


_VERBS: dict[tuple[str, str], Verb] = {
    ("topic", "ls"): lambda asked, given: asked.ls(
        given.namespace, "non-persistent" if given.non_persistent else "persistent"
    ),
    ("topic", "create"): lambda asked, given: asked.create(given.topic, given.partitions),
    ("topic", "grow"): lambda asked, given: asked.grow(given.topic, given.partitions),
    ("topic", "rm"): lambda asked, given: asked.rm(given.topic, force=given.force),
    ("topic", "stats"): lambda asked, given: asked.stats(given.topic),
    ("topic", "internal-stats"): lambda asked, given: asked.internal_stats(given.topic),
    ("topic", "terminate"): lambda asked, given: asked.terminate(given.topic),
    ("subscription", "ls"): lambda asked, given: asked.subscriptions(given.topic),
    ("subscription", "create"): lambda asked, given: asked.create_subscription(
        given.topic, given.subscription, given.position
    ),
    ("subscription", "rm"): lambda asked, given: asked.delete_subscription(
        given.topic, given.subscription, force=given.force
    ),
    ("subscription", "skip"): _skip,
    ("subscription", "clear"): lambda asked, given: asked.clear(given.topic, given.subscription),
    ("subscription", "reset"): _reset,
    ("subscription", "expire"): _expire,
    ("subscription", "peek"): _peek,
    ("schema", "ls"): lambda asked, given: asked.schemas(given.topic),
    ("schema", "show"): lambda asked, given: asked.schema(given.topic, given.schema_version),
    ("schema", "put"): _put_schema,
    ("schema", "rm"): lambda asked, given: asked.delete_schema(given.topic),
    ("namespace", "ls"): lambda asked, given: asked.namespaces(given.tenant),
    ("tenant", "ls"): lambda asked, _: asked.tenants(),
    ("cluster", "ls"): lambda asked, _: asked.clusters(),
}
