"""The administration over HTTP: one list of requests for the embedded broker and the real Pulsar, whose
answers are compared. What the embedded broker leaves out is not compared; where it differs on purpose, the
request has a ``differs`` that says so."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

import forebay

from support.pulsar.harness import Answer, EmbeddedPulsar, PulsarService, RealPulsar
from support.waiting import PATIENCE

VOLATILE = {
    "ledgerId",
    "cursorLedger",
    "timestamp",
    "address",
    "serviceUrl",
    "brokerServiceUrl",
    "brokerUrl",
    "httpUrl",
    "nativeUrl",
    "availablePermits",
}
"""Fields whose type is compared, and not their value."""

TOPIC = "admin/v2/persistent/public/default/{t}"
PARTS = "admin/v2/persistent/public/default/{p}"
SCHEMAS = "admin/v2/schemas/public/default/{s}"
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
RECORD = '{"type":"record","name":"R","fields":[]}'


@dataclass(frozen=True)
class Ask:
    """A request. ``differs``: why the embedded broker has another status; ``fields``: fields that it has in
    another form."""

    method: str
    path: str
    body: object = None
    differs: tuple[int, str] | None = None
    fields: tuple[str, ...] = ()


REQUESTS = [
    # ---- the cluster
    Ask("GET", "admin/v2/clusters"),
    Ask("GET", "admin/v2/clusters/standalone"),
    Ask("GET", "admin/v2/clusters/none"),
    Ask("POST", "admin/v2/clusters"),
    Ask("GET", "admin/v2/tenants/public"),
    Ask("GET", "admin/v2/tenants/none"),
    Ask("GET", "admin/v2/namespaces/public"),
    Ask("GET", "admin/v2/namespaces/none"),
    # The strategy is an option of the embedded broker; the real one says UNDEFINED for its own default.
    Ask(
        "GET",
        "admin/v2/namespaces/public/default",
        fields=("deduplicationEnabled", "schema_compatibility_strategy"),
    ),
    Ask("GET", "admin/v2/namespaces/public/none"),
    Ask("GET", "admin/v2/namespaces/public/none/topics"),
    Ask("GET", "admin/v2/persistent/public/none"),
    Ask("GET", "admin/v2/brokers/health"),
    Ask("GET", "admin/v2/brokers/configuration/runtime"),
    Ask("GET", "admin/v2/nothing"),
    # ---- a topic
    Ask("GET", "lookup/v2/topic/persistent/public/default/{t}"),
    Ask("GET", f"{TOPIC}/partitions"),
    Ask("GET", f"{TOPIC}/partitions?checkAllowAutoCreation=true"),
    Ask("GET", f"{TOPIC}/stats"),
    Ask("GET", f"{TOPIC}/partitioned-stats"),
    Ask("GET", f"{TOPIC}/internalStats"),
    Ask("GET", f"{TOPIC}/subscriptions"),
    Ask("POST", f"{TOPIC}/subscription/s/skip_all"),
    Ask("POST", f"{TOPIC}/terminate"),
    Ask("POST", f"{TOPIC}/partitions", 3),
    Ask("DELETE", f"{TOPIC}/partitions"),
    Ask("DELETE", TOPIC),
    Ask("PUT", TOPIC),
    Ask("PUT", TOPIC),
    Ask("PATCH", TOPIC),
    Ask("PUT", f"{TOPIC}/partitions", 3),
    Ask("POST", f"{TOPIC}/partitions", 3),
    Ask("DELETE", f"{TOPIC}/partitions"),
    Ask("GET", f"{TOPIC}/partitions"),
    Ask("GET", f"{TOPIC}/stats", fields=("deduplicationStatus",)),
    Ask("GET", f"{TOPIC}/internalStats"),
    Ask("GET", f"{TOPIC}/lastMessageId"),
    # ---- subscriptions of it
    Ask("PUT", f"{TOPIC}/subscription/s"),
    Ask("PUT", f"{TOPIC}/subscription/s"),
    Ask("PUT", f"{TOPIC}/subscription/e", EARLIEST),
    Ask("PUT", f"{TOPIC}/subscription/x", {"x": 1}, differs=(400, "what is no message id is refused")),
    Ask("DELETE", f"{TOPIC}/subscription/x", differs=(404, "the one before was refused")),
    Ask("GET", f"{TOPIC}/subscriptions"),
    Ask("GET", f"{TOPIC}/subscription/s/position/1"),
    Ask(
        "GET",
        f"{TOPIC}/subscription/s/position/x",
        differs=(400, "the number is wrong, not the path"),
    ),
    Ask("POST", f"{TOPIC}/subscription/s/skip_all"),
    Ask("POST", f"{TOPIC}/subscription/s/resetcursor/0"),
    Ask("POST", f"{TOPIC}/subscription/s/resetcursor", EARLIEST),
    Ask("POST", f"{TOPIC}/subscription/s/expireMessages/1"),
    Ask("POST", f"{TOPIC}/all_subscription/expireMessages/1"),
    *[
        Ask("POST", f"{TOPIC}/subscription/none/{verb}")
        for verb in ("skip_all", "skip/1", "resetcursor/0", "expireMessages/1")
    ],
    Ask("DELETE", f"{TOPIC}/subscription/none"),
    Ask("DELETE", f"{TOPIC}/subscription/e"),
    Ask("GET", f"{TOPIC}/subscriptions"),
    Ask("POST", f"{TOPIC}/terminate/partitions"),
    Ask("POST", f"{TOPIC}/terminate"),
    Ask("POST", f"{TOPIC}/terminate"),
    Ask("DELETE", TOPIC),
    Ask("DELETE", TOPIC),
    # ---- a topic with partitions
    Ask("PUT", f"{PARTS}/partitions", 0),
    Ask("PUT", f"{PARTS}/partitions", 2),
    Ask("PUT", f"{PARTS}/partitions", 2),
    Ask("PUT", PARTS),
    Ask("GET", f"{PARTS}/partitions"),
    Ask("GET", f"{PARTS}/stats"),
    Ask("GET", f"{PARTS}/internalStats"),
    Ask("GET", f"{PARTS}/partitioned-stats", fields=("deduplicationStatus",)),
    Ask("GET", f"{PARTS}/partitioned-stats?perPartition=false"),
    Ask("GET", f"{PARTS}/partitioned-internalStats"),
    Ask("PUT", f"{PARTS}/subscription/s"),
    Ask("GET", f"{PARTS}/subscriptions"),
    Ask("GET", f"{PARTS}-partition-1/subscriptions"),
    Ask("GET", f"{PARTS}/subscription/s/position/1"),
    Ask("POST", f"{PARTS}/subscription/s/skip_all"),
    Ask("POST", f"{PARTS}/subscription/s/skip/1"),
    Ask("POST", f"{PARTS}/subscription/s/resetcursor/0"),
    Ask("POST", f"{PARTS}/subscription/s/resetcursor", EARLIEST),
    Ask("POST", f"{PARTS}/subscription/s/expireMessages/1"),
    Ask("POST", f"{PARTS}/partitions", 1),
    Ask("POST", f"{PARTS}/partitions", 2),
    Ask("POST", f"{PARTS}/partitions", 3),
    Ask("GET", f"{PARTS}-partition-2/subscriptions"),
    Ask("POST", f"{PARTS}/terminate"),
    Ask("POST", f"{PARTS}/terminate/partitions"),
    Ask("DELETE", PARTS),
    Ask("DELETE", f"{PARTS}/subscription/s"),
    Ask("DELETE", f"{PARTS}/partitions"),
    Ask("GET", f"{PARTS}/partitions"),
    # ---- schemas
    Ask("GET", f"{SCHEMAS}/schema"),
    Ask("DELETE", f"{SCHEMAS}-none/schema", differs=(404, "there is no schema to delete")),
    Ask("PUT", "admin/v2/persistent/public/default/{s}"),
    Ask("POST", f"{SCHEMAS}/schema", {"type": "AVRO", "schema": RECORD, "properties": {"a": "b"}}),
    Ask("GET", f"{SCHEMAS}/schema"),
    Ask("GET", f"{SCHEMAS}/schema/0"),
    Ask("GET", f"{SCHEMAS}/schema/9"),
    Ask("GET", f"{SCHEMAS}/schemas"),
    Ask("POST", f"{SCHEMAS}/schema", {"type": "STRING", "schema": "", "properties": {}}),
    Ask("POST", f"{SCHEMAS}/schema", {"type": "AVRO", "schema": "nonsense", "properties": {}}),
    Ask(
        "POST",
        f"{SCHEMAS}/schema",
        {"type": "NEVER", "schema": ""},
        differs=(422, "the real one fails inside"),
    ),
    Ask("GET", f"{SCHEMAS}/schema/x", differs=(400, "the real one fails inside")),
    Ask("DELETE", f"{SCHEMAS}/schema"),
    Ask("GET", f"{SCHEMAS}/schema"),
    Ask("GET", f"{SCHEMAS}/schemas"),
    Ask("POST", f"{SCHEMAS}/schema", {"type": "STRING", "schema": "", "properties": {}}),
    Ask("GET", f"{SCHEMAS}/schema"),
    Ask("DELETE", "admin/v2/persistent/public/default/{s}"),
]


def alike(ours: Any, real: Any, where: str, apart: tuple[str, ...] = ()) -> None:
    """Everything in our answer is in the real one, with the same value."""
    if isinstance(ours, dict):
        assert isinstance(real, dict), where
        for key, value in ours.items():
            if key in apart:
                continue
            assert key in real, f"{where}: the real broker has no {key}, but {sorted(real)}"
            if key in VOLATILE:
                assert type(value) is type(real[key]), f"{where}.{key}: {value!r}, {real[key]!r}"
            else:
                alike(value, real[key], f"{where}.{key}", apart)
    elif isinstance(ours, list):
        assert isinstance(real, list), where
        assert len(ours) == len(real), f"{where}: {ours}, {real}"
        for at, (one, other) in enumerate(zip(sorted(ours, key=str), sorted(real, key=str), strict=True)):
            alike(one, other, f"{where}[{at}]", apart)
    elif isinstance(ours, str):
        # Positions: the numbers of ledgers are the broker's own.
        position = re.compile(r"^\d+(:-?\d+)$")
        assert position.sub(r"L\1", ours) == position.sub(r"L\1", real), where
    else:
        assert ours == real, f"{where}: {ours!r}, {real!r}"


def fill(text: str, names: dict[str, str]) -> str:
    for mark, name in names.items():
        text = text.replace(f"{{{mark}}}", name)
    return text


@pytest.mark.real_pulsar
def test_each_request_is_answered_as_by_the_real_broker(
    embedded: EmbeddedPulsar, real_pulsar: RealPulsar
) -> None:
    names = {mark: f"{mark}-{uuid.uuid4().hex[:8]}" for mark in "tps"}
    for number, request in enumerate(REQUESTS):
        path = fill(request.path, names)
        where = f"{number}: {request.method} {path}"
        ours, real = (one.ask(request.method, path, request.body) for one in (embedded, real_pulsar))
        if request.differs:
            assert ours.status == request.differs[0] != real.status, f"{where}: {ours}, {real}"
            continue
        assert ours.status == real.status, f"{where}: {ours}, {real}"
        if ours.status >= 400:
            assert ours.json()["reason"], where
        elif ours.body:
            if ours.headers["Content-Type"] == "application/json":
                alike(ours.json(), real.json(), where, request.fields)
            else:
                assert ours.body == real.body, where
        else:
            assert not real.body, where


def fields_of(answer: Answer) -> dict[str, str]:
    """Headers of a message that both brokers have, without those that are times."""
    names = ("PROPERTY", "event-time", "producer-name", "sequence-id", "partition-key", "uncompressed-size")
    found = {name: answer.headers[f"X-Pulsar-{name}"] for name in names}
    return found | {"batch": answer.headers["X-Pulsar-num-batch-message"]}


def test_messages_are_looked_at_and_skipped(service: PulsarService) -> None:
    topic = service.topic()
    path = f"admin/v2/{topic.replace('://', '/')}"
    assert service.ask("PUT", path).status == 204
    for name in ("a", "b"):
        assert service.ask("PUT", f"{path}/subscription/{name}").status == 204
    with forebay.blocking.connect(service.url) as client:
        options: dict[str, Any] = {"batching": False, "compression": "zlib", "name": "till"}
        with client.producer(topic, **options) as producer:
            for number in range(5):
                producer.send(
                    b"payload %d" % number,
                    key="k",
                    properties={"a b": 'c"', "ü": "😀"},
                    event_time=1_700_000_000_000,
                )

    def peek(subscription: str, at: int) -> Answer:
        return service.ask("GET", f"{path}/subscription/{subscription}/position/{at}")

    def backlog(subscription: str) -> int:
        return service.ask("GET", f"{path}/stats").json()["subscriptions"][subscription]["msgBacklog"]

    second = peek("a", 2)
    assert second.body == b"payload 1"
    fields = fields_of(second)
    if not service.is_real:
        # The real one writes them in Latin-1, which loses what is not in it.
        assert fields.pop("PROPERTY") == '{"a b":"c\\"","\\u00fc":"\\ud83d\\ude00"}'
    fields.pop("PROPERTY", None)
    assert fields == {
        "event-time": "2023-11-14T22:13:20Z",
        "producer-name": "till",
        "sequence-id": "1",
        "partition-key": "k",
        "uncompressed-size": "9",
        "batch": None,
    }
    ledger, entry = second.headers["X-Pulsar-Message-ID"].split(":")
    assert service.ask("GET", f"{path}/ledger/{ledger}/entry/{entry}").body == b"payload 1"
    assert peek("a", 6).status == 404

    assert service.ask("POST", f"{path}/subscription/a/skip/2").status == 204
    assert (backlog("a"), backlog("b"), peek("a", 1).body) == (3, 5, b"payload 2")
    at = {"ledgerId": int(ledger), "entryId": int(entry), "partitionIndex": -1, "excluded": False}
    assert service.ask("POST", f"{path}/subscription/a/resetcursor", at).status == 204
    assert (backlog("a"), peek("a", 1).body) == (4, b"payload 1")
    assert service.ask("POST", f"{path}/subscription/a/skip_all").status == 204
    assert (backlog("a"), peek("a", 1).status) == (0, 404)
    assert (
        service.ask("POST", f"{path}/subscription/a/resetcursor/{int(time.time() * 1000) - 60_000}").status
        == 204
    )
    assert (backlog("a"), peek("a", 1).body) == (5, b"payload 0")
    time.sleep(1.5)
    assert service.ask("POST", f"{path}/subscription/b/expireMessages/1").status == 204
    deadline = time.monotonic() + PATIENCE
    while backlog("b") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (backlog("a"), backlog("b")) == (5, 0)
    last = service.ask("GET", f"{path}/lastMessageId").json()
    assert (last["entryId"], last["ledgerId"]) == (4, int(ledger))


def test_consumers_go_on_where_a_subscription_was_moved_to(service: PulsarService) -> None:
    topic = service.topic()
    path = f"admin/v2/{topic.replace('://', '/')}"
    with forebay.blocking.connect(service.url) as client:
        with (
            client.consumer(topic, "s", position="earliest") as consumer,
            client.producer(topic, batching=False) as producer,
        ):
            for number in range(10):
                producer.send(b"%d" % number)
            assert [consumer.receive(timeout=PATIENCE).data for _ in range(10)][-1] == b"9"
            # It is connected: neither it nor its topic goes without force.
            assert service.ask("DELETE", f"{path}/subscription/s").status == 412
            assert service.ask("DELETE", path).status == 412
            first = service.ask("GET", f"{path}/subscription/s/position/1").headers["X-Pulsar-Message-ID"]
            ledger, entry = first.split(":")
            at = {"ledgerId": int(ledger), "entryId": int(entry) + 5, "partitionIndex": -1}
            assert service.ask("POST", f"{path}/subscription/s/resetcursor", at).status == 204
            again = consumer.receive(timeout=PATIENCE)
            assert again.data == b"5"
            figures = service.ask("GET", f"{path}/stats").json()
            assert [one["producerName"] for one in figures["publishers"]]
            assert figures["subscriptions"]["s"]["type"] == "Exclusive"
            assert len(figures["subscriptions"]["s"]["consumers"]) == 1
            assert figures["msgInCounter"] == 10
        assert service.ask("DELETE", f"{path}?force=true").status == 204


def test_the_version_is_told(embedded: EmbeddedPulsar) -> None:
    answer = embedded.ask("GET", "admin/v2/brokers/version")
    assert answer.status == 200
    assert answer.body.decode() == f"Forebay {forebay.__version__}"
