"""``penstock sub`` with a TubeMQ URL."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from penstock import blocking
from penstock.commands import scopes
from penstock.commands.sub import FIELDS, TIMED_OUT, payload_to_json, seconds, shower
from penstock.errors import InvalidArgument, Timeout, Unsupported
from penstock.tubemq import Position

if TYPE_CHECKING:
    from penstock import Message
    from penstock.tubemq import PartitionState
    from penstock.tubemq.blocking import TubeConsumer

_POSITIONS = {"beginning": "first", "end": "latest"}
_LOOK = 0.05
"""Seconds without a message after which ``-e`` looks where the partitions stand."""


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count, the time or the end of this member's partitions is reached."""
    options = scopes(given.options, "tubemq")
    wanted: dict[str, Any] = options["consumer"]
    if given.message_type:
        wanted["filters"] = given.message_type
    if given.position:
        wanted["position"] = _position(given.position)
    if given.exit and given.no_ack:
        raise InvalidArgument(
            "-e needs acknowledgements, which --no-ack leaves out: brokers give the next pack "
            "of a partition when the one before is acknowledged"
        )
    show = shower(given, _FIELDS, to_json)
    left = None if given.count is None else max(given.count, 0)
    deadline = None if given.timeout is None else time.monotonic() + seconds(given.timeout)
    with (
        blocking.connect(given.url, **options["client"]) as client,
        client.consumer(given.topic, given.subscription, **wanted) as consumer,
    ):
        end = _End(cast("TubeConsumer", consumer)) if given.exit else None
        while left != 0:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if end:
                wait = _LOOK if wait is None else min(wait, _LOOK)
            try:
                message = consumer.receive(wait)
            except Timeout:
                if end and end.reached():
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    return TIMED_OUT if left else 0
                continue
            if end and end.is_behind(message):
                # Published after this began; it stays in the group.
                if end.reached():
                    break
                continue
            show(message)
            if not given.no_ack:
                consumer.ack(message)
            if left is not None:
                left -= 1
    return 0


def _position(text: str) -> Any:
    if ":" not in text:
        return _POSITIONS.get(text, text)
    return [Position.parse(one) for one in text.split(",")]


class _End:
    """Where the partitions of this member ended when it got them."""

    def __init__(self, consumer: TubeConsumer) -> None:
        self._consumer = consumer
        self._ends: dict[tuple[str, int, int], int] = {}
        self._held()

    def _held(self) -> list[PartitionState]:
        # Those that another member has are its business.
        held = [part for part in self._consumer.partitions() if part["state"] in ("reading", "paused")]
        for part in held:
            if part["max_offset"] is not None:
                self._ends.setdefault(_place(part), part["max_offset"])
        return held

    def reached(self) -> bool:
        """Whether all that was there has been acknowledged; not before there is a partition."""
        states = self._consumer.partitions()
        held = self._held()
        if not states or any(part["state"] == "registering" for part in states):
            return False
        # A broker says where the next pack begins when the one before has been acknowledged.
        return all(
            part["offset"] is not None
            and _place(part) in self._ends
            and part["offset"] >= self._ends[_place(part)]
            for part in held
        )

    def is_behind(self, message: Message) -> bool:
        """Whether the message's pack begins behind the end."""
        at = cast("Position", message.id)
        end = self._ends.get((message.topic, at.broker_id, at.partition))
        return end is not None and at.offset >= end


def _place(part: PartitionState) -> tuple[str, int, int]:
    return part["topic"], part["broker_id"], part["partition"]


def to_json(message: Message) -> dict[str, Any]:
    """A message as ``--json`` prints it; a payload that is not text is base64."""
    return {
        "topic": message.topic,
        "broker": message.broker_id,
        "partition": message.partition,
        "offset": message.offset,
        "id": str(message.id),
        "message_id": message.message_id,
        "key": message.key,
        "message_type": message.message_type,
        "event_time": message.event_time,
        "properties": message.properties,
        "redelivery_count": message.redelivery_count,
        **payload_to_json(message.data),
    }


def _no_publish_time(_: Message) -> bytes:
    raise Unsupported("a message of TubeMQ has no publish time, hence no %T; %e is its event time")


_FIELDS: dict[str, Callable[[Any], bytes]] = {
    **FIELDS,
    "p": lambda message: b"%d" % message.partition,
    "T": _no_publish_time,
    "b": lambda message: b"%d" % message.broker_id,
    "m": lambda message: (message.message_type or "").encode(),
    "o": lambda message: b"%d" % message.offset,
}
