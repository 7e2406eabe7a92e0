"""The official Java client of the administration: one script of calls on the embedded broker and on the real
one, whose answers are compared."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from fnmatch import fnmatchcase
from string import Template
from typing import Any

import pytest

from forebay import blocking

from support.fixtures import start
from support.pulsar.harness import EmbeddedPulsar, PulsarService, RealPulsar
from support.pulsar.java import PulsarAdminJava
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.real_pulsar, pytest.mark.timeout(300)]

A, B = {"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": fields}, separators=(",", ":"))


VALUES = {
    "cluster": {"class": "ClusterData", "value": {"serviceUrl": "http://127.0.0.1:1"}},
    "tenant": {"class": "TenantInfo", "value": {"allowedClusters": ["standalone"]}},
    "record": {"type": "AVRO", "schema": record(A), "properties": {"owner": "x"}},
    "grown": {"type": "AVRO", "schema": record(A, B)},
    "other": {"type": "AVRO", "schema": record(A | {"type": "string"})},
    "string": {"type": "STRING", "schema": ""},
    "broken": {"type": "AVRO", "schema": "{"},
}
"""Values in the script, by their names."""

SCRIPT = """
clusters.getClusters []
clusters.getCluster ["standalone"]
clusters.getCluster ["none"]
clusters.createCluster ["c-$run", $cluster]
clusters.deleteCluster ["c-$run"]
brokers.healthcheck []
tenants.getTenants []
tenants.getTenantInfo ["public"]
tenants.getTenantInfo ["none"]
tenants.createTenant ["t-$run", $tenant]
tenants.deleteTenant ["t-$run"]
namespaces.getNamespaces ["public"]
namespaces.getNamespaces ["none"]
namespaces.createNamespace ["public/n-$run"]
namespaces.getTopics ["public/default"]
namespaces.getTopics ["public/none"]
namespaces.getPolicies ["public/none"]
namespaces.deleteNamespace ["public/n-$run"]

topics.createNonPartitionedTopic ["$t"]
topics.createNonPartitionedTopic ["$t"]
topics.createNonPartitionedTopic ["$n/t"]
topics.createPartitionedTopic ["$t", 2]
topics.createPartitionedTopic ["$p", 0]
topics.createPartitionedTopic ["$p", 2]
topics.createPartitionedTopic ["$p", 2]
topics.createPartitionedTopic ["$p-partition-0", 2]
topics.createNonPartitionedTopic ["$p"]
topics.getPartitionedTopicMetadata ["$p"]
topics.getPartitionedTopicMetadata ["$t"]
topics.getPartitionedTopicMetadata ["$t-none"]
topics.updatePartitionedTopic ["$p", 3]
topics.updatePartitionedTopic ["$p", 2]
topics.updatePartitionedTopic ["$t", 3]
topics.updatePartitionedTopic ["$t-none", 3]
topics.getPartitionedTopicMetadata ["$p"]
topics.getList ["public/default"]
topics.getList ["public/none"]
topics.getPartitionedTopicList ["public/default"]
namespaces.getTopics ["public/default"]
lookups.lookupTopic ["$t"]
lookups.lookupPartitionedTopic ["$p"]
lookups.lookupTopic ["$n/t"]

topics.createSubscription ["$t", "s", "latest"]
topics.createSubscription ["$t", "s", "latest"]
topics.createSubscription ["$t", "e", "earliest"]
topics.createSubscription ["$p", "s", "earliest"]
topics.createSubscription ["$p-partition-0", "s", "earliest"]
topics.getSubscriptions ["$t"]
topics.getSubscriptions ["$p"]
topics.getSubscriptions ["$t-none"]
topics.createSubscription ["$t-auto", "s", "earliest"]
topics.getSubscriptions ["$t-auto"]
topics.delete ["$t-auto"]
topics.getLastMessageId ["$t"]
topics.getLastMessageId ["$p"]
topics.peekMessages ["$t", "s", 1]
send ["$t", "one", "two"]
mark []
send ["$t", "three"]
batch ["$t", "a", "b", "c"]
topics.createSubscription ["$t", "m", $three]
topics.createSubscription ["$t", "x", $three, false]
topics.getLastMessageId ["$t"]
topics.getStats ["$t"]
topics.getStats ["$p"]
topics.getStats ["$t-none"]
topics.getPartitionedStats ["$p", true]
topics.getPartitionedStats ["$p", false]
topics.getPartitionedStats ["$t", false]
topics.getInternalStats ["$t"]
topics.getInternalStats ["$t-none"]
topics.getPartitionedInternalStats ["$p"]
topics.peekMessages ["$t", "s", 9]
topics.peekMessages ["$t", "m", 1]
topics.peekMessages ["$t", "made", 1]
topics.deleteSubscription ["$t", "made"]
topics.peekMessages ["$p", "s", 1]
topics.peekMessages ["$p-partition-0", "s", 1]
topics.getMessagesById ["$t", $ledger, 0]
topics.getMessagesById ["$t", $ledger, 3]
topics.getMessageById ["$t", $ledger, 1]
topics.getMessageById ["$t", $ledger, 99]
topics.getMessageById ["$t", 123456789, 0]
topics.getMessageById ["$t-none", 1, 0]
topics.getMessageById ["$p", $ledger, 0]
topics.getMessageIdByTimestamp ["$t", $then]
topics.examineMessage ["$t", "earliest", 1]

