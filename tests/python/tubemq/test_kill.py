"""``forebay broker --data --tubemq-port`` killed with messages in flight: acknowledged messages survive, and
groups resume no further than they committed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kill import Reconnecting, brokers_on, kill_under_load, seeded
from support.scripts import free_port
from support.service import BrokerProcess
from support.tubemq import wire
from support.tubemq.wire import Raw
from support.waiting import eventually

TOPIC = "killed"
WINDOW = 40


class Peer(Reconnecting):
    """A client that registers as a producer."""

    def session(self) -> None:
        with Raw(self.port, timeout=5) as raw:
            said = raw.call("producer_register", clientId=self.name, brokerCheckSum=-1, hostName="127.0.0.1")
            token = said["authorizedInfo"]["visitAuthorizedToken"]
            self.connections += 1
            self.handle(raw, {"authInfo": {"visitAuthorizedToken": token}})

    def is_cut(self, error: Exception) -> bool:
        return super().is_cut(error) or "closed the connection" in str(error)

    def handle(self, raw: Raw, token: dict[str, Any]) -> None:
        raise NotImplementedError


class Publisher(Peer):
    """Sends numbered messages, a window of them unacknowledged."""

    def __init__(self, port: int, name: str, partition: int) -> None:
        super().__init__(port, name)
        self.partition = partition
        self.number = 0
        #: Offsets that the broker acknowledged.
        self.acknowledged: dict[bytes, int] = {}

    def handle(self, raw: Raw, token: dict[str, Any]) -> None:
        waiting: dict[int, bytes] = {}
        while not (self.stopping.is_set() and not waiting):
            while len(waiting) < WINDOW and not self.stopping.is_set():
                self.number += 1
                body = b"%s %d" % (self.name.encode(), self.number)
                serial = raw.ask(
                    "send",
                    clientId=self.name,
                    topicName=TOPIC,
                    partitionId=self.partition,
                    data=body,
                    flag=0,
                    checkSum=wire.checksum(body),
                    sentAddr=0x7F000001,
                    **token,
                )
                waiting[serial] = body
            answer = raw.response()
            body = waiting.pop(answer.serial)
            assert answer.status == wire.SUCCESS, answer
            assert answer["success"], answer
            self.acknowledged[body] = answer["appendOffset"]


class Reader(Peer):
    """A group at one partition that reads batches and commits them."""

    def __init__(self, port: int, name: str, partition: int) -> None:
        super().__init__(port, name)
        self.at: dict[str, Any] = {
            "clientId": name,
            "groupName": f"g-{name}",
            "topicName": TOPIC,
            "partitionId": partition,
        }
        self.got: list[bytes] = []
        #: The offset that the broker reported as committed.
        self.committed = 0
        self.lost: list[str] = []

    def handle(self, raw: Raw, token: dict[str, Any]) -> None:
        said = raw.call("partition_register", opType=wire.REGISTER, readStatus=0, **self.at, **token)
        if not said["success"]:
            # Until the broker has noticed that our previous connection is gone.
            assert said["errCode"] == 410, said
            self.stopping.wait(0.05)
            return
        if said["currOffset"] < self.committed:
            self.lost.append(f"{said['currOffset']} after {self.committed} was committed")
        while not self.stopping.is_set():
            pack = raw.call("get", lastPackConsumed=False, manualCommitOffset=False, **self.at)
            if pack["errCode"] == 404:
                self.stopping.wait(0.005)
                continue
            assert pack["success"], pack
            bodies = [one["payLoadData"] for one in pack["messages"]]
            self.got += bodies
            said = raw.call("commit", lastPackConsumed=True, **self.at)
            assert said["success"], said
            self.committed = said["currOffset"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Callable[..., tuple[BrokerProcess, int]]]:
    """``broker(*options)`` starts a broker and returns it with its TubeMQ port."""
    with brokers_on(tmp_path / "data") as start:

        def with_port(*options: str) -> tuple[BrokerProcess, int]:
            port = free_port()
            listener = ("--tubemq-port", str(port), "--topic", f"tubemq:{TOPIC}=2")
            return start(*listener, *options), port

        yield with_port


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_kills_with_messages_in_flight(broker: Callable[..., tuple[BrokerProcess, int]]) -> None:
    process, port = broker()
    publishers = [Publisher(port, f"p{partition}", partition) for partition in (0, 1)]
    readers = [Reader(port, f"r{partition}", partition) for partition in (0, 1)]
    for peer in [*readers, *publishers]:
        peer.start()

    def progress(count: int) -> None:
        goals = [(publisher, len(publisher.acknowledged) + count) for publisher in publishers]
        eventually(lambda: all(len(p.acknowledged) >= goal or p.error for p, goal in goals), 120)
        assert not any(peer.error for peer in [*publishers, *readers])

    kill_under_load(process, seeded(), progress)
    for publisher in publishers:
        publisher.stopping.set()
        publisher.join(120)
    pairs = list(zip(publishers, readers, strict=True))
    eventually(lambda: all(set(r.got) >= p.acknowledged.keys() for p, r in pairs), 120)
    for reader in readers:
        reader.stopping.set()
        reader.join(10)
    for peer in [*publishers, *readers]:
        assert peer.error is None, peer.error
        assert peer.connections > 10, "the kills were noticed"
    for publisher, reader in pairs:
        assert set(reader.got) >= publisher.acknowledged.keys(), "an acknowledged message is gone"
        assert not reader.lost, reader.lost
        firsts = [int(body.split()[1]) for body in dict.fromkeys(reader.got)]
        assert firsts == sorted(firsts), "out of order"
        offsets = list(publisher.acknowledged.values())
        assert len(offsets) == len(set(offsets)), "two messages in one place"
        assert offsets == sorted(offsets)


def test_topics_and_groups_outlive_a_kill(broker: Callable[..., tuple[BrokerProcess, int]]) -> None:
    process, port = broker()
    at = {"clientId": "r", "groupName": "g", "topicName": TOPIC, "partitionId": 1}
    message: dict[str, Any] = {
        "clientId": "p",
        "topicName": TOPIC,
        "partitionId": 1,
        "flag": 0,
        "checkSum": -1,
        "sentAddr": 0,
    }

    def visit(raw: Raw) -> dict[str, Any]:
        said = raw.call("producer_register", clientId="p", brokerCheckSum=-1, hostName="127.0.0.1")
        return {"authInfo": {"visitAuthorizedToken": said["authorizedInfo"]["visitAuthorizedToken"]}}

    with Raw(port) as raw:
        token = visit(raw)
        assert raw.call("partition_register", opType=wire.REGISTER, readStatus=0, **at, **token)["success"]
        for body in (b"1", b"2"):
            assert raw.call("send", **message, data=body, **token)["success"]
        assert len(raw.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)["messages"]) == 2
        assert raw.call("commit", lastPackConsumed=True, **at)["currOffset"] == 56
        assert raw.call("send", **message, data=b"3", **token)["success"]
        process.end()
    process.start()
    with Raw(port) as raw:
        token = visit(raw)
        said = raw.call("partition_register", opType=wire.REGISTER, readStatus=1, **at, **token)
        assert (said["currOffset"], said["maxOffset"]) == (56, 84)
        got = raw.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)
        assert [one["payLoadData"] for one in got["messages"]] == [b"3"]
        assert raw.call("send", **message, data=b"4", **token)["appendOffset"] == 84


def test_a_broker_that_is_told_to_stop_ends_in_time(
    broker: Callable[..., tuple[BrokerProcess, int]],
) -> None:
    process, port = broker()
    with Raw(port) as raw:
        raw.call("producer_register", clientId="p", brokerCheckSum=-1, hostName="127.0.0.1")
        assert process.end(signal.SIGTERM) == 0
        assert raw.closed() == []
