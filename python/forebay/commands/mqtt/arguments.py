"""Arguments of ``forebay pub`` and ``forebay sub`` with an MQTT URL, and the options that they set."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from forebay.commands._shared import arguments
from forebay.errors import InvalidArgument, Unsupported

from . import address

__all__ = [
    "PUB_EXAMPLES",
    "RR_EXAMPLES",
    "SUB_EXAMPLES",
    "broker",
    "client_options",
    "problem",
    "properties",
    "pub",
    "quality",
    "rr",
    "sub",
]

PUB_EXAMPLES = (
    "forebay pub -h broker.example -t lamp/1 -m on -q 1 -r",
    "forebay pub mqtts://broker.example:8883 lamp/1 --cafile ca.pem -u till -P file:password.txt -m on",
    "forebay pub -L mqtt://till@broker.example/lamp/1 -P file:password.txt -n -r",
    "sensors | forebay pub -h broker.example -t sensors -l",
)
SUB_EXAMPLES = (
    "forebay sub -h broker.example -t 'lamp/#' -v",
    "forebay sub mqtt://broker.example 'lamp/#' -q 1 -c -i logger --json",
    "forebay sub -h broker.example -t 'lamp/#' --remove-retained --retained-only -W 2",
)
RR_EXAMPLES = (
    "forebay rr -h broker.example -t clock/get -m now -W 5",
    "forebay rr -h broker.example -t clock/get -e clock/answers -m now -D publish correlation-data 7 --json",
)

FORMAT_HELP = (
    "how to print a message: %%t topic, %%p payload, %%x and %%X payload in hexadecimal, %%l payload size, "
    "%%q QoS, %%r retain flag, %%m packet id, %%I time received, %%U the same in seconds since 1970, "
    "%%@X strftime's X, %%j JSON, %%J JSON with a JSON payload, %%C content type, %%D correlation data, "
    "%%E seconds until expiry, %%F payload format, %%P user properties, %%R response topic, "
    "%%S subscription id; %%-10t, %%04l: width; \\n, \\t, \\r, \\0, \\e"
)
_VERSIONS = {
    **dict.fromkeys(("5", "mqttv5"), "5"),
    **dict.fromkeys(("311", "3.1.1", "mqttv311"), "3.1.1"),
    **dict.fromkeys(("31", "3.1", "mqttv31"), "3.1"),
    "auto": "auto",
}
_UNSUPPORTED = {
    ("-A",): "the operating system chooses the local address",
    ("-S",): "look up the SRV record, and name the host with -h",
    ("--psk", "--psk-identity"): "use a client certificate (--cert, --key), or -u and -P",
    ("--ciphers", "--tls-version"): "client and broker agree on TLS 1.3 or 1.2 and a cipher suite",
    ("--proxy",): "forward the port, for example with ssh -L, and give -h 127.0.0.1",
    ("--tls-engine", "--tls-engine-kpass-sha1", "--keyform"): "--key takes the key as a PEM file",
    ("--capath",): "put the certificates into one file for --cafile: cat DIR/*.pem > ca.pem",
}
"""Flags of Mosquitto's commands, and what to do in place of them."""
_QUIET = "{} is not supported: 2>/dev/null hides errors"


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


