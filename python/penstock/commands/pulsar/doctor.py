"""``penstock doctor`` with a Pulsar URL: addresses, handshake, topic, and messages sent and read back."""

from __future__ import annotations

import argparse

from penstock.commands._shared import doctor
from penstock.pulsar import blocking

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}


def run(given: argparse.Namespace) -> int:
    """Exit status 0 if every step succeeds."""
    return doctor.run(given, "pulsar", _examine)


def _examine(examination: doctor.Examination) -> None:
    scheme = examination.scheme
    if scheme != "embedded" and not examination.reach(_PORTS[scheme]):
        return
    client = examination.connect("connect", blocking.connect, lambda client, _: _handshake(client))
    if client is None:
        return
    with client:
        topic = doctor.new_topic()
        if examination.step("topic", lambda: _create(client, topic)):
            examination.step("round trip", lambda: _round_trip(client, topic))


def _handshake(client: blocking.PulsarClient) -> str:
    secured = "TLS, " if client.url.startswith(("pulsar+ssl:", "https:")) else ""
    return f"{secured}handshake and authentication"


def _create(client: blocking.PulsarClient, topic: str) -> str:
    with client.producer(topic) as producer:
        return f"{producer.topic} has been created"


def _round_trip(client: blocking.PulsarClient, topic: str) -> str:
    payloads = [b"%d" % number for number in range(doctor.MESSAGES)]
    with client.reader(topic, position="earliest") as reader, client.producer(topic) as producer:
        took = doctor.round_trip(
            payloads, producer.send, lambda: (reader.receive(timeout=10).data for _ in payloads)
        )
    return f"{len(payloads)} messages sent and read back; send takes {took:.2f} ms (median)"
