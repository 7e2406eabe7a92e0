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
from typing import TYPE_CHECKING, Any

from forebay._core import parse, protocols
from forebay._core.dataframes import ACK_TIMEOUT, check_encoding, placeholder, topic_columns, topic_of_rows
from forebay._core.types import Duration
from forebay._core.unsupported import refuse
from forebay.errors import InvalidArgument, Unsupported
from forebay.pulsar._positions import full_name

if TYPE_CHECKING:
    from forebay._engine import FrameRoles


ROLES = (
    "value",
    "key",
    "ordering_key",
    "properties",
    "event_time",
    "deliver_at",
    "message_type",
    "qos_column",
    "retain_column",
)
"""The arguments that name a column."""
ARGUMENTS = (
    *ROLES,
    "topic_column",
    "encoding",
    "id_property",
    "write_id",
    "batch_id",
    "tasks",
    "ack_timeout",
    "delivery",
    "stable_order",
    "on_bad_row",
    "dead_letter_topic",
)
"""The arguments of a write beside URL and topic."""


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Destination and encoding of rows. Made by :func:`sink_config`."""

    url: str
    protocol: str
    topic: str
    """The topic; empty if each row has its own."""
    row_topic: str | None
    """The column with the topics, or a template that contains columns."""
    value: str | None
    encoding: str
    key: str | None
    ordering_key: str | None
    properties: str | None
    event_time: str | None
    deliver_at: str | None
    message_type: str | None
    qos_column: str | None
    retain_column: str | None
    id_property: str | None
    """Property with an id that stays the same when a row is sent again."""
    write_id: str | None
    """Beginning of these ids, if the user set one."""
    batch_id: int | None
    """Number of the batch of a stream, if the user gave it."""
    tasks: int | None
    """Number of tasks that write, if it is known."""
    run_id: str
    """Beginning of these ids otherwise, outside of streams."""
    delivery: str
    """``"at-least-once"`` or ``"idempotent"``."""
    stable_order: bool
    """Whether the caller states that a task that is repeated gets the same rows in the same order."""
    on_bad_row: str
    """``"fail"``, ``"skip"`` or ``"dead_letter"``."""
    dead_letter_topic: str | None
    ack_timeout: float
    """Seconds to wait for the broker to acknowledge a lot of rows."""
    client: dict[str, Any] = field(repr=False)
    producer: dict[str, Any]
    pool_key: str = field(repr=False)
    """Key of the connection in the pool: configurations with the same key share one."""

    def columns(self) -> list[str]:
        """The columns that the arguments name."""
        named = [getattr(self, role) for role in ROLES]
        return list(dict.fromkeys(name for name in (*named, *self.topic_columns()) if name))

    def topic_columns(self) -> list[str]:
        """The columns from which the topics of rows are made."""
        return topic_columns(self.row_topic)

    def roles(self) -> FrameRoles:
        """The roles of the columns, for the engine."""
        return {
            "value": self.value,
            "key": self.key,
            "ordering_key": self.ordering_key,
            "topic": self.row_topic,
            "properties": self.properties,
            "event_time": self.event_time,
            "deliver_at": self.deliver_at,
            "message_type": self.message_type,
            "qos_column": self.qos_column,
            "retain_column": self.retain_column,
            "leaves_out": self.on_bad_row != "fail",
        }

    def placeholder(self) -> str:
        """The topic to open a producer with. If each row has its own, it is a name that shows its origin."""
        return placeholder(self.topic, self.row_topic)


def inherited_for(url: str | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """As :func:`forebay._core.protocols.inherited_for`, with references to the variables that hold
    secrets: their values would become part of the job's pickle."""
    base, inherited = protocols.inherited_for(url)
    protocol = protocols.of(base).key
    for scope, values in inherited.items():
        table = protocols.table(f"{protocol}.{scope}")
        for name, value in values.items():
            if not table[name].secret:
                continue
            for variable in (f"FOREBAY_{name.upper()}", f"FOREBAY_{scope.upper()}_{name.upper()}"):
                if os.environ.get(variable) == value and not _is_reference(value):
                    values[name] = f"env:{variable}"
    return base, inherited


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("env:", "file:"))


def travelling(scope: str, given: dict[str, Any], *, with_secrets: bool = True) -> dict[str, Any]:
    """Options in the form that is sent to workers: resolved here, so that a CA file need not exist on the
    workers, except secrets, which stay references. Those are looked up, to find a mistake early, unless this
    process need not have them."""
    table = protocols.table(scope)
    looked_up = {
        name: value
        for name, value in given.items()
        if with_secrets or not (table[name].secret and _is_reference(value))
    }
    resolved = protocols.resolve(scope, looked_up)
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not table[name].secret:
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