def broker(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay broker``."""
    add = command.add_argument
    add("--mqtt-port", metavar="PORT", help="port for MQTT; 0 picks a free one")
    add("--mqtt-ws-port", metavar="PORT", help="port for MQTT over WebSocket, at the path /mqtt")
    add(
        "--mqtt-password-file",
        metavar="FILE",
        help="MQTT users, as mosquitto_passwd or forebay passwd writes them",
    )


def pub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay pub``."""
    _session(command)
    arguments.topics(command, "topic to publish to")
    arguments.source(command, lines=["--stdin-line"], stdin=["--stdin-file"], null=["--null-message"])
    add = command.add_argument
    add("-q", "--qos", type=int, choices=(0, 1, 2), help="quality of service (default: 0)")
    add("-r", "--retain", action="store_true", help="let the broker retain the message")
    arguments.repeat(command, "--repeat")
    add(
        "--repeat-delay",
        type=_delay,
        metavar="SECONDS",
        help="with --repeat, the pause before each repetition",
    )
    add("--json", action="store_true", help="print the answer to each message as JSON")
    arguments.quiet(command, "--quiet")
    refuse = arguments.refuse
    refuse(
        command,
        ["-K", "--key-separator"],
        "MQTT has no keys, so {} is not supported: put them into the topic",
    )
    refuse(command, ["-z", "--compression"], "MQTT has no {}")


def sub(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay sub``."""
    _session(command)
    arguments.topics(command, "topic filter to subscribe to; repeatable")
    add = command.add_argument
    add("-q", "--qos", type=int, choices=(0, 1, 2), help="highest quality of service to receive (default: 0)")
    add(
        "-s",
        "--subscription",
        metavar="GROUP",
        help="shared subscription: each message goes to one member of the group",
    )
    arguments.limits(command, "exit after N messages", "exit after this time, with status 27")
    add(
        "-E",
        "--exit-after-sub",
        action="store_true",
        help="exit as soon as the broker confirms the subscription",
    )
    arguments.output(command, FORMAT_HELP, "print the topic before the payload")
    add("-R", "--no-retained", action="store_true", help="do not print retained messages")
    add("--retained-only", action="store_true", help="exit at the first message that is not retained")
    add(
        "-T",
        "--filter-out",
        action="append",
        default=[],
        metavar="FILTER",
        help="do not print messages of these topics; repeatable",
    )
    add(
        "--random-filter",
        type=_percent,
        default=100.0,
        metavar="PERCENT",
        help="print each message with this probability, such as 0.5 (default: 100); -C counts those printed",
    )
    add("--retain-as-published", action="store_true", help="show whether a message was published as retained")
    add("--no-ack", action="store_true", help="do not acknowledge messages of QoS 1 and 2")
    add(
        "-U",
        "--unsubscribe",
        action="append",
        default=[],
        metavar="FILTER",
        help="end a subscription that the session has from before; repeatable; without -t that is all",
    )
    add(
        "--remove-retained",
        action="store_true",
        help="delete each retained message that comes, but for those of -T",
    )
    _pretty(command)
    refuse = arguments.refuse
    refuse(command, ["--quiet"], _QUIET)
    refuse(command, ["-w", "--watch"], "{} is not supported: -v prints the topic before the payload")
    refuse(
        command,
        ["--type"],
        "MQTT has no subscription types, so {} is not supported: -s shares a subscription",
    )
    refuse(command, ["-o", "--position"], "MQTT has no positions, so {} is not supported")
    refuse(
        command,
        ["-e", "--exit"],
        "an MQTT topic has no end, so {} is not supported: use -C, -W or --retained-only",
    )


def rr(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``forebay rr``."""
    _session(command)
    arguments.topics(command, "topic to send the request to")
    add = command.add_argument
    add(
        "-e",
        "--response-topic",
        metavar="TOPIC",
        help="topic on which the response comes (default: one of its own)",
    )
    arguments.source(command, lines=None, stdin=["--stdin-file"], null=["--null-message"], frame=False)
    add("-q", "--qos", type=int, choices=(0, 1, 2), help="quality of service, both ways (default: 0)")
    add("-r", "--retain", action="store_true", help="let the broker retain the request")
    add("-R", "--no-retained", action="store_true", help="no effect: a retained message is no response")
    add("-W", "--timeout", metavar="SECONDS", help="exit after this time without a response, with status 27")
    arguments.refuse(command, ["--quiet"], _QUIET)
    arguments.output(command, FORMAT_HELP, "print the topic before the payload")
    _pretty(command)


def _delay(text: str) -> float:
    from forebay._core import parse

    try:
        return parse.duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise argparse.ArgumentTypeError(f"expected a percentage above 0 and up to 100, not {text!r}")
    return percent


def _pretty(command: argparse.ArgumentParser) -> None:
    command.add_argument("--pretty", action="store_true", help="indent JSON, over several lines")


def _session(command: argparse.ArgumentParser) -> None:
    address.flags(command)
    command.set_defaults(option_of=_OPTION_OF)
    add = command.add_argument
    arguments.debug(command)
    arguments.setting(add, "set any other option of the client, producer or consumer")
    add("-i", "--id", metavar="ID", help="client id (default: a random one)")
    add("-I", "--id-prefix", metavar="PREFIX", help="client id PREFIX-PID, with the id of the process")
    add("-u", "--username", metavar="USER", help="user name")
    add(
        "-P",
        "--pw",
        metavar="PASSWORD",
        help="password; env:NAME or file:PATH keep it out of the process list",
    )
    add("-V", "--protocol-version", metavar="VERSION", help="MQTT version: 5 (default), 311, 31 or auto")
    add("-c", "--disable-clean-session", action="store_true", help="keep the session on the broker; needs -i")
    add(
        "-x",
        "--session-expiry-interval",
        metavar="SECONDS",
        help='how long the broker keeps the session, or "never" to keep it for good (with -c, the default)',
    )
    add("-k", "--keepalive", metavar="SECONDS", help="keep alive interval (default: 60)")
    add(
        "-M",
        "--max-inflight",
        metavar="N",
        help="limit of outgoing messages of QoS 1 and 2 without an answer (default: 1000)",
    )
    add("--nodelay", action="store_true", help="no effect: TCP_NODELAY is always set")
    add("--cafile", metavar="FILE", help="certificate authorities to trust (PEM)")
    add("--tls-use-os-certs", action="store_true", help="no effect: the default without --cafile")
    add("--cert", metavar="FILE", help="client certificate chain (PEM)")
    add("--key", metavar="FILE", help="private key of the client certificate (PEM)")
    add("--insecure", action="store_true", help="accept any host name in the broker's certificate")
    add("--tls-alpn", metavar="PROTOCOL", help="protocol to offer in the TLS handshake (default: mqtt)")
    add(
        "--will-topic",
        metavar="TOPIC",
        help="topic of the will, which the broker publishes if the connection is lost",
    )
    add("--will-payload", metavar="TEXT", help="payload of the will")
    add("--will-qos", type=int, choices=(0, 1, 2), help="quality of service of the will (default: 0)")
    add("--will-retain", action="store_true", help="let the broker retain the will")
    add(
        "-D",
        "--property",
        dest="properties",
        action=_Property,
        nargs="+",
        default=[],
        metavar="WORD",
        help="set an MQTT 5 property: -D publish content-type text/plain, -D will user-property NAME VALUE",
    )
    for names, instead in _UNSUPPORTED.items():
        arguments.refuse(command, names, f"{{}} is not supported: {instead}")


def problem(given: argparse.Namespace) -> str | None:
    """Completes the arguments by what ``-h`` and ``-L`` say; returns why the command cannot start with them,
    ``None`` if it can."""
    wrong = address.locate(given)
    if wrong is None and given.command == "sub" and given.unsubscribe:
        return arguments.output_problem(given)
    return wrong or arguments.topic_problem(given)


_OPTION_OF = {
    "id": "client_id",
    "pw": "password",
    "session_expiry_interval": "session_expiry",
    "keepalive": "keep_alive",
    "cafile": "tls_ca",
    "cert": "tls_cert",
    "key": "tls_key",
    "insecure": "tls_skip_hostname_check",
    "protocol_version": "version",
    "disable_clean_session": "clean_start",
}
"""The options that flags of another name set."""


def client_options(given: argparse.Namespace, options: dict[str, Any]) -> dict[str, Any]:
    """The client options that the flags set, on top of ``options`` from ``-X``.

    Raises:
        InvalidArgument: a value that does not parse, or flags that contradict each other.
        Unsupported: a property that does not exist or cannot be set.
    """
    if given.id and given.id_prefix:
        raise InvalidArgument("-i and -I exclude each other")
    flags = {
        "client_id": f"{given.id_prefix}-{os.getpid()}" if given.id_prefix else given.id,
        "username": given.username,
        "password": given.pw,
        "session_expiry": given.session_expiry_interval,
        "keep_alive": given.keepalive,
        "max_inflight": given.max_inflight,
        "tls_ca": given.cafile,
        "tls_cert": given.cert,
        "tls_key": given.key,
        "tls_skip_hostname_check": given.insecure or None,
        "tls_alpn": given.tls_alpn,
        "clean_start": False if given.disable_clean_session else None,
    }
    result = options | {name: value for name, value in flags.items() if value is not None}
    named = result.get("client_id") and not given.id_prefix
    if result.get("clean_start") is False and not named:
        raise InvalidArgument("-c keeps the session of a client id: give one with -i")
    if given.protocol_version is not None:
        version = _VERSIONS.get(given.protocol_version)
        if version is None:
            raise InvalidArgument(f"-V is one of {', '.join(_VERSIONS)}, not {given.protocol_version!r}")
        result["version"] = version
    if given.properties and str(result.get("version", "5")) in ("3.1", "3.1.1"):
        raise Unsupported(f"MQTT {result['version']} has no properties, so -D is not supported: use -V 5")
    result.update(properties(given, "connect"))
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
    """The properties that ``-D`` sets on ``publish``, ``will`` or ``connect``, as our options name them. User
    properties are pairs.

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
        if name in result:
            raise InvalidArgument(f"-D {command} {identifier} is given twice")
        try:
            result[name] = read(rest[0])
        except ValueError:
            raise InvalidArgument(f"-D {command} {identifier}: {rest[0]!r} is not a valid value") from None
    return result


def quality(given: argparse.Namespace, scope: str, options: dict[str, Any]) -> None:
    """Sets the QoS of ``options``: that of ``-q``, else Mosquitto's default of 0 unless ``-X``, the URL or
    the environment sets another."""
    from forebay._core.protocols import inherited_for

    if given.qos is not None:
        options["qos"] = given.qos
    elif "qos" not in options and "qos" not in inherited_for(given.url)[1][scope]:
        options["qos"] = 0
