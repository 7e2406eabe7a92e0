"""``penstock sub``."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import blocking
from penstock.errors import InvalidArgument, Timeout

from . import scopes

if TYPE_CHECKING:
    from penstock import Message, MessageId

TIMED_OUT = 27
"""Status when -W ended it before -C was reached; mosquitto_sub's."""
_POSITIONS = {"beginning": "earliest", "end": "latest"}
_IDLE_AT_END = 2.0


def run(given: argparse.Namespace) -> int:
    """Prints messages until the count, the time or the end of the topic is reached."""
    options = scopes(given.options)
    wanted: dict[str, Any] = options["consumer"]
    if given.type:
        wanted["type"] = given.type
    if given.position:
        wanted["position"] = _POSITIONS.get(given.position, given.position)
    show = shower(given, FIELDS, to_json)
    left = None if given.count is None else max(given.count, 0)
    deadline = None if given.timeout is None else time.monotonic() + seconds(given.timeout)
    with blocking.connect(given.url, **options["client"]) as client:
        if given.subscription:
            consumer = client.consumer(given.topic, given.subscription, **wanted)
        else:
            consumer = client.reader(given.topic, **wanted)
        with consumer:
            end = _End(consumer) if given.exit else None
            while left != 0 and not (end and end.reached):
                wait = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                if end:
                    wait = _IDLE_AT_END if wait is None else min(wait, _IDLE_AT_END)
                try:
                    message = consumer.receive(wait)
                except Timeout:
                    if deadline is not None and time.monotonic() >= deadline:
                        return TIMED_OUT if left else 0
                    break
                show(message)
                if given.subscription and not given.no_ack:
                    consumer.ack(message)
                if end:
                    end.seen(message.id)
                if left is not None:
                    left -= 1
    return 0


def seconds(text: str) -> float:
    """A time of the command line.

    Raises:
        InvalidArgument: it is none.
    """
    from penstock import parse

    try:
        return parse.seconds(text) or 0.0
    except ValueError as error:
        raise InvalidArgument(f"-W: {error}") from None


class _End:
    """Where the topic ended when this began."""

    def __init__(self, consumer: blocking.Consumer) -> None:
        # An entry below zero: the partition is empty.
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


def shower(
    given: argparse.Namespace, fields: Fields, as_dict: Callable[[Message], dict[str, Any]]
) -> Callable[[Message], None]:
    """What prints a message as ``--json``, ``-F``, ``-v`` and ``-N`` want it.

    Args:
        given: the arguments.
        fields: of the format.
        as_dict: a message for ``--json``.
    """
    out = sys.stdout.buffer
    if given.json:

        def as_json(message: Message) -> None:
            out.write(json.dumps(as_dict(message)).encode() + b"\n")
            out.flush()

        return as_json
    text = given.format
    if text is None:
        text = "%t %k %s" if given.verbose else "%s"
        text += "" if given.no_newline else "\\n"
    parts = compile_format(text, fields)

    def formatted(message: Message) -> None:
        out.write(b"".join(part if isinstance(part, bytes) else part(message) for part in parts))
        out.flush()

    return formatted


def to_json(message: Message) -> dict[str, Any]:
    """A message as ``--json`` prints it; a payload that is not text is base64."""
    return {
        "topic": message.topic,
        "id": str(message.id),
        "key": message.key,
        "publish_time": message.publish_time,
        "event_time": message.event_time,
        "properties": message.properties,
        "redelivery_count": message.redelivery_count,
        **payload_to_json(message.data),
    }


def payload_to_json(data: bytes) -> dict[str, str]:
    """A payload as ``--json`` prints it."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError:
        import base64

        return {"payload_base64": base64.b64encode(data).decode()}


Fields = dict[str, Callable[[Any], bytes]]
"""What the letters of a format stand for."""
FIELDS: Fields = {
    "s": lambda message: message.data,
    "S": lambda message: b"%d" % len(message.data),
    "k": lambda message: (message.key or "").encode(),
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.id.partition,
    "i": lambda message: str(message.id).encode(),
    "T": lambda message: b"%d" % message.publish_time,
    "e": lambda message: b"" if message.event_time is None else b"%d" % message.event_time,
    "h": lambda message: ",".join(f"{k}={v}" for k, v in message.properties.items()).encode(),
    "r": lambda message: b"%d" % message.redelivery_count,
    "%": lambda _: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def compile_format(text: str, fields: Fields = FIELDS) -> list[bytes | Callable[[Any], bytes]]:
    """``-F`` as a list of constant parts and of functions of the message.

    Raises:
        InvalidArgument: an unknown ``%`` or ``\\``.
    """
    parts: list[bytes | Callable[[Any], bytes]] = []
    for token in re.findall(r"%.?|\\.?|[^%\\]+", text, re.DOTALL):
        table: dict[str, Any] | None = {"%": fields, "\\": _ESCAPES}.get(token[0])
        if table is None:
            parts.append(token.encode())
        elif token[1:] in table:
            parts.append(table[token[1:]])
        else:
            raise InvalidArgument(f"unknown {token!r} in the format; known: %{' %'.join(fields)}")
    return parts