def _refuse(options: dict[str, Any]) -> None:
    for name, why in _NOT_HERE.items():
        if options.get(name) is not None:
            raise Unsupported(f"the Spark sink does not support {name!r} with MQTT: {why}")


def _refuse_properties_of_old_versions(client: dict[str, Any], properties: dict[str, Any]) -> None:
    version = str(client.get("version", "5"))
    for name, value in properties.items():
        if value is not None and version in ("3.1", "3.1.1"):
            raise Unsupported(f"MQTT {version} has no message properties: {name} needs version 5")


def _one_of(name: str, value: str | None, *known: str) -> str:
    """The value of an option with few values; the first of them is the default."""
    if value is None:
        return known[0]
    plain = value.lower().replace("_", "").replace("-", "")
    for each in known:
        if plain == each.replace("_", "").replace("-", ""):
            return each
    raise InvalidArgument(f"{name}: expected {', '.join(map(repr, known))}, not {value!r}")


def _idempotent(protocol: str, producer: dict[str, Any]) -> dict[str, Any]:
    """The producer's options, with which a row is dropped if it is sent again, and only then.

    Raises:
        Unsupported: the protocol does not drop messages, or an option is in the way.
    """
    if protocol != "pulsar":
        raise Unsupported(
            f"{protocols.PROTOCOLS[protocol].title} does not remove messages that were sent twice: use "
            'delivery="at-least-once" with id_property=, and let readers drop repeated ids'
        )
    in_the_way = {
        "key_based_batching": "batches of keys are not in the order of the rows",
        "router": "where it sends a row again is not known",
    }
    for name, why in in_the_way.items():
        if producer.get(name):
            raise Unsupported(f'delivery="idempotent" does not go with {name!r}: {why}')
    if producer.get("routing", "round_robin") != "round_robin":
        raise Unsupported(
            'delivery="idempotent" needs routing="round_robin": with any other a row that is sent again may '
            "get to another partition than before"
        )
    if producer.get("send_timeout"):
        # What is behind a message that was given up would be stored, and the message would count as stored.
        raise Unsupported('delivery="idempotent" has no send_timeout: ack_timeout ends the task')
    return {**producer, "send_timeout": 0.0, "stop_on_refusal": True}


