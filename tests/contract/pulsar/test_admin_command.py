"""``forebay admin`` with the embedded broker and with a real Pulsar, each verb as a user runs it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import pulsar
from forebay import blocking

from support.commands import Commands, send, time_behind
from support.pulsar.harness import PulsarService, RealPulsar
from support.waiting import PATIENCE


class Admin(Commands):
    """``forebay admin``."""

    def backlog(self, topic: str, subscription: str) -> int:
        return self.json("topic", "stats", topic)["subscriptions"][subscription]["msgBacklog"]


@pytest.fixture
def admin(service: PulsarService) -> Admin:
    return Admin(service.admin, "admin")


def test_topics(admin: Admin, service: PulsarService) -> None:
    plain, parts = service.topic(), service.topic()
    assert admin("topic", "create", plain) == ""
    said = admin.json("topic", "create", parts, "-p", "2")
    assert said == {"done": "topic create", "topic": parts, "partitions": 2}
    admin("topic", "grow", parts, "-p", "3")
    listed = admin.json("topic", "list")
    assert plain in listed
    assert f"{parts}-partition-2" in listed
    assert admin.json("topic", "ls", "--non-persistent") is not None
    assert "msgInCounter: 0\n" in admin("topic", "stats", plain)
    assert admin.json("topic", "internal-stats", plain)["numberOfEntries"] == 0
    assert len(admin.json("topic", "internal-stats", parts)["partitions"]) == 3
    # A name without tenant and namespace is one of public/default.
    assert admin.json("topic", "stats", plain.rpartition("/")[2])["msgInCounter"] == 0
    admin("topic", "terminate", parts)
    admin("topic", "terminate", plain)
    with blocking.connect(service.url) as client, client.consumer(plain, "s"):
        assert "connected producers/consumers" in admin.refused("topic", "rm", plain)
        admin("topic", "rm", plain, "--force")
    admin("topic", "delete", parts)
    assert parts not in "".join(admin.json("topic", "ls"))
    # Not the other one, which its consumer may have made again.
    missing = admin.refused("topic", "stats", parts)
    assert missing.startswith("forebay: topic_not_found: GET http://")
    assert "HTTP 404" in missing
    assert parts in missing


def test_topics_with_the_url_of_the_administration(service: PulsarService) -> None:
    run = Commands(service.admin, "topic")
    plain, parts = service.topic(), service.topic()
    run("create", plain)
    run("create", parts, "-p", "2")
    run("grow", parts, "-p", "3")
    listed = run("ls").split()
    assert plain in listed
    assert f"{parts}-partition-2" in listed
    assert "msgInCounter: 0" in run("stats", plain)
    assert "msgInCounter: 0" in run("stats", parts)
    run("terminate", parts)
    for topic in (plain, parts):
        run("rm", topic)
    assert plain not in run("ls").split()


def test_subscriptions(admin: Admin, service: PulsarService) -> None:
    topic = service.topic()
    admin("topic", "create", topic)
    ids = send(service, topic, *(b"%d" % number for number in range(5)), batching=False)
    between = time_behind(service, topic, 5)
    send(service, topic, b"5", b"6", batching=False)
    admin("subscription", "create", topic, "all", "--position", "earliest")
    admin("subscription", "create", topic, "none")
    admin("subscription", "create", topic, "some", "--position", ids[3])
    assert admin("subscription", "ls", topic) == "all\nnone\nsome\n"
    assert [admin.backlog(topic, name) for name in ("all", "none", "some")] == [7, 0, 4]
    said = admin.json("subscription", "skip", topic, "all", "-n", "2")
    assert said == {"done": "subscription skip", "topic": topic, "subscription": "all", "count": 2}
    assert admin.backlog(topic, "all") == 5
    admin("subscription", "reset", topic, "all", "--position", ids[1])
    assert admin.backlog(topic, "all") == 6
    admin("subscription", "reset", topic, "all", "--after", ids[1])
    assert admin.backlog(topic, "all") == 5
    admin("subscription", "reset", topic, "all", "--time", between)
    assert admin.backlog(topic, "all") == 2
    admin("subscription", "reset", topic, "all", "--time", "1h")
    assert admin.backlog(topic, "all") == 7
    admin("subscription", "clear", topic, "all")
    assert admin.backlog(topic, "all") == 0
    admin("subscription", "reset", topic, "all", "--position", "earliest")
    time.sleep(1.5)
    admin("subscription", "expire", topic, "all", "--older-than", "1s")
    until = time.monotonic() + PATIENCE
    while admin.backlog(topic, "all") and time.monotonic() < until:
        time.sleep(0.1)
    assert admin.backlog(topic, "all") == 0
    with blocking.connect(service.url) as client, client.consumer(topic, "none"):
        assert "active connected consumers" in admin.refused("subscription", "rm", topic, "none")
        admin("subscription", "rm", topic, "none", "--force")
    admin("subscription", "delete", topic, "all")
    # The consumer may have come back and made its subscription again.
    assert set(admin.json("subscription", "ls", topic)) - {"none"} == {"some"}
    said_ = admin.refused("subscription", "clear", topic, "nothing")
    assert said_.startswith("forebay: subscription_not_found: POST http://")


def test_subscriptions_of_a_partitioned_topic(admin: Admin, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    ids = send(service, topic, *(b"%d" % number for number in range(6)), batching=False)
    admin("subscription", "create", topic, "s", "--position", "earliest")
    assert admin.backlog(topic, "s") == 6
    assert "name one" in admin.refused("subscription", "skip", topic, "s", "-n", "1")
    admin("subscription", "clear", topic, "s")
    assert admin.backlog(topic, "s") == 0
    # An id of a partition moves the subscription in this one.
    one = next(id for id in reversed(ids) if id.split(",")[2] == "1")
    admin("subscription", "reset", topic, "s", "--position", one)
    assert admin.backlog(topic, "s") == 1
    admin("subscription", "reset", topic, "s", "--position", "earliest")
    assert admin.backlog(topic, "s") == 6
    ledger, entry, *_ = one.strip("()").split(",")
    said = admin.refused("subscription", "reset", topic, "s", "--position", f"{ledger}:{entry}")
    assert "does not say which" in said
    assert "takes one of" in admin.misused("subscription", "reset", topic, "s")


def send_batch(service: PulsarService, topic: str) -> None:
    """Sends three messages in one batch, for which the official client waits."""
    official = pulsar.Client(service.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = official.create_producer(
            topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=60_000,
            compression_type=pulsar.CompressionType.ZLib,
        )
        for number in range(3):
            producer.send_async(
                b"\x1b[%d" % number, None, partition_key=f"k{number}", properties={"n": str(number)}
            )
        producer.flush()
    finally:
        official.close()


def test_messages_of_a_subscription_are_looked_at(admin: Admin, service: PulsarService) -> None:
    topic = service.topic()
    admin("topic", "create", topic)
    admin("subscription", "create", topic, "s")
    with blocking.connect(service.url) as client:
        with client.producer(topic, batching=False) as producer:
            producer.send(b'{"a": 1}', "k", properties={"b": "c"}, event_time=1_700_000_000_000)
        send_batch(service, topic)
        with client.reader(topic, position="earliest") as reader:
            read = [reader.receive(timeout=PATIENCE) for _ in range(4)]
    lines = admin.lines("subscription", "peek", topic, "s", "-n", "9")
    assert [line["id"] for line in lines] == [str(message.id) for message in read]
    assert [line["payload"].encode() for line in lines] == [message.data for message in read]
    assert [line["key"] for line in lines] == ["k", "k0", "k1", "k2"]
    assert [line["properties"] for line in lines] == [{"b": "c"}, {"n": "0"}, {"n": "1"}, {"n": "2"}]
    assert [line["event_time"] for line in lines] == [1_700_000_000_000, None, None, None]
    assert lines[0]["publish_time"] == read[0].publish_time
    text = admin("subscription", "peek", topic, "s", "-n", "2")
    assert "\\x1b[2\n" in text
    assert "\x1b" not in text
    assert "key='k'  event=2023-11-14T22:13:20.000Z  'b'='c'\n" in text
    assert '{\n  "a": 1\n}\n' in admin("subscription", "peek", topic, "s", "--as", "json")
    assert "00000000  7b 22 61 22 3a 20 31 7d " in admin("subscription", "peek", topic, "s", "--as", "hex")
    # Batches count as one.
    assert admin.backlog(topic, "s") == 2
    admin("subscription", "clear", topic, "s")
    assert admin("subscription", "peek", topic, "s") == ""
    assert "subscription_not_found" in admin.refused("subscription", "peek", topic, "nothing")


def test_schemas(admin: Admin, service: PulsarService, tmp_path: Path) -> None:
    topic = service.topic()
    admin("topic", "create", topic)
    assert "topic_not_found" in admin.refused("schema", "show", topic)
    file = tmp_path / "order.avsc"
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    file.write_text(json.dumps(record))
    admin("schema", "put", topic, "--type", "avro", "--definition", str(file), "-p", "a=b")
    shown = admin.json("schema", "show", topic)
    assert (shown["type"], shown["properties"]["a"], shown["version"]) == ("AVRO", "b", 0)
    assert admin.json("schema", "show", topic, "--version", "0") == shown
    assert len(admin.json("schema", "ls", topic)) == 1
    record["fields"][0]["type"] = "string"
    file.write_text(json.dumps(record))
    assert "incompatible_schema" in admin.refused(
        "schema", "put", topic, "--type", "AVRO", "--definition", str(file)
    )
    assert "cannot read /no/file" in admin.refused(
        "schema", "put", topic, "--type", "AVRO", "--definition", "/no/file"
    )
    admin("schema", "rm", topic)
    assert "topic_not_found" in admin.refused("schema", "show", topic)


def test_the_cluster(admin: Admin) -> None:
    assert admin("cluster", "ls").split() == ["standalone"]
    assert "public" in admin.json("tenant", "ls")
    assert "public/default" in admin("namespace", "ls").split()
    assert "HTTP 404" in admin.refused("namespace", "ls", "none")


@pytest.mark.real_pulsar
def test_tls_and_tokens_of_the_real_broker(real_pulsar_secure: RealPulsar) -> None:
    admin = Commands(real_pulsar_secure.admin, "admin")
    trusted = ("-X", f"tls_ca={real_pulsar_secure.ca}")
    token = ("-X", f"token={real_pulsar_secure.token('admin')}")
    assert "public" in admin.json("tenant", "ls", *trusted, *token)
    topic = real_pulsar_secure.topic()
    admin("topic", "create", topic, *trusted, *token)
    assert topic in admin.json("topic", "ls", *trusted, *token)
    admin("topic", "rm", topic, *trusted, *token)
    assert admin.refused("tenant", "ls", *token).startswith("forebay: tls: https://")
    assert admin.refused("tenant", "ls", *trusted).startswith("forebay: authentication: GET https://")
    said = admin.refused("tenant", "ls", *trusted, "-X", "token=nonsense")
    assert said.startswith("forebay: authentication: GET https://")
    assert "nonsense" not in said
