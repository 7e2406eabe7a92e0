"""``penstock sub`` with a Pulsar URL."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock.commands._shared import format as formats
from penstock.commands._shared.options import scopes
from penstock.commands._shared.subscribe import Limits, printer
from penstock.pulsar import blocking

from .format import compile_format, to_json

if TYPE_CHECKING:
    from penstock.pulsar import MessageId

_POSITIONS = {"beginning": "earliest", "end": "latest"}
_IDLE_AT_END = 2.0
"""Seconds without a message after which ``-e`` takes the end for reached."""


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count, the time or the end of the topic is reached."""
    options = scopes(given.options, "pulsar")
    wanted: dict[str, Any] = options["consumer"]
    if given.type:
        wanted["type"] = given.type
    if given.position:
        wanted["position"] = _POSITIONS.get(given.position, given.position)
    show = printer(given, to_json, lambda: compile_format(formats.text_of(given)))
    limits = Limits(given)
    limits.start()
    with blocking.connect(given.url, **options["client"]) as client:
        if given.subscription:
            consumer = client.consumer(given.topic, given.subscription, **wanted)
        else:
            consumer = client.reader(given.topic, **wanted)
        with consumer:
            end = _End(consumer) if given.exit else None
            while not limits.reached and not (end and end.reached):
                message = limits.receive(consumer, _IDLE_AT_END if end else None)
                if message is None:
                    return limits.status if limits.expired else 0
                show(message)
                if given.subscription and not given.no_ack:
                    consumer.ack(message)
                if end:
                    end.seen(message.id)
                limits.count()
    return 0


class _End:
    """The end of the topic at the time when the command began."""

    def __init__(self, consumer: blocking.PulsarConsumer) -> None:
        # A negative entry id means that the partition is empty.
        self._open = {last.partition: last for last in consumer.last_message_ids() if last.entry >= 0}

    @property
    def reached(self) -> bool:
        return not self._open

    def seen(self, seen: MessageId) -> None:
        last = self._open.get(seen.partition)
        if last is None:
            return
        here, there = (seen.ledger, seen.entry), (last.ledger, last.entry)
        if here > there or (here == there and seen.batch_index >= seen.batch_size - 1):
            del self._open[seen.partition]
