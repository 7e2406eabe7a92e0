"""The engine's side of a table view."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from forebay import errors
from forebay._core import protocols

from .exceptions import translated

if TYPE_CHECKING:
    from forebay._engine import PulsarClient

R = TypeVar("R")


class View:
    """The last value of each key of a topic, as bytes.

    Args:
        native: the client.
        url: its URL.
        topic: the topic.
        subscription: name of the subscription; a unique one by default.
        forget: takes this object off the list of its client.

    Raises:
        PulsarException: the view was not opened.
    """

    def __init__(
        self,
        native: PulsarClient,
        url: str,
        topic: str,
        subscription: str | None,
        forget: Callable[[View], None],
    ) -> None:
        from forebay.pulsar.blocking import PulsarClient

        self._forget = forget
        # The native interface on the same connections; it closes the view only.
        defaults = protocols.Defaults(protocols.PROTOCOLS["pulsar"], {}, {})
        self._client = PulsarClient(native, url, defaults, None)
        try:
            self._view = self._client.table_view(topic, subscription=subscription)
        except errors.Error as error:
            self._client._open = False
            raise translated(error) from None

    def _do(self, verb: Callable[[], R]) -> R:
        try:
            return verb()
        except errors.Error as error:
            raise translated(error) from None

    def get(self, key: str) -> tuple[bool, bytes]:
        """Whether the key has a value, and the value."""
        value = self._do(lambda: self._view.get(key))
        return value is not None, value or b""

    def for_each(self, callback: Callable[[str, bytes], Any]) -> None:
        """Calls a function with each key and its value."""
        for key, value in self._do(self._view.items):
            callback(key, value)

    def for_each_and_listen(self, callback: Callable[[str, bytes], Any]) -> None:
        """As :meth:`for_each`, and then for each change; the value of a key that was deleted is empty."""
        self._do(lambda: self._view.listen(lambda key, value: callback(key, value or b"")))

    def size(self) -> int:
        """Number of keys."""
        return self._do(lambda: len(self._view))

    def close(self) -> None:
        """Closes the view. Calling it again does nothing."""
        self._forget(self)
        self._client._open = False
        self._do(self._view.close)

    def shut(self) -> None:
        """As :meth:`close`, without waiting for a callback."""
        self._view._pump.stop(0)
        self.close()
