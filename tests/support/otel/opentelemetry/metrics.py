"""Instruments that are read on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

INSTRUMENTS: dict[str, tuple[str, Callable[[Any], Iterable[Observation]]]] = {}


class Observation(NamedTuple):
    value: float
    attributes: dict[str, str]


class Meter:
    def create_observable_counter(self, name: str, callbacks: list[Any], unit: str, description: str) -> None:
        assert name not in INSTRUMENTS and unit and description
        INSTRUMENTS[name] = ("counter", callbacks[0])

    def create_observable_gauge(self, name: str, callbacks: list[Any], unit: str, description: str) -> None:
        assert name not in INSTRUMENTS and unit and description
        INSTRUMENTS[name] = ("gauge", callbacks[0])


class Provider:
    def get_meter(self, name: str) -> Meter:
        assert name == "forebay"
        return Meter()


def get_meter_provider() -> Provider:
    return Provider()
