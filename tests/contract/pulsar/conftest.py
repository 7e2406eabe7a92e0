"""Time limits of the clients of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


# Of the module: this folder has no ``__init__.py``, so that one of the package would last for the session.
@pytest.fixture(scope="module", autouse=True)
def patient_clients() -> Iterator[None]:
    """Clients wait for a machine that stands still."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONNECT", "OPERATION", "SEND"):
            patch.setenv(f"PENSTOCK_{name}_TIMEOUT", "60s")
        yield
