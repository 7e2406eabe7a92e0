"""``forebay replay`` with TubeMQ: on the embedded broker, with servers that lie, and with the real one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import blocking, errors, frames
from forebay.commands._shared import replay as shared
from forebay.commands.tubemq import replay as replaying
from forebay.tubemq.offsets import UNIT

from support.commands import Commands
from support.scripts import free_port
from support.service import BrokerProcess
from support.tubemq import wire
from support.tubemq.harness import RealTubeMq
from support.tubemq.liar import Liar, Peer
from support.tubemq.wire import Request
from support.waiting import eventually

GO_ON = "to go on: forebay "


@pytest.fixture(scope="module")
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(tubemq_port=0) as broker:
        yield broker


@pytest.fixture
def command(broker: forebay.Broker) -> Commands:
    return Commands(str(broker.tubemq_url))


def topic(broker: forebay.Broker, partitions: int = 1) -> str:
    name = f"t_{uuid.uuid4().hex[:12]}"
    broker.create_topic(f"tubemq:{name}", partitions)
    return name


def fill(url: str, topic: str, numbers: range, **fields: Any) -> None:
    with blocking.connect(url) as client, client.producer(topic) as producer:
        for number in numbers:
            producer.send_nowait(b"%d" % number, f"k{number % 7}", **fields)
            # Those of a partition are in the order of their numbers.
            if number % 100 == 99:
                producer.flush()
        producer.flush()


def read(url: str, topic: str) -> list[dict[str, Any]]:
    return frames.read(url, topic, columns=[*replaying_columns(), "partition", "offset"]).to_pylist()


def replaying_columns() -> list[str]:
    return ["value", "key", "message_type", "event_time", "properties"]


def numbers(url: str, topic: str) -> list[int]:
    """The payloads, partition by partition."""
    return [int(row["value"]) for row in read(url, topic)]


def on(told: str) -> list[str]:
    """The words of the command that goes on."""
    (line,) = [line for line in told.splitlines() if line.startswith(GO_ON)]
    return line.removeprefix(GO_ON).split()


def subscriptions_of(broker: forebay.Broker, topic: str) -> list[Any]:
    return broker.topic_stats(f"tubemq:{topic}")["subscriptions"]


# ---- what is replayed


def test_all_of_a_message_is_replayed(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker), topic(broker)
    with blocking.connect(command.url) as client, client.producer(source) as producer:
        producer.send(
            b"one\xff",
            "k,=%",
            properties={"a": "b", "c": ""},
            message_type="till",
            event_time=1_700_000_000_000,
        )
        producer.send(b"two", message_type="web")
        producer.send(b"three", "ü", event_time=0)
        producer.send(b"four", properties={"a": "b"})
    said = command.json("replay", source, target)
    assert said == {
        "source": source,
        "target": target,
        "messages": 4,
        "complete": True,
        "from": None,
        "after": f"1:0:{3 * UNIT}",
        "deleted": 0,
    }
    before, after = read(command.url, source), read(command.url, target)
    assert after == before
    assert (before[0]["key"], before[0]["message_type"]) == ("k,=%", "till")
    assert before[0]["event_time"].timestamp() == 1_699_999_980
    # One with a type has a time, that of its sending if no other is given.
    assert [row["event_time"] is None for row in before] == [False, False, False, True]
    assert subscriptions_of(broker, source) == []


def test_a_part_is_replayed(command: Commands, broker: forebay.Broker) -> None:
    source = topic(broker)
    fill(command.url, source, range(6))

    def replayed(*words: str) -> list[int]:
        target = topic(broker)
        command("replay", source, target, "-q", *words)
        return numbers(command.url, target)

    def at(entry: int) -> str:
        return f"1:0:{entry * UNIT}"

    assert replayed("--from", "earliest") == list(range(6))
    assert replayed("--from", "beginning") == list(range(6))
    assert replayed("--from", at(4)) == [4, 5]
    assert replayed("--after", at(4)) == [5]
    assert replayed("--after", at(5)) == []
    assert replayed("--from", at(6)) == []
    assert replayed("--until", at(2)) == [0, 1]
    assert replayed("--until", at(0)) == []
    assert replayed("--from", at(3), "--until", at(1)) == []
    assert replayed("--from", at(1), "--until", at(100)) == [1, 2, 3, 4, 5]
    assert replayed("--from", at(1), "--after", at(3), "--until", at(5)) == [4]
    assert replayed("-n", "2") == [0, 1]
    assert replayed("--from", at(2), "-n", "1") == [2]
    assert replayed("--from", "latest") == []


def test_each_partition_has_its_place(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker, 3), topic(broker)
    fill(command.url, source, range(60))
    rows = read(command.url, source)
    of = {number: [row for row in rows if row["partition"] == number] for number in range(3)}
    assert all(len(found) > 3 for found in of.values())
    first, last = of[0][2]["offset"], of[1][1]["offset"]
    command("replay", source, target, "-q", "--from", f"1:0:{first}", "--until", f"1:1:{last}")
    expected = [row["value"] for row in (*of[0][2:], *of[1][:1], *of[2])]
    assert [row["value"] for row in read(command.url, target)] == expected


def test_messages_of_some_types_are_replayed(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker), topic(broker)
    with blocking.connect(command.url) as client, client.producer(source) as producer:
        for number in range(9):
            producer.send(b"%d" % number, message_type=("till", "web", "other")[number % 3])
    command("replay", source, target, "-q", "-X", "filters=till,web", "-n", "4")
    assert numbers(command.url, target) == [0, 1, 3, 4]
    queried = Commands(f"{command.url}?filters=other")
    other = topic(broker)
    said = queried.json("replay", source, other)
    assert (said["messages"], said["complete"]) == (3, True)
    # What was passed over is behind the place, too.
    assert said["after"] == f"1:0:{8 * UNIT}"
    _, told = queried.run("replay", source, topic(broker), "-n", "1")
    assert "to go on, with the same options of clients: " in told
    assert "filters" not in told


def test_an_empty_source_and_one_without_anything_new(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker, 2), topic(broker)
    assert command.json("replay", source, target) == {
        "source": source,
        "target": target,
        "messages": 0,
        "complete": True,
        "from": None,
        "after": "",
        "deleted": 0,
    }
    fill(command.url, source, range(5))
    after = command.json("replay", source, target)["after"]
    said = command.json("replay", source, target, "--after", after)
    assert (said["messages"], said["complete"], said["after"]) == (0, True, after)
    assert sorted(numbers(command.url, target)) == list(range(5))


def test_a_replay_ends_though_the_source_is_written_to(command: Commands, broker: forebay.Broker) -> None:
    source = topic(broker)
    fill(command.url, source, range(20))
    over, more = threading.Event(), threading.Event()

    def write() -> None:
        with blocking.connect(command.url) as client, client.producer(source) as producer:
            while not over.is_set():
                producer.send(b"99")
                more.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert more.wait(60)
        target = topic(broker)
        said = command.json("replay", source, target)
    finally:
        over.set()
        writer.join()
    assert said["complete"]
    found = numbers(command.url, target)
    assert found[:20] == list(range(20))
    assert len(found) == said["messages"] < len(numbers(command.url, source))


def test_a_topic_is_replayed_into_its_name_at_another_broker(
    command: Commands, broker: forebay.Broker
) -> None:
    source = topic(broker)
    fill(command.url, source, range(3))
    with forebay.Broker(tubemq_port=0) as other:
        other.create_topic(f"tubemq:{source}", 1)
        said = command.json("replay", source, source, "--to", str(other.tubemq_url))
        assert said["messages"] == 3
        assert numbers(str(other.tubemq_url), source) == [0, 1, 2]
    assert numbers(command.url, source) == [0, 1, 2]


def test_large_messages_are_replayed_with_little_memory(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker), topic(broker)
    with blocking.connect(command.url) as client, client.producer(source) as producer:
        for number in range(10):
            producer.send(b"%d" % number * 100_000)
    command("replay", source, target, "-q", "-X", "memory_limit=250kB")
    assert [row["value"] for row in read(command.url, target)] == [b"%d" % n * 100_000 for n in range(10)]


# ---- going on


def test_a_replay_that_stopped_goes_on_where_it_was(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker, 3), topic(broker, 2)
    fill(command.url, source, range(1300))
    _, told = command.run("replay", source, target, "-n", "150", "--until", f"1:0:{10_000 * UNIT}")
    assert f" -u {command.url} --after 1:0:" in told
    assert told.endswith(f" --until 1:0:{10_000 * UNIT}\n")
    assert "150 messages replayed" in told
    rounds = 0
    while GO_ON in told:
        rounds += 1
        assert rounds < 20
        _, told = command.run(*on(told), "-n", "177")
    assert rounds == 7
    assert sorted(numbers(command.url, target)) == list(range(1300))


def test_an_interrupted_replay_tells_how_to_go_on(
    command: Commands, broker: forebay.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = topic(broker), topic(broker)
    fill(command.url, source, range(30))
    send = replaying._Replay._send

    def interrupted(self: Any, message: Any) -> None:
        if message.offset == 12 * UNIT:
            raise KeyboardInterrupt
        send(self, message)

    monkeypatch.setattr(replaying._Replay, "_send", interrupted)
    _, told = command.run("replay", source, target, "-q", status=130)
    monkeypatch.undo()
    assert on(told)[-2:] == ["--after", f"1:0:{11 * UNIT}"]
    command.run(*on(told))
    assert numbers(command.url, target) == list(range(30))


def test_ctrl_c_tells_how_to_go_on(command: Commands, broker: forebay.Broker) -> None:
    source, target = topic(broker), topic(broker)
    fill(command.url, source, range(100))
    words = [sys.executable, "-m", "forebay", "replay", source, target, "-u", command.url, "--rate", "4"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        eventually(lambda: len(read(command.url, target)) > 2)
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert process.returncode == 130, told
    sent = len(read(command.url, target))
    assert f"{sent} messages replayed" in told
    assert on(told)[-4:] == ["--after", f"1:0:{(sent - 1) * UNIT}", "--rate", "4"]
    command.run(*on(told)[:-2])
    assert numbers(command.url, target) == list(range(100))


def test_a_failed_replay_tells_how_to_go_on(
    command: Commands, broker: forebay.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = topic(broker), topic(broker)
    fill(command.url, source, range(10))
    flush = replaying._Replay._flush

    def failing(self: Any, limit: float | None = None) -> None:
        if self.count == 4:
            raise errors.Disconnected("gone")
        flush(self, limit)

    monkeypatch.setattr(shared, "CONFIRMED_EVERY", 4)
    monkeypatch.setattr(replaying._Replay, "_flush", failing)
    out, told = command.run("replay", source, target, status=1)
    assert out == ""
    assert "4 messages replayed" in told
    said, _ = command.run("replay", source, topic(broker), "--json", status=1)
    monkeypatch.undo()
    assert json.loads(said)["after"] == f"1:0:{3 * UNIT}"
    assert not json.loads(said)["complete"]
    command.run(*on(told))
    # What had no receipt is sent again.
    assert numbers(command.url, target) == [*range(8), *range(4, 10)]


@pytest.mark.timeout(200)
def test_a_restart_of_the_broker_loses_nothing(tmp_path: Path) -> None:
    port = free_port()
    process = BrokerProcess(tmp_path / "store", "--tubemq-port", str(port), "--durability", "os")
    url = f"tubemq://127.0.0.1:{port}"
    process.start()
    try:
        fill(url, "source", range(1200))
        fill(url, "target", range(0))
        ended: list[tuple[str, str]] = []
        command = Commands(url)
        words = ("replay", "source", "target", "--rate", "400", "--json")
        replay = threading.Thread(target=lambda: ended.append(command.run(*words)))
        with (
            blocking.connect(url, retry_first=60) as client,
            client.consumer("target", "g", position="first", auto_ack=True) as seen,
        ):
            replay.start()
            for _ in range(300):
                seen.receive(timeout=60)
        process.end(signal.SIGTERM)
        process.start()
        replay.join(150)
        assert not replay.is_alive()
        said = json.loads(ended[0][0])
        assert (said["messages"], said["complete"], said["deleted"]) == (1200, True, 0)
        found = numbers(url, "target")
        assert sorted(set(found)) == list(range(1200))
        # Those without an answer when the connection broke are sent again by the client.
        assert len(found) <= 1200 + shared.CONFIRMED_EVERY
    finally:
        if process.is_running:
            process.end()


# ---- sources that lose messages


def served(liar: Liar, use: Callable[[str], Any]) -> Any:
    """The result of a function that uses a liar's URL."""

    async def serve() -> Any:
        async with liar.up() as url:
            return await asyncio.to_thread(use, url)

    return asyncio.run(serve())


