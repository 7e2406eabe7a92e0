"""The real TubeMQ and its official Java client, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness import HERE, EmbeddedBroker, Service, facts_of, free_port, run_script
from mqtt_harness import Certificates

TUBEMQ = HERE / "brokers" / "tubemq"
#: Topics are made before the broker starts: each batch of later ones costs two seconds.
POOL = {(1, 1): 24, (3, 1): 12, (2, 2): 4}


def _name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def group() -> str:
    """A consumer group that no other test uses."""
    return f"g-{uuid.uuid4().hex[:12]}"


class TubeService(Service):
    """``url`` and, with certificates, ``tls_url``; ``address``: the masters as the Java client takes them."""

    address: str
    tls_url: str = ""
    certificates: Certificates | None = None

    def topic(self, partitions: int = 1, stores: int = 1) -> str:
        raise NotImplementedError

    def numbers(self, partitions: int, stores: int = 1) -> set[int]:
        """The numbers of the partitions of such a topic."""
        return {store * 10_000 + number for store in range(stores) for number in range(partitions)}

    def stop(self) -> None:
        raise NotImplementedError

    @property
    def ports(self) -> list[int]:
        """Of the masters."""
        return [int(one.rsplit(":", 1)[1]) for one in self.address.split(",")]


class RealTubeMQ(TubeService):
    """Master and broker of Apache InLong TubeMQ, fetched once and started on free ports. With more masters
    than one, one is active and the others are standby. ``auth`` holds words: "produce", "consume", "visit".
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
        self.data = Path(tempfile.mkdtemp(prefix="penstock-tubemq-"))
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
            "WATCH_PID": str(os.getpid()),
        } | variables
        if self.certificates:
            own |= {
                "TLS": str(self.certificates.folder),
                "MASTER_TLS_PORTS": ports(),
                "BROKER_TLS_PORT": str(free_port()),
            }
        self._environment = os.environ | {f"TUBEMQ_{name}": value for name, value in own.items()}
        try:
            self.start()
        except BaseException:
            self._remove()
            raise

    def _run(self, script: str, *arguments: str, timeout: float, **more: str) -> str:
        """What the script says."""
        words = (str(TUBEMQ / script), str(self.data), *arguments)
        return run_script(*words, environment=self._environment | more, timeout=timeout)

    def start(self, *parts: str) -> None:
        """Starts all of it or these parts; the same ports and data when they were stopped."""
        facts = facts_of(self._run("start-tubemq", *parts, timeout=600))
        self.address, self.broker = facts["masters"], facts["broker"]
        self.url = f"tubemq://{self.address}"
        if "tls_masters" in facts:
            self.tls_url = f"tubemq+ssl://{facts['tls_masters']}"
        self._webs, self._broker_web = facts["webs"].split(","), facts["broker_web"]

    def halt(self, *parts: str, kill: bool = False) -> None:
        """Ends all of it or these parts ("broker", "master1", ...) and keeps the data."""
        more = {"TUBEMQ_STOP_TIMEOUT": "0"} if kill else {}
        self._run("stop-tubemq", *parts, timeout=120, **more)

    def restart(self, *parts: str, kill: bool = False) -> None:
        self.halt(*parts, kill=kill)
        self.start(*parts)

    def pid(self, part: str) -> int:
        return int((self.data / f"{part}.pid").read_text())

    def log(self, part: str) -> str:
        return (self.data / f"{part}.log").read_text(errors="replace")

    def _remove(self) -> None:
        with contextlib.suppress(RuntimeError, subprocess.SubprocessError):
            # Nobody reads the data after this: there is nothing to wait for.
            self.halt(kill=True)
        shutil.rmtree(self.data, ignore_errors=True)
        if self.certificates:
            self.certificates.remove()

    def stop(self) -> None:
        self._remove()

    def stores(self) -> dict[str, str]:
        """What the Java client needs for mutual TLS."""
        return {
            "trust_store": str(self.data / "tls" / "trust"),
            "key_store": str(self.data / "tls" / "client"),
        }

    # -- administration

    def topic(self, partitions: int = 1, stores: int = 1) -> str:
        """A topic of that many stores with that many partitions each that no other test uses."""
        pool = self._pool.setdefault((partitions, stores), [])
        if not pool:
            pool += [_name() for _ in range(8)]
            self._run("add-topic", *(f"{name}:{partitions}:{stores}" for name in pool), timeout=120)
        return pool.pop()

    def create_topic(self, topic: str, partitions: int) -> None:
        self._run("add-topic", f"{topic}:{partitions}", timeout=120)

    @staticmethod
    def _ask(address: str, page: str, words: dict[str, Any]) -> dict[str, Any]:
        query = urllib.parse.urlencode(words | {"confModAuthToken": "abc"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{address}/{page}?{query}", timeout=10) as response:
            return json.loads(response.read())

    def ask(self, method: str, **words: Any) -> dict[str, Any]:
        """A query of the web API of a master: the first that answers with a result."""
        kind = "op_query" if method.startswith("admin_query") else "op_modify"
        answer: dict[str, Any] = {}
        for web in self._webs:
            with contextlib.suppress(OSError, ValueError):
                answer = self._ask(web, "webapi.htm", {"type": kind, "method": method} | words)
                if answer.get("result"):
                    return answer
        raise RuntimeError(f"{method}: {answer}")

    def ask_broker(self, method: str, **words: Any) -> dict[str, Any]:
        """A query of the web API of the broker."""
        answer = self._ask(self._broker_web, "broker.htm", {"method": method} | words)
        if not answer.get("result", answer.get("success")):
            raise RuntimeError(f"{method}: {answer}")
        return answer

    def offsets(self, group: str, topic: str) -> dict[int, dict[str, int]]:
        """Of each partition: ``curOffset`` is where the group is, ``offsetMax`` the end of the store."""
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
        """Which member has which partition, as the broker has it."""
        answer = self.ask_broker("admin_query_broker_all_consumer_info", groupName=group)
        return {int(one["partitionId"]): one["consumerId"] for one in answer["dataSet"]}

    def members(self, group: str) -> list[dict[str, Any]]:
        """Who is in the group, as the master has it."""
        answer = self.ask("admin_query_consume_group_detail", consumeGroup=group)
        return answer.get("data", [])

    def active(self) -> str:
        """Which master is active: "master1", ..."""
        for node in self.ask("admin_query_master_group_info")["data"]:
            if node["statusInfo"]["nodeStatus"] == "MASTER":
                return node["name"]
        raise RuntimeError("no master is active")


class EmbeddedTubeMQ(TubeService):
    """``penstock.Broker`` with a TubeMQ listener, in a process of its own."""

    name = "embedded"

    def __init__(self, **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-embedded-"))
        defaults = {"durability": "memory", "tubemq_port": free_port()}
        self._options: dict[str, Any] = defaults | options
        if self._options.get("data") is True:
            self._options["data"] = str(self.folder / "data")
            self._options["durability"] = options.get("durability", "fsync")
        self.start()

    def start(self) -> None:
        self._process = EmbeddedBroker(**self._options)
        self.url = self._process.call("tubemq_url")
        self.address = self.broker = self.url.removeprefix("tubemq://")

    @property
    def pid(self) -> int:
        return self._process.process.pid

    def call(self, method: str, *arguments: Any) -> Any:
        return self._process.call(method, *arguments)

    def topic(self, partitions: int = 1, stores: int = 1) -> str:
        name = _name()
        self.call("create_topic", f"tubemq:{name}", partitions * stores)
        return name

    def numbers(self, partitions: int, stores: int = 1) -> set[int]:
        """It has one store for all of them."""
        return set(range(partitions * stores))

    def halt(self, *, kill: bool = False) -> None:
        if kill:
            self._process.process.kill()
            self._process.process.wait()
        self._process.stop()

    def restart(self, *, kill: bool = False) -> None:
        self.halt(kill=kill)
        self.start()

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)


# ------------------------------------------------------------------------------ the Java client


class Refused(Exception):
    """The Java client raised something, in its own words."""


@dataclass
class Seen:
    """A message as the Java client received it."""

    topic: str
    data: bytes
    partition: str
    offset: int
    message_id: int
    type: str | None = None
    time: str | None = None
    #: As the wire has them, system attributes and all.
    attributes: dict[str, str] = field(default_factory=dict)


def _seen(one: dict[str, Any]) -> Seen:
    text = one.get("attributes") or ""
    return Seen(
        one["topic"],
        bytes.fromhex(one["data"]),
        one["partition"],
        one["offset"],
        one["message_id"],
        one.get("type"),
        one.get("time"),
        dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair),
    )


class Java:
    """The official Java client in a process of its own; any number of producers and consumers in it. Ended by
    ``kill`` none of them says goodbye."""

    def __init__(self, *options: str) -> None:
        classpath = run_script(str(TUBEMQ / "fetch-tubemq"), timeout=600).strip()
        self._errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [
                *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
                *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
                *("-Dio.netty.tryReflectionSetAccessible=true", "-Dtubemq.log.level=error"),
                f"-Dlog4j.configurationFile={TUBEMQ / 'log4j2.xml'}",
                *options,
                *("-cp", classpath, "Peer"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )
        self._handles = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def call(self, handle: str, verb: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([handle, verb, *arguments]) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java client ended with {self.process.wait(10)}: {self.errors[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer.get("ok")

    def usage(self) -> dict[str, float]:
        """``cpu`` in seconds, ``rss`` in bytes."""
        return self.call("", "usage")

    def _open(self, kind: str, service: TubeService | str, options: dict[str, Any]) -> str:
        self._handles += 1
        handle = f"{kind}{self._handles}"
        masters = service if isinstance(service, str) else service.address
        self.call(handle, kind, {"masters": masters} | options)
        return handle

    def producer(self, service: TubeService | str, *topics: str, **options: Any) -> JavaProducer:
        producer = JavaProducer(self, self._open("producer", service, options))
        if topics:
            producer.publish(*topics)
        return producer

    def pull(
        self, service: TubeService | str, group: str, topics: Any, *, wait: float = 30.0, **options: Any
    ) -> JavaConsumer:
        """Server balance. Waits until it has partitions; ``wait=0``: it does not."""
        subscribed = {"group": group, "topics": _topics(topics)}
        consumer = JavaConsumer(self, self._open("pull", service, subscribed | options))
        if wait and not consumer.call("ready", int(wait * 1000)):
            raise Refused(f"no partitions in {wait} s")
        return consumer

    def balance(
        self, service: TubeService | str, group: str, topics: Any, *, connect: bool = True, **options: Any
    ) -> JavaConsumer:
        """Client balance. Connects to all partitions; ``offsets`` says where to begin."""
        subscribed = {"group": group, "topics": _topics(topics)}
        consumer = JavaConsumer(self, self._open("balance", service, subscribed | options))
        if connect:
            consumer.call("connect_all", {"offsets": options.get("offsets", {})})
        return consumer

    def kill(self) -> None:
        """Nobody says goodbye."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._errors.close()


def _topics(topics: str | Iterable[str] | dict[str, Iterable[str]]) -> dict[str, list[str]]:
    """With their filters: none is every message."""
    if isinstance(topics, dict):
        return {name: list(filters) for name, filters in topics.items()}
    return {name: [] for name in ([topics] if isinstance(topics, str) else topics)}


class _Handle:
    def __init__(self, java: Java, handle: str) -> None:
        self.java, self.handle = java, handle

    def call(self, verb: str, *arguments: Any) -> Any:
        return self.java.call(self.handle, verb, *arguments)

    def close(self) -> None:
        self.call("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The process may have been killed.
        with contextlib.suppress(RuntimeError, Refused, OSError, ValueError):
            self.close()


class JavaProducer(_Handle):
    def publish(self, *topics: str, timeout: float = 10.0) -> None:
        """Returns when each topic takes messages."""
        self.call("publish", list(topics))
        deadline = time.monotonic() + timeout
        for topic in topics:
            while not self.call("accepts", topic):
                assert time.monotonic() < deadline, f"{topic} takes no messages"
                time.sleep(0.01)

    def send(self, topic: str, data: bytes, **options: Any) -> dict[str, Any]:
        """``type``, ``time``, ``attributes``. What the broker said."""
        return self.call("send", topic, data.hex(), options)

    def send_all(self, topic: str, payloads: Iterable[bytes], **options: Any) -> list[dict[str, Any]]:
        """One behind the other without waiting; all of them succeed."""
        results = self.call("send_all", topic, [data.hex() for data in payloads], options)
        assert all(one["success"] for one in results), results
        return results

    def load(self, topic: str, **options: Any) -> dict[str, Any]:
        return self.call("load", topic, options)


class JavaConsumer(_Handle):
    def receive(self, count: int, timeout: float = 10.0, confirm: str = "yes") -> list[Seen]:
        """At least that many messages: packs come as a whole. ``packs`` says what came."""
        answer = self.call("receive", count, int(timeout * 1000), confirm)
        self.packs: list[dict[str, Any]] = answer["packs"]
        messages = [_seen(one) for one in answer["messages"]]
        assert len(messages) >= count, f"{len(messages)} of {count} messages; last: {answer.get('last')}"
        return messages

    def nothing(self, wait: float = 0.5) -> None:
        answer = self.call("receive", 1, int(wait * 1000), "yes")
        assert not answer["messages"], answer["messages"]

    def confirm(self, context: str, consumed: bool = True) -> Any:
        return self.call("confirm", context, consumed)

    def partitions(self) -> dict[str, dict[str, int]]:
        """``offset`` and ``max`` by "broker:topic:partition"."""
        return self.call("partitions")

    def load(self, **options: Any) -> dict[str, Any]:
        return self.call("load", options)
