"""``forebay rr``: a request and its response, by the response topic of MQTT 5."""

from __future__ import annotations

import argparse
import uuid

from forebay.commands._shared.inputs import one_topic, payloads
from forebay.commands._shared.options import scopes
from forebay.commands._shared.subscribe import TIMED_OUT, Limits, printer
from forebay.errors import InvalidArgument, Timeout, Unsupported
from forebay.mqtt import blocking

from . import arguments
from .format import compile_format, to_json

_CLOSING = 10.0
"""Seconds that a broker has at least to answer, when the command ends as well."""


def run(given: argparse.Namespace) -> int:
    """Publishes the request, and prints the first response. With correlation data in the request only a
    response with the same data counts."""
    topic = one_topic(given)
    given.repeat, given.count = 1, 1
    requests = list(payloads(given))
    if len(requests) != 1:
        raise InvalidArgument(f"rr sends one request, not {len(requests)}")
    options = scopes(given.options, "mqtt")
    client_options = arguments.client_options(given, options["client"])
    version = str(client_options.get("version", "5"))
    if version != "5":
        raise Unsupported(f"MQTT {version} has no response topics, which rr needs: use -V 5")
    for scope in ("producer", "consumer"):
        arguments.quality(given, scope, options[scope])
    fields = arguments.properties(given, "publish")
    named = fields.pop("response_topic", None)
    if given.response_topic is not None and named is not None:
        raise InvalidArgument(
            "the response topic is given by -e and by -D publish response-topic: give one of them"
        )
    response = given.response_topic or named or f"forebay/rr/{uuid.uuid4().hex}"
    correlation = fields.get("correlation_data")
    text = given.format if given.format is not None else "%t %p" if given.verbose else "%p"
    show = printer(
        given, to_json, lambda: compile_format(text, given.pretty), b"" if given.no_newline else b"\n"
    )
    limits = Limits(given)
    if limits.seconds is not None:
        # A broker may be gone for good: closing waits for its answers no longer than that, either.
        client_options.setdefault("operation_timeout", max(limits.seconds, _CLOSING))
    try:
        with (
            blocking.connect(given.url, **client_options) as client,
            client.consumer(response, **options["consumer"]) as consumer,
            client.producer(topic, **options["producer"]) as producer,
        ):
            limits.start()
            producer.send_nowait(requests[0], response_topic=response, retain=given.retain, **fields)
            producer.flush(limits.left)
            while (message := limits.receive(consumer)) is not None:
                consumer.ack(message)
                # What the topic had retained from before is no response.
                if not message.retain and (correlation is None or message.correlation_data == correlation):
                    show(message)
                    return 0
    except Timeout:
        # The broker has not answered the request, or not the end of the subscription.
        if not limits.expired:
            raise
    return TIMED_OUT
