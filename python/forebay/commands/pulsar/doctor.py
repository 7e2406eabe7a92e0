"""``forebay doctor`` with a Pulsar URL: addresses, handshake, topic, and messages sent and read back."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator

from forebay.commands._shared import doctor
from forebay.commands._shared.options import is_web
from forebay.commands._shared.web import Web
from forebay.errors import Error
from forebay.pulsar import blocking

from .administration import Administration

PASSING = "non-persistent://public/default/forebay-doctor"
"""The topic that is used where none can be deleted. Brokers store nothing of it."""
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
        delete = _deletion(examination, client)
        topic = doctor.new_topic() if delete else PASSING
        if examination.step("topic", lambda: _create(client, topic)):
            examination.step("round trip", lambda: _round_trip(client, topic))
            examination.step("clean up", lambda: _clean_up(topic, delete))


def _deletion(examination: doctor.Examination, client: blocking.PulsarClient) -> Callable[[str], None] | None:
    """A function that deletes a topic; ``None`` if there is no way to do it."""
    if client.broker is not None:
        return client.broker.delete_topic
    web = next((url for url in (examination.url, os.environ.get("FOREBAY_ADMIN_URL")) if is_web(url)), None)
    if web is None:
        return None
    return Administration(Web(web, examination.wanted["client"])).rm


def _clean_up(topic: str, delete: Callable[[str], None] | None) -> str:
    if delete is None:
        return (
            f"nothing is stored. {topic} could not be removed, and is listed until the broker drops unused"
            " topics or starts again: Pulsar's protocol cannot delete topics. With an http:// URL, or one in"
            " FOREBAY_ADMIN_URL, storing is tested as well, by a topic that is deleted"
        )
    try:
        delete(topic)
    except Error as error:
        # A client that may publish and read need not be allowed to delete.
        return f"{topic} could not be removed: {error.code}: {error}"
    return f"{topic} has been deleted"


def _handshake(client: blocking.PulsarClient) -> str:
    secured = "TLS, " if client.url.startswith(("pulsar+ssl:", "https:")) else ""
    return f"{secured}handshake and authentication"


def _create(client: blocking.PulsarClient, topic: str) -> str:
    with client.producer(topic) as producer:
        return f"{producer.topic} has been created"


def _round_trip(client: blocking.PulsarClient, topic: str) -> str:
    mark = f"{time.time_ns():x}"
    payloads = [f"{mark} {number}".encode() for number in range(doctor.MESSAGES)]
    with client.reader(topic, position="latest") as reader, client.producer(topic) as producer:

        def received() -> Iterator[bytes]:
            left = len(payloads)
            while left:
                data = reader.receive(timeout=10).data
                # Another doctor may use the topic, too.
                if data.startswith(mark.encode()):
                    left -= 1
                    yield data

        took = doctor.round_trip(payloads, producer.send, received)
    return f"{len(payloads)} messages sent and read back; send takes {took:.2f} ms (median)"
