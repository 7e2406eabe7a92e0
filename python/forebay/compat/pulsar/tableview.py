"""Table views: the last value of each key of a topic."""
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .schema.schema import Schema


class TableView:
    """The last value of each key of a topic. Made by
    :meth:`~forebay.compat.pulsar.Client.create_table_view`.

    Args:
        table_view: the view of the engine: ``get(key)`` gives whether there is a value, and its bytes;
            ``for_each`` and ``for_each_and_listen`` call with keys and bytes; ``size()`` and ``close()``.
        topic: the topic.
        subscription: name of the subscription, if it was given.
        schema: decodes the values.
    """

    def __init__(self, table_view: Any, topic: str, subscription: str | None, schema: Schema) -> None:
        self._table_view, self._topic = table_view, topic
        self._subscription, self._schema = subscription, schema

    def get(self, key: str) -> Any | None:
        """The value of a key; ``None`` without one."""
        found, data = self._table_view.get(key)
        return self._schema.decode(data) if found else None

    def for_each(self, callback: Callable[[str, Any], None]) -> None:
        """Calls a function with each key and its value."""
        self._table_view.for_each(lambda key, data: callback(key, self._schema.decode(data)))

    def for_each_and_listen(self, callback: Callable[[str, Any], None]) -> None:
        """As :meth:`for_each`, and then for each change."""
        self._table_view.for_each_and_listen(lambda key, data: callback(key, self._schema.decode(data)))

    def close(self) -> None:
        """Closes the view."""
        self._table_view.close()

    def __len__(self) -> int:
        return self._table_view.size()

    def __str__(self) -> str:
        of = "" if self._subscription is None else f", subscription={self._subscription}"
        return f"TableView(topic={self._topic}{of})"

    def __repr__(self) -> str:
        return str(self)
