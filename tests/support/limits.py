"""Time limits of clients, for a ``conftest.py`` to import."""

from __future__ import annotations

import pytest

from support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for a broker whose disk stands still, unless their test gives them a limit."""
    for name in ("CONNECT_TIMEOUT", "REQUEST_TIMEOUT"):
        monkeypatch.setenv(f"PENSTOCK_{name}", str(PATIENCE))
