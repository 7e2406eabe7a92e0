"""``forebay pub``, ``sub``, ``bench``, ``doctor`` and ``topic`` with TubeMQ URLs, on the embedded broker."""

from __future__ import annotations

import base64
import json
import threading
import time
import types
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import forebay
from forebay import blocking, cli, errors
from forebay.commands.tubemq.format import compile_format
from forebay.commands.tubemq.pub import when
from forebay.commands.tubemq.sub import _End

from support.commands import refused, run, start
from support.tubemq.harness import RealTubeMq
from support.waiting import eventually

MINUTE = 60_000


@pytest.fixture(scope="module")
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(tubemq_port=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(broker: forebay.Broker) -> str:
    assert broker.tubemq_url is not None
    return broker.tubemq_url


@pytest.fixture
def topic() -> str:
    """A topic that its first use creates, with three partitions."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def single(broker: forebay.Broker) -> str:
    """A topic of one partition, which keeps the order."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    broker.create_topic(f"tubemq:{name}", 1)
    return name


def read(url: str, topic: str, *arguments: str, group: str = "", status: int = 0) -> bytes:
    # -e ends the command, not the time: run() waits for less.
    limit = "90" if "-e" in arguments else "50"
    words = ("-s", group or f"g-{uuid.uuid4().hex[:8]}", "-o", "first", "-W", limit)
    return run("sub", url, "-t", topic, *words, *arguments, status=status)


# ------------------------------------------------------------------------------------------------
# publishing


def test_where_each_message_is_as_json(url: str, single: str) -> None:
    before = time.time() * 1000
    out = run("pub", url, "-t", single, "-m", "x", "-m", "y", "-k", "7", "--json")
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["topic"], first["broker"], first["partition"], first["key"]) == (single, 1, 0, "7")
    assert (first["offset"], second["offset"]) == (0, 28)
    assert (first["id"], second["id"]) == ("1:0:0", "1:0:28")
    assert before - 1000 <= first["time"] <= second["time"] <= time.time() * 1000 + 1000
    assert first["message_id"] != second["message_id"]


def test_keys_properties_type_and_event_time(url: str, single: str) -> None:
    moment = 1_700_000_000_000
    run("pub", url, "-t", single, "-m", "x", "-k", "42", "-p", "a=b", "-T", "till", "-E", str(moment))
    run("pub", url, "-t", single, "-m", "y", "-E", "2026-11-21T12:00:30+00:00")
    first, second = (json.loads(line) for line in read(url, single, "-C", "2", "--json").splitlines())
    assert (first["payload"], first["key"], first["properties"]) == ("x", "42", {"a": "b"})
    assert (first["message_type"], first["event_time"]) == ("till", moment - moment % MINUTE)
    assert (second["key"], second["properties"]) == (None, {})
    assert second["event_time"] == 1_795_262_400_000


def test_the_same_key_has_the_same_partition(url: str, topic: str) -> None:
    lines = b"".join(b"%d:%d\n" % (number % 20, number) for number in range(200))
    run("pub", url, "-t", topic, "-l", "-K", ":", "-q", stdin=lines)
    places: dict[str, set[str]] = {}
    for line in read(url, topic, "-C", "200", "-F", "%k %p %s\\n").decode().splitlines():
        key, partition, payload = line.split()
        assert int(payload) % 20 == int(key)
        places.setdefault(key, set()).add(partition)
    assert len(places) == 20
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) > 1


def test_more_lines_than_the_window_takes(url: str, single: str) -> None:
    numbers = [b"%d" % number for number in range(5000)]
    run("pub", url, "-t", single, "-l", "-q", "-X", "max_pending=1", stdin=b"\n".join(numbers))
    assert read(url, single, "-C", "5000").split() == numbers
    run("pub", url, "-t", single, "-l", "-q", "-X", "max_pending=100", stdin=b"\n".join(numbers))
    assert sorted(read(url, single, "-e").split()) == sorted(numbers * 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n"], "never empty, so -n is not supported"),
        (["-z", "lz4"], "no compression, so -z is not supported"),
        (["--retain"], "TubeMQ has no --retain"),
        (["--qos", "1"], "TubeMQ has no --qos"),
        (["-D", "publish"], "TubeMQ has no -D"),
        (["--cafile", "ca.pem"], "tls_ca=FILE"),
    ],
)
def test_what_the_protocol_has_not_is_refused_by_name(url: str, words: list[str], said: str) -> None:
    assert said in refused("pub", url, "-t", "t", "-m", "x", *words)


