"""The command line: ``forebay broker | backup | restore | check | compact | passwd | token | pub | sub |
rr | bench | admin | topic | top | subscriptions | peek | replay | doctor | completion``.

This module parses the arguments and picks the module of :mod:`forebay.commands` that runs the command. Only
then is the code that does the work imported, so that ``forebay broker`` answers within 300 ms of its start.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._core import protocols
from .commands import parsers
from .commands._shared.arguments import described
from .commands.parsers import EPILOG

if TYPE_CHECKING:
    from ._core.options import Table

_REQUESTS = "mqtt"
"""The protocol of ``rr``, the only one with requests and responses."""
_HELP = "help"
"""The value of ``-X`` that lists the options."""
_WITH_TOPICS = (["pub"], ["sub"], ["rr"])
_OF_STORES = ("backup", "restore", "check", "compact")
_WAITING = ("pub", "sub", "rr", "bench")
"""Commands that wait for a broker when they are interrupted."""
_TIME_TO_CLOSE = 3.0
"""Seconds that they have for it."""
_INTERRUPTED = 130
_LONGEST = 2000
"""Characters of an error that are shown."""


def parser(protocol: str | None = None) -> argparse.ArgumentParser:
    """All commands and their arguments. ``pub`` and ``sub`` have the flags that users of ``protocol`` know:
    ``-q`` means quiet with Pulsar, but the quality of service with MQTT. Default: the first protocol of the
    registry."""
    top = argparse.ArgumentParser(prog="forebay", description="Messaging at full pressure.", epilog=EPILOG)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    parsers.add(commands, "broker", "run the embedded broker")
    parsers.add(commands, "backup", "copy the store of a broker, which may run meanwhile")
    parsers.add(commands, "restore", "check a copy of a store, and make a new store of it")
    parsers.add(commands, "check", "read a whole store, and list what is damaged in it")
    parsers.add(commands, "compact", "give the free space in the file of a store back to the disk")
    parsers.add(commands, "passwd", "manage the MQTT users of the embedded broker")
    parsers.add(commands, "token", "make and show keys and tokens of the embedded broker")
    arguments = _module(protocol or _default(), "arguments")
    _, *others = protocols.PROTOCOLS.values()
    helps = ", ".join(f"forebay pub {row.schemes[0]}:// --help" for row in others)
    epilog = f"{EPILOG} The flags depend on the protocol of the URL, see {helps}"
    for name, text, examples in (
        ("pub", "publish messages", arguments.PUB_EXAMPLES),
        ("sub", "print messages", arguments.SUB_EXAMPLES),
    ):
        getattr(arguments, name)(described(commands, name, text, examples, epilog, help=False))
    requests = _module(_REQUESTS, "arguments")
    text = "send a request over MQTT 5 and print the response"
    requests.rr(described(commands, "rr", text, requests.RR_EXAMPLES, EPILOG, help=False))
    parsers.add(commands, "bench", "measure throughput and latency")
    parsers.add(commands, "admin", "manage topics, subscriptions and schemas of Pulsar over HTTP")
    parsers.add(commands, "topic", "list, create, delete or inspect topics")
    parsers.add(commands, "top", "watch the rates, topics and backlogs of a broker")
    parsers.add(commands, "subscriptions", "list subscriptions with their backlogs")
    parsers.add(commands, "peek", "look at messages without consuming them")
    parsers.add(commands, "replay", "send the messages of a Pulsar topic to another topic")
    parsers.add(commands, "doctor", "find out why a connection fails")
    parsers.add(commands, "completion", "print a completion script for a shell")
    return top


def _module(protocol: str, name: str) -> Any:
    return protocols.PROTOCOLS[protocol].module(name)


def _default() -> str:
    return next(iter(protocols.PROTOCOLS))


def _protocol(words: list[str]) -> str:
    """The protocol of the URL, which has to be known before the other flags can be parsed. ``-u URL`` becomes
    ``--url URL``, because ``-u`` is the user with MQTT. Without a URL, ``-h HOST``, ``-p PORT`` and ``-L``
    are MQTT's."""
    for at, word in enumerate(words[1:], 1):
        before = words[at - 1]
        if word.startswith("--url="):
            return _protocol_of(word.removeprefix("--url="))
        if before == "--url" or ([before] in _WITH_TOPICS and at == 1 and "://" in word):
            return _protocol_of(word)
        if before == "-u" and "://" in word:
            words[at - 1] = "--url"
            return _protocol_of(word)
    return _REQUESTS if _names_host(words) else _protocol_of(os.environ.get("FOREBAY_URL", ""))


