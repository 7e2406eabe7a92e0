"""Types and parsers of options that only Pulsar has. ``_options.py`` is generated and names them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from forebay._core import parse
from forebay._core.types import Timestamp

if TYPE_CHECKING:
    from forebay._engine import MessageId

    from ._schema import Schema

PulsarUrl = Literal["embedded:", "pulsar://localhost:6650", "pulsar://127.0.0.1:6650"]
"""URLs by which type checkers tell the protocol in :func:`forebay.connect`. Types cannot express the prefix
of a text, so these are the whole URLs that examples and tests use most."""
Start: TypeAlias = (
    "MessageId | str | Timestamp | timedelta | Mapping[str, MessageId | str] | Sequence[MessageId | str]"
)
"""Beginning of a consumer or a reader. All but the first two are of readers."""
SchemaOption: TypeAlias = "Schema[Any] | type[Any] | str"
"""A schema, or what stands for one: a class, the name of a primitive type, or ``"auto"``."""
FrameSchema: TypeAlias = "Schema[Any] | type[Any] | str"
"""The schema of the rows of a frame: ``"producer"``, ``"avro"``, ``"json"``, or a schema."""


def chunk_size(value: Any) -> int:
    """Bytes of a chunk, at least 1."""
    if (size := parse.size(value)) < 1:
        raise ValueError("expected at least 1 byte")
    return size


def position(value: Any) -> Any:
    """A start position."""
    from ._positions import position as parsed

    return parsed(value)


def delay(value: Any) -> Any:
    """A delay before redelivery."""
    from ._policies import delay as parsed

    return parsed(value)


def ack_timeout(value: Any) -> Any:
    """A limit on the time until a message is acknowledged."""
    from ._policies import ack_timeout as parsed

    return parsed(value)


def dead_letter(value: Any) -> Any:
    """A dead letter policy."""
    from ._policies import dead_letter as parsed

    return parsed(value)


def producer_interceptors(value: Any) -> Any:
    """Interceptors of a producer."""
    from ._interceptors import interceptors as parsed

    return parsed("before_send", "on_send_acknowledged", "close")(value)


def consumer_interceptors(value: Any) -> Any:
    """Interceptors of a consumer."""
    from ._interceptors import interceptors

    methods = ("before_consume", "on_acknowledge", "on_acknowledge_cumulative", "on_nack", "close")
    return interceptors(*methods)(value)


def schema(value: Any) -> Any:
    """A schema."""
    from ._schema import schema_of as parsed

    return parsed(value)


def key_shared(value: Any) -> Any:
    """A Key_Shared policy."""
    from ._policies import key_shared as parsed

    return parsed(value)
