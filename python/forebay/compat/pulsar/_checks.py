"""Checks of the types of arguments, with the texts of the official module."""

from __future__ import annotations

from typing import Any


def check_type(kind: type[Any], value: object, name: str) -> None:
    """Raises:
    ValueError: ``value`` is not a ``kind``.
    """
    if not isinstance(value, kind):
        raise ValueError(
            f"Argument {name} is expected to be of type '{kind.__name__}' and not '{type(value).__name__}'"
        )


def check_type_or_none(kind: type[Any], value: object, name: str) -> None:
    """As :func:`check_type`; ``None`` passes, too."""
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"Argument {name} is expected to be either None or of type '{kind.__name__}'")
