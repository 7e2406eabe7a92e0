"""Types and parsers of options that only TubeMQ has. ``_options.py`` is generated and names them."""

from typing import Any, Literal

TubeMqUrl = Literal["tubemq://localhost:8715", "tubemq://127.0.0.1:8715"]
"""URLs by which type checkers tell the protocol in :func:`forebay.connect`. Types cannot express the prefix
of a text, so these are the whole URLs that examples and tests use most."""


def position(value: Any) -> Any:
    """A start position."""
    from ._positions import position as parsed

    return parsed(value)


def filters(value: Any) -> Any:
    """Message types, for all topics or by topic."""
    from ._positions import filters as parsed

    return parsed(value)
