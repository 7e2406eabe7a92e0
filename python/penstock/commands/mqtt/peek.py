"""``penstock peek`` with an MQTT URL: an error that names the alternative."""

from __future__ import annotations

import argparse
from typing import NoReturn

from penstock.errors import Unsupported


def run(given: argparse.Namespace) -> NoReturn:
    """Refuses.

    Raises:
        Unsupported: always.
    """
    raise Unsupported(
        "MQTT keeps no messages of topics but the retained ones, which `penstock sub --retained-only` shows"
    )