def test_wrong_values_are_named(url: str, single: str) -> None:
    assert "a topic is needed" in refused("pub", url, "-m", "x")
    one = ("pub", url, "-t", single)
    assert "one topic" in refused(*one, "-t", "b", "-m", "x", status=2)
    assert "empty" in refused(*one, "-m", "", status=1)
    assert "must not contain , or =" in refused(*one, "-m", "x", "-p", "a=b,c", status=1)
    assert "NAME=VALUE" in refused(*one, "-m", "x", "-p", "a", status=2)
    assert "-E" in refused(*one, "-m", "x", "-E", "soon", status=2)
    assert "max_pending" in refused(*one, "-m", "x", "-X", "max_pendign=1", status=2)
    assert "connect_failed" in refused("pub", "tubemq://127.0.0.1:1", "-t", "t", "-m", "x", status=1)
    said = refused("pub", "tubemq+ssl://127.0.0.1:1", "-t", "t", "-m", "x", status=2)
    assert "mutual" in said


def test_times() -> None:
    assert when("1700000000000") == 1_700_000_000_000
    moment = when("2026-11-21T13:00:00+01:00")
    assert not isinstance(moment, int)
    assert moment.timestamp() == 1_795_262_400
    for text in ("soon", "2026-11-21T12:00:00", "-5", ""):
        with pytest.raises(errors.InvalidArgument, match="-E"):
            when(text)


# -----------------------------------------------------------------------------------------------
# subscribing


def test_a_group_is_needed(url: str) -> None:
    assert "consumer group is needed: -s GROUP" in refused("sub", url, "-t", "t")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--type", "shared"], "so --type is not supported"),
        (["-q", "1"], "TubeMQ has no -q"),
        (["-R"], "TubeMQ has no -R"),
        (["--will-topic", "t"], "TubeMQ has no --will-topic"),
    ],
)
def test_what_subscriptions_have_not_is_refused_by_name(url: str, words: list[str], said: str) -> None:
    assert said in refused("sub", url, "-t", "t", "-s", "g", *words)


def test_wrong_positions_formats_and_combinations_are_named(url: str, single: str) -> None:
    one = ("sub", url, "-t", single, "-s", "g")
    assert "position" in refused(*one, "-o", "middle", status=2)
    assert "position" in refused(*one, "-o", "1:2", status=2)
    assert "'%q'" in refused(*one, "-F", "%q", status=2)
    assert "--no-ack" in refused(*one, "-e", "--no-ack", status=2)
    assert "message type" in refused(*one, "-T", "a=b", status=2)
    run("pub", url, "-t", single, "-m", "x")
    assert "%e is its event time" in refused(*one, "-o", "first", "-C", "1", "-F", "%T", status=1)


def test_a_format_prints_what_it_names(url: str, single: str) -> None:
    run("pub", url, "-t", single, "-m", "x", "-k", "k", "-p", "a=b", "-T", "till", "-E", "1699999980000")
    text = r"%t|%k|%m|%b|%p|%o|%i|%e|%h|%S|%s|%r|%%\t."
    out = read(url, single, "-C", "1", "-F", text)
    assert out == f"{single}|k|till|1|0|0|1:0:0|1699999980000|a=b|1|x|0|%\t.".encode()
    assert read(url, single, "-C", "1", "-v") == f"{single} k x\n".encode()
    assert read(url, single, "-C", "1", "-N") == b"x"
    with pytest.raises(errors.InvalidArgument, match="%m"):
        compile_format("%z")


