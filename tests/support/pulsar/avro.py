"""Container files of Avro, in which other libraries write and read rows."""

from __future__ import annotations

import io
from typing import Any

_MAGIC = b"Obj\x01"
_SYNC = bytes(range(16))


def _long(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(data: bytes) -> bytes:
    return _long(len(data)) + data


def container(definition: str, rows: list[bytes]) -> io.BytesIO:
    """A file with encoded rows."""
    block = b"".join(rows)
    return io.BytesIO(
        _MAGIC
        + _long(2)
        + _bytes(b"avro.schema")
        + _bytes(definition.encode())
        + _bytes(b"avro.codec")
        + _bytes(b"null")
        + _long(0)
        + _SYNC
        + _long(len(rows))
        + _bytes(block)
        + _SYNC
    )


def records(frame: Any) -> tuple[str, list[bytes]]:
    """The definition of a polars frame and its encoded rows, as polars writes them."""
    definition, rows = "", list[bytes]()
    for row in range(len(frame)):
        out = io.BytesIO()
        frame[row : row + 1].write_avro(out, name="Row")
        definition, encoded = _parse(out.getvalue())
        rows.append(encoded)
    return definition, rows


def _parse(data: bytes) -> tuple[str, bytes]:
    at = len(_MAGIC)

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def content() -> bytes:
        nonlocal at
        length = number()
        at += length
        return data[at - length : at]

    metadata: dict[bytes, bytes] = {}
    while count := number():
        metadata |= {content(): content() for _ in range(count)}
    at += len(_SYNC)
    assert number() == 1
    return metadata[b"avro.schema"].decode(), content()
