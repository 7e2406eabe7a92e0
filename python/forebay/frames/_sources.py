"""Sources: what can be read, one for each protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay._core.dataframes import Column
    from forebay._engine import ArrowBatch


OnError = Literal["raise", "null"]


@dataclass(frozen=True)
class Values:
    """Treatment of payloads.

    Raises:
        InvalidArgument: a mistake.
    """

    decode: bool
    on_error: OnError

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "null"):
            raise InvalidArgument(f"on_error is {self.on_error!r}: use 'raise' or 'null'")
        if self.decode not in (True, False):
            raise InvalidArgument(f"decode is {self.decode!r}: True for the schema's values, or False")


@dataclass(frozen=True)
class Request:
    """The arguments of a read, as the caller has given them."""

    topic: Any
    start: Any
    end: Any
    columns: Any
    values: Values
    read_timeout: float
    fail_on_data_loss: bool
    consumer: Mapping[str, Any]
    """Options of the consumer, those of the URL included."""
    environment: Mapping[str, Any]
    """Options of consumers in the environment, which may be for others."""

    def options(self, refused: Mapping[str, str]) -> dict[str, Any]:
        """All options of the consumer, without those of the environment that have no meaning for ranges.

        Args:
            refused: options that have none, and why; ``position`` is one of them.

        Raises:
            InvalidArgument: the caller has given one of them.
        """
        refused = {**refused, "position": "use start"}
        for name in self.consumer:
            if name in refused:
                raise InvalidArgument(f"forebay.frames has no option {name!r}: {refused[name]}")
        outside = {name: value for name, value in self.environment.items() if name not in refused}
        return {**outside, **self.consumer}


class Source(Protocol):
    """A bounded read. Made from a :class:`Request`, which it checks as far as it can without a broker."""

    columns: tuple[Column, ...]
    """The columns, in their order. What :meth:`plan` learns of topics may give them other types."""

    def plan(self, client: Any) -> Sequence[Any]:
        """The parts to read, each with an end.

        Raises:
            TopicNotFound: a topic does not exist. It is not created.
            InvalidArgument: a position is not one of the topics.
        """
        ...

    def read(self, client: Any, part: Any, columns: Sequence[Column]) -> Iterator[ArrowBatch]:
        """The rows of a part, in their order.

        Raises:
            DataLost: the part ends before it should.
            Timeout: a message does not come.
        """
        ...


def listed(topics: Any) -> list[Any]:
    """Several topics; nothing if it is anything else."""
    return list(cast("Iterable[Any]", topics)) if isinstance(topics, Iterable) else []


def chosen(given: Any, sets: Mapping[str, tuple[Column, ...]], known: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that the caller wants.

    Args:
        given: the name of a set, or names of columns.
        sets: sets of columns by name.
        known: the columns that can be named.

    Raises:
        InvalidArgument: an unknown name, none, or one twice.
    """
    if isinstance(given, str):
        if given in sets:
            return sets[given]
        names = ", ".join(repr(name) for name in sets)
        raise InvalidArgument(f"columns={given!r}: expected a list of names of columns, or one of {names}")
    if not isinstance(given, Iterable):
        raise InvalidArgument(f"columns={given!r}: expected a list of names of columns")
    of = {column.name: column for column in known}
    names = list(cast("Iterable[Any]", given))
    if not names:
        raise InvalidArgument("columns: at least one is needed")
    for name in names:
        if not isinstance(name, str) or name not in of:
            raise InvalidArgument(f"there is no column {name!r}, only {', '.join(of)}")
        if names.count(name) > 1:
            raise InvalidArgument(f"columns: {name!r} is given twice")
    return tuple(of[name] for name in names)
