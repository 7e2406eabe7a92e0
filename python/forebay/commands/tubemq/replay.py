"""``forebay replay`` with a TubeMQ URL: an error that names the commands to use."""

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
        "replay is for Pulsar topics; with TubeMQ use `sub --parquet FILE` and `pub --frame FILE`"
    )
