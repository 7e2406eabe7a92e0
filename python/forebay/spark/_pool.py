"""Connections that a worker process keeps between tasks. Spark reuses its Python workers, and opening a
connection for each task would cost more than a small task itself.

A pool belongs to one process and is created by its first task. After a fork the child starts with an empty
pool and leaves the parent's handles alone.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
import uuid
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol

from forebay.errors import ProducerBusy, TopicNotFound
from forebay.pulsar._positions import full_name

if TYPE_CHECKING:
    from forebay import blocking

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

    from ._config import WriteConfig

IDLE_SECONDS = 60.0
"""Idle time after which a connection is closed when the next task begins; Spark ends idle workers after the
same time."""
MOST_PRODUCERS = 1000
"""Most topics to which a task has producers at a time; the one that was not used for longest is closed."""

log = logging.getLogger("forebay.spark")


class _Connection:
    def __init__(self, client: blocking.Client) -> None:
        self.client = client
        self.users = 0
        self.broken = False
        self.used = time.monotonic()


class _Pool:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: dict[str, _Connection] = {}


_pools: dict[int, _Pool] = {}
"""By the number of the process."""


def _current() -> _Pool:
    # Atomic, so that two threads do not make one each.
    return _pools.setdefault(os.getpid(), _Pool())


@contextlib.contextmanager
def _borrowed(config: Config) -> Generator[_Connection, None, None]:
    """A connection. It stays in the pool unless the block fails."""
    pool = _current()
    with pool.lock:
        idle = _taken_idle(pool)
        connection = _known(pool, config)
    _close(idle)
    if connection is None:
        connection = _added(pool, config)
    try:
        yield connection
    except BaseException:
        connection.broken = True
        raise
    finally:
        with pool.lock:
            connection.users -= 1
            connection.used = time.monotonic()
            is_over = connection.broken and not connection.users
            if connection.broken and pool.connections.get(config.pool_key) is connection:
                del pool.connections[config.pool_key]
        if is_over:
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

    def __init__(self, client: Any, config: WriteConfig, name: str | None, is_again: bool) -> None:
        self._client = client
        self._config = config
        self._name = name
        self._is_again = is_again
        self._open: dict[str, Any] = {}
        self._dead: Any = None

    def of(self, topic: str) -> Any:
        """The producer of a topic. It may take the place of one that has not been used for long, so there has
        to be room (:meth:`has_room`), or nothing in flight."""
        topic = self._key(topic)
        producer = self._open.pop(topic, None)
        if producer is None:
            if len(self._open) >= MOST_PRODUCERS:
                self._open.pop(next(iter(self._open))).close()
            producer = self._opened(topic)
        # The last one is the one that was used last.
        self._open[topic] = producer
        return producer

    def has_room(self, topic: str) -> bool:
        """Whether that of a topic is open, or may be opened without closing one."""
        return self._key(topic) in self._open or len(self._open) < MOST_PRODUCERS

    def _key(self, topic: str) -> str:
        # One topic may be spelled in two ways, and the second producer of a name would be refused.
        return full_name(topic) if self._config.protocol == "pulsar" else topic

    def dead(self) -> Any:
        """The producer for rows that could not be sent. It has neither a name nor numbers of rows."""
        if self._dead is None:
            others = ("name", "stop_on_refusal")
            options = {name: value for name, value in self._config.producer.items() if name not in others}
            if self._config.protocol == "pulsar":
                options["send_timeout"] = self._config.ack_timeout
            self._dead = self._client.producer(self._config.dead_letter_topic, **options)
        return self._dead

    def drops_repetitions(self, topic: str) -> bool:
        """Whether the broker knows the last number of the producer of a topic, which has sent something. It
        is closed and opened again for that."""
        self._open.pop(self._key(topic)).close()
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
            count = self._partitions(topic)
            name = f"{self._name}-of-{count}" if count else self._name
            producer = self._patiently(topic, options | {"name": name})
            # Not more than one by then, and not created with some by the first use.
            if producer.started_partitions == max(count, 1) and self._partitions(topic) == count:
                return producer
            producer.close()

    def _partitions(self, topic: str) -> int:
        """Number of partitions; 0 also for a topic that the first use is to create."""
        try:
            return self._client.partitions(topic)
        except TopicNotFound:
            return 0

    def _patiently(self, topic: str, options: dict[str, Any]) -> Any:
        """Opens a producer with a name. An attempt of the task that was killed may still have it, or one that
        is running: a speculative copy waits for its end, whenever that is, since each attempt that fails
        brings the job closer to its end."""
        limit = self._config.ack_timeout
        end = time.monotonic() + limit
        for pause in itertools.chain((0.05, 0.1, 0.2, 0.5), itertools.repeat(1.0)):
            try:
                return self._client.producer(topic, **options)
            except ProducerBusy:
                if time.monotonic() + pause > end:
                    if not self._is_again:
                        raise
                    log.warning("%s: waiting for the producer %r of another attempt", topic, options["name"])
                    end += limit
            time.sleep(pause)
        raise AssertionError("the pauses do not end")


@contextlib.contextmanager
def producers(
    config: WriteConfig, name: str | None, *, is_again: bool = False
) -> Generator[Producers, None, None]:
    """The producers of a task. With a name the broker allows each of them only once.

    Args:
        config: of the write.
        name: of the producers, if they have one.
        is_again: whether another attempt of the task may have them.
    """
    with _borrowed(config) as connection:
        opened = Producers(connection.client, config, name, is_again)
        yield opened
        opened.close()


def _known(pool: _Pool, config: Config) -> _Connection | None:
    """The connection of the pool, with one more user."""
    connection = pool.connections.get(config.pool_key)
    if connection is None or connection.client.closed:
        return None
    connection.users += 1
    return connection


def _added(pool: _Pool, config: Config) -> _Connection:
    """A new connection, or that of another thread which was faster."""
    from forebay import blocking

    # Others need the pool meanwhile.
    client = blocking.connect(config.url, **client_options(config))
    with pool.lock:
        connection = _known(pool, config)
        if connection is None:
            connection = pool.connections[config.pool_key] = _Connection(client)
            connection.users = 1
    if connection.client is not client:
        client.close()
    return connection


def client_options(config: Config) -> dict[str, Any]:
    """The client options of one connection. An MQTT client id gets a random suffix, because a broker closes
    the older of two connections with the same id."""
    prefix = config.client.get("client_id")
    if prefix is None or config.protocol != "mqtt":
        return config.client
    return {**config.client, "client_id": f"{prefix}-{uuid.uuid4().hex[:12]}"}


def _taken_idle(pool: _Pool) -> list[_Connection]:
    """Takes those out of the pool that have not been used for long."""
    now = time.monotonic()
    connections = pool.connections
    idle = [key for key, each in connections.items() if not each.users and now - each.used > IDLE_SECONDS]
    return [connections.pop(key) for key in idle]


def _close(connections: list[_Connection]) -> None:
    for connection in connections:
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
