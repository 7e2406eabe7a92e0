"""The MQTT brokers, one after the other, and connections that send packets written by hand."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.limits import patient_clients
from support.mqtt.harness import MqttService
from support.mqtt.wire import V5, V311, Raw
from support.waiting import PATIENCE

Open = Callable[..., Raw]

patient = patient_clients("CONNECT", "REQUEST")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``differs(broker, why, parameter=value)`` marks a deviation of that broker from the standard. The test
    must fail there; when it passes, the mark is out of date."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        for mark in item.iter_markers("differs"):
            name, why = mark.args
            if parameters.get("broker") == name and mark.kwargs.items() <= parameters.items():
                item.add_marker(pytest.mark.xfail(strict=True, reason=f"{name}: {why}"))


@pytest.fixture(
    params=[
        pytest.param("embedded_mqtt", id="embedded"),
        pytest.param("mosquitto", marks=pytest.mark.real_mqtt),
        pytest.param("hivemq", marks=pytest.mark.real_hivemq),
    ]
)
def broker(request: pytest.FixtureRequest) -> MqttService:
    """The embedded broker, Mosquitto and HiveMQ."""
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that a packet gets. One that is known not to arrive gets few."""
    seconds = 2.0 if request.node.get_closest_marker("xfail") else PATIENCE
    monkeypatch.setattr(Raw, "timeout", seconds)
    return seconds


@pytest.fixture(params=[V311, V5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def topic(broker: MqttService) -> str:
    return broker.topic()


@pytest.fixture
def client_id() -> str:
    return f"c{uuid.uuid4().hex[:12]}"


@pytest.fixture
def open(broker: MqttService) -> Iterator[Open]:
    """``open(version, client_id, ...)``: a connection after CONNACK, whose fields are in ``connack``."""
    with contextlib.ExitStack() as stack:

        def make(version: int = V5, client_id: str | None = None, **options: Any) -> Raw:
            one = stack.enter_context(broker.raw(version))
            name = f"c{uuid.uuid4().hex[:12]}" if client_id is None else client_id
            one.connect(name, **options)
            assert one.connack["reason"] == 0, one.connack
            return one

        yield make


@pytest.fixture
def settle(open: Open, topic: str) -> Callable[..., None]:
    """``settle(one, options, ...)``: subscribes to the topic, and returns when the server has looked for its
    retained messages. HiveMQ does so after SUBACK, and would send one that is published meanwhile twice: as a
    retained and as an ordinary message. The retained message that is found, ``b"before"``, stays."""

    def subscribe(one: Raw, options: int = 1, **more: Any) -> None:
        open().publish(topic, b"before", 1, retain=True)
        one.subscribe([(topic, options)], **more)
        said = one.message()
        assert (said["payload"], said["retain"]) == (b"before", True)

    return subscribe
