"""``penstock doctor`` with a TubeMQ URL: addresses, master, topic, and messages there and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock import blocking
from penstock.commands.doctor import addresses, reach
from penstock.errors import Timeout, TopicNotFound

if TYPE_CHECKING:
    from penstock.tubemq import PartitionState
    from penstock.tubemq.blocking import TubeConsumer

JOIN_LIMIT = 10.0
"""Seconds for a new group to have its partitions."""
_PORTS = {"tubemq": 8715, "tubemq+ssl": 8716}
_MESSAGES = 10
Step = Callable[[str, Callable[[], str]], bool]


def examine(url: str, base: str, topic: str | None, wanted: dict[str, Any], step: Step) -> None:
    """One step after the other, up to the first that fails.

    Args:
        url: as given, with its query.
        base: without.
        topic: to be used; ``None``: one that comes into being.
        wanted: the options as given, by scope.
        step: does one and notes how it went.
    """
    for host, port in addresses(base, _PORTS[base.partition(":")[0]]):
        if not step("address", lambda host=host, port=port: reach(host, port)):
            return
    client: blocking.Client | None = None

    def register() -> str:
        nonlocal client
        limits: dict[str, Any] = {"connect_timeout": 5, "operation_timeout": 10, **wanted["client"]}
        client = blocking.connect(url, **limits)
        secured = "mutual TLS, " if base.startswith("tubemq+ssl:") else ""
        return f"{secured}registered at the active master"

    if not step("master", register) or client is None:
        return
    with client:
        connected = client
        name = topic or f"penstock_doctor_{time.time_ns():x}"
        if step("topic", lambda: _topic(connected, name, topic is None)):
            step("round trip", lambda: _round_trip(connected, name, wanted))


def _topic(client: blocking.Client, topic: str, is_new: bool) -> str:
    try:
        with client.producer(topic):
            count = client.partitions(topic)
    except TopicNotFound as error:
        if not is_new:
            raise
        raise TopicNotFound(f"{error}; topics do not come into being here: name one with -t TOPIC") from None
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
        raise Timeout(f"the brokers do not give a new group its partitions: {said or 'the master gave none'}")
    return False


def _round_trip(client: blocking.Client, topic: str, wanted: dict[str, Any]) -> str:
    mark = f"penstock-doctor-{time.time_ns():x}"
    options: dict[str, Any] = {**wanted["consumer"], "position": "max"}
    with (
        client.consumer(topic, mark, **options) as opened,
        client.producer(topic, **wanted["producer"]) as producer,
    ):
        consumer = cast("TubeConsumer", opened)
        deadline = time.monotonic() + JOIN_LIMIT
        while not check_joined(consumer.partitions(), deadline):
            time.sleep(0.01)
        sent = [f"{mark} {number}".encode() for number in range(_MESSAGES)]
        times: list[float] = []
        for payload in sent:
            started = time.perf_counter()
            # One key, one partition: the order is kept.
            producer.send(payload, mark)
            times.append(time.perf_counter() - started)
        received: list[bytes] = []
        deadline = time.monotonic() + 10
        while len(received) < _MESSAGES:
            message = consumer.receive(timeout=max(deadline - time.monotonic(), 0.0))
            consumer.ack(message)
            # Others may use the topic, too.
            if message.key == mark:
                received.append(message.data)
    if received != sent:
        raise Timeout("messages came back in another order")
    times.sort()
    return (
        f"{_MESSAGES} messages sent and read back; send takes {times[_MESSAGES // 2] * 1000:.2f} ms (median)"
    )
