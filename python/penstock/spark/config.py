"""What travels to the workers: checked on the driver, picklable, secrets by reference only."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, field
from typing import Any

from penstock import options as _options
from penstock.errors import InvalidArgument
from penstock.frames import check_encoding


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Where and how rows are sent. Made by :func:`sink_config`."""

    url: str
    topic: str
    value: str | None
    encoding: str
    key: str | None
    properties: str | None
    event_time: str | None
    client: dict[str, Any] = field(repr=False)
    producer: dict[str, Any]
    pool_key: str = field(repr=False)
    """Same connection, same key."""

    def columns(self) -> list[str]:
        """The columns that have a part to play besides the payload's."""
        named = (self.value, self.key, self.properties, self.event_time)
        return list(dict.fromkeys(name for name in named if name))

    def arrow_arguments(self) -> dict[str, Any]:
        """Arguments of ``submit_frame``."""
        return {
            "value": self.value,
            "encoding": self.encoding,
            "key": self.key,
            "properties": self.properties,
            "event_time": self.event_time,
        }


def _travelling(scope: str, given: dict[str, Any]) -> dict[str, Any]:
    """Values as workers get them: resolved here (a CA file need not be on the workers), but secrets as
    references."""
    resolved = _options.resolve(scope, given)
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not _options.TABLES[scope][name].secret:
            result[name] = resolved[name]
        elif callable(value) or (isinstance(value, str) and value.startswith(("env:", "file:"))):
            result[name] = value
        else:
            raise InvalidArgument(
                f"{name!r} would travel to the workers in the job's pickle: "
                f'give "env:NAME", "file:PATH" or a callable'
            )
    return result


def sink_config(
    url: str | None,
    topic: str,
    *,
    key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    options: dict[str, Any],
) -> SinkConfig:
    """Checks everything that can be checked without a broker.

    Raises:
        InvalidArgument: an unknown option, a bad value, a secret as plain text, or an ``embedded:`` URL.
    """
    for name in options:
        if name not in _options.TABLES["client"] and name not in _options.TABLES["producer"]:
            known = [*_options.TABLES["client"], *_options.TABLES["producer"]]
            raise InvalidArgument(
                f"the Spark sink has no option {name!r}{_options.parse.did_you_mean(name, known)}"
            )
    clients = {name: value for name, value in options.items() if name in _options.TABLES["client"]}
    base, inherited = _options.inherited_for(url)
    if base.startswith("embedded:"):
        raise InvalidArgument(
            "workers are other processes: start a penstock.Broker (or `penstock broker`) and give its url"
        )
    if not topic:
        raise InvalidArgument("the name of a topic is needed")
    client = _travelling("client", {**inherited["client"], **clients})
    producers = {name: value for name, value in options.items() if name not in clients}
    producer = _travelling("producer", {**inherited["producer"], **producers})
    encoding = check_encoding(value, encoding)
    return SinkConfig(
        base, topic, value, encoding, key, properties, event_time, client, producer, _digest(base, client)
    )


def _digest(url: str, client: dict[str, Any]) -> str:
    try:
        content = pickle.dumps((url, sorted(client.items(), key=lambda item: item[0])))
    except (pickle.PicklingError, AttributeError, TypeError):
        # A lambda: pickled by value.
        from pyspark import cloudpickle

        content: bytes = cloudpickle.dumps((url, sorted(client.items(), key=lambda item: item[0])))
    return hashlib.sha256(content).hexdigest()
