"""Protocol Buffers by hand: messages that no generated code would write."""

from __future__ import annotations

from typing import Any

Fields = dict[int, Any]
Huge = 2**64 - 1


def varint(value: int) -> bytes:
    value &= Huge
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(fields: Fields) -> bytes:
    """Encodes fields by number: int as varint, bytes and str as is, dict as a message, list as repeated."""
    out = b""
    for number, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int):
                out += varint(number << 3) + varint(one)
            else:
                data = (
                    message(one) if isinstance(one, dict) else one.encode() if isinstance(one, str) else one
                )
                out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def parse(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message; nested messages as bytes."""
    fields: dict[int, list[Any]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            fields.setdefault(tag >> 3, []).append(number())
        else:
            size = number()
            fields.setdefault(tag >> 3, []).append(data[at : at + size])
            at += size
    return fields
