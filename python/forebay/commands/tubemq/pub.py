"""``forebay pub`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from forebay.commands._shared import files
from forebay.commands._shared.inputs import keyed, one_topic
from forebay.commands._shared.options import pairs, scopes, zoned
from forebay.commands._shared.publish import publish
from forebay.errors import InvalidArgument

from .format import stored_to_json


def run(given: argparse.Namespace) -> int:
    """Publishes and waits for all answers."""
    topic = one_topic(given)
    options = scopes(given.options, "tubemq")
    if given.frame is not None:
        roles = ("key", "properties", "event_time", "message_type")
        return files.send(given, topic, {**options["client"], **options["producer"]}, roles)
    fields: dict[str, Any] = {"properties": pairs(given.property, "properties") or None}
    if given.message_type is not None:
        fields["message_type"] = given.message_type
    if given.event_time is not None:
        fields["event_time"] = when(given.event_time)
    return publish(
        given, topic, options, keyed(given), fields, lambda message, at: stored_to_json(topic, message[1], at)
    )


def when(text: str) -> datetime.datetime | int:
    """The value of ``-E``.

    Raises:
        InvalidArgument: the text is not a time, or has no time zone.
    """
    moment = zoned(text)
    if moment is None:
        raise InvalidArgument(
            "-E takes milliseconds since 1970 or a time with its zone, such as 2026-11-21T12:00:00Z, "
            f"not {text!r}"
        )
    return moment
