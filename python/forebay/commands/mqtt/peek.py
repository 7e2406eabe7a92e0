"""``forebay peek`` with an MQTT URL: an error that names the alternative."""

from __future__ import annotations

import argparse
from typing import NoReturn

from forebay.errors import Unsupported


def run(given: argparse.Namespace) -> NoReturn:
    """Refuses.

    Raises:
        Unsupported: always.
    """
    raise Unsupported(
        "MQTT keeps no messages of topics but the retained ones, which `forebay sub --retained-only` shows"
    )
