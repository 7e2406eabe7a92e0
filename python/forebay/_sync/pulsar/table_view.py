# Generated from forebay/pulsar/_table_view.py by tools/generate_blocking.py; do not edit.
"""Table views, blocking: :class:`PulsarTableView`."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from forebay._core.native import PulsarMessage
from forebay._sync.callbacks import Changes
from forebay._sync.handle import ChildHandle
from forebay.errors import Closed, InvalidArgument, Timeout

if TYPE_CHECKING:
    from forebay._engine import MessageId
    from forebay._sync.pulsar.client import PulsarClient, PulsarConsumer

V = TypeVar("V")
D = TypeVar("D")

log = logging.getLogger("forebay.table_view")
PATIENCE = 30.0
"""Seconds for which a view that catches up waits for the next message."""
LOOK = 1.0
"""Seconds after which a view that catches up looks whether its reader lives."""


class PulsarTableView(ChildHandle, Generic[V]):
    """The last value of each key of a topic, kept up to date. Made by :meth:`PulsarClient.table_view`.

    All values are in memory. Verbs other than :meth:`close` and :meth:`refresh` return at once. If the view
    cannot go on, because its reader ended or ``value`` raised, they raise that error instead of showing what
    was last read. While the connection is lost the view shows what it has; :meth:`refresh` waits until it is
    up to date.
    """

    def __init__(
        self,
        reader: PulsarConsumer,
        client: PulsarClient,
        value: Callable[[PulsarMessage], V],
    ) -> None:
        super().__init__(reader._native, client)
        self._reader = reader
        self._value = value
        self._entries: dict[str, V] = {}
        # The last message of each partition.
        self._last: dict[str, PulsarMessage] = {}
        self._read = self._callbacks_failed = 0
        self._error: Exception | None = None
        self._callbacks: list[Callable[[str, V | None], object]] = []
        # Held while a message is applied, so that a callback misses none and gets none twice.
        self._applying = threading.RLock()
        self._changes = Changes()
        self._pump = reader.listen(self._apply, ack="manual")

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return self._native.topic

    def _apply(self, message: PulsarMessage) -> None:
        if self._error:
            return
        key = message.key
        with self._applying:
            self._last[message.topic] = message
            self._read += 1
            if key is not None:
                value: V | None = None
                if message.data:
                    try:
                        value = self._value(message)
                    except Exception as error:
                        self._error = error
                    else:
                        self._entries[key] = value
                else:
                    self._entries.pop(key, None)
                if not self._error:
                    for callback in list(self._callbacks):
                        self._call(callback, key, value)
        self._changes.tell()

    def _call(self, callback: Callable[[str, V | None], object], key: str, value: V | None) -> None:
        try:
            callback(key, value)
        except Exception:
            self._callbacks_failed += 1
            log.exception("the callback of %r failed for the key %r", self, key)

    def _alive(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is closed")
        if error := self._error or self._pump.error:
            raise error

    def refresh(self) -> None:
        """Waits until the view has everything that the topic has now.

        Raises:
            Timeout: nothing was read for 30 seconds, and messages are missing.
            Closed: the view is closed.
            Error: the error that ended the reader.
        """
        self._alive()
        last = {id.topic: id for id in self._reader.last_message_ids() if id.entry >= 0}
        read, until = self._read, time.monotonic() + PATIENCE
        while not self._changes.wait_for(lambda: self._has(last), LOOK):
            self._alive()
            if self._read != read:
                read, until = self._read, time.monotonic() + PATIENCE
            elif time.monotonic() >= until:
                missing = ", ".join(str(id) for id in last.values() if not self._has({id.topic: id}))
                raise Timeout(
                    f"{self!r} has read nothing for {PATIENCE:g} s and misses the messages up to {missing}",
                    topic=self.topic,
                )
        self._alive()

    def _has(self, last: Mapping[str, MessageId]) -> bool:
        """Whether the messages ``last`` of the partitions have been applied."""
        if self._error or self._pump.error or not self._open:
            return True
        seen = self._last
        return all(topic in seen and seen[topic].id >= id for topic, id in last.items())

    @overload
    def get(self, key: str) -> V | None: ...
    @overload
    def get(self, key: str, default: D) -> V | D: ...
    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or ``default`` without one.

        Raises:
            Closed: the view is closed.
            Error: the error that ended the view. The other verbs raise the same.
        """
        self._alive()
        return self._entries.get(key, default)

    def __getitem__(self, key: str) -> V:
        self._alive()
        return self._entries[key]

    def __contains__(self, key: object) -> bool:
        self._alive()
        return key in self._entries

    def __len__(self) -> int:
        self._alive()
        return len(self._entries)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """The keys now."""
        self._alive()
        return list(self._entries)

    def values(self) -> list[V]:
        """The values now."""
        self._alive()
        return list(self._entries.values())

    def items(self) -> list[tuple[str, V]]:
        """The keys and values now."""
        self._alive()
        return list(self._entries.items())

    def listen(
        self, callback: Callable[[str, V | None], object], *, existing: bool = True
    ) -> Callable[[], None]:
        """Calls a function with each key and its value, and ``None`` for a key that was deleted: first for
        what the view has, before this returns, and then for each change. A callback that raises is logged by
        the logger ``forebay.table_view`` and counted; the view goes on.

        Args:
            callback: a plain function that does not block: the view waits for it.
            existing: false calls it for changes only.

        Returns:
            A function that ends this.

        Raises:
            InvalidArgument: not a plain function.
        """
        if not callable(callback) or inspect.iscoroutinefunction(callback):
            raise InvalidArgument(
                f"listen: 'callback': expected a plain function, not {callback!r}: put the changes into a"
                " queue, or create a task"
            )
        self._alive()
        with self._applying:
            if existing:
                for key, value in list(self._entries.items()):
                    self._call(callback, key, value)
            self._callbacks.append(callback)

        def end() -> None:
            with self._applying:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return end

    def stats(self) -> dict[str, int]:
        """Counters of this view:

        * ``read``: messages that were read, with those that have no key.
        * ``callbacks_failed``: calls of callbacks that raised.
        """
        return {"read": self._read, "callbacks_failed": self._callbacks_failed}

    def _leave(self, failed: bool) -> None:
        if self._open:
            self._open = False
            self._reader._leave(failed)
            self._changes.tell()

    def _forget(self) -> None:
        self._reader._open = False
        super()._forget()

    def __repr__(self) -> str:
        return f"<forebay.blocking.{type(self).__name__} {self._native.topic}>"
