"""Time limits of clients on a machine that stands still now and then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from support.waiting import PATIENCE


@contextlib.contextmanager
def patience(*limits: str) -> Iterator[None]:
    """Lets the clients of this process, and of those that begin meanwhile, wait longer.

    Args:
        limits: ``CONNECT`` for ``connect_timeout``, and others alike. What a test sets itself stays.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in limits:
            patch.setenv(f"FOREBAY_{name}_TIMEOUT", str(PATIENCE))
        yield


def patient_clients(*limits: str) -> Any:
    """A fixture for a ``conftest.py``: :func:`patience` for its folder.

    It is of the module: one of the session would last until the tests of other folders have run.
    """

    @pytest.fixture(scope="module", autouse=True)
    def patient() -> Iterator[None]:
        with patience(*limits):
            yield

    return patient
