"""The registry: one row for each protocol. Adding a protocol starts here.

A row refers to tables, classes and commands by name, and they are imported when they are first used. So this
module imports no protocol, and looking up a scheme costs nothing.

>>> from forebay._core import protocols
>>> protocols.of("mqtts://broker:8883").title
'MQTT'
>>> protocols.resolve("pulsar.producer", {"batching_delay": "5ms"})["batching_delay"]
0.005
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from forebay.errors import InvalidArgument

from . import options, parse
from .options import SCOPES, Table

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeVar

    from forebay._engine import MqttMessage, PulsarMessage, TubeMqMessage

    Message: TypeAlias = PulsarMessage[Any] | MqttMessage | TubeMqMessage
    """A received message of any protocol. All have ``data``, ``topic`` and ``properties``."""
    M_co = TypeVar("M_co", bound=Message, default=Message, covariant=True)
    P_contra = TypeVar("P_contra", default=Buffer, contravariant=True)
else:
    from typing import TypeVar

    M_co = TypeVar("M_co", covariant=True)
    P_contra = TypeVar("P_contra", contravariant=True)
# ``M_co``: the messages of a consumer. ``P_contra``: what a producer takes as payloads.


def _load(reference: str) -> Any:
    """The object that ``"module:name"`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


class Protocol(NamedTuple):
    """One protocol. References are ``"module:name"``."""

    key: str
    """Its name in code, ``"pulsar"``."""
    title: str
    """Its name in prose, ``"Pulsar"``."""
    schemes: tuple[str, ...]
    """The schemes of its URLs."""
    keywords: Mapping[str, str]
    """The ``TypedDict`` of each scope of :data:`forebay._core.options.SCOPES`."""
    native_client: str
    """Its client in the native module."""
    message: str
    """Its received messages."""
    client: str
    """Its asyncio client."""
    blocking_client: str
    """Its blocking client."""
    lacks: str
    """A mapping from verbs and fields of other protocols to sentences that say what to use instead."""
    commands: str
    """The package with its part of the command line."""
    renamed: str | None = None
    """A mapping from scopes to options of another client, with what to use instead. The module ``renamed`` of
    its commands has the same for the command line."""
    hints: str | None = None
    """As :attr:`renamed`, without such a module."""

    @property
    def tables(self) -> options.Tables:
        """Its option tables, by scope."""
        return _tables(self.key)

    def resolve(
        self, scope: str, given: Mapping[str, Any], inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Checked options of a handle; see :func:`forebay._core.options.resolve`."""
        return options.resolve(
            self.tables[scope],
            given,
            inherited,
            lambda: _names_elsewhere(self.key, scope),
            lambda: self._other_places(scope) | dict(self.other_names().get(scope, {})),
        )

    def _other_places(self, scope: str) -> dict[str, str]:
        """The options of the other scopes, and the verbs that take them."""
        verbs = {"client": "connect()", "producer": "producer()", "consumer": "consumer()"}
        others = [(verbs[other], table) for other, table in self.tables.items() if other != scope]
        return {
            name: f"{name}= of {verb}{', in seconds' if options.is_duration(option) else ''}"
            for verb, table in others
            for name, option in table.items()
        }

    def split(self, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Options by scope; see :func:`forebay._core.options.split`."""
        return options.split(given, self.tables, self.other_names)

    def other_names(self) -> Mapping[str, Mapping[str, str]]:
        """The mapping :attr:`renamed` or :attr:`hints`, loaded."""
        path = self.renamed or self.hints
        return _load(path) if path else {}

    def native_client_class(self) -> type[Any]:
        """The client in the native module, loaded."""
        return _load(self.native_client)

    def client_class(self) -> type[Any]:
        """The asyncio client, loaded."""
        return _load(self.client)

    def blocking_client_class(self) -> type[Any]:
        """The blocking client, loaded."""
        return _load(self.blocking_client)

    def module(self, name: str) -> Any:
        """A module of :attr:`commands`, loaded."""
        return importlib.import_module(f"{self.commands}.{name}")

    def words(self) -> Mapping[str, str]:
        """The mapping :attr:`lacks`, loaded."""
        return _load(self.lacks)


def _row(
    key: str, title: str, prefix: str, *schemes: str, renamed: str | None = None, hints: str | None = None
) -> Protocol:
    package = f"forebay.{key}"
    return Protocol(
        key=key,
        title=title,
        schemes=schemes,
        keywords={scope: f"{package}._options:{prefix}{scope.capitalize()}Options" for scope in SCOPES},
        native_client=f"forebay._core.native:{prefix}Client",
        message=f"forebay._core.native:{prefix}Message",
        client=f"{package}._client:{prefix}Client",
        blocking_client=f"forebay._sync.{key}.client:{prefix}Client",
        lacks=f"{package}._unsupported:LACKS",
        commands=f"forebay.commands.{key}",
        renamed=renamed,
        hints=hints,
    )


EMBEDDED = "embedded"
"""The scheme that starts a broker in this process."""

PROTOCOLS: dict[str, Protocol] = {
    row.key: row
    for row in (
        _row(
            *("pulsar", "Pulsar", "Pulsar", "pulsar", "pulsar+ssl", "http", "https", EMBEDDED),
            renamed="forebay.pulsar._renamed:RENAMED",
        ),
        _row(
            *("mqtt", "MQTT", "Mqtt", "mqtt", "mqtts", "ws", "wss", "mqtt+unix"),
            hints="forebay.mqtt._renamed:RENAMED",
        ),
        _row(
            *("tubemq", "TubeMQ", "TubeMq", "tubemq", "tubemq+ssl"),
            hints="forebay.tubemq._renamed:RENAMED",
        ),
    )
}
"""All protocols, by key."""


def __getattr__(name: str) -> Any:
    """``Message``: making it loads the engine."""
    if name != "Message":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.reduce(
        lambda one, other: one | other, (_load(row.message) for row in PROTOCOLS.values())
    )


_BY_SCHEME = {scheme: row for row in PROTOCOLS.values() for scheme in row.schemes}
_TLS = {"pulsar": "pulsar+ssl", "http": "https", "mqtt": "mqtts", "ws": "wss", "tubemq": "tubemq+ssl"}
"""Scheme without TLS -> the same with TLS."""
_BY_PORT = {"1883": "mqtt", "8883": "mqtts", "6651": "pulsar+ssl", "8715": "tubemq"}
"""Usual port of a URL without a scheme -> scheme to suggest."""


class Defaults(NamedTuple):
    """The options of a URL's query and the environment, for handles that are opened later."""

    protocol: Protocol
    producer: dict[str, Any]
    consumer: dict[str, Any]

    def resolve(self, scope: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Checked options of a producer or consumer.

        Raises:
            InvalidArgument, Unsupported: as :func:`forebay._core.options.resolve`.
        """
        return self.protocol.resolve(scope, given, getattr(self, scope))


@functools.cache
def _tables(key: str) -> options.Tables:
    row = PROTOCOLS[key]
    return {scope: Table(_load(reference), row.title, scope) for scope, reference in row.keywords.items()}


@functools.cache
def _names_elsewhere(key: str, scope: str) -> frozenset[str]:
    return frozenset(name for row in PROTOCOLS.values() if row.key != key for name in row.tables[scope])


def of(url: str) -> Protocol:
    """The protocol of a URL that :func:`split_url` has accepted."""
    return _BY_SCHEME[url.partition(":")[0]]


def is_url(text: str) -> bool:
    """Whether ``text`` begins like the URL of a broker. (Topic names may contain ``://``, too.)"""
    scheme, colon, rest = text.partition(":")
    return bool(colon) and scheme in _BY_SCHEME and (scheme == EMBEDDED or rest.startswith("//"))


def embedded_data(url: str) -> str | None:
    """The data folder of an ``embedded:`` URL, empty for a broker in memory; ``None`` for any other URL."""
    scheme, _, folder = url.partition(":")
    return folder if scheme == EMBEDDED else None


def table(name: str) -> Table:
    """The option table ``"pulsar.client"``, ``"mqtt.producer"``, ... or ``"broker"``."""
    if name == "broker":
        return _load("forebay.broker:OPTIONS")
    key, _, scope = name.partition(".")
    return PROTOCOLS[key].tables[scope]


def table_names() -> list[str]:
    """All names that :func:`table` takes."""
    return [f"{key}.{scope}" for key in PROTOCOLS for scope in SCOPES] + ["broker"]


def resolve(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options of the table ``name``; see :func:`table` and :func:`forebay._core.options.resolve`."""
    if name == "broker":
        return options.resolve(table(name), given)
    key, _, scope = name.partition(".")
    return PROTOCOLS[key].resolve(scope, given)


def _renamed(names: Iterable[str]) -> dict[str, str]:
    """What to use in place of options of other clients, for several tables."""
    places = [name.partition(".") for name in names]
    rows = [(PROTOCOLS[key].other_names(), scope) for key, _, scope in places if key in PROTOCOLS]
    return {old: instead for there, scope in rows for old, instead in there.get(scope, {}).items()}


def by_table(
    given: Mapping[str, Any], names: Sequence[str], owner: str, own: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Options, sorted by the tables ``names``: each is of the first that has it.

    Args:
        given: the options.
        names: of the tables, as for :func:`table`.
        owner: who takes them, for the error.
        own: names of options of the owner itself, for the hint in the error.

    Raises:
        InvalidArgument: no table has the option; suggests the nearest one.
    """
    tables = [table(name) for name in names]
    sorted_: list[dict[str, Any]] = [{} for _ in tables]
    for name, value in given.items():
        place = next((place for place, known in enumerate(tables) if name in known), None)
        if place is None:
            options_ = {option: of for known in tables for option, of in known.items()}
            hint = options.hint(name, options_, _renamed(names), own)
            raise InvalidArgument(f"{owner} has no option {name!r}{hint}")
        sorted_[place][name] = value
    return sorted_


def split_url(url: str | None) -> tuple[str, dict[str, str]]:
    """The URL without its query, and the query. ``None`` takes ``FOREBAY_URL``.

    Raises:
        InvalidArgument: no URL, an unknown scheme, credentials in the URL, or an option twice.
    """
    url = url or os.environ.get("FOREBAY_URL")
    if not url:
        raise InvalidArgument("no URL: pass pulsar://host:6650 or embedded:, or set FOREBAY_URL")
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"the URL is {url!r}: pass text such as 'pulsar://localhost:6650'")
    base, _, query = url.partition("?")
    scheme, colon, port = base.partition(":")
    if scheme not in _BY_SCHEME and port.isdecimal():
        likely = _BY_PORT.get(port, "pulsar")
        raise InvalidArgument(f"the URL {base!r} has no scheme: write {likely}://{base}")
    if not colon or scheme not in _BY_SCHEME:
        hint = parse.did_you_mean(scheme, list(_BY_SCHEME))
        raise InvalidArgument(f"the URL has the scheme {scheme!r}, not one of {', '.join(_BY_SCHEME)}{hint}")
    if "@" in base and scheme != EMBEDDED:
        raise InvalidArgument(
            "a URL must not contain credentials: use token= or username= and password=, "
            "or tls_cert= and tls_key="
        )
    pairs: dict[str, str] = {}
    if query:
        from urllib.parse import parse_qsl

        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in pairs:
                raise InvalidArgument(f"the URL has the option {name!r} twice: keep one of them")
            pairs[name] = value
    return base, pairs


def inherited_for(url: str | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """The URL without its query, and the options of its query and the environment, by scope.

    Raises:
        InvalidArgument: as :func:`forebay._core.options.split` and :func:`split_url`.
    """
    base, query = split_url(url)
    row = of(base)
    set_outside, queried = options.environment(row.tables), _split_query(row, base, query)
    return base, {scope: {**set_outside[scope], **queried[scope]} for scope in SCOPES}


def _split_query(row: Protocol, base: str, query: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    try:
        return row.split(query)
    except InvalidArgument as error:
        if not base.startswith(("ws:", "wss:")):
            raise
        raise InvalidArgument(f"{error}; a query for the server itself is ws_query=") from None


def of_url(url: str | None) -> dict[str, dict[str, Any]]:
    """The options of the URL's query alone, by scope.

    Raises:
        InvalidArgument: as :func:`inherited_for`.
    """
    base, query = split_url(url)
    return _split_query(of(base), base, query)


def _check_tls(base: str, given: Iterable[str], values: Mapping[str, Any]) -> None:
    """Refuses options of TLS that are given for a URL without it: the caller expects what cannot be. Those of
    the environment are for all clients, also for those that do not use TLS."""
    scheme, _, rest = base.partition(":")
    if scheme in _TLS.values():
        return
    for name in given:
        if name.startswith("tls_") and values.get(name):
            instead = f": write {_TLS[scheme]}:{rest}" if scheme in _TLS else ""
            raise InvalidArgument(f"{name} needs TLS, which the URL {base!r} does not use{instead}")


def for_connection(
    url: str | None, given: Mapping[str, Any], only: str | None = None
) -> tuple[str, dict[str, Any], Defaults]:
    """Everything that connecting needs: the URL without its query, the client's options, and the options that
    producers and consumers inherit.

    Args:
        url: of the broker.
        given: keywords.
        only: key of the protocol that the URL must have; any by default.

    Raises:
        InvalidArgument: as :func:`forebay._core.options.resolve` and :func:`split_url`, a URL of another
            protocol, or an option of TLS for a URL without it.
        Unsupported: an option of another protocol.
    """
    base, inherited = inherited_for(url)
    row = of(base)
    if only is not None and row.key != only:
        title, schemes = PROTOCOLS[only].title, ", ".join(PROTOCOLS[only].schemes)
        raise InvalidArgument(f"{base!r} is not a URL of {title}, whose schemes are {schemes}")
    values = row.resolve("client", given, inherited["client"])
    _check_tls(base, [*of_url(url)["client"], *(name for name in given if given[name] is not None)], values)
    # A mistake in the URL shows at connect, not at the first producer.
    row.resolve("producer", {}, inherited["producer"])
    row.resolve("consumer", {}, inherited["consumer"])
    return base, values, Defaults(row, inherited["producer"], inherited["consumer"])
