"""``forebay backup | restore | check | compact``: the store of an embedded broker, in its folder."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forebay._core.broker_config import read as read_config
from forebay._core.native import backup_store, check_store, compact_store, restore_store
from forebay.errors import InvalidArgument

from ._shared.broker_options import ENVIRONMENT, OPTIONS
from ._shared.display import size, visible
from ._shared.failed import refusals


def run(given: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    folder = _folder(given)
    with refusals():
        return _COMMANDS[given.command](given, folder)


def _folder(given: argparse.Namespace) -> str:
    """The folder of the store, named as for ``forebay broker``.

    Raises:
        InvalidArgument: it is not named.
    """
    folder = given.data or os.environ.get(f"{ENVIRONMENT}DATA")
    if not folder and given.config:
        folder = read_config(given.config, OPTIONS).get("data")
    if not folder:
        raise InvalidArgument(
            f"`forebay {given.command}` is for the store in a folder: name it with --data DIR"
        )
    return str(folder)


def _backup(given: argparse.Namespace, data: str) -> int:
    backup_store(data, given.file)
    count = Path(given.file).stat().st_size
    text = f"the store in {data} has been copied to {given.file}, {size(count)}"
    _report(given, text, {"file": given.file, "bytes": count})
    return 0


def _restore(given: argparse.Namespace, data: str) -> int:
    entries = restore_store(given.file, data)
    _report(given, f"{entries} messages or batches are in the store in {data}", {"entries": entries})
    return 0


def _compact(given: argparse.Namespace, data: str) -> int:
    before, after = compact_store(data)
    text = f"the store in {data} has {size(after)}; it had {size(before)}"
    _report(given, text, {"before_bytes": before, "after_bytes": after})
    return 0


def _check(given: argparse.Namespace, data: str) -> int:
    entries, damage = check_store(data)
    summary = f"{entries} messages or batches can be read, {len(damage)} places are damaged"
    _report(given, "\n".join([*damage, summary]), {"entries": entries, "damage": damage})
    return 1 if damage else 0


def _report(given: argparse.Namespace, text: str, figures: Mapping[str, Any]) -> None:
    if given.json:
        print(json.dumps(figures), flush=True)
    elif not given.quiet:
        print(visible(text), flush=True)


_COMMANDS: dict[str, Callable[[argparse.Namespace, str], int]] = {
    "backup": _backup,
    "restore": _restore,
    "check": _check,
    "compact": _compact,
}
