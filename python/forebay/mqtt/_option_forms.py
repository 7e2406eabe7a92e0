"""Types and parsers of options that only MQTT has. ``_options.py`` is generated and names them."""

from typing import Any, Literal

MqttUrl = Literal[
    "mqtt://localhost",
    "mqtt://localhost:1883",
    "mqtt://127.0.0.1",
    "mqtt://127.0.0.1:1883",
    "mqtts://localhost:8883",
]
"""URLs by which type checkers tell the protocol in :func:`forebay.connect`. Types cannot express the prefix
of a text, so these are the whole URLs that examples and tests use most."""


def will(value: Any) -> Any:
    """A will."""
    from ._fields import will as parsed

    return parsed(value)


def birth(value: Any) -> Any:
    """A birth message."""
    from ._fields import birth as parsed

    return parsed(value)