def test_payloads_that_are_no_text(url: str, single: str) -> None:
    run("pub", url, "-t", single, "-s", stdin=b"\xff")
    said = json.loads(read(url, single, "-C", "1", "--json"))
    assert "payload" not in said
    assert base64.b64decode(said["payload_base64"]) == b"\xff"
    assert (said["topic"], said["broker"], said["partition"], said["offset"]) == (single, 1, 0, 0)
    assert (said["id"], said["redelivery_count"]) == ("1:0:0", 0)


def test_filters(url: str, single: str) -> None:
    for kind in ("a", "b", "c"):
        run("pub", url, "-t", single, "-m", f"1{kind}", "-m", f"2{kind}", "-T", kind)
    run("pub", url, "-t", single, "-m", "none")
    assert read(url, single, "-e", "-T", "b") == b"1b\n2b\n"
    assert read(url, single, "-e", "-T", "a", "-T", "c", "-F", "%m%s\\n") == b"a1a\na2a\nc1c\nc2c\n"
    assert read(url, single, "-e").split() == [b"1a", b"2a", b"1b", b"2b", b"1c", b"2c", b"none"]


def test_a_group_remembers_and_positions_are_for_new_ones(url: str, single: str) -> None:
    run("pub", url, "-t", single, "-m", "1", "-m", "2")
    for word in ("first", "earliest", "beginning"):
        assert read(url, single, "-e", "-o", word) == b"1\n2\n"
    assert read(url, single, "-e", group="till") == b"1\n2\n"
    assert read(url, single, "-e", group="till") == b""
    run("pub", url, "-t", single, "-m", "3")
    # The group is where it was, wherever a new one would start.
    assert read(url, single, "-e", "-o", "latest", group="till") == b"3\n"
    for word in ("latest", "end", "max"):
        assert read(url, single, "-e", "-o", word) == b""
    run("pub", url, "-t", single, "-m", "4")
    assert read(url, single, "-e", "-o", "max", group="till") == b""
    assert read(url, single, "-e", "-o", "1:0:56") == b"3\n4\n"


def test_the_end_is_the_one_of_the_start(broker: forebay.Broker, url: str, topic: str) -> None:
    """All partitions are read to their ends at the start, in any number of batches; an empty topic ends at
    once."""
    assert read(url, topic, "-e") == b""
    numbers = [b"%d" % number for number in range(20_000)]
    run("pub", url, "-t", topic, "-l", "-q", stdin=b"\n".join(numbers))
    assert sorted(read(url, topic, "-e", group="all").split()) == sorted(numbers)
    groups = broker.topic_stats(f"tubemq:{topic}")["subscriptions"]
    assert [group["backlog"] for group in groups if group["name"] == "all"] == [0, 0, 0]


class Scripted:
    """A consumer with the positions that the test gives it."""

    def __init__(self, *states: tuple[str, int | None, int | None]) -> None:
        self.say(*states)

    def say(self, *states: tuple[str, int | None, int | None]) -> None:
        self._states = [
            {
                "topic": "t",
                "broker_id": 1,
                "partition": number,
                "state": state,
                "offset": at,
                "max_offset": end,
            }
            for number, (state, at, end) in enumerate(states)
        ]

    def partitions(self) -> list[Any]:
        return self._states


def test_what_is_the_end() -> None:
    consumer = Scripted()
    end = _End(cast("Any", consumer))
    # The master has not assigned any yet; then a broker is still asked.
    assert not end.reached()
    consumer.say(("registering", None, None), ("reading", 56, 56))
    assert not end.reached()
    consumer.say(("reading", 0, 84), ("reading", 56, 56))
    assert not end.reached()
    # Later messages do not move the end; a batch that begins before it is not acknowledged.
    consumer.say(("reading", 56, 840), ("reading", 56, 840))
    assert not end.reached()
    consumer.say(("reading", 84, 840), ("reading", 56, 840))
    assert end.reached()
    # Partitions of other members do not count; a new partition has an end of its own.
    consumer.say(("occupied", None, None), ("reading", 56, 840), ("reading", 0, 28))
    assert not end.reached()
    consumer.say(("occupied", None, None), ("reading", 56, 840), ("reading", 28, 28))
    assert end.reached()

    def message(partition: int, offset: int) -> Any:
        place = types.SimpleNamespace(broker_id=1, partition=partition, offset=offset)
        return types.SimpleNamespace(topic="t", id=place)

    assert [end.is_behind(message(0, at)) for at in (56, 84, 112)] == [False, True, True]
    assert not end.is_behind(message(7, 84))


