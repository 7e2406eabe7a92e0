"""``penstock subscriptions`` with an MQTT URL: an error that names the alternative."""

from __future__ import annotations

import argparse
from typing import NoReturn

from penstock.commands._shared import subscriptions as shared
from penstock.errors import Unsupported


def run(given: argparse.Namespace) -> int:
    """Works with ``--data`` only."""
    return shared.run(given, _refuse)


def _refuse(given: argparse.Namespace) -> NoReturn:
    raise Unsupported(
        "MQTT does not tell who subscribes: `penstock top` shows the connections of an embedded broker"
    )