def _names_host(words: list[str]) -> bool:
    """Whether the broker is given as Mosquitto's commands take it."""
    # A number after -p is a port: the property that -p sets elsewhere has a "=".
    return any(
        word.startswith(("--host=", "--locator=", "--port=", "--unix="))
        or (word[:2] in ("-h", "-L") and len(word) > 2)
        or (word[:2] == "-p" and word[2:].isdecimal())
        or (word in ("-h", "--host", "-L", "--locator", "--port", "--unix") and not after.startswith("-"))
        or (word == "-p" and after.isdecimal())
        for word, after in itertools.pairwise([*words, "-"])
    )


def _protocol_of(url: str) -> str:
    # A command of the first protocol explains what is wrong with an unknown scheme.
    return protocols.of(url).key if protocols.is_url(url) else _default()


def _spoken(given: Any) -> str:
    """The protocol that the parsed arguments name."""
    if given.url is None and any(getattr(given, name, None) for name in ("host", "port", "locator", "unix")):
        return _REQUESTS
    return _protocol_of(given.url or os.environ.get("FOREBAY_URL", ""))


def _take_places(given: Any, rest: list[str]) -> list[str]:
    """Assigns the URL and topics that were given as positional arguments; returns the remaining words."""
    # Those after the first flag are reported as unknown.
    places: list[str] = [*given.places, *(word for word in rest if not word.startswith("-"))]
    if places and protocols.is_url(places[0]):
        url = places.pop(0)
        if given.url not in (url, given.parser.get_default("url")):
            given.parser.error(f"the URL is given twice: {given.url} and {url}")
        given.url = url
    unknown = [word for word in rest if word.startswith("-")]
    names: Sequence[str] = getattr(given, "named_places", ())
    if not names:
        given.topic = [*given.topic, *places]
    elif len(places) == len(names):
        for name, place in zip(names, places, strict=True):
            setattr(given, name, place)
    elif not unknown:
        wanted = " and ".join(name.upper() for name in names)
        given.parser.error(
            f"{wanted} needed, with a URL before, or -u URL; given: {' '.join(places) or 'none'}"
        )
    return unknown


def _parse(words: list[str], protocol: str) -> tuple[argparse.ArgumentParser, Any, list[str]]:
    """The parser, the arguments, and the words that it does not know."""
    top = parser(protocol)
    given, rest = top.parse_known_args(words)
    if hasattr(given, "places"):
        rest = _take_places(given, rest)
    return top, given, rest


def _run_of(given: Any, protocol: str) -> Callable[[Any], int]:
    """The function that runs the command."""
    if _asks_for_options(given):
        show = importlib.import_module(f"{__package__}.commands.options").show
        return lambda given: show(_tables_of(given, protocol))
    if given.command in ("broker", "top"):
        return importlib.import_module(f"{__package__}.commands.{given.command}").run
    if given.command in _OF_STORES:
        return importlib.import_module(f"{__package__}.commands.stores").run
    if given.command == "completion":
        completion = importlib.import_module(f"{__package__}.commands.completion")
        return lambda given: completion.run(given, *(parser(protocol) for protocol in protocols.PROTOCOLS))
    if given.command == "passwd":
        return _module("mqtt", given.command).run
    if given.command in ("token", "admin"):
        return _module("pulsar", given.command).run
    if [given.command] not in _WITH_TOPICS:
        protocol = _protocol_of((given.command == "doctor" and given.address) or given.url)
    return _module(protocol, given.command).run


