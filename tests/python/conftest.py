"""Fixtures of the tests of the Python package, whatever the protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.waiting import PATIENCE


@pytest.fixture(scope="module", autouse=True)
def patient_connects() -> Iterator[None]:
    """Clients, also those in other processes, have more time to connect: the machine may be busy.

    By module, because a session would keep it until the tests of other folders have run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_CONNECT_TIMEOUT", str(PATIENCE))
        yield