def test_the_end_is_reached_while_others_publish(url: str, single: str) -> None:
    run("pub", url, "-t", single, "-l", "-q", stdin=b"before\n" * 100)
    done = threading.Event()

    def publish() -> None:
        with blocking.connect(url) as client, client.producer(single) as producer:
            while not done.is_set():
                producer.send(b"meanwhile")

    with ThreadPoolExecutor() as pool:
        publishing = pool.submit(publish)
        try:
            lines = read(url, single, "-e").split()
        finally:
            done.set()
        publishing.result(30)
    assert lines[:100] == [b"before"] * 100
    assert set(lines[100:]) <= {b"meanwhile"}


def test_a_timeout_has_its_own_status(url: str, single: str) -> None:
    ask = ("sub", url, "-t", single, "-o", "first", "-s")
    assert run(*ask, "a", "-C", "1", "-W", "0.2", status=27) == b""
    assert run(*ask, "a", "-W", "0.2") == b""
    run("pub", url, "-t", single, "-m", "x")
    # The time includes connecting.
    assert run(*ask, "b", "-W", "10") == b"x\n"
    assert run(*ask, "c", "-W", "10", "-C", "2", status=27) == b"x\n"
    assert "-W" in refused(*ask, "a", "-W", "soon", status=2)


def test_messages_that_nobody_acknowledged_come_again(url: str, single: str) -> None:
    run("pub", url, "-t", single, "-m", "1", "-m", "2", "-m", "3")
    assert read(url, single, "-C", "3", "--no-ack", group="till") == b"1\n2\n3\n"
    # A broker confirms whole batches: the printed part of an unfinished one is delivered again.
    assert read(url, single, "-C", "2", group="till") == b"1\n2\n"
    assert read(url, single, "-e", group="till") == b"1\n2\n3\n"
    assert read(url, single, "-e", group="till") == b""


def test_two_members_share_the_partitions(broker: forebay.Broker, url: str, topic: str) -> None:
    """With server balance the master gives each some partitions; together they see every message once."""
    broker.create_topic(f"tubemq:{topic}", 4)
    member = ("sub", url, "-t", topic, "-s", "pair", "-o", "first", "-X", "balance=server", "-F", "%p %s\\n")
    members = [start(*member, "-C", "50"), start(*member, "-C", "50")]

    def held() -> list[int]:
        groups = broker.topic_stats(f"tubemq:{topic}")["subscriptions"]
        names = [one["name"] for part in groups for one in part["consumers"]]
        return sorted(names.count(name) for name in set(names))

    try:
        # The first member releases two with a heartbeat and the other takes them with its next: 10
        # s each.
        eventually(lambda: held() == [2, 2], timeout=60.0)
        # Round robin: 25 for each partition.
        run("pub", url, "-t", topic, "-l", "-q", stdin=b"".join(b"%d\n" % n for n in range(100)))
        said = [member.communicate(timeout=300) for member in members]
    finally:
        for one in members:
            one.kill()
    assert [member.returncode for member in members] == [0, 0], said
    lines = [line.split() for out, _ in said for line in out.splitlines()]
    assert sorted(int(payload) for _, payload in lines) == list(range(100))
    first, second = ({line.split()[0] for line in out.splitlines()} for out, _ in said)
    assert (len(first), len(second), first & second) == (2, 2, set())


# ----------------------------------------------------------------------------
# users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text("ann:secret\n")
    users.chmod(0o600)
    with forebay.Broker(tubemq_port=0, tubemq_user_file=users) as broker:
        assert broker.tubemq_url is not None
        yield broker.tubemq_url


