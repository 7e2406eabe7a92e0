"""TLS and tokens with the official module, and with ours in its place, on the real Pulsar."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from support.pulsar.harness import RealPulsar

pytestmark = pytest.mark.real_pulsar


def connect(pulsar: Any, broker: RealPulsar, **options: Any) -> Any:
    given = {
        "authentication": pulsar.AuthenticationToken(broker.token("admin")),
        "tls_trust_certs_file_path": str(broker.ca),
        "operation_timeout_seconds": 60,
        "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    }
    return pulsar.Client(broker.url, **{**given, **options})


@pytest.mark.parametrize("form", ["text", "function", "named"])
@pytest.mark.parametrize("validate", [False, True])
def test_there_and_back(pulsar: Any, real_pulsar_secure: RealPulsar, form: str, validate: bool) -> None:
    token = real_pulsar_secure.token("admin")
    authentication = {
        "text": lambda: pulsar.AuthenticationToken(token),
        "function": lambda: pulsar.AuthenticationToken(lambda: token),
        "named": lambda: pulsar.Authentication("token", f"token:{token}"),
    }[form]()
    client = connect(
        pulsar, real_pulsar_secure, authentication=authentication, tls_validate_hostname=validate
    )
    topic = real_pulsar_secure.topic()
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    assert consumer.receive(60_000).data() == b"x"
    assert client.get_service_info().use_tls
    client.close()


def test_no_credentials(pulsar: Any, real_pulsar_secure: RealPulsar) -> None:
    client = connect(pulsar, real_pulsar_secure, authentication=None, operation_timeout_seconds=2)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(real_pulsar_secure.topic())
    client.close()


def test_a_wrong_token(pulsar: Any, real_pulsar_secure: RealPulsar) -> None:
    wrong = pulsar.AuthenticationToken("not.a.token")
    client = connect(pulsar, real_pulsar_secure, authentication=wrong, operation_timeout_seconds=2)
    # The official module tries until its timeout, ours says AuthenticationError at once.
    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        client.create_producer(real_pulsar_secure.topic())
    client.close()


def test_a_role_without_rights(pulsar: Any, real_pulsar_secure: RealPulsar) -> None:
    token = real_pulsar_secure.token("app")
    client = connect(pulsar, real_pulsar_secure, authentication=pulsar.AuthenticationToken(token))
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer(real_pulsar_secure.topic())
    client.close()


async def test_asyncio(pulsar: Any, real_pulsar_secure: RealPulsar) -> None:
    client = importlib.import_module(f"{pulsar.__name__}.asyncio").Client(
        real_pulsar_secure.url,
        authentication=pulsar.AuthenticationToken(real_pulsar_secure.token("admin")),
        tls_trust_certs_file_path=str(real_pulsar_secure.ca),
    )
    topic = real_pulsar_secure.topic()
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    await producer.send(b"x")
    assert (await consumer.receive()).data() == b"x"
    await client.close()
