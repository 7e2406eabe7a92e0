"""The configuration that is sent to the workers: checked on the driver, picklable, with secrets as
references."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import hashlib
import os
import pickle
import uuid
from dataclasses import dataclass, field
from typing import Any

from penstock import _native, parse, protocols
from penstock._typing import Duration
from penstock.errors import InvalidArgument, Unsupported
from penstock.frames import check_encoding

ACK_TIMEOUT = 120.0
"""Default of ``ack_timeout`` in seconds."""


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Destination and encoding of rows. Made by :func:`sink_config`."""

    url: str
    protocol: str
    topic: str
    """The topic; empty if each row has its own."""
    row_topic: str | None
    """MQTT only: the column with the topics, or a template that contains columns."""
    value: str | None
    encoding: str
    key: str | None
    properties: str | None
    event_time: str | None
    id_property: str | None
    """Property with an id that stays the same when a row is sent again."""
    write_id: str | None
    """Beginning of these ids, if the user set one."""
    run_id: str
    """Beginning of these ids otherwise, outside of streams."""
    ack_timeout: float
    """Seconds to wait for the broker to acknowledge a lot of rows."""
    client: dict[str, Any] = field(repr=False)
    producer: dict[str, Any]
    pool_key: str = field(repr=False)
    """Key of the connection in the pool: configurations with the same key share one."""

    def columns(self) -> list[str]:
        """The columns that the arguments name."""
        named = (self.value, self.key, self.properties, self.event_time, *self.topic_columns())
        return list(dict.fromkeys(name for name in named if name))

    def topic_columns(self) -> list[str]:
        """The columns from which the topics of rows are made."""
        if self.row_topic is None:
            return []
        return _native.template_columns(self.row_topic) if is_template(self.row_topic) else [self.row_topic]

    def encoding_arguments(self) -> dict[str, Any]:
        """The arguments of :func:`penstock.frames.outgoing`, except ids."""
        return {
            "value": self.value,
            "encoding": self.encoding,
            "properties": self.properties,
            "key": self.key,
            "topic": self.row_topic,
            "event_time": self.event_time,
        }

    def placeholder(self) -> str:
        """The topic to open a producer with. If each row has its own, it is a name that shows its origin."""
        if self.row_topic is None:
            return self.topic
        text = self.row_topic if is_template(self.row_topic) else f"{{{self.row_topic}}}"
        # Column names may contain characters that are not allowed in topic names.
        return text.translate(str.maketrans("+#\0", "___"))


def is_template(text: str) -> bool:
    """Whether a topic is a template, which it is if it contains braces."""
    return "{" in text or "}" in text


def inherited_for(url: str | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """As :func:`penstock.protocols.inherited_for`, with references to the variables that hold secrets: their
    values would become part of the job's pickle."""
    base, inherited = protocols.inherited_for(url)
    protocol = protocols.of(base).key
    for scope, values in inherited.items():
        table = protocols.table(f"{protocol}.{scope}")
        for name, value in values.items():
            if not table[name].secret:
                continue
            for variable in (f"PENSTOCK_{name.upper()}", f"PENSTOCK_{scope.upper()}_{name.upper()}"):
                if os.environ.get(variable) == value and not _is_reference(value):
                    values[name] = f"env:{variable}"
    return base, inherited


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("env:", "file:"))


def travelling(scope: str, given: dict[str, Any]) -> dict[str, Any]:
    """Options in the form that is sent to workers: resolved here, so that a CA file need not exist on the
    workers, except secrets, which stay references."""
    resolved = protocols.resolve(scope, given)
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not protocols.table(scope)[name].secret:
            result[name] = resolved[name]
        elif callable(value) or _is_reference(value):
            result[name] = value
        else:
            raise InvalidArgument(
                f"{name!r} as plain text would be part of the job's pickle: "
                f'give "env:NAME", "file:PATH" or a callable'
            )
    return result


# Options of an MQTT session that make no sense when each worker has a session of its own.
_NOT_HERE = {
    "clean_start": "each worker has a session of its own, which ends with the worker",
    "will": "each worker would publish one",
    "outbox": "workers are short-lived, and Spark itself repeats failed tasks",
    "authenticator": "use username= and password=",
    "authentication_method": "use username= and password=",
}


def _refuse(options: dict[str, Any], given: dict[str, Any]) -> None:
    for name, why in _NOT_HERE.items():
        if options.get(name) is not None:
            raise Unsupported(f"the Spark sink does not support {name!r} with MQTT: {why}")
    for name, value in given.items():
        if value is not None:
            raise Unsupported(
                f"MQTT has no {name}: use topic_column= or a template to give each row its topic"
            )


