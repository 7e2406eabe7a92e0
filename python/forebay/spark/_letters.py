"""Dead letters, the messages that stand for rows that could not be sent."""
# pyarrow is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay._core import dataframes, native
from forebay.errors import Error

if TYPE_CHECKING:
    from forebay._engine import FrameRoles, FrameRows

    from ._config import WriteConfig


def payloads_of(row: Any, config: WriteConfig) -> Iterator[bytes]:
    """Payloads for a bad row, the best first: its own, all of the row as JSON, and an empty object."""
    # What is wrong with a row may be a text that is not UTF-8, or a date without a form as text.
    with contextlib.suppress(ValueError, TypeError, ArithmeticError):
        if config.encoding == "raw" and (value := row.column(config.value).cast("binary")[0].as_py()):
            yield value
    with contextlib.suppress(Error):
        yield from dataframes.outgoing(row, {"value": None}, "json").payloads()
    yield b"{}"


def topic_of(row: Any, config: WriteConfig) -> str | None:
    """The topic that a bad row was meant for, if it has one."""
    if config.row_topic is None:
        return config.topic
    roles: FrameRoles = {"value": None, "topic": config.row_topic}
    with contextlib.suppress(Error):
        columns = row.select(config.topic_columns())
        if config.protocol == "pulsar":
            rows = native.encode_pulsar_frame(columns, roles, schema=None, encoding="json")
        else:
            rows = dataframes.outgoing(columns, roles, "json")
        return rows.by_topic()[0][0]
    return None


def encoded(payload: bytes, properties: dict[str, str], protocol: str) -> FrameRows:
    """A message for the topic of bad rows."""
    import pyarrow as pa

    if protocol == "tubemq":
        # Its attributes have no escapes.
        properties = {name: re.sub("[,=]", " ", text) for name, text in properties.items()}
    names = pa.array([list(properties.items())], pa.map_(pa.string(), pa.string()))
    table = pa.table({"value": pa.array([payload], pa.binary()), "properties": names})
    roles: FrameRoles = {"value": "value", "properties": "properties"}
    if protocol == "pulsar":
        return native.encode_pulsar_frame(table, roles, schema=None, encoding="raw")
    return dataframes.outgoing(table, roles, "raw")
