# Generated from forebay/pulsar/_producer.py by tools/generate_blocking.py; do not edit.
"""Producers of Pulsar, blocking: :class:`PulsarProducer`."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from forebay._core import dataframes, parse
from forebay._sync.base import Producer
from forebay.pulsar._routing import clusters, frame_schema, message_schema
from forebay.pulsar._typing import T, T_contra

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay._core.types import Duration, Timestamp, Waiter
    from forebay._engine import FrameRoles, FrameRows, MessageId, MessageIds
    from forebay.pulsar._options import FrameSchema, SchemaOption
    from forebay.pulsar._schema import Schema
    from forebay.pulsar._typing import MessageFields


class PulsarProducer(Producer[T_contra]):
    """Sends to one topic. Made by :meth:`PulsarClient.producer`. ``PulsarProducer[Order]`` sends values of a
    schema."""

    @property
    def name(self) -> str:
        """Producer name, given or chosen by the broker."""
        return self._native.name

    @property
    def started_partitions(self) -> int:
        """Number of partitions whose producers are open at the broker or are being opened: all of them,
        unless ``lazy_start`` leaves some for later. 1 for a topic without partitions."""
        return self._native.started_partitions

    @property
    def last_sequence_id(self) -> int:
        """Highest sequence id with a receipt; -1 before the first one."""
        return self._native.last_sequence_id

    @property
    def interceptor_errors(self) -> int:
        """Number of calls of interceptors that raised."""
        return 0

    @overload
    def send(
        self, payload: T_contra, key: str | None = None, **fields: Unpack[MessageFields]
    ) -> MessageId: ...
    @overload
    def send(
        self,
        payload: T_contra | Buffer | None,
        key: str | None = None,
        *,
        null_value: bool,
        **fields: Unpack[MessageFields],
    ) -> MessageId: ...
    @overload
    def send(
        self,
        payload: T | None,
        key: str | None = None,
        *,
        schema: type[T] | Schema[T] | str | None,
        null_value: bool = False,
        **fields: Unpack[MessageFields],
    ) -> MessageId: ...
    def send(
        self,
        payload: Any,
        key: str | None = None,
        *,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: Timestamp | None = None,
        sequence_id: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        null_value: bool = False,
        replicate_to: Sequence[str] | None = None,
        disable_replication: bool = False,
        schema: SchemaOption | None = None,
    ) -> MessageId:
        """Sends a message. The payload is copied before this returns; the result is the message id of the
        broker's receipt. An exception during the wait does not unsend.

        Args:
            payload: bytes, or anything with the buffer protocol; with a schema, a value of it, or
                ``None`` for a ``null_value``.
            key: chooses the partition, and the consumer on Key_Shared subscriptions.
            ordering_key: chooses the Key_Shared consumer instead of ``key``.
            properties: user-defined metadata.
            event_time: when the event happened: an aware ``datetime`` or milliseconds since 1970.
            sequence_id: for deduplication; must ascend.
            deliver_at: earliest delivery on Shared subscriptions: an aware ``datetime`` or milliseconds since
                1970.
            deliver_after: the same as a delay in seconds from now.
            null_value: sends a tombstone, which compaction removes together with its key.
            replicate_to: names of the only clusters that get a copy; by default the namespace decides.
            disable_replication: keeps the message in this cluster.
            schema: the schema of this message, if it is not that of the producer. The first message with a
                schema has it registered, and those behind it wait for that; they are never in one batch with
                messages of other schemas.

        Raises:
            QueueFull: the send window and its overflow queue are full: flush first.
            MemoryLimit: the client's ``memory_limit`` is reached.
            MessageTooLarge: the message is larger than the broker accepts.
            InvalidArgument: a bad value, or the ``router`` raised or returned no partition.
            SchemaError: the value does not fit the schema; the error names the field, and nothing is sent.
            IncompatibleSchema: the broker refuses ``schema``; shows both, and the producer goes on (when
                awaited).
            Closed: after :meth:`close`.
        """
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        if replicate_to is not None or disable_replication:
            replicate_to = clusters(replicate_to, disable_replication)
        return self._native.send(
            payload,
            key,
            ordering_key,
            properties,
            event_time,
            sequence_id,
            deliver_at,
            null_value,
            replicate_to,
            None,
            None if schema is None else message_schema(schema),
        ).wait()

    @overload
    def send_nowait(
        self, payload: T_contra, key: str | None = None, **fields: Unpack[MessageFields]
    ) -> None: ...
    @overload
    def send_nowait(
        self,
        payload: T_contra | Buffer | None,
        key: str | None = None,
        *,
        null_value: bool,
        **fields: Unpack[MessageFields],
    ) -> None: ...
    @overload
    def send_nowait(
        self,
        payload: T | None,
        key: str | None = None,
        *,
        schema: type[T] | Schema[T] | str | None,
        null_value: bool = False,
        **fields: Unpack[MessageFields],
    ) -> None: ...
    def send_nowait(
        self,
        payload: Any,
        key: str | None = None,
        *,
        ordering_key: bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: Timestamp | None = None,
        sequence_id: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        null_value: bool = False,
        replicate_to: Sequence[str] | None = None,
        disable_replication: bool = False,
        schema: SchemaOption | None = None,
    ) -> None:
        """As :meth:`send`, without a result: the message is admitted, or this raises. :meth:`flush` waits for
        the receipts and raises what went wrong.

        Raises:
            QueueFull: the send window is full; nothing is queued behind it.
            MemoryLimit, MessageTooLarge, Closed: as :meth:`send`.
        """
        if event_time is not None:
            event_time = parse.epoch_ms(event_time)
        if deliver_at is not None or deliver_after is not None:
            deliver_at = parse.deliver_ms(deliver_at, deliver_after)
        if replicate_to is not None or disable_replication:
            replicate_to = clusters(replicate_to, disable_replication)
        self._native.send_nowait(
            payload,
            key,
            ordering_key,
            properties,
            event_time,
            sequence_id,
            deliver_at,
            null_value,
            replicate_to,
            None,
            None if schema is None else message_schema(schema),
        )

    @overload
    def send_many(
        self, payloads: Sequence[T_contra], keys: Sequence[str | None] | None = None
    ) -> MessageIds: ...
    @overload
    def send_many(
        self,
        payloads: Sequence[T],
        keys: Sequence[str | None] | None = None,
        *,
        schema: type[T] | Schema[T] | str | None,
    ) -> MessageIds: ...
    def send_many(
        self,
        payloads: Sequence[Any],
        keys: Sequence[str | None] | None = None,
        *,
        schema: SchemaOption | None = None,
    ) -> MessageIds:
        """Sends many messages and wakes up once, when the broker has all of them: the fastest way to send
        payloads from Python. No more than the send window are in flight at a time.

        Args:
            payloads: the messages: bytes-like, or values of the schema.
            keys: one for each payload, or none.
            schema: of all of them, instead of the producer's, as in :meth:`send`. Nothing is sent if a value
                does not fit it.

        Returns:
            The message ids in the order of ``payloads``.

        Raises:
            ValueError: ``keys`` and ``payloads`` differ in length.
            SchemaError: a value that does not fit the schema.
            Unsupported: ``schema`` has pairs whose keys are those of the messages.
            IncompatibleSchema: the broker refuses ``schema``.
            Error: the first error of the messages, with the number of failed ones.
        """
        return self.submit_many(payloads, keys, schema=schema).wait()

    @overload
    def submit_many(
        self, payloads: Sequence[T_contra], keys: Sequence[str | None] | None = None
    ) -> Waiter[MessageIds]: ...
    @overload
    def submit_many(
        self,
        payloads: Sequence[T],
        keys: Sequence[str | None] | None = None,
        *,
        schema: type[T] | Schema[T] | str | None,
    ) -> Waiter[MessageIds]: ...
    def submit_many(
        self,
        payloads: Sequence[Any],
        keys: Sequence[str | None] | None = None,
        *,
        schema: SchemaOption | None = None,
    ) -> Waiter[MessageIds]:
        """As :meth:`send_many`, without waiting: ``wait()`` of the result gives the message ids, and the next
        messages can be prepared meanwhile."""
        self._check()
        if schema is None:
            return self._native.send_many(payloads, keys)
        return self._native.send_rows(self._native.encode_values(payloads, keys, message_schema(schema)))

    def send_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        key: str | None = None,
        properties: str | None = None,
        event_time: str | None = None,
        ordering_key: str | None = None,
        deliver_at: str | None = None,
        schema: FrameSchema | None = "producer",
    ) -> MessageIds:
        """Sends each row of a DataFrame as a message, without a Python object per row.

        With a schema the columns are the fields of its record, by their names. A field without a column has
        its default. Columns that are no fields are errors, except those with another role, such as ``key``.

        Args:
            frame: anything with the Arrow PyCapsule interface: pyarrow, polars, pandas 2.2+, duckdb.
            value: column of the payloads (binary or text); with a schema, of its values: structs for
                records. Null sends a tombstone.
            encoding: for rows without a schema. ``"raw"`` sends ``value`` as it is; ``"json"`` sends each row
                as an object of all columns. Default: ``"raw"`` if ``value`` is given.
            key: column of the keys: text, or bytes, which are sent as Base64 with the mark for it, as by the
                Java client.
            properties: column of maps, text to text.
            event_time: column of timestamps, or of milliseconds since 1970.
            ordering_key: column of the keys for Key_Shared subscriptions, in place of ``key``; text or bytes.
            deliver_at: column of the times of the earliest delivery, as ``event_time``.
            schema: ``"producer"`` stands for the schema of the producer; if it has none, the topic must not
                have one either. ``"avro"`` and ``"json"`` define a schema by the columns, and any other
                schema is one as for :meth:`PulsarClient.producer`: the broker gets it with the first row.
                ``None`` sends payloads without a schema, whatever the topic has.

        Returns:
            The message ids in the order of the rows.

        Raises:
            InvalidArgument: no such column, a type that does not fit, or no Arrow interface.
            SchemaError: a row or a column does not fit the schema, which the error names, and nothing is
                sent; or the topic has a schema and the rows have none.
            IncompatibleSchema: the broker refuses ``schema``; shows both.
            Unsupported: a schema that rows cannot be encoded by.
        """
        return self.submit_frame(
            frame,
            value=value,
            encoding=encoding,
            key=key,
            properties=properties,
            event_time=event_time,
            ordering_key=ordering_key,
            deliver_at=deliver_at,
            schema=schema,
        ).wait()

    def submit_frame(
        self,
        frame: Any,
        *,
        value: str | None = None,
        encoding: str | None = None,
        key: str | None = None,
        properties: str | None = None,
        event_time: str | None = None,
        ordering_key: str | None = None,
        deliver_at: str | None = None,
        schema: FrameSchema | None = "producer",
    ) -> Waiter[MessageIds]:
        """As :meth:`send_frame`, without waiting: ``wait()`` of the result gives the message ids."""
        self._check()
        roles: FrameRoles = {
            "value": value,
            "key": key,
            "properties": properties,
            "event_time": event_time,
            "ordering_key": ordering_key,
            "deliver_at": deliver_at,
        }
        return self.submit_rows(self._encode_frame(frame, roles, encoding, schema))

    def _encode_frame(
        self,
        frame: Any,
        roles: FrameRoles,
        encoding: str | None,
        schema: FrameSchema | None = "producer",
    ) -> FrameRows:
        frame = dataframes.readable(frame)
        dataframes.check_encoding(roles["value"], encoding)
        return self._native.encode_frame(frame, roles, schema=frame_schema(schema), encoding=encoding)
