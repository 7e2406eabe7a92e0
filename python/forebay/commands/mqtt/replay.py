"""``forebay replay`` with an MQTT URL: an error that says why."""

from __future__ import annotations

import argparse
from typing import NoReturn

from forebay.errors import Unsupported


def run(given: argparse.Namespace) -> NoReturn:
    """Refuses.

    Raises:
        Unsupported: always.
    """
    raise Unsupported("MQTT keeps no messages that could be replayed: replay is for topics of Pulsar")
