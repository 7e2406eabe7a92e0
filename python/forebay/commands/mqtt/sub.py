"""``forebay sub`` with an MQTT URL."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.commands._shared.options import scopes
from forebay.commands._shared.subscribe import TIMED_OUT, Limits, printer
from forebay.errors import InvalidArgument
from forebay.mqtt import blocking, matches

from . import arguments
from .format import compile_format, to_json

if TYPE_CHECKING:
    from forebay.mqtt import MqttMessage


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count or the time is reached."""
    if given.no_retained and given.retained_only:
        raise InvalidArgument("-R and --retained-only together leave nothing to print")
    options = scopes(given.options, "mqtt")
    client_options = arguments.client_options(given, options["client"])
    wanted = options["consumer"]
    arguments.quality(given, "consumer", wanted)
    if given.retain_as_published:
        wanted["retain_as_published"] = True
    text = given.format if given.format is not None else "%t %p" if given.verbose else "%p"
    show = printer(
        given, to_json, lambda: compile_format(text, given.pretty), b"" if given.no_newline else b"\n"
    )
    for pattern in given.filter_out:
        # A mistake is reported before anything is printed.
        matches(pattern, "topic")
    limits = Limits(given)
    with blocking.connect(given.url, **client_options) as client:
        for pattern in given.unsubscribe:
            client.unsubscribe(pattern)
        if not given.topic:
            return 0
        with client.consumer(given.topic, given.subscription, **wanted) as consumer:
            # As in mosquitto_sub, -W counts from the subscription, and its end is status 27 in any
            # case.
            limits.start()
            return 0 if given.exit_after_sub else _print(given, client, consumer, limits, show)


def _print(
    given: argparse.Namespace,
    client: blocking.MqttClient,
    consumer: blocking.MqttConsumer,
    limits: Limits,
    show: Callable[[MqttMessage], None],
) -> int:
    deleted: set[str] = set()
    """Topics whose retained messages have been deleted: the empty message that did it comes here as well."""
    while not limits.reached:
        message = limits.receive(consumer)
        if message is None:
            return TIMED_OUT
        if message.topic in deleted and not (message.data or message.retain):
            deleted.remove(message.topic)
            consumer.ack(message)
            if given.retained_only and not deleted:
                break
            continue
        if given.retained_only and not message.retain:
            break
        if given.remove_retained and message.retain and not _is_filtered(given, message):
            client.publish(message.topic, b"", qos=1, retain=True)
            deleted.add(message.topic)
        if not _is_wanted(given, message):
            consumer.ack(message)
            continue
        show(message)
        if not given.no_ack:
            consumer.ack(message)
        limits.count()
    return 0


def _is_wanted(given: argparse.Namespace, message: MqttMessage) -> bool:
    if given.no_retained and message.retain:
        return False
    return not _is_filtered(given, message) and random.random() * 100 < given.random_filter


def _is_filtered(given: argparse.Namespace, message: MqttMessage) -> bool:
    return any(matches(pattern, message.topic) for pattern in given.filter_out)
