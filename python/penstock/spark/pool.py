"""Connections that a worker process keeps between tasks. Spark reuses its Python workers, and opening a
connection and a producer for each task would cost more than a small task itself.

A pool belongs to one process and is created by its first task. After a fork the child starts with an empty
pool and leaves the parent's handles alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol

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


class _Connection:
    def __init__(self, client: blocking.Client) -> None:
        self.client = client
        self.producers: dict[str, blocking.Producer] = {}
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


@contextlib.contextmanager
def producer(config: SinkConfig, partition: int) -> Generator[blocking.Producer, None, None]:
    """A producer for the task of ``partition``. It stays in the pool unless the block fails or the producer
    has a name: the next task may run in another process, and the broker allows a name only once."""
    with _borrowed(config) as connection:
        name = config.producer.get("name")
        if name is None:
            yield _shared(connection, config)
        else:
            options: dict[str, Any] = {**config.producer, "name": f"{name}-{partition}"}
            with connection.client.producer(config.topic, **options) as own:
                yield own


def _shared(connection: _Connection, config: SinkConfig) -> blocking.Producer:
    topic = config.placeholder()
    key = f"{topic}\n{sorted(config.producer.items())!r}"
    with _current().lock:
        shared = connection.producers.get(key)
        if shared is None or shared.closed:
            shared = connection.client.producer(topic, **config.producer)
            connection.producers[key] = shared
        return shared


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
