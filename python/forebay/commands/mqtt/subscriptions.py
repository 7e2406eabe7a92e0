"""``forebay subscriptions`` with an MQTT URL: an error that names the alternative."""

from __future__ import annotations

import argparse
from typing import NoReturn

from forebay.commands._shared import subscriptions as shared
from forebay.errors import Unsupported


def run(given: argparse.Namespace) -> int:
    """Works with ``--data`` only."""
    return shared.run(given, _refuse)


def _refuse(given: argparse.Namespace) -> NoReturn:
    raise Unsupported(
        "MQTT does not tell who subscribes: `forebay top` shows the connections of an embedded broker"
    )
