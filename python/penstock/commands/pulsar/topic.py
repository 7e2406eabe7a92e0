"""``penstock topic`` with a Pulsar URL: over the wire where the protocol allows it (``ls`` and ``stats``), or
through the administration of a Pulsar (``--admin``)."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Generator
from typing import Any

from penstock.commands._shared import topic as shared
from penstock.commands._shared.options import scopes
from penstock.errors import NotAllowed, TopicNotFound, Unsupported
from penstock.pulsar import blocking


def run(given: argparse.Namespace) -> int:
    """Lists, creates, deletes or inspects."""
    return shared.run(given, _broker)


@contextlib.contextmanager
def _broker(given: argparse.Namespace) -> Generator[shared.Place, None, None]:
    options = scopes(given.options, "pulsar")["client"]
    if given.admin:
        yield _Admin(given.admin, options.get("token"))
    else:
        with blocking.connect(given.url, **options) as client:
            yield _Wire(client)


def full_name(topic: str) -> str:
    """The full name, ``persistent://tenant/namespace/topic``, of a short one."""
    if "://" in topic:
        return topic
    return f"persistent://{topic}" if topic.count("/") == 2 else f"persistent://public/default/{topic}"


class _Wire:
    def __init__(self, client: blocking.PulsarClient) -> None:
        self._client = client

    def ls(self, namespace: str) -> list[str]:
        return self._client.topics(namespace)

    def create(self, topic: str, partitions: int) -> None:
        raise Unsupported(
            "Pulsar's protocol cannot create topics, except plain ones on first use. Use --admin URL "
            "(Pulsar), --data DIR or `penstock broker --topic NAME=PARTITIONS` (embedded broker)"
        )

    def rm(self, topic: str) -> None:
        raise Unsupported(
            "Pulsar's protocol cannot delete topics: use --admin URL (Pulsar) or --data DIR (embedded broker)"
        )

    def grow(self, topic: str, partitions: int) -> None:
        raise Unsupported(
            "Pulsar's protocol cannot add partitions: use --admin URL (Pulsar) or --data DIR (embedded"
            " broker)"
        )

    def terminate(self, topic: str) -> None:
        raise Unsupported(
            "Pulsar's protocol cannot terminate topics: use --admin URL (Pulsar) or --data DIR (embedded"
            " broker)"
        )

    def stats(self, topic: str) -> dict[str, Any]:
        partitions = self._client.partitions(topic)
        with self._client.reader(topic, position="latest") as reader:
            last = {str(last.partition): str(last) for last in reader.last_message_ids()}
        return {"topic": full_name(topic), "partitions": partitions, "last_message_ids": last}


class _Admin:
    """The REST administration of a Pulsar."""

    def __init__(self, url: str, token: Any) -> None:
        from penstock.protocols import resolve

        self._url = url.rstrip("/")
        self._token = resolve("pulsar.client", {"token": token}).get("token")

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

    def grow(self, topic: str, partitions: int) -> None:
        self._call("POST", f"{self._path(topic)}/partitions", partitions)

    def terminate(self, topic: str) -> None:
        suffix = "/terminate/partitions" if self._partitioned(topic) else "/terminate"
        self._call("POST", f"{self._path(topic)}{suffix}")

    def stats(self, topic: str) -> dict[str, Any]:
        kind = "partitioned-stats?perPartition=false" if self._partitioned(topic) else "stats"
        stats: dict[str, Any] = self._call("GET", f"{self._path(topic)}/{kind}")
        return stats
