"""``forebay replay`` with a Pulsar URL: messages of a topic, sent again to another one."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from forebay.commands._shared.options import moment, scopes
from forebay.errors import (
    EndOfTopic,
    Error,
    InvalidArgument,
    MemoryLimit,
    QueueFull,
    Timeout,
    TopicNotFound,
    Unsupported,
)
from forebay.progress import Progress
from forebay.pulsar import MessageId, Schema, blocking
from forebay.pulsar._positions import full_name

from . import existing
from .end import End
from .ids import message_ids, start, with_colons

if TYPE_CHECKING:
    from forebay.pulsar import PulsarMessage

CONFIRMED_EVERY = 500
"""Messages after which receipts are awaited: the largest number sent twice when a replay is resumed."""
_LAST_WAIT = 10.0
"""Seconds to wait for receipts after an interruption."""
_IDLE = 2.0
"""Seconds without a message after which the broker is asked whether there are more."""


def run(given: argparse.Namespace) -> int:
    """Replays; returns the exit status."""
    options = scopes(given.options, "pulsar")
    _check(given)
    # Not relative any more: a replay that is resumed begins at the same place.
    begin: Any = "earliest" if given.begin is None else start("--from", given.begin)
    wanted = options["consumer"]
    wanted["position"] = begin
    wanted.setdefault("start_inclusive", begin != "latest")
    to: str = given.to or given.url
    with (
        blocking.connect(given.url, **options["client"]) as source,
        blocking.connect(to, **options["client"]) as target,
        existing.reader(source, given.source, **wanted) as reader,
        target.producer(given.target, **options["producer"]) as producer,
    ):
        try:
            _Replay(given, source, reader, producer, wanted).run()
        except KeyboardInterrupt:
            # It has waited for receipts. Closing would wait for a broker that may be gone.
            source.abandon()
            target.abandon()
            raise
    return 0


def _check(given: argparse.Namespace) -> None:
    """Checks the arguments.

    Raises:
        InvalidArgument: one is wrong, or the messages would be sent to the topic that they are from.
    """
    if given.count is not None and given.count < 1:
        raise InvalidArgument(f"-n is 1 or more, not {given.count}")
    if given.rate is not None and not 0 < given.rate < 1e9:
        raise InvalidArgument(f"--rate is a number of messages per second above 0, not {given.rate:g}")
    if given.after:
        message_ids(given.after)
    if given.until is not None:
        moment("--until", given.until)
    same_broker = given.to is None or _without_query(given.to) == _without_query(given.url)
    if same_broker and full_name(given.source) == full_name(given.target):
        raise InvalidArgument("the source and the target are the same topic")


def _without_query(url: str) -> str:
    """A URL without its options, which may be secrets."""
    return url.partition("?")[0]


class _Replay:
    """The work, and how far it has got.

    Args:
        given: the parsed arguments.
        client: of the source.
        reader: of the source.
        producer: of the target.
        wanted: the options of the reader.
    """

    def __init__(
        self,
        given: argparse.Namespace,
        client: blocking.PulsarClient,
        reader: blocking.PulsarConsumer,
        producer: blocking.PulsarProducer[Any],
        wanted: dict[str, Any],
    ) -> None:
        begin: Any = wanted["position"]
        self._given = given
        self._client = client
        self._reader = reader
        self._producer = producer
        self._wanted = wanted
        self._schemas: dict[bytes, Schema[Any]] = {}
        # Ids as they were given.
        self._begin: str | int | None = (
            given.begin if isinstance(begin, list) else None if begin == "earliest" else begin
        )
        """``--from`` of a replay that resumes this one. ``None`` for the beginning."""
        self._until = None if given.until is None else moment("--until", given.until)
        self._sent: dict[str, MessageId] = {}
        """For each partition the last message that was sent."""
        self._pending = 0
        """Messages without a receipt."""
        self._confirmed: dict[str, MessageId] = {}
        """For each partition the last message up to which everything has a receipt."""
        self.count = 0
        """Messages with a receipt."""
        self._complete = False
        """Whether the end of the source was reached."""
        for id in message_ids(given.after) if given.after else ():
            self._reader.seek(id, inclusive=False)
            self._confirmed[_partition_of(given.source, id)] = id

    def run(self) -> None:
        """Does the work, and reports, also after an error or an interruption."""
        try:
            self._run()
        except BaseException:
            self._confirm()
            self._report(complete=False)
            raise
        self._report(complete=self._complete)

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
        """Waits until the next message is due, and in a longer pause for receipts."""
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

    def _messages(self) -> Generator[PulsarMessage, None, None]:
        """The messages up to the end that the source has now, or to one of the limits."""
        end = End(self._reader)
        self._pass_over(end)
        left = self._given.count
        while not end.reached:
            if left == 0:
                return
            try:
                message = self._reader.receive(timeout=_IDLE)
            except Timeout:
                if self._reader.has_message_available():
                    continue
                break
            except EndOfTopic:
                break
            id = message.id
            behind = end.is_behind(id)
            end.seen(id)
            done = self._confirmed.get(id.topic)
            # A reader may have had some before it was moved.
            if behind or (done is not None and id <= done):
                continue
            if self._until is not None and message.publish_time >= self._until:
                end.close(id)
                continue
            left = None if left is None else left - 1
            yield message
        self._complete = True

    def _pass_over(self, end: End) -> None:
        """Closes the ends of partitions that have nothing from the beginning on: others that are written to
        all the time would keep this from ending."""
        begin = self._wanted["position"]
        if begin == "earliest" and not self._confirmed:
            return
        for last in end.open:
            at: Any = self._at(last.partition)
            inclusive = self._wanted["start_inclusive"]
            if last.topic in self._confirmed:
                at, inclusive = self._confirmed[last.topic], False
            wanted: dict[str, Any] = {**self._wanted, "position": at, "start_inclusive": inclusive}
            with existing.reader(self._client, last.topic, **wanted) as probe:
                if not probe.has_message_available():
                    end.close(last)

    def _at(self, partition: int) -> Any:
        """The beginning of a partition, as it was given."""
        begin: Any = self._wanted["position"]
        if not isinstance(begin, list):
            return begin
        return next((id for id in cast("list[MessageId]", begin) if id.partition == partition), "earliest")

    def _send(self, message: PulsarMessage) -> None:
        """Sends a message without waiting for its receipt."""
        self._hand_over(message)
        self._sent[message.id.topic] = message.id

    def _hand_over(self, message: PulsarMessage) -> None:
        schema = self._schema(message)
        key = message.key
        if key is not None and message.key_bytes != key.encode():
            self._send_row(message, schema)
            return
        fields: dict[str, Any] = {
            "ordering_key": message.ordering_key,
            "properties": message.properties or None,
            "event_time": message.event_time,
            "null_value": message.is_null,
        }
        if schema is not None:
            fields["schema"] = schema
        payload = None if message.is_null and schema is not None else message.data
        self._submit(payload, key, **fields)

    def _send_row(self, message: PulsarMessage, schema: Schema[Any] | None) -> None:
        """Sends a message whose key is bytes, which only rows can have."""
        try:
            import pyarrow  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise Unsupported(
                f"the message {message.id} has a key of bytes, and to replay it needs pyarrow:"
                " pip install 'forebay[frames]'"
            ) from None
        pa: Any = pyarrow
        columns = {
            "value": pa.array([None if message.is_null else message.data], pa.binary()),
            "key": pa.array([message.key_bytes], pa.binary()),
            "properties": pa.array([list(message.properties.items())], pa.map_(pa.string(), pa.string())),
            "event_time": pa.array([message.event_time], pa.int64()),
            "ordering_key": pa.array([message.ordering_key], pa.binary()),
        }
        names = {name: name for name in columns}
        self._producer.send_frame(pa.table(columns), **names, encoding="raw", schema=schema)

    def _schema(self, message: PulsarMessage) -> Schema[Any] | None:
        """The schema that a message was written with, for payloads that are encoded already."""
        version = message.schema_version
        if self._given.no_schema or version is None:
            return None
        if version not in self._schemas:
            try:
                stored = self._client.schema(message.id.topic, version)
                kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stored.type).lower()
                self._schemas[version] = Schema(
                    kind,
                    stored.name,
                    stored.definition.decode() or None,
                    properties=stored.properties,
                    raw=True,
                )
            except (TopicNotFound, InvalidArgument, UnicodeDecodeError) as error:
                raise Unsupported(
                    f"the schema of the message {message.id} cannot be used for the target ({error}):"
                    " --no-schema sends the payloads without"
                ) from None
        return self._schemas[version]

    def _report(self, *, complete: bool) -> None:
        """Tells how far it has got.

        Args:
            complete: whether the end of the source was reached.
        """
        at = ",".join(with_colons(id) for id in self._confirmed.values())
        given = self._given
        if given.json:
            said = {
                "source": given.source,
                "target": given.target,
                "messages": self.count,
                "complete": complete,
                "from": self._begin if isinstance(self._begin, int) else given.begin,
                "after": at,
            }
            print(json.dumps(said), flush=True)
            return
        if not given.quiet:
            print(f"{self.count:,} messages replayed to {given.target}", file=sys.stderr)
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


def _partition_of(topic: str, id: MessageId) -> str:
    full = full_name(topic)
    return full if id.partition < 0 or "-partition-" in full else f"{full}-partition-{id.partition}"
