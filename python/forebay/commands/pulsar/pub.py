"""``forebay pub`` with a Pulsar URL."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.commands._shared import files
from forebay.commands._shared.inputs import keyed, one_topic
from forebay.commands._shared.options import pairs, scopes
from forebay.commands._shared.publish import publish


def run(given: argparse.Namespace) -> int:
    """Publishes and waits for all receipts."""
    topic = one_topic(given)
    options = scopes(given.options, "pulsar")
    if given.compression:
        options["producer"]["compression"] = given.compression
    if given.frame is not None:
        roles = ("key", "properties", "event_time", "ordering_key")
        return files.send(given, topic, {**options["client"], **options["producer"]}, roles)
    fields = {"properties": pairs(given.property, "properties") or None, "null_value": given.null}
    return publish(given, topic, options, keyed(given), fields, _to_json)


def _to_json(message: tuple[Any, ...], receipt: Any) -> dict[str, Any]:
    return {"id": str(receipt), "key": message[1]}
