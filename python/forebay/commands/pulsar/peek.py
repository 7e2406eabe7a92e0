"""``forebay peek`` with a Pulsar URL: messages of a topic by a reader, those of a subscription over HTTP."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.commands._shared import display
from forebay.commands._shared.options import is_web, scopes
from forebay.commands._shared.web import Web
from forebay.errors import EndOfTopic, InvalidArgument, Timeout, Unsupported
from forebay.pulsar import blocking

from . import existing
from .admin import peek
from .administration import Administration
from .end import End
from .format import to_json
from .ids import start

_IDLE = 2.0
"""Seconds without a message after which the broker is asked whether there are more."""


def run(given: argparse.Namespace) -> int:
    """Prints messages; nothing is acknowledged, and no subscription is left behind."""
    options = scopes(given.options, "pulsar")
    if given.count < 1:
        raise InvalidArgument(f"-n is 1 or more, not {given.count}")
    if given.subscription is None:
        _read(given, options)
        return 0
    if not is_web(given.url):
        raise Unsupported(
            "Pulsar's protocol does not show the messages of a subscription without consuming them: use the"
            " web service, -u http://HOST:8080"
        )
    if given.position is not None:
        raise InvalidArgument("-s and -o exclude each other: a subscription has a position of its own")
    peek(Administration(Web(given.url, options["client"])), given, given.topic, given.subscription)
    return 0


def _read(given: argparse.Namespace, options: dict[str, dict[str, Any]]) -> None:
    wanted = options["consumer"]
    wanted["position"] = start("-o", given.position or "earliest")
    # Behind the last message there is nothing to look at, as with `sub -o latest`.
    wanted["start_inclusive"] = wanted["position"] != "latest"
    if given.form == "json":
        # The values of records are shown by their schemas.
        wanted.setdefault("schema", "auto")
    show = display.printer(given, to_json)
    with (
        blocking.connect(given.url, **options["client"]) as client,
        existing.reader(client, given.topic, **wanted) as reader,
    ):
        end = End(reader)
        left = given.count
        while left and not end.reached:
            try:
                message = reader.receive(timeout=_IDLE)
            except Timeout:
                if reader.has_message_available():
                    continue
                break
            except EndOfTopic:
                break
            end.seen(message.id)
            show(message)
            left -= 1
