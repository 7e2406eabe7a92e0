"""Arguments of ``penstock pub`` and ``penstock sub`` with an MQTT URL, and what options they stand for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import InvalidArgument, Unsupported

FORMAT_HELP = (
    "what to print: %%t topic, %%p payload, %%x and %%X in hexadecimal, %%l its bytes, %%q QoS, %%r retained"
    ", %%m packet id, %%I time, %%U seconds since 1970, %%@X strftime's X, %%j JSON, %%J JSON with a JSON "
    "payload, %%C content type, %%D correlation data, %%E seconds left, %%F is text, %%P user properties, "
    "%%R response topic, %%S subscription id; %%-10t, %%04l: width; \\n, \\t, \\r, \\0, \\e"
)
_VERSIONS = {
    **dict.fromkeys(("5", "mqttv5"), "5"),
    **dict.fromkeys(("311", "3.1.1", "mqttv311"), "3.1.1"),
    **dict.fromkeys(("31", "3.1", "mqttv31"), "3.1"),
    "auto": "auto",
}


class Refused(argparse.Action):
    """An argument that only the other protocol has: refused by name."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, name: Any = None
    ) -> None:
        parser.error(str(self.const).replace("{}", str(name)))


def refuse(command: argparse.ArgumentParser, names: Sequence[str], text: str) -> None:
    """Adds arguments that are not there; ``{}`` of the text is the name that was given."""
    command.add_argument(
        *names, action=Refused, nargs="?", const=text, dest=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


class _Property(argparse.Action):
    """``-D COMMAND IDENTIFIER VALUE``, ``-D COMMAND user-property NAME VALUE``."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, name: Any = None
    ) -> None:
        words: list[str] = list(values)
        if len(words) != (4 if words[1:2] == ["user-property"] else 3):
            parser.error(
                "-D takes COMMAND IDENTIFIER VALUE, or COMMAND user-property NAME VALUE, "
                f"not {' '.join(words)!r}"
            )
        getattr(namespace, self.dest).append(words)


def pub(command: argparse.ArgumentParser) -> None:
    """Arguments of ``penstock pub``."""
    _session(command)
    command.add_argument("-t", "--topic", action="append", default=[], help="where to publish")
    source = command.add_mutually_exclusive_group()
    source.add_argument("-m", "--message", action="append", metavar="TEXT", help="this text; repeatable")
    source.add_argument("-f", "--file", action="append", metavar="FILE", help="this file; repeatable")
    source.add_argument("-l", "--lines", "--stdin-line", action="store_true", help="each line of stdin")
    source.add_argument("-s", "--stdin", "--stdin-file", action="store_true", help="all of stdin at once")
    source.add_argument("-n", "--null", "--null-message", action="store_true", help="without payload")
    command.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), help="quality of service (0)")
    command.add_argument("-r", "--retain", action="store_true", help="the broker keeps the last message")
    command.add_argument("--repeat", type=int, default=1, metavar="N", help="send -m or -f this many times")
    command.add_argument("--json", action="store_true", help="print the answer to each message as JSON")
    command.add_argument("--quiet", action="store_true", help="no progress, no summary")
    refuse(command, ["-K", "--key-separator"], "MQTT has no keys, hence no {}: put them into the topic")
    refuse(command, ["-p"], "MQTT has no {}: use -D publish user-property NAME VALUE")
    refuse(command, ["-z", "--compression"], "MQTT has no {}")


def sub(command: argparse.ArgumentParser) -> None:
    """Arguments of ``penstock sub``."""
    _session(command)
    command.add_argument(
        "-t", "--topic", action="append", default=[], help="topic filter to subscribe to; repeatable"
    )
    command.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), help="highest quality of service (0)")
    command.add_argument(
        "-s", "--subscription", metavar="GROUP", help="share the messages with all of this group"
    )
    command.add_argument("-C", "--count", type=int, metavar="N", help="end after N messages")
    command.add_argument("-W", "--timeout", metavar="SECONDS", help="end after this time with status 27")
    command.add_argument("-E", "--exit-after-sub", action="store_true", help="end when it has subscribed")
    command.add_argument("-F", "--format", metavar="FORMAT", help=FORMAT_HELP)
    command.add_argument("-v", "--verbose", action="store_true", help="topic before the payload")
    command.add_argument("-N", "--no-newline", action="store_true", help="nothing after the payload")
    command.add_argument("-R", "--no-retained", action="store_true", help="no retained messages")
    command.add_argument("--retained-only", action="store_true", help="end at the first that is not retained")
    command.add_argument(
        "-T", "--filter-out", action="append", default=[], metavar="FILTER", help="not these topics"
    )
    command.add_argument("--no-ack", action="store_true", help="leave QoS 1 and 2 unacknowledged")
    command.add_argument("--json", action="store_true", help="one JSON object per message")
    refuse(command, ["--type"], "MQTT has no subscription types, hence no {}: -s shares a subscription")
    refuse(command, ["-o", "--position"], "MQTT has no positions, hence no {}")
    refuse(
        command, ["-e", "--exit"], "a topic of MQTT has no end, hence no {}: use -C, -W or --retained-only"
    )


def _session(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("places", nargs="*", metavar="[URL] [TOPIC]", help="mqtt://, mqtts://, ws://, wss://, mqtt+unix://")
    add("--url", default=os.environ.get("PENSTOCK_URL"), help="the URL; -u takes it, too (PENSTOCK_URL)")
    add("-X", dest="options", action="append", default=[], metavar="NAME=VALUE", help="any other option")
    add("-i", "--id", metavar="ID", help="client id; default: one that nobody has")
    add("-u", "--username", metavar="USER", help="user name")
    add("-P", "--pw", metavar="PASSWORD", help="password; better env:NAME or file:PATH")
    add("-V", "--protocol-version", metavar="VERSION", help="5 (default), 311, 31, or auto")
    add("-c", "--disable-clean-session", action="store_true", help="keep the session; needs -i")
    add("-x", "--session-expiry-interval", metavar="SECONDS", help="how long it is kept (-c: for ever)")
    add("-k", "--keepalive", metavar="SECONDS", help="longest silence (60)")
    add("--cafile", metavar="FILE", help="authorities to trust (PEM)")
    add("--cert", metavar="FILE", help="own certificate chain (PEM)")
    add("--key", metavar="FILE", help="own private key (PEM)")
    add("--insecure", action="store_true", help="accept any host name in the certificate")
    add("--tls-alpn", metavar="PROTOCOL", help="protocol to offer in the TLS handshake (mqtt)")
    add("--will-topic", metavar="TOPIC", help="where the broker says that we are gone without a goodbye")
    add("--will-payload", metavar="TEXT", help="what it says")
    add("--will-qos", type=int, choices=(0, 1, 2), help="with which quality of service (0)")
    add("--will-retain", action="store_true", help="and keeps it")
    add(
        "-D",
        "--property",
        dest="properties",
        action=_Property,
        nargs="+",
        default=[],
        metavar="WORD",
        help="property of 5.0: -D publish content-type text/plain, -D will user-property a b",
    )


def client_options(given: argparse.Namespace, options: dict[str, Any]) -> dict[str, Any]:
    """What the flags say about the client, over ``options`` of ``-X``.

    Raises:
        InvalidArgument: a value or a combination that makes no sense.
        Unsupported: a property that does not exist or cannot be set.
    """
    flags = {
        "client_id": given.id,
        "username": given.username,
        "password": given.pw,
        "session_expiry": given.session_expiry_interval,
        "keep_alive": given.keepalive,
        "tls_ca": given.cafile,
        "tls_cert": given.cert,
        "tls_key": given.key,
        "tls_skip_hostname_check": given.insecure or None,
        "tls_alpn": given.tls_alpn,
        "clean_start": False if given.disable_clean_session else None,
    }
    result = options | {name: value for name, value in flags.items() if value is not None}
    if given.protocol_version is not None:
        version = _VERSIONS.get(given.protocol_version)
        if version is None:
            raise InvalidArgument(f"-V is one of {', '.join(_VERSIONS)}, not {given.protocol_version!r}")
        result["version"] = version
    if given.properties and str(result.get("version", "5")) in ("3.1", "3.1.1"):
        raise Unsupported(f"MQTT {result['version']} has no properties, hence no -D: use -V 5")
    for name, value in properties(given, "connect").items():
        result[name] = dict(value) if name == "connect_properties" else value
    will = properties(given, "will")
    for name, value in {
        "topic": given.will_topic,
        "payload": given.will_payload,
        "qos": given.will_qos,
        "retain": given.will_retain or None,
    }.items():
        if value is not None:
            will[name] = value
    if will:
        if "topic" not in will:
            raise InvalidArgument("a will needs --will-topic")
        result["will"] = {"payload": b"", **will}
    return result


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError
    return int(text)


def _bit(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


_Table = dict[str, tuple[str, Callable[[str], Any]]]
_MESSAGE: _Table = {
    "content-type": ("content_type", str),
    "response-topic": ("response_topic", str),
    "correlation-data": ("correlation_data", str.encode),
    "message-expiry-interval": ("message_expiry", _number),
    "payload-format-indicator": ("is_text", _bit),
    "user-property": ("properties", str),
}
_PROPERTIES: dict[str, _Table] = {
    "publish": _MESSAGE,
    "will": {**_MESSAGE, "will-delay-interval": ("delay", _number)},
    "connect": {
        "session-expiry-interval": ("session_expiry", _number),
        "receive-maximum": ("receive_maximum", _number),
        "maximum-packet-size": ("max_packet_size", _number),
        "topic-alias-maximum": ("topic_alias_maximum", _number),
        "request-response-information": ("request_response_information", _bit),
        "user-property": ("connect_properties", str),
    },
}


def properties(given: argparse.Namespace, wanted: str) -> dict[str, Any]:
    """What ``-D`` says about ``publish``, ``will`` or ``connect``, by our names. User properties are pairs.

    Raises:
        Unsupported: a command or an identifier that cannot be set.
        InvalidArgument: a value that does not parse.
    """
    result: dict[str, Any] = {}
    for command, identifier, *rest in given.properties:
        table = _PROPERTIES.get(command)
        if table is None:
            raise Unsupported(f"-D {command}: only {', '.join(_PROPERTIES)} take properties here")
        if identifier not in table:
            raise Unsupported(f"-D {command} {identifier}: it takes {', '.join(table)}")
        if command != wanted:
            continue
        name, read = table[identifier]
        if identifier == "user-property":
            result.setdefault(name, []).append((rest[0], rest[1]))
            continue
        try:
            result[name] = read(rest[0])
        except ValueError:
            raise InvalidArgument(f"-D {command} {identifier}: {rest[0]!r} is not its value") from None
    return result


def quality(given: argparse.Namespace, scope: str, options: dict[str, Any]) -> None:
    """Sets the QoS of ``options``: what ``-q`` says, or Mosquitto's 0 where nobody else says anything."""
    from penstock.options import inherited_for

    if given.qos is not None:
        options["qos"] = given.qos
    elif "qos" not in options and "qos" not in inherited_for(given.url)[1][scope]:
        options["qos"] = 0