def _topic(protocol: str, topic: str | None, topic_column: str | None) -> tuple[str, str | None]:
    """The topic of all rows, or the column or template that gives each row its own."""
    if protocol != "mqtt":
        if topic_column is not None:
            raise Unsupported("topic_column is for MQTT URLs: with other protocols a producer has one topic")
        if not topic:
            raise InvalidArgument("a topic is needed: pass its name as topic")
        return topic, None
    if topic and topic_column:
        raise InvalidArgument("give either topic or topic_column, not both")
    if topic_column:
        if is_template(topic_column):
            raise InvalidArgument("topic_column is the name of a column; a template goes into topic")
        return "", topic_column
    if not topic:
        raise InvalidArgument(
            "a topic is needed: a name, a template like 'shop/{till}/sales', or topic_column"
        )
    if not is_template(topic):
        return topic, None
    _native.template_columns(topic)
    return "", topic


def _refuse_properties_of_old_versions(client: dict[str, Any], properties: dict[str, Any]) -> None:
    version = str(client.get("version", "5"))
    for name, value in properties.items():
        if value is not None and version in ("3.1", "3.1.1"):
            raise Unsupported(f"MQTT {version} has no message properties: {name} needs version 5")


def sink_config(
    url: str | None,
    topic: str | None,
    *,
    topic_column: str | None = None,
    key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    id_property: str | None = None,
    write_id: str | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    options: dict[str, Any],
) -> SinkConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Raises:
        InvalidArgument: an unknown option, a bad value, a secret as plain text, or an ``embedded:`` URL.
        Unsupported: a feature that the protocol does not have, or an option that needs a single process.
    """
    base, inherited = inherited_for(url)
    protocol = protocols.of(base).key
    scopes = [f"{protocol}.{scope}" for scope in ("client", "producer")]
    tables = [protocols.table(scope) for scope in scopes]
    for name in options:
        if name not in tables[0] and name not in tables[1]:
            known = [*tables[0], *tables[1]]
            raise InvalidArgument(f"the Spark sink has no option {name!r}{parse.did_you_mean(name, known)}")
    clients = {name: value for name, value in options.items() if name in tables[0]}
    refuse_embedded(base)
    constant, row_topic = _topic(protocol, topic, topic_column)
    if protocol == "mqtt":
        _refuse({**inherited["client"], **clients}, {"key": key, "event_time": event_time})
    client = travelling(scopes[0], {**inherited["client"], **clients})
    if protocol == "mqtt":
        _refuse_properties_of_old_versions(client, {"properties": properties, "id_property": id_property})
    if write_id and not id_property:
        raise InvalidArgument(
            "write_id is the beginning of ids: name the property for them with id_property="
        )
    if protocol == "tubemq" and any(sign in f"{id_property}{write_id}" for sign in ",="):
        raise InvalidArgument("TubeMQ attributes contain neither ',' nor '=': change id_property or write_id")
    producers = {name: value for name, value in options.items() if name not in clients}
    producer = travelling(scopes[1], {**inherited["producer"], **producers})
    if producer.get("initial_sequence_id") is not None:
        # The broker would take the rows of a second write for repetitions of the first.
        raise Unsupported(
            "the Spark sink does not support 'initial_sequence_id': each task has a producer of its own, and "
            "its numbers would begin again with each write; use id_property="
        )
    encoding = check_encoding(value, encoding)
    return SinkConfig(
        url=base,
        protocol=protocol,
        topic=constant,
        row_topic=row_topic,
        value=value,
        encoding=encoding,
        key=key,
        properties=properties,
        event_time=event_time,
        id_property=id_property,
        write_id=write_id,
        run_id=uuid.uuid4().hex,
        ack_timeout=_seconds(ack_timeout),
        client=client,
        producer=producer,
        pool_key=digest(base, client),
    )


def _seconds(value: Duration) -> float:
    try:
        return parse.duration(value)
    except ValueError as error:
        raise InvalidArgument(f"ack_timeout: {error}") from None


def refuse_embedded(url: str) -> None:
    """
    Raises:
        InvalidArgument: an ``embedded:`` URL.
    """
    if url.startswith("embedded:"):
        raise InvalidArgument(
            "an embedded: URL does not work here, because Spark's workers are other processes: start a "
            "penstock.Broker (or `penstock broker`) and pass its url"
        )


def digest(url: str, client: dict[str, Any]) -> str:
    """The key of a connection in the pool."""
    try:
        content = pickle.dumps((url, sorted(client.items(), key=lambda item: item[0])))
    except (pickle.PicklingError, AttributeError, TypeError):
        # Functions such as lambdas have to be pickled by value.
        from pyspark import cloudpickle

        content: bytes = cloudpickle.dumps((url, sorted(client.items(), key=lambda item: item[0])))
    return hashlib.sha256(content).hexdigest()
