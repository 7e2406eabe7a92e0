"""Sending the messages of a topic again: the pace, the receipts, and the report of how far it got."""

from __future__ import annotations

import abc
import argparse
import contextlib
import json
import shlex
import sys
import time
from collections.abc import Generator, Iterator
from typing import Any, Generic, TypeVar

from forebay.errors import Error, InvalidArgument, MemoryLimit, QueueFull
from forebay.progress import Progress

Message = TypeVar("Message")
Place = TypeVar("Place")

CONFIRMED_EVERY = 500
"""Messages after which receipts are waited for: at most so many are sent twice when a replay is resumed."""
_LAST_WAIT = 10.0
"""Seconds to wait for receipts after an interruption."""


def check(given: argparse.Namespace, *, same_topic: bool) -> None:
    """Checks the arguments that every protocol has.

    Args:
        given: the parsed arguments.
        same_topic: whether the source and the target have one name.

    Raises:
        InvalidArgument: one is wrong, or the messages would be sent to the topic that they are from.
    """
    if given.count is not None and given.count < 1:
        raise InvalidArgument(f"-n is 1 or more, not {given.count}")
    if given.rate is not None and not 0 < given.rate < 1e9:
        raise InvalidArgument(f"--rate is a number of messages per second above 0, not {given.rate:g}")
    if same_topic and (given.to is None or _without_query(given.to) == _without_query(given.url)):
        raise InvalidArgument("the source and the target are the same topic")


def _without_query(url: str) -> str:
    """A URL without its options, which may be secrets."""
    return url.partition("?")[0]


class Replay(abc.ABC, Generic[Message, Place]):
    """The work, and how far it has got.

    Args:
        given: the parsed arguments.
        producer: a blocking producer of the target.
        begin: ``--from`` of a replay that goes on: not a duration back, which would begin elsewhere then.
            ``None`` for the beginning.
        until: ``--until``, likewise.
    """

    def __init__(
        self, given: argparse.Namespace, producer: Any, begin: str | int | None, until: str | int | None
    ) -> None:
        self._given = given
        self._producer = producer
        self._begin = begin
        self._until = until
        self._sent: dict[str, Place] = {}
        """For each partition the place up to which everything was sent."""
        self._pending = 0
        """Messages without a receipt."""
        self._confirmed: dict[str, Place] = {}
        """For each partition the place up to which everything has a receipt."""
        self.count = 0
        """Messages with a receipt."""
        self.complete = False
        """Whether the end of the source was reached."""

    @abc.abstractmethod
    def _messages(self) -> Generator[Message, None, None]:
        """The messages up to the end that the source has now, or to one of the limits. It sets `complete` if
        that end is reached."""

    @abc.abstractmethod
    def _send(self, message: Message) -> None:
        """Sends a message, without waiting for its receipt, and notes its place as sent."""

    @abc.abstractmethod
    def _text(self, place: Place) -> str:
        """A place as ``--after`` takes it."""

    def run(self) -> None:
        """Does the work, and reports, also after an error or an interruption."""
        try:
            self._run()
        except BaseException:
            self._confirm()
            self.report(complete=False)
            raise
        self.report(complete=self.complete)

    def _run(self) -> None:
        started = time.monotonic()
        quiet = self._given.quiet or self._given.json
        with (
            Progress("replaying", self._given.count, quiet=quiet, plain=True) as progress,
            contextlib.closing(self._messages()) as messages,
        ):
            for number, message in enumerate(messages):
                if self._given.rate:
                    self._pace(started + number / self._given.rate)
                self._send(message)
                self._pending += 1
                if self._pending >= CONFIRMED_EVERY:
                    self._flush()
                progress.advance(1)
            self._flush()

    def _pace(self, due: float) -> None:
        """Waits until the next message is due. What has been sent is confirmed in a pause that is longer."""
        if due - time.monotonic() > 0.2:
            self._flush()
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)

    def _submit(self, payload: Any, key: str | None, **fields: Any) -> None:
        """Hands a message to the producer; if it has no space left, when there are receipts."""
        try:
            self._producer.send_nowait(payload, key, **fields)
        except (QueueFull, MemoryLimit):
            self._flush()
            self._producer.send_nowait(payload, key, **fields)

    def _flush(self, limit: float | None = None) -> None:
        self._producer.flush(limit)
        self._confirmed.update(self._sent)
        self.count += self._pending
        self._pending = 0

    def _confirm(self) -> None:
        """Waits for the receipts of what has been sent, after an interruption."""
        # If it fails, the place is the one before.
        with contextlib.suppress(Error, KeyboardInterrupt):
            self._flush(_LAST_WAIT)

    def _details(self) -> dict[str, Any]:
        """The part of the JSON report that this protocol alone has."""
        return {}

    def _warnings(self) -> Iterator[str]:
        """Lines that people are told even with ``--quiet``."""
        yield from ()

    def report(self, *, complete: bool) -> None:
        """Tells how far it has got.

        Args:
            complete: whether the end of the source was reached.
        """
        at = ",".join(self._text(place) for place in self._confirmed.values())
        given = self._given
        if given.json:
            said = {
                "source": given.source,
                "target": given.target,
                "messages": self.count,
                "complete": complete,
                "from": self._begin if isinstance(self._begin, int) else given.begin,
                "after": at,
                **self._details(),
            }
            print(json.dumps(said), flush=True)
            return
        if not given.quiet:
            print(f"{self.count:,} messages replayed to {given.target}", file=sys.stderr)
        for text in self._warnings():
            print(text, file=sys.stderr)
        if not complete:
            # Also with --quiet: it cannot be found out otherwise.
            print(self._go_on(at), file=sys.stderr)

    def _go_on(self, after: str) -> str:
        """The command that sends the rest. It has no options of clients, which may be secrets."""
        given = self._given
        words = ["forebay", "replay", given.source, given.target, "-u", _without_query(given.url)]
        for flag, value in (
            ("--to", given.to and _without_query(given.to)),
            ("--from", self._begin),
            ("--after", after or None),
            ("--until", self._until),
            ("--rate", given.rate and f"{given.rate:g}"),
        ):
            if value is not None:
                words += [flag, str(value)]
        if given.no_schema:
            words.append("--no-schema")
        has_more = given.options or "?" in f"{given.url}{given.to or ''}"
        return f"to go on{', with the same options of clients' if has_more else ''}: {shlex.join(words)}"
