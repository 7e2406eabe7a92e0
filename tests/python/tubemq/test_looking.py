"""``forebay peek`` and ``subscriptions`` with TubeMQ, on the embedded broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay import blocking

from support.commands import Commands
from support.tubemq.harness import RealTubeMq
from support.waiting import PATIENCE


@pytest.fixture(scope="module")
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(tubemq_port=0, http_port=0) as broker:
        yield broker


@pytest.fixture
def topic(broker: forebay.Broker) -> str:
    """A topic of one partition with five messages."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    broker.create_topic(f"tubemq:{name}", 1)
    with blocking.connect(broker.tubemq_url) as client, client.producer(name) as producer:
        for number in range(5):
            producer.send(b"%d\xff" % number, "k", properties={"a": "b"}, message_type="till")
    return name


def test_messages_are_looked_at_and_no_group_is_left(broker: forebay.Broker, topic: str) -> None:
    command = Commands(str(broker.tubemq_url))
    shown = command.lines("peek", topic)
    assert len(shown) == 5
    first = shown[0]
    assert (first["key"], first["message_type"], first["properties"]) == ("k", "till", {"a": "b"})
    assert first["payload_base64"] == "MP8="
    assert len(command.lines("peek", topic, "-n", "2")) == 2
    assert command.lines("peek", topic, "-o", shown[3]["id"]) == shown[3:]
    assert command.lines("peek", topic, "-o", "latest") == []
    assert "00000000  30 ff " in command("peek", topic, "-n", "1")
    assert broker.topic_stats(f"tubemq:{topic}")["subscriptions"] == []


def test_wrong_looks_are_refused(broker: forebay.Broker, topic: str) -> None:
    command = Commands(str(broker.tubemq_url))
    assert "BROKER:PARTITION:OFFSET" in command.misused("peek", topic, "-o", "1h")
    assert "without moving it" in command.refused("peek", topic, "-s", "g")
    assert "-n is 1 or more" in command.misused("peek", topic, "-n", "0")
    assert "does not list groups" in command.refused("subscriptions")
    assert "MQTT keeps no messages" in Commands("mqtt://127.0.0.1").refused("peek", "t")
    assert "MQTT does not tell" in Commands("mqtt://127.0.0.1").refused("subscriptions")
    assert "`sub --parquet FILE`" in command.refused("replay", topic, "other")


def test_groups_of_the_embedded_broker(broker: forebay.Broker, topic: str) -> None:
    with blocking.connect(broker.tubemq_url) as client:
        with client.consumer(topic, "g", position="first") as consumer:
            consumer.receive(timeout=PATIENCE)
            listed = Commands(str(broker.http_url), "subscriptions")
            (row,) = listed.json(f"tubemq:{topic}")
            assert (row["subscription"], row["type"], row["consumers"]) == ("g", "group", 1)
            assert row["backlog"] > 0
            assert row in listed.json()
            assert "topic_not_found" in listed.refused("tubemq:none")


def test_subscriptions_of_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "store"
    with forebay.Broker(data=data, tubemq_port=0) as broker, blocking.connect(broker.url) as client:
        broker.create_topic("tubemq:sales", 2)
        broker.create_topic("parts", 2)
        for name in ("orders", "parts"):
            with client.consumer(name, "billing"), client.producer(name, batching=False) as producer:
                producer.send(b"1", "a")
                producer.send(b"2", "b")
        with blocking.connect(broker.tubemq_url) as other, other.producer("sales") as producer:
            with other.consumer("sales", "g", position="first") as consumer:
                producer.send(b"1")
                consumer.receive(timeout=PATIENCE)
    assert forebay.cli.main(["subscriptions", "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    start = "persistent://public/default/"
    assert [(row["topic"], row["subscription"], row["backlog"]) for row in found] == [
        (f"{start}orders", "billing", 2),
        (f"{start}parts", "billing", 2),
        ("tubemq:sales", "g", 1),
    ]


@pytest.mark.real_tubemq
def test_messages_of_the_real_server_are_looked_at(real_tubemq: RealTubeMq) -> None:
    topic = real_tubemq.topic(partitions=1)
    with blocking.connect(real_tubemq.url) as client, client.producer(topic) as producer:
        for number in range(3):
            producer.send(b"%d" % number)
    shown = Commands(real_tubemq.url).lines("peek", topic)
    assert [line["payload"] for line in shown] == ["0", "1", "2"]
    assert Commands(real_tubemq.url).lines("peek", topic, "-o", shown[1]["id"]) == shown[1:]


def test_a_topic_becomes_a_file_and_a_topic_again(broker: forebay.Broker, topic: str, tmp_path: Path) -> None:
    command = Commands(str(broker.tubemq_url))
    file = str(tmp_path / "sales.parquet")
    assert command.json("sub", "-t", topic, "--parquet", file) == {"file": file, "messages": 5}
    other = f"{topic}_2"
    broker.create_topic(f"tubemq:{other}", 1)
    command("pub", "-t", other, "--frame", file, "-q")

    def parts(line: dict[str, object]) -> dict[str, object]:
        apart = ("topic", "id", "message_id", "event_time")
        return {name: value for name, value in line.items() if name not in apart}

    before, after = command.lines("peek", topic), command.lines("peek", other)
    assert [parts(line) for line in after] == [parts(line) for line in before]
    assert "without a group" in command.misused("sub", "-t", topic, "-s", "g", "--parquet", file)


def test_rows_of_a_file_over_mqtt(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,x\n2,y\n")
    with forebay.Broker(mqtt_port=0) as broker, blocking.connect(broker.mqtt_url) as client:
        command = Commands(str(broker.mqtt_url))
        with client.consumer("rows") as consumer:
            command("pub", "-t", "rows", "--frame", str(file), "--quiet")
            found = [consumer.receive(timeout=PATIENCE).data for _ in range(2)]
        assert found == [b'{"a":1,"b":"x"}', b'{"a":2,"b":"y"}']
        words = ("-t", "rows", "--frame", str(file), "-D", "publish", "content-type", "a")
        assert "-D and --frame exclude" in command.misused("pub", *words)