def _in_flags(text: str, given: Any) -> str:
    """The text of an error with the flags of the command in place of the options that they set."""
    if len(text) > _LONGEST:
        # It may have a whole line of a file in it.
        text = f"{text[:_LONGEST]}..."
    places: dict[str, str] = getattr(given, "option_of", {})
    flags: dict[str, tuple[str, bool]] = {}
    for action in given.parser._actions:
        if action.option_strings:
            dest = str(action.dest)
            is_given = getattr(given, dest, None) != action.default
            flags[places.get(dest, dest)] = (action.option_strings[-1], is_given)

    def flag(found: re.Match[str]) -> str:
        if name := found["named"]:
            word, is_given = flags.get(name, ("", False))
            # It may be from -X, the URL or the environment.
            return word if is_given else found[0]
        return flags.get(found["word"], (found[0], True))[0]

    def setting(found: re.Match[str]) -> str:
        name = found["name"]
        if name in flags:
            return flags[name][0]
        known = any(name in table for row in protocols.PROTOCOLS.values() for table in row.tables.values())
        return f"-X {name}=VALUE" if known and hasattr(given, "options") else found[0]

    # A keyword of Python, without its value.
    text = re.sub(r"(?<![\w.-])(?P<name>[a-z]+(?:_[a-z]+)*)=(?=[\s,;.:)]|\Z)", setting, text)
    # A name in a sentence is one of ours only if it is no word of it.
    return re.sub(
        r"(?:\w+ )?option '(?P<named>\w+)'|(?<![\w/.=-])(?P<word>[a-z]+_[a-z_]+)\b(?![=/]|\.\w)", flag, text
    )


def _asks_for_options(given: Any) -> bool:
    return _HELP in getattr(given, "options", ())


def _tables_of(given: Any, protocol: str) -> Mapping[str, Table]:
    """The options that ``-X`` of the command sets, by the scope."""
    if given.command == "broker":
        return {"": protocols.table("broker")}
    if [given.command] not in _WITH_TOPICS:
        protocol = _protocol_of(getattr(given, "address", None) or given.url)
    return protocols.PROTOCOLS[protocol].tables


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger(__package__).setLevel(logging.DEBUG)


def _print_error(text: str) -> None:
    from .commands._shared.display import visible

    # Names in it may be a stranger's.
    print(f"forebay: {visible(text)}", file=sys.stderr)


@contextlib.contextmanager
def _ending_in_time() -> Generator[None, None, None]:
    """Ends the process some time after Ctrl-C, and at once after a second one. Until then connections are
    closed, which waits for the broker."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def give_up(*_: object) -> None:
        os._exit(_INTERRUPTED)

    late = threading.Timer(_TIME_TO_CLOSE, give_up)
    late.daemon = True

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, give_up)
        late.start()
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, interrupt)
    except ValueError:
        # Only the main thread can, and gets the signal.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        late.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    try:
        try:
            return _main(arguments)
        finally:
            # Here, and not by the interpreter at exit, which would complain.
            print(end="", flush=True)
    except BrokenPipeError:
        # The reader of our output has seen enough. What is left in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _print_error(str(error))
        return 1


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    has_topics = words[:1] in _WITH_TOPICS
    protocol = _protocol(words) if has_topics else _default()
    if words[:1] == ["rr"]:
        protocol = _REQUESTS
    top, given, rest = _parse(words, protocol)
    if has_topics and not _asks_for_options(given):
        if given.command != "rr" and (spoken := _spoken(given)) != protocol:
            # A URL after the first flag: only now is it known whose flags they are.
            protocol = spoken
            top, given, rest = _parse(words, protocol)
        problem = None if rest else _module(protocol, "arguments").problem(given)
        if problem:
            given.parser.error(problem)
    if rest:
        getattr(given, "parser", top).error(f"unrecognized arguments: {' '.join(rest)}")
    if given.version:
        from . import __version__

        print(f"forebay {__version__}")
        return 0
    if given.command is None:
        top.print_help()
        return 2
    from .errors import Error

    if getattr(given, "debug", False):
        _log_to_stderr()
    ending = _ending_in_time() if given.command in _WAITING else contextlib.nullcontext()
    try:
        with ending:
            return _run_of(given, protocol)(given)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Error as error:
        from .commands._shared.failed import status

        _print_error(f"{error.code}: {_in_flags(str(error), given)}")
        return status(error)
