"""Listeners of the embedded broker: their options, and the short way to say one for each protocol."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from forebay.errors import InvalidArgument

from . import options as _options
from . import parse
from .listener_options import ListenerOptions

OFF = "off"
"""The value of a port that turns its listener off."""
_PORT = parse.whole(0, 65535)


def port(value: Any) -> int | str:
    """A port number, or ``"off"``."""
    if value == OFF or value is False:
        return OFF
    try:
        return cast("int", _PORT(value))
    except ValueError as error:
        raise ValueError(f"{error}, nor {OFF!r}") from None


OPTIONS = _options.Table(ListenerOptions, "A listener")
"""The options of a listener."""

SHORT: dict[str, Mapping[str, Any]] = {
    "port": {"protocol": "pulsar"},
    "mqtt_port": {"protocol": "mqtt"},
    "mqtt_ws_port": {"protocol": "mqtt", "websocket": True},
    "tubemq_port": {"protocol": "tubemq"},
    "http_port": {"protocol": "http"},
}
"""Options of the broker that are each the port of one listener."""
NAMES = tuple("pulsar" if option == "port" else option.removesuffix("_port") for option in SHORT)
"""The names of these listeners, which are the keys of ``Broker.urls``."""
_INHERITED = {"host": "host", "allow_anonymous": "anonymous"}
_CERTIFICATES = ("tls_cert", "tls_key", "tls_client_ca")


def listeners(value: Any) -> list[dict[str, Any]]:
    """A list of listeners, each a mapping of its options."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ValueError('expected a list of mappings, such as [{"protocol": "mqtt", "port": 1883}]')
    return [_listener(each, number) for number, each in enumerate(cast("Sequence[Any]", value), 1)]


def _listener(given: Any, number: int) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"expected a mapping of options as listener {number}, not {given!r}")
    try:
        return check(cast("Mapping[str, Any]", given))
    except InvalidArgument as error:
        raise ValueError(f"listener {number}: {error}") from None


def check(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a listener, parsed.

    Raises:
        InvalidArgument: an unknown option, a value that does not parse, or options that exclude each other.
    """
    one = _options.resolve(OPTIONS, given)
    if "protocol" not in one:
        raise InvalidArgument('a listener needs a protocol, such as protocol = "mqtt"')
    if "unix" in one:
        for name in ("host", "port", "advertised_host", "tls", *_CERTIFICATES):
            if one.get(name):
                raise InvalidArgument(f"a listener on a Unix socket has no {name}: remove it, or unix")
    elif "mode" in one:
        raise InvalidArgument("mode is for the file of a Unix socket: set unix, or remove mode")
    return one


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """The options of the broker with all its listeners in ``listeners``, and without those that only say what
    the listeners are.

    Raises:
        InvalidArgument: a certificate without its key, or authorities of clients without a certificate.
    """
    rest = dict(values)
    given = rest.pop("listeners", [])
    shared = {to: rest.pop(name) for name, to in _INHERITED.items() if name in rest}
    certificates = {name: rest.pop(name) for name in _CERTIFICATES if name in rest}
    ports = {name: rest.pop(name) for name in SHORT if name in rest}
    if not given:
        # Without any option the broker speaks Pulsar.
        ports = {"port": 0} | ports
    short = [{**SHORT[name], "port": number} for name, number in ports.items() if number != OFF]
    all_of_them = [_complete(one, shared, certificates) for one in [*short, *given]]
    for one in [*all_of_them, certificates]:
        if ("tls_cert" in one) != ("tls_key" in one):
            raise InvalidArgument("tls_cert and tls_key must be given together")
        if "tls_client_ca" in one and "tls_cert" not in one:
            raise InvalidArgument("tls_client_ca needs TLS: set tls_cert and tls_key")
    return {**rest, "listeners": all_of_them}


def _complete(
    one: Mapping[str, Any], shared: Mapping[str, Any], certificates: Mapping[str, Any]
) -> dict[str, Any]:
    encrypted = "unix" not in one and one.get("tls", True)
    if not encrypted and any(name in one for name in _CERTIFICATES):
        raise InvalidArgument("a listener with tls = false has no certificates: remove them, or tls")
    # A certificate of its own has its own key.
    own = "tls_cert" in one
    inherited = {name: value for name, value in certificates.items() if name == "tls_client_ca" or not own}
    if one.get("tls") and "tls_cert" not in {**inherited, **one}:
        raise InvalidArgument("a listener with tls = true needs a certificate: set tls_cert and tls_key")
    return {**shared, **(inherited if encrypted else {}), **{k: v for k, v in one.items() if k != "tls"}}
