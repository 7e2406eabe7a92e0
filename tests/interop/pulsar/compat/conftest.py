"""Each test here runs with the official module and with ours in its place, on the embedded broker and on the
real Pulsar."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE

MODULES = {"official": "pulsar", "ours": "forebay.compat.pulsar"}


@pytest.fixture(params=MODULES)
def pulsar(request: pytest.FixtureRequest) -> Any:
    """The module under test."""
    return importlib.import_module(MODULES[request.param])


@pytest.fixture
def client(pulsar: Any, service: PulsarService) -> Iterator[Any]:
    """A client of the module under test."""
    made = pulsar.Client(
        service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    yield made
    made.shutdown()


@pytest.fixture
def earliest(pulsar: Any) -> Any:
    return pulsar.InitialPosition.Earliest


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait
