"""Connections that a worker process keeps between tasks. Spark reuses its Python workers, and opening a
connection for each task would cost more than a small task itself.

A pool belongs to one process and is created by its first task. After a fork the child starts with an empty
pool and leaves the parent's handles alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import uuid
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ProducerBusy
from penstock.pulsar.positions import full_name

if TYPE_CHECKING:
    from penstock import blocking

    class Config(Protocol):
        """The parts of a connection."""

        @property
        def url(self) -> str: ...
        @property
        def protocol(self) -> str: ...
        @property
        def client(self) -> dict[str, Any]: ...
        @property
        def pool_key(self) -> str: ...

    from .config import SinkConfig

IDLE_SECONDS = 60.0
"""Idle time after which a connection is closed when the next task begins; Spark ends idle workers after the
same time."""
MOST_PRODUCERS = 1000
"""Most topics to which a task has producers at a time; the one that was not used for longest is closed."""


class _Connection:
    def __init__(self, client: blocking.Client) -> None:
        self.client = client
        self.users = 0
        self.broken = False
        self.used = time.monotonic()


class _Pool:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.connections: dict[str, _Connection] = {}


_pool: _Pool | None = None


def _current() -> _Pool:
    global _pool
    if _pool is None or _pool.pid != os.getpid():
        _pool = _Pool()
    return _pool


@contextlib.contextmanager
def _borrowed(config: Config) -> Generator[_Connection, None, None]:
    """A connection. It stays in the pool unless the block fails."""
    pool = _current()
    with pool.lock:
        _close_idle(pool)
        connection = _connection(pool, config)
        connection.users += 1
    try:
        yield connection
    except BaseException:
        connection.broken = True
        raise
    finally:
        with pool.lock:
            connection.users -= 1
            connection.used = time.monotonic()
            if connection.broken:
                if pool.connections.get(config.pool_key) is connection:
                    del pool.connections[config.pool_key]
                if not connection.users:
                    # Not close(): it waits for the broker, which may never answer.
                    connection.client.abandon()


@contextlib.contextmanager
def client(config: Config) -> Generator[Any, None, None]:
    """A client. It stays in the pool unless the block fails."""
    with _borrowed(config) as connection:
        yield connection.client


class Producers:
    """The producers of a task, one for each topic. They end with the task: a producer that stayed open would
    bring its topic back after it was deleted."""

    def __init__(self, client: Any, config: SinkConfig, name: str | None) -> None:
        self._client = client
        self._config = config
        self._name = name
        self._open: dict[str, Any] = {}
        self._partitions: dict[str, int] = {}
        self._dead: Any = None

    def of(self, topic: str) -> Any:
        """The producer of a topic. It may take the place of one that has not been used for long, so there has
        to be room (:meth:`has_room`), or nothing in flight."""
        # One topic may be spelled in two ways, and the second producer of a name would be refused.
        topic = full_name(topic) if self._config.protocol == "pulsar" else topic
        producer = self._open.pop(topic, None)
        if producer is None:
            if len(self._open) >= MOST_PRODUCERS:
                self._open.pop(next(iter(self._open))).close()
            producer = self._opened(topic)
        # The last one is the one that was used last.
        self._open[topic] = producer
        return producer

    def has_room(self) -> bool:
        """Whether another one may be opened without closing one."""
        return len(self._open) < MOST_PRODUCERS

    def dead(self) -> Any:
        """The producer for rows that could not be sent. It has neither a name nor numbers of rows."""
        if self._dead is None:
            others = ("name", "stop_on_refusal")
            options = {name: value for name, value in self._config.producer.items() if name not in others}
            if self._config.protocol == "pulsar":
                options["send_timeout"] = self._config.ack_timeout
            self._dead = self._client.producer(self._config.dead_letter_topic, **options)
        return self._dead

    def last_sequence_id(self, topic: str) -> int:
        """Sequence id of the last message that the broker has of the producer of a topic, in all attempts;
        -1 for none, and for a topic with partitions, each of which has its own."""
        producer = self.of(topic)
        return -1 if self._partitions.get(full_name(topic)) else producer.last_sequence_id

    def drops_repetitions(self, topic: str) -> bool:
        """Whether the broker knows the last number of the producer of a topic, which has sent something. It
        is closed and opened again for that."""
        self._open.pop(full_name(topic)).close()
        return self.of(topic).last_sequence_id >= 0

    def close(self) -> None:
        """Waits for what was sent, and closes the producers."""
        while self._open:
            self._open.popitem()[1].close()
        if self._dead is not None:
            self._dead.close()

    def _opened(self, topic: str) -> Any:
        config, options = self._config, dict(self._config.producer)
        if self._name is None:
            return self._client.producer(topic, **options)
        if config.delivery != "idempotent":
            return self._patiently(topic, options | {"name": self._name})
        # Each partition of the topic knows the numbers of its own rows only. With another number of
        # partitions a row may get to another one, whose numbers say nothing about it.
        options |= {"partitions_update_interval": 0, "lazy_start": False}
        while True:
            count = self._client.partitions(topic)
            name = f"{self._name}-of-{count}" if count else self._name
            producer = self._patiently(topic, options | {"name": name})
            if producer.started_partitions == max(count, 1):
                self._partitions[topic] = count
                return producer
            producer.close()

    def _patiently(self, topic: str, options: dict[str, Any]) -> Any:
        """Opens a producer with a name. An attempt of the task that was killed may still have it."""
        end = time.monotonic() + self._config.ack_timeout
        for pause in itertools.chain((0.05, 0.1, 0.2, 0.5), itertools.repeat(1.0)):
            try:
                return self._client.producer(topic, **options)
            except ProducerBusy:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
        raise AssertionError("the pauses do not end")


@contextlib.contextmanager
def producers(config: SinkConfig, name: str | None) -> Generator[Producers, None, None]:
    """The producers of a task. With a name the broker allows each of them only once.

    Args:
        config: of the write.
        name: of the producers, if they have one.
    """
    with _borrowed(config) as connection:
        opened = Producers(connection.client, config, name)
        yield opened
        opened.close()


def _connection(pool: _Pool, config: Config) -> _Connection:
    connection = pool.connections.get(config.pool_key)
    if connection is None or connection.client.closed:
        from penstock import blocking

        connection = _Connection(blocking.connect(config.url, **client_options(config)))
        pool.connections[config.pool_key] = connection
    return connection


def client_options(config: Config) -> dict[str, Any]:
    """The client options of one connection. An MQTT client id gets a random suffix, because a broker closes
    the older of two connections with the same id."""
    prefix = config.client.get("client_id")
    if prefix is None or config.protocol != "mqtt":
        return config.client
    return {**config.client, "client_id": f"{prefix}-{uuid.uuid4().hex[:12]}"}


def _close_idle(pool: _Pool) -> None:
    now = time.monotonic()
    for key, connection in list(pool.connections.items()):
        if not connection.users and now - connection.used > IDLE_SECONDS:
            del pool.connections[key]
            with contextlib.suppress(Exception):
                connection.client.close()


def close() -> None:
    """Closes all connections of this process, for tests and for the end of a long-running process."""
    pool = _current()
    with pool.lock:
        connections = list(pool.connections.values())
        pool.connections.clear()
    for connection in connections:
        connection.client.close()