def sink_config(
    url: str | None,
    topic: str | None,
    options: dict[str, Any],
    *,
    topic_column: str | None = None,
    key: str | None = None,
    ordering_key: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
    properties: str | None = None,
    event_time: str | None = None,
    deliver_at: str | None = None,
    message_type: str | None = None,
    qos_column: str | None = None,
    retain_column: str | None = None,
    id_property: str | None = None,
    write_id: str | None = None,
    batch_id: int | str | None = None,
    tasks: int | str | None = None,
    ack_timeout: Duration = ACK_TIMEOUT,
    delivery: str | None = None,
    stable_order: bool | str = False,
    on_bad_row: str | None = None,
    dead_letter_topic: str | None = None,
    with_secrets: bool = True,
) -> SinkConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Args:
        with_secrets: whether this process has to have the secrets that options refer to.

    Raises:
        InvalidArgument: an unknown option, a bad value, a secret as plain text, or an ``embedded:`` URL.
        Unsupported: a feature that the protocol does not have, or an option that needs a single process.
    """
    base, inherited = inherited_for(url)
    protocol = protocols.of(base).key
    scopes = [f"{protocol}.{scope}" for scope in ("client", "producer")]
    own = ("url", "topic", *ARGUMENTS)
    clients, producers = protocols.by_table(options, scopes, "the Spark sink", own)
    refuse_embedded(base)
    constant, row_topic = topic_of_rows(topic, topic_column)
    columns = {
        "value": value,
        "key": key,
        "ordering_key": ordering_key,
        "properties": properties,
        "event_time": event_time,
        "deliver_at": deliver_at,
        "message_type": message_type,
        "qos_column": qos_column,
        "retain_column": retain_column,
    }
    refuse(protocol, columns)
    if protocol == "mqtt":
        _refuse({**inherited["client"], **clients})
    elif qos_column or retain_column:
        title = protocols.PROTOCOLS[protocol].title
        raise Unsupported(f"{title} has no QoS and no retained messages: leave out qos_column, retain_column")
    client = travelling(scopes[0], {**inherited["client"], **clients}, with_secrets=with_secrets)
    delivery = _one_of("delivery", delivery, "at-least-once", "idempotent")
    on_bad_row = _one_of("on_bad_row", on_bad_row, "fail", "skip", "dead_letter")
    if (on_bad_row == "dead_letter") != (dead_letter_topic is not None):
        raise InvalidArgument('on_bad_row="dead_letter" and dead_letter_topic= belong together')
    if protocol == "mqtt":
        given = {"properties": properties, "id_property": id_property, "dead_letter_topic": dead_letter_topic}
        _refuse_properties_of_old_versions(client, given)
    if write_id and not id_property and delivery != "idempotent":
        raise InvalidArgument(
            "write_id is the beginning of ids: name the property for them with id_property=, or use "
            'delivery="idempotent"'
        )
    if batch_id is not None and not write_id:
        raise InvalidArgument("batch_id needs write_id=, the name of the write in all batches")
    if tasks is not None and not id_property and delivery != "idempotent":
        raise InvalidArgument(
            "tasks= is part of the ids of rows: name the property for them with id_property=, or use "
            'delivery="idempotent"'
        )
    if protocol == "tubemq" and any(sign in f"{id_property}{write_id}" for sign in ",="):
        raise InvalidArgument("TubeMQ attributes contain neither ',' nor '=': change id_property or write_id")
    producer = travelling(scopes[1], {**inherited["producer"], **producers}, with_secrets=with_secrets)
    if producer.get("initial_sequence_id") is not None:
        # The broker would take the rows of a second write for repetitions of the first.
        raise Unsupported(
            "the Spark sink does not support 'initial_sequence_id': each task has a producer of its own, and "
            'its numbers would begin again with each write; use delivery="idempotent"'
        )
    if delivery == "idempotent":
        producer = _idempotent(protocol, producer)
    if protocol == "pulsar" and on_bad_row != "fail":
        # A partition that is not open does not know yet how large a message may be.
        producer["lazy_start"] = False
    if dead_letter_topic is not None and _is_one_topic(protocol, constant, dead_letter_topic):
        raise InvalidArgument("dead_letter_topic is the topic itself: name another one")
    if encoding == "avro" and protocol != "pulsar":
        raise Unsupported(f"{protocols.PROTOCOLS[protocol].title} has no schemas: encoding='avro' needs them")
    return SinkConfig(
        url=base,
        protocol=protocol,
        topic=constant,
        row_topic=row_topic,
        **columns,
        encoding="avro" if encoding == "avro" else check_encoding(value, encoding),
        id_property=id_property,
        write_id=write_id,
        batch_id=None if batch_id is None else _whole("batch_id", batch_id, 0),
        tasks=None if tasks is None else _whole("tasks", tasks, 1),
        run_id=uuid.uuid4().hex,
        delivery=delivery,
        stable_order=_flag("stable_order", stable_order),
        on_bad_row=on_bad_row,
        dead_letter_topic=dead_letter_topic,
        ack_timeout=_seconds(ack_timeout),
        client=client,
        producer=producer,
        pool_key=digest(base, client),
    )


def _is_one_topic(protocol: str, one: str, other: str) -> bool:
    if protocol == "pulsar" and one:
        return full_name(one) == full_name(other)
    return one == other


def check_order_is_stated(config: SinkConfig) -> None:
    """For rows whose plan cannot be looked at.

    Raises:
        InvalidArgument: the write depends on the order of rows, and it is not stated that it is stable.
    """
    if config.delivery == "idempotent" and not config.stable_order:
        raise InvalidArgument(
            'delivery="idempotent" numbers the rows of each task, and here it cannot be seen whether a task '
            "that is repeated gets the same rows in the same order: if it does, say stable_order=True; if "
            "not, rows would be lost"
        )


def check_write_is_named(config: SinkConfig) -> None:
    """For a write within the function of ``foreachBatch``, of which there may be several.

    Raises:
        InvalidArgument: the numbers of its rows could be those of another write.
    """
    if config.delivery == "idempotent" and not config.write_id:
        raise InvalidArgument(
            'delivery="idempotent" in foreachBatch needs write_id=, a name of this write: with one name, the '
            "rows of a second write in the same batch would count as sent"
        )


def check_tasks_are_given(config: SinkConfig) -> None:
    """For a write whose number of tasks cannot be seen on the driver.

    Raises:
        InvalidArgument: with another number of tasks, rows of a repeated write could count as sent.
    """
    if config.write_id and config.tasks is None:
        raise InvalidArgument(
            "a write_id needs tasks= here, the number of tasks that write (df.rdd.getNumPartitions()): it is "
            "part of the identity of a row, and only forebay.spark.write() on classic Spark can count them"
        )


def _flag(name: str, value: bool | str) -> bool:
    try:
        return parse.boolean(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


def _whole(name: str, value: int | str, least: int) -> int:
    try:
        return parse.whole(least)(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


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
            "forebay.Broker (or `forebay broker`) and pass its url"
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
