"""Conversion between objects and payloads, for functions."""

from __future__ import annotations

import contextlib
import pickle
from abc import abstractmethod
from typing import Any


class SerDe:
    """A conversion."""

    @abstractmethod
    def serialize(self, input: Any) -> bytes:
        """The payload of an object."""
        ...

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> Any:
        """The object of a payload."""


class PickleSerDe(SerDe):
    """Conversion by ``pickle``. Payloads must be from a source that is trusted."""

    def serialize(self, input: Any) -> bytes:
        """The payload of an object."""
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """The object of a payload."""
        return pickle.loads(input_bytes)  # noqa: S301 - what the class is for


class IdentitySerDe(SerDe):
    """Numbers and text as text, bytes as they are."""

    def __init__(self) -> None:
        self._types: list[type[Any]] = [int, float, complex, str]

    def serialize(self, input: Any) -> bytes:
        """The payload of an object.

        Raises:
            TypeError: neither a number nor text nor bytes.
        """
        if type(input) in self._types:
            return str(input).encode()
        if type(input) is bytes:
            return input
        raise TypeError(f"IdentitySerde cannot serialize object of type {type(input)}")

    def deserialize(self, input_bytes: bytes) -> Any:
        """The first of whole number, number, complex number and text that the payload is; else the bytes."""
        for kind in self._types:
            with contextlib.suppress(ValueError):
                return kind(input_bytes.decode())
        return input_bytes