def filled(count: int, partitions: int = 1, **lies: Any) -> Liar:
    """A source whose partitions share one index."""
    liar = Liar({"demo": partitions}, lies, 1_000_000)
    liar.stores["demo"].entries = [(number % partitions, b"%d" % number, 0, "") for number in range(count)]
    return liar


def trimmed(first: Callable[[Liar], int]) -> Callable[[Liar, Peer, Request], None]:
    """Registers partitions at the first entry that is left."""

    def answer(liar: Liar, peer: Peer, asked: Request) -> None:
        said = liar.fields(asked)
        key = (asked.fields["groupName"], asked.fields["topicName"], asked.fields["partitionId"])
        if asked.fields["opType"] != wire.UNREGISTER and said["success"]:
            reader = liar._readers[key]
            reader.committed = said["currOffset"] = max(said["currOffset"], first(liar) * UNIT)
        peer.send(wire.response(asked.serial, asked.name, **said))

    return answer


def test_messages_that_are_deleted_meanwhile_are_counted(broker: forebay.Broker) -> None:
    target = topic(broker)
    # As soon as two spans were read, the third and a part of the fourth are gone.
    gone = trimmed(lambda liar: 1750 if liar.asked["get"] > 20 else 0)
    liar = filled(2500, partition_register=gone)

    def replay(url: str) -> tuple[Any, str]:
        to = ("--to", str(broker.tubemq_url))
        said = Commands(url).json("replay", "demo", target, *to)
        return said, Commands(url).run("replay", "demo", target, *to, "-q", "--from", "1:0:0")[1]

    said, told = served(liar, replay)
    found = numbers(str(broker.tubemq_url), target)
    kept = said["messages"]
    assert said["complete"]
    assert said["deleted"] + kept == 2500
    assert kept in (1000 + 750, 1500 + 750)
    assert found[:kept] == [*range(kept - 750), *range(1750, 2500)]
    assert said["after"] == f"1:0:{2499 * UNIT}"
    # A replay that begins before what is left says that also with -q.
    assert (
        told == f"up to 1,750 messages of demo were deleted before they were read, and are not in {target}\n"
    )
    assert found[kept:] == list(range(1750, 2500))


