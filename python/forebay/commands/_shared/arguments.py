"""Arguments that the commands of several protocols have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from forebay._core import protocols

if TYPE_CHECKING:
    from typing import TypeAlias

    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore
    """The commands of a parser, or the actions of a command."""

DEFAULT_URL = "pulsar://127.0.0.1:6650"
_MOSQUITTO = (
    *("--qos", "-i", "--id", "-P", "--pw", "--username", "-V", "--protocol-version", "-c", "-x"),
    *("-I", "--id-prefix", "-M", "--max-inflight", "--nodelay", "--unix"),
    *(
        "--keepalive",
        "--will-topic",
        "--will-payload",
        "--will-qos",
        "--will-retain",
        "-L",
        "--host",
        "--port",
    ),
)
_MOSQUITTO_SUB = (
    "-q",
    "-R",
    "--no-retained",
    "--retained-only",
    "-E",
    "--filter-out",
    "-U",
    "--remove-retained",
    "--pretty",
)
_MOSQUITTO_TLS = ("--cafile", "--cert", "--insecure", "--tls-alpn")


class _Formatter(argparse.HelpFormatter):
    """Keeps the lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.split("\n\n")
        return "\n\n".join(
            part if part.startswith("examples:") else super(_Formatter, self)._fill_text(part, width, indent)
            for part in parts
        )


def described(
    commands: Commands,
    name: str,
    text: str,
    examples: Sequence[str],
    epilog: str,
    *,
    help: bool = True,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Adds a command.

    Args:
        commands: where to.
        name: of the command.
        text: its line in the list of commands.
        examples: command lines at the end of its help.
        epilog: the text behind them.
        help: whether it has argparse's ``-h``; otherwise :func:`help_flags` or a flag of its own.
        aliases: other names of it.
    """
    shown = ["\n".join(["examples:", *(f"  {line}" for line in examples)])] if examples else []
    command = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog="\n\n".join([*shown, epilog]),
        formatter_class=_Formatter,
        add_help=help,
        aliases=aliases,
    )
    # For errors that show only when everything is parsed.
    command.set_defaults(parser=command)
    return command


class Help(argparse.Action):
    """``-h`` of a command that has a host with MQTT: it prints the help unless a host follows, for which
    :meth:`take` answers."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, name: Any = None
    ) -> None:
        if values is None or protocols.is_url(values):
            parser.print_help()
            parser.exit()
        self.take(parser, namespace, values)

    def take(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, host: str) -> None:
        """Refuses the host."""
        parser.error(f"-h HOST is for MQTT, and the URL is of another protocol: put {host} into the URL")


def help_flags(command: argparse.ArgumentParser) -> None:
    """``--help``, and ``-h`` of a protocol that takes the broker's address as a URL."""
    command.add_argument("--help", action="help", help="show this help message and exit")
    command.add_argument("-h", action=Help, nargs="?", dest=argparse.SUPPRESS, help=argparse.SUPPRESS)


def setting(add: Callable[..., object], text: str) -> None:
    """Adds ``-X`` by ``add``, the ``add_argument`` of a command. ``text`` is what it says in the help."""
    add(
        "-X",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"{text}; repeatable; -X help lists them",
    )


def debug(command: argparse.ArgumentParser) -> None:
    """``-d``."""
    command.add_argument(
        "-d",
        "--debug",
        action="store_true",
        help="log connections, losses and attempts to standard error",
    )


