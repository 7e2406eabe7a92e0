"""The machinery of options: tables, parsing, and where values come from.

Each protocol has its own tables (``forebay.pulsar._options``, ``forebay.mqtt._options``,
``forebay.tubemq._options``; the broker's is in ``forebay.broker``). A table is a ``TypedDict`` whose
annotations carry an :class:`Option`: it is both the type of the keywords and what checks them at run time.

A value comes from, in this order: keyword, URL query (``pulsar://host:6650?compression=zstd``), environment,
default. In a query and in the environment a name stands alone where it is unambiguous
(``FOREBAY_COMPRESSION``); otherwise it needs a prefix (``?producer.name=a``, ``FOREBAY_PRODUCER_NAME``).

>>> from forebay._core.options import resolve
>>> from forebay._core.protocols import table
>>> producer = table("pulsar.producer")
>>> resolve(producer, {"batching_delay": "5ms", "batch_max_bytes": "1MiB"})["batch_max_bytes"]
1048576
>>> resolve(producer, {"compresion": "zstd"})
Traceback (most recent call last):
forebay.errors.InvalidArgument: Pulsar has no producer option 'compresion'; did you mean 'compression'?
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

from forebay.errors import InvalidArgument, Unsupported

from . import parse
from .types import Duration, Pem, Secret, Size, Timestamp

__all__ = [
    "SCOPES",
    "Duration",
    "Option",
    "Pem",
    "Secret",
    "Size",
    "Table",
    "Tables",
    "Timestamp",
    "common_first",
    "default",
    "documented",
    "environment",
    "given",
    "hint",
    "is_duration",
    "resolve",
    "split",
    "to_engine",
]

SCOPES = ("client", "producer", "consumer")
"""The handles of every protocol that have options."""


class Option(NamedTuple):
    """One option: the parser of its values, its default (``None``: not set), and its documentation."""

    parse: parse.Parser
    default: Any
    doc: str
    """A sentence for users, shown in the reference."""
    secret: bool = False
    """Its value is never shown in an error or a ``repr``."""
    face: bool = False
    """Used on the Python side only, not handed to the engine."""
    at_limit: str = ""
    """For a limit of the broker: what happens when it is reached, shown in the table of limits."""
    common: bool = False
    """Most programs set it: shown before the others."""


class Table(dict[str, Option]):
    """The options of one kind of handle, by name.

    Args:
        keywords: a ``TypedDict`` whose annotations carry an :class:`Option`.
        owner: the name of the protocol in prose, or ``"The broker"``.
        scope: ``"client"``, ``"producer"`` or ``"consumer"``; empty for the broker.
    """

    def __init__(self, keywords: Any, owner: str, scope: str = "") -> None:
        super().__init__({name: hint.__metadata__[0] for name, hint in keywords.__annotations__.items()})
        self.owner = owner
        self.kind = f"{scope} option" if scope else "option"


def common_first(options: Mapping[str, Option]) -> list[tuple[str, Option]]:
    """Options by name, those that most programs set before the others."""
    return sorted(options.items(), key=lambda item: (not item[1].common, item[0]))


class _Hints(dict[str, Any]):
    """Annotations that ``help()`` shows as a word: their texts are in the docstring."""

    def __repr__(self) -> str:
        return f"<{len(self)} options, listed above>"


def documented(*tables: Any) -> None:
    """Adds the texts of the options to the docstrings of their tables, which ``help()`` shows.

    Args:
        tables: ``TypedDict`` classes whose annotations carry an :class:`Option`.
    """
    for keywords in tables:
        lines: list[str] = []
        options: dict[str, Option] = {
            name: hint.__metadata__[0] for name, hint in keywords.__annotations__.items()
        }
        for name, option in common_first(options):
            hidden = option.default is None or option.secret
            default = "" if hidden else f" Default: {option.default!r}."
            lines.append(f"    {name}: {option.doc}{default}")
        keywords.__doc__ = "\n".join([keywords.__doc__ or "", "", "Options:", *lines])
        keywords.__annotations__ = _Hints(keywords.__annotations__)


Tables = Mapping[str, Table]
"""The tables of one protocol, by scope."""


def resolve(
    table: Table,
    given: Mapping[str, Any],
    inherited: Mapping[str, Any] | None = None,
    elsewhere: Callable[[], Container[str]] = tuple,
    renamed: Callable[[], Mapping[str, str]] = dict,
) -> dict[str, Any]:
    """Canonical values of all options of ``table`` that are set. ``None`` means "not given".

    Args:
        table: the options that exist.
        given: keywords, which win.
        inherited: values of the URL and the environment, which win over the defaults.
        elsewhere: gives the names that other protocols have; called for unknown names only.
        renamed: gives the names that another client has, and what to use here; called for unknown names
            only.

    Raises:
        InvalidArgument: an unknown name (the error suggests the nearest one) or a value that does not parse.
        Unsupported: an option of another protocol.
    """
    for name in given:
        if name not in table:
            unknown = f"{table.owner} has no {table.kind} {name!r}"
            others = renamed()
            if name in elsewhere() and name not in others:
                raise Unsupported(unknown)
            raise InvalidArgument(f"{unknown}{hint(name, table, others)}")
    values: dict[str, Any] = {}
    for name, option in table.items():
        value = given.get(name)
        if value is None and inherited:
            value = inherited.get(name)
        if value is None:
            value = option.default
        if value is None:
            continue
        try:
            values[name] = option.parse(value)
        except ValueError as error:
            # The value of a secret never gets into a message, nor into the chain of causes.
            raise InvalidArgument(f"{table.kind} {name!r}: {error}") from None
    return values


_UNIT = re.compile(
    r"(.+?)(?:in)?(?:ms|msecs?|millis(?:econds)?|secs?|seconds|mins?|minutes|hours|days)", re.ASCII
)
"""A name without its separators that ends with a unit of time."""
_IN_SECONDS = ", in seconds"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def is_duration(option: Option) -> bool:
    """Whether the values of an option are durations."""
    try:
        return option.parse("1h") == 3600
    except ValueError:
        return False


def hint(
    name: str,
    options: Mapping[str, Option],
    renamed: Mapping[str, str] | None = None,
    others: Iterable[str] = (),
) -> str:
    """The end of an error about an unknown option: the option to use instead, or nothing.

    Args:
        name: the unknown option.
        options: those that exist.
        renamed: names that mean something elsewhere, and what to use here.
        others: further names that may be meant.
    """
    sentences = renamed or {}
    if name in sentences:
        return f": use {sentences[name]}"
    plain = _plain(name)
    if not any(_plain(option) == plain for option in options):
        sentences = {_plain(old): sentence for old, sentence in sentences.items()}
        if plain in sentences:
            return f": use {sentences[plain]}"
        if (unit := _UNIT.fullmatch(plain)) and (found := _in_seconds(unit[1], options, sentences)):
            return found
    return parse.did_you_mean(name, [*options, *others])


def _in_seconds(stem: str, options: Mapping[str, Option], sentences: Mapping[str, str]) -> str:
    """The hint for a name that ends with a unit of time, if ``stem`` is, or is near, a duration."""
    durations = {_plain(option): option for option, of in options.items() if is_duration(of)}
    if stem in durations:
        return f": use {durations[stem]}={_IN_SECONDS}"
    if _IN_SECONDS in sentences.get(stem, ""):
        return f": use {sentences[stem]}"
    near = parse.nearest(stem, durations)
    return f"; did you mean {durations[near]!r}{_IN_SECONDS}?" if near else ""


class Default:
    """The default of an option in a signature, shown as it is; an argument that is one was not given."""

    __slots__ = ("_shown",)

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


def default(*values: Any) -> Any:
    """A default in a signature; of several protocols, the defaults of all."""
    return Default(" or ".join(repr(value) for value in values))


def given(arguments: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """The options that a call gives.

    Args:
        arguments: ``locals()`` at the beginning of a function, which has ``**unknown``.
        others: names of the parameters that are no options.
    """
    options = {name: value for name, value in arguments.items() if name not in others}
    unknown = options.pop("unknown")
    return {name: value for name, value in options.items() if not isinstance(value, Default)} | unknown


def to_engine(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``values`` that the engine takes."""
    return {name: value for name, value in values.items() if not table[name].face}