topics.skipMessages ["$t", "s", 1]
topics.peekMessages ["$t", "s", 1]
topics.skipMessages ["$t", "none", 1]
topics.skipMessages ["$p", "s", 1]
topics.skipAllMessages ["$t", "s"]
topics.peekMessages ["$t", "s", 1]
topics.skipAllMessages ["$p", "s"]
topics.skipAllMessages ["$t", "none"]
topics.skipAllMessages ["$t-none", "s"]
topics.resetCursor ["$t", "s", $then]
topics.peekMessages ["$t", "s", 1]
topics.resetCursor ["$t", "s", $two]
topics.peekMessages ["$t", "s", 1]
topics.resetCursor ["$t", "s", $two, true]
topics.peekMessages ["$t", "s", 1]
topics.resetCursor ["$t", "s", "latest"]
topics.peekMessages ["$t", "s", 1]
topics.resetCursor ["$t", "s", "earliest"]
topics.peekMessages ["$t", "s", 1]
topics.resetCursor ["$t", "none", $then]
topics.resetCursor ["$t", "none", $two]
topics.resetCursor ["$t-none", "s", $two]
topics.resetCursor ["$p", "s", $then]
topics.resetCursor ["$p", "s", $two]

topics.createSubscription ["$t", "o", "earliest"]
topics.expireMessages ["$t", "none", 1]
topics.expireMessages ["$t-none", "s", 1]
topics.expireMessages ["$p", "s", 3600]
topics.expireMessagesForAllSubscriptions ["$t-none", 1]
topics.expireMessagesForAllSubscriptions ["$p", 3600]
age [1]
topics.expireMessages ["$t", "o", 3600]
topics.expireMessages ["$t", "o", 1]
backlog ["$t", "o", 0]
topics.peekMessages ["$t", "o", 1]
topics.deleteSubscription ["$t", "o"]
topics.expireMessagesForAllSubscriptions ["$t", 1]
backlog ["$t", "s", 0]
backlog ["$t", "e", 0]
backlog ["$t", "m", 0]
backlog ["$t", "x", 0]
topics.expireMessages ["$t", "s", 1]
topics.expireMessages ["$t", "s", $one, false]
topics.peekMessages ["$t", "s", 1]
topics.getInternalStats ["$t"]
topics.deleteSubscription ["$t", "e"]
topics.deleteSubscription ["$t", "e"]
topics.deleteSubscription ["$t", "x"]
topics.deleteSubscription ["$t-none", "e"]
topics.deleteSubscription ["$p", "s"]
topics.getSubscriptions ["$t"]

schemas.getSchemaInfo ["$t"]
schemas.getAllSchemas ["$t"]
schemas.createSchema ["$t", $record]
schemas.createSchema ["$t", $record]
schemas.createSchema ["$t", $grown]
schemas.createSchema ["$t", $other]
schemas.createSchema ["$t", $string]
schemas.createSchema ["$t", $broken]
schemas.createSchema ["$n/t", $record]
schemas.getSchemaInfo ["$t"]
schemas.getSchemaInfoWithVersion ["$t"]
schemas.getSchemaInfo ["$t", 0]
schemas.getSchemaInfo ["$t", 1]
schemas.getSchemaInfo ["$t", 9]
schemas.getAllSchemas ["$t"]
schemas.getVersionBySchema ["$t", $record]
schemas.testCompatibility ["$t", $grown]
schemas.createSchema ["$p", $string]
schemas.getSchemaInfo ["$p-partition-1"]
schemas.deleteSchema ["$t"]
schemas.getSchemaInfo ["$t"]
schemas.getAllSchemas ["$t"]