def test_credentials(guarded: str) -> None:
    ann = ("-X", "username=ann", "-X", "password=env:WORD")
    environment = {"WORD": "secret"}
    run("pub", guarded, "-t", "t", "-m", "x", *ann, env=environment)
    ask = ("sub", guarded, "-t", "t", "-s", "g", "-o", "first", "-C", "1", "-W", "50")
    assert run(*ask, *ann, env=environment) == b"x\n"
    assert "authentication" in refused("pub", guarded, "-t", "t", "-m", "x", status=1)
    assert "authentication" in refused(*ask, *ann, env={"WORD": "wrong"}, status=1)


@pytest.mark.parametrize("position", ["middle", "1:2"])
def test_a_position_is_checked_before_connecting(position: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["sub", "tubemq://127.0.0.1:1", "t", "-s", "g", "-o", position])
    assert ended.value.code == 2
    assert "-o, the position" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ topic, doctor
# and bench


def test_partitions_over_the_wire(url: str, broker: forebay.Broker) -> None:
    broker.create_topic("tubemq:five", 5)
    said = run("topic", "stats", "five", "-u", url, "--json")
    assert json.loads(said) == {"topic": "five", "partitions": 5}
    assert run("topic", "stats", "five", "-u", url) == b"topic: five\npartitions: 5\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls"], ["list topics", "topic ls tubemq: --data DIR"]),
        (
            ["create", "x", "-p", "4"],
            ["create topics", "topic create tubemq:x -p 4 --data DIR", "forebay broker --topic tubemq:x=4"],
        ),
        (["rm", "tubemq:x"], ["delete topics", "topic rm tubemq:x --data DIR"]),
        (["grow", "x", "-p", "4"], ["add partitions", "topic grow tubemq:x -p 4 --data DIR"]),
    ],
)
def test_what_the_protocol_cannot_is_refused_with_what_can(
    url: str, words: list[str], said: list[str]
) -> None:
    answer = refused("topic", *words, "-u", url, status=1)
    assert answer.startswith("forebay: unsupported")
    for text in said:
        assert text in answer


def test_topics_of_a_store(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "store"))
    run("topic", "create", "tubemq:t", "-p", "2", *data)
    run("topic", "create", "t", "-p", "2", *data)
    assert run("topic", "ls", "tubemq:", *data) == b"tubemq:t\n"
    assert run("topic", "ls", *data) == b"persistent://public/default/t\n"
    assert json.loads(run("topic", "stats", "tubemq:t", "--json", *data))["partitions"] == 2
    run("topic", "grow", "tubemq:t", "-p", "3", *data)
    with (
        forebay.Broker(data=tmp_path / "store", tubemq_port=0) as broker,
        blocking.connect(broker.tubemq_url or "") as client,
    ):
        assert client.partitions("t") == 3
    run("topic", "rm", "tubemq:t", *data)
    assert run("topic", "ls", "tubemq:", *data).strip() == b""
    assert run("topic", "ls", *data) == b"persistent://public/default/t\n"


def test_a_topic_of_tubemq_needs_its_port() -> None:
    assert "--tubemq-port" in refused("broker", "--port", "0", "--topic", "tubemq:t=2", status=2)
    with forebay.Broker() as broker:
        with pytest.raises(errors.InvalidArgument, match="tubemq_port"):
            broker.create_topic("tubemq:t", 2)
        assert broker.topics() == []


def test_doctor_finds_nothing_wrong(url: str, single: str) -> None:
    said = json.loads(run("doctor", url, "--json"))
    assert said["ok"]
    steps = {finding["step"]: finding["detail"] for finding in said["findings"]}
    assert list(steps) == ["installed", "address", "master", "topic", "round trip"]
    assert "3 partitions" in steps["topic"]
    run("pub", url, "-t", single, "-m", "of somebody else")
    said = json.loads(run("doctor", url, "-t", single, "--json"))
    assert said["findings"][3]["detail"] == f"{single} has 1 partition"
    assert said["findings"][4]["detail"].startswith("10 messages sent and read back")


