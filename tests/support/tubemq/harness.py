"""Servers that speak TubeMQ: the embedded broker and Apache InLong TubeMQ."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
import urllib.request
import uuid
from typing import Any

from support.certificates import Certificates
from support.scripts import ScriptedServer, free_port
from support.service import EmbeddedListener, Service
from support.waiting import PATIENCE

#: Topics that exist when the server starts, by (partitions, stores): a batch of later ones costs
#: two seconds.
POOL = {(1, 1): 24, (3, 1): 12, (2, 2): 4}


def _name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def group() -> str:
    """A consumer group of this test alone."""
    return f"g-{uuid.uuid4().hex[:12]}"


class TubeMqService(Service):
    """``url``, with certificates ``tls_url``, and ``address``: the masters in the Java client's notation."""

    address: str
    tls_url: str = ""
    certificates: Certificates | None = None

    def topic(self, partitions: int = 1, stores: int = 1) -> str:
        raise NotImplementedError

    def numbers(self, partitions: int, stores: int = 1) -> set[int]:
        """The numbers of the partitions of such a topic."""
        return {store * 10_000 + number for store in range(stores) for number in range(partitions)}

    @property
    def ports(self) -> list[int]:
        """The ports of the masters."""
        return [int(one.rsplit(":", 1)[1]) for one in self.address.split(",")]


class RealTubeMq(ScriptedServer, TubeMqService):
    """Masters and a broker of Apache InLong TubeMQ, downloaded once and started on free ports.

    Of several masters one is active and the others are standby. ``auth`` holds the words "produce", "consume"
    and "visit" for the operations that need credentials.
    """

    name = "tubemq"

    def __init__(
        self,
        *,
        masters: int = 1,
        tls: bool = False,
        auth: str = "",
        pool: dict[tuple[int, int], int] | None = None,
        consumer_timeout: float = 30.0,
        producer_timeout: float = 45.0,
        **variables: str,
    ) -> None:
        self.certificates = Certificates() if tls else None
        self.parts = [*(f"master{number + 1}" for number in range(masters)), "broker"]
        self._pool: dict[tuple[int, int], list[str]] = {
            shape: [_name() for _ in range(count)]
            for shape, count in (POOL if pool is None else pool).items()
        }

        def ports() -> str:
            return " ".join(str(free_port()) for _ in range(masters))

        own = {
            "MASTER_PORTS": ports(),
            "MASTER_WEB_PORTS": ports(),
            "MASTER_BDB_PORTS": ports(),
            "BROKER_PORT": str(free_port()),
            "BROKER_WEB_PORT": str(free_port()),
            "AUTH": auth,
            "CONSUMER_TIMEOUT_MS": str(int(consumer_timeout * 1000)),
            "PRODUCER_TIMEOUT_MS": str(int(producer_timeout * 1000)),
            "TOPICS": " ".join(
                f"{name}:{partitions}:{stores}"
                for (partitions, stores), names in self._pool.items()
                for name in names
            ),
        } | variables
        if self.certificates:
            own |= {
                "TLS": str(self.certificates.folder),
                "MASTER_TLS_PORTS": ports(),
                "BROKER_TLS_PORT": str(free_port()),
            }
        super().__init__(self.folder(), **own)

    def started(self, facts: dict[str, str]) -> None:
        self.address, self.broker = facts["masters"], facts["broker"]
        self.url = f"tubemq://{self.address}"
        if "tls_masters" in facts:
            self.tls_url = f"tubemq+ssl://{facts['tls_masters']}"
        self._webs, self._broker_web = facts["webs"].split(","), facts["broker_web"]

    def pid(self, part: str) -> int:
        return int((self.data / f"{part}.pid").read_text())

    def stop(self) -> None:
        # A test may have ended parts of it.
        self._discard()

    def remove(self) -> None:
        super().remove()
        if self.certificates:
            self.certificates.remove()

    # -- administration

    def topic(self, partitions: int = 1, stores: int = 1) -> str:
        """A topic of this test alone, of so many stores with so many partitions each."""
        pool = self._pool.setdefault((partitions, stores), [])
        if not pool:
            pool += [_name() for _ in range(8)]
            self.run("add-topic", *(f"{name}:{partitions}:{stores}" for name in pool), timeout=120)
        return pool.pop()

    def create_topic(self, topic: str, partitions: int) -> None:
        self.run("add-topic", f"{topic}:{partitions}", timeout=120)

    @staticmethod
    def _ask(address: str, page: str, words: dict[str, Any]) -> dict[str, Any]:
        query = urllib.parse.urlencode(words | {"confModAuthToken": "abc"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{address}/{page}?{query}", timeout=PATIENCE) as response:
            return json.loads(response.read())

    def ask(self, method: str, **words: Any) -> dict[str, Any]:
        """Queries the web API of the masters; the first result counts."""
        kind = "op_query" if method.startswith("admin_query") else "op_modify"
        answer: dict[str, Any] = {}
        for web in self._webs:
            with contextlib.suppress(OSError, ValueError):
                answer = self._ask(web, "webapi.htm", {"type": kind, "method": method} | words)
                if answer.get("result"):
                    return answer
        raise RuntimeError(f"{method}: {answer}")

    def ask_broker(self, method: str, **words: Any) -> dict[str, Any]:
        """Queries the web API of the broker."""
        answer = self._ask(self._broker_web, "broker.htm", {"method": method} | words)
        if not answer.get("result", answer.get("success")):
            raise RuntimeError(f"{method}: {answer}")
        return answer

    def offsets(self, group: str, topic: str) -> dict[int, dict[str, int]]:
        """By partition: ``curOffset`` is the group's position, ``offsetMax`` the end of the store."""
        answer = self.ask_broker("admin_query_offset", groupName=group, topicName=topic)
        return {
            int(one["partitionId"]): one
            for found in answer["dataSet"]
            for subscribed in found["subInfo"]
            for one in subscribed["offsets"]
        }

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition's store."""
        answer = self.ask_broker("admin_query_pubinfo", topicName=topic)
        return {
            one["partitionId"]: (one["offsetMin"], one["offsetMax"])
            for found in answer["dataSet"]
            for one in found["offsetInfo"]
        }

    def holders(self, group: str) -> dict[int, str]:
        """The member that holds each partition, in the broker's view."""
        answer = self.ask_broker("admin_query_broker_all_consumer_info", groupName=group)
        return {int(one["partitionId"]): one["consumerId"] for one in answer["dataSet"]}

    def members(self, group: str) -> list[dict[str, Any]]:
        """The members of the group, in the master's view."""
        answer = self.ask("admin_query_consume_group_detail", consumeGroup=group)
        return answer.get("data", [])

    def active(self) -> str:
        """The active master: "master1", ...; empty while there is none."""
        with contextlib.suppress(RuntimeError):
            for node in self.ask("admin_query_master_group_info")["data"]:
                if node["statusInfo"]["nodeStatus"] == "MASTER":
                    return node["name"]
        return ""


class EmbeddedTubeMq(EmbeddedListener, TubeMqService):
    """``forebay.Broker`` with a TubeMQ listener, in a process of its own."""

    port_options = ("tubemq_port",)

    def started(self) -> None:
        self.url = self.call("tubemq_url")
        self.address = self.broker = self.url.removeprefix("tubemq://")

    def topic(self, partitions: int = 1, stores: int = 1) -> str:
        name = _name()
        self.call("create_topic", f"tubemq:{name}", partitions * stores)
        return name

    def numbers(self, partitions: int, stores: int = 1) -> set[int]:
        """One store holds all partitions."""
        return set(range(partitions * stores))
