"""Servers that speak Pulsar: the embedded broker and Apache Pulsar."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.scripts import ScriptedServer, free_port
from support.service import EmbeddedBroker, Service
from support.waiting import eventually

PORTS = ("PORT", "WEB_PORT", "TLS_PORT", "WEB_TLS_PORT", "BOOKIE_PORT")


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class PulsarService(Service):
    """A Pulsar broker with its administration."""

    @property
    def admin(self) -> str:
        """The URL of its web service."""
        raise NotImplementedError

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Asks the web service; an error is an answer, too."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.admin}/{path}", data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def topic(self, partitions: int = 0) -> str:
        """A topic of this test alone. Without partitions it is created by its first use."""
        topic = f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"
        if partitions:
            self.create_topic(topic, partitions)
        return topic

    def create_topic(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions until there are as many."""
        raise NotImplementedError

    def delete_topic(self, topic: str, *, partitioned: bool = False) -> None:
        raise NotImplementedError

    def terminate_topic(self, topic: str) -> None:
        raise NotImplementedError

    def subscriptions(self, topic: str) -> dict[str, dict[str, Any]]:
        """The broker's figures of the topic's subscriptions, by their names."""
        raise NotImplementedError

    def backlog(self, topic: str, subscription: str) -> int:
        """Messages that the subscription has not acknowledged."""
        figures = self.subscriptions(topic)[subscription]
        return figures["backlog"] if "backlog" in figures else figures["msgBacklog"]


class EmbeddedPulsar(EmbeddedBroker, PulsarService):
    """``forebay.Broker`` in a process of its own; with ``http_port=0`` it has an administration."""

    @property
    def admin(self) -> str:
        return self.call("http_url")

    def create_topic(self, topic: str, partitions: int) -> None:
        self.call("create_topic", topic, partitions)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.call("grow_topic", topic, partitions)

    def delete_topic(self, topic: str, *, partitioned: bool = False) -> None:
        self.call("delete_topic", topic)

    def terminate_topic(self, topic: str) -> None:
        self.call("terminate_topic", topic)

    def subscriptions(self, topic: str) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.call("topic_stats", topic)["subscriptions"]}


class RealPulsar(ScriptedServer, PulsarService):
    """Apache Pulsar standalone, downloaded once and started on free ports.

    With ``url`` and ``admin`` it is a server that already runs, which is not stopped.
    """

    name = "pulsar"
    start_timeout = 900
    stop_by_kill = False

    def __init__(self, *, secure: bool = False, url: str | None = None, admin: str | None = None) -> None:
        self.secure = secure
        self.is_ours = not (url and admin)
        if url and admin:
            self.url, self._admin = url, admin
        else:
            ports = {name: str(free_port()) for name in PORTS}
            super().__init__(self.folder(), SECURE="1" if secure else "0", **ports)

    def started(self, facts: dict[str, str]) -> None:
        self.url, self._admin = facts["service_url"], facts["admin_url"]

    @property
    def admin(self) -> str:
        return self._admin

    def stop(self) -> None:
        if self.is_ours:
            super().stop()

    # -- the secure server

    def _secret(self, name: str) -> Path:
        return self.data / "secure" / name

    @property
    def ca(self) -> Path:
        return self._secret("ca.crt")

    def token(self, role: str) -> str:
        return self._secret(f"{role}.token").read_text().strip()

    # -- administration

    def rest(self, method: str, path: str, body: object = None, *, timeout: float = 120) -> Any:
        headers = {"Content-Type": "application/json"}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.secure:
            headers["Authorization"] = f"Bearer {self.token('admin')}"
            context = ssl.create_default_context(cafile=str(self.ca))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.admin}/admin/v2/{path}", data, headers, method=method)
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as response:
            text = response.read()
        return json.loads(text) if text else None

    @staticmethod
    def path(topic: str) -> str:
        return topic.replace("://", "/")

    def create_topic(self, topic: str, partitions: int) -> None:
        if partitions:
            until = time.monotonic() + 30
            while True:
                try:
                    self.rest("PUT", f"{self.path(topic)}/partitions", partitions)
                    return
                except urllib.error.HTTPError as error:
                    if error.code != 409 or time.monotonic() > until:
                        raise
                # A consumer that has not heard of the end of a topic subscribes to a partition of
                # it, which makes that again. It is given time for that, since Pulsar keeps what is
                # deleted while it is opened.
                time.sleep(0.5)
                for partition in range(partitions):
                    with contextlib.suppress(urllib.error.HTTPError):
                        self.delete_topic(f"{topic}-partition-{partition}")
        else:
            self.rest("PUT", self.path(topic))

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.rest("POST", f"{self.path(topic)}/partitions", partitions)

    def delete_topic(self, topic: str, *, partitioned: bool = False) -> None:
        suffix = "/partitions" if partitioned else ""
        self.rest("DELETE", f"{self.path(topic)}{suffix}?force=true")

    def terminate_topic(self, topic: str) -> None:
        partitioned = self.rest("GET", f"{self.path(topic)}/partitions")["partitions"]
        self.rest("POST", f"{self.path(topic)}/terminate{'/partitions' if partitioned else ''}")

    def subscriptions(self, topic: str) -> dict[str, dict[str, Any]]:
        return self.rest("GET", f"{self.path(topic)}/stats")["subscriptions"]

    def drop_repetitions(self, topic: str, partitions: int = 0) -> None:
        """Enables deduplication for a topic, and waits until it has begun in each partition."""
        self.rest("POST", f"{self.path(topic)}/deduplicationEnabled", True)
        for part in [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]:
            stats = f"{self.path(part)}/stats"
            eventually(lambda: self.rest("GET", stats)["deduplicationStatus"] == "Enabled")  # noqa: B023

    def unload(self, topic: str) -> None:
        """Closes the topic in the broker: its clients must look it up and open it again."""
        self.rest("PUT", f"{self.path(topic)}/unload")
