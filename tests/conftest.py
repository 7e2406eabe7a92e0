"""Brokers for all suites. Each starts when the first test asks for it and ends with the session.

``service`` is the parametrised one: a test that takes it runs on the embedded broker and on a real Pulsar.
Environment: ``TEST_PULSAR_URL`` and ``TEST_PULSAR_ADMIN`` name a Pulsar that runs already (for development).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from harness import EmbeddedBroker, RealPulsar, Service
from mqtt_harness import EmbeddedMqtt, HiveMq, Mosquitto
from tubemq_harness import EmbeddedTubeMQ, Java, RealTubeMQ


def start(make: Callable[[], Any]) -> Any:
    """A broker, or a failure in clear words: a suite that skips its broker proves nothing."""
    try:
        return make()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        pytest.fail(f"a broker that these tests need is not there: {error}", pytrace=False)


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedBroker]:
    """The embedded broker, in memory."""
    broker = start(lambda: EmbeddedBroker(durability="memory"))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def real_pulsar() -> Iterator[RealPulsar]:
    """A real Pulsar, plain."""
    url, admin = os.environ.get("TEST_PULSAR_URL"), os.environ.get("TEST_PULSAR_ADMIN")
    broker = start(lambda: RealPulsar(url=url, admin=admin))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def real_pulsar_secure() -> Iterator[RealPulsar]:
    """A real Pulsar with TLS, tokens and authorization."""
    broker = start(lambda: RealPulsar(secure=True))
    yield broker
    broker.stop()


@pytest.fixture
def own_pulsar() -> Iterator[RealPulsar]:
    """A real Pulsar that the test may stop and start."""
    broker = start(RealPulsar)
    yield broker
    with contextlib.suppress(subprocess.SubprocessError):
        broker.stop()


@pytest.fixture(scope="session")
def embedded_mqtt() -> Iterator[EmbeddedMqtt]:
    """The embedded broker with MQTT, in memory."""
    broker = start(EmbeddedMqtt)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Mosquitto]:
    """A Mosquitto without users."""
    broker = start(Mosquitto)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def hivemq() -> Iterator[HiveMq]:
    """A HiveMQ without users."""
    # Who does not begin with CONNECT is not waited for as long as by default, which is 10 s.
    idle = "<restrictions><no-connect-idle-timeout>1000</no-connect-idle-timeout></restrictions>"
    broker = start(lambda: HiveMq(extra=idle))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def embedded_tubemq() -> Iterator[EmbeddedTubeMQ]:
    """The embedded broker with TubeMQ, in memory. Topics are made before they are used."""
    broker = start(lambda: EmbeddedTubeMQ(auto_create=False))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def real_tubemq() -> Iterator[RealTubeMQ]:
    """A real TubeMQ: one master, one broker, no credentials."""
    broker = start(RealTubeMQ)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def real_tubemq_secure() -> Iterator[RealTubeMQ]:
    """A real TubeMQ with mutual TLS that asks everybody for credentials."""
    broker = start(lambda: RealTubeMQ(tls=True, auth="produce consume visit", pool={(1, 1): 8, (3, 1): 4}))
    yield broker
    broker.stop()


@pytest.fixture
def own_tubemq() -> Iterator[RealTubeMQ]:
    """A real TubeMQ that the test may stop and start; it gives up on silent members soon."""
    broker = start(
        lambda: RealTubeMQ(pool={(1, 1): 2, (3, 1): 2}, consumer_timeout=6.0, producer_timeout=6.0)
    )
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def java() -> Iterator[Java]:
    """The official Java client of TubeMQ."""
    client = start(Java)
    yield client
    client.close()


@pytest.fixture(
    params=[pytest.param("embedded"), pytest.param("real_pulsar", marks=pytest.mark.real_pulsar, id="pulsar")]
)
def service(request: pytest.FixtureRequest) -> Service:
    """The embedded broker, and then the real Pulsar."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def topic(service: Service) -> str:
    """A fresh topic of ``service``."""
    return service.topic()


@pytest_asyncio.fixture
async def client(service: Service) -> AsyncIterator[Any]:
    """A client of ``service``."""
    import penstock

    async with penstock.connect(service.url, operation_timeout=15) as client:
        yield client
