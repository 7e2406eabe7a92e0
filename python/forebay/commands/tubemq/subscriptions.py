"""``forebay subscriptions`` with a TubeMQ URL: an error that names the alternative."""

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
        "TubeMQ's protocol does not list groups. Embedded broker: use -u http://HOST:8080, or --data DIR"
        " while it is stopped. Real server: use the web API of its master"
    )
