"""``penstock sub`` with an MQTT URL."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.commands._shared.options import scopes
from penstock.commands._shared.subscribe import TIMED_OUT, Limits, printer
from penstock.errors import InvalidArgument
from penstock.mqtt import blocking, matches

from . import arguments
from .format import compile_format, to_json

if TYPE_CHECKING:
    from penstock.mqtt import MqttMessage


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count or the time is reached."""
    if given.no_retained and given.retained_only:
        raise InvalidArgument("-R and --retained-only together leave nothing to print")
    options = scopes(given.options, "mqtt")
    client_options = arguments.client_options(given, options["client"])
    wanted = options["consumer"]
    arguments.quality(given, "consumer", wanted)
    text = given.format if given.format is not None else "%t %p" if given.verbose else "%p"
    show = printer(given, to_json, lambda: compile_format(text), b"" if given.no_newline else b"\n")
    for pattern in given.filter_out:
        # A mistake is reported before anything is printed.
        matches(pattern, "topic")
    limits = Limits(given)
    url: str = given.url
    with (
        blocking.connect(url, **client_options) as client,
        client.consumer(given.topic, given.subscription, **wanted) as consumer,
    ):
        # As in mosquitto_sub, -W counts from the subscription, and its end is status 27 in any case.
        limits.start()
        while not limits.reached and not given.exit_after_sub:
            message = limits.receive(consumer)
            if message is None:
                return TIMED_OUT
            if given.retained_only and not message.retain:
                break
            if not _is_wanted(given, message):
                consumer.ack(message)
                continue
            show(message)
            if not given.no_ack:
                consumer.ack(message)
            limits.count()
            if limits.expired and not limits.reached:
                return TIMED_OUT
    return 0


def _is_wanted(given: argparse.Namespace, message: MqttMessage) -> bool:
    if given.no_retained and message.retain:
        return False
    return not any(matches(pattern, message.topic) for pattern in given.filter_out)
