"""Fixtures for pytest: brokers that tests need not share, and their URLs. pytest finds this module by itself
where the package is installed.

Fixtures named ``forebay_...`` are those of a broker that only the test has: it starts in about a
millisecond, and no other test sees its topics. Fixtures named ``forebay_session_...`` are those of one
broker for the whole run, or for each worker of pytest-xdist; tests share it by using topics of
:func:`forebay_namespace` or :func:`forebay_topic`.

pytest imports this module in every run, so it imports nothing that costs time before a fixture is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker import Broker

_PORTS = ("port", "mqtt_port", "mqtt_ws_port", "tubemq_port")


def _start(options: Mapping[str, Any]) -> Broker:
    try:
        from .broker import Broker
        from .errors import Error
    except ImportError as error:
        pytest.fail(
            f"the embedded broker of forebay is not installed as it should be: {error}", pytrace=False
        )
    values: dict[str, Any] = {**dict.fromkeys(_PORTS, 0), **options}
    try:
        return Broker(**values)
    except (Error, OSError) as error:
        pytest.fail(f"the embedded broker of forebay cannot start: {error}", pytrace=False)


def _url(broker: Broker, name: str) -> str:
    url = broker.urls.get(name)
    if url is None:
        pytest.fail(f"the broker has no URL for {name}: see the options that it was given", pytrace=False)
    return url


# ---------------------------------------------------------------------------- a broker for each
# test


@pytest.fixture
def forebay_broker_options() -> Mapping[str, Any]:
    """Options of ``forebay_broker``, as :class:`forebay.Broker` takes them. Override it in a module, a
    class or ``conftest.py``, or for one test with
    ``@pytest.mark.parametrize("forebay_broker_options", [{...}])``."""
    return {}


@pytest.fixture
def forebay_start_broker() -> Generator[Callable[..., Broker], None, None]:
    """A function that starts a broker with the given options, stopped at the end of the test: for a second
    broker, or for one that the test stops and starts again on the same data."""
    brokers: list[Broker] = []

    def start(**options: Any) -> Broker:
        broker = _start(options)
        brokers.append(broker)
        return broker

    yield start
    for broker in reversed(brokers):
        broker.stop()


@pytest.fixture
def forebay_broker(
    forebay_start_broker: Callable[..., Broker], forebay_broker_options: Mapping[str, Any]
) -> Broker:
    """A :class:`forebay.Broker` in memory that only this test has, with all protocols on free ports."""
    return forebay_start_broker(**forebay_broker_options)


@pytest.fixture
def forebay_url(forebay_broker: Broker) -> str:
    """URL for Pulsar clients, of a broker that only this test has."""
    return _url(forebay_broker, "pulsar")


@pytest.fixture
def forebay_mqtt_url(forebay_broker: Broker) -> str:
    """URL for MQTT clients, of a broker that only this test has."""
    return _url(forebay_broker, "mqtt")


@pytest.fixture
def forebay_mqtt_ws_url(forebay_broker: Broker) -> str:
    """URL for MQTT clients over WebSocket, of a broker that only this test has."""
    return _url(forebay_broker, "mqtt_ws")


@pytest.fixture
def forebay_tubemq_url(forebay_broker: Broker) -> str:
    """URL of TubeMQ's master, of a broker that only this test has."""
    return _url(forebay_broker, "tubemq")


@pytest.fixture
def forebay_make_token(forebay_broker_options: Mapping[str, Any]) -> Callable[..., str]:
    """A function that signs a token with the ``token_key`` of ``forebay_broker_options``: for a subject,
    with further claims as keywords, such as ``exp``."""
    from ._core import parse
    from .commands.pulsar import jwt

    key = forebay_broker_options.get("token_key")
    if key is None:
        pytest.fail("forebay_broker_options has no token_key to sign tokens with", pytrace=False)

    def make(subject: str = "test", **claims: Any) -> str:
        return jwt.sign(parse.key_bytes(key), {"sub": subject, **claims})

    return make


# ---------------------------------------------------------------------------- a broker for all
# tests


@pytest.fixture(scope="session")
def forebay_session_broker_options() -> Mapping[str, Any]:
    """Options of ``forebay_session_broker``. Override it in ``conftest.py``."""
    return {}


@pytest.fixture(scope="session")
def forebay_session_broker(
    forebay_session_broker_options: Mapping[str, Any],
) -> Generator[Broker, None, None]:
    """A :class:`forebay.Broker` in memory for the whole run, with all protocols on free ports."""
    with _start(forebay_session_broker_options) as broker:
        yield broker


@pytest.fixture(scope="session")
def forebay_session_url(forebay_session_broker: Broker) -> str:
    """URL for Pulsar clients, of the broker for the whole run."""
    return _url(forebay_session_broker, "pulsar")


@pytest.fixture(scope="session")
def forebay_session_mqtt_url(forebay_session_broker: Broker) -> str:
    """URL for MQTT clients, of the broker for the whole run."""
    return _url(forebay_session_broker, "mqtt")


@pytest.fixture(scope="session")
def forebay_session_mqtt_ws_url(forebay_session_broker: Broker) -> str:
    """URL for MQTT clients over WebSocket, of the broker for the whole run."""
    return _url(forebay_session_broker, "mqtt_ws")


@pytest.fixture(scope="session")
def forebay_session_tubemq_url(forebay_session_broker: Broker) -> str:
    """URL of TubeMQ's master, of the broker for the whole run."""
    return _url(forebay_session_broker, "tubemq")


@pytest.fixture
def forebay_topic(forebay_session_broker: Broker) -> Generator[str, None, None]:
    """A name that no other test has and that is a topic name of every protocol, for tests that share
    ``forebay_session_broker``. At the end of the test the topics of Pulsar and TubeMQ that begin with it are
    deleted."""
    name = f"t_{uuid.uuid4().hex[:16]}"
    yield name
    prefixes = tuple(f"{domain}public/default/{name}" for domain in _DOMAINS)
    _delete(forebay_session_broker, (*prefixes, f"tubemq:{name}"))


@pytest.fixture
def forebay_namespace(forebay_session_broker: Broker) -> Generator[str, None, None]:
    """A Pulsar namespace of the test's own, such as ``public/t_1c8a``, for tests that share
    ``forebay_session_broker``; also a prefix for the topics of MQTT. At the end of the test its Pulsar
    topics are deleted."""
    namespace = f"public/t_{uuid.uuid4().hex[:16]}"
    yield namespace
    _delete(forebay_session_broker, tuple(f"{domain}{namespace}/" for domain in _DOMAINS))


_DOMAINS = ("persistent://", "non-persistent://")


def _delete(broker: Broker, prefixes: tuple[str, ...]) -> None:
    from .errors import TopicNotFound

    for topic in broker.topics():
        if topic.startswith(prefixes):
            try:
                broker.delete_topic(topic)
            except TopicNotFound:
                # A non-persistent topic goes with its last client.
                continue