def test_places_below_what_retention_has_left_are_counted() -> None:
    with forebay.Broker(tubemq_port=0, tubemq_retention=1.0) as broker:
        url = str(broker.tubemq_url)
        source, target = topic(broker), topic(broker)
        fill(url, source, range(100))

        def is_gone() -> bool:
            try:
                return read(url, source) == []
            except errors.DataLost:
                # It was deleted after the read had found out what there is.
                return False

        eventually(is_gone)
        # These may be deleted before the replay reads them, or not.
        fill(url, source, range(100, 103))
        said = Commands(url).json("replay", source, target, "--after", f"1:0:{9 * UNIT}")
        last = int(said["after"].rpartition(":")[2]) // UNIT
        assert said["complete"] and said["deleted"] >= 90
        assert said["deleted"] + said["messages"] == last - 9


def test_a_source_that_has_lost_its_end_is_an_error(broker: forebay.Broker) -> None:
    def loses(liar: Liar, peer: Peer, asked: Request) -> None:
        if liar.asked["get"] > 12:
            del liar.stores["demo"].entries[600:]
        peer.send(liar.honest(asked))

    target = topic(broker)
    liar = filled(1200, get=loses)

    def replay(url: str) -> str:
        words = ("replay", "demo", target, "--to", str(broker.tubemq_url))
        return Commands(url).refused(*words)

    told = served(liar, replay)
    assert "forebay: data_lost" in told and "ends at offset" in told
    found = numbers(str(broker.tubemq_url), target)
    assert found == list(range(len(found))) and len(found) >= 500
    at = int(on(told)[-1].rpartition(":")[2])
    assert at % UNIT == 0 and at // UNIT == len(found) - 1


