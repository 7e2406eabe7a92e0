"""Clients of the official module, and of ours in its place."""

from __future__ import annotations

from typing import Any

import pytest

from support.pulsar.harness import PulsarService
from support.scripts import free_port


def test_a_closed_client(pulsar: Any, service: PulsarService, topic: str) -> None:
    client = pulsar.Client(service.url)
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    client.close()
    assert not producer.is_connected() and not consumer.is_connected()
    for verb in (client.close, lambda: client.create_producer(topic), lambda: client.subscribe(topic, "s")):
        with pytest.raises(pulsar.AlreadyClosed):
            verb()


def test_a_client_that_was_shut_down(pulsar: Any, service: PulsarService, topic: str) -> None:
    client = pulsar.Client(service.url)
    producer = client.create_producer(topic)
    client.shutdown()
    with pytest.raises(pulsar.AlreadyClosed):
        producer.send(b"x")


def test_a_client_connects_when_it_is_used(pulsar: Any) -> None:
    client = pulsar.Client(f"pulsar://127.0.0.1:{free_port()}", operation_timeout_seconds=1)
    with pytest.raises(pulsar.Timeout):
        client.create_producer("t")
    client.close()


def test_several_addresses(pulsar: Any, service: PulsarService, topic: str) -> None:
    address = service.url.partition("://")[2]
    client = pulsar.Client(f"pulsar://{address},{address}/", operation_timeout_seconds=60)
    client.create_producer(topic).send(b"x")
    client.close()


def test_the_service_is_told(pulsar: Any, service: PulsarService) -> None:
    client = pulsar.Client(service.url)
    info = client.get_service_info()
    assert (info.service_url, info.use_tls) == (service.url, False)
    client.close()


@pytest.mark.parametrize("url", ["foo://x:1", "x:1"])
def test_urls_that_are_none(pulsar: Any, url: str) -> None:
    with pytest.raises(ValueError, match="scheme"):
        pulsar.Client(url)


WRONG_OPTIONS: dict[str, Any] = {
    "service_url": 3,
    "authentication": "token",
    "operation_timeout_seconds": 1.5,
    "io_threads": "1",
    "message_listener_threads": None,
    "concurrent_lookup_requests": None,
    "log_conf_file_path": 3,
    "stats_interval_in_seconds": None,
    "use_tls": 1,
    "tls_trust_certs_file_path": 3,
    "tls_allow_insecure_connection": 1,
    "tls_validate_hostname": 0,
    "connection_timeout_ms": None,
    "listener_name": 3,
    "tls_private_key_file_path": 3,
    "tls_certificate_file_path": 3,
}


def test_options_of_a_client_have_types(pulsar: Any) -> None:
    for name, wrong in WRONG_OPTIONS.items():
        with pytest.raises(ValueError, match=f"Argument {name} is expected"):
            pulsar.Client(**{"service_url": "pulsar://localhost:6650", name: wrong})


def test_a_logger_is_one(pulsar: Any) -> None:
    with pytest.raises(ValueError, match="Logger is expected"):
        pulsar.Client("pulsar://localhost:6650", logger="log")
