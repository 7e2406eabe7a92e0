"""Brokers for all suites. Each starts when the first test asks for it and ends with the session.

``service`` is parametrised: a test that takes it runs on the embedded broker and on a real Pulsar.
The environment variables ``TEST_PULSAR_URL`` and ``TEST_PULSAR_ADMIN`` name a Pulsar that already runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from support import jvm
from support.fixtures import running, start
from support.mqtt.harness import EmbeddedMqtt, HiveMq, Mosquitto
from support.pulsar.harness import EmbeddedPulsar, PulsarService, RealPulsar
from support.pulsar.java import PulsarJava
from support.tubemq.harness import EmbeddedTubeMq, RealTubeMq
from support.tubemq.java import Java
from support.waiting import PATIENCE


@pytest.fixture(scope="session", autouse=True)
def short_lived_jvms() -> Iterator[None]:
    """The JVMs that the tests start begin quickly."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in jvm.environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_closes() -> Iterator[None]:
    """Callbacks for connection events have more time for the last events: the machine may be busy."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("forebay._aio.event_stream", "forebay._sync.event_stream"):
            patch.setattr(f"{module}.LAST", 20.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def quiet_brokers() -> Iterator[None]:
    """Records of brokers in this process are not written to stderr, which some tests look at."""
    handler = logging.NullHandler()
    logging.getLogger("forebay.broker").addHandler(handler)
    yield
    logging.getLogger("forebay.broker").removeHandler(handler)


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """``forebay broker``, run in this process, gives the loggers a handler and a level."""
    top, broker = logging.getLogger("forebay"), logging.getLogger("forebay.broker")
    handlers, level = list(top.handlers), broker.level
    yield
    top.handlers[:] = handlers
    broker.setLevel(level)


# ------------------------------------------------------------------------------------------- Pulsar


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedPulsar]:
    """The embedded broker, in memory, with HTTP."""
    yield from running(lambda: EmbeddedPulsar(durability="memory", http_port=0))


@pytest.fixture(scope="session")
def real_pulsar() -> Iterator[RealPulsar]:
    """A real Pulsar without TLS and users."""
    url, admin = os.environ.get("TEST_PULSAR_URL"), os.environ.get("TEST_PULSAR_ADMIN")
    yield from running(lambda: RealPulsar(url=url, admin=admin))


@pytest.fixture(scope="session")
def real_pulsar_secure() -> Iterator[RealPulsar]:
    """A real Pulsar with TLS, tokens and authorization."""
    yield from running(lambda: RealPulsar(secure=True))


@pytest.fixture(scope="session")
def pulsar_java() -> Iterator[PulsarJava]:
    """The official Java client of Pulsar."""
    client = start(PulsarJava)
    yield client
    client.close()


@pytest.fixture
def own_pulsar() -> Iterator[RealPulsar]:
    """A real Pulsar that the test may stop and start."""
    broker = start(RealPulsar)
    yield broker
    with contextlib.suppress(subprocess.SubprocessError):
        broker.stop()


@pytest.fixture(
    params=[pytest.param("embedded"), pytest.param("real_pulsar", marks=pytest.mark.real_pulsar, id="pulsar")]
)
def service(request: pytest.FixtureRequest) -> PulsarService:
    """The embedded broker, and then the real Pulsar."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def topic(service: PulsarService) -> str:
    """A fresh topic of ``service``."""
    return service.topic()


@pytest_asyncio.fixture
async def client(service: PulsarService) -> AsyncIterator[Any]:
    """A client of ``service``."""
    import forebay

    async with forebay.connect(service.url, connect_timeout=PATIENCE, operation_timeout=PATIENCE) as client:
        yield client


# ------------------------------------------------------------------------------------------- MQTT


@pytest.fixture(scope="session")
def embedded_mqtt() -> Iterator[EmbeddedMqtt]:
    """The embedded broker with MQTT, in memory. It drops nothing for a subscriber that a loaded machine makes
    slow."""
    yield from running(lambda: EmbeddedMqtt(mqtt_slow_subscriber="wait"))


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Mosquitto]:
    """A Mosquitto without users."""
    yield from running(Mosquitto)


@pytest.fixture(scope="session")
def hivemq() -> Iterator[HiveMq]:
    """A HiveMQ without users."""
    yield from running(HiveMq)


# ------------------------------------------------------------------------------------------- TubeMQ


@pytest.fixture(scope="session")
def embedded_tubemq() -> Iterator[EmbeddedTubeMq]:
    """The embedded broker with TubeMQ, in memory. Topics must be created before they are used."""
    yield from running(lambda: EmbeddedTubeMq(auto_create=False))


@pytest.fixture(scope="session")
def real_tubemq() -> Iterator[RealTubeMq]:
    """A real TubeMQ: one master, one broker, no credentials."""
    yield from running(RealTubeMq)


@pytest.fixture(scope="session")
def real_tubemq_secure() -> Iterator[RealTubeMq]:
    """A real TubeMQ with mutual TLS that requires credentials for everything."""
    yield from running(
        lambda: RealTubeMq(tls=True, auth="produce consume visit", pool={(1, 1): 8, (3, 1): 4})
    )


@pytest.fixture
def own_tubemq() -> Iterator[RealTubeMq]:
    """A real TubeMQ that the test may stop and start. It drops silent members early."""
    pool = {(1, 1): 2, (3, 1): 2}
    yield from running(lambda: RealTubeMq(pool=pool, consumer_timeout=6.0, producer_timeout=6.0))


@pytest.fixture(scope="session")
def java() -> Iterator[Java]:
    """The official Java client of TubeMQ."""
    client = start(Java)
    yield client
    client.close()
