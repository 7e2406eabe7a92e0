"""``forebay sub`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from forebay.commands._shared import files
from forebay.commands._shared import format as formats
from forebay.commands._shared.options import scopes
from forebay.commands._shared.subscribe import Limits, printer
from forebay.errors import InvalidArgument
from forebay.tubemq import Position, blocking

from .format import compile_format, to_json
from .peek import start

if TYPE_CHECKING:
    from forebay.tubemq import PartitionState, TubeMqMessage

_POSITIONS = {"beginning": "first", "end": "latest"}
_LOOK = 0.05
"""Seconds without a message after which ``-e`` checks the partitions."""


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count, the time or the end of this member's partitions is reached."""
    options = scopes(given.options, "tubemq")
    if given.parquet is not None:
        return _save(given, options)
    wanted: dict[str, Any] = options["consumer"]
    if given.message_type:
        wanted["filters"] = given.message_type
    if given.position:
        wanted["position"] = position(given.position)
    if given.exit and given.no_ack:
        raise InvalidArgument(
            "-e and --no-ack exclude each other: a broker delivers the next pack of a partition only after "
            "the previous one is acknowledged"
        )
    show = printer(given, to_json, lambda: compile_format(formats.text_of(given)))
    url: str = given.url
    limits = Limits(given)
    limits.start()
    with (
        blocking.connect(url, **options["client"]) as client,
        client.consumer(given.topic, given.subscription, **wanted) as consumer,
    ):
        end = _End(consumer) if given.exit else None
        while not limits.reached:
            message = limits.receive(consumer, _LOOK if end else None)
            if message is None:
                if end and end.reached():
                    break
                if limits.expired:
                    return limits.status
                continue
            if end and end.is_behind(message):
                # Published after the command began; it stays in the group.
                if end.reached():
                    break
                continue
            show(message)
            if not given.no_ack:
                consumer.ack(message)
            limits.count()
    return 0


def _save(given: argparse.Namespace, options: dict[str, dict[str, Any]]) -> int:
    if given.subscription or given.message_type:
        raise InvalidArgument("--parquet reads the topics without a group: leave -s and -T out")
    begin = start(given.topic, given.position or "first")
    return files.save(given, begin, {**options["client"], **options["consumer"]})


def position(text: str) -> Any:
    """The option ``position`` that ``-o`` sets.

    Raises:
        InvalidArgument: a place that is not BROKER:PARTITION:OFFSET.
    """
    if ":" not in text:
        return _POSITIONS.get(text, text)
    return [Position.parse(one) for one in text.split(",")]


class _End:
    """The end of each partition of this member at the time when the member got it."""

    def __init__(self, consumer: blocking.TubeMqConsumer) -> None:
        self._consumer = consumer
        self._ends: dict[tuple[str, int, int], int] = {}
        self._held()

    def _held(self) -> list[PartitionState]:
        # Partitions held by other members are left to them.
        held = [part for part in self._consumer.partitions() if part["state"] in ("reading", "paused")]
        for part in held:
            if part["max_offset"] is not None:
                self._ends.setdefault(_place(part), part["max_offset"])
        return held

    def reached(self) -> bool:
        """Whether everything up to the end has been acknowledged; false until there is a partition."""
        states = self._consumer.partitions()
        held = self._held()
        if not states or any(part["state"] == "registering" for part in states):
            return False
        # A broker tells where the next pack begins once the previous one has been acknowledged.
        return all(
            part["offset"] is not None
            and _place(part) in self._ends
            and part["offset"] >= self._ends[_place(part)]
            for part in held
        )

    def is_behind(self, message: TubeMqMessage) -> bool:
        """Whether the message's pack begins after the end."""
        at = message.id
        end = self._ends.get((message.topic, at.broker_id, at.partition))
        return end is not None and at.offset >= end


def _place(part: PartitionState) -> tuple[str, int, int]:
    return part["topic"], part["broker_id"], part["partition"]
