"""The administration of a Pulsar over HTTP, ``/admin/v2``, which the embedded broker has, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

from forebay.commands._shared.failed import Failed
from forebay.commands._shared.web import Answer, Web
from forebay.errors import (
    Error,
    IncompatibleSchema,
    InvalidArgument,
    NotAllowed,
    SubscriptionNotFound,
    TopicNotFound,
)
from forebay.pulsar._positions import full_name

from .ids import message_id

Body = dict[str, Any]
Method = Literal["GET", "PUT", "POST", "DELETE"]
_LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
_EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


class Administration:
    """Requests about topics, subscriptions and schemas. Topics may have short names.

    Args:
        web: the web service.
    """

    def __init__(self, web: Web) -> None:
        self._web = web

    # -- topics

    def ls(self, namespace: str, domain: str = "persistent") -> list[str]:
        """Full names of the topics of a namespace, without its partitioned ones, whose partitions are
        listed."""
        tenant, name = _namespace(namespace)
        return self._list("GET", [domain, tenant, name])

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic; with partitions, if there are to be any."""
        if partitions:
            self._topic("PUT", topic, "partitions", body=partitions)
        else:
            self._topic("PUT", topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions, up to this number."""
        self._topic("POST", topic, "partitions", body=partitions)

    def rm(self, topic: str, *, force: bool = False) -> None:
        """Deletes a topic with its partitions."""
        parts = ["partitions"] if self.partitions(topic) else []
        self._topic("DELETE", topic, *parts, query={"force": force})

    def partitions(self, topic: str) -> int:
        """Number of partitions; 0 if the topic has none or does not exist."""
        return int(self._topic("GET", topic, "partitions").json()["partitions"])

    def stats(self, topic: str) -> Body:
        """Figures, of a partitioned topic the sums."""
        if self.partitions(topic):
            return self._topic("GET", topic, "partitioned-stats", query={"perPartition": False}).json()
        return self._topic("GET", topic, "stats").json()

    def internal_stats(self, topic: str) -> Body:
        """Figures of the storage of a topic."""
        kind = "partitioned-internalStats" if self.partitions(topic) else "internalStats"
        return self._topic("GET", topic, kind).json()

    def terminate(self, topic: str) -> None:
        """Ends a topic for good."""
        parts = ["terminate", "partitions"] if self.partitions(topic) else ["terminate"]
        self._topic("POST", topic, *parts)

    # -- subscriptions

    def subscriptions(self, topic: str) -> list[str]:
        """Names of the subscriptions of a topic."""
        return sorted(self._topic("GET", topic, "subscriptions").json())

    def create_subscription(self, topic: str, name: str, position: str) -> None:
        """Creates a subscription at ``earliest``, ``latest`` or a message id."""
        self._subscription("PUT", topic, name, body=_body_of(position))

    def delete_subscription(self, topic: str, name: str, *, force: bool = False) -> None:
        """Deletes a subscription."""
        self._subscription("DELETE", topic, name, query={"force": force})

    def skip(self, topic: str, name: str, count: int) -> None:
        """Skips the next messages or batches."""
        self._refuse_partitioned(topic, "messages are skipped by number")
        self._subscription("POST", topic, name, "skip", str(count))

    def clear(self, topic: str, name: str) -> None:
        """Skips all messages."""
        self._subscription("POST", topic, name, "skip_all")

    def expire(self, topic: str, name: str | None, seconds: int) -> None:
        """Skips the messages that are older.

        Args:
            topic: the topic.
            name: of the subscription; ``None`` for all.
            seconds: age from which a message is skipped.
        """
        if name is None:
            self._topic("POST", topic, "all_subscription", "expireMessages", str(seconds))
        else:
            self._subscription("POST", topic, name, "expireMessages", str(seconds))

    def reset_to_time(self, topic: str, name: str, time: int) -> None:
        """Moves a subscription to the first message of a time, in milliseconds since 1970."""
        self._subscription("POST", topic, name, "resetcursor", str(time))

    def reset_to_id(self, topic: str, name: str, position: str, *, after: bool = False) -> None:
        """Moves a subscription to ``earliest``, ``latest`` or a message id, or behind that.

        Raises:
            Failed: an id, but the topic has partitions and the id does not say which.
        """
        # An id is one of a partition.
        if position in ("earliest", "latest"):
            targets = self.parts(topic)
        else:
            targets = [self._part_of(topic, position)]
        for target in targets:
            # The first name is the one of Pulsar's own clients, the second that of its
            # documentation.
            body = {**_body_of(position), "excluded": after}
            self._subscription("POST", target, name, "resetcursor", body=body)

    def position(self, topic: str, name: str, at: int) -> Answer:
        """The n-th message or batch that a subscription has not acknowledged, counted from 1."""
        return self._subscription("GET", topic, name, "position", str(at))

    def parts(self, topic: str) -> list[str]:
        """The partitions of a topic, or the topic itself."""
        count = self.partitions(topic)
        full = full_name(topic)
        return [f"{full}-partition-{number}" for number in range(count)] or [full]

    def _part_of(self, topic: str, position: str) -> str:
        count = self.partitions(topic)
        partition = message_id(position).partition
        if not count:
            return topic
        if not 0 <= partition < count:
            raise Failed(
                f"{topic} has {count} partitions, and the id {position} does not say which: name the"
                f" partition, {topic}-partition-N"
            )
        return f"{full_name(topic)}-partition-{partition}"

    def _refuse_partitioned(self, topic: str, what: str) -> None:
        if count := self.partitions(topic):
            raise NotAllowed(
                f"{what} of one partition only, and {topic} has {count}: name one, {topic}-partition-0"
            )

    # -- schemas

    def schema(self, topic: str, version: int | None = None) -> Body:
        """A schema of a topic, the newest by default."""
        return self._schemas("GET", topic, "schema", *([] if version is None else [str(version)])).json()

    def schemas(self, topic: str) -> list[Body]:
        """All schemas of a topic, the oldest first."""
        answer: Any = self._schemas("GET", topic, "schemas").json()
        return cast("list[Body]", answer["getSchemaResponses"] if isinstance(answer, dict) else answer)

    def put_schema(self, topic: str, schema: Body) -> Body:
        """Adds a schema; gives its version."""
        return self._schemas("POST", topic, "schema", body=schema).json()

    def delete_schema(self, topic: str) -> None:
        """Deletes all schemas of a topic."""
        self._schemas("DELETE", topic, "schema")

    # -- the cluster

    def clusters(self) -> list[str]:
        """Names of the clusters."""
        return self._list("GET", ["clusters"])

    def tenants(self) -> list[str]:
        """Names of the tenants."""
        return self._list("GET", ["tenants"])

    def namespaces(self, tenant: str) -> list[str]:
        """Namespaces of a tenant, as ``TENANT/NAMESPACE``."""
        return self._list("GET", ["namespaces", tenant])

    # -- asking

    def _list(self, method: Method, path: Sequence[str]) -> list[str]:
        return sorted(self._web.ask(method, ["admin", "v2", *path]).json())

    def _topic(self, method: Method, topic: str, *more: str, **rest: Any) -> Answer:
        domain, _, name = full_name(topic).partition("://")
        path = ["admin", "v2", domain, *_parts_of(name), *more]
        return self._web.ask(method, path, **rest, errors={404: TopicNotFound}, topic=topic)

    def _subscription(self, method: Method, topic: str, name: str, *more: str, **rest: Any) -> Answer:
        try:
            return self._topic(method, topic, "subscription", name, *more, **rest)
        except TopicNotFound as error:
            # The status is the same.
            said = error.broker_text or ""
            if not said.startswith("Subscription"):
                raise
            raise SubscriptionNotFound(error.message, topic=topic, broker_text=said) from None

    def _schemas(self, method: Method, topic: str, *more: str, **rest: Any) -> Answer:
        path = ["admin", "v2", "schemas", *_parts_of(full_name(topic).partition("://")[2]), *more]
        errors: dict[int, type[Error]] = {404: TopicNotFound, 409: IncompatibleSchema}
        return self._web.ask(method, path, **rest, errors=errors, topic=topic)


def unacknowledged(asked: Administration, topic: str, name: str, count: int) -> Iterator[tuple[str, Answer]]:
    """The first messages or batches of each partition that a subscription has not acknowledged, with the
    partition.

    Raises:
        SubscriptionNotFound: there is no such subscription.
    """
    # Asked first: for one that does not exist Pulsar shows the beginning of the topic.
    if name not in asked.subscriptions(topic):
        raise SubscriptionNotFound(f"there is no subscription {name!r}", topic=topic)
    for part in asked.parts(topic):
        with contextlib.suppress(TopicNotFound):
            for at in range(1, count + 1):
                yield part, asked.position(part, name, at)


def _body_of(position: str) -> Body:
    """A position as the administration takes it."""
    if position == "earliest":
        return dict(_EARLIEST)
    if position == "latest":
        return dict(_LATEST)
    id = message_id(position)
    return {"ledgerId": id.ledger, "entryId": id.entry, "partitionIndex": id.partition}


def _parts_of(name: str) -> list[str]:
    """Tenant, namespace and topic.

    Raises:
        InvalidArgument: the name has other parts.
    """
    parts = name.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise InvalidArgument(
            f"{name!r} is not the name of a topic: TOPIC, TENANT/NAMESPACE/TOPIC or persistent://..."
        )
    return parts


def _namespace(name: str) -> tuple[str, str]:
    tenant, slash, namespace = name.partition("/")
    if not (slash and tenant and namespace) or "/" in namespace:
        raise InvalidArgument(f"{name!r} is not a namespace, which is TENANT/NAMESPACE")
    return tenant, namespace