def failed(*arguments: str) -> list[str]:
    findings = json.loads(run("doctor", *arguments, "--json", status=1))["findings"]
    return [f"{finding['step']}: {finding['detail']}" for finding in findings if not finding["ok"]]


def test_doctor_names_the_step_that_fails(url: str, guarded: str, embedded: Any) -> None:
    (said,) = failed("tubemq://127.0.0.1:1")
    assert said.startswith("address: ")
    (said,) = failed(url.replace("tubemq://", "tubemq://127.0.0.1:1,"))
    assert said.startswith("address: ")
    (said,) = failed(guarded)
    assert said.startswith("master: authentication")
    (said,) = failed(url, "-t", "no good name")
    assert said.startswith("topic: ")
    # A mismatch is detected when the group is joined.
    (said,) = failed(url, "-X", "balance=server", "-X", "source_count=2", "-X", "node_id=0")
    assert said.startswith("round trip: ")
    # A server of another protocol.
    (said,) = failed(embedded.url.replace("pulsar://", "tubemq://"))
    assert said.startswith("master: ")
    assert "-t is for TubeMQ" in refused("doctor", embedded.url, "-t", "x", status=1)


def test_bench_measures(url: str) -> None:
    said = json.loads(run("bench", "-u", url, "-n", "3000", "--json"))
    names = ["send, one at a time", "send, in a window", "send_many", "receive_many and ack_many"]
    assert list(said["cases"]) == names
    assert all(case["rate"] > 0 for case in said["cases"].values())
    # It ended because all messages arrived, not because the time was over.
    assert said["cases"]["receive_many and ack_many"]["seconds"] < 25


def test_bench_refuses_what_the_protocol_has_not(url: str) -> None:
    assert "-z" in refused("bench", "-u", url, "-z", "lz4", status=1)
    assert "--qos" in refused("bench", "-u", url, "--qos", "1", status=1)


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_help_is_of_the_protocol(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "tubemq://", "--help"])
    assert ended.value.code == 0
    assert "--message-type" in capsys.readouterr().out


# -------------------------------------------------------------------------------------------- the
# real server


@pytest.mark.real_tubemq
def test_the_same_on_the_real_server(real_tubemq: RealTubeMq) -> None:
    """The real server: partitions share the index of their store, topics must exist, and filters are
    hashes."""
    url, topic = real_tubemq.url, real_tubemq.topic(partitions=3)
    assert read(url, topic, "-e", group=f"{topic}-g") == b""
    numbers = [b"%d" % number for number in range(3000)]
    run("pub", url, "-t", topic, "-l", "-q", stdin=b"\n".join(numbers))
    at = json.loads(run("pub", url, "-t", topic, "-m", "x", "-k", "7", "-T", "till", "--json"))
    assert (at["broker"], at["partition"] in (0, 1, 2), at["key"]) == (1, True, "7")
    assert at["offset"] % 28 == 0
    assert at["time"] > 0
    assert sorted(read(url, topic, "-e", group=f"{topic}-g").split()) == sorted([*numbers, b"x"])
    assert read(url, topic, "-e", group=f"{topic}-g") == b""
    assert read(url, topic, "-e", "-T", "till", "-F", "%m %k %s\\n") == b"till 7 x\n"

    assert json.loads(run("topic", "stats", topic, "-u", url, "--json"))["partitions"] == 3
    said = json.loads(run("doctor", url, "-t", topic, "--json"))
    assert [finding["step"] for finding in said["findings"] if finding["ok"]][2:] == [
        "master",
        "topic",
        "round trip",
    ]
    (said,) = failed(url)
    assert said.startswith("topic: topic_not_found")
    assert "name one with -t TOPIC" in said
    said = json.loads(run("bench", "-u", url, "-t", topic, "-n", "2000", "--json"))
    assert all(case["rate"] > 0 for case in said["cases"].values())