def test_places_are_known_where_partitions_share_an_index(broker: forebay.Broker) -> None:
    """There a broker tells no offsets of messages."""
    target = topic(broker)
    liar = filled(1500, 3)
    url_of_target = str(broker.tubemq_url)

    def replay(url: str) -> list[str]:
        command = Commands(url)
        told = [command.run("replay", "demo", target, "--to", url_of_target, "-n", "100")[1]]
        while GO_ON in told[-1]:
            assert len(told) < 20
            told.append(command.run(*on(told[-1]), "-n", "180")[1])
        return told

    told = served(liar, replay)
    # The hundredth message of the first partition is entry 297.
    assert on(told[0])[-1] == f"1:0:{297 * UNIT}"
    assert len(told) == 1 + 8
    # Each once, partition by partition.
    expected = [number for partition in range(3) for number in range(partition, 1500, 3)]
    assert numbers(url_of_target, target) == expected


def test_an_interruption_where_partitions_share_an_index_repeats_a_span_at_most(
    broker: forebay.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, url_of_target = topic(broker), str(broker.tubemq_url)
    liar = filled(3000, 3)
    send = replaying._Replay._send

    def interrupted(self: Any, message: Any) -> None:
        if message.fields["value"] == b"2100":
            raise KeyboardInterrupt
        send(self, message)

    def replay(url: str) -> None:
        monkeypatch.setattr(replaying._Replay, "_send", interrupted)
        _, told = Commands(url).run("replay", "demo", target, "--to", url_of_target, status=130)
        monkeypatch.undo()
        assert "700 messages replayed" in told
        # The last span that was read to its end.
        assert on(told)[-1] == f"1:0:{1999 * UNIT}"
        Commands(url).run(*on(told))

    served(liar, replay)
    found = numbers(url_of_target, target)
    assert sorted(set(found)) == list(range(3000))
    assert len(found) == 3000 + 700 - 667


def test_a_message_that_cannot_be_sent_is_named(broker: forebay.Broker) -> None:
    liar = filled(3)
    data, flag = wire.pack(b"", "a=b")
    liar.stores["demo"].entries.append((0, data, flag, ""))
    target = topic(broker)

    def replay(url: str) -> str:
        return Commands(url).refused("replay", "demo", target, "--to", str(broker.tubemq_url))

    told = served(liar, replay)
    assert (
        f"invalid_argument: the message 1:0:{3 * UNIT} of demo cannot be sent: the payload is empty" in told
    )
    assert on(told)[-1] == f"1:0:{2 * UNIT}"
    assert numbers(str(broker.tubemq_url), target) == [0, 1, 2]


# ---- what is refused


def test_wrong_replays_are_refused(command: Commands, broker: forebay.Broker) -> None:
    source = topic(broker)
    fill(command.url, source, range(2))

    def refused(*words: str) -> str:
        return command.refused("replay", source, "other", *words)

    def misused(*words: str) -> str:
        return command.misused("replay", source, "other", *words)

    assert "are the same topic" in command.misused("replay", source, source)
    assert "are the same topic" in command.misused(
        "replay", source, source, "--to", f"{command.url}?max_pending=9"
    )
    assert "-n is 1 or more" in misused("-n", "0")
    for rate in ("0", "-1", "nan", "inf"):
        assert "--rate is a number" in misused("--rate", rate)
    for flag in ("--from", "--until"):
        for time in ("2h", "2026-11-21T12:00:00Z", "2026-11-21T12:00:00", "1700000000000"):
            told = refused(flag, time)
            assert told.startswith(f"forebay: unsupported: {flag} takes no time with TubeMQ"), told
    for flag in ("--from", "--until", "--after"):
        for wrong in ("1:2", "x", "1:0:5x", "1:0:0,", "1:0:99999999999999999999"):
            told = misused(flag, wrong)
            assert told.startswith(f"forebay: invalid_argument: {flag} takes ") and wrong in told, told
        assert "offsets are multiples of 28" in misused(flag, "1:0:5")
        assert f"{flag} names a partition twice" in misused(flag, "1:0:0,1:0:28")
        assert f"{flag}: '{source}' has no partition 1:7" in refused(flag, "1:7:0")
    assert "latest" not in misused("--until", "x")
    told = refused("--from", f"1:0:{99 * UNIT}")
    assert "data_lost" in told and f"ends at offset {2 * UNIT}, before {99 * UNIT}" in told
    assert "TubeMQ has no schemas" in refused("--no-schema")
    assert "use --from" in misused("-X", "position=first")
    assert "acknowledges nothing" in misused("-X", "auto_ack=true")
    assert "is not the name of a topic" in command.misused("replay", "a,b", "c")
    assert "is not a URL of TubeMQ" in misused("--to", "pulsar://127.0.0.1:6650")
    assert "Pulsar and of TubeMQ" in Commands("mqtt://127.0.0.1").refused("replay", "a", "b")
    # None of these has made the target, which the broker does with the first client that asks for it.
    with pytest.raises(errors.TopicNotFound):
        broker.topic_stats("tubemq:other")


def test_topics_that_do_not_exist() -> None:
    with forebay.Broker(tubemq_port=0, auto_create=False) as broker:
        source = topic(broker)
        command = Commands(str(broker.tubemq_url))
        fill(command.url, source, range(1))
        assert "topic_not_found" in command.refused("replay", source, "missing")
        assert "topic_not_found" in command.refused("replay", "missing", source)
        assert numbers(command.url, source) == [0]


def test_pyarrow_is_named_if_it_is_missing(
    command: Commands, broker: forebay.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "replay needs pyarrow: pip install 'forebay[frames]'" in command.refused("replay", "a", "b")


# ---- the real TubeMQ


@pytest.mark.real_tubemq
@pytest.mark.parametrize("stores", [1, 2])
def test_a_topic_of_the_real_server_is_replayed(real_tubemq: RealTubeMq, stores: int) -> None:
    url = real_tubemq.url
    # Partitions of a store share its index.
    source, target = real_tubemq.topic(3 if stores == 1 else 2, stores), real_tubemq.topic()
    with blocking.connect(url) as client, client.producer(source) as producer:
        for number in range(1500):
            fields: dict[str, Any] = {"message_type": "till", "event_time": 1_700_000_000_000}
            producer.send_nowait(b"%d" % number, f"k{number % 7}", properties={"a": "b"}, **fields)
            if number % 100 == 99:
                producer.flush()
        producer.flush()
    command = Commands(url)
    _, told = command.run("replay", source, target, "-n", "400")
    assert "400 messages replayed" in told
    assert len(read(url, target)) == 400
    rounds = 0
    while GO_ON in told:
        rounds += 1
        assert rounds < 10
        _, told = command.run(*on(told), "-n", "700")
    found = read(url, target)
    assert sorted(int(row["value"]) for row in found) == list(range(1500))

    def parts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in replaying_columns()) for row in rows]

    assert parts(found) == parts(read(url, source))
    assert found[0]["message_type"] == "till" and found[0]["properties"] == [("a", "b")]
