"""``forebay subscriptions``, ``peek`` and ``replay`` with the embedded broker and with a real Pulsar."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from forebay import blocking, errors
from forebay.commands.pulsar import replay as replaying
from forebay.commands.pulsar.end import End

from support.commands import Commands, send, time_behind
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, eventually


@pytest.fixture
def command(service: PulsarService) -> Commands:
    return Commands(service.url)


def read(service: PulsarService, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = []
    with (
        blocking.connect(service.url) as client,
        client.reader(topic, position="earliest", **options) as reader,
    ):
        while reader.has_message_available():
            found.append(reader.receive(timeout=PATIENCE))
    return found


def subscriptions_of(service: PulsarService, topic: str) -> list[str]:
    return Commands(service.admin, "admin").json("subscription", "ls", topic)


# ---- subscriptions


def test_subscriptions_with_their_backlogs(service: PulsarService) -> None:
    listed = Commands(service.admin, "subscriptions")
    plain, parts = service.topic(), service.topic(partitions=3)
    with blocking.connect(service.url) as client:
        with client.consumer(plain, "one"), client.consumer(parts, "two", type="shared"):
            send(service, plain, b"1", b"2", batching=False)
            send(service, parts, b"1", b"2", b"3", b"4", batching=False)
            found = {row["topic"]: row for row in listed.json(plain, parts)}
    assert found[plain] | {"unacknowledged": 0} == {
        "topic": plain,
        "subscription": "one",
        "type": "Exclusive",
        "backlog": 2,
        "unacknowledged": 0,
        "consumers": 1,
    }
    row = found[parts]
    assert (row["subscription"], row["type"], row["backlog"]) == ("two", "Shared", 4)
    every = {row["topic"] for row in listed.json()}
    # One name for all partitions.
    assert {plain, parts} <= every
    assert not any(topic.startswith(f"{parts}-partition-") for topic in every)
    text = listed(plain)
    assert text.splitlines()[0].split() == [
        *("topic", "subscription", "type", "backlog", "unacknowledged", "consumers")
    ]
    assert "topic_not_found" in listed.refused(service.topic())
    assert "use the web service" in Commands(service.url, "subscriptions").refused(plain)


# ---- peek


def test_messages_are_looked_at_and_stay(command: Commands, service: PulsarService) -> None:
    topic = service.topic()
    with (
        blocking.connect(service.url) as client,
        client.consumer(topic, "s", position="earliest") as consumer,
    ):
        send(service, topic, *(b"%d" % number for number in range(5)), batching=False)
        shown = command.lines("peek", topic)
        assert [line["payload"] for line in shown] == list("01234")
        assert [line["payload"] for line in command.lines("peek", topic, "-n", "2")] == ["0", "1"]
        # With the message of the id, and the id with colons or as `sub` prints it.
        for id in (shown[3]["id"], shown[3]["id"].strip("()").replace(",", ":")):
            assert [line["payload"] for line in command.lines("peek", topic, "-o", id)] == ["3", "4"]
        at = str(shown[2]["publish_time"])
        assert command.lines("peek", topic, "-o", at)[-1]["payload"] == "4"
        assert len(command.lines("peek", topic, "-o", "1h")) == 5
        assert command.lines("peek", topic, "-o", "2099-01-01T00:00:00Z") == []
        assert command.lines("peek", topic, "-o", "latest") == []
        # Pulsar deletes those of readers after it has confirmed their end.
        eventually(lambda: subscriptions_of(service, topic) == ["s"])
        assert consumer.receive(timeout=PATIENCE).data == b"0"
    # Received, but not acknowledged.
    shown = Commands(service.admin).lines("peek", topic, "-s", "s", "-n", "3")
    assert [line["payload"] for line in shown] == ["0", "1", "2"]
    assert "exclude each other" in Commands(service.admin).misused("peek", topic, "-s", "s", "-o", "1h")
    assert "use the web service" in command.refused("peek", topic, "-s", "s")


def test_messages_of_all_partitions_are_looked_at(command: Commands, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    # One of the partitions is empty.
    send(service, f"{topic}-partition-0", b"a", b"b")
    send(service, f"{topic}-partition-2", b"c", batching=False)
    shown = command.lines("peek", topic)
    assert sorted(line["payload"] for line in shown) == ["a", "b", "c"]


def test_values_of_records_are_shown_as_json(command: Commands, service: PulsarService) -> None:
    @dataclass
    class Order:
        name: str
        size: int

    from forebay.pulsar import Schema

    topic = service.topic()
    with blocking.connect(service.url) as client:
        with client.producer(topic, schema=Schema.avro(Order)) as producer:
            producer.send(Order("a", 3))
    assert '{\n  "name": "a",\n  "size": 3\n}\n' in command("peek", topic, "--as", "json")
    assert "\n\\x02a\\x06\n" in command("peek", topic)


@pytest.mark.parametrize("where", ["nonsense", "12:x", "2026-01-01T00:00:00", "(1,2)"])
def test_a_bad_position_is_refused(command: Commands, service: PulsarService, where: str) -> None:
    assert "forebay: invalid_argument" in command.misused("peek", service.topic(), "-o", where)
    assert "forebay: invalid_argument" in command.misused("replay", "a", "b", "--from", where)


def test_looking_at_a_topic_does_not_create_it(command: Commands, service: PulsarService) -> None:
    missing, target = service.topic(), service.topic()
    for words in (
        ("peek", missing),
        ("peek", missing, "-o", "1h"),
        ("topic", "stats", missing),
        ("replay", missing, target),
        ("replay", missing, target, "--from", "2020-01-01T00:00:00Z"),
    ):
        assert "forebay: topic_not_found" in command.refused(*words)
    with blocking.connect(service.url) as client:
        assert not {missing, target} & set(client.topics("public/default"))


# ---- replay


def test_all_of_a_message_is_replayed(command: Commands, service: PulsarService) -> None:
    source, target = service.topic(), service.topic()
    with blocking.connect(service.url) as client:
        with client.producer(source) as producer:
            producer.send(
                b"one", "k", ordering_key=b"\0o", properties={"a": "b"}, event_time=1_700_000_000_000
            )
            producer.send(b"\xff", "ü")
            producer.send(b"", "k", null_value=True)
            producer.send(b"")
            frame = pa.table({"value": [b"row"], "key": pa.array([b"\xff\0"], pa.binary())})
            producer.send_frame(frame, value="value", key="key")
    said = command.json("replay", source, target)
    assert (said["messages"], said["complete"]) == (5, True)

    def fields(message: Any) -> tuple[Any, ...]:
        return (
            *(message.data, message.key, message.key_bytes, message.ordering_key),
            *(message.properties, message.event_time, message.is_null),
        )

    before, after = read(service, source), read(service, target)
    assert [fields(message) for message in after] == [fields(message) for message in before]
    assert fields(after[0])[0] == b"one"
    assert after[4].key_bytes == b"\xff\0"
    eventually(lambda: subscriptions_of(service, source) == [])


def test_schemas_are_replayed_version_by_version(command: Commands, service: PulsarService) -> None:
    from forebay.pulsar import Schema

    source, target = service.topic(), service.topic()
    field: dict[str, Any] = {"name": "a", "type": "int"}
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": [field]}
    more = {**record, "fields": [field, {"name": "b", "type": "int", "default": 7}]}
    with blocking.connect(service.url) as client:
        for definition, value in ((record, {"a": 1}), (more, {"a": 2, "b": 3}), (record, {"a": 4})):
            with client.producer(source, schema=Schema.avro(definition)) as producer:
                producer.send(value)
        with client.producer(source, schema=Schema.avro(record)) as producer:
            producer.send(None, null_value=True)
    command("replay", source, target, "-q")
    *found, tombstone = read(service, target, schema="auto")
    assert [message.value for message in found] == [{"a": 1}, {"a": 2, "b": 3}, {"a": 4}]
    assert tombstone.is_null
    plain = service.topic()
    command("replay", source, plain, "-q", "--no-schema")
    assert [message.schema_version for message in read(service, plain)] == [None] * 4


def test_a_part_is_replayed(command: Commands, service: PulsarService) -> None:
    source = service.topic()
    send(service, source, *(b"%d" % number for number in range(3)), batching=False)
    between = time_behind(service, source, 3)
    ids = send(service, source, *(b"%d" % number for number in range(3, 6)), batching=False)

    def replayed(*words: str) -> list[bytes]:
        target = service.topic()
        command("replay", source, target, "-q", *words)
        return [message.data for message in read(service, target)]

    assert replayed("--from", between) == [b"3", b"4", b"5"]
    assert replayed("--until", between) == [b"0", b"1", b"2"]
    assert replayed("--from", ids[1]) == [b"4", b"5"]
    assert replayed("--after", ids[1].strip("()").replace(",", ":")) == [b"5"]
    assert replayed("-n", "2") == [b"0", b"1"]
    assert replayed("--from", between, "-n", "1") == [b"3"]
    assert replayed("--from", "latest") == []
    assert replayed("--from", "2099-01-01T00:00:00Z") == []


def test_a_replay_that_stopped_goes_on_where_it_was(command: Commands, service: PulsarService) -> None:
    source, target = service.topic(partitions=3), service.topic(partitions=2)
    with blocking.connect(service.url) as client, client.producer(source) as producer:
        for number in range(40):
            producer.send_nowait(b"%d" % number, f"k{number % 7}")
        producer.flush()
    _, told = command.run("replay", source, target, "-n", "15", "--until", "2099-01-01T00:00:00Z")
    assert f" -u {service.url} --after " in told
    assert told.endswith(" --until 4070908800000\n")
    for _ in range(9):
        *_, line = told.splitlines()
        if not line.startswith("to go on: forebay "):
            break
        words = line.removeprefix("to go on: forebay ").split()
        _, told = command.run(*words, "-n", "10")
    assert "messages replayed" in told
    by_key: dict[str, list[int]] = {}
    for message in read(service, target):
        by_key.setdefault(message.key, []).append(int(message.data))
    # Each once, and those of a key in their order.
    assert by_key == {f"k{key}": list(range(key, 40, 7)) for key in range(7)}


def test_an_interrupted_replay_tells_how_to_go_on(
    command: Commands, service: PulsarService, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = service.topic(), service.topic()
    send(service, source, *(b"%d" % number for number in range(30)), batching=False)
    seen = End.seen

    def interrupted(self: End, id: Any) -> None:
        seen(self, id)
        if id.entry == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(End, "seen", interrupted)
    _, told = command.run("replay", source, target, status=130)
    monkeypatch.undo()
    assert "12 messages replayed" in told
    words = told.splitlines()[-1].removeprefix("to go on: forebay ").split()
    command.run(*words)
    assert [int(message.data) for message in read(service, target)] == list(range(30))


def test_a_failed_replay_tells_how_to_go_on(
    command: Commands, service: PulsarService, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = service.topic(), service.topic()
    send(service, source, *(b"%d" % number for number in range(10)), batching=False)
    monkeypatch.setattr(replaying, "CONFIRMED_EVERY", 4)
    service_terminated = replaying._Replay._flush

    def flush(self: Any, limit: float | None = None) -> None:
        if self.count == 4:
            raise errors.Disconnected("gone")
        service_terminated(self, limit)

    monkeypatch.setattr(replaying._Replay, "_flush", flush)
    _, told = command.run("replay", source, target, status=1)
    monkeypatch.undo()
    assert "4 messages replayed" in told
    (line,) = [line for line in told.splitlines() if line.startswith("to go on: ")]
    monkeypatch.setattr(replaying, "CONFIRMED_EVERY", 4)
    monkeypatch.setattr(replaying._Replay, "_flush", flush)
    words = ("-X", "token=secret", "--rate", "9999", "--no-schema")
    _, told = command.run("replay", source, service.topic(), *words, status=1)
    assert "to go on, with the same options of clients: " in told
    assert "--rate 9999 --no-schema" in told
    assert "secret" not in told
    monkeypatch.undo()
    command.run(*line.removeprefix("to go on: forebay ").split())
    # What had no receipt is sent again.
    assert [int(message.data) for message in read(service, target)] == [*range(8), *range(4, 10)]


def test_large_messages_are_replayed_with_little_memory(command: Commands, service: PulsarService) -> None:
    source, target = service.topic(), service.topic()
    send(service, source, *(b"%d" % number * 100_000 for number in range(10)), batching=False)
    command("replay", source, target, "-q", "-X", "memory_limit=250kB")
    assert [message.data[:1] for message in read(service, target)] == [b"%d" % number for number in range(10)]


def test_a_replay_ends_though_a_partition_is_written_to(command: Commands, service: PulsarService) -> None:
    source, target = service.topic(partitions=2), service.topic()
    old = send(service, f"{source}-partition-0", b"old", batching=False)
    between = time_behind(service, f"{source}-partition-0", 1)
    new = send(service, f"{source}-partition-1", b"new", batching=False)
    over = threading.Event()

    def write() -> None:
        with (
            blocking.connect(service.url) as client,
            client.producer(f"{source}-partition-1", batching=False) as producer,
        ):
            while not over.wait(0.02):
                producer.send(b"more")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for words in (["--from", between], ["--after", ",".join([*old, *new])]):
            said = command.json("replay", source, target, *words)
            assert said["complete"]
    finally:
        over.set()
        writer.join()
    found = [message.data for message in read(service, target)]
    assert found[0] == b"new"
    assert b"old" not in found


def test_a_topic_that_has_ended_is_read_to_its_end(command: Commands, service: PulsarService) -> None:
    source, target = service.topic(), service.topic()
    send(service, source, b"1", b"2", batching=False)
    service.terminate_topic(source)
    assert [line["payload"] for line in command.lines("peek", source)] == ["1", "2"]
    assert command.lines("peek", source, "-o", "2099-01-01T00:00:00Z") == []
    said = command.json("replay", source, target)
    assert (said["messages"], said["complete"]) == (2, True)
    said = command.json("replay", source, target, "--from", "2099-01-01T00:00:00Z")
    assert (said["messages"], said["complete"]) == (0, True)


def test_a_rate_is_kept(command: Commands, service: PulsarService) -> None:
    source, target = service.topic(), service.topic()
    send(service, source, *(b"%d" % number for number in range(11)))
    started = time.monotonic()
    command("replay", source, target, "--rate", "10", "-q")
    assert 1 <= time.monotonic() - started < 30
    assert len(read(service, target)) == 11


def test_wrong_replays_are_refused(command: Commands, service: PulsarService) -> None:
    topic = service.topic()
    assert "are the same topic" in command.misused("replay", topic, topic)
    assert "are the same topic" in command.misused("replay", topic, topic.rpartition("/")[2])
    assert "-n is 1 or more" in command.misused("replay", topic, "other", "-n", "0")
    again = f"{command.url}?operation_timeout=9"
    assert "are the same topic" in command.misused("replay", topic, topic, "--to", again)
    for rate in ("0", "-1", "nan", "inf"):
        assert "--rate is a number" in command.misused("replay", topic, "other", "--rate", rate)
    assert "is not a message id" in command.misused("replay", topic, "other", "--after", "1:2,x")
    assert "MQTT keeps no" in Commands("mqtt://127.0.0.1").refused("replay", "a", "b")


def test_a_replay_to_another_broker(embedded: Any, tmp_path: Any) -> None:
    import forebay

    source = embedded.topic()
    send(embedded, source, b"1", b"2")
    with forebay.Broker() as other:
        said = Commands(embedded.url).json("replay", source, source, "--to", other.url)
        assert said["messages"] == 2
        assert Commands(other.url).lines("peek", source)[1]["payload"] == "2"


# ---- doctor


def test_doctor_deletes_its_topic(service: PulsarService, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Commands(service.admin, "admin", "topic", "ls")
    monkeypatch.setenv("FOREBAY_ADMIN_URL", service.admin)
    patient = ("-X", "connect_timeout=60", "-X", "operation_timeout=60")
    for url in (service.admin, service.url):
        found = Commands(url).json("doctor", url, *patient)["findings"][-1]
        assert (found["step"], found["ok"]) == ("clean up", True)
        assert found["detail"].endswith("has been deleted")
    assert "forebay-doctor-" not in topics()


# ---- top


def test_top_shows_the_backlog_of_a_topic(service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    with blocking.connect(service.url) as client, client.consumer(topic, "s"):
        send(service, topic, b"1", b"2", b"3", batching=False)
        found = Commands(service.admin).json("top", "--once", "-i", "100ms")
    (row,) = [one for one in found["topics"] if one["topic"] == topic]
    (subscription,) = row["subscriptions"]
    assert (subscription["subscription"], subscription["backlog"]) == ("s", 3)
    assert found["protocols"][0]["protocol"] == "pulsar"
    assert found["broker"]["version"].startswith("pulsar 4" if service.is_real else "forebay ")
