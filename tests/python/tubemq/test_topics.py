"""Topics of the embedded TubeMQ: made by ``forebay broker --topic`` and by the API, grown and deleted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay import blocking, cli, errors

from support.messages import numbered, payloads
from support.tubemq.harness import EmbeddedTubeMq, group
from support.tubemq.load import Flow, connect, ready, take
from support.waiting import PATIENCE


@pytest.fixture
def tube() -> Iterator[EmbeddedTubeMq]:
    """A broker of this test alone, that keeps its data and makes no topics on first use."""
    service = EmbeddedTubeMq(auto_create=False, data=True, durability="os")
    yield service
    service.stop()


# -- making topics; test_broker.py has those of first use


def test_the_command_makes_topics_once(tmp_path: Path) -> None:
    words = ("broker", "--port", "0", "--tubemq-port", "0", "--data", str(tmp_path), "--json")
    command = [
        sys.executable,
        "-m",
        "forebay",
        *words,
        "--topic",
        "tubemq:sales=4",
        "--topic",
        "tubemq:plain",
    ]
    for start in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["tubemq_url"]
            with blocking.connect(url) as client:
                assert (client.partitions("sales"), client.partitions("plain")) == (4, 3)
                if start == 0:
                    with client.producer("sales") as producer:
                        producer.send(b"kept")
                else:
                    with client.consumer("sales", "g", position="first") as consumer:
                        assert consumer.receive(timeout=PATIENCE).data == b"kept"
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


async def test_the_api_makes_grows_and_deletes_topics() -> None:
    async with forebay.Broker(durability="memory", tubemq_port=0, auto_create=False) as broker:
        broker.create_topic("tubemq:sales", 2)
        broker.create_topic("tubemq:plain")
        assert broker.topics() == ["tubemq:plain", "tubemq:sales"]
        with pytest.raises(errors.NotAllowed, match="already exists"):
            broker.create_topic("tubemq:sales", 2)
        broker.grow_topic("tubemq:sales", 3)
        with pytest.raises(errors.InvalidArgument, match="can only be added"):
            broker.grow_topic("tubemq:sales", 3)
        with pytest.raises(errors.TopicNotFound):
            broker.grow_topic("tubemq:other", 3)
        async with connect(str(broker.tubemq_url)) as client:
            assert await client.partitions("sales") == 3
            async with client.producer("sales") as producer:
                await producer.send(b"x")
            async with client.consumer("sales", "g", position="first") as consumer:
                assert payloads(await take(consumer, 1)) == [b"x"]
        broker.delete_topic("tubemq:sales")
        assert broker.topics() == ["tubemq:plain"]


# -- growth


async def test_a_topic_that_grows_loses_nothing_of_what_is_sent_and_received(tube: EmbeddedTubeMq) -> None:
    topic = tube.topic(1)
    async with connect(tube) as client, client.producer(topic) as producer:
        async with client.consumer(topic, group(), position="first") as consumer:
            flow = Flow(producer)
            await flow.progress(100)
            for partitions in (2, 5):
                tube.call("grow_topic", f"tubemq:{topic}", partitions)
                await ready(consumer, partitions)
                await flow.progress(100)
            await flow.stop()
            assert not flow.failed
            got: set[bytes] = set()
            sent = {b"%d" % number for number in flow.taken}
            while got < sent:
                got |= set(payloads(await take(consumer, 1)))
            assert got == sent
            positions = {part["partition"] for part in consumer.partitions()}
            assert positions == set(range(5))


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
async def test_a_topic_that_has_grown_outlives_a_restart(tube: EmbeddedTubeMq, kill: bool) -> None:
    topic = tube.topic(2)
    tube.call("grow_topic", f"tubemq:{topic}", 4)
    async with connect(tube) as client, client.producer(topic) as producer:
        await producer.send_many(numbered(40))
    tube.restart(kill=kill)
    async with connect(tube) as client:
        assert await client.partitions(topic) == 4
        async with client.consumer(topic, "g", position="first") as consumer:
            assert sorted(payloads(await take(consumer, 40))) == sorted(numbered(40))


# -- the commands over HTTP, which are for topics of Pulsar


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "tubemq:"], "topic ls tubemq: --data DIR"),
        (["create", "tubemq:sales", "-p", "2"], "forebay broker --topic tubemq:sales=2"),
        (["rm", "tubemq:sales"], "topic rm tubemq:sales --data DIR"),
        (["grow", "tubemq:sales", "-p", "4"], "topic grow tubemq:sales -p 4 --data DIR"),
        (["stats", "tubemq:sales"], "topic stats tubemq:sales -u tubemq://"),
        (["terminate", "tubemq:sales"], "only topics of Pulsar can be terminated"),
    ],
)
def test_topics_of_tubemq_are_refused_over_http_before_anything_is_sent(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Port 1 would refuse the connection.
    assert cli.main(["topic", *words, "-u", "http://127.0.0.1:1"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("forebay: unsupported") and said in shown


@pytest.mark.parametrize(
    "words",
    [["topic", "create"], ["topic", "rm"], ["topic", "stats"], ["subscription", "ls"], ["schema", "show"]],
)
def test_the_administration_of_pulsar_refuses_topics_of_tubemq(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with forebay.Broker(http_port=0, tubemq_port=0) as broker:
        assert cli.main(["admin", *words, "tubemq:sales", "-u", str(broker.http_url)]) == 1
        assert "use `forebay topic`" in capsys.readouterr().err
        assert broker.topics() == []
