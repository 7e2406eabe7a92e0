"""The reference for our client and broker: the real TubeMQ with its own Java client and with frames by hand.

The engine is not involved: a failure here is one of the harness.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from support.tubemq import wire
from support.tubemq.harness import RealTubeMq, group
from support.tubemq.java import Java
from support.tubemq.liar import Liar
from support.tubemq.wire import Raw
from support.waiting import eventually

pytestmark = [pytest.mark.real_tubemq, pytest.mark.timeout(400)]


@pytest.mark.parametrize("balance", ["server", "client"])
def test_java_to_java(real_tubemq: RealTubeMq, java: Java, balance: str) -> None:
    topic, name = real_tubemq.topic(3), group()
    consume = java.pull if balance == "server" else java.balance
    with (
        java.producer(real_tubemq, topic) as producer,
        consume(real_tubemq, name, topic, position="first") as consumer,
    ):
        at = producer.send(topic, b"first", type="till", attributes={"a": "b"})
        assert at["success"] and at["code"] == 200
        sent = [b"%d" % number for number in range(200)]
        producer.send_all(topic, sent)
        got = consumer.receive(201)
        assert sorted(one.data for one in got) == sorted([b"first", *sent])
        (first,) = (one for one in got if one.data == b"first")
        assert first.type == "till" and first.attributes["a"] == "b"
        assert first.partition == f"1:{topic}:{at['partition']}"
        assert len(consumer.partitions()) == 3
        ends = {part: end for part, (_, end) in real_tubemq.ends(topic).items()}
        eventually(lambda: sum(one["curOffset"] for one in real_tubemq.offsets(name, topic).values()) > 0)
        assert ends == dict.fromkeys(range(3), 201 * 28)
        assert set(real_tubemq.holders(name)) == {0, 1, 2}


@pytest.mark.slow
def test_java_filters_and_positions(real_tubemq: RealTubeMq, java: Java) -> None:
    topic = real_tubemq.topic()
    with java.producer(real_tubemq, topic) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, type="even" if number % 2 == 0 else "odd")
        with java.balance(real_tubemq, group(), topic, offsets={f"1:{topic}:0": 28 * 15}) as consumer:
            assert [one.data for one in consumer.receive(5)] == [b"%d" % n for n in range(15, 20)]
        # With filters the Java client reads from disk, where messages are after 10 seconds.
        with java.balance(real_tubemq, group(), {topic: ["even"]}, position="first") as consumer:
            got = consumer.receive(10, timeout=40)
            assert [one.data for one in got] == [b"%d" % n for n in range(0, 20, 2)]


def test_by_hand(real_tubemq: RealTubeMq) -> None:
    """Each method of a producer and of a consumer with client balance, in frames by hand."""
    topic, name = real_tubemq.topic(2, 2), group()
    me = f"{name}_127.0.0.1-1-1-1"
    with Raw(real_tubemq.ports[0]) as master, Raw(int(real_tubemq.broker.split(":")[1])) as broker:
        said = master.call("producer_register", clientId=me, brokerCheckSum=-1, hostName="127.0.0.1")
        assert said["success"] and said["brokerInfos"] == [f"1:{real_tubemq.broker}"]
        token = {"visitAuthorizedToken": said["authorizedInfo"]["visitAuthorizedToken"]}
        said = master.call(
            "producer_heartbeat",
            clientId=me,
            brokerCheckSum=said["brokerCheckSum"],
            hostName="127.0.0.1",
            topicList=[topic],
        )
        assert said["topicInfos"] == [f"{topic}#1:2:2#"]

        said = master.call(
            "balance_register",
            clientId=me,
            groupName=name,
            hostName="127.0.0.1",
            sourceCount=-1,
            nodeId=-1,
            topicList=[topic],
            subRepInfo={"brokerConfigId": -2, "topicMetaInfoId": -2, "reportSubInfo": False},
        )
        assert said["errCode"] == 200
        said = master.call("balance_meta", clientId=me, groupName=name, brokerConfigId=-2, topicMetaInfoId=-2)
        assert said["topicMetaInfoList"] == [f"{topic}#1:2:2:1"]
        at = {"clientId": me, "groupName": name, "topicName": topic, "partitionId": 10_001}
        said = broker.call("partition_register", opType=wire.REGISTER, readStatus=0, authInfo=token, **at)
        assert said["success"] and said["maxOffset"] == 0

        data, flag = wire.pack(b"body", {"$msgType$": "t", "$msgTime$": "202611211200", "k": "v"})
        said = broker.call(
            "send",
            clientId=me,
            topicName=topic,
            partitionId=10_001,
            data=data,
            flag=flag,
            checkSum=wire.checksum(data),
            sentAddr=0x7F000001,
            msgType="t",
            msgTime="202611211200",
            authInfo=token,
        )
        assert said["success"] and said["appendOffset"] == 0
        said = broker.call("get", lastPackConsumed=True, manualCommitOffset=False, **at)
        assert said["errCode"] == 200
        (message,) = said["messages"]
        assert message["checkSum"] == wire.checksum(data)
        assert wire.unpack(message["payLoadData"], message["flag"]) == (
            b"body",
            "$msgType$=t,$msgTime$=202611211200,k=v",
        )
        assert broker.call("commit", lastPackConsumed=True, **at)["currOffset"] == 28
        said = broker.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)
        assert not said["success"] and said["errCode"] == 404
        said = broker.call(
            "broker_heartbeat",
            clientId=me,
            groupName=name,
            readStatus=0,
            partitionInfo=[f"1:{real_tubemq.broker}#{topic}:10001"],
            authInfo=token,
        )
        assert said["success"] and not said["hasPartFailure"]
        assert broker.call("partition_register", opType=wire.UNREGISTER, readStatus=0, **at)["success"]
        assert master.call("consumer_close", clientId=me, groupName=name)["success"]
        assert master.call("producer_close", clientId=me)["success"]


@pytest.mark.slow
def test_two_java_members_share_and_the_one_left_takes_over(own_tubemq: RealTubeMq, java: Java) -> None:
    topic, name = own_tubemq.topic(3), group()
    with java.pull(own_tubemq, name, topic) as stays, Java() as other:
        other.pull(own_tubemq, name, topic)
        eventually(lambda: len(set(own_tubemq.holders(name).values())) == 2, 30)
        # The master forgets a member that is silent for six seconds, until it is back.
        eventually(lambda: len(own_tubemq.members(name)) == 2)
        other.kill()
        eventually(lambda: len(stays.partitions()) == 3, 40)
        assert len(set(own_tubemq.holders(name).values())) == 1


@pytest.mark.slow
def test_a_restart_of_each_server(own_tubemq: RealTubeMq, java: Java) -> None:
    topic, name = own_tubemq.topic(), group()
    with java.producer(own_tubemq, topic) as producer, java.pull(own_tubemq, name, topic) as consumer:
        producer.send(topic, b"1")
        assert [one.data for one in consumer.receive(1)] == [b"1"]
        own_tubemq.restart("master1")
        producer.send(topic, b"2")
        assert [one.data for one in consumer.receive(1, 30)] == [b"2"]
        producer.send(topic, b"3")
        own_tubemq.restart("broker")
        got = consumer.receive(1, 60)
        assert [one.data for one in got] == [b"3"]
    assert own_tubemq.ends(topic) == {0: (0, 3 * 28)}


@pytest.mark.slow
def test_a_standby_takes_over(java: Java) -> None:
    cluster = RealTubeMq(masters=3, pool={(1, 1): 1})
    try:
        assert cluster.active() == "master1"
        topic = cluster.topic()
        with Raw(cluster.ports[1]) as standby:
            standby.send(wire.request(1, "producer_register", clientId="c", brokerCheckSum=-1, hostName="h"))
            answer = standby.response()
            assert answer.status == wire.ERROR
            assert answer.exception.endswith("StandbyException")
            assert "is not master now" in answer.text
        with java.producer(cluster, topic) as producer:
            producer.send(topic, b"before")
            cluster.halt("master1", kill=True)
            eventually(lambda: cluster.active() not in ("", "master1"), 120)
            producer.send(topic, b"between")
            with java.balance(cluster, group(), topic, position="first") as consumer:
                assert [one.data for one in consumer.receive(2, 30)] == [b"before", b"between"]
    finally:
        cluster.stop()


def test_java_over_mutual_tls(java: Java) -> None:
    server = RealTubeMq(tls=True, pool={(1, 1): 1})
    try:
        topic, masters = server.topic(), server.tls_url.removeprefix("tubemq+ssl://")
        with (
            java.producer(masters, topic, **server.stores()) as producer,
            java.balance(masters, group(), topic, position="first", **server.stores()) as consumer,
        ):
            assert producer.send(topic, b"over TLS")["success"]
            assert [one.data for one in consumer.receive(1)] == [b"over TLS"]
    finally:
        server.stop()


def test_credentials_by_hand(real_tubemq_secure: RealTubeMq) -> None:
    """Without the Java client, whose heartbeats lack the credentials that the server requires."""
    server, topic = real_tubemq_secure, real_tubemq_secure.topic()
    assert server.certificates is not None
    context = server.certificates.context(client_certificate=True)
    port = int(server.tls_url.rsplit(":", 1)[1])
    who: dict[str, Any] = {"clientId": "ann_127.0.0.1-1-1-1", "brokerCheckSum": -1, "hostName": "127.0.0.1"}
    with Raw(port, context=context) as master:
        said = master.call("producer_register", **who)
        assert not said["success"] and said["errCode"] == 415
        old = {"authInfo": wire.credentials("ann", "secret", at=time.time() - 60)}
        said = master.call("producer_register", **who, authInfo=old)
        assert said["errCode"] == 415 and "timestamp" in said["errMsg"]
        # Good for twenty seconds.
        proof = {"authInfo": wire.credentials("ann", "secret")}
        said = master.call("producer_register", **who, authInfo=proof)
        assert said["success"]
        visit = said["authorizedInfo"]["visitAuthorizedToken"]
        (broker_info,) = said["brokerInfos"]
        assert master.call("producer_heartbeat", **who, topicList=[topic])["errCode"] == 415
        proof = {"authInfo": wire.credentials("ann", "secret")}
        said = master.call("producer_heartbeat", **who, topicList=[topic], authInfo=proof)
        assert said["success"] and said["topicInfos"] == [f"{topic}#1:1:1#"]
    with Raw(int(broker_info.rsplit(":", 1)[1]), context=context) as broker:
        body: dict[str, Any] = {
            "clientId": who["clientId"],
            "topicName": topic,
            "partitionId": 0,
            "data": b"x",
            "flag": 0,
            "checkSum": -1,
            "sentAddr": 0x7F000001,
        }
        assert broker.call("send", **body, authInfo={"visitAuthorizedToken": visit})["errCode"] == 415
        proof = {"visitAuthorizedToken": visit, "authAuthorizedToken": wire.authorized("ann", "secret")}
        assert broker.call("send", **body, authInfo=proof)["success"]
    # A client without a certificate gets no answer.
    with pytest.raises((OSError, AssertionError)), Raw(port, context=server.certificates.context()) as raw:
        raw.call("producer_register", **who)
    assert server.active() == "master1", "the server lives on"


def test_the_load_of_the_benchmarks(real_tubemq: RealTubeMq, java: Java) -> None:
    topic = real_tubemq.topic(3)
    with java.producer(real_tubemq, topic) as producer, java.balance(real_tubemq, group(), topic) as consumer:
        for window in (1, 100):
            done = producer.load(topic, count=500, size=100, window=window)
            assert done["failed"] == 0, done
            assert 0 < done["seconds"] < 60 and done["rss"] > 1 << 20 and done["cpu"] > 0
        got = consumer.load(count=1000)
        assert got["count"] == 1000 and got["bytes"] == 100_000


@pytest.mark.parametrize("balance", ["server", "client"])
async def test_the_liar_is_honest_by_itself(java: Java, balance: str) -> None:
    liar = Liar({"demo": 2})

    def talk(address: str) -> None:
        consume = java.pull if balance == "server" else java.balance
        name = group()
        with (
            java.producer(address, "demo") as producer,
            consume(address, name, {"demo": ["till"]}, position="first") as filtered,
            consume(address, group(), "demo", position="first") as consumer,
        ):
            at = producer.send("demo", b"first", type="till", attributes={"a": "b"})
            assert at["success"] and at["offset"] == 0
            sent = [b"%d" % number for number in range(200)]
            producer.send_all("demo", sent)
            got = consumer.receive(201)
            assert sorted(one.data for one in got) == sorted([b"first", *sent])
            assert [one.attributes["a"] for one in filtered.receive(1)] == ["b"]
            filtered.nothing()
        # A later member resumes at the position of the group.
        with consume(address, name, {"demo": ["till"]}, position="first") as again:
            again.nothing()

    async with liar.up() as url:
        await asyncio.to_thread(talk, url.removeprefix("tubemq://"))
    methods = {"producer_register", "producer_heartbeat", "producer_close", "consumer_close", "send", "get"}
    methods |= {"commit", "partition_register"}
    master = "consumer" if balance == "server" else "balance"
    methods |= {f"{master}_register", f"{master}_heartbeat"} - {"balance_heartbeat"}
    assert methods <= liar.asked.keys()
