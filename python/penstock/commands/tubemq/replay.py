"""``penstock replay`` with a TubeMQ URL: an error that names the alternative."""

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
        "replay is for topics of Pulsar: a TubeMQ message has no id or time to begin at. `penstock sub"
        " --parquet FILE` and `penstock pub --frame FILE` copy a topic, and a group of its own reads a topic"
        " again: `penstock sub -s GROUP -o first`"
    )
