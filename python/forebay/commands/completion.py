"""``forebay completion``: scripts that complete commands and flags in a shell, written by shtab."""

from __future__ import annotations

import argparse
import copy
from typing import Any, cast

from forebay.errors import Unsupported


def run(given: argparse.Namespace, *parsers: argparse.ArgumentParser) -> int:
    """Prints the script.

    Args:
        given: the parsed arguments.
        parsers: the parser of each protocol; a shell completes the flags of all of them.

    Raises:
        Unsupported: shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise Unsupported("completion needs shtab: pip install 'forebay[cli]'") from None
    parser = _joined(*parsers)
    completers = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in _actions(parser):
        metavar = action.metavar
        if isinstance(metavar, str) and metavar in completers:
            cast("Any", action).complete = completers[metavar]
    print(shtab.complete(parser, shell=given.shell))
    return 0


def _joined(first: argparse.ArgumentParser, *others: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The first parser, with flags of the others that its commands do not have or only refuse."""
    for name, command in _commands(first).items():
        command._actions[:] = [action for action in command._actions if action.help != argparse.SUPPRESS]
        known = {flag for action in command._actions for flag in action.option_strings}
        for other in others:
            for action in _commands(other)[name]._actions:
                flags = [flag for flag in action.option_strings if flag not in known]
                if flags and action.help != argparse.SUPPRESS:
                    added = copy.copy(action)
                    added.option_strings = flags
                    command._actions.append(added)
                    known.update(flags)
    return first


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        choices: Any = action.choices
        if isinstance(choices, dict):
            return cast("dict[str, argparse.ArgumentParser]", choices)
    return {}


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a parser and of its commands."""
    return [*parser._actions, *(one for inner in _commands(parser).values() for one in _actions(inner))]
