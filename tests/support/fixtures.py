"""Fixtures that start a broker and stop it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def start(make: Callable[[], Any]) -> Any:
    """Starts a broker. A broker that does not start fails the test: a suite that skips it proves nothing."""
    try:
        return make()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        pytest.fail(f"a broker that these tests need could not be started: {error}", pytrace=False)


def running(make: Callable[[], Any]) -> Iterator[Any]:
    """The broker that ``make`` starts, stopped at the end: the body of a fixture."""
    broker = start(make)
    yield broker
    broker.stop()
