"""``penstock topic``: over the wire where the protocol can (ls, stats), in a store that nobody runs
(``--data``), or by the administration of a Pulsar (``--admin``)."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from penstock.errors import NotAllowed, TopicNotFound, Unsupported

from . import scopes

if TYPE_CHECKING:
    from penstock.options import BrokerOptions

_TUBEMQ = "tubemq:"
"""What names of TubeMQ's topics begin with in the store of the embedded broker."""
_WEB_API = "the master's web API (port 8080, /webapi.htm) lists, adds and deletes topics"


class _Place(Protocol):
    def ls(self, namespace: str) -> list[str]: ...
    def create(self, topic: str, partitions: int) -> None: ...
    def rm(self, topic: str) -> None: ...
    def stats(self, topic: str) -> dict[str, Any]: ...


def run(given: argparse.Namespace) -> int:
    """Lists, creates, deletes or inspects."""
    if given.data:
        from penstock.broker import Broker

        name = given.namespace if given.action == "ls" else given.topic
        # TubeMQ's topics are known to a broker that speaks it.
        wanted: BrokerOptions = {"data": given.data}
        if name.startswith(_TUBEMQ):
            wanted["tubemq_port"] = 0
        with Broker(**wanted) as broker:
            return _act(given, _Store(broker))
    from penstock import blocking, options

    protocol = options.protocol_of(options.split_url(given.url)[0])
    if given.admin:
        if protocol == "tubemq":
            raise Unsupported(f"--admin is of Pulsar; {_WEB_API}")
        return _act(given, _Admin(given.admin, scopes(given.options)["client"].get("token")))
    if protocol == "mqtt":
        raise Unsupported("MQTT cannot ask for topics: `penstock sub -t '#'` shows what is published")
    if protocol == "tubemq" and given.action != "stats":
        _refuse_tubemq(given)
    with blocking.connect(given.url, **scopes(given.options, protocol)["client"]) as client:
        return _act(given, _TubeWire(client) if protocol == "tubemq" else _Wire(client))


def _refuse_tubemq(given: argparse.Namespace) -> NoReturn:
    if given.action == "ls":
        verb, embedded = "list", "`penstock topic ls tubemq: --data DIR`"
    else:
        verb = "create" if given.action == "create" else "delete"
        name = given.topic.removeprefix(_TUBEMQ)
        more = f" -p {given.partitions or 1}" if given.action == "create" else ""
        embedded = f"`penstock topic {given.action} {_TUBEMQ}{name}{more} --data DIR`"
        if given.action == "create":
            embedded = f"`penstock broker --topic {_TUBEMQ}{name}={given.partitions or 1}` or {embedded}"
    raise Unsupported(
        f"TubeMQ's protocol cannot {verb} topics. Embedded broker: {embedded} while it is stopped. "
        f"Real server: {_WEB_API}"
    )


def _act(given: argparse.Namespace, place: _Place) -> int:
    if given.action == "ls":
        names = sorted(place.ls(given.namespace))
        print(json.dumps(names) if given.json else "\n".join(names))
    elif given.action == "create":
        place.create(given.topic, given.partitions)
        if given.json:
            print(json.dumps({"created": given.topic, "partitions": given.partitions}))
    elif given.action == "rm":
        place.rm(given.topic)
        if given.json:
            print(json.dumps({"deleted": given.topic}))
    else:
        stats = place.stats(given.topic)
        if given.json:
            print(json.dumps(stats, default=str))
        else:
            _show(stats)
    return 0


def _show(value: dict[str, Any], indent: str = "") -> None:
    for name, inner in value.items():
        if isinstance(inner, dict):
            print(f"{indent}{name}:")
            _show(inner, indent + "  ")  # pyright: ignore[reportUnknownArgumentType]
        else:
            print(f"{indent}{name}: {inner}")


def full_name(topic: str) -> str:
    """``persistent://tenant/namespace/topic`` of a short name."""
    if "://" in topic:
        return topic
    return f"persistent://{topic}" if topic.count("/") == 2 else f"persistent://public/default/{topic}"


class _Store:
    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def ls(self, namespace: str) -> list[str]:
        prefix = namespace if namespace.startswith(_TUBEMQ) else f"persistent://{namespace}/"
        return [name for name in self._broker.topics() if name.startswith(prefix)]

    def create(self, topic: str, partitions: int) -> None:
        self._broker.create_topic(topic, partitions)

    def rm(self, topic: str) -> None:
        self._broker.delete_topic(topic)

    def stats(self, topic: str) -> dict[str, Any]:
        return self._broker.topic_stats(topic)


class _Wire:
    def __init__(self, client: Any) -> None:
        self._client = client

    def ls(self, namespace: str) -> list[str]:
        return self._client.topics(namespace)

    def create(self, topic: str, partitions: int) -> None:
        raise Unsupported(
            "the protocol cannot create topics; a plain one comes into being on first use. Use --admin URL "
            "(Pulsar), --data DIR or `penstock broker --topic NAME=PARTITIONS` (embedded)"
        )

    def rm(self, topic: str) -> None:
        raise Unsupported(
            "the protocol cannot delete topics: use --admin URL (Pulsar) or --data DIR (embedded)"
        )

    def stats(self, topic: str) -> dict[str, Any]:
        partitions = self._client.partitions(topic)
        with self._client.reader(topic, position="latest") as reader:
            last = {str(last.partition): str(last) for last in reader.last_message_ids()}
        return {"topic": full_name(topic), "partitions": partitions, "last_message_ids": last}


class _TubeWire(_Wire):
    def stats(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "partitions": self._client.partitions(topic)}


class _Admin:
    def __init__(self, url: str, token: Any) -> None:
        from penstock.options import resolve

        self._url = url.rstrip("/")
        self._token = resolve("client", {"token": token}).get("token")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        import urllib.error
        import urllib.request

        request = urllib.request.Request(f"{self._url}/admin/v2/{path}", method=method)  # noqa: S310
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._token:
            token = self._token() if callable(self._token) else self._token
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            words = error.read().decode(errors="replace")[:256]
            kind = TopicNotFound if error.code == 404 else NotAllowed
            raise kind(f"{method} {path}: HTTP {error.code}", broker_text=words) from None
        return json.loads(text) if text else None

    @staticmethod
    def _path(topic: str) -> str:
        return full_name(topic).replace("://", "/")

    def _partitioned(self, topic: str) -> bool:
        return bool(self._call("GET", f"{self._path(topic)}/partitions")["partitions"])

    def ls(self, namespace: str) -> list[str]:
        names: list[str] = self._call("GET", f"persistent/{namespace}")
        return names

    def create(self, topic: str, partitions: int) -> None:
        if partitions:
            self._call("PUT", f"{self._path(topic)}/partitions", partitions)
        else:
            self._call("PUT", self._path(topic))

    def rm(self, topic: str) -> None:
        suffix = "/partitions" if self._partitioned(topic) else ""
        self._call("DELETE", f"{self._path(topic)}{suffix}?force=true")

    def stats(self, topic: str) -> dict[str, Any]:
        kind = "partitioned-stats?perPartition=false" if self._partitioned(topic) else "stats"
        stats: dict[str, Any] = self._call("GET", f"{self._path(topic)}/{kind}")
        return stats