topics.terminateTopic ["$t-none"]
topics.terminateTopic ["$p"]
topics.terminatePartitionedTopic ["$t"]
topics.terminateTopic ["$t"]
topics.terminateTopic ["$t"]
topics.terminatePartitionedTopic ["$p"]
topics.getInternalStats ["$t"]
topics.delete ["$p"]
topics.deletePartitionedTopic ["$t"]
topics.delete ["$t"]
topics.delete ["$t"]
topics.deletePartitionedTopic ["$p"]
topics.deletePartitionedTopic ["$p"]
topics.getList ["public/default"]
topics.delete ["$n/t"]
"""
"""Calls, by group and method of ``PulsarAdmin``, with their arguments: names of topics begin with ``$t`` and
``$p``, ids of messages have the names of their payloads. In between, messages are sent, one by one or as a
batch, a time is noted as ``$then``, messages age, and the backlog of a subscription is waited for: the real
broker expires messages after it has answered."""

FIXED = "clusters, tenants and namespaces are not created or deleted"
ON_USE = "a namespace exists as soon as it has a topic"
MAKES = "a look at a subscription that does not exist makes it on the real broker"
LAST_TYPE = "a subscription without a consumer has the type that it had last"
DEDUPLICATES = "an option, on by default"
CLOSED = "the real broker counts the entries of a ledger when it closes it"
UNREAD = "on the real broker it is before the first entry until there is one"

DIFFERENT: dict[str, dict[str, str]] = {
    'clusters.createCluster ["c-$run", $cluster]': {"*": FIXED},
    'clusters.deleteCluster ["c-$run"]': {"*": FIXED},
    "tenants.getTenants []": {"*": "the real broker has a tenant of its own"},
    'tenants.createTenant ["t-$run", $tenant]': {"*": FIXED},
    'tenants.deleteTenant ["t-$run"]': {"*": FIXED},
    'namespaces.createNamespace ["public/n-$run"]': {"*": FIXED},
    'namespaces.deleteNamespace ["public/n-$run"]': {"*": FIXED},
    'topics.createNonPartitionedTopic ["$n/t"]': {"*": ON_USE},
    'lookups.lookupTopic ["$n/t"]': {"*": ON_USE},
    'schemas.createSchema ["$n/t", $record]': {"*": ON_USE},
    'topics.delete ["$n/t"]': {"*": ON_USE},
    'topics.getStats ["$t"]': {"deduplicationStatus": DEDUPLICATES, "subscriptions.*.type": LAST_TYPE},
    'topics.getPartitionedStats ["$p", true]': {
        "*.deduplicationStatus": DEDUPLICATES,
        "*subscriptions.s.type": LAST_TYPE,
    },
    'topics.getPartitionedStats ["$p", false]': {"subscriptions.s.type": LAST_TYPE},
    'topics.getInternalStats ["$t"]': {"ledgers.0.entries": CLOSED, "cursors.e.readPosition": UNREAD},
    'topics.getPartitionedInternalStats ["$p"]': {"*.cursors.s.readPosition": UNREAD},
    'topics.peekMessages ["$t", "made", 1]': {"*": MAKES},
    'topics.deleteSubscription ["$t", "made"]': {"*": MAKES},
    'topics.getMessageById ["$t", $ledger, 99]': {"*": "the real broker answers with 500, this one with 404"},
}
"""Answers that differ: of each call the fields, ``*`` for all, and why."""

OMITTED = (
    # Of clusters: the broker's own clients, for replication.
    *("brokerClientSslFactoryPlugin", "brokerClientTls*StoreType"),
    # Of topics and their subscriptions.
    *("*backlogSize", "*bytesInCounter", "*storageSize", "*backlogQuotaLimit*", "*ownerBroker"),
    "*oldestBacklogMessageAgeSeconds",
    # Of ledgers and cursors.
    *("totalSize", "currentLedgerSize", "*compactedLedger.*", "*schemaLedgers*"),
    *("*lastLedgerCreatedTimestamp", "*.lastLedgerSwitchTimestamp", "*.cursorLedgerLastEntry"),
    *("*cursors.*.individuallyDeletedMessages", "*cursors.*.properties"),
    *("*.messagesConsumedCounter", "*.numberOfEntriesSinceFirstNotAckedMessage"),
)
"""Fields that the embedded broker leaves out, in answers to all calls."""

VOLATILE = {
    *("ledgerId", "cursorLedger", "timestamp", "address", "serviceUrl", "brokerServiceUrl", "producer"),
}
"""Fields that differ from one run to the next; their types are compared."""


class Play:
    """The script on one broker."""

    def __init__(self, java: PulsarAdminJava, service: PulsarService, run: str) -> None:
        self.java, self.service, self.run = java, service, run
        topic = "persistent://public/default"
        self.values: dict[str, Any] = {
            "run": run,
            "t": f"{topic}/t-{run}",
            "p": f"{topic}/p-{run}",
            "n": f"persistent://public/none-{run}",
        }
        self.values |= {name: json.dumps(value) for name, value in VALUES.items()}

    def play(self, line: str) -> Any:
        """The answer to a line, as it is compared; ``None`` if it is no call."""
        verb, _, arguments = line.partition(" ")
        words = json.loads(Template(arguments).substitute(self.values))
        match verb:
            case "send" | "batch":
                self.send(*words, batching=verb == "batch")
            case "mark":
                time.sleep(0.01)
                self.values["then"] = time.time_ns() // 1_000_000
                time.sleep(0.01)
            case "age":
                time.sleep(words[0] + 0.1)
            case "backlog":
                topic, subscription, backlog = words
                eventually(lambda: self.service.backlog(topic, subscription) == backlog)
            case _:
                return normal(self.java.ask(self.service, verb, *words), self.run)
        return None

    def send(self, topic: str, *payloads: str, batching: bool) -> None:
        with (
            blocking.connect(self.service.url, connect_timeout=PATIENCE) as client,
            client.producer(topic, batching=batching) as producer,
        ):
            if batching:
                producer.send_many([payload.encode() for payload in payloads])
                return
            for payload in payloads:
                id = producer.send(payload.encode(), key="k", properties={"a": "ü"})
                self.values |= {payload: json.dumps([id.ledger, id.entry]), "ledger": id.ledger}


def normal(value: Any, run: str, name: str = "") -> Any:
    """An answer without what differs from one run to the next, and of lists of names those of this test."""
    if isinstance(value, dict):
        # The words may differ.
        return {key: normal(one, run, key) for key, one in value.items() if key != "reason"}
    if isinstance(value, list):
        if all(isinstance(one, str) for one in value):
            value = sorted(one for one in value if "://" not in one or run in one)
        return [normal(one, run) for one in value]
    if name in VOLATILE and value != -1:
        return type(value).__name__
    if isinstance(value, str):
        value = re.sub(r"^\d+:(-?\d+)$", r"L:\1", value)
        return re.sub(r"127\.0\.0\.1:\d+", "HOST", value)
    return value


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of an answer, by their paths."""
    fields = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not fields or not value:
        yield path, value
    for key, one in fields:
        yield from flat(one, f"{path}.{key}" if path else str(key))


