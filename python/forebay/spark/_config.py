"""The configuration of a write: made and checked once on the driver, and sent to the workers."""
# pyarrow and pyspark are typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from forebay._core import parse, protocols
from forebay._core.dataframes import ACK_TIMEOUT, check_encoding, placeholder, topic_columns, topic_of_rows
from forebay._core.types import Duration
from forebay._core.unsupported import refuse
from forebay.errors import InvalidArgument, Unsupported
from forebay.pulsar._positions import full_name

from ._shipping import digest, inherited_for, refuse_embedded, travelling

if TYPE_CHECKING:
    from forebay._engine import FrameRoles


_ROLE = "role"


def _column() -> Any:
    """The field of an argument that names a column."""
    return field(default=None, metadata={_ROLE: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteArguments:
    """The keyword arguments of a write, as :func:`forebay.spark.write` documents them. The options of the
    data source have the same names, and their values are text."""

    topic_column: str | None = None
    value: str | None = _column()
    key: str | None = _column()
    ordering_key: str | None = _column()
    properties: str | None = _column()
    event_time: str | None = _column()
    deliver_at: str | None = _column()
    message_type: str | None = _column()
    qos_column: str | None = _column()
    retain_column: str | None = _column()
    encoding: str | None = None
    id_property: str | None = None
    write_id: str | None = None
    batch_id: int | None = None
    tasks: int | None = None
    ack_timeout: Duration = ACK_TIMEOUT
    delivery: str = "at-least-once"
    stable_order: bool = False
    on_bad_row: str = "fail"
    dead_letter_topic: str | None = None


ARGUMENTS = tuple(each.name for each in fields(WriteArguments))
"""The arguments of a write beside URL and topic."""
ROLES = tuple(each.name for each in fields(WriteArguments) if _ROLE in each.metadata)
"""The arguments that name a column."""


def arguments_of(scope: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a write among the local variables of the function that takes them."""
    return {name: scope[name] for name in ARGUMENTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConfig(WriteArguments):
    """A write: its arguments, checked, and everything that follows from them. The driver makes it once, with
    :func:`write_config`; each task gets it whole."""

    url: str
    protocol: str
    topic: str
    """The topic; empty if each row has its own."""
    row_topic: str | None
    """The column with the topics, or a template that contains columns."""
    encoding: str = "raw"
    ack_timeout: float = ACK_TIMEOUT
    """Seconds to wait for the broker to acknowledge a lot of rows."""
    run_id: str
    """Beginning of the ids of rows without a write_id, outside of streams."""
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
        columns = {role: getattr(self, role) for role in ROLES}
        leaves_out = self.on_bad_row != "fail"
        return cast("FrameRoles", columns | {"topic": self.row_topic, "leaves_out": leaves_out})

    def placeholder(self) -> str:
        """The topic to open a producer with. If each row has its own, it is a name that shows its origin."""
        return placeholder(self.topic, self.row_topic)


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


def _refuse_properties_of_old_versions(client: dict[str, Any], given: WriteArguments) -> None:
    version = str(client.get("version", "5"))
    for name in ("properties", "id_property", "dead_letter_topic"):
        if getattr(given, name) is not None and version in ("3.1", "3.1.1"):
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
        # What is behind a message that was given up would be stored, and the message would count as
        # stored.
        raise Unsupported('delivery="idempotent" has no send_timeout: ack_timeout ends the task')
    return {**producer, "send_timeout": 0.0, "stop_on_refusal": True}


def write_config(url: str | None, topic: str | None, options: dict[str, Any], **given: Any) -> WriteConfig:
    """Makes the configuration, and checks everything that can be checked without a broker.

    Args:
        url, topic: of the write.
        options: of the client and the producer.
        given: arguments, named as in :class:`WriteArguments`; those of a data source are text.

    Raises:
        InvalidArgument: an unknown option, a bad value, a secret as plain text, or an ``embedded:`` URL.
        Unsupported: a feature that the protocol does not have, or an option that needs a single process.
    """
    arguments = WriteArguments(**given)
    base, inherited = inherited_for(url)
    protocol = protocols.of(base).key
    scopes = [f"{protocol}.{scope}" for scope in ("client", "producer")]
    own = ("url", "topic", *ARGUMENTS)
    clients, producers = protocols.by_table(options, scopes, "the Spark sink", own)
    refuse_embedded(base)
    constant, row_topic = topic_of_rows(topic, arguments.topic_column)
    _refuse_arguments(protocol, arguments, {**inherited["client"], **clients})
    client = travelling(scopes[0], {**inherited["client"], **clients})
    arguments = _parsed(protocol, arguments)
    if protocol == "mqtt":
        _refuse_properties_of_old_versions(client, arguments)
    _check_ids(protocol, arguments)
    producer = travelling(scopes[1], {**inherited["producer"], **producers})
    producer = _producer_options(protocol, producer, arguments)
    dead_letter_topic = arguments.dead_letter_topic
    if dead_letter_topic is not None and _is_one_topic(protocol, constant, dead_letter_topic):
        raise InvalidArgument("dead_letter_topic is the topic itself: name another one")
    return WriteConfig(
        **{name: getattr(arguments, name) for name in ARGUMENTS},
        url=base,
        protocol=protocol,
        topic=constant,
        row_topic=row_topic,
        run_id=uuid.uuid4().hex,
        client=client,
        producer=producer,
        pool_key=digest(base, client),
    )


def _refuse_arguments(protocol: str, given: WriteArguments, client: dict[str, Any]) -> None:
    """
    Raises:
        Unsupported: the protocol does not have something that an argument or an option asks for.
    """
    refuse(protocol, {role: getattr(given, role) for role in ROLES})
    title = protocols.PROTOCOLS[protocol].title
    if protocol == "mqtt":
        _refuse(client)
    elif given.qos_column or given.retain_column:
        raise Unsupported(f"{title} has no QoS and no retained messages: leave out qos_column, retain_column")
    if given.encoding == "avro" and protocol != "pulsar":
        raise Unsupported(f"{title} has no schemas: encoding='avro' needs them")


def _parsed(protocol: str, given: WriteArguments) -> WriteArguments:
    """The arguments with values of their own types.

    Raises:
        InvalidArgument: a value that an argument does not have.
    """
    avro = given.encoding == "avro"
    return replace(
        given,
        encoding="avro" if avro else check_encoding(given.value, given.encoding),
        batch_id=None if given.batch_id is None else _whole("batch_id", given.batch_id, 0),
        tasks=None if given.tasks is None else _whole("tasks", given.tasks, 1),
        ack_timeout=_seconds(given.ack_timeout),
        delivery=_one_of("delivery", given.delivery, "at-least-once", "idempotent"),
        stable_order=_flag("stable_order", given.stable_order),
        on_bad_row=_one_of("on_bad_row", given.on_bad_row, "fail", "skip", "dead_letter"),
    )


def _check_ids(protocol: str, given: WriteArguments) -> None:
    """
    Raises:
        InvalidArgument: arguments that do not go together.
    """
    if (given.on_bad_row == "dead_letter") != (given.dead_letter_topic is not None):
        raise InvalidArgument('on_bad_row="dead_letter" and dead_letter_topic= belong together')
    has_ids = given.id_property or given.delivery == "idempotent"
    if given.write_id and not has_ids:
        raise InvalidArgument(
            "write_id is the beginning of ids: name the property for them with id_property=, or use "
            'delivery="idempotent"'
        )
    if given.batch_id is not None and not given.write_id:
        raise InvalidArgument("batch_id needs write_id=, the name of the write in all batches")
    if given.tasks is not None and not has_ids:
        raise InvalidArgument(
            "tasks= is part of the ids of rows: name the property for them with id_property=, or use "
            'delivery="idempotent"'
        )
    if protocol == "tubemq" and any(sign in f"{given.id_property}{given.write_id}" for sign in ",="):
        raise InvalidArgument("TubeMQ attributes contain neither ',' nor '=': change id_property or write_id")


def _producer_options(protocol: str, producer: dict[str, Any], given: WriteArguments) -> dict[str, Any]:
    """The producer's options, with those that the arguments ask for.

    Raises:
        Unsupported: an option that a task's producer does not have, or that is in the way.
    """
    if producer.get("initial_sequence_id") is not None:
        # The broker would take the rows of a second write for repetitions of the first.
        raise Unsupported(
            "the Spark sink does not support 'initial_sequence_id': each task has a producer of its own, and "
            'its numbers would begin again with each write; use delivery="idempotent"'
        )
    if given.delivery == "idempotent":
        producer = _idempotent(protocol, producer)
    if protocol == "pulsar" and given.on_bad_row != "fail":
        # A partition that is not open does not know yet how large a message may be.
        producer["lazy_start"] = False
    return producer


def _is_one_topic(protocol: str, one: str, other: str) -> bool:
    if protocol == "pulsar" and one:
        return full_name(one) == full_name(other)
    return one == other


def check_order_is_stated(config: WriteConfig) -> None:
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


def check_write_is_named(config: WriteConfig) -> None:
    """For a write within the function of ``foreachBatch``, of which there may be several.

    Raises:
        InvalidArgument: the numbers of its rows could be those of another write.
    """
    if config.delivery == "idempotent" and not config.write_id:
        raise InvalidArgument(
            'delivery="idempotent" in foreachBatch needs write_id=, a name of this write: with one name, the '
            "rows of a second write in the same batch would count as sent"
        )


def check_tasks_are_given(config: WriteConfig) -> None:
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
