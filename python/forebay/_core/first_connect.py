"""Retries of the first connect, for both faces: the option ``retry_first``."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from typing import Any

from forebay.errors import Error

FIRST = 0.1
"""Seconds of the first pause; each one is twice the one before it, up to ``max_backoff``."""


class Retries:
    """The attempts of one connect.

    Args:
        key: the protocol's key, for its logger.
        values: options of the client.
    """

    def __init__(self, key: str, values: Mapping[str, Any]) -> None:
        wanted: bool | float = values.get("retry_first", False)
        self._log = logging.getLogger(f"forebay.{key}.connection")
        self._most = values["max_backoff"]
        self._until: float | None = None
        if wanted is False:
            self._until = 0.0
        elif wanted is not True:
            self._until = time.monotonic() + wanted
        self.failed = 0
        """Attempts that failed so far."""

    def pause(self, error: Error) -> float:
        """Seconds before the next attempt.

        Raises:
            Error: ``error``, if another attempt cannot mend it, or is not wanted any more.
        """
        self.failed += 1
        whole = min(FIRST * 2 ** min(self.failed - 1, 32), self._most)
        # As the engine's: clients that start together do not connect together.
        seconds = whole / 2 + random.uniform(0, whole / 2)
        if not error.retriable or (self._until is not None and time.monotonic() + seconds > self._until):
            raise error
        # The first one says that the client waits, which its owner may not expect.
        self._log.log(
            logging.WARNING if self.failed == 1 else logging.DEBUG,
            "attempt %d of the first connect failed (%s); the next one follows in %.1f s",
            self.failed,
            error,
            seconds,
        )
        return seconds
