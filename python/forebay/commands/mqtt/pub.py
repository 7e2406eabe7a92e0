"""``forebay pub`` with an MQTT URL."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.commands._shared import files
from forebay.commands._shared.inputs import one_topic, payloads
from forebay.commands._shared.options import scopes
from forebay.commands._shared.publish import publish
from forebay.errors import InvalidArgument

from . import arguments


def run(given: argparse.Namespace) -> int:
    """Publishes and waits for all answers."""
    topic = one_topic(given)
    options = scopes(given.options, "mqtt")
    options["client"] = arguments.client_options(given, options["client"])
    arguments.quality(given, "producer", options["producer"])
    if given.retain:
        options["producer"]["retain"] = True
    fields = arguments.properties(given, "publish")
    if given.frame is not None:
        if fields:
            raise InvalidArgument(
                "-D and --frame exclude each other: a column properties has those of each row"
            )
        return files.send(given, topic, {**options["client"], **options["producer"]}, ("properties",))

    def to_json(_: Any, reason: Any) -> dict[str, Any]:
        return {"topic": topic, "reason": reason.name, "code": int(reason)}

    return publish(given, topic, options, ((payload,) for payload in payloads(given)), fields, to_json)
