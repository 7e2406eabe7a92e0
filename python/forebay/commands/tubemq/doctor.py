"""``forebay doctor`` with a TubeMQ URL: addresses, master, topic, and messages sent and read back."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from forebay.commands._shared import doctor
from forebay.errors import Timeout, TopicNotFound
from forebay.tubemq import blocking

if TYPE_CHECKING:
    from forebay.tubemq import PartitionState

JOIN_LIMIT = 10.0
"""Seconds within which a new group must have its partitions."""
_PORTS = {"tubemq": 8715, "tubemq+ssl": 8716}


def run(given: argparse.Namespace) -> int:
    """Exit status 0 if every step succeeds."""
    return doctor.run(given, "tubemq", _examine, takes_topic=True)


def _examine(examination: doctor.Examination) -> None:
    if not examination.reach(_PORTS[examination.scheme]):
        return
    secured = "mutual TLS, " if examination.scheme == "tubemq+ssl" else ""
    client = examination.connect(
        "master", blocking.connect, lambda _, __: f"{secured}registered at the active master"
    )
    if client is None:
        return
    with client:
        is_new = examination.topic is None
        name = examination.topic or doctor.new_topic("_")
        if examination.step("topic", lambda: _topic(client, name, is_new)):
            examination.step("round trip", lambda: _round_trip(client, name, examination.wanted))


def _topic(client: blocking.TubeMqClient, topic: str, is_new: bool) -> str:
    try:
        with client.producer(topic):
            count = client.partitions(topic)
    except TopicNotFound as error:
        if not is_new:
            raise
        raise TopicNotFound(f"{error}; this server does not create topics: name one with -t TOPIC") from None
    return f"{topic} has {count} partition{'' if count == 1 else 's'}"


def check_joined(states: Sequence[PartitionState], deadline: float) -> bool:
    """Whether a new group reads all of its partitions, so that it misses nothing from here on.

    Raises:
        Timeout: the deadline has passed.
    """
    if states and all(part["state"] == "reading" for part in states):
        return True
    if time.monotonic() >= deadline:
        said = ", ".join(f"{part['broker_id']}:{part['partition']} {part['state']}" for part in states)
        raise Timeout(
            f"a new group does not get its partitions from the brokers: {said or 'the master gave none'}"
        )
    return False


def _round_trip(client: blocking.TubeMqClient, topic: str, wanted: dict[str, Any]) -> str:
    mark = f"forebay-doctor-{time.time_ns():x}"
    options: dict[str, Any] = {**wanted["consumer"], "position": "max"}
    payloads = [f"{mark} {number}".encode() for number in range(doctor.MESSAGES)]
    with (
        client.consumer(topic, mark, **options) as consumer,
        client.producer(topic, **wanted["producer"]) as producer,
    ):
        deadline = time.monotonic() + JOIN_LIMIT
        while not check_joined(consumer.partitions(), deadline):
            time.sleep(0.01)

        def received() -> Iterator[bytes]:
            deadline = time.monotonic() + 10
            left = len(payloads)
            while left:
                message = consumer.receive(timeout=max(deadline - time.monotonic(), 0.0))
                consumer.ack(message)
                # Other clients may use the topic, too.
                if message.key == mark:
                    left -= 1
                    yield message.data

        # One key, hence one partition, which keeps the order.
        took = doctor.round_trip(payloads, lambda payload: producer.send(payload, mark), received)
    return f"{len(payloads)} messages sent and read back; send takes {took:.2f} ms (median)"
