"""``forebay topic`` with an MQTT URL: an error that names the alternative."""

from __future__ import annotations

import argparse
import contextlib

from forebay.commands._shared import topic as shared
from forebay.errors import Unsupported


def run(given: argparse.Namespace) -> int:
    """Works with ``--data`` only.

    Raises:
        Unsupported: without ``--data``.
    """
    return shared.run(given, _broker)


def _broker(given: argparse.Namespace) -> contextlib.AbstractContextManager[shared.Place]:
    raise Unsupported("MQTT cannot list topics: `forebay sub -t '#'` shows what is published")