def apart(ours: dict[str, Any], real: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields that two answers differ in, with both values."""
    if "answer" not in ours or "answer" not in real:
        return {} if ours == real else {"": (ours, real)}
    one, other = dict(flat(ours["answer"])), dict(flat(real["answer"]))
    fields = sorted(one.keys() | other.keys())
    return {name: pair for name in fields if (pair := (one.get(name), other.get(name)))[0] != pair[1]}


def test_the_answers_are_the_same(embedded: EmbeddedPulsar, real_pulsar: RealPulsar) -> None:
    run = uuid.uuid4().hex[:8]
    listed = {(line, field) for line, fields in DIFFERENT.items() for field in fields}
    listed |= {("", field) for field in OMITTED}
    calls, wrong, seen = 0, list[str](), set[tuple[str, str]]()
    with start(PulsarAdminJava) as java:
        both = [Play(java, service, run) for service in (embedded, real_pulsar)]
        for line in filter(None, SCRIPT.split("\n")):
            ours, real = (one.play(line) for one in both)
            if ours is None:
                continue
            calls += 1
            for field, (one, other) in apart(ours, real).items():
                known = {(of, name) for of, name in listed if of in ("", line) and fnmatchcase(field, name)}
                seen |= known
                if not known:
                    wrong.append(f"{line} {field}: ours {one}, real {other}")
    wrong += [f"{line} {field}: is no difference any more" for line, field in sorted(listed - seen)]
    assert calls > 60
    assert not wrong, "\n".join(wrong)
