"""The rows of a Spark partition in lots, each of which is passed to the engine in one call."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from forebay.errors import InvalidArgument

from . import _errors
from ._config import ROLES, WriteConfig

MESSAGES_PER_LOT = 40
BYTES_PER_LOT = 16 << 20
"""Arrow messages of the JVM, and bytes of them, that are passed to the engine in one call."""
BYTES_TO_GATHER = 1 << 20
"""Bytes of a record batch from which on it is not copied to be put together with others."""
ROWS_PER_CALL = 2000
"""Plain Rows passed to the engine in one call."""


def of(first: Any, others: Iterator[Any], arrow_schema: bytes | None) -> Iterator[Any]:
    """The rows as record batches or lists of Rows.

    Args:
        first, others: a ``Row``, ``pyarrow.RecordBatch`` or Arrow IPC message, and those behind it.
        arrow_schema: the serialised schema of Arrow IPC messages.

    Raises:
        InvalidArgument: Arrow IPC messages without a schema.
    """
    rows = itertools.chain([first], others)
    if isinstance(first, bytes | bytearray | memoryview):
        if arrow_schema is None:
            raise InvalidArgument("Arrow IPC messages need arrow_schema, their serialised schema")
        yield from _larger(rows, arrow_schema)
    elif hasattr(first, "__arrow_c_array__"):
        yield from _gathered(rows)
    else:
        while chunk := list(itertools.islice(rows, ROWS_PER_CALL)):
            yield chunk


def _larger(messages: Iterator[Any], schema: bytes) -> Iterator[Any]:
    """Short Arrow IPC messages as large tables. Each call into the engine has a cost, and so has each
    acknowledgement of a lot; one stream of many messages is read faster than each of them."""
    import pyarrow as pa

    while chunk := _chunk(messages, len):
        table = pa.ipc.open_stream(pa.py_buffer(b"".join([schema, *chunk]))).read_all()
        yield table.combine_chunks()


def _gathered(found: Iterator[Any]) -> Iterator[Any]:
    """Short record batches as large tables, for the same reason, and others as they are."""
    import pyarrow as pa

    for first in found:
        if first.num_rows >= ROWS_PER_CALL or first.nbytes >= BYTES_TO_GATHER:
            yield first
            continue
        chunk = _chunk(itertools.chain([first], found), lambda batch: batch.nbytes)
        yield pa.Table.from_batches(chunk).combine_chunks() if len(chunk) > 1 else first


def _chunk(messages: Iterator[Any], size_of: Callable[[Any], int]) -> list[Any]:
    chunk: list[Any] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += size_of(message)
        if size >= BYTES_PER_LOT or len(chunk) >= MESSAGES_PER_LOT:
            break
    return chunk


def payload_and_key_only(config: WriteConfig, chunk: list[Any]) -> bool:
    """Whether rows can be sent as they are, without pyarrow."""
    others = [getattr(config, role) for role in ROLES if role not in ("value", "key")]
    if config.encoding != "raw" or config.delivery != "at-least-once" or config.on_bad_row != "fail":
        return False
    if config.row_topic or config.id_property or any(others):
        return False
    key = config.key
    if config.protocol == "pulsar" and key and any(isinstance(row[key], bytes | bytearray) for row in chunk):
        # Keys of bytes have a mark.
        return False
    return all(row[config.value] is not None for row in chunk)


def payload(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"a payload must be binary or text, not {type(value).__name__}: use encoding='json'"
    )


def key(value: Any) -> str | None:
    """The text of a key, as the JVM and the engine write it, too."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidArgument(f"a key of bytes is not UTF-8: {bytes(value[:40])!r}") from None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    raise _errors.no_key(f"a key is of type {type(value).__name__}")
