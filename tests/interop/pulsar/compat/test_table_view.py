"""Table views of the official module, and of ours in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.pulsar.harness import PulsarService, RealPulsar

Wait = Callable[[Callable[[], object]], None]


def fill(client: Any, topic: str, **values: bytes) -> None:
    producer = client.create_producer(topic)
    for key, value in values.items():
        producer.send(value, partition_key=key)
    producer.close()


def test_the_last_values_of_the_keys(client: Any, topic: str) -> None:
    fill(client, topic, a=b"1", b=b"2")
    fill(client, topic, a=b"3")
    view = client.create_table_view(topic)
    assert (view.get("a"), view.get("b"), view.get("c"), len(view)) == (b"3", b"2", None, 2)
    found: dict[str, bytes] = {}
    view.for_each(found.__setitem__)
    assert found == {"a": b"3", "b": b"2"}
    view.close()


def test_changes_are_told(client: Any, topic: str, until: Wait) -> None:
    fill(client, topic, a=b"1")
    view = client.create_table_view(topic, "mine")
    told: list[tuple[str, bytes]] = []
    view.for_each_and_listen(lambda key, value: told.append((key, value)))
    assert told == [("a", b"1")]
    fill(client, topic, a=b"2", b=b"3")
    until(lambda: len(told) == 3)
    assert told[1:] == [("a", b"2"), ("b", b"3")]
    assert (view.get("a"), view.get("b")) == (b"2", b"3")
    assert str(view) == f"TableView(topic={topic}, subscription=mine)"
    view.close()


def test_an_empty_value_deletes_its_key(client: Any, topic: str, until: Wait) -> None:
    fill(client, topic, a=b"1", b=b"2")
    view = client.create_table_view(topic)
    fill(client, topic, a=b"")
    until(lambda: len(view) == 1)
    assert view.get("a") is None


@pytest.mark.real_pulsar
def test_partitions(pulsar: Any, real_pulsar: RealPulsar) -> None:
    topic = real_pulsar.topic(partitions=3)
    client = pulsar.Client(real_pulsar.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    fill(client, topic, **{f"k{number}": b"%d" % number for number in range(20)})
    view = client.create_table_view(topic)
    assert len(view) == 20
    assert view.get("k7") == b"7"
    view.close()
    client.close()


def test_the_client_closes_its_views(pulsar: Any, service: PulsarService, topic: str) -> None:
    client = pulsar.Client(service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.create_table_view(topic)
    client.close()


@pytest.mark.parametrize("given", [{"topic": 3}, {"subscription_name": 3}, {"schema": 3}], ids=str)
def test_arguments_of_another_type_are_refused(client: Any, topic: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        client.create_table_view(**{"topic": topic, **given})
