"""Fixtures of the tests of what the protocols share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=["pulsar", "mqtt", "tubemq"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Each protocol."""
    return request.param


@pytest.fixture
def broker(request: pytest.FixtureRequest, protocol: str) -> Any:
    """The embedded broker, by each protocol."""
    return request.getfixturevalue("embedded" if protocol == "pulsar" else f"embedded_{protocol}")
