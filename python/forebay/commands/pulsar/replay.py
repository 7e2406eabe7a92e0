"""``forebay replay`` with a Pulsar URL: messages of a topic, sent again to another one."""

from __future__ import annotations

import argparse
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from forebay.commands._shared import replay as shared
from forebay.commands._shared.options import moment, scopes
from forebay.errors import EndOfTopic, InvalidArgument, Timeout, TopicNotFound, Unsupported
from forebay.pulsar import MessageId, Schema, blocking
from forebay.pulsar.positions import full_name

from .end import End
from .ids import message_ids, start, with_colons

if TYPE_CHECKING:
    from forebay.pulsar import PulsarMessage

_IDLE = 2.0
"""Seconds without a message after which the broker is asked whether there are more."""


def run(given: argparse.Namespace) -> int:
    """Replays; returns the exit status."""
    options = scopes(given.options, "pulsar")
    shared.check(given, same_topic=full_name(given.source) == full_name(given.target))
    # Not relative any more: a replay that is resumed begins at the same place.
    begin: Any = "earliest" if given.begin is None else start("--from", given.begin)
    wanted = options["consumer"]
    wanted["position"] = begin
    wanted.setdefault("start_inclusive", True)
    to: str = given.to or given.url
    with (
        blocking.connect(given.url, **options["client"]) as source,
        blocking.connect(to, **options["client"]) as target,
        source.reader(given.source, **wanted) as reader,
        target.producer(given.target, **options["producer"]) as producer,
    ):
        _Replay(given, source, reader, producer, wanted).run()
    return 0


class _Replay(shared.Replay["PulsarMessage", MessageId]):
    """A replay; its places are the ids of messages.

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
        # Ids as they were given.
        resumed = given.begin if isinstance(begin, list) else None if begin == "earliest" else begin
        until = None if given.until is None else moment("--until", given.until)
        super().__init__(given, producer, resumed, until)
        self._client = client
        self._reader = reader
        self._wanted = wanted
        self._schemas: dict[bytes, Schema[Any]] = {}
        self._end_time = until
        for id in message_ids(given.after) if given.after else ():
            self._reader.seek(id, inclusive=False)
            self._confirmed[_partition_of(given.source, id)] = id

    def _messages(self) -> Generator[PulsarMessage, None, None]:
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
            if self._end_time is not None and message.publish_time >= self._end_time:
                end.close(id)
                continue
            left = None if left is None else left - 1
            yield message
        self.complete = True

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
            with self._client.reader(last.topic, **wanted) as probe:
                if not probe.has_message_available():
                    end.close(last)

    def _at(self, partition: int) -> Any:
        """The beginning of a partition, as it was given."""
        begin: Any = self._wanted["position"]
        if not isinstance(begin, list):
            return begin
        return next((id for id in cast("list[MessageId]", begin) if id.partition == partition), "earliest")

    def _send(self, message: PulsarMessage) -> None:
        self._hand_over(message)
        self._sent[message.id.topic] = message.id

    def _text(self, place: MessageId) -> str:
        return with_colons(place)

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


def _partition_of(topic: str, id: MessageId) -> str:
    full = full_name(topic)
    return full if id.partition < 0 or "-partition-" in full else f"{full}-partition-{id.partition}"