def _place(name: str, tables: Tables) -> tuple[str, str] | None:
    """(scope, option) of a bare or prefixed name; ``None`` when it is unknown or ambiguous."""
    scope, dot, rest = name.partition(".")
    if dot:
        return (scope, rest) if rest in tables.get(scope, ()) else None
    scopes = [scope for scope, table in tables.items() if name in table]
    return (scopes[0], name) if len(scopes) == 1 else None


def split(
    given: Mapping[str, Any],
    tables: Tables,
    renamed: Callable[[], Mapping[str, Mapping[str, str]]] = dict,
) -> dict[str, dict[str, Any]]:
    """Sorts options by the scope they belong to: ``compression`` to ``producer``, ``token`` to ``client``.

    Args:
        given: the options.
        tables: those that exist.
        renamed: gives the names that another client has, by scope, and what to use here; called for unknown
            names only.

    Raises:
        InvalidArgument: a name that is unknown, ambiguous without its prefix, or given twice.
    """
    result: dict[str, dict[str, Any]] = {scope: {} for scope in tables}
    for name, value in given.items():
        place = _place(name, tables)
        if place is None:
            known = [option for table in tables.values() for option in table]
            if name in known:
                raise InvalidArgument(
                    f"option {name!r} is ambiguous: write 'producer.{name}' or 'consumer.{name}'"
                )
            options = {option: of for table in tables.values() for option, of in table.items()}
            others = {old: instead for names in renamed().values() for old, instead in names.items()}
            raise InvalidArgument(f"unknown option {name!r}{hint(name, options, others)}")
        scope, option = place
        if option in result[scope]:
            raise InvalidArgument(f"option '{scope}.{option}' is given twice, with and without its prefix")
        result[scope][option] = value
    return result


def environment(tables: Tables) -> dict[str, dict[str, str]]:
    """Options in environment variables, by scope. A variable with the scope in its name wins over the one
    without. Variables that name no option are ignored."""
    plain: dict[str, dict[str, str]] = {scope: {} for scope in tables}
    scoped: dict[str, dict[str, str]] = {scope: {} for scope in tables}
    for variable, value in os.environ.items():
        if variable.startswith("FOREBAY_") and value:
            name, result = variable.removeprefix("FOREBAY_").lower(), plain
            for scope in tables:
                if name.startswith(f"{scope}_"):
                    name, result = f"{scope}.{name.removeprefix(f'{scope}_')}", scoped
            if place := _place(name, tables):
                result[place[0]][place[1]] = value
    return {scope: plain[scope] | scoped[scope] for scope in tables}
