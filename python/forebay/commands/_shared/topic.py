"""The actions of ``forebay topic``, and the store of an embedded broker as the place where they happen."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Generator
from typing import Any, Protocol

from forebay._core import protocols
from forebay.broker import Broker

from .display import figures, printable
from .failed import refusals
from .options import protocol_of_topic


class Place(Protocol):
    """A place in which topics are listed, created, deleted and inspected."""

    def ls(self, namespace: str) -> list[str]: ...
    def create(self, topic: str, partitions: int) -> None: ...
    def rm(self, topic: str) -> None: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def terminate(self, topic: str) -> None: ...
    def stats(self, topic: str) -> dict[str, Any]: ...


Opener = Callable[[argparse.Namespace], contextlib.AbstractContextManager[Place]]


def run(given: argparse.Namespace, broker: Opener) -> int:
    """Lists, creates, deletes or inspects.

    Args:
        given: the parsed arguments.
        broker: opens the place that the URL stands for; not called with ``--data``.
    """
    if given.data:
        place = _open_store(given)
    else:
        protocols.split_url(given.url)
        place = broker(given)
    with place as opened:
        return _act(given, opened)


def _act(given: argparse.Namespace, place: Place) -> int:
    if given.action == "ls":
        names = sorted(place.ls(given.namespace))
        print(json.dumps(names) if given.json else "\n".join(map(printable, names)))
    elif given.action == "create":
        place.create(given.topic, given.partitions)
        if given.json:
            print(json.dumps({"created": given.topic, "partitions": given.partitions}))
    elif given.action == "rm":
        place.rm(given.topic)
        if given.json:
            print(json.dumps({"deleted": given.topic}))
    elif given.action == "grow":
        place.grow(given.topic, given.partitions)
        if given.json:
            print(json.dumps({"grown": given.topic, "partitions": given.partitions}))
    elif given.action == "terminate":
        place.terminate(given.topic)
        if given.json:
            print(json.dumps({"terminated": given.topic}))
    else:
        stats = place.stats(given.topic)
        if given.json:
            print(json.dumps(stats, default=str))
        else:
            figures(stats)
    return 0


@contextlib.contextmanager
def _open_store(given: argparse.Namespace) -> Generator[Place, None, None]:
    name = given.namespace if given.action == "ls" else given.topic
    wanted: dict[str, Any] = {"data": given.data}
    if protocol := protocol_of_topic(name):
        # A broker loads the topics of a protocol only when it listens for it.
        wanted[f"{protocol}_port"] = 0
    with Broker(**wanted) as broker, refusals():
        yield _Store(broker)


class _Store:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ls(self, namespace: str) -> list[str]:
        prefix = namespace if protocol_of_topic(namespace) else f"persistent://{namespace}/"
        return [name for name in self._broker.topics() if name.startswith(prefix)]

    def create(self, topic: str, partitions: int) -> None:
        self._broker.create_topic(topic, partitions)

    def rm(self, topic: str) -> None:
        self._broker.delete_topic(topic)

    def grow(self, topic: str, partitions: int) -> None:
        self._broker.grow_topic(topic, partitions)

    def terminate(self, topic: str) -> None:
        self._broker.terminate_topic(topic)

    def stats(self, topic: str) -> dict[str, Any]:
        return self._broker.topic_stats(topic)
