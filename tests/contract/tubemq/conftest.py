"""The TubeMQ servers, one after the other."""

from __future__ import annotations

import pytest

from support.limits import patient_clients
from support.tubemq.harness import TubeMqService

patient = patient_clients("CONNECT", "REQUEST")


@pytest.fixture(
    params=[
        pytest.param("embedded_tubemq", id="embedded"),
        pytest.param("real_tubemq", marks=pytest.mark.real_tubemq, id="tubemq"),
    ]
)
def tube(request: pytest.FixtureRequest) -> TubeMqService:
    """The embedded broker and the real TubeMQ."""
    return request.getfixturevalue(request.param)
