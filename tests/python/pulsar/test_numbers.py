"""Values of every type, against Python's own json and decimal, and against fastavro."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import fastavro
import pytest

from forebay.pulsar import Schema

EXACT = Context(prec=100)


def _double(chance: random.Random) -> float:
    number: float = struct.unpack("<d", chance.randbytes(8))[0]
    return number if math.isfinite(number) else chance.choice([0.0, -0.0, 5e-324, 1.7976931348623157e308])


def _single(chance: random.Random) -> float:
    number: float = struct.unpack("<f", chance.randbytes(4))[0]
    return number if math.isfinite(number) else 0.1328125


def _logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def _decimal(digits: int, scale: int) -> tuple[Any, Callable[[random.Random], Any]]:
    kind = {**_logical("bytes", "decimal"), "precision": digits, "scale": scale}

    def value(chance: random.Random) -> Decimal:
        whole = chance.choice([chance.randrange(-(10**digits) + 1, 10**digits), chance.randrange(-9, 9), 0])
        return Decimal(whole).scaleb(-scale, EXACT)

    return kind, value


KINDS: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "int": ("int", lambda chance: chance.choice([-(2**31), 2**31 - 1, chance.randrange(-(2**31), 2**31)])),
    "long": ("long", lambda chance: chance.choice([-(2**63), 2**63 - 1, chance.randrange(-(2**63), 2**63)])),
    "double": ("double", _double),
    "float": ("float", _single),
    "boolean": ("boolean", lambda chance: chance.random() < 0.5),
    "string": ("string", lambda chance: "".join(map(chr, chance.choices(range(0xD000), k=8)))),
    "bytes": ("bytes", lambda chance: chance.randbytes(chance.randrange(20))),
    "decimal-9": _decimal(9, 2),
    "decimal-38": _decimal(38, 38),
    "decimal-76": _decimal(76, 30),
    "date": (
        _logical("int", "date"),
        lambda chance: date.fromordinal(chance.randrange(1, date.max.toordinal() + 1)),
    ),
    "time": (
        _logical("long", "time-micros"),
        lambda chance: time(chance.randrange(24), chance.randrange(60), 59, chance.randrange(10**6)),
    ),
    "timestamp": (
        _logical("long", "timestamp-micros"),
        lambda chance: (
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, chance.randrange(-(10**15), 10**16))
        ),
    ),
    "local": (
        _logical("long", "local-timestamp-micros"),
        lambda chance: datetime(1970, 1, 1) + timedelta(0, 0, chance.randrange(-(10**15), 10**16)),
    ),
    "uuid": (_logical("string", "uuid"), lambda chance: uuid.UUID(bytes=chance.randbytes(16))),
}


def _cases(name: str) -> tuple[dict[str, Any], list[Any]]:
    kind, value = KINDS[name]
    chance = random.Random(name)
    fields = [
        {"name": "one", "type": kind},
        {"name": "some", "type": {"type": "array", "items": ["null", kind]}},
        {"name": "named", "type": {"type": "map", "values": kind}},
    ]
    rows = [
        {"one": value(chance), "some": [value(chance), None], "named": {"k": value(chance)}}
        for _ in range(200)
    ]
    return {"type": "record", "name": "R", "fields": fields}, rows


def _same(one: Any, other: Any) -> None:
    # 0.0 and -0.0, and 1 and 1.0, are equal and not the same.
    assert one == other
    assert repr(one) == repr(other) or "Decimal" in repr(one)


@pytest.mark.parametrize("name", KINDS)
def test_avro_is_that_of_fastavro(name: str) -> None:
    definition, rows = _cases(name)
    theirs = fastavro.parse_schema(json.loads(json.dumps(definition)))
    ours: Any = Schema.avro(definition)
    for row in rows:
        encoded = ours._native.encode(row)
        _same(fastavro.schemaless_reader(io.BytesIO(encoded), theirs, None), row)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, theirs, row)
        _same(ours.decode(out.getvalue()), row)


@pytest.mark.parametrize("name", KINDS)
def test_json_is_that_of_python(name: str) -> None:
    definition, rows = _cases(name)
    ours: Any = Schema.json(definition)
    for row in rows:
        encoded = ours._native.encode(row)
        _same(ours.decode(encoded), row)
        plain = json.loads(encoded, parse_float=Decimal if isinstance(row["one"], Decimal) else None)
        if isinstance(row["one"], Decimal | float):
            assert type(row["one"])(plain["one"]) == row["one"]
        # Other writers choose other forms of the same numbers.
        again = json.dumps(plain, default=lambda number: f"{number:E}")
        _same(ours.decode(again.encode()), row)
