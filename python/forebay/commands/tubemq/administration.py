"""The web service of TubeMQ's master, ``/webapi.htm``, which the embedded broker has, too."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, cast

from forebay import parse
from forebay.commands._shared.web import Web
from forebay.errors import (
    Error,
    InvalidArgument,
    NotAllowed,
    PersistenceError,
    ProtocolError,
    QuotaExceeded,
    TopicNotFound,
    UnknownError,
    Unsupported,
)

from .topic import NO_END, PREFIX

DELIVERED = "abc"
"""``confModAuthToken`` of a master that keeps the one of TubeMQ's sample configuration."""
_USER = "forebay"
"""The user that the service notes for changes."""
_DONE = (0, 200)
_UNCHANGED = 403
_SOFT_DELETED = 1
_ERRORS: dict[int, type[Error]] = {
    400: InvalidArgument,
    401: TopicNotFound,
    402: NotAllowed,
    405: QuotaExceeded,
    406: NotAllowed,
    407: InvalidArgument,
    501: PersistenceError,
}
Body = dict[str, Any]


class Administration:
    """Requests about topics, whose names begin with ``tubemq:``.

    Args:
        web: the web service.
        given: the parsed arguments of ``forebay topic``.

    Raises:
        InvalidArgument: an argument that TubeMQ does not have.
        Unsupported: an action that TubeMQ does not have.
    """

    def __init__(self, web: Web, given: argparse.Namespace) -> None:
        self._web = web
        if given.action == "terminate":
            raise Unsupported(NO_END.format(given.topic))
        name: str = given.namespace if given.action == "ls" else given.topic
        if given.action == "ls" and name != PREFIX:
            raise InvalidArgument(f"TubeMQ has no namespaces: {PREFIX} lists all topics, not {name!r}")
        if given.action != "ls" and not name.removeprefix(PREFIX):
            raise InvalidArgument(f"{name!r} names no topic of TubeMQ: {PREFIX}NAME")
        if (count := getattr(given, "partitions", 0)) < 0:
            raise InvalidArgument(f"-p is a number of partitions, not {count}")
        self._token = _token(getattr(given, "change_token", None))

    def ls(self, namespace: str) -> list[str]:
        """Names of the topics, with the prefix."""
        return [f"{PREFIX}{one['topicName']}" for one in self._query("admin_query_topic_info")]

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic on each broker of the master.

        Args:
            topic: its name, with the prefix.
            partitions: on each broker; 0 for as many as a broker is set to.
        """
        brokers = [one["brokerId"] for one in self._query("admin_query_broker_configure")]
        if not brokers:
            raise NotAllowed("the master has no brokers on which a topic could be", topic=topic)
        words: Body = {"createUser": _USER}
        if partitions:
            words["numPartitions"] = partitions
        self._change("admin_add_new_topic_record", topic, brokers, words)
        self._reload(brokers)

    def rm(self, topic: str) -> None:
        """Deletes a topic with its messages on all of its brokers. One that is in use is closed before."""
        where = self._where(topic)
        brokers = list(where)
        # An earlier attempt may have got as far as this.
        open_ = [broker for broker, status in where.items() if status != _SOFT_DELETED]
        if open_:
            closed = {"acceptPublish": "false", "acceptSubscribe": "false"}
            self._change("admin_modify_topic_info", topic, open_, closed, also=_UNCHANGED)
            self._change("admin_delete_topic_info", topic, open_, {})
        self._change("admin_remove_topic_info", topic, brokers, {})
        self._reload(brokers)

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions on each broker of a topic, up to this number."""
        brokers = list(self._where(topic))
        self._change("admin_modify_topic_info", topic, brokers, {"numPartitions": partitions})
        self._reload(brokers)

    def terminate(self, topic: str) -> None:
        """Refuses.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(NO_END.format(topic))

    def stats(self, topic: str) -> Body:
        """The settings and the state of a topic, of each of its brokers and in all."""
        return self._topic(topic)

    # -- asking

    def _topic(self, topic: str) -> Body:
        name = topic.removeprefix(PREFIX)
        for one in self._query("admin_query_topic_info", topicName=name):
            if one.get("topicName") == name:
                return one
        raise TopicNotFound("the master does not know this topic", topic=topic)

    def _where(self, topic: str) -> dict[int, int]:
        """The brokers that have a topic, with its status there."""
        return {one["brokerId"]: one["topicStatusId"] for one in self._topic(topic)["topicInfo"]}

    def _query(self, method: str, **words: Any) -> list[Body]:
        return self._ask("op_query", method, words)

    def _reload(self, brokers: Iterable[int]) -> None:
        """Has brokers load the changes."""
        words = {"brokerId": _listed(brokers), "modifyUser": _USER, "confModAuthToken": self._token}
        for one in self._ask("op_modify", "admin_reload_broker_configure", words):
            _check(one, None)

    def _change(
        self, method: str, topic: str, brokers: Iterable[int], words: Body, also: int | None = None
    ) -> None:
        """Changes a topic on brokers.

        Args:
            method: of the web service.
            topic: its name.
            brokers: their ids.
            words: parameters of the method.
            also: a code that means success as well.
        """
        words = {"topicName": topic.removeprefix(PREFIX), "brokerId": _listed(brokers), **words}
        words |= {"modifyUser": _USER, "confModAuthToken": self._token}
        for one in self._ask("op_modify", method, words, topic):
            _check(one, topic, also)

    def _ask(self, kind: str, method: str, words: Body, topic: str | None = None) -> list[Body]:
        form = {"type": kind, "method": method, **words}
        try:
            answer = self._web.ask("POST", ["webapi.htm"], form=form, topic=topic, errors={404: Unsupported})
        except Unsupported as error:
            raise Unsupported(
                f"{error.message}: this is neither the web service of a TubeMQ master nor that of an embedded"
                " broker with --tubemq-port"
            ) from None
        said: Any = answer.json()
        if not isinstance(said, dict) or "result" not in said:
            raise ProtocolError(f"the answer of {answer.url} is not one of TubeMQ's master")
        found = cast("Body", said)
        if not found["result"]:
            _check(found, topic)
        return cast("list[Body]", found.get("data") or [])


def _check(said: Body, topic: str | None, also: int | None = None) -> None:
    """Raises the error that an answer tells of, if it does."""
    code = said.get("errCode")
    if code in _DONE or (also is not None and code == also):
        return
    kind = _ERRORS.get(cast("int", code), UnknownError)
    text = str(said.get("errInfo") or said.get("errMsg") or "no reason")
    raise kind(f"the master refuses it with the code {code}", topic=topic, broker_text=text)


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _token(given: str | None) -> str:
    if given is None:
        return DELIVERED
    if not given.startswith(("file:", "env:")):
        raise InvalidArgument(
            "--change-token does not take the token itself, which every user of this machine can see: use"
            " file:PATH or env:NAME"
        )
    try:
        value = parse.secret(given)
        return str(value() if callable(value) else value)
    except ValueError as error:
        raise InvalidArgument(f"--change-token: {error}") from None