class Refused(argparse.Action):
    """A flag that only another protocol has. Giving it is an error that names the flag."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, name: Any = None
    ) -> None:
        parser.error(str(self.const).replace("{}", str(name)))


def refuse(command: argparse.ArgumentParser, names: Sequence[str], text: str) -> None:
    """Registers flags that are not supported; ``{}`` in ``text`` becomes the flag as it was given."""
    command.add_argument(
        *names, action=Refused, nargs="?", const=text, dest=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def refuse_mosquitto(
    command: argparse.ArgumentParser, protocol: str, *, sub: bool, more: Sequence[str] = ()
) -> None:
    """Refuses the flags of ``mosquitto_pub`` or ``mosquitto_sub`` for a protocol that is not MQTT.

    Args:
        command: the parser of the command.
        protocol: the protocol's name, for the error.
        sub: whether this is ``forebay sub``.
        more: further flags to refuse in the same words.
    """
    names = (*_MOSQUITTO, *(_MOSQUITTO_SUB if sub else ("--retain", "--repeat-delay")), *more)
    refuse(
        command, names, f"{protocol} has no {{}}; it is for MQTT: name the broker with -h HOST or mqtt://HOST"
    )
    refuse(command, _MOSQUITTO_TLS, "{} is for MQTT URLs; use -X tls_ca=FILE, tls_cert=FILE, tls_key=FILE")


def connection(command: argparse.ArgumentParser, default: str | None = None) -> None:
    """``-u``, ``-X`` and ``-d``."""
    default = default or DEFAULT_URL
    command.add_argument(
        "-u",
        "--url",
        default=os.environ.get("FOREBAY_URL") or default,
        help=f"URL of the broker (default: FOREBAY_URL or {default})",
    )
    setting(
        command.add_argument,
        "set an option of the client, producer or consumer, such as token=file:token.txt",
    )
    debug(command)


def places(command: argparse.ArgumentParser, text: str, *names: str) -> None:
    """URL and topics as positional arguments.

    Args:
        command: the parser of the command.
        text: their help.
        names: of the topics, each of which is needed; none for topics that ``-t`` gives as well.
    """
    metavar = " ".join(["[URL]", *(name.upper() for name in names)]) if names else "[URL] [TOPIC]"
    command.add_argument("places", nargs="*", metavar=metavar, help=text)
    command.set_defaults(named_places=names)


def topics(command: argparse.ArgumentParser, text: str) -> None:
    """``-t``."""
    command.add_argument("-t", "--topic", action="append", default=[], help=text)


def source(
    command: argparse.ArgumentParser,
    *,
    lines: Sequence[str] | None = (),
    stdin: Sequence[str] = (),
    null: Sequence[str] | None = (),
    frame: bool = True,
) -> None:
    """The flags that say what to publish, of which only one may be given.

    Args:
        command: the parser of ``forebay pub``.
        frame: whether there is ``--frame``.
        lines, stdin, null: further names of ``-l``, ``-s`` and ``-n``; ``None`` leaves ``-l`` or ``-n`` out.
    """
    add = command.add_mutually_exclusive_group().add_argument
    add("-m", "--message", action="append", metavar="TEXT", help="publish this text; repeatable")
    add("-f", "--file", action="append", metavar="FILE", help="publish the content of this file; repeatable")
    if lines is None:
        command.set_defaults(lines=False)
    else:
        add(
            "-l",
            "--lines",
            *lines,
            action="store_true",
            help="publish each line of standard input without its LF",
        )
    add("-s", "--stdin", *stdin, action="store_true", help="publish all of standard input as one message")
    if frame:
        add(
            "--frame",
            metavar="FILE",
            help="publish each row of a file (.parquet, .arrow, .feather, .csv): the column value is the"
            " payload, and key, properties, event_time ... are what they say; without it rows are sent as"
            " JSON; needs pyarrow",
        )
    if null is None:
        command.set_defaults(null=False)
    else:
        add("-n", "--null", *null, action="store_true", help="publish a message without a payload")


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, not {text!r}")
    return count


def repeat(command: argparse.ArgumentParser, *names: str) -> None:
    """The flag that publishes ``-m``, ``-f``, ``-s`` or ``-n`` several times."""
    command.add_argument(*names, type=_count, default=1, metavar="N", help="publish -m, -f, -s or -n N times")


def keys(command: argparse.ArgumentParser, text: str) -> None:
    """``-k``, ``-K`` and ``--key-column``."""
    command.add_argument("--key-column", metavar="NAME", help="with --frame, the column of the keys")
    command.add_argument("-k", "--key", help=text)
    command.add_argument(
        "-K", "--key-separator", metavar="SEP", help="with -l, the text before SEP is the key of the line"
    )


def properties(command: argparse.ArgumentParser) -> None:
    """``-p``."""
    command.add_argument(
        "-p",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="add a property to each message; repeatable",
    )


def quiet(command: argparse.ArgumentParser, *names: str) -> None:
    """The flag that silences ``forebay pub``."""
    command.add_argument(*names, action="store_true", help="print neither progress nor a summary")


def parquet(command: argparse.ArgumentParser) -> None:
    """``--parquet`` and ``--decode``."""
    add = command.add_argument
    add(
        "--parquet",
        metavar="FILE",
        help="write what the topics have now into a file, from -o on, the beginning by default, at most -C"
        " messages; no subscription or group is used; needs pyarrow",
    )
    add("--decode", action="store_true", help="with --parquet, values are those of the schema of the topics")


def limits(
    command: argparse.ArgumentParser,
    count: str,
    timeout: str = "exit after this time, with status 27 if -C has not been reached",
) -> None:
    """``-C`` and ``-W`` of ``forebay sub``."""
    command.add_argument("-C", "--count", type=_count, metavar="N", help=count)
    command.add_argument("-W", "--timeout", metavar="SECONDS", help=timeout)


def output(command: argparse.ArgumentParser, format_help: str, verbose: str) -> None:
    """``-F``, ``-v``, ``-N`` and ``--json`` of ``forebay sub``."""
    add = command.add_argument
    add("-F", "--format", metavar="FORMAT", help=format_help)
    add("-v", "--verbose", action="store_true", help=verbose)
    add("-N", "--no-newline", action="store_true", help="print no newline after the payload")
    add("--json", action="store_true", help="print each message as a line of JSON")


def topic_problem(given: argparse.Namespace) -> str | None:
    """Why ``pub``, ``sub`` or ``rr`` cannot start with these arguments; ``None`` if it can."""
    if not given.topic:
        return "a topic is needed: -t TOPIC"
    wrong = None if given.command == "sub" else _source_problem(given)
    return wrong or (None if given.command == "pub" else output_problem(given))


def output_problem(given: argparse.Namespace) -> str | None:
    """Why flags of ``sub`` or ``rr`` would have no effect; ``None`` if all of them have one."""
    if given.json and (given.format is not None or given.verbose or given.no_newline):
        return "--json prints whole messages: leave -F, -v and -N out"
    if getattr(given, "decode", False) and given.parquet is None:
        return "--decode needs --parquet"
    return None


def _source_problem(given: argparse.Namespace) -> str | None:
    """Why nothing can be published."""
    actions: list[argparse.Action] = given.parser._mutually_exclusive_groups[0]._group_actions
    if all(getattr(given, action.dest) in (None, False) for action in actions):
        *flags, last = (action.option_strings[0] for action in actions)
        return f"nothing to publish: use {', '.join(flags)} or {last}"
    separator: str | None = getattr(given, "key_separator", None)
    if separator is not None and not given.lines and given.frame is None:
        return "-K needs -l"
    if separator == "":
        return "-K is the text between key and message: it cannot be empty"
    if getattr(given, "key_column", None) is not None and given.frame is None:
        return "--key-column needs --frame"
    if given.lines and given.repeat != 1:
        return "lines of standard input are published once each: leave out the flag that repeats"
    return None
