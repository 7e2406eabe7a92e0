"""Dates, times, decimals and UUIDs as the numbers, bytes and texts that stand for them in payloads.

The engine calls these for the values that it cannot make itself. Years beyond those of
``datetime`` are errors.
"""

from __future__ import annotations

import decimal
import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)
_DAY = date(1970, 1, 1).toordinal()
_MICRO = timedelta(microseconds=1)
_DAY_MICROS = 86_400_000_000

# Most digits of a decimal. Making one of digits takes time that grows with their square.
_MAX_DIGITS = 10_000
_MAX_DECIMAL_BYTES = 4160

# The default context would round to 28 digits.
_EXACT = decimal.Context(prec=20_000, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def _wrong(wanted: str, value: object) -> NoReturn:
    raise TypeError(f"expected {wanted}, got {type(value).__name__}")


def _days(value: object) -> int:
    if not isinstance(value, date) or isinstance(value, datetime):
        _wrong("datetime.date", value)
    return value.toordinal() - _DAY


def _micros_of_day(value: object) -> int:
    if not isinstance(value, time):
        _wrong("datetime.time", value)
    if value.tzinfo is not None:
        raise ValueError("expected a datetime.time without a time zone")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _micros(value: object) -> int:
    if not isinstance(value, datetime):
        _wrong("datetime.datetime", value)
    if value.tzinfo is None:
        raise ValueError("expected a datetime.datetime with a time zone, such as datetime.now(UTC)")
    return (value - _EPOCH) // _MICRO


def _local_micros(value: object) -> int:
    if not isinstance(value, datetime):
        _wrong("datetime.datetime", value)
    if value.tzinfo is not None:
        raise ValueError("expected a datetime.datetime without a time zone")
    return (value - _LOCAL_EPOCH) // _MICRO


def _time(micros: int) -> time:
    if not 0 <= micros < _DAY_MICROS:
        raise ValueError(f"{micros} microseconds are no time of a day")
    return (_LOCAL_EPOCH + micros * _MICRO).time()


def _unscaled(scale: int, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        _wrong("decimal.Decimal", value)
    if isinstance(value, int) and value.bit_length() > _MAX_DECIMAL_BYTES * 8:
        raise ValueError(f"the number has more than {_MAX_DIGITS} digits")
    exact = Decimal(value)
    if not exact.is_finite():
        raise ValueError(f"{exact} is no number")
    if exact and (exact.adjusted() + 1 + scale > _MAX_DIGITS or len(exact.as_tuple().digits) > _MAX_DIGITS):
        raise ValueError(f"the number has more than {_MAX_DIGITS} digits")
    scaled = exact.scaleb(scale, _EXACT)
    if scaled != scaled.to_integral_value(context=_EXACT):
        raise ValueError(f"{exact} has more than {scale} digits behind the point")
    return int(scaled)


def encode(name: str, scale: int, size: int, value: object) -> int | bytes | str:
    """The number, bytes or text of a value. ``size`` is that of a fixed, else 0."""
    match name:
        case "date":
            return _days(value)
        case "time-millis":
            return _micros_of_day(value) // 1000
        case "time-micros":
            return _micros_of_day(value)
        case "timestamp-millis":
            return _micros(value) // 1000
        case "timestamp-micros":
            return _micros(value)
        case "local-timestamp-millis":
            return _local_micros(value) // 1000
        case "local-timestamp-micros":
            return _local_micros(value)
        case "decimal":
            number = _unscaled(scale, value)
            length = size or (number + (number < 0)).bit_length() // 8 + 1
            try:
                return number.to_bytes(length, "big", signed=True)
            except OverflowError:
                raise ValueError(f"{value} does not fit into {size} bytes") from None
        case _:
            if not isinstance(value, uuid.UUID):
                _wrong("uuid.UUID", value)
            return value.bytes if size else str(value)


def decode(name: str, scale: int, plain: Any) -> Any:
    """The value of a number, bytes or a text; numbers of JSON included."""
    if name == "decimal":
        if isinstance(plain, bytes):
            if len(plain) > _MAX_DECIMAL_BYTES:
                raise ValueError(f"a decimal of {len(plain)} bytes has more than {_MAX_DIGITS} digits")
            return Decimal(int.from_bytes(plain, "big", signed=True)).scaleb(-scale, _EXACT)
        if isinstance(plain, bool) or not isinstance(plain, Decimal | int | str):
            _wrong("a number", plain)
        return Decimal(plain)
    if name == "uuid":
        if isinstance(plain, bytes):
            return uuid.UUID(bytes=plain) if len(plain) == 16 else uuid.UUID(plain.decode())
        return uuid.UUID(plain)
    if isinstance(plain, bool) or not isinstance(plain, int):
        _wrong("an integer", plain)
    match name:
        case "date":
            return date.fromordinal(plain + _DAY)
        case "time-millis":
            return _time(plain * 1000)
        case "time-micros":
            return _time(plain)
        case "timestamp-millis":
            return _EPOCH + plain * timedelta(milliseconds=1)
        case "timestamp-micros":
            return _EPOCH + plain * _MICRO
        case "local-timestamp-millis":
            return _LOCAL_EPOCH + plain * timedelta(milliseconds=1)
        case _:
            return _LOCAL_EPOCH + plain * _MICRO


def fits(name: str, value: object) -> bool:
    """Whether a value is one of a logical type: the branch of a union is chosen by this."""
    match name:
        case "date":
            return isinstance(value, date) and not isinstance(value, datetime)
        case "time-millis" | "time-micros":
            return isinstance(value, time)
        case "timestamp-millis" | "timestamp-micros":
            return isinstance(value, datetime) and value.tzinfo is not None
        case "local-timestamp-millis" | "local-timestamp-micros":
            return isinstance(value, datetime) and value.tzinfo is None
        case "decimal":
            return isinstance(value, Decimal)
        case _:
            return isinstance(value, uuid.UUID)


def decimal_text(scale: int, value: object) -> str:
    """A decimal as a number of JSON."""
    _unscaled(scale, value)
    return f"{Decimal(value):f}"  # pyright: ignore[reportArgumentType]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def load_json(payload: bytes, exact: bool) -> Any:
    """Parses JSON; numbers with a point to decimals if ``exact``."""
    try:
        return json.loads(payload, parse_constant=_no_constant, parse_float=Decimal if exact else None)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _instant(micros: int) -> bytes:
    seconds, rest = divmod(micros, 1_000_000)
    return seconds.to_bytes(8, "big", signed=True) + (rest * 1000).to_bytes(4, "big", signed=True)


def _days_and_nanos(micros: int) -> bytes:
    days, rest = divmod(micros, _DAY_MICROS)
    return _long(days) + _long(rest * 1000)


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


_ENCODERS: dict[str, Callable[[object], bytes]] = {
    "date": lambda value: _long(_micros(value) // 1000),
    "time": lambda value: _long(_micros_of_day(value) // 1000),
    "timestamp": lambda value: _long(_micros(value) // 1000),
    "instant": lambda value: _instant(_micros(value)),
    "local_date": lambda value: _long(_days(value)),
    "local_time": lambda value: _long(_micros_of_day(value) * 1000),
    "local_date_time": lambda value: _days_and_nanos(_local_micros(value)),
}


def encode_primitive(kind: str, value: object) -> bytes:
    """A payload of one of Pulsar's types of dates and times, as the Java client writes it."""
    return _ENCODERS[kind](value)


def decode_primitive(kind: str, payload: bytes) -> Any:
    """The value of such a payload. What is finer than microseconds is cut off."""
    size = {"instant": 12, "local_date_time": 16}.get(kind, 8)
    if len(payload) != size:
        raise ValueError(f"expected {size} bytes, got {len(payload)}")
    number = int.from_bytes(payload[:8], "big", signed=True)
    if size > 8:
        rest = timedelta(microseconds=int.from_bytes(payload[8:], "big", signed=True) // 1000)
        if kind == "instant":
            return _EPOCH + timedelta(seconds=number) + rest
        return _LOCAL_EPOCH + timedelta(days=number) + rest
    match kind:
        case "local_date":
            return date.fromordinal(number + _DAY)
        case "local_time":
            return _time(number // 1000)
        case "time":
            # Java's Time is an instant: the day does not matter.
            return _time(number % 86_400_000 * 1000)
        case _:
            return _EPOCH + number * timedelta(milliseconds=1)
